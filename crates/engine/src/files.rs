//! The files a node has of its own: its names, and what the scenario gives it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use windtunnel_base::input_file::{self, Kind};
use windtunnel_base::{hashes, random};
use windtunnel_process::NodeFile;
use windtunnel_results::SourceRecord;
use windtunnel_scenario::{FileContent, Node, Scenario};

use crate::error::EngineError;

/// Largest file of the host that a scenario may give a node, bytes: all of it is kept in memory.
const SOURCE_MAX_BYTES: u64 = 1 << 30;

/// All of them, in a run with `seed`; a file of the scenario replaces one of ours.
///
/// # Errors
/// When a host file the scenario names cannot be read.
pub fn node_files(scenario: &Scenario, node: &Node, seed: u64) -> Result<Vec<NodeFile>, EngineError> {
    let mut files = Vec::new();
    for file in &node.files {
        let bytes: Arc<[u8]> = match &file.content {
            FileContent::Text(text) => text.as_bytes().into(),
            FileContent::Source(path) => input_file::read(path, Kind::Regular, SOURCE_MAX_BYTES)
                .map_err(|source| EngineError::NodeFileSource {
                    node: node.name.clone(),
                    path: file.path.clone(),
                    host_path: path.clone(),
                    source,
                })?
                .into(),
        };
        files.push(NodeFile {
            path: file.path.clone(),
            bytes,
            mode: file.mode,
        });
    }
    let own = [
        ("/etc/hostname", format!("{}\n", node.name)),
        ("/etc/hosts", hosts(scenario, node)),
        ("/etc/machine-id", machine_id(seed, node)),
        (
            "/etc/resolv.conf",
            "# There is no name server; names are in /etc/hosts.\n".to_owned(),
        ),
    ];
    for (path, text) in own {
        if files.iter().all(|file| file.path != path) {
            files.push(NodeFile {
                path: path.into(),
                bytes: text.into_bytes().into(),
                mode: 0o644,
            });
        }
    }
    Ok(files)
}

/// Which nodes have a file of the host, by its path in them and its SHA-256.
#[derive(Debug, Default)]
pub struct Sources(BTreeMap<(String, String), Vec<String>>);

impl Sources {
    /// Notes those of a node, whose files these are.
    pub fn note(&mut self, node: &Node, files: &[NodeFile]) {
        // A scenario's files come first, in their order.
        for (file, contents) in node.files.iter().zip(files) {
            if matches!(file.content, FileContent::Source(_)) {
                let key = (file.path.clone(), hashes::hex(&hashes::sha256(&contents.bytes)));
                self.0.entry(key).or_default().push(node.name.clone());
            }
        }
    }

    /// For the manifest.
    pub fn records(self) -> Vec<SourceRecord> {
        let record = |((path, sha256), nodes)| SourceRecord { path, sha256, nodes };
        self.0.into_iter().map(record).collect()
    }
}

/// `/etc/machine-id`: a random UUID (RFC 9562, version 4) of this node in this run.
fn machine_id(seed: u64, node: &Node) -> String {
    let random = random::stream(seed, &format!("machine-id/{}", node.name));
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&random[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    format!("{}\n", hashes::hex(&uuid))
}

/// `/etc/hosts`: every node by all its addresses. Its own name leads to its first address, as elsewhere.
fn hosts(scenario: &Scenario, node: &Node) -> String {
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let addressed = |node: &Node| node.interfaces.iter().any(|interface| !interface.addresses.is_empty());
    if !addressed(node) {
        let _ = writeln!(text, "127.0.1.1\t{}", node.name);
    }
    for other in &scenario.nodes {
        for address in other.interfaces.iter().flat_map(|interface| &interface.addresses) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}\t{}", address.addr(), other.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const TEXT: &str = r#"
version: 1
name: files
run: {stop: 1s}
nodes:
  h1:
    addresses: {eth0: [10.0.0.1/24, "fd00::1/64"]}
    files:
      /etc/motd: {content: hello}
  h2: {addresses: {eth0: 10.0.0.2/24}}
  lone: {}
links:
  - endpoints: ["h1:eth0", "h2:eth0"]
    both: {rate: 1Gbit, delay: 1ms}
"#;

    fn text_of(files: &[NodeFile], path: &str) -> String {
        let file = files
            .iter()
            .find(|file| file.path == path)
            .unwrap_or_else(|| panic!("{path} is there"));
        String::from_utf8(file.bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_node_knows_all_names() {
        let scenario = Scenario::parse(TEXT, Path::new("files.yaml")).unwrap();
        let files = node_files(&scenario, &scenario.nodes[0], 1).unwrap();
        assert_eq!(text_of(&files, "/etc/hostname"), "h1\n");
        assert_eq!(text_of(&files, "/etc/motd"), "hello");
        let hosts = text_of(&files, "/etc/hosts");
        for line in ["127.0.0.1\tlocalhost", "10.0.0.1\th1", "fd00::1\th1", "10.0.0.2\th2"] {
            assert!(hosts.lines().any(|is| is == line), "{line} in {hosts}");
        }
        let lone = node_files(&scenario, &scenario.nodes[2], 1).unwrap();
        assert!(text_of(&lone, "/etc/hosts").contains("127.0.1.1\tlone\n"));
    }

    #[test]
    fn a_machine_id_is_of_the_seed_and_the_node() {
        let scenario = Scenario::parse(TEXT, Path::new("files.yaml")).unwrap();
        let id = |seed, node: usize| machine_id(seed, &scenario.nodes[node]);
        assert_eq!(id(1, 0), id(1, 0));
        assert_ne!(id(1, 0), id(1, 1));
        assert_ne!(id(1, 0), id(2, 0));
        let text = id(1, 0);
        assert!(
            text.len() == 33 && text.ends_with('\n') && text.as_bytes()[12] == b'4',
            "{text}"
        );
    }
}
