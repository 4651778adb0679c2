//! The host side of the file service: a node's read-only tree, and the contents behind file handles.

mod content;
mod host_file;
mod host_tree;
mod host_view;
mod image_tree;
mod ld_cache;
mod lower;
mod node_tree;
mod overlay;
mod pool;
mod quota;
mod small;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;
use windtunnel_kernel::abi;

pub(crate) use content::{Content, Shown};
pub(crate) use host_file::FdBudget;
pub use host_tree::{InputRecord, Seen, SeenFile};
pub use host_view::HOST_FOLDERS;
pub(crate) use lower::LowerTree;
pub use lower::Root;
pub use overlay::{NodeFile, NodeFileError};

use crate::Shared;
use node_tree::{NodeTree, Source};
use overlay::Overlay;
pub(crate) use quota::FileUse;
use quota::Quota;

/// Files of nodes' own from this length on are in memory once, bytes.
const SHARED_BYTES: usize = 64 << 10;

/// Large contents that all nodes have.
#[derive(Debug, Default)]
pub(crate) struct OwnFiles(Mutex<Vec<OwnFile>>);

#[derive(Debug)]
struct OwnFile {
    bytes: Arc<[u8]>,
    content: Arc<Content>,
}

impl OwnFiles {
    /// The content of a file called `path` with these very `bytes`.
    fn content(&self, path: &str, bytes: &Arc<[u8]>, budget: &FdBudget) -> Result<Arc<Content>, Errno> {
        let mut known = self.0.lock().expect("no panic while looking for a file");
        if let Some(file) = known.iter().find(|file| Arc::ptr_eq(&file.bytes, bytes)) {
            return Ok(file.content.clone());
        }
        let content = Content::fixed(path, bytes, budget)?;
        known.push(OwnFile {
            bytes: bytes.clone(),
            content: content.clone(),
        });
        Ok(content)
    }
}

/// A write to a result file that failed: the run must end with this error, for its results are no longer whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {name}: {errno}")]
pub struct WriteError {
    /// The name given to [`FileService::adopt`].
    pub name: String,
    /// What the host said.
    pub errno: Errno,
}

/// What a node's files may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// All that programs write, but for results, bytes.
    pub disk_bytes: u64,
    /// Each result, bytes.
    pub output_bytes: u64,
}

/// A limit that programs met: they were told ENOSPC or ENOMEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitMet {
    /// [`FileLimits::disk_bytes`].
    Disk(u64),
    /// [`FileLimits::output_bytes`], and the name given to [`FileService::adopt`].
    Output(u64, String),
    /// [`crate::NodeConfig::memory_limit_bytes`].
    Memory(u64),
    /// None of the node's: the host has no more memory for files of this node; see [`Shared::refuse_files`].
    HostMemory,
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
    quota: Quota,
    output_bytes: u64,
    /// The limit met last, until it is told.
    limit_met: Option<LimitMet>,
}

impl FileService {
    /// The files of a node: those of root number `root`, with `files` over them. `mtime_ns`: wall clock of the node's
    /// own entries.
    pub(crate) fn new(
        shared: Arc<Shared>,
        root: usize,
        files: &[NodeFile],
        mtime_ns: u64,
        limits: FileLimits,
        file_use: Arc<FileUse>,
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
            quota: Quota::new(limits.disk_bytes, file_use),
            output_bytes: limits.output_bytes,
            limit_met: None,
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

    /// The limit that programs met last, if any since the last call.
    pub(crate) fn take_limit_met(&mut self) -> Option<LimitMet> {
        self.limit_met.take()
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
            Source::Own { path, bytes } if bytes.len() >= SHARED_BYTES => {
                self.shared.own_files.content(&path, &bytes, &self.shared.fds)?
            }
            Source::Own { path, bytes } => Content::fixed(&path, &bytes, &self.shared.fds)?,
        };
        self.open.insert(id, Arc::downgrade(&content));
        Ok(self.add(content))
    }

    pub(crate) fn create(&mut self, from: u64, size: u64) -> Result<u64, Errno> {
        let (content, size) = match from {
            0 => (Content::memory("(written in the run)", true, &self.shared.fds)?, 0),
            from => {
                let source = self.content(from)?.clone();
                let room = self.quota.check_new(size, &self.shared.fds);
                self.note_full(room)?;
                (source.copy(&self.shared.fds, size)?, size)
            }
        };
        self.quota.add(&content, size);
        Ok(self.add(content))
    }

    pub(crate) fn read(&self, handle: u64, to: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        self.content(handle)?.read(&self.shared.fds, to, len, offset)
    }

    pub(crate) fn write(&mut self, handle: u64, from: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        let content = self.content(handle)?.clone();
        let len = match content.is_result() {
            true => self.output_room(&content, offset, len)?,
            false => {
                let room = self.quota.take(&content, offset, len, &self.shared.fds);
                self.note_full(room)?
            }
        };
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

    /// How much of a write to a result there is room for.
    fn output_room(&mut self, content: &Content, offset: u64, len: u64) -> Result<u64, Errno> {
        let room = self.output_bytes.saturating_sub(offset).min(len);
        if room == 0 && len > 0 {
            self.limit_met = Some(LimitMet::Output(self.output_bytes, content.name.clone()));
            return Err(Errno::NOSPC);
        }
        Ok(room)
    }

    /// Notes that there is no room for files, if so.
    fn note_full<T>(&mut self, result: Result<T, Errno>) -> Result<T, Errno> {
        if matches!(result, Err(Errno::NOSPC)) {
            self.limit_met = Some(match self.quota.is_refused() {
                true => LimitMet::HostMemory,
                false => LimitMet::Disk(self.quota.limit()),
            });
        }
        result
    }

    pub(crate) fn truncate(&mut self, handle: u64, size: u64) -> Result<u64, Errno> {
        let content = self.content(handle)?.clone();
        content.truncate(&self.shared.fds, size)?;
        self.quota.resized(&content, size);
        Ok(0)
    }

    /// Size of a file; of handle 0: of the disk.
    pub(crate) fn size(&self, handle: u64) -> Result<u64, Errno> {
        match handle {
            0 => Ok(self.quota.limit()),
            handle => self.content(handle)?.size(&self.shared.fds),
        }
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

    pub(crate) fn punch(&mut self, handle: u64, offset: u64, len: u64) -> Result<u64, Errno> {
        let content = self.content(handle)?.clone();
        content.punch(&self.shared.fds, offset, len)?;
        self.quota.punched(&content, &self.shared.fds);
        Ok(0)
    }

    /// Memory that a file takes; handle 0: that all of the node's own take.
    pub(crate) fn storage(&mut self, handle: u64) -> Result<u64, Errno> {
        match handle {
            0 => Ok(self.quota.measure(&self.shared.fds)),
            handle => self.content(handle)?.storage(&self.shared.fds),
        }
    }

    pub(crate) fn release(&mut self, handle: u64) {
        if let Some(content) = self.handles.remove(&handle) {
            self.quota.released(content.id, Arc::strong_count(&content) == 1);
        }
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
