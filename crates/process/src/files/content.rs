//! Contents of files: what a handle of the file service stands for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, fstat, ftruncate, memfd_create, seek,
};
use rustix::io::{Errno, pread, pwrite};

use super::host_tree::HostTree;
use crate::patched::{ImageCache, ImageError, PatchedImage};
use crate::sys;

/// Most bytes of one read or write, as in Linux.
const COUNT_MAX: u64 = 0x7fff_f000;
/// `whence` of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// The unit of `st_blocks`, bytes.
const BLOCK: u64 = 512;

/// Bytes of a file, on the host or in memory.
#[derive(Debug)]
pub(crate) struct Content {
    /// Unlike any other's, and never 0.
    pub id: u64,
    state: Mutex<State>,
    /// May be written by programs.
    pub writable: bool,
    /// For the manifest and messages.
    pub name: String,
    /// A result file of the run, where a failed write is the user's loss.
    result: bool,
    /// As the kernel last told.
    shown: Mutex<Option<Arc<Shown>>>,
    elf: OnceLock<bool>,
    image: OnceLock<Result<Arc<PatchedImage>, ImageError>>,
    last_use: AtomicU64,
}

/// What `/proc/PID/maps` shows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Inode number in the node.
    pub ino: u64,
    /// Device in the node.
    pub dev_major: u32,
    /// Device in the node.
    pub dev_minor: u32,
    /// Path in the node when it was last mapped.
    pub path: Box<[u8]>,
}

#[derive(Debug)]
enum State {
    /// Open as long as the content lives.
    Open(OwnedFd),
    /// A host file, opened on demand and closed when too many are open.
    Host {
        tree: Arc<HostTree>,
        index: u32,
        fd: Option<OwnedFd>,
    },
}

impl Content {
    /// A host file; opens it, so that errors show now.
    pub(crate) fn host(tree: &Arc<HostTree>, index: u32, budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        let fd = tree.open(index)?;
        let state = State::Host {
            tree: tree.clone(),
            index,
            fd: Some(fd),
        };
        let content = Arc::new(Self::new(state, false, tree.path(index), false));
        budget.opened(&content);
        Ok(content)
    }

    /// Empty memory.
    pub(crate) fn memory(name: &str, writable: bool) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let fd = memfd_create("windtunnel-file", MemfdFlags::CLOEXEC)?;
        let second = rustix::io::fcntl_dupfd_cloexec(&fd, 0)?;
        Ok((
            Arc::new(Self::new(State::Open(fd), writable, name.into(), false)),
            second,
        ))
    }

    /// Memory holding `bytes`, read-only for programs.
    pub(crate) fn fixed(name: &str, bytes: &[u8]) -> Result<Arc<Self>, Errno> {
        let (content, fd) = Self::memory(name, false)?;
        let mut done = 0;
        while done < bytes.len() {
            done += pwrite(&fd, &bytes[done..], done as u64)?;
        }
        Ok(content)
    }

    /// A file of the engine's: a result to be written, or input to be read.
    pub(crate) fn adopted(fd: OwnedFd, name: &str) -> Result<Arc<Self>, Errno> {
        let writable = fcntl_getfl(&fd)? & OFlags::RWMODE != OFlags::RDONLY;
        Ok(Arc::new(Self::new(State::Open(fd), writable, name.into(), writable)))
    }

    fn new(state: State, writable: bool, name: String, result: bool) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(state),
            writable,
            name,
            result,
            shown: Mutex::default(),
            elf: OnceLock::new(),
            image: OnceLock::new(),
            last_use: AtomicU64::new(0),
        }
    }

    /// Runs `work` with the open file.
    pub(crate) fn with_fd<T>(
        self: &Arc<Self>,
        budget: &FdBudget,
        work: impl FnOnce(BorrowedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut reopened = false;
        let result = {
            let mut state = self.state.lock().expect("no panic while a file is in use");
            match &mut *state {
                State::Open(fd) => return work(fd.as_fd()),
                State::Host { tree, index, fd } => {
                    if fd.is_none() {
                        *fd = Some(tree.open(*index)?);
                        reopened = true;
                    }
                    self.last_use.store(budget.tick(), Ordering::Relaxed);
                    work(fd.as_ref().expect("opened above").as_fd())
                }
            }
        };
        if reopened {
            budget.opened(self);
        }
        result
    }

    /// Closes a host file that can be opened again; whether it did.
    fn close(&self) -> bool {
        match self.state.try_lock().as_deref_mut() {
            Ok(State::Host { fd, .. }) => fd.take().is_some(),
            _ => false,
        }
    }

    /// Reads into program memory.
    pub(crate) fn read(self: &Arc<Self>, budget: &FdBudget, to: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        self.with_fd(budget, |fd| sys::read_to(fd, to, len.min(COUNT_MAX), offset))
    }

    /// Writes from program memory. The caller records errors of results.
    pub(crate) fn write(self: &Arc<Self>, budget: &FdBudget, from: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        self.with_fd(budget, |fd| sys::write_from(fd, from, len.min(COUNT_MAX), offset))
    }

    /// Sets the size.
    pub(crate) fn truncate(self: &Arc<Self>, budget: &FdBudget, size: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        self.with_fd(budget, |fd| ftruncate(fd, size))
    }

    /// Size in bytes.
    pub(crate) fn size(self: &Arc<Self>, budget: &FdBudget) -> Result<u64, Errno> {
        self.with_fd(budget, |fd| Ok(fstat(fd)?.st_size as u64))
    }

    /// Says what `/proc` shows of mappings from now on.
    pub(crate) fn show_as(&self, shown: Shown) {
        *self.shown.lock().expect("no panic while naming a file") = Some(Arc::new(shown));
    }

    /// What `/proc` shows of mappings; none if nobody said.
    pub(crate) fn shown(&self) -> Option<Arc<Shown>> {
        self.shown.lock().expect("no panic while naming a file").clone()
    }

    /// Where the next data, or the next hole, begins at or after `offset`. The descriptor's own position, which this
    /// moves, is used for nothing else.
    pub(crate) fn seek(self: &Arc<Self>, budget: &FdBudget, offset: u64, whence: u32) -> Result<u64, Errno> {
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        self.with_fd(budget, |fd| seek(fd, to))
    }

    /// Makes `len` bytes from `offset` on zero, and gives their memory back.
    pub(crate) fn punch(self: &Arc<Self>, budget: &FdBudget, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.with_fd(budget, |fd| fallocate(fd, hole, offset, len))
    }

    /// Bytes it takes, without holes.
    pub(crate) fn storage(self: &Arc<Self>, budget: &FdBudget) -> Result<u64, Errno> {
        self.with_fd(budget, |fd| Ok(fstat(fd)?.st_blocks as u64 * BLOCK))
    }

    /// Whether a failed write loses a result.
    pub(crate) fn is_result(&self) -> bool {
        self.result
    }

    /// A writable copy of the first `size` bytes.
    pub(crate) fn copy(self: &Arc<Self>, budget: &FdBudget, size: u64) -> Result<Arc<Self>, Errno> {
        let (copy, target) = Self::memory(&format!("{} (written in the run)", self.name), true)?;
        self.with_fd(budget, |source| {
            let mut buffer = vec![0; size.min(1 << 20) as usize];
            let mut done = 0;
            while done < size {
                let want = buffer.len().min((size - done) as usize);
                let got = pread(source, &mut buffer[..want], done)?;
                if got == 0 {
                    break;
                }
                let mut written = 0;
                while written < got {
                    written += pwrite(&target, &buffer[written..got], done + written as u64)?;
                }
                done += got as u64;
            }
            // A file that became shorter reads as zeros at its end.
            ftruncate(&target, size)
        })?;
        Ok(copy)
    }

    /// All bytes.
    pub(crate) fn bytes(self: &Arc<Self>, budget: &FdBudget) -> Result<Vec<u8>, Errno> {
        self.with_fd(budget, |fd| {
            let mut bytes = vec![0; fstat(fd)?.st_size as usize];
            let mut done = 0;
            while done < bytes.len() {
                match pread(fd, &mut bytes[done..], done as u64)? {
                    0 => bytes.truncate(done),
                    count => done += count,
                }
            }
            Ok(bytes)
        })
    }

    /// Whether it starts like an ELF file.
    pub(crate) fn is_elf(self: &Arc<Self>, budget: &FdBudget) -> bool {
        let look = || {
            let mut magic = [0; 4];
            let count = self.with_fd(budget, |fd| pread(fd, &mut magic, 0));
            count == Ok(4) && magic == object::elf::ELFMAG
        };
        if self.writable {
            look()
        } else {
            *self.elf.get_or_init(look)
        }
    }

    /// Whether its name is that of a file of the host with the same bytes.
    pub(crate) fn is_host_file(&self) -> bool {
        self.host_index().is_some()
    }

    /// Number of the host file in the tree that all nodes share.
    fn host_index(&self) -> Option<u32> {
        match &*self.state.lock().expect("no panic while a file is in use") {
            State::Host { index, .. } => Some(*index),
            State::Open(_) => None,
        }
    }

    /// The patched copy of this program or library.
    pub(crate) fn image(
        self: &Arc<Self>,
        budget: &FdBudget,
        cache: &ImageCache,
    ) -> Result<Arc<PatchedImage>, ImageError> {
        let make = || {
            let bytes = || self.bytes(budget).map_err(ImageError::Io);
            match self.host_index() {
                Some(index) => cache.get_host_file(index, &self.name, bytes),
                None => cache.get(&self.name, &bytes()?),
            }
        };
        // What can still be written is looked at afresh each time.
        if self.writable {
            make()
        } else {
            self.image.get_or_init(make).clone()
        }
    }
}

/// Keeps the number of open host files below the process's limit.
#[derive(Debug)]
pub(crate) struct FdBudget {
    limit: usize,
    clock: AtomicU64,
    open: Mutex<Vec<Weak<Content>>>,
}

impl FdBudget {
    /// Raises the limit on open files as far as an ordinary user may, and gives host files half of it.
    pub(crate) fn from_process_limit() -> Self {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limits = getrlimit(Resource::Nofile);
        // Failing leaves the soft limit, which is read back below.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limits.maximum,
                maximum: limits.maximum,
            },
        );
        let current = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16);
        Self::with_limit((current as usize / 2).max(16))
    }

    /// A budget of `limit` open host files.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            clock: AtomicU64::new(0),
            open: Mutex::default(),
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that `content` has opened its file, and closes those used longest ago when there are too many.
    fn opened(&self, content: &Arc<Content>) {
        content.last_use.store(self.tick(), Ordering::Relaxed);
        let mut open = self.open.lock().expect("no panic while counting files");
        open.push(Arc::downgrade(content));
        if open.len() <= self.limit {
            return;
        }
        let mut alive: Vec<Arc<Content>> = open.iter().filter_map(Weak::upgrade).collect();
        alive.sort_by_key(|content| content.last_use.load(Ordering::Relaxed));
        let excess = alive.len().saturating_sub(self.limit * 3 / 4);
        let mut closed = 0;
        alive.retain(|content| {
            let close = closed < excess && content.close();
            closed += usize::from(close);
            !close
        });
        *open = alive.iter().map(Arc::downgrade).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_files_beyond_the_limit_are_closed_and_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..40 {
            std::fs::write(dir.path().join(format!("f{number}")), format!("{number}")).unwrap();
        }
        let tree = HostTree::new(dir.path()).unwrap();
        let budget = FdBudget::with_limit(8);
        let contents: Vec<_> = (0..40)
            .map(|number| {
                let index = tree.lookup(HostTree::ROOT, format!("f{number}").as_bytes()).unwrap();
                Content::host(&tree, index, &budget).unwrap()
            })
            .collect();
        let open = |c: &Arc<Content>| matches!(&*c.state.lock().unwrap(), State::Host { fd: Some(_), .. });
        assert!(contents.iter().filter(|content| open(content)).count() <= 8);
        assert!(!open(&contents[0]), "the one used longest ago is closed");
        for (number, content) in contents.iter().enumerate() {
            assert_eq!(content.bytes(&budget).unwrap(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_copy_has_the_wanted_size_and_leaves_the_source() {
        let budget = FdBudget::with_limit(8);
        let source = Content::fixed("/x", b"hello").unwrap();
        let copy = source.copy(&budget, 3).unwrap();
        assert_eq!(copy.bytes(&budget).unwrap(), b"hel");
        assert_eq!(source.copy(&budget, 7).unwrap().bytes(&budget).unwrap(), b"hello\0\0");
        copy.truncate(&budget, 1).unwrap();
        assert_eq!(source.bytes(&budget).unwrap(), b"hello");
        assert_eq!(source.truncate(&budget, 1), Err(Errno::BADF));
    }

    #[test]
    fn holes_are_found_and_made() {
        let budget = FdBudget::with_limit(8);
        let (content, fd) = Content::memory("/x", true).unwrap();
        pwrite(&fd, &[1; 8192], 0).unwrap();
        pwrite(&fd, &[1; 10], 1 << 20).unwrap();
        assert_eq!(content.storage(&budget), Ok(12288));
        assert_eq!(content.seek(&budget, 0, SEEK_HOLE), Ok(8192));
        assert_eq!(content.seek(&budget, 8192, SEEK_DATA), Ok(1 << 20));
        assert_eq!(content.seek(&budget, 0, 0), Err(Errno::INVAL));
        content.punch(&budget, 4090, 4102).unwrap();
        assert_eq!(content.seek(&budget, 0, SEEK_HOLE), Ok(4096));
        let bytes = content.bytes(&budget).unwrap();
        assert_eq!((bytes[4089], bytes[4090], bytes.len()), (1, 0, (1 << 20) + 10));
        let fixed = Content::fixed("/y", b"hello").unwrap();
        assert_eq!(fixed.punch(&budget, 0, 1), Err(Errno::BADF));
    }

    #[test]
    fn a_bad_address_is_an_error() {
        let budget = FdBudget::with_limit(8);
        let (content, fd) = Content::memory("/x", true).unwrap();
        rustix::io::write(&fd, b"abc").unwrap();
        assert_eq!(content.read(&budget, 0x10, 3, 0), Err(Errno::FAULT));
        assert_eq!(content.write(&budget, 0x10, 3, 0), Err(Errno::FAULT));
    }
}
