//! Fixed mappings: an image with its own writable data, and the memory of an instance.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::image::{Image, PAGE_BYTES, Segment, page_up};

/// An address range this process mapped and unmaps again.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: u64,
    bytes: u64,
}

impl Mapping {
    /// Maps `bytes` at exactly `start`, where nothing may be mapped yet.
    fn new(start: u64, bytes: u64, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE never touches an existing mapping, so no Rust object is behind the range.
        let got = unsafe { libc::mmap(start as *mut _, bytes as usize, protection, flags, fd, 0) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self {
            start: got as u64,
            bytes,
        };
        if got as u64 != start {
            // A host kernel before 4.17 takes the address as a hint.
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(mapping)
    }

    /// Puts a part of a file over the pages from `start` on, which belong to this mapping.
    fn replace(&self, start: u64, bytes: u64, protection: i32, flags: i32, fd: i32, offset: u64) -> io::Result<()> {
        assert!(start >= self.start && start + bytes <= self.start + self.bytes);
        let (flags, offset) = (flags | libc::MAP_PRIVATE | libc::MAP_FIXED, offset as i64);
        // SAFETY: the range lies inside this mapping, which was reserved for exactly this and holds no objects yet.
        let got = unsafe { libc::mmap(start as *mut _, bytes as usize, protection, flags, fd, offset) };
        match got == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own; its owner drops it after the last use of what is inside.
        unsafe { libc::munmap(self.start as *mut _, self.bytes as usize) };
    }
}

/// Maps `image` at `base` and relocates it. Read-only segments come straight from the file, so that all instances
/// of all processes share their pages.
pub(crate) fn map_image(image: &Image, base: u64) -> io::Result<Mapping> {
    let mapping = Mapping::new(
        base,
        image.span_bytes(),
        libc::PROT_NONE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        -1,
    )?;
    for segment in image.segments() {
        map_segment(&mapping, image, segment)?;
    }
    let relocations = image.relocations();
    for &place in &relocations.raise {
        let word = (base + u64::from(place)) as *mut u64;
        // SAFETY: `Image::open` checked that the word lies in the writable segment, mapped just now and used by nobody.
        unsafe { word.write_unaligned(word.read_unaligned().wrapping_add(base)) };
    }
    for &(place, addend) in &relocations.set {
        let word = (base + u64::from(place)) as *mut u64;
        // SAFETY: as above.
        unsafe { word.write_unaligned(base.wrapping_add(addend)) };
    }
    Ok(mapping)
}

fn map_segment(mapping: &Mapping, image: &Image, segment: &Segment) -> io::Result<()> {
    let mut protection = libc::PROT_READ;
    if segment.writable {
        protection |= libc::PROT_WRITE;
    }
    if segment.executable {
        protection |= libc::PROT_EXEC;
    }
    let in_page = segment.address % PAGE_BYTES;
    let start = mapping.start() + segment.start();
    let from_file = page_up(in_page + segment.file_bytes);
    let all = segment.end() - segment.start();
    if segment.file_bytes > 0 {
        let offset = segment.offset - in_page;
        mapping.replace(start, from_file, protection, 0, image.file().as_raw_fd(), offset)?;
    }
    let from_file = if segment.file_bytes > 0 { from_file } else { 0 };
    if all > from_file {
        mapping.replace(
            start + from_file,
            all - from_file,
            protection,
            libc::MAP_ANONYMOUS,
            -1,
            0,
        )?;
    }
    if segment.writable {
        // What follows the file's part within its last page is bss, but came from the file.
        let tail = from_file - if from_file > 0 { in_page + segment.file_bytes } else { 0 };
        // SAFETY: the tail lies in the segment's last page from the file, writable and used by nobody yet.
        unsafe { std::ptr::write_bytes((start + from_file - tail) as *mut u8, 0, tail as usize) };
    }
    Ok(())
}

/// The memory of an instance: a memfd, so that parts of it can be mapped into programs too.
#[derive(Debug)]
pub(crate) struct Ram {
    pub mapping: Arc<Mapping>,
    pub fd: OwnedFd,
}

impl Ram {
    pub fn new(base: u64, bytes: u64) -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated; the descriptor is checked and owned below.
        let fd = unsafe { libc::memfd_create(c"windtunnel-ram".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: memfd_create just gave this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain system call on an own descriptor.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as i64) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mapping = Mapping::new(base, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd.as_raw_fd())?;
        Ok(Self {
            mapping: Arc::new(mapping),
            fd,
        })
    }

    /// The pages that have been used: offsets, bytes; adjacent ones in one range. Empty when the host does not say.
    pub fn used(&self) -> Vec<Range<u64>> {
        let mut resident = vec![0u8; ((self.mapping.end() - self.mapping.start()) / PAGE_BYTES) as usize];
        let bytes = resident.len() * PAGE_BYTES as usize;
        // SAFETY: mincore writes a byte for each page of the range, which is this mapping.
        if unsafe { libc::mincore(self.mapping.start() as *mut _, bytes, resident.as_mut_ptr()) } != 0 {
            return Vec::new();
        }
        let mut used: Vec<Range<u64>> = Vec::new();
        for (page, _) in (0u64..).zip(&resident).filter(|(_, state)| **state & 1 == 1) {
            let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            match used.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => used.push(range),
            }
        }
        used
    }

    /// Provides pages that will be used soon, which takes less than a fault for each. Only speed: a host that cannot do so
    /// provides them one by one.
    pub fn provide(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let (start, end) = (self.mapping.start() + range.start, self.mapping.start() + range.end);
            assert!(start <= end && end <= self.mapping.end());
            // SAFETY: the range lies in this mapping, whose contents the call does not change.
            unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_POPULATE_WRITE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_used_and_provided() {
        // An address that other tests of this crate do not use.
        let ram = Ram::new(0x7000_0000_0000, 64 * PAGE_BYTES).unwrap();
        assert_eq!(ram.used(), []);
        let pages = [3 * PAGE_BYTES..5 * PAGE_BYTES, 63 * PAGE_BYTES..64 * PAGE_BYTES];
        ram.provide(&pages);
        let used = ram.used();
        // A host before Linux 5.14 cannot provide pages.
        assert!(used == pages || used.is_empty(), "{used:?}");
        for page in [3, 4, 63] {
            // SAFETY: the page belongs to the mapping, and nothing else refers to it.
            unsafe { ((ram.mapping.start() + page * PAGE_BYTES) as *mut u8).write(1) };
        }
        assert_eq!(ram.used(), pages);
    }
}
