//! A small content: bytes in a slot that it may move out of, with the holes a memory file of its own would have.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::ftruncate;
use rustix::io::Errno;

use super::content::{SEEK_DATA, SEEK_HOLE};
use super::pool::{Pool, SLOT, Slot, copy_bytes, store};
use crate::host_failure::HostCall;
use crate::sys::{self, PAGE};

/// At most [`SLOT`] bytes.
#[derive(Debug)]
pub(super) struct Small {
    slot: Slot,
    size: u64,
    /// One bit for each page that is no hole.
    data: u64,
}

/// The bits of the pages that `offset..end` meets.
fn pages(offset: u64, end: u64) -> u64 {
    let below = |page: u64| if page < 64 { (1 << page) - 1 } else { u64::MAX };
    if offset >= end {
        return 0;
    }
    below(end.div_ceil(PAGE)) & !below(offset / PAGE)
}

impl Small {
    /// No bytes so far.
    pub(super) fn new(pool: &Arc<Pool>) -> Result<Self, Errno> {
        Ok(Self {
            slot: pool.take()?,
            size: 0,
            data: 0,
        })
    }

    /// Makes `bytes` its contents, which has none.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.slot.touch();
        store(self.slot.fd(), bytes, self.slot.at())?;
        self.size = bytes.len() as u64;
        self.data = pages(0, self.size);
        Ok(())
    }

    /// The file it is in.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.slot.fd()
    }

    /// Offset of its first byte there.
    pub(super) fn start(&self) -> u64 {
        self.slot.at()
    }

    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Writes from program memory; what is written ends within the slot.
    pub(super) fn write(&mut self, from: u64, len: u64, offset: u64) -> Result<u64, Errno> {
        self.slot.touch();
        let count = sys::write_from(self.slot.fd(), from, len, self.slot.at() + offset)
            .or_short(|| "write to a memory file".into())?;
        if count > 0 {
            self.data |= pages(offset, offset + count);
            self.size = self.size.max(offset + count);
        }
        Ok(count)
    }

    /// Sets the size, at most [`SLOT`].
    pub(super) fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        if size < self.size {
            self.clear(size, self.size)?;
            self.data &= pages(0, size);
        }
        self.size = size;
        Ok(())
    }

    /// Makes bytes zeros, and the whole pages of them holes.
    pub(super) fn punch(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len).min(SLOT);
        self.clear(offset, end)?;
        self.data &= !pages(offset.next_multiple_of(PAGE), end - end % PAGE);
        Ok(())
    }

    fn clear(&self, offset: u64, end: u64) -> Result<(), Errno> {
        if self.data & pages(offset, end) == 0 {
            return Ok(());
        }
        self.slot.clear(offset, end - offset)
    }

    /// As lseek(2) with SEEK_DATA or SEEK_HOLE.
    pub(super) fn seek(&self, offset: u64, whence: u32) -> Result<u64, Errno> {
        if offset >= self.size {
            return Err(Errno::NXIO);
        }
        let wanted = match whence {
            SEEK_DATA => self.data,
            SEEK_HOLE => !self.data,
            _ => return Err(Errno::INVAL),
        };
        let ahead = wanted & pages(offset, SLOT);
        let found = (u64::from(ahead.trailing_zeros()) * PAGE).max(offset);
        match whence {
            SEEK_HOLE => Ok(found.min(self.size)),
            _ if ahead != 0 && found < self.size => Ok(found),
            _ => Err(Errno::NXIO),
        }
    }

    /// Bytes of the pages that are no holes.
    pub(super) fn storage(&self) -> u64 {
        u64::from(self.data.count_ones()) * PAGE
    }

    /// Makes an empty memory file a copy, holes and all.
    pub(super) fn copy_to(&self, to: BorrowedFd) -> Result<(), Errno> {
        ftruncate(to, self.size).or_failure(|| "lengthen a memory file".into())?;
        let mut at = 0;
        while let Ok(start) = self.seek(at, SEEK_DATA) {
            at = self.seek(start, SEEK_HOLE)?;
            copy_bytes((self.fd(), self.start() + start), (to, start), at - start)
                .or_failure(|| "read a memory file".into())?;
        }
        Ok(())
    }
}
