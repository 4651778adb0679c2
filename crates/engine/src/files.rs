//! The files a node has of its own, for its process layer and for the manifest.

use std::collections::BTreeMap;

use windtunnel_base::hashes;
use windtunnel_process::NodeFile;
use windtunnel_results::SourceRecord;
use windtunnel_scenario::{FileContent, Node, OwnFile, Scenario};

use crate::error::EngineError;

/// All of them, in a run with `seed`; see [`Scenario::own_files`].
///
/// # Errors
/// When a host file the scenario names cannot be read.
pub fn node_files(scenario: &Scenario, node: &Node, seed: u64) -> Result<Vec<NodeFile>, EngineError> {
    let refused = |source| EngineError::NodeFileSource {
        node: node.name.clone(),
        source,
    };
    let files = scenario.own_files(node, seed).map_err(refused)?;
    let own = |OwnFile { path, bytes, mode }| NodeFile { path, bytes, mode };
    Ok(files.into_iter().map(own).collect())
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
