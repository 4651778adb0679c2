//! Contents of files: what a handle of the file service stands for.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, fstat, ftruncate, seek};
use rustix::io::{Errno, pread};

use super::host_file::{FdBudget, HostFile};
use super::lower::LowerTree;
use super::pool::{SLOT, copy_bytes, store};
use super::small::Small;
use crate::host_failure::{self, HostCall};
use crate::patched::{ImageCache, ImageError, PatchedImage};
use crate::sys;

/// Most bytes of one read or write, as in Linux.
const COUNT_MAX: u64 = 0x7fff_f000;
/// `whence` of lseek(2).
pub(super) const SEEK_DATA: u32 = 3;
/// Likewise.
pub(super) const SEEK_HOLE: u32 = 4;
/// A page of zeros.
const ZEROS: [u8; sys::PAGE as usize] = [0; sys::PAGE as usize];
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
    /// In a place that it shares with others, until it grows or is mapped.
    Small(Small),
    /// A host file.
    Host { tree: Arc<LowerTree>, file: Arc<HostFile> },
}

/// Where bytes are.
struct Place<'a> {
    fd: BorrowedFd<'a>,
    /// Offset in the file of the first byte.
    start: u64,
    /// Number of bytes; none: as many as the file has.
    size: Option<u64>,
}

impl<'a> Place<'a> {
    fn whole(fd: BorrowedFd<'a>) -> Self {
        Self {
            fd,
            start: 0,
            size: None,
        }
    }

    fn part(fd: BorrowedFd<'a>, start: u64, size: u64) -> Self {
        Self {
            fd,
            start,
            size: Some(size),
        }
    }

    /// How many of `len` bytes from `offset` on there are, and where in the file.
    fn clip(&self, len: u64, offset: u64) -> (u64, u64) {
        match self.size {
            Some(size) => (len.min(size.saturating_sub(offset)), self.start + offset.min(size)),
            None => (len, offset),
        }
    }

    /// Reads into the engine's own memory.
    fn read(&self, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let (len, at) = self.clip(to.len() as u64, offset);
        pread(self.fd, &mut to[..len as usize], at)
    }

    fn len(&self) -> Result<u64, Errno> {
        self.size.map_or_else(|| Ok(fstat(self.fd)?.st_size as u64), Ok)
    }
}

/// All bytes of a content.
enum Bytes {
    /// Where they are.
    Seen(sys::FileView),
    /// A copy.
    Read(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Seen(view) => view,
            Self::Read(bytes) => bytes,
        }
    }
}

impl Content {
    /// A host file; opens it, so that errors show now.
    pub(crate) fn host(tree: &Arc<LowerTree>, index: u32, budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        let file = HostFile::get(tree, index, budget)?;
        let name = file.name.clone();
        let state = State::Host {
            tree: tree.clone(),
            file,
        };
        Ok(Arc::new(Self::new(state, false, name, false)))
    }

    /// Empty memory.
    pub(crate) fn memory(name: &str, writable: bool, budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        let state = State::Small(Small::new(&budget.pool)?);
        Ok(Arc::new(Self::new(state, writable, name.into(), false)))
    }

    /// Memory to be mapped: `size` zeros.
    pub(crate) fn memory_file(name: &str, size: u64, budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        let fd = budget.memory_file("windtunnel-file")?;
        ftruncate(&fd, size).or_short(|| "lengthen a memory file".into())?;
        Ok(Arc::new(Self::new(State::Open(fd), true, name.into(), false)))
    }

    /// Memory holding `bytes`, read-only for programs.
    pub(crate) fn fixed(name: &str, bytes: &[u8], budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        let state = if bytes.len() as u64 <= SLOT {
            let mut small = Small::new(&budget.pool)?;
            small.fill(bytes)?;
            State::Small(small)
        } else {
            let fd = budget.memory_file("windtunnel-file")?;
            // Pages of zeros at the end take no memory.
            let pages = bytes.chunks(sys::PAGE as usize);
            let zeros = pages.rev().take_while(|page| **page == ZEROS[..page.len()]);
            let stored = bytes.len() - zeros.map(<[u8]>::len).sum::<usize>();
            store(fd.as_fd(), &bytes[..stored], 0)?;
            ftruncate(&fd, bytes.len() as u64).or_failure(|| "lengthen a memory file".into())?;
            State::Open(fd)
        };
        Ok(Arc::new(Self::new(state, false, name.into(), false)))
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
        }
    }

    /// Runs `work` with what tells where the bytes are.
    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        work(&mut self.state.lock().expect("no panic while a file is in use"))
    }

    /// Runs `work` with the place of the bytes.
    fn with_place<T>(&self, budget: &FdBudget, work: impl FnOnce(Place) -> Result<T, Errno>) -> Result<T, Errno> {
        self.with_state(|state| match state {
            State::Open(fd) => work(Place::whole(fd.as_fd())),
            State::Small(small) => work(Place::part(small.fd(), small.start(), small.size())),
            State::Host { tree, file } => match file.copy(budget) {
                Some((fd, start)) => work(Place::part(fd, start, file.size())),
                None => file
                    .with_fd(tree, budget, |fd| work(Place::whole(fd)))
                    .inspect_err(|&errno| failed_to_read(&self.name, errno)),
            },
        })
    }

    /// Runs `work` with a file for a mapping of `len` bytes from `offset` on, and the offset there. Where the bytes end,
    /// in whole pages, the file ends.
    pub(crate) fn with_backing<T>(
        &self,
        budget: &FdBudget,
        offset: u64,
        len: u64,
        work: impl FnOnce(BorrowedFd, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.with_state(|state| {
            // From now on what is written there shows in the mapping, and the other way round.
            own_file(state, budget)?;
            match state {
                State::Open(fd) => work(fd.as_fd(), offset),
                State::Host { tree, file } => match file.copy_up_to(budget, offset + len) {
                    Some((fd, start)) => work(fd, start + offset),
                    None => file.with_fd(tree, budget, |fd| work(fd, offset)),
                },
                State::Small(_) => unreachable!("it has got a file of its own"),
            }
        })
    }

    /// Reads into program memory.
    pub(crate) fn read(&self, budget: &FdBudget, to: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        let read = self.with_place(budget, |place| {
            let (len, at) = place.clip(len.min(COUNT_MAX), offset);
            sys::read_to(place.fd, to, len, at)
        });
        if read == Ok(0) && len > 0 {
            self.note_shorter(budget)?;
        }
        read.or_short(|| format!("read {}", self.name))
    }

    /// Notes that a host file ends before it did when it was opened, if there is such a reason for reading nothing. An
    /// error is all a program can be told then.
    #[cold]
    fn note_shorter(&self, budget: &FdBudget) -> Result<(), Errno> {
        self.with_state(|state| match state {
            State::Host { tree, file } if file.copy(budget).is_none() => {
                tree.note_changed(file.index);
                Err(Errno::IO)
            }
            _ => Ok(()),
        })
    }

    /// Writes from program memory. The caller records errors of results.
    pub(crate) fn write(&self, budget: &FdBudget, from: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        let len = len.min(COUNT_MAX);
        self.change(budget, offset.saturating_add(len), |state| match state {
            State::Open(fd) => {
                let wrote = sys::write_from(fd.as_fd(), from, len, offset);
                if self.result {
                    wrote
                } else {
                    wrote.or_short(|| "write to a memory file".into())
                }
            }
            State::Small(small) => small.write(from, len, offset),
            State::Host { .. } => Err(Errno::BADF),
        })
    }

    /// Sets the size.
    pub(crate) fn truncate(&self, budget: &FdBudget, size: u64) -> Result<(), Errno> {
        self.change(budget, size, |state| match state {
            State::Open(fd) => ftruncate(fd, size).or_short(|| "change the size of a memory file".into()),
            State::Small(small) => small.truncate(size),
            State::Host { .. } => Err(Errno::BADF),
        })
    }

    /// Changes a writable content, which may get `size` bytes by it.
    fn change<T>(
        &self,
        budget: &FdBudget,
        size: u64,
        work: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        self.with_state(|state| {
            if size > SLOT {
                own_file(state, budget)?;
            }
            work(state)
        })
    }

    /// Size in bytes.
    pub(crate) fn size(&self, budget: &FdBudget) -> Result<u64, Errno> {
        self.with_place(budget, |place| place.len())
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
    pub(crate) fn seek(&self, budget: &FdBudget, offset: u64, whence: u32) -> Result<u64, Errno> {
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        self.with_state(|state| match state {
            State::Open(fd) => seek(fd, to),
            State::Small(small) => small.seek(offset, whence),
            State::Host { tree, file } => file.with_fd(tree, budget, |fd| seek(fd, to)),
        })
    }

    /// Makes `len` bytes from `offset` on zero, and gives their memory back.
    pub(crate) fn punch(&self, budget: &FdBudget, offset: u64, len: u64) -> Result<(), Errno> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.change(budget, 0, |state| match state {
            State::Open(fd) => fallocate(fd, hole, offset, len).or_short(|| "shorten a memory file".into()),
            State::Small(small) => small.punch(offset, len),
            State::Host { .. } => Err(Errno::BADF),
        })
    }

    /// Bytes it takes, without holes.
    pub(crate) fn storage(&self, budget: &FdBudget) -> Result<u64, Errno> {
        self.with_state(|state| match state {
            State::Open(fd) => Ok(fstat(fd)?.st_blocks as u64 * BLOCK),
            State::Small(small) => Ok(small.storage()),
            State::Host { tree, file } => file.with_fd(tree, budget, |fd| Ok(fstat(fd)?.st_blocks as u64 * BLOCK)),
        })
    }

    /// Whether a failed write loses a result.
    pub(crate) fn is_result(&self) -> bool {
        self.result
    }

    /// A writable copy of the first `size` bytes.
    pub(crate) fn copy(&self, budget: &FdBudget, size: u64) -> Result<Arc<Self>, Errno> {
        let name = format!("{} (written in the run)", self.name);
        // A file that became shorter reads as zeros at its end.
        if size > SLOT {
            let copy = Self::memory_file(&name, size, budget)?;
            self.with_place(budget, |from| {
                let (size, at) = from.clip(size, 0);
                copy.with_backing(budget, 0, 0, |to, _| copy_bytes((from.fd, at), (to, 0), size))
            })?;
            return Ok(copy);
        }
        let mut small = Small::new(&budget.pool)?;
        small.fill(&self.read_up_to(budget, size)?)?;
        small.truncate(size)?;
        Ok(Arc::new(Self::new(State::Small(small), true, name, false)))
    }

    /// All bytes.
    pub(crate) fn bytes(&self, budget: &FdBudget) -> Result<Vec<u8>, Errno> {
        self.read_up_to(budget, u64::MAX)
    }

    /// The first `size` bytes, if there are so many.
    fn read_up_to(&self, budget: &FdBudget, size: u64) -> Result<Vec<u8>, Errno> {
        self.with_place(budget, |place| {
            let mut bytes = vec![0; place.len()?.min(size) as usize];
            let mut done = 0;
            while done < bytes.len() {
                match place.read(&mut bytes[done..], done as u64)? {
                    0 => bytes.truncate(done),
                    count => done += count,
                }
            }
            Ok(bytes)
        })
    }

    /// Whether it starts like an ELF file.
    pub(crate) fn is_elf(&self, budget: &FdBudget) -> bool {
        let look = || {
            let mut magic = [0; 4];
            let count = self.with_place(budget, |place| place.read(&mut magic, 0));
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
        self.host_key().is_some()
    }

    /// All bytes, where they are if they cannot change.
    fn view(&self, budget: &FdBudget) -> Result<Bytes, ImageError> {
        let view = self.with_state(|state| match state {
            State::Host { file, .. } => file.view(budget).transpose(),
            State::Open(_) | State::Small(_) => Ok(None),
        });
        match view.map_err(ImageError::Io)? {
            Some(view) => Ok(Bytes::Seen(view)),
            None => self.bytes(budget).map(Bytes::Read).map_err(ImageError::Io),
        }
    }

    /// What tells the host file from all others of the run.
    fn host_key(&self) -> Option<(u32, u32)> {
        match &*self.state.lock().expect("no panic while a file is in use") {
            State::Host { tree, file } => Some(tree.key(file.index)),
            State::Open(_) | State::Small(_) => None,
        }
    }

    /// The patched copy of this program or library.
    pub(crate) fn image(&self, budget: &FdBudget, cache: &ImageCache) -> Result<Arc<PatchedImage>, ImageError> {
        let make = || match self.host_key() {
            Some(key) => cache.get_host_file(key, &self.name, || self.view(budget)),
            None => cache.get(&self.name, &self.bytes(budget).map_err(ImageError::Io)?),
        };
        // What can still be written is looked at afresh each time.
        if self.writable {
            make()
        } else {
            self.image.get_or_init(make).clone()
        }
    }
}

/// Notes an error of the host's file system.
#[cold]
fn failed_to_read(name: &str, errno: Errno) {
    // The others are bad addresses, and files that are not what they were.
    if !matches!(errno, Errno::FAULT | Errno::INVAL | Errno::STALE) {
        host_failure::note(format!("read {name}"), errno);
    }
}

/// Gives a content that has none a memory file of its own.
fn own_file(state: &mut State, budget: &FdBudget) -> Result<(), Errno> {
    if let State::Small(small) = state {
        let fd = budget.memory_file("windtunnel-file")?;
        small.copy_to(fd.as_fd())?;
        *state = State::Open(fd);
    }
    Ok(())
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
