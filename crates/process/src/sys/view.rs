//! Bytes of a memory file, read where they are instead of from a copy.

use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::{PAGE, last_error, retried};
use crate::host_failure::HostCall;

/// Bytes of a memory file; gone from the engine's addresses when dropped.
#[derive(Debug)]
pub(crate) struct FileView {
    start: *const u8,
    len: usize,
}

impl FileView {
    /// The `len` bytes of `fd` from `offset` on, which is the start of a page. The caller sees to it that the file holds
    /// them, and that nobody changes or removes them any more.
    pub(crate) fn new(fd: BorrowedFd, offset: u64, len: u64) -> Result<Self, Errno> {
        debug_assert!(offset.is_multiple_of(PAGE));
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
        let len = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
        if len == 0 {
            let start = std::ptr::NonNull::dangling().as_ptr();
            return Ok(Self { start, len });
        }
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses a place where nothing is.
        let map = || unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                flags,
                fd.as_raw_fd(),
                offset,
            )
        };
        let start = retried(|| Some(map()).filter(|&at| at != libc::MAP_FAILED)).or_short(|| "map memory".into())?;
        Ok(Self {
            start: start.cast_const().cast(),
            len,
        })
    }
}

impl Deref for FileView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped by `new`, unmapped by `drop` only; nobody changes these bytes (see `new`).
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping that `new` made, and no reference into it outlives this value.
            let result = unsafe { libc::munmap(self.start.cast_mut().cast(), self.len) };
            debug_assert_eq!(result, 0, "{}", last_error());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn bytes_are_seen_where_they_are() {
        let fd = memfd_create("view", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&fd, b"hello", PAGE).unwrap();
        assert_eq!(&*FileView::new(fd.as_fd(), PAGE, 5).unwrap(), b"hello");
        assert_eq!(&*FileView::new(fd.as_fd(), 0, 0).unwrap(), b"");
    }
}
