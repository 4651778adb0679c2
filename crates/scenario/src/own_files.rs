//! The files a node has of its own, whatever it runs on: its names, and what the scenario gives it.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use windtunnel_base::input_file::{self, Kind};
use windtunnel_base::{hashes, random};

use crate::model::{FileContent, Node, Scenario};

/// Largest file of the host that a scenario may give a node, bytes: all of it is kept in memory.
const SOURCE_MAX_BYTES: u64 = 1 << 30;

/// A file of a node, root's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// Absolute, without `.` and `..`.
    pub path: String,
    /// What is in it.
    pub bytes: Arc<[u8]>,
    /// Permission bits.
    pub mode: u32,
}

/// A host file that a scenario names cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("file {path} cannot be taken from {}: {source}", host_path.display())]
pub struct SourceError {
    /// The file in the node.
    pub path: String,
    /// The file of the host.
    pub host_path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl SourceError {
    /// What to do about it.
    pub const HINT: &str = "name a regular file of at most 1 GiB that you may read";
}

impl Scenario {
    /// All of them, in a run with `seed`: those of the scenario first, in their order. One of them replaces ours of that name.
    ///
    /// # Errors
    /// When a host file the scenario names cannot be read.
    pub fn own_files(&self, node: &Node, seed: u64) -> Result<Vec<OwnFile>, SourceError> {
        let mut files = Vec::new();
        for file in &node.files {
            let bytes = match &file.content {
                FileContent::Text(text) => text.as_bytes().into(),
                FileContent::Source(host_path) => input_file::read(host_path, Kind::Regular, SOURCE_MAX_BYTES)
                    .map_err(|source| SourceError {
                        path: file.path.clone(),
                        host_path: host_path.clone(),
                        source,
                    })?
                    .into(),
            };
            let (path, mode) = (file.path.clone(), file.mode);
            files.push(OwnFile { path, bytes, mode });
        }
        let names = [
            ("/etc/hostname", format!("{}\n", node.name)),
            ("/etc/hosts", self.hosts(node)),
            ("/etc/machine-id", machine_id(seed, node)),
            (
                "/etc/resolv.conf",
                "# There is no name server; names are in /etc/hosts.\n".to_owned(),
            ),
        ];
        for (path, text) in names {
            if files.iter().all(|file| file.path != path) {
                files.push(OwnFile {
                    path: path.into(),
                    bytes: text.into_bytes().into(),
                    mode: 0o644,
                });
            }
        }
        Ok(files)
    }

    /// `/etc/hosts`: every node by all its addresses. Its own name leads to its first address, as elsewhere.
    fn hosts(&self, node: &Node) -> String {
        let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
        if node.interfaces.iter().all(|interface| interface.addresses.is_empty()) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "127.0.1.1\t{}", node.name);
        }
        for other in &self.nodes {
            for address in other.interfaces.iter().flat_map(|interface| &interface.addresses) {
                let _ = writeln!(text, "{}\t{}", address.addr(), other.name);
            }
        }
        text
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
      /etc/resolv.conf: {content: nameserver 10.0.0.2}
  h2: {addresses: {eth0: 10.0.0.2/24}}
  lone: {files: {/data: {source: is-not-there}}}
links:
  - endpoints: ["h1:eth0", "h2:eth0"]
    both: {rate: 1Gbit, delay: 1ms}
"#;

    fn text_of(files: &[OwnFile], path: &str) -> String {
        let found: Vec<&OwnFile> = files.iter().filter(|file| file.path == path).collect();
        let [file] = found[..] else {
            panic!("{path} is there once: {files:?}");
        };
        String::from_utf8(file.bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_node_knows_all_names() {
        let scenario = Scenario::parse(TEXT, Path::new("files.yaml")).unwrap();
        let files = scenario.own_files(&scenario.nodes[0], 1).unwrap();
        assert_eq!(text_of(&files, "/etc/hostname"), "h1\n");
        assert_eq!(text_of(&files, "/etc/motd"), "hello");
        assert_eq!(text_of(&files, "/etc/resolv.conf"), "nameserver 10.0.0.2");
        let hosts = text_of(&files, "/etc/hosts");
        for line in ["127.0.0.1\tlocalhost", "10.0.0.1\th1", "fd00::1\th1", "10.0.0.2\th2"] {
            assert!(hosts.lines().any(|is| is == line), "{line} in {hosts}");
        }
        assert!(scenario.hosts(&scenario.nodes[2]).contains("127.0.1.1\tlone\n"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let scenario = Scenario::parse(TEXT, Path::new("files.yaml")).unwrap();
        let error = scenario.own_files(&scenario.nodes[2], 1).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("file /data cannot be taken from ") && text.contains("is-not-there: "),
            "{text}"
        );
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
