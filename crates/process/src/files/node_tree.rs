//! The read-only tree beneath a node's own writable files: the host's tree with the node's own entries over it.
//!
//! Identity is that of the path: an inode number is a hash of it, and every file has one link (directories too, as
//! in file systems that do not count), so that both are the same on every host. Hard links of the host are therefore
//! separate files here.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::io::Errno;

use super::host_tree::{DIRECTORY, REGULAR, SYMLINK, check_name};
use super::lower::LowerTree;
use super::overlay::{Overlay, Own};

/// Size reported for a directory, bytes: the host's depends on its file system.
const DIRECTORY_SIZE: u64 = 4096;

/// What is known of a file of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    /// Id in this tree.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// Wall clock, nanoseconds.
    pub mtime_ns: u64,
    /// Hash of the path.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirEntry {
    /// Name without slash.
    pub name: Box<[u8]>,
    /// Type bits.
    pub mode: u32,
    /// Inode number.
    pub ino: u64,
}

/// Where the contents of a regular file are.
pub(crate) enum Source {
    /// In the host's tree.
    Host(u32),
    /// Given by the scenario.
    Own { path: String, bytes: Arc<[u8]> },
}

#[derive(Debug)]
struct Node {
    parent: u64,
    name: Box<[u8]>,
    ino: u64,
    host: Option<u32>,
    own: Option<u32>,
    children: HashMap<Box<[u8]>, u64>,
    listing: Option<Arc<[DirEntry]>>,
}

/// The lower tree of one node. Ids are given in the order of look-ups, from 1 (the root).
#[derive(Debug)]
pub(crate) struct NodeTree {
    host: Arc<LowerTree>,
    overlay: Overlay,
    /// Modification time of the node's own entries, and of the host's that do not keep theirs; wall clock.
    mtime_ns: u64,
    nodes: Vec<Node>,
}

impl NodeTree {
    /// Id of the root.
    pub(crate) const ROOT: u64 = 1;

    /// The tree of `overlay` over `host`.
    pub(crate) fn new(host: Arc<LowerTree>, overlay: Overlay, mtime_ns: u64) -> Self {
        let root = Node {
            parent: Self::ROOT,
            name: Box::default(),
            ino: root_ino(),
            host: Some(LowerTree::ROOT),
            own: Some(Overlay::ROOT),
            children: HashMap::new(),
            listing: None,
        };
        Self {
            host,
            overlay,
            mtime_ns,
            nodes: vec![root],
        }
    }

    /// The entry `name` of `dir`.
    pub(crate) fn lookup(&mut self, dir: u64, name: &[u8]) -> Result<Attr, Errno> {
        if let Some(&id) = self.node(dir)?.children.get(name) {
            return self.attr(id);
        }
        check_name(name)?;
        let node = self.node(dir)?;
        if self.attr(dir)?.mode & libc::S_IFMT != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        let own = node.own.and_then(|own| self.overlay.child(own, name));
        let host = match self.shown_host(node).map(|host| self.host.lookup(host, name)) {
            None => None,
            Some(Ok(index)) => Some(index),
            // The node's own entries do not depend on what the host lets us see.
            Some(Err(errno)) if own.is_none() => return Err(errno),
            Some(Err(_)) => None,
        };
        let host = match own.map(|own| self.overlay.get(own)) {
            Some(Own::File { .. } | Own::Link { .. }) => None,
            Some(Own::Directory { .. }) => host.filter(|&host| self.host.attr(host).mode & libc::S_IFMT == DIRECTORY),
            None => host,
        };
        if own.is_none() && host.is_none() {
            return Err(Errno::NOENT);
        }
        let ino = path_hash(node.ino, name);
        self.nodes.push(Node {
            parent: dir,
            name: name.into(),
            ino,
            host,
            own,
            children: HashMap::new(),
            listing: None,
        });
        let id = self.nodes.len() as u64;
        self.nodes[dir as usize - 1].children.insert(name.into(), id);
        self.attr(id)
    }

    /// What is known of `id`.
    pub(crate) fn attr(&self, id: u64) -> Result<Attr, Errno> {
        let node = self.node(id)?;
        let own = node.own.map(|own| self.overlay.get(own));
        let ours = Attr {
            id,
            size: DIRECTORY_SIZE,
            mtime_ns: self.mtime_ns,
            ino: node.ino,
            mode: DIRECTORY,
            uid: 0,
            gid: 0,
        };
        Ok(match own {
            Some(Own::File { bytes, mode, gid }) => Attr {
                size: bytes.len() as u64,
                mode: REGULAR | mode,
                gid: *gid,
                ..ours
            },
            Some(Own::Link { target }) => Attr {
                size: target.len() as u64,
                mode: SYMLINK | 0o777,
                ..ours
            },
            Some(Own::Directory { mode: Some(mode), .. }) => Attr {
                mode: DIRECTORY | mode,
                ..ours
            },
            Some(Own::Directory { mode: None, .. }) | None => {
                let attr = self.host.attr(node.host.ok_or(Errno::NOENT)?);
                let is_directory = attr.mode & libc::S_IFMT == DIRECTORY;
                Attr {
                    size: if is_directory { DIRECTORY_SIZE } else { attr.size },
                    mtime_ns: attr.mtime_ns.unwrap_or(self.mtime_ns),
                    mode: attr.mode,
                    uid: attr.uid,
                    gid: attr.gid,
                    ..ours
                }
            }
        })
    }

    /// Entry number `index` of `dir`.
    pub(crate) fn entry(&mut self, dir: u64, index: u64) -> Result<Option<DirEntry>, Errno> {
        if self.node(dir)?.listing.is_none() {
            let listing = self.merge(dir)?;
            self.nodes[dir as usize - 1].listing = Some(listing);
        }
        let listing = self.node(dir)?.listing.as_ref().expect("made above");
        Ok(usize::try_from(index)
            .ok()
            .and_then(|index| listing.get(index))
            .cloned())
    }

    fn merge(&self, dir: u64) -> Result<Arc<[DirEntry]>, Errno> {
        let node = self.node(dir)?;
        if self.attr(dir)?.mode & libc::S_IFMT != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        let mut merged = std::collections::BTreeMap::new();
        if let Some(host) = self.shown_host(node) {
            for (name, mode) in self.host.list(host)?.iter() {
                merged.insert(name.clone(), *mode);
            }
        }
        if let Some(Own::Directory { children, .. }) = node.own.map(|own| self.overlay.get(own)) {
            for (name, &child) in children {
                merged.insert(name.clone(), self.overlay.get(child).file_type());
            }
        }
        let entry = |(name, mode): (Box<[u8]>, u32)| DirEntry {
            ino: path_hash(node.ino, &name),
            mode,
            name,
        };
        Ok(merged.into_iter().map(entry).collect())
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, id: u64) -> Result<Arc<[u8]>, Errno> {
        let node = self.node(id)?;
        match (node.own.map(|own| self.overlay.get(own)), node.host) {
            (Some(Own::Link { target }), _) => Ok(target.clone()),
            (None, Some(host)) => self.host.readlink(host),
            _ => Err(Errno::INVAL),
        }
    }

    /// Where the contents of a regular file are.
    pub(crate) fn source(&self, id: u64) -> Result<Source, Errno> {
        let node = self.node(id)?;
        match node.own.map(|own| self.overlay.get(own)) {
            Some(Own::File { bytes, .. }) => Ok(Source::Own {
                path: self.path(id),
                bytes: bytes.clone(),
            }),
            Some(Own::Directory { .. }) => Err(Errno::ISDIR),
            Some(Own::Link { .. }) => Err(Errno::INVAL),
            None => node.host.map(Source::Host).ok_or(Errno::NOENT),
        }
    }

    /// Path of `id`, for messages.
    fn path(&self, mut id: u64) -> String {
        let mut names = Vec::new();
        while id != Self::ROOT {
            let node = &self.nodes[id as usize - 1];
            names.push(String::from_utf8_lossy(&node.name).into_owned());
            id = node.parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// The host's directory whose entries show in `node`.
    fn shown_host(&self, node: &Node) -> Option<u32> {
        match node.own.map(|own| self.overlay.get(own)) {
            Some(Own::Directory { opaque: true, .. }) => None,
            _ => node.host,
        }
    }

    fn node(&self, id: u64) -> Result<&Node, Errno> {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        index.and_then(|index| self.nodes.get(index)).ok_or(Errno::STALE)
    }
}

/// Inode number of the root.
pub(super) fn root_ino() -> u64 {
    path_hash(0, b"")
}

/// Inode number of `name` in the directory with number `parent`: FNV-1a over the path. Positive, for programs that
/// take it for a signed number.
pub(super) fn path_hash(parent: u64, name: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = parent.to_le_bytes();
    let hash = bytes
        .iter()
        .chain(name)
        .fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    (hash >> 1).max(2)
}
