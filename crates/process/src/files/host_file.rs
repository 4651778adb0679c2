//! Contents of the host's files: a run sees one state of each, from its first byte to its last.
//!
//! A file is copied when it is first opened, as long as the copies stay small; what happens to it later cannot be seen
//! then. Larger ones are read through a descriptor, which goes on meaning the same file when another takes its name.
//! That such a file was written to in place, or is gone when it has to be opened again, cannot be hidden: it is noted,
//! at the latest when the run is over.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, fstat, ftruncate};
use rustix::io::{Errno, pread};
use windtunnel_base::hashes;

use super::lower::LowerTree;
use super::pool::{Copied, Copies, Pool, copy_bytes, memory_file};
use crate::host_failure::HostCall;
use crate::sys::{FileView, PAGE};

/// Largest file that is copied, bytes.
const COPY_MAX: u64 = 16 << 20;
/// All copies together, bytes.
const COPIES_MAX: u64 = 256 << 20;
/// Most of them in memory files of their own.
const OWN_COPIES_MAX: usize = 1024;
/// How often a file that changes while it is copied is copied again.
const TRIES: u32 = 5;
/// Coarsest step of the clock that Linux takes the times of files from (CONFIG_HZ=100), with some to spare.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// Paths of what is not any more as the run has seen it.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<BTreeSet<String>>);

impl Changes {
    pub(super) fn note(&self, path: String) {
        self.paths().insert(path);
    }

    /// All of them, in order.
    pub(super) fn list(&self) -> Vec<String> {
        self.paths().iter().cloned().collect()
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().expect("no panic while noting a change")
    }
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    file: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds.
    mtime: (i64, i64),
    /// Of the last change of contents or attributes.
    ctime: (i64, i64),
    /// Changes of these change `ctime`, too: mode, links, owner, group.
    attributes: (u32, u64, u32, u32),
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
            attributes: (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid),
        }
    }

    /// Whether the contents may be others now. Losing its name to another file changes `ctime` only.
    fn differs(&self, now: &Self) -> bool {
        (self.file, self.size, self.mtime) != (now.file, now.size, now.mtime)
            || self.ctime != now.ctime && self.attributes == now.attributes
    }

    /// Whether another write would get another time: the clock of file systems goes in steps.
    fn is_settled(&self) -> bool {
        let (seconds, nanoseconds) = self.ctime;
        let changed = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds as u32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A time to come is another machine's clock: waiting would not help.
        now.checked_sub(changed).is_none_or(|age| age > CLOCK_STEP)
    }
}

/// A host file that a program has opened.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Number in its tree.
    pub index: u32,
    /// Path in its tree.
    pub name: String,
    identity: Identity,
    /// Where its copy is; none: it is read from the host.
    copy: Option<Copied>,
    /// The file itself, or a memory file with the bytes of a shared copy; closed when too many are open.
    open: Mutex<Option<OwnedFd>>,
    last_use: AtomicU64,
}

impl HostFile {
    /// File number `index` of `tree`; opened, so that errors show now, if nobody has done so.
    pub(crate) fn get(tree: &Arc<LowerTree>, index: u32, budget: &FdBudget) -> Result<Arc<Self>, Errno> {
        if let Some(known) = tree.file(index) {
            return Ok(known);
        }
        let name = tree.path(index);
        let (fd, stat) = budget.open(tree, index)?;
        let (identity, copy) = take_copy(&fd, Identity::of(&stat), &budget.copies, || tree.note_changed(index))
            .or_failure(|| format!("read {name}"))?;
        let file = Arc::new(Self {
            index,
            name,
            identity,
            open: Mutex::new(copy.is_none().then_some(fd)),
            copy,
            last_use: AtomicU64::new(0),
        });
        if file.copy.is_none() {
            budget.opened(&file);
        }
        tree.remember(&file);
        Ok(file)
    }

    /// Bytes it had when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.identity.size
    }

    /// The memory file with its copy, and the offset there.
    pub(crate) fn copy<'a>(&'a self, budget: &'a FdBudget) -> Option<(BorrowedFd<'a>, u64)> {
        match self.copy.as_ref()? {
            Copied::Shared(at) => Some((budget.copies.fd(), *at)),
            Copied::Own(fd) => Some((fd.as_fd(), 0)),
        }
    }

    /// The same, if a mapping up to byte `end` of the file shows nothing behind it.
    pub(crate) fn copy_up_to<'a>(&'a self, budget: &'a FdBudget, end: u64) -> Option<(BorrowedFd<'a>, u64)> {
        match self.copy {
            Some(Copied::Shared(_)) if end > self.size().next_multiple_of(PAGE) => None,
            _ => self.copy(budget),
        }
    }

    /// The bytes of its copy.
    pub(crate) fn view(&self, budget: &FdBudget) -> Option<Result<FileView, Errno>> {
        // Nobody writes there any more, and no file with copies gets shorter than those that are kept.
        self.copy(budget).map(|(fd, at)| FileView::new(fd, at, self.size()))
    }

    /// Runs `work` with a file of these bytes alone.
    pub(crate) fn with_fd<T>(
        self: &Arc<Self>,
        tree: &Arc<LowerTree>,
        budget: &FdBudget,
        work: impl FnOnce(BorrowedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some(Copied::Own(fd)) = &self.copy {
            return work(fd.as_fd());
        }
        let mut reopened = false;
        let result = {
            let mut open = self.open.lock().expect("no panic while a file is in use");
            if open.is_none() {
                *open = Some(self.reopen(tree, budget)?);
                reopened = true;
            }
            self.last_use.store(budget.tick(), Ordering::Relaxed);
            work(open.as_ref().expect("opened above").as_fd())
        };
        if reopened {
            budget.opened(self);
        }
        result
    }

    /// SHA-256 in hexadecimal of what the run sees; none: it cannot be read.
    pub(super) fn sha256(self: &Arc<Self>, tree: &Arc<LowerTree>, budget: &FdBudget) -> Option<String> {
        let hash = |fd: BorrowedFd<'_>, start: u64| {
            let mut part = Part {
                fd,
                start,
                len: self.size(),
                at: 0,
            };
            hashes::sha256_of(&mut part).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let hash = match self.copy(budget) {
            Some((fd, start)) => hash(fd, start),
            None => self.with_fd(tree, budget, |fd| hash(fd, 0)),
        };
        hash.ok().map(|hash| hashes::hex(&hash))
    }

    fn reopen(&self, tree: &Arc<LowerTree>, budget: &FdBudget) -> Result<OwnedFd, Errno> {
        if let Some(copy) = self.copy(budget) {
            let fd = budget.memory_file("windtunnel-host-file")?;
            copy_bytes(copy, (fd.as_fd(), 0), self.size())?;
            ftruncate(&fd, self.size()).or_failure(|| "lengthen a memory file".into())?;
            return Ok(fd);
        }
        let (fd, stat) = budget.open(tree, self.index)?;
        if self.identity.differs(&Identity::of(&stat)) {
            tree.note_changed(self.index);
        }
        Ok(fd)
    }

    /// Notes it if the file is not what it was any more, and nobody was told what it is instead.
    pub(crate) fn check(&self, tree: &Arc<LowerTree>) {
        if self.copy.is_some() {
            return;
        }
        let now = match &*self.open.lock().expect("no panic while a file is in use") {
            Some(fd) => fstat(fd),
            None => tree.open(self.index).map(|(_, stat)| stat),
        };
        if now.is_ok_and(|stat| self.identity.differs(&Identity::of(&stat))) {
            tree.note_changed(self.index);
        }
    }

    /// Closes it; whether it was open and not in use.
    fn close(&self) -> bool {
        self.open.try_lock().is_ok_and(|mut open| open.take().is_some())
    }
}

/// Part of a file, to be read.
struct Part<'a> {
    fd: BorrowedFd<'a>,
    /// Offset of the first byte.
    start: u64,
    len: u64,
    /// Bytes before the next one to be read.
    at: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = (self.len - self.at).min(buffer.len() as u64) as usize;
        let count = pread(self.fd, &mut buffer[..want], self.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Part<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.at = at.filter(|&at| at <= self.len).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Copies a file in one state; with what tells it from others, the place of the copy, or none if there is no room for it.
/// `changing` is called if the file does not hold still.
fn take_copy(
    fd: &OwnedFd,
    mut identity: Identity,
    copies: &Copies,
    changing: impl FnOnce(),
) -> Result<(Identity, Option<Copied>), Errno> {
    // The dynamic linker maps libraries beyond their end: a shared copy would be copied once more for that.
    let own_wanted = starts_like_elf(fd)?;
    for attempt in 1.. {
        if identity.size > COPY_MAX {
            break;
        }
        let Some(draft) = copies.draft(identity.size, own_wanted)? else {
            break;
        };
        let count = copy_bytes((fd.as_fd(), 0), draft.place(), identity.size)?;
        let now = Identity::of(&fstat(fd)?);
        let held_still = now == identity && count == identity.size;
        if held_still && now.is_settled() {
            return Ok((identity, Some(draft.keep())));
        }
        if attempt == TRIES {
            if !held_still {
                changing();
            }
            return Ok((identity, Some(draft.keep())));
        }
        drop(draft);
        identity = now;
        std::thread::sleep(CLOCK_STEP);
    }
    Ok((identity, None))
}

fn starts_like_elf(fd: &OwnedFd) -> Result<bool, Errno> {
    let mut magic = [0; 4];
    Ok(pread(fd, &mut magic, 0)? == magic.len() && magic == object::elf::ELFMAG)
}

/// What the contents of a run share: memory files for small ones, and descriptors, which it keeps below the process's
/// limit.
#[derive(Debug)]
pub(crate) struct FdBudget {
    limit: usize,
    clock: AtomicU64,
    open: Mutex<Vec<Weak<HostFile>>>,
    pub(super) pool: Arc<Pool>,
    pub(super) copies: Copies,
}

impl FdBudget {
    /// Raises the limits on open files and memory as far as an ordinary user may, and gives host files half of the
    /// first.
    pub(crate) fn from_process_limit() -> Result<Self, Errno> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        for resource in [Resource::Nofile, Resource::Data] {
            let maximum = getrlimit(resource).maximum;
            let raised = Rlimit {
                current: maximum,
                maximum,
            };
            // Failing leaves the soft limit.
            let _ = setrlimit(resource, raised);
        }
        let current = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16);
        Self::with_limits((current as usize / 2).max(4), COPIES_MAX)
    }

    /// A budget of `files` open host files, and `copies` bytes for copies of others.
    pub(crate) fn with_limits(files: usize, copies: u64) -> Result<Self, Errno> {
        Ok(Self {
            limit: files,
            clock: AtomicU64::new(0),
            open: Mutex::default(),
            pool: Pool::new()?,
            copies: Copies::new(copies, (files / 4).min(OWN_COPIES_MAX))?,
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A memory file of its own.
    pub(super) fn memory_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.retried(|| memory_file(name))
            .or_failure(|| "make a memory file".into())
    }

    /// Opens a file of a tree.
    fn open(&self, tree: &LowerTree, index: u32) -> Result<(OwnedFd, Stat), Errno> {
        self.retried(|| tree.open(index))
            .or_short(|| format!("open {}", tree.path(index)))
    }

    /// What `act` gives; if it lacks a descriptor, once more after all that can be opened again is closed.
    fn retried<T>(&self, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match act() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.close_down_to(&mut self.open.lock().expect("no panic while counting files"), 0);
                act()
            }
            result => result,
        }
    }

    /// Notes that `file` was opened, and closes those used longest ago when there are too many.
    fn opened(&self, file: &Arc<HostFile>) {
        file.last_use.store(self.tick(), Ordering::Relaxed);
        let mut open = self.open.lock().expect("no panic while counting files");
        open.push(Arc::downgrade(file));
        if open.len() > self.limit {
            self.close_down_to(&mut open, self.limit * 3 / 4);
        }
    }

    fn close_down_to(&self, open: &mut Vec<Weak<HostFile>>, count: usize) {
        let mut alive: Vec<Arc<HostFile>> = open.iter().filter_map(Weak::upgrade).collect();
        alive.sort_by_key(|file| file.last_use.load(Ordering::Relaxed));
        let excess = alive.len().saturating_sub(count);
        let mut closed = 0;
        alive.retain(|file| {
            let close = closed < excess && file.close();
            closed += usize::from(close);
            !close
        });
        *open = alive.iter().map(Arc::downgrade).collect();
    }
}

#[cfg(test)]
#[path = "host_file_tests.rs"]
mod tests;
