//! The one place that changes the host's memory map (an unsafe room).
//!
//! A [`Room`] is a range of addresses that nothing but programs uses. It is claimed once, checked to be empty, and
//! every operation is checked to stay inside it. That is why the functions here are safe to call: whatever a program
//! asks for, no memory of the engine, of a kernel or of another node can be touched.

mod map_limit;
mod pages;
mod record;
mod view;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::host_failure::{self, HostCall};

pub use map_limit::{MapLimit, take_map_limit};
pub(crate) use map_limit::{at_limit, prepare_reserve};
pub(crate) use pages::{PageScan, count};
use record::Record;
pub(crate) use view::FileView;

/// Size of a page, bytes.
pub(crate) const PAGE: u64 = 4096;

/// `PROT_READ` of a program's request.
pub(crate) const READ: u8 = 1;
/// `PROT_WRITE` of a program's request.
pub(crate) const WRITE: u8 = 2;
/// `PROT_EXEC` of a program's request.
pub(crate) const EXEC: u8 = 4;

/// With `EXEC`: the host does not give that yet, for nobody has looked at the code.
pub(crate) const HELD: u8 = 8;

/// What the host is asked for.
fn host_prot(prot: u8) -> i32 {
    i32::from(if prot & HELD == 0 { prot } else { prot & !(EXEC | HELD) })
}

/// Rooms in use by this process.
static CLAIMED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// A range of addresses for programs only; given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    range: Range<u64>,
    /// None: access is never taken away.
    shutter: Option<Shutter>,
}

/// Nodes whose memory is open, or may be: each is told here when it opens.
pub(crate) type OpenNodes = Arc<Mutex<Vec<u32>>>;

/// How access to all that is in a room can be taken away while programs of other nodes run.
#[derive(Debug)]
struct Shutter {
    /// The node the room is of, and whom to tell when it opens; none: it is of no node, and always open.
    node: Option<(u32, OpenNodes)>,
    state: Mutex<ShutterState>,
}

#[derive(Debug, Default)]
struct ShutterState {
    record: Record,
    closed: bool,
}

impl Shutter {
    fn state(&self) -> MutexGuard<'_, ShutterState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Which way bytes go between a program's memory and the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// To the kernel.
    Out,
    /// To the program.
    In,
}

/// What backs a new mapping.
pub(crate) enum Backing<'a> {
    /// Zeroed private memory.
    Anonymous,
    /// A file from `offset` bytes on.
    File {
        fd: BorrowedFd<'a>,
        offset: u64,
        shared: bool,
    },
}

impl Room {
    /// Claims `range`, which must be page-aligned, unclaimed, and without any mapping of the host.
    pub(crate) fn claim(range: Range<u64>) -> Result<Self, Errno> {
        let mut claimed = CLAIMED.lock().expect("no panic while claiming");
        if !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE) || range.is_empty() {
            return Err(Errno::INVAL);
        }
        if claimed
            .iter()
            .any(|&(start, end)| start < range.end && range.start < end)
        {
            return Err(Errno::EXIST);
        }
        let len = (range.end - range.start) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE never touches an existing mapping.
        let at = unsafe { libc::mmap(range.start as *mut libc::c_void, len, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(last_error());
        }
        // SAFETY: this is the mapping made above, and nothing has been stored in it.
        unsafe { libc::munmap(at, len) };
        if at as u64 != range.start {
            return Err(Errno::EXIST);
        }
        claimed.push((range.start, range.end));
        Ok(Self { range, shutter: None })
    }

    /// The same, and access to what will be in it can be taken away: that of a node, or of no node, which stays open.
    pub(crate) fn claim_with_shutter(range: Range<u64>, node: Option<(u32, OpenNodes)>) -> Result<Self, Errno> {
        let mut room = Self::claim(range)?;
        room.shutter = Some(Shutter {
            node,
            state: Mutex::default(),
        });
        Ok(room)
    }

    /// Takes away all access to what may be written. The next operation here gives it back.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let Some(mut state) = self.shutter.as_ref().map(Shutter::state) else {
            return Ok(());
        };
        if !std::mem::replace(&mut state.closed, true) {
            for (range, _) in state.record.pieces() {
                self.change_access(&range, libc::PROT_NONE)?;
            }
        }
        Ok(())
    }

    /// Gives access back if it was taken away.
    #[inline]
    pub(crate) fn open(&self) {
        if let Some(shutter) = &self.shutter {
            self.open_with(shutter);
        }
    }

    fn open_with(&self, shutter: &Shutter) {
        let mut state = shutter.state();
        if !std::mem::replace(&mut state.closed, false) {
            return;
        }
        for (range, prot) in state.record.pieces() {
            // What is half open can be used by nobody.
            self.change_access(&range, prot)
                .unwrap_or_else(|errno| panic!("giving access to {range:#x?} back: {errno}"));
        }
        if let Some((node, open)) = &shutter.node {
            open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(*node);
        }
    }

    /// Whether access to an address is what is taken away when the room is closed.
    pub(crate) fn can_be_written(&self, address: u64) -> bool {
        let shutter = self.shutter.as_ref();
        shutter.is_some_and(|shutter| shutter.state().record.contains(address))
    }

    fn change_access(&self, range: &Range<u64>, prot: i32) -> Result<(), Errno> {
        self.check(range.start, range.end - range.start);
        let len = (range.end - range.start) as usize;
        // SAFETY: the range is inside a claimed room, where no Rust object lives.
        let change = || unsafe { libc::mprotect(range.start as *mut libc::c_void, len, prot) };
        retried(|| (change() == 0).then_some(())).or_failure(|| "change access to memory of programs".into())
    }

    /// Writes down a change of what is mapped.
    #[inline]
    fn note(&self, change: impl FnOnce(&mut Record)) {
        if let Some(shutter) = &self.shutter {
            change(&mut shutter.state().record);
        }
    }

    /// The addresses of the room.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn check(&self, start: u64, len: u64) {
        let end = start.checked_add(len);
        assert!(
            start >= self.range.start && end.is_some_and(|end| end <= self.range.end) && start.is_multiple_of(PAGE),
            "{start:#x}+{len:#x} is not in the room {:#x?}",
            self.range
        );
    }

    /// Before an operation: it stays in the room, which is open.
    fn prepare(&self, start: u64, len: u64) {
        self.check(start, len);
        self.open();
    }

    /// Maps `backing` at `start`. With `replace`, what was there goes; without, anything there is `EEXIST`.
    pub(crate) fn map(&self, start: u64, len: u64, prot: u8, backing: &Backing, replace: bool) -> Result<(), Errno> {
        self.prepare(start, len);
        let place = if replace {
            libc::MAP_FIXED
        } else {
            libc::MAP_FIXED_NOREPLACE
        };
        let (flags, fd, offset) = match *backing {
            Backing::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Backing::File { fd, offset, shared } => {
                let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
                (kind, std::os::fd::AsRawFd::as_raw_fd(&fd), offset)
            }
        };
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
        let flags = flags | place | libc::MAP_NORESERVE;
        // SAFETY: the range is inside a claimed room, where no Rust object lives.
        let map = || unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                len as usize,
                host_prot(prot),
                flags,
                fd,
                offset,
            )
        };
        let at = retried(|| Some(map()).filter(|&at| at != libc::MAP_FAILED)).or_short(|| "map memory".into())?;
        assert_eq!(at as u64, start, "the host does not know MAP_FIXED_NOREPLACE");
        self.note(|record| record.set(start..start + len, host_prot(prot)));
        Ok(())
    }

    /// Removes whatever is mapped in the range.
    pub(crate) fn unmap(&self, start: u64, len: u64) {
        self.prepare(start, len);
        // SAFETY: the range is inside a claimed room, where no Rust object lives.
        let unmap = || unsafe { libc::munmap(start as *mut libc::c_void, len as usize) };
        // Splitting a mapping can meet the host's limit on their number.
        retried(|| (unmap() == 0).then_some(())).unwrap_or_else(|errno| panic!("munmap {start:#x}+{len:#x}: {errno}"));
        self.note(|record| drop(record.remove(start..start + len)));
    }

    /// Changes the protection of a mapped range.
    pub(crate) fn protect(&self, start: u64, len: u64, prot: u8) -> Result<(), Errno> {
        self.prepare(start, len);
        // SAFETY: the range is inside a claimed room, where no Rust object lives.
        let protect = || unsafe { libc::mprotect(start as *mut libc::c_void, len as usize, host_prot(prot)) };
        retried(|| (protect() == 0).then_some(())).or_short(|| "change the protection of memory".into())?;
        self.note(|record| record.set(start..start + len, host_prot(prot)));
        Ok(())
    }

    /// Passes advice that has an effect on contents.
    pub(crate) fn advise(&self, start: u64, len: u64, advice: i32) -> Result<(), Errno> {
        self.prepare(start, len);
        // SAFETY: the range is inside a claimed room, where no Rust object lives.
        let advised = unsafe { libc::madvise(start as *mut libc::c_void, len as usize, advice) };
        check(advised).or_short(|| "advise on memory".into())
    }

    /// Moves the pages of one mapping to `to` in `target`, replacing what was there; the old range is left unmapped.
    pub(crate) fn move_to(&self, start: u64, len: u64, target: &Room, to: u64) -> Result<(), Errno> {
        self.prepare(start, len);
        target.prepare(to, len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both ranges are inside claimed rooms, where no Rust object lives.
        let remap = || unsafe {
            libc::mremap(
                start as *mut libc::c_void,
                len as usize,
                len as usize,
                flags,
                to as *mut libc::c_void,
            )
        };
        retried(|| (remap() != libc::MAP_FAILED).then_some(())).or_short(|| "move memory".into())?;
        if let Some(shutter) = &self.shutter {
            let moved = shutter.state().record.remove(start..start + len);
            target.note(|record| {
                record.remove(to..to + len);
                for (range, prot) in moved {
                    record.set(range.start - start + to..range.end - start + to, prot);
                }
            });
        }
        Ok(())
    }

    /// Lengthens the mapping that ends `len` bytes after `start`, where nothing may be mapped after it.
    pub(crate) fn grow(&self, start: u64, len: u64, new_len: u64) -> Result<(), Errno> {
        self.prepare(start, new_len);
        // SAFETY: the range is inside a claimed room, where no Rust object lives; without MREMAP_MAYMOVE it stays there.
        let at = unsafe { libc::mremap(start as *mut libc::c_void, len as usize, new_len as usize, 0) };
        if at == libc::MAP_FAILED {
            return Err(last_error());
        }
        self.note(|record| record.lengthen(start + len, start + new_len));
        Ok(())
    }

    /// Copies bytes to `target`. Both places must be mapped, the source readable and the target writable.
    pub(crate) fn copy_to(&self, start: u64, len: u64, target: &Room, to: u64) {
        self.prepare(start, len);
        target.prepare(to, len);
        // SAFETY: both ranges are inside claimed rooms, where no Rust object lives, and do not overlap, for the callers
        // copy between the two places of one mapping; both are mapped, as the callers' trees of mappings say.
        unsafe { std::ptr::copy_nonoverlapping(start as *const u8, to as *mut u8, len as usize) };
    }

    /// Copies `len` bytes between `start` in the room and kernel memory at `buffer`; bytes done before the first bad
    /// address.
    pub(crate) fn copy(&self, direction: Copy, start: u64, buffer: u64, len: u64) -> u64 {
        let page = start - start % PAGE;
        self.prepare(page, start - page + len);
        let kernel = libc::iovec {
            iov_base: buffer as *mut libc::c_void,
            iov_len: len as usize,
        };
        let program = libc::iovec {
            iov_base: start as *mut libc::c_void,
            iov_len: len as usize,
        };
        // SAFETY: the host checks both addresses. The program's is inside a claimed room, where no Rust object lives, and
        // boundary.h has the other one be the kernel's own memory.
        let copied = unsafe {
            let pid = libc::getpid();
            match direction {
                Copy::Out => libc::process_vm_readv(pid, &kernel, 1, &program, 1, 0),
                Copy::In => libc::process_vm_writev(pid, &kernel, 1, &program, 1, 0),
            }
        };
        u64::try_from(copied).unwrap_or_else(|_| {
            let errno = last_error();
            if errno != Errno::FAULT {
                host_failure::note("read or write memory of programs (process_vm_readv)".into(), errno);
            }
            0
        })
    }

    /// Writes zeros over memory that must be mapped writable.
    pub(crate) fn clear(&self, start: u64, len: u64) {
        self.prepare(start, len);
        // SAFETY: the range is inside a claimed room, where no Rust object lives, and mapped, as the callers' trees say.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, len as usize) };
    }

    /// Writes zeros over `len` bytes from `start` on, which the caller has mapped writable from a complete file.
    pub(crate) fn zero(&self, start: u64, len: u64) {
        let zeros = [0_u8; PAGE as usize];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(PAGE);
            // A system call rather than a store: a wrong address is an error here and not a fault in the engine.
            let wrote = self.copy(Copy::In, start + done, zeros.as_ptr() as u64, step);
            assert_eq!(wrote, step, "zeroing {start:#x}+{len:#x}: {}", last_error());
            done += step;
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.unmap(self.range.start, self.range.end - self.range.start);
        if let Ok(mut claimed) = CLAIMED.lock() {
            claimed.retain(|&(start, _)| start != self.range.start);
        }
    }
}

/// Reads from a file into memory a program (or a kernel) named. A bad address is `EFAULT`, not a fault.
pub(crate) fn read_to(fd: BorrowedFd, address: u64, len: u64, offset: u64) -> Result<u64, Errno> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the host kernel checks the address; boundary.h lets only program and kernel memory be named, which holds
    // no Rust object.
    let count = unsafe {
        libc::pread(
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            address as *mut libc::c_void,
            len as usize,
            offset,
        )
    };
    u64::try_from(count).map_err(|_| last_error())
}

/// Writes to a file from memory a program (or a kernel) named. A bad address is `EFAULT`, not a fault.
pub(crate) fn write_from(fd: BorrowedFd, address: u64, len: u64, offset: u64) -> Result<u64, Errno> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the host kernel checks the address, and only reads from it.
    let count = unsafe {
        libc::pwrite(
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            address as *const libc::c_void,
            len as usize,
            offset,
        )
    };
    u64::try_from(count).map_err(|_| last_error())
}

/// The word at an address of this process; none where nothing can be read.
pub(crate) fn peek(address: u64) -> Option<u64> {
    let mut word = [0_u8; 8];
    let local = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: word.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: word.len(),
    };
    // SAFETY: the host checks the address, and writes to the word only.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (read == word.len() as isize).then(|| u64::from_le_bytes(word))
}

/// What `act`, which changes the memory map, gives; once more if it met the host's limit on mappings.
fn retried<T>(act: impl Fn() -> Option<T>) -> Result<T, Errno> {
    map_limit::count_change();
    act()
        .or_else(|| {
            (last_error() == Errno::NOMEM && map_limit::use_reserve())
                .then(&act)
                .flatten()
        })
        .ok_or_else(last_error)
}

fn check(result: i32) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_claimed_once_and_only_when_empty() {
        let range = 0x54ff_0000_0000..0x54ff_0001_0000;
        let room = Room::claim(range.clone()).unwrap();
        assert_eq!(Room::claim(range.clone()).unwrap_err(), Errno::EXIST);
        room.map(range.start, PAGE, READ, &Backing::Anonymous, false).unwrap();
        assert_eq!(
            room.map(range.start, PAGE, READ, &Backing::Anonymous, false),
            Err(Errno::EXIST)
        );
        drop(room);
        Room::claim(range).expect("dropping unmaps and gives the range back");
    }

    #[test]
    #[should_panic(expected = "is not in the room")]
    fn nothing_outside_a_room_can_be_unmapped() {
        let room = Room::claim(0x54fe_0000_0000..0x54fe_0001_0000).unwrap();
        room.unmap(0x54fe_0001_0000, PAGE);
    }
}
