//! What the nodes of a run see as `/`: each root that the scenario names, opened once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use windtunnel_images::{ImageError, Unpacker};
use windtunnel_process::Root as Files;
use windtunnel_results::RootRecord;
use windtunnel_scenario::{Root, Scenario};

use crate::defaults::Defaults;
use crate::error::EngineError;

/// Roots, and which node has which.
#[derive(Debug)]
pub struct Roots {
    list: Vec<OpenRoot>,
    by_node: Vec<usize>,
}

/// A root that is there.
#[derive(Debug)]
struct OpenRoot {
    spec: Root,
    files: Files,
    defaults: Defaults,
}

impl Roots {
    /// Opens all roots of the scenario; images are unpacked if the cache does not have them.
    ///
    /// # Errors
    /// When one is not there, or is nothing that nodes could have as `/`.
    pub fn open(scenario: &Scenario, unpacker: &Unpacker<'_>) -> Result<Self, EngineError> {
        let mut roots = Self {
            list: Vec::new(),
            by_node: Vec::new(),
        };
        for node in &scenario.nodes {
            let known = roots.list.iter().position(|known| known.spec == node.root);
            let number = match known {
                Some(number) => number,
                None => {
                    let root = OpenRoot::open(&node.root, unpacker).map_err(|(path, source)| EngineError::Root {
                        node: node.name.clone(),
                        path,
                        source,
                    })?;
                    roots.list.push(root);
                    roots.list.len() - 1
                }
            };
            roots.by_node.push(number);
        }
        Ok(roots)
    }

    /// All files of the host for every node, with their owners: for programs that stand for one of the host.
    pub fn of_host(scenario: &Scenario) -> Self {
        let root = OpenRoot {
            spec: Root::Host,
            files: Files::Same("/".into()),
            defaults: Defaults::default(),
        };
        Self {
            list: vec![root],
            by_node: vec![0; scenario.nodes.len()],
        }
    }

    /// Which root a node has, among [`Roots::files`].
    pub(crate) fn of_node(&self, node: usize) -> usize {
        self.by_node[node]
    }

    /// What programs of a node have where the scenario does not say.
    pub(crate) fn defaults(&self, node: usize) -> &Defaults {
        &self.list[self.by_node[node]].defaults
    }

    /// For the manifest.
    pub(crate) fn records(&self, scenario: &Scenario) -> Vec<RootRecord> {
        let mut records: Vec<RootRecord> = self.list.iter().map(OpenRoot::record).collect();
        for (node, &number) in scenario.nodes.iter().zip(&self.by_node) {
            records[number].nodes.push(node.name.clone());
        }
        records
    }

    /// Their files.
    pub(crate) fn files(&self) -> Vec<Files> {
        self.list.iter().map(|root| root.files.clone()).collect()
    }
}

impl OpenRoot {
    fn record(&self) -> RootRecord {
        let (kind, sha256) = match &self.files {
            Files::Host(_) => ("host", None),
            Files::Directory(_) | Files::Same(_) => ("directory", None),
            Files::Image(image) => (image.about().kind.as_str(), Some(image.about().sha256.clone())),
        };
        let (path, name) = match &self.spec {
            Root::Host => ("/".to_owned(), None),
            Root::Path { path, name } => (path.display().to_string(), name.clone()),
        };
        RootRecord {
            kind: kind.into(),
            path,
            name,
            sha256,
            nodes: Vec::new(),
        }
    }

    fn open(spec: &Root, unpacker: &Unpacker<'_>) -> Result<Self, (PathBuf, ImageError)> {
        let plain = |files| Self {
            spec: spec.clone(),
            files,
            defaults: Defaults::default(),
        };
        let Root::Path { path, name } = spec else {
            return Ok(plain(Files::Host("/".into())));
        };
        if spec.is_folder() {
            return Ok(plain(Files::Directory(path.clone())));
        }
        let refused = |error| (path.clone(), error);
        let image = unpacker.open(path, name.as_deref()).map_err(refused)?;
        let defaults = Defaults::of_image(&image).map_err(|problem| refused(ImageError::Format { problem }))?;
        Ok(Self {
            spec: spec.clone(),
            files: Files::Image(Arc::new(image)),
            defaults,
        })
    }
}

/// Looks at the roots of a scenario without opening them; see [`windtunnel_images::check`].
///
/// # Errors
/// As [`Roots::open`].
pub fn check_roots(scenario: &Scenario) -> Result<(), EngineError> {
    let mut seen = BTreeSet::new();
    for node in &scenario.nodes {
        if let Root::Path { path, name } = &node.root
            && seen.insert(&node.root)
            && !node.root.is_folder()
        {
            windtunnel_images::check(path, name.as_deref()).map_err(|source| EngineError::Root {
                node: node.name.clone(),
                path: path.clone(),
                source,
            })?;
        }
    }
    Ok(())
}
