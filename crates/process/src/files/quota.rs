//! How much memory the files that a node writes may take: its `disk`.
//!
//! A file is charged for the pages it was written to at most, which costs no call to the host: what was written one after
//! the other, or over and over, is known exactly. Files with holes are charged too much, and what a mapping writes is not
//! seen; so before anything is refused, all files are measured. A host's memory that runs out before is not the business of
//! this: programs are told only what is the same on every host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use super::content::Content;
use super::host_file::FdBudget;
use crate::sys::PAGE;

/// `whence` of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// What a node's files take, for other threads to see and to stop.
#[derive(Debug, Default)]
pub(crate) struct FileUse {
    /// Memory, at most, bytes.
    pub bytes: AtomicU64,
    /// They must not take more: the host has none.
    pub refuse: AtomicBool,
}

/// The memory that a node's own files take.
#[derive(Debug)]
pub(super) struct Quota {
    /// Bytes.
    limit: u64,
    /// Sum of the charges, bytes.
    used: u64,
    /// By the contents' number.
    charges: BTreeMap<u64, Charge>,
    shown: Arc<FileUse>,
}

/// What one file is charged for.
#[derive(Debug)]
struct Charge {
    content: Weak<Content>,
    /// It takes no more than this, bytes.
    bytes: u64,
    /// Nothing was ever written behind this offset, a whole number of pages.
    end: u64,
}

fn page_up(bytes: u64) -> u64 {
    bytes.saturating_add(PAGE - 1) & !(PAGE - 1)
}

impl Quota {
    /// No files so far, and `limit` bytes for them.
    pub(super) fn new(limit: u64, shown: Arc<FileUse>) -> Self {
        Self {
            limit,
            used: 0,
            charges: BTreeMap::new(),
            shown,
        }
    }

    /// Whether the host has no memory for more.
    pub(super) fn is_refused(&self) -> bool {
        self.shown.refuse.load(Ordering::Relaxed)
    }

    fn show(&self) {
        self.shown.bytes.store(self.used, Ordering::Relaxed);
    }

    /// The limit, bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that all files take, measured.
    pub(super) fn measure(&mut self, budget: &FdBudget) -> u64 {
        self.used = 0;
        self.charges.retain(|_, charge| {
            let Some(content) = charge.content.upgrade() else {
                return false;
            };
            if let Ok(bytes) = content.storage(budget) {
                charge.bytes = page_up(bytes);
                // A mapping may have written behind it.
                charge.end = charge.end.max(content.size(budget).map_or(0, page_up));
            }
            self.used += charge.bytes;
            true
        });
        self.show();
        self.used
    }

    /// Whether new contents of `size` bytes fit.
    pub(super) fn check_new(&mut self, size: u64, budget: &FdBudget) -> Result<(), Errno> {
        let fits = |quota: &Self| quota.used.saturating_add(page_up(size)) <= quota.limit;
        if size > 0 && self.is_refused() {
            return Err(Errno::NOSPC);
        }
        if fits(self) || self.measure(budget) <= self.limit && fits(self) {
            Ok(())
        } else {
            Err(Errno::NOSPC)
        }
    }

    /// Charges for new contents of `size` bytes.
    pub(super) fn add(&mut self, content: &Arc<Content>, size: u64) {
        let bytes = page_up(size);
        self.used += bytes;
        let charge = Charge {
            content: Arc::downgrade(content),
            bytes,
            end: bytes,
        };
        self.charges.insert(content.id, charge);
        self.show();
    }

    /// Charges for `len` bytes to be written at `offset`: how many of them there is room for.
    pub(super) fn take(
        &mut self,
        content: &Arc<Content>,
        offset: u64,
        len: u64,
        budget: &FdBudget,
    ) -> Result<u64, Errno> {
        if self.try_take(content.id, offset, len) {
            return Ok(len);
        }
        if self.is_refused() {
            return Err(Errno::NOSPC);
        }
        self.measure(budget);
        if self.try_take(content.id, offset, len) {
            return Ok(len);
        }
        // What is there already can be written again, and then as much as there is room for.
        let there = match content.seek(budget, offset, SEEK_DATA) {
            Ok(data) if data == offset => content.seek(budget, offset, SEEK_HOLE).unwrap_or(offset),
            _ => offset,
        };
        let from = if there > offset {
            page_up(there)
        } else {
            offset - offset % PAGE
        };
        let end = from.saturating_add(self.limit.saturating_sub(self.used) & !(PAGE - 1));
        let fitting = end.saturating_sub(offset).min(len);
        if fitting == 0 {
            return Err(Errno::NOSPC);
        }
        if let Some(charge) = self.charges.get_mut(&content.id) {
            let added = page_up(offset + fitting).saturating_sub(from);
            charge.bytes += added;
            charge.end = charge.end.max(page_up(offset + fitting));
            self.used += added;
        }
        Ok(fitting)
    }

    /// Whether the charge for a write keeps within the limit; then it is made.
    fn try_take(&mut self, id: u64, offset: u64, len: u64) -> bool {
        let refused = self.is_refused();
        let Some(charge) = self.charges.get_mut(&id) else {
            return true;
        };
        let written = page_up(offset.saturating_add(len)) - offset / PAGE * PAGE;
        let end = charge.end.max(page_up(offset.saturating_add(len)));
        let bytes = charge.bytes.saturating_add(written).min(end);
        let added = bytes.saturating_sub(charge.bytes);
        if added > 0 && (self.used.saturating_add(added) > self.limit || refused) {
            return false;
        }
        self.used += added;
        charge.bytes += added;
        charge.end = end;
        self.show();
        true
    }

    /// The file was cut to `size` bytes, or made longer by a hole.
    pub(super) fn resized(&mut self, content: &Content, size: u64) {
        if let Some(charge) = self.charges.get_mut(&content.id) {
            charge.end = charge.end.min(page_up(size));
            let freed = charge.bytes.saturating_sub(charge.end);
            charge.bytes -= freed;
            self.used -= freed;
            self.show();
        }
    }

    /// Some of the file was given back.
    pub(super) fn punched(&mut self, content: &Arc<Content>, budget: &FdBudget) {
        if let Some(charge) = self.charges.get_mut(&content.id)
            && let Ok(bytes) = content.storage(budget)
        {
            self.used = self.used - charge.bytes + page_up(bytes);
            charge.bytes = page_up(bytes);
        }
    }

    /// Nobody has the file open any more; `gone`: and nobody has it mapped.
    pub(super) fn released(&mut self, id: u64, gone: bool) {
        // What is still mapped counts until a measurement finds it gone.
        if gone && let Some(charge) = self.charges.remove(&id) {
            self.used -= charge.bytes;
            self.show();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 16 * PAGE;

    struct Fixture {
        quota: Quota,
        budget: FdBudget,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                quota: Quota::new(LIMIT, Arc::default()),
                budget: FdBudget::with_limits(8, 1 << 20).unwrap(),
            }
        }

        fn file(&mut self) -> Arc<Content> {
            let content = Content::memory("/x", true, &self.budget).unwrap();
            self.quota.add(&content, 0);
            content
        }

        /// Writes what there is room for.
        fn write(&mut self, content: &Arc<Content>, offset: u64, len: u64) -> Result<u64, Errno> {
            let len = self.quota.take(content, offset, len, &self.budget)?;
            let bytes = vec![1_u8; len as usize];
            let wrote = content.write(&self.budget, bytes.as_ptr() as u64, len, offset);
            assert_eq!(wrote, Ok(len));
            Ok(len)
        }
    }

    #[test]
    fn what_is_written_counts_once_and_until_it_is_cut() {
        let mut node = Fixture::new();
        let file = node.file();
        for _ in 0..3 {
            assert_eq!(node.write(&file, 0, 10 * PAGE), Ok(10 * PAGE));
        }
        assert_eq!(node.quota.used, 10 * PAGE);
        assert_eq!(node.write(&file, 10 * PAGE, 1), Ok(1));
        assert_eq!(node.quota.used, 11 * PAGE);
        file.truncate(&node.budget, PAGE + 1).unwrap();
        node.quota.resized(&file, PAGE + 1);
        assert_eq!(node.quota.used, 2 * PAGE);
        node.quota.released(file.id, true);
        assert_eq!(node.quota.used, 0);
    }

    #[test]
    fn a_write_ends_at_the_limit_and_the_next_fails() {
        let mut node = Fixture::new();
        let (first, second) = (node.file(), node.file());
        assert_eq!(node.write(&first, 0, 12 * PAGE), Ok(12 * PAGE));
        assert_eq!(node.write(&second, 100, 8 * PAGE), Ok(4 * PAGE - 100));
        assert_eq!(node.write(&second, 4 * PAGE, 1), Err(Errno::NOSPC));
        assert_eq!(
            node.write(&second, 3 * PAGE + 5, 100),
            Ok(100),
            "what is there can be changed"
        );
        assert_eq!(node.write(&second, 3 * PAGE, 2 * PAGE), Ok(PAGE));
        assert_eq!(node.quota.check_new(1, &node.budget), Err(Errno::NOSPC));
        assert_eq!(node.quota.check_new(0, &node.budget), Ok(()));
    }

    #[test]
    fn holes_are_free() {
        let mut node = Fixture::new();
        let file = node.file();
        for page in 0..16 {
            // Each time both pages are charged, and one is there.
            assert_eq!(node.write(&file, page << 30, 1), Ok(1), "page {page}");
            assert_eq!(node.write(&file, page << 30, 1), Ok(1), "page {page}");
        }
        assert_eq!(node.write(&file, 1 << 40, 1), Err(Errno::NOSPC));
        file.punch(&node.budget, 0, PAGE).unwrap();
        node.quota.punched(&file, &node.budget);
        assert_eq!(node.write(&file, 1 << 40, 1), Ok(1));
    }

    #[test]
    fn what_is_mapped_counts_until_it_is_gone() {
        let mut node = Fixture::new();
        let file = node.file();
        node.write(&file, 0, LIMIT).unwrap();
        node.quota.released(file.id, false);
        assert_eq!(node.quota.check_new(1, &node.budget), Err(Errno::NOSPC));
        drop(file);
        assert_eq!(node.quota.check_new(1, &node.budget), Ok(()));
    }
}
