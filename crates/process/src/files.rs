//! The host side of the file service: a node's read-only tree, and the contents behind file handles.

mod content;
mod host_file;
mod host_tree;
mod image_tree;
mod lower;
mod node_tree;
mod overlay;
mod pool;
mod small;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use windtunnel_kernel::abi;

pub(crate) use content::{Content, Shown};
pub(crate) use host_file::FdBudget;
pub(crate) use lower::LowerTree;
pub use lower::Root;
pub use overlay::{NodeFile, NodeFileError};

use crate::Shared;
use node_tree::{NodeTree, Source};
use overlay::Overlay;

/// A write to a result file that failed: the run must end with this error, for its results are no longer whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {name}: {errno}")]
pub struct WriteError {
    /// The name given to [`FileService::adopt`].
    pub name: String,
    /// What the host said.
    pub errno: Errno,
}

/// Files of one node.
#[derive(Debug)]
pub(crate) struct FileService {
    shared: Arc<Shared>,
    lower: Arc<LowerTree>,
    tree: NodeTree,
    handles: BTreeMap<u64, Arc<Content>>,
    next_handle: u64,
    /// Contents of lower files that are open, so that two handles share one host file.
    open: BTreeMap<u64, Weak<Content>>,
    write_error: Option<WriteError>,
}

impl FileService {
    /// The files of a node: those of root number `root`, with `files` over them. `mtime_ns`: wall clock of the node's
    /// own entries.
    pub(crate) fn new(
        shared: Arc<Shared>,
        root: usize,
        files: &[NodeFile],
        mtime_ns: u64,
    ) -> Result<Self, NodeFileError> {
        let lower = shared.roots[root].clone();
        let overlay = Overlay::new(&lower, files)?;
        let tree = NodeTree::new(lower.clone(), overlay, mtime_ns);
        Ok(Self {
            shared,
            lower,
            tree,
            handles: BTreeMap::new(),
            next_handle: 1,
            open: BTreeMap::new(),
            write_error: None,
        })
    }

    /// Whether the scenario names the root.
    pub(crate) fn root_is_pinned(&self) -> bool {
        self.lower.is_pinned()
    }

    /// A handle for a file of the engine's, such as a result to be written.
    pub(crate) fn adopt(&mut self, fd: OwnedFd, name: &str) -> Result<u64, Errno> {
        let content = Content::adopted(fd, name)?;
        Ok(self.add(content))
    }

    /// The first failed write to a result file since the last call.
    pub(crate) fn take_write_error(&mut self) -> Option<WriteError> {
        self.write_error.take()
    }

    /// The contents behind a handle.
    pub(crate) fn content(&self, handle: u64) -> Result<&Arc<Content>, Errno> {
        self.handles.get(&handle).ok_or(Errno::BADF)
    }

    pub(crate) fn lookup(&mut self, dir: u64, name: &[u8], out: &mut abi::FsAttr) -> Result<u64, Errno> {
        let attr = self.tree.lookup(dir, name)?;
        *out = abi::FsAttr {
            id: attr.id,
            size: attr.size,
            mtime_ns: attr.mtime_ns,
            ino: attr.ino,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            rdev_major: 0,
            rdev_minor: 0,
            nlink: 1,
        };
        Ok(0)
    }

    pub(crate) fn readdir(&mut self, dir: u64, index: u64, out: &mut abi::FsDirent) -> Result<u64, Errno> {
        let Some(entry) = self.tree.entry(dir, index)? else {
            return Ok(0);
        };
        out.ino = entry.ino;
        out.mode = entry.mode;
        out.name_len = entry.name.len() as u32;
        out.name = [0; 256];
        out.name[..entry.name.len()].copy_from_slice(&entry.name);
        Ok(1)
    }

    pub(crate) fn readlink(&self, id: u64, buf: &mut [u8]) -> Result<u64, Errno> {
        let target = self.tree.readlink(id)?;
        let len = target.len().min(buf.len());
        buf[..len].copy_from_slice(&target[..len]);
        Ok(len as u64)
    }

    pub(crate) fn open(&mut self, id: u64) -> Result<u64, Errno> {
        if let Some(content) = self.open.get(&id).and_then(Weak::upgrade) {
            return Ok(self.add(content));
        }
        let content = match self.tree.source(id)? {
            Source::Host(index) => Content::host(&self.lower, index, &self.shared.fds)?,
            Source::Own { path, bytes } => Content::fixed(&path, &bytes, &self.shared.fds)?,
        };
        self.open.insert(id, Arc::downgrade(&content));
        Ok(self.add(content))
    }

    pub(crate) fn create(&mut self, from: u64, size: u64) -> Result<u64, Errno> {
        let content = match from {
            0 => Content::memory("(written in the run)", true, &self.shared.fds)?,
            from => self.content(from)?.copy(&self.shared.fds, size)?,
        };
        Ok(self.add(content))
    }

    pub(crate) fn read(&self, handle: u64, to: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        self.content(handle)?.read(&self.shared.fds, to, len, offset)
    }

    pub(crate) fn write(&mut self, handle: u64, from: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        let content = self.content(handle)?;
        let result = content.write(&self.shared.fds, from, len, offset);
        if let Err(errno) = result
            && content.is_result()
            && !matches!(errno, Errno::FAULT | Errno::INVAL | Errno::BADF)
            && self.write_error.is_none()
        {
            self.write_error = Some(WriteError {
                name: content.name.clone(),
                errno,
            });
        }
        result
    }

    pub(crate) fn truncate(&self, handle: u64, size: u64) -> Result<u64, Errno> {
        self.content(handle)?.truncate(&self.shared.fds, size).map(|()| 0)
    }

    pub(crate) fn size(&self, handle: u64) -> Result<u64, Errno> {
        self.content(handle)?.size(&self.shared.fds)
    }

    /// Says what `/proc` shows of mappings of a file.
    pub(crate) fn show_as(&self, handle: u64, shown: Shown) {
        if let Ok(content) = self.content(handle) {
            content.show_as(shown);
        }
    }

    pub(crate) fn seek(&self, handle: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
        self.content(handle)?.seek(&self.shared.fds, offset, whence)
    }

    pub(crate) fn punch(&self, handle: u64, offset: u64, len: u64) -> Result<u64, Errno> {
        self.content(handle)?.punch(&self.shared.fds, offset, len).map(|()| 0)
    }

    pub(crate) fn storage(&self, handle: u64) -> Result<u64, Errno> {
        self.content(handle)?.storage(&self.shared.fds)
    }

    pub(crate) fn release(&mut self, handle: u64) {
        self.handles.remove(&handle);
        if handle.is_multiple_of(1024) {
            self.open.retain(|_, content| content.strong_count() > 0);
        }
    }

    fn add(&mut self, content: Arc<Content>) -> u64 {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, content);
        handle
    }
}

#[cfg(test)]
#[path = "files/tests.rs"]
mod tests;
