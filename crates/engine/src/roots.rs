//! What the nodes of a run see as `/`: each root that the scenario names, opened once.

use std::path::{Path, PathBuf};

use windtunnel_process::Root as Files;
use windtunnel_scenario::{Root, Scenario};

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
}

/// Why there is no root.
struct Problem {
    text: String,
    hint: String,
}

impl Roots {
    /// Looks at all roots of the scenario.
    ///
    /// # Errors
    /// When one is not there, or is nothing that nodes could have as `/`.
    pub fn open(scenario: &Scenario) -> Result<Self, EngineError> {
        let mut roots = Self {
            list: Vec::new(),
            by_node: Vec::new(),
        };
        for node in &scenario.nodes {
            let known = roots.list.iter().position(|known| known.spec == node.root);
            let number = match known {
                Some(number) => number,
                None => {
                    let files = files(&node.root).map_err(|(path, problem)| EngineError::Root {
                        node: node.name.clone(),
                        path,
                        problem: problem.text,
                        hint: problem.hint,
                    })?;
                    let spec = node.root.clone();
                    roots.list.push(OpenRoot { spec, files });
                    roots.list.len() - 1
                }
            };
            roots.by_node.push(number);
        }
        Ok(roots)
    }

    /// Which root a node has, among [`Roots::files`].
    pub(crate) fn of_node(&self, node: usize) -> usize {
        self.by_node[node]
    }

    /// Their files.
    pub(crate) fn files(&self) -> Vec<Files> {
        self.list.iter().map(|root| root.files.clone()).collect()
    }
}

fn files(root: &Root) -> Result<Files, (PathBuf, Problem)> {
    match root {
        Root::Host => Ok(Files::Host("/".into())),
        Root::Path { path, name } => directory(path, name.as_deref()).map_err(|problem| (path.clone(), problem)),
    }
}

fn directory(path: &Path, name: Option<&str>) -> Result<Files, Problem> {
    let problem = |text: &str, hint: &str| Problem {
        text: text.into(),
        hint: hint.into(),
    };
    let about = std::fs::metadata(path).map_err(|error| {
        problem(
            &error.to_string(),
            "relative paths count from the scenario file's folder; `root: host` is this host",
        )
    })?;
    if !about.is_dir() {
        return Err(problem("it is not a folder", "name the folder of a root file system"));
    }
    if let Some(name) = name {
        let text = format!("it is a folder, which has no image `{name}`");
        return Err(problem(&text, "write `root: FOLDER`"));
    }
    Ok(Files::Directory(path.into()))
}
