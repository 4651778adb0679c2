//! Memory files that many contents share, so that a small file costs no descriptor and no system call to make.
//!
//! Bytes stay in a file, and not in the engine's heap, because `pread` and `pwrite` find out what of a program's memory
//! may be touched, at a third of the cost of the host's other calls that do.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};

use crate::host_failure::HostCall;
use crate::sys::PAGE;

/// Most bytes of a content in a slot: as many pages as a word has bits.
pub(super) const SLOT: u64 = 64 * PAGE;
/// By how much the file of a pool grows, bytes; holes take no memory.
const STEP: u64 = 64 * SLOT;
/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

/// A memory file.
pub(super) fn memory_file(name: &str) -> Result<OwnedFd, Errno> {
    memfd_create(name, MemfdFlags::CLOEXEC)
}

/// Writes all of `bytes` to a memory file.
pub(super) fn store(fd: BorrowedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = pwrite(fd, bytes, offset).or_failure(|| "write to a memory file".into())?;
        bytes = &bytes[count..];
        offset += count as u64;
    }
    Ok(())
}

/// Sets the size of a memory file.
fn resize(fd: &OwnedFd, size: u64) -> Result<(), Errno> {
    ftruncate(fd, size).or_failure(|| "lengthen a memory file".into())
}

/// Copies up to `size` bytes of `from` to `to`; how many there were.
pub(super) fn copy_bytes(
    (from, at): (BorrowedFd, u64),
    (to, to_at): (BorrowedFd, u64),
    size: u64,
) -> Result<u64, Errno> {
    let mut buffer = vec![0; size.min(CHUNK as u64) as usize];
    let mut done = 0;
    while done < size {
        let want = buffer.len().min((size - done) as usize);
        match pread(from, &mut buffer[..want], at + done)? {
            0 => break,
            got => {
                store(to, &buffer[..got], to_at + done)?;
                done += got as u64;
            }
        }
    }
    Ok(done)
}

/// Room for small contents that change: slots of equal size in one sparse file.
#[derive(Debug)]
pub(super) struct Pool {
    fd: OwnedFd,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u64>,
    /// Where those begin that nobody has had yet.
    fresh: u64,
    /// Size of the file.
    end: u64,
}

impl Pool {
    pub(super) fn new() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            fd: memory_file("windtunnel-files")?,
            slots: Mutex::default(),
        }))
    }

    /// A slot, all zeros.
    pub(super) fn take(self: &Arc<Self>) -> Result<Slot, Errno> {
        let mut slots = self.slots.lock().expect("no panic while counting slots");
        let at = match slots.free.pop() {
            Some(at) => at,
            None => {
                if slots.fresh == slots.end {
                    resize(&self.fd, slots.end + STEP)?;
                    slots.end += STEP;
                }
                slots.fresh += SLOT;
                slots.fresh - SLOT
            }
        };
        Ok(Slot {
            pool: self.clone(),
            at,
            touched: false,
        })
    }
}

/// Place of a small content, [`SLOT`] bytes; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pool: Arc<Pool>,
    at: u64,
    /// There may be something else than zeros in it.
    touched: bool,
}

impl Slot {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pool.fd.as_fd()
    }

    /// Offset in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Makes a range zeros, and gives the memory of its whole pages back.
    pub(super) fn clear(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.pool.fd, hole, self.at + offset, len).or_failure(|| "shorten a memory file".into())
    }

    /// Says that it will be written to.
    pub(super) fn touch(&mut self) {
        self.touched = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What cannot be emptied is not used again.
        if !self.touched || self.clear(0, SLOT).is_ok() {
            let mut slots = self.pool.slots.lock().expect("no panic while counting slots");
            slots.free.push(self.at);
        }
    }
}

/// Copies of host files, for as long as the run lasts: one after the other in one file, some in files of their own.
#[derive(Debug)]
pub(super) struct Copies {
    fd: OwnedFd,
    held: Mutex<Held>,
    /// Most bytes of all.
    limit: u64,
    /// Most files of their own.
    own_files: usize,
}

#[derive(Debug, Default)]
struct Held {
    /// Size of the shared file, whole pages.
    end: u64,
    /// Bytes in files of their own.
    own_bytes: u64,
    /// How many those are.
    own_files: usize,
}

/// Where a copy is.
#[derive(Debug)]
pub(super) enum Copied {
    /// In the shared file, from this offset on.
    Shared(u64),
    /// In a file that ends where it ends.
    Own(OwnedFd),
}

impl Copies {
    /// Room for `limit` bytes, and `own_files` files of their own.
    pub(super) fn new(limit: u64, own_files: usize) -> Result<Self, Errno> {
        Ok(Self {
            fd: memory_file("windtunnel-host-files")?,
            held: Mutex::default(),
            limit,
            own_files,
        })
    }

    /// The shared file.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Room for `size` bytes, to be written at once, in a file of their own if that is `own_wanted` and there may be one more;
    /// none if the limit does not allow it.
    pub(super) fn draft(&self, size: u64, own_wanted: bool) -> Result<Option<Draft<'_>>, Errno> {
        let held = self.held.lock().expect("no panic while copying a file");
        let new_end = held.end.saturating_add(size.next_multiple_of(PAGE));
        if new_end.saturating_add(held.own_bytes) > self.limit {
            return Ok(None);
        }
        // Short of descriptors the shared one serves.
        let own = (own_wanted && held.own_files < self.own_files)
            .then(|| memory_file("windtunnel-host-file").ok())
            .flatten();
        match &own {
            Some(own) => resize(own, size)?,
            None => resize(&self.fd, new_end)?,
        }
        Ok(Some(Draft {
            shared: &self.fd,
            own,
            held,
            new_end,
        }))
    }
}

/// Room for a copy that is being made; given back unless it is kept.
pub(super) struct Draft<'a> {
    shared: &'a OwnedFd,
    own: Option<OwnedFd>,
    held: MutexGuard<'a, Held>,
    /// Of the shared file, if the copy is kept there.
    new_end: u64,
}

impl Draft<'_> {
    /// Where to write.
    pub(super) fn place(&self) -> (BorrowedFd<'_>, u64) {
        match &self.own {
            Some(own) => (own.as_fd(), 0),
            None => (self.shared.as_fd(), self.held.end),
        }
    }

    /// Keeps the copy.
    pub(super) fn keep(mut self) -> Copied {
        let end = self.held.end;
        match self.own.take() {
            Some(own) => {
                self.held.own_bytes += self.new_end - end;
                self.held.own_files += 1;
                self.new_end = end;
                Copied::Own(own)
            }
            None => {
                self.held.end = self.new_end;
                Copied::Shared(end)
            }
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // What was written must not show in the last page of the next one. Shortening a memory file does not fail.
        if self.own.is_none() && self.held.end != self.new_end {
            let _ = ftruncate(self.shared, self.held.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_zeros_again_when_they_are_taken_again() {
        let pool = Pool::new().unwrap();
        let mut first = pool.take().unwrap();
        let at = first.at();
        first.touch();
        store(first.fd(), &[7; 10_000], at).unwrap();
        let second = pool.take().unwrap();
        assert_eq!(second.at(), at + SLOT);
        drop(first);
        let again = pool.take().unwrap();
        assert_eq!(again.at(), at);
        let mut bytes = [1; 10_000];
        assert_eq!(pread(again.fd(), &mut bytes, at), Ok(10_000));
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn copies_have_a_limit_and_leave_nothing_of_those_that_failed() {
        let copies = Copies::new(3 * PAGE, 0).unwrap();
        let write = |size, bytes: &[u8]| {
            let draft = copies.draft(size, true).unwrap()?;
            let (fd, at) = draft.place();
            store(fd, bytes, at).unwrap();
            Some(draft)
        };
        let kept = |draft: Option<Draft<'_>>| match draft.map(Draft::keep) {
            Some(Copied::Shared(at)) => Some(at),
            _ => None,
        };
        drop(write(PAGE + 10, &[7; 5000]));
        assert_eq!(kept(write(5, b"hello")), Some(0));
        let mut page = [1; PAGE as usize];
        assert_eq!(pread(copies.fd(), &mut page, 0), Ok(PAGE as usize));
        assert_eq!((&page[..5], page[5], page[4095]), (&b"hello"[..], 0, 0));
        assert!(write(2 * PAGE + 1, b"").is_none());
        assert_eq!(kept(write(2 * PAGE, b"")), Some(PAGE));
    }

    #[test]
    fn files_of_their_own_count_and_are_few() {
        let copies = Copies::new(3 * PAGE, 1).unwrap();
        drop(copies.draft(PAGE, true).unwrap());
        assert!(matches!(
            copies.draft(10, false).unwrap().unwrap().keep(),
            Copied::Shared(0)
        ));
        let Copied::Own(own) = copies.draft(10, true).unwrap().unwrap().keep() else {
            panic!("there may be one");
        };
        assert_eq!(rustix::fs::fstat(&own).unwrap().st_size, 10);
        assert!(copies.draft(2 * PAGE, false).unwrap().is_none(), "two pages are taken");
        assert!(matches!(
            copies.draft(10, true).unwrap().unwrap().keep(),
            Copied::Shared(PAGE)
        ));
    }
}
