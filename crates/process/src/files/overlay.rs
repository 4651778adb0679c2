//! Files a scenario gives, and the directories of a node's own: what lies over the host's tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::io::Errno;

use super::host_tree::{DIRECTORY, REGULAR, SYMLINK, TYPE_MASK, check_name};
use super::host_view::{HostView, OwnEntry};
use super::lower::LowerTree;

/// Directories whose host contents no node sees: path, permission bits, and what becomes of them over a pinned root.
const OWN_DIRECTORIES: [(&str, u32, OverPinned); 13] = [
    ("/boot", 0o755, OverPinned::Absent),
    ("/dev", 0o755, OverPinned::Hides),
    ("/home", 0o755, OverPinned::Absent),
    ("/media", 0o755, OverPinned::Absent),
    ("/mnt", 0o755, OverPinned::Absent),
    ("/opt", 0o755, OverPinned::Absent),
    ("/proc", 0o555, OverPinned::Hides),
    ("/root", 0o700, OverPinned::Absent),
    ("/run", 0o755, OverPinned::FillsIn),
    ("/srv", 0o755, OverPinned::Absent),
    ("/sys", 0o555, OverPinned::Hides),
    ("/tmp", 0o1777, OverPinned::FillsIn),
    ("/var/tmp", 0o1777, OverPinned::Absent),
];

/// What a node's own directory does where the scenario names the root: that one is shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverPinned {
    /// Hides the root's: the kernel mounts something there.
    Hides,
    /// Is there if the root has none.
    FillsIn,
    /// Is not there.
    Absent,
}

/// Symbolic links followed on the way to a given file, as in Linux.
const LINKS_MAX: usize = 40;

/// A file for a node's tree.
#[derive(Clone, Debug)]
pub struct NodeFile {
    /// Absolute path inside the node.
    pub path: String,
    /// Contents.
    pub bytes: Arc<[u8]>,
    /// Permission bits.
    pub mode: u32,
}

/// Why a file cannot be put in a node's tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeFileError {
    /// Not `/name/name`.
    #[error("file {path:?}: a path inside a node starts with / and has no empty, . or .. parts")]
    Path {
        /// As given.
        path: String,
    },
    /// A part of the path is a file.
    #[error("file {path:?}: {part:?} on the way to it is not a directory")]
    NotADirectory {
        /// As given.
        path: String,
        /// The name of the part.
        part: String,
    },
    /// The place is a directory already, or the path is given twice.
    #[error("file {path:?}: there is already {what} of that name")]
    Exists {
        /// As given.
        path: String,
        /// What is there.
        what: &'static str,
    },
    /// The host's tree could not be read on the way.
    #[error("file {path:?}: the host's directory cannot be searched: {errno}")]
    Host {
        /// As given.
        path: String,
        /// Why.
        errno: Errno,
    },
}

/// A directory or file laid over the host's tree.
#[derive(Debug)]
pub(crate) enum Own {
    /// A directory; with `opaque`, nothing of the host shows in it. `mode: None`: as the host's directory.
    Directory {
        mode: Option<u32>,
        opaque: bool,
        children: BTreeMap<Box<[u8]>, u32>,
    },
    /// A file.
    File { bytes: Arc<[u8]>, mode: u32, gid: u32 },
    /// A symbolic link.
    Link { target: Arc<[u8]> },
}

impl Own {
    /// Type bits.
    pub(crate) fn file_type(&self) -> u32 {
        match self {
            Self::Directory { .. } => DIRECTORY,
            Self::File { .. } => REGULAR,
            Self::Link { .. } => SYMLINK,
        }
    }
}

/// All of a node's own entries; entry 0 is the root.
#[derive(Debug)]
pub(crate) struct Overlay {
    entries: Vec<Own>,
}

/// A place on the way to a file: the own directory, and the host's beneath it where that shows.
type Place = (u32, Option<u32>);

impl Overlay {
    /// Index of the root.
    pub(crate) const ROOT: u32 = 0;

    /// The own directories and the given files over `host`.
    pub(crate) fn new(host: &LowerTree, files: &[NodeFile]) -> Result<Self, NodeFileError> {
        let root = Own::Directory {
            mode: None,
            opaque: false,
            children: BTreeMap::new(),
        };
        let mut overlay = Self { entries: vec![root] };
        for (path, mode, over_pinned) in OWN_DIRECTORIES {
            let has = |path: &str| {
                host.lookup(LowerTree::ROOT, path.trim_start_matches('/').as_bytes())
                    .is_ok()
            };
            let left_out = match over_pinned {
                OverPinned::Hides => false,
                OverPinned::FillsIn => has(path),
                OverPinned::Absent => true,
            };
            if host.is_pinned() && left_out {
                continue;
            }
            let own = Own::Directory {
                mode: Some(mode),
                opaque: true,
                children: BTreeMap::new(),
            };
            overlay.insert(host, path, own)?;
        }
        for file in files {
            let own = Own::File {
                bytes: file.bytes.clone(),
                mode: file.mode & 0o7777,
                gid: 0,
            };
            overlay.insert(host, &file.path, own)?;
        }
        for (path, entry) in host.view().into_iter().flat_map(HostView::own_entries) {
            let own = match entry.clone() {
                OwnEntry::File(bytes, mode, gid) => Own::File { bytes, mode, gid },
                OwnEntry::Link(target) => Own::Link {
                    target: target.as_bytes().into(),
                },
            };
            match overlay.insert(host, path, own) {
                // The scenario gave it.
                Ok(()) | Err(NodeFileError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(overlay)
    }

    /// An entry.
    pub(crate) fn get(&self, index: u32) -> &Own {
        &self.entries[index as usize]
    }

    /// The own entry `name` of the own directory `dir`.
    pub(crate) fn child(&self, dir: u32, name: &[u8]) -> Option<u32> {
        match self.get(dir) {
            Own::Directory { children, .. } => children.get(name).copied(),
            Own::File { .. } | Own::Link { .. } => None,
        }
    }

    fn insert(&mut self, host: &LowerTree, path: &str, own: Own) -> Result<(), NodeFileError> {
        let bad_path = || NodeFileError::Path { path: path.into() };
        let mut parts: Vec<Box<[u8]>> = path
            .strip_prefix('/')
            .ok_or_else(bad_path)?
            .split('/')
            .map(|part| part.as_bytes().into())
            .collect();
        if parts.iter().any(|part| check_name(part).is_err()) {
            return Err(bad_path());
        }
        let name = parts.pop().expect("split gives at least one part");
        let (dir, host_dir) = self.walk(host, path, parts)?;
        if let Some(at) = self.child(dir, &name) {
            let what = if matches!(self.get(at), Own::File { .. }) {
                "a file"
            } else {
                "a directory"
            };
            return Err(NodeFileError::Exists {
                path: path.into(),
                what,
            });
        }
        let below = host_dir.and_then(|host_dir| host.lookup(host_dir, &name).ok());
        let is_directory = below.is_some_and(|below| host.attr(below).mode & TYPE_MASK == DIRECTORY);
        if is_directory && matches!(own, Own::File { .. }) {
            return Err(NodeFileError::Exists {
                path: path.into(),
                what: "a directory",
            });
        }
        self.add(dir, name, own);
        Ok(())
    }

    /// Goes to the directory `parts`, making it where needed and following the host's symbolic links inside the tree.
    fn walk(&mut self, host: &LowerTree, path: &str, mut parts: Vec<Box<[u8]>>) -> Result<Place, NodeFileError> {
        parts.reverse();
        let mut trail: Vec<Place> = vec![(Self::ROOT, Some(LowerTree::ROOT))];
        let mut links = 0;
        while let Some(part) = parts.pop() {
            match &*part {
                b"" | b"." => continue,
                b".." => {
                    if trail.len() > 1 {
                        trail.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let (dir, host_dir) = *trail.last().expect("the root stays");
            let below = match host_dir.map(|host_dir| host.lookup(host_dir, &part)) {
                None | Some(Err(Errno::NOENT)) => None,
                Some(Ok(index)) => Some(index),
                Some(Err(errno)) => {
                    return Err(NodeFileError::Host {
                        path: path.into(),
                        errno,
                    });
                }
            };
            let not_a_directory = || NodeFileError::NotADirectory {
                path: path.into(),
                part: String::from_utf8_lossy(&part).into(),
            };
            let below_type = below.map(|index| host.attr(index).mode & TYPE_MASK);
            let own = match (self.child(dir, &part), below_type) {
                (Some(own), _) => own,
                (None, Some(SYMLINK)) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(NodeFileError::Host {
                            path: path.into(),
                            errno: Errno::LOOP,
                        });
                    }
                    let target = host
                        .readlink(below.expect("has a type"))
                        .map_err(|errno| NodeFileError::Host {
                            path: path.into(),
                            errno,
                        })?;
                    if target.starts_with(b"/") {
                        trail.truncate(1);
                    }
                    parts.extend(target.split(|&c| c == b'/').rev().map(Box::from));
                    continue;
                }
                (None, Some(DIRECTORY)) => self.add_directory(dir, &part, None),
                (None, Some(_)) => return Err(not_a_directory()),
                (None, None) => self.add_directory(dir, &part, Some(0o755)),
            };
            let Own::Directory { opaque, .. } = self.get(own) else {
                return Err(not_a_directory());
            };
            let below = below.filter(|_| !opaque && below_type == Some(DIRECTORY));
            trail.push((own, below));
        }
        Ok(*trail.last().expect("the root stays"))
    }

    fn add_directory(&mut self, dir: u32, name: &[u8], mode: Option<u32>) -> u32 {
        self.add(
            dir,
            name.into(),
            Own::Directory {
                mode,
                opaque: false,
                children: BTreeMap::new(),
            },
        )
    }

    fn add(&mut self, dir: u32, name: Box<[u8]>, own: Own) -> u32 {
        let index = self.entries.len() as u32;
        self.entries.push(own);
        let Own::Directory { children, .. } = &mut self.entries[dir as usize] else {
            unreachable!("walk ends in a directory")
        };
        children.insert(name, index);
        index
    }
}
