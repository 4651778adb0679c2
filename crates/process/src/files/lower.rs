//! The read-only files beneath a node's own: those of the host, or a root that the scenario pins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::Stat;
use rustix::io::Errno;
use windtunnel_images::Image;

use super::host_file::{Changes, FdBudget, HostFile};
use super::host_tree::{HostAttr, HostTree, InputRecord, Listing, Seen, Visibility};
use super::host_view::HostView;
use super::image_tree::ImageTree;

/// What nodes see as `/`, beneath what they write.
#[derive(Clone, Debug)]
pub enum Root {
    /// Of this directory what everybody may read: the host's files.
    Host(PathBuf),
    /// All of this directory.
    Directory(PathBuf),
    /// The same, with the owners as they are: for programs that are the engine's user themselves.
    Same(PathBuf),
    /// An image.
    Image(Arc<Image>),
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) | Self::Directory(path) | Self::Same(path) => write!(f, "{}", path.display()),
            Self::Image(image) => f.write_str(&image.about().origin),
        }
    }
}

/// One root, shared by the nodes that have it.
#[derive(Debug)]
pub(crate) struct LowerTree {
    /// Number among the roots of the run.
    number: u32,
    pinned: bool,
    tree: Tree,
    /// Files that were opened, by their numbers.
    files: Mutex<BTreeMap<u32, Arc<HostFile>>>,
}

#[derive(Debug)]
enum Tree {
    Host(HostTree),
    Image(ImageTree),
}

impl LowerTree {
    /// Index of the tree's root, of whatever kind it is.
    pub(crate) const ROOT: u32 = HostTree::ROOT;

    /// Opens `root`, the one of that number.
    pub(crate) fn open_root(root: &Root, number: u32) -> Result<Arc<Self>, Errno> {
        let (pinned, tree) = match root {
            Root::Host(path) => (
                false,
                Tree::Host(HostTree::new(path, Visibility::Everybody(HostView::of(path)))?),
            ),
            Root::Directory(path) => (true, Tree::Host(HostTree::new(path, Visibility::Owner)?)),
            Root::Same(path) => (true, Tree::Host(HostTree::new(path, Visibility::Same)?)),
            Root::Image(image) => (true, Tree::Image(ImageTree::new(image.clone()))),
        };
        Ok(Arc::new(Self {
            number,
            pinned,
            tree,
            files: Mutex::default(),
        }))
    }

    /// Whether the scenario names it, so that it is shown as it is, rather than what the host happens to have.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// What no other file of the run has, in whatever root.
    pub(crate) fn key(&self, index: u32) -> (u32, u32) {
        (self.number, index)
    }

    /// How the host's root is shown; none: the scenario pins the root, which is shown as it is.
    pub(crate) fn view(&self) -> Option<&HostView> {
        match &self.tree {
            Tree::Host(tree) => tree.view(),
            Tree::Image(_) => None,
        }
    }

    /// What is known of an entry.
    pub(crate) fn attr(&self, index: u32) -> HostAttr {
        match &self.tree {
            Tree::Host(tree) => tree.attr(index),
            Tree::Image(tree) => tree.attr(index),
        }
    }

    /// Path from the tree's root, for messages.
    pub(crate) fn path(&self, index: u32) -> String {
        match &self.tree {
            Tree::Host(tree) => tree.path(index),
            Tree::Image(tree) => tree.path(index),
        }
    }

    /// The entry `name` of directory `dir`.
    pub(crate) fn lookup(&self, dir: u32, name: &[u8]) -> Result<u32, Errno> {
        match &self.tree {
            Tree::Host(tree) => tree.lookup(dir, name),
            Tree::Image(tree) => tree.lookup(dir, name),
        }
    }

    /// The entries of a directory.
    pub(crate) fn list(&self, dir: u32) -> Result<Listing, Errno> {
        match &self.tree {
            Tree::Host(tree) => tree.list(dir),
            Tree::Image(tree) => tree.list(dir),
        }
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, index: u32) -> Result<Arc<[u8]>, Errno> {
        match &self.tree {
            Tree::Host(tree) => tree.readlink(index),
            Tree::Image(tree) => tree.readlink(index),
        }
    }

    /// Opens a regular file for reading; with what the host says of it now. `ESTALE`: it is another one, or gone.
    pub(crate) fn open(&self, index: u32) -> Result<(OwnedFd, Stat), Errno> {
        match &self.tree {
            Tree::Host(tree) => tree.open(index),
            Tree::Image(tree) => tree.open(index),
        }
    }

    /// A file that was opened before.
    pub(crate) fn file(&self, index: u32) -> Option<Arc<HostFile>> {
        self.files().get(&index).cloned()
    }

    /// Keeps a file for all who open it from now on.
    pub(crate) fn remember(&self, file: &Arc<HostFile>) {
        self.files().insert(file.index, file.clone());
    }

    /// Notes that the run may see more than one state of a file or directory.
    pub(crate) fn note_changed(&self, index: u32) {
        self.changes().note(self.path(index));
    }

    /// The paths noted so far and those of opened files that are found changed now, in order.
    pub(crate) fn changed(self: &Arc<Self>) -> Vec<String> {
        let files: Vec<Arc<HostFile>> = self.files().values().cloned().collect();
        files.iter().for_each(|file| file.check(self));
        self.changes().list()
    }

    fn changes(&self) -> &Changes {
        match &self.tree {
            Tree::Host(tree) => &tree.changes,
            Tree::Image(tree) => &tree.changes,
        }
    }

    /// Every regular file that was opened so far, by path, besides those `known` already and those of an image. Reads them.
    pub(crate) fn opened_files(self: &Arc<Self>, known: &BTreeSet<String>, budget: &FdBudget) -> Vec<InputRecord> {
        if matches!(self.tree, Tree::Image(_)) {
            return Vec::new();
        }
        let files: Vec<Arc<HostFile>> = self.files().values().cloned().collect();
        let files = files.iter().filter(|file| !known.contains(&file.name));
        let mut records: Vec<InputRecord> = files
            .map(|file| InputRecord {
                path: file.name.clone(),
                sha256: file.sha256(self, budget),
            })
            .collect();
        let changed = self.changed();
        for record in &mut records {
            if changed.contains(&record.path) {
                record.sha256 = None;
            }
        }
        records
    }

    /// All names that were looked up, and what was there; none in an image.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        match &self.tree {
            Tree::Host(tree) => tree.seen(),
            Tree::Image(_) => Vec::new(),
        }
    }

    /// Every directory whose entries were listed so far, by path; none of an image.
    pub(crate) fn listed_directories(&self) -> Vec<InputRecord> {
        match &self.tree {
            Tree::Host(tree) => tree.listed_directories(),
            Tree::Image(_) => Vec::new(),
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<HostFile>>> {
        self.files.lock().expect("no panic while looking for a file")
    }
}
