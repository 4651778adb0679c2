//! Which pages of a range hold contents of their own: what a copy of private memory has to copy.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::{PAGE, last_error};
use crate::host_failure::HostCall;

/// This process's page map.
const PAGEMAP: &str = "/proc/self/pagemap";

/// Bits of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;

/// Categories of the PAGEMAP_SCAN ioctl (include/uapi/linux/fs.h since Linux 6.7).
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

/// Regions per PAGEMAP_SCAN.
const REGIONS: usize = 64;
/// Entries per read of the pagemap.
const ENTRIES: usize = 512;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Looks into this process's page tables.
#[derive(Debug)]
pub(crate) struct PageScan {
    pagemap: io::Result<File>,
    /// The host has PAGEMAP_SCAN, as far as is known.
    fast: AtomicBool,
}

impl PageScan {
    /// Opens this process's page map; that it cannot be shows when it is needed.
    pub(crate) fn new() -> Self {
        Self {
            pagemap: File::open(PAGEMAP),
            fast: AtomicBool::new(true),
        }
    }

    /// Whether looking costs by what is there, not by the length of the range.
    pub(crate) fn is_fast(&self) -> bool {
        self.fast.load(Ordering::Relaxed)
    }

    /// The pages of `range` that were written: private memory in or out of the host's swap, no zero pages, no pages
    /// that still are a file's. Adjacent ones are one range.
    pub(crate) fn written(&self, range: Range<u64>) -> Result<Vec<Range<u64>>, Errno> {
        self.written_up_to(range, u64::MAX)
            .map(|found| found.expect("there are no more pages than fit"))
    }

    /// Bytes of `range` that are in memory, whosever pages they are.
    pub(crate) fn resident(&self, range: Range<u64>) -> Result<u64, Errno> {
        let pagemap = self
            .pagemap
            .as_ref()
            .map_err(|error| Errno::from_io_error(error).unwrap_or(Errno::IO))?;
        let mut bytes = 0;
        let mut entries = [0; ENTRIES * 8];
        let mut at = range.start;
        if self.is_fast() {
            let found = scan_for(pagemap, range, u64::MAX, PAGE_IS_PFNZERO)?.unwrap_or_default();
            return Ok(count(&found) * PAGE);
        }
        while at < range.end {
            let part = &mut entries[..((range.end - at) / PAGE).min(ENTRIES as u64) as usize * 8];
            pagemap
                .read_exact_at(part, at / PAGE * 8)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let present = part.chunks_exact(8).filter(|entry| entry[7] & 0xc0 != 0).count() as u64;
            bytes += present * PAGE;
            at += part.len() as u64 / 8 * PAGE;
        }
        Ok(bytes)
    }

    /// The same if they are fewer than `limit` pages; else none, without looking further.
    pub(crate) fn written_up_to(&self, range: Range<u64>, limit: u64) -> Result<Option<Vec<Range<u64>>>, Errno> {
        let pagemap = self
            .pagemap
            .as_ref()
            .map_err(|error| Errno::from_io_error(error).unwrap_or(Errno::IO))
            .or_failure(|| format!("open {PAGEMAP}, which tells what a fork has to copy"))?;
        if self.is_fast() {
            match scan(pagemap, range.clone(), limit) {
                Err(Errno::NOTTY | Errno::INVAL) => self.fast.store(false, Ordering::Relaxed),
                result => return result.or_failure(|| format!("read {PAGEMAP}")),
            }
        }
        read_entries(pagemap, range, limit).or_failure(|| format!("read {PAGEMAP}"))
    }
}

/// Number of pages in ranges.
pub(crate) fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| (range.end - range.start) / PAGE).sum()
}

/// Appends a range, joined to the last if it follows that.
fn push(found: &mut Vec<Range<u64>>, range: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => found.push(range),
    }
}

fn scan(pagemap: &File, range: Range<u64>, limit: u64) -> Result<Option<Vec<Range<u64>>>, Errno> {
    scan_for(pagemap, range, limit, PAGE_IS_FILE | PAGE_IS_PFNZERO)
}

/// Pages in memory or swap that are in none of the categories `but`.
fn scan_for(pagemap: &File, range: Range<u64>, limit: u64, but: u64) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let mut found = Vec::new();
    let mut regions = [Region::default(); REGIONS];
    let mut at = range.start;
    let mut left = limit;
    while at < range.end {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            flags: 0,
            start: at,
            end: range.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            max_pages: if left == u64::MAX { 0 } else { left },
            category_inverted: but,
            category_mask: but,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT,
        };
        // SAFETY: the host writes to `arg` and to at most `vec_len` regions.
        let filled = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        let filled = usize::try_from(filled).map_err(|_| last_error())?;
        for region in &regions[..filled] {
            push(&mut found, region.start..region.end);
            left = left.saturating_sub((region.end - region.start) / PAGE);
        }
        if left == 0 {
            return Ok(None);
        }
        at = if arg.walk_end > at { arg.walk_end } else { range.end };
    }
    Ok(Some(found))
}

fn read_entries(pagemap: &File, range: Range<u64>, limit: u64) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let mut found = Vec::new();
    let mut bytes = [0; ENTRIES * 8];
    let mut at = range.start;
    while at < range.end {
        let entries = (((range.end - at) / PAGE) as usize).min(ENTRIES);
        let part = &mut bytes[..entries * 8];
        pagemap
            .read_exact_at(part, at / PAGE * 8)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        for entry in part.chunks_exact(8) {
            let entry = u64::from_le_bytes(entry.try_into().expect("chunks of eight"));
            if entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0 && entry & ENTRY_FILE == 0 {
                push(&mut found, at..at + PAGE);
            }
            at += PAGE;
        }
        if count(&found) >= limit {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, READ, Room, WRITE};
    use super::*;

    #[test]
    fn both_ways_find_the_written_pages_only() {
        let room = Room::claim(0x54fd_0000_0000..0x54fd_1000_0000).unwrap();
        let start = room.range().start;
        room.map(start, 0x100_0000, READ | WRITE, &Backing::Anonymous, false)
            .unwrap();
        for page in [3, 4, 900, 2000] {
            room.zero(start + page * PAGE, 8);
        }
        let expected: Vec<_> = [3..5, 900..901, 2000..2001]
            .map(|pages: Range<u64>| start + pages.start * PAGE..start + pages.end * PAGE)
            .into();
        let scan = PageScan::new();
        let whole = start..start + 0x100_0000;
        assert_eq!(scan.written(whole.clone()).unwrap(), expected);
        assert_eq!(scan.written_up_to(whole.clone(), 5).unwrap(), Some(expected.clone()));
        assert_eq!(scan.written_up_to(whole.clone(), 4).unwrap(), None);
        let slow = PageScan {
            fast: AtomicBool::new(false),
            ..PageScan::new()
        };
        assert_eq!(slow.written(whole.clone()).unwrap(), expected);
        assert_eq!(slow.written_up_to(whole, 4).unwrap(), None);
    }

    #[test]
    fn pages_of_a_file_count_once_they_are_written() {
        let room = Room::claim(0x54fc_0000_0000..0x54fc_1000_0000).unwrap();
        let start = room.range().start;
        let fd = rustix::fs::memfd_create("pages", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&fd, &[1; 4 * PAGE as usize], 0).unwrap();
        let backing = Backing::File {
            fd: std::os::fd::AsFd::as_fd(&fd),
            offset: 0,
            shared: false,
        };
        room.map(start, 4 * PAGE, READ | WRITE, &backing, false).unwrap();
        room.advise(start, 4 * PAGE, libc::MADV_POPULATE_READ).unwrap();
        room.zero(start + 2 * PAGE, 8);
        let scan = PageScan::new();
        let third = start + 2 * PAGE..start + 3 * PAGE;
        let whole = start..start + 4 * PAGE;
        assert_eq!(scan.written(whole.clone()).unwrap(), vec![third]);
        assert_eq!(scan.resident(whole.clone()), Ok(4 * PAGE));
        scan.fast.store(false, Ordering::Relaxed);
        assert_eq!(scan.resident(whole), Ok(4 * PAGE));
    }
}
