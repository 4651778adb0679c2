//! The mappings of one address space, as the program sees them: a pure data structure that maps nothing itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::files::Content;
use crate::patched::PatchedImage;
use crate::sys::HELD;

/// One mapping; its start is the key in the [`Tree`].
#[derive(Clone, Debug)]
pub(crate) struct Vma {
    /// First address after it, page-aligned.
    pub end: u64,
    /// `READ | WRITE | EXEC`.
    pub prot: u8,
    /// What it holds.
    pub kind: Kind,
}

/// What a mapping holds.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Private zeroed memory.
    Anonymous(Role),
    /// Part of a file.
    File(FileMap),
    /// Kept free after an ELF image for its trampolines; the program sees nothing here.
    Gap { image: u64 },
    /// Trampolines of the image mapped at `image`, from its patched copy; the program sees nothing here.
    Trampolines { image: u64, code: Arc<PatchedImage> },
}

/// The use of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Mapped by the program, or the part of an image without contents in the file.
    Mapped,
    /// Mapped by the program with MAP_NORESERVE.
    Reserved,
    /// Below the program break.
    Heap,
    /// The stack made at exec.
    Stack,
}

/// A mapping of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileMap {
    /// The file.
    pub content: Arc<Content>,
    /// Offset in the file of the mapping's first byte.
    pub offset: u64,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Protection it may get by `mprotect`, as Linux's `VM_MAYREAD` and its like: less than all where the program opened
    /// the file for less.
    pub may: u8,
    /// Has ever been writable, so its pages may differ from the file.
    pub touched: bool,
    /// Mapped from the patched copy instead of the file.
    pub patched: Option<Arc<PatchedImage>>,
}

impl Vma {
    /// Whether the program knows of this mapping.
    pub(crate) fn visible(&self) -> bool {
        !matches!(self.kind, Kind::Gap { .. } | Kind::Trampolines { .. })
    }

    /// Whether the host has anything mapped here.
    pub(crate) fn backed(&self) -> bool {
        !matches!(self.kind, Kind::Gap { .. })
    }

    /// Whether the contents are those of a file, or are seen by all who map it: they can be mapped anew at any time.
    pub(crate) fn is_remakeable(&self) -> bool {
        match &self.kind {
            Kind::File(file) => file.shared || !file.touched,
            Kind::Trampolines { .. } => true,
            Kind::Anonymous(_) | Kind::Gap { .. } => false,
        }
    }

    /// Whether the contents are this space's own.
    pub(crate) fn is_private(&self) -> bool {
        self.backed() && !self.is_remakeable()
    }

    /// Whether it is zeroed memory.
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.kind, Kind::Anonymous(_))
    }

    /// Whether the host needs the same mapping for both, which start at one address.
    pub(crate) fn is_backed_as(&self, other: &Vma) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Anonymous(_), Kind::Anonymous(_)) => true,
            (Kind::File(a), Kind::File(b)) => {
                let image = |file: &FileMap| file.patched.as_ref().map(Arc::as_ptr);
                Arc::ptr_eq(&a.content, &b.content)
                    && a.offset == b.offset
                    && a.shared == b.shared
                    && a.touched == b.touched
                    && image(a) == image(b)
            }
            (Kind::Trampolines { image: a, code: x }, Kind::Trampolines { image: b, code: y }) => {
                a == b && Arc::ptr_eq(x, y)
            }
            _ => false,
        }
    }

    /// As [`Vma::continues_as`], and `/proc` calls both by one name.
    pub(crate) fn shows_as(&self, start: u64, next: &Vma) -> bool {
        let same_role = match (&self.kind, &next.kind) {
            (Kind::Anonymous(a), Kind::Anonymous(b)) => a == b,
            _ => true,
        };
        same_role && self.continues_as(start, next)
    }

    /// Whether `next`, starting where this ends, goes on with the same thing.
    fn continues_as(&self, start: u64, next: &Vma) -> bool {
        if (self.prot ^ next.prot) & !HELD != 0 {
            return false;
        }
        match (&self.kind, &next.kind) {
            (Kind::Anonymous(Role::Stack), Kind::Anonymous(role)) => *role == Role::Stack,
            (Kind::Anonymous(_), Kind::Anonymous(role)) => *role != Role::Stack,
            (Kind::File(a), Kind::File(b)) => {
                Arc::ptr_eq(&a.content, &b.content) && a.shared == b.shared && a.offset + (self.end - start) == b.offset
            }
            _ => false,
        }
    }
}

/// All mappings of a space by start address; they never overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    map: BTreeMap<u64, Vma>,
    /// Sum of [`Vma::committed`].
    committed: u64,
}

impl Tree {
    /// The mapping that holds `address`, and its start.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Vma)> {
        let (&start, vma) = self.map.range(..=address).next_back()?;
        (address < vma.end).then_some((start, vma))
    }

    /// As [`Tree::find`], only among what the program knows of.
    pub(crate) fn find_visible(&self, address: u64) -> Option<(u64, &Vma)> {
        self.find(address).filter(|(_, vma)| vma.visible())
    }

    /// All mappings that overlap `range`, in order.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Vma)> {
        let first = self.find(range.start).map_or(range.start, |(start, _)| start);
        self.map
            .range(first..range.end.max(first))
            .map(|(&start, vma)| (start, vma))
    }

    /// Whether the program has nothing in `range`.
    pub(crate) fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).all(|(_, vma)| !vma.visible())
    }

    /// Whether nothing at all, not even a gap, is in `range`.
    pub(crate) fn is_empty(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// The end of the mapped run from `range.start` on, at most `range.end`.
    pub(crate) fn mapped_until(&self, range: Range<u64>) -> u64 {
        let mut at = range.start;
        while at < range.end {
            match self.find_visible(at) {
                Some((_, vma)) => at = vma.end,
                None => return at,
            }
        }
        range.end
    }

    /// The end of the run of like mappings that starts in the one holding `address`: what Linux would hold as one.
    pub(crate) fn run_end(&self, address: u64) -> Option<u64> {
        let (mut start, mut vma) = self.find_visible(address)?;
        while let Some(next) = self.map.get(&vma.end) {
            if !vma.continues_as(start, next) {
                break;
            }
            (start, vma) = (vma.end, next);
        }
        Some(vma.end)
    }

    /// Adds a mapping where there is none.
    pub(crate) fn insert(&mut self, start: u64, vma: Vma) {
        debug_assert!(self.is_empty(start..vma.end), "{start:#x}..{:#x} is taken", vma.end);
        self.committed += vma.committed(start);
        self.map.insert(start, vma);
    }

    /// Takes out all in `range`, splitting what sticks out.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Vec<(u64, Vma)> {
        self.split(range.start);
        self.split(range.end);
        let keys: Vec<u64> = self.map.range(range).map(|(&start, _)| start).collect();
        let removed: Vec<(u64, Vma)> = keys
            .into_iter()
            .map(|start| (start, self.map.remove(&start).expect("key just seen")))
            .collect();
        self.committed -= committed(&removed);
        removed
    }

    /// Makes `address` a boundary between mappings.
    fn split(&mut self, address: u64) {
        let Some((start, vma)) = self.find(address) else { return };
        if start == address {
            return;
        }
        let mut upper = vma.clone();
        if let Kind::File(file) = &mut upper.kind {
            file.offset += address - start;
        }
        self.map.get_mut(&start).expect("key just seen").end = address;
        self.map.insert(address, upper);
    }

    /// The lowest `align`-aligned start of `len` free bytes in `window`.
    pub(crate) fn first_hole(&self, window: Range<u64>, len: u64, align: u64) -> Option<u64> {
        let mut at = window.start.next_multiple_of(align);
        for (start, vma) in self.overlapping(window.clone()) {
            if at.checked_add(len)? <= start {
                break;
            }
            at = at.max(vma.end.next_multiple_of(align));
        }
        (at.checked_add(len)? <= window.end).then_some(at)
    }

    /// All mappings in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Vma)> {
        self.map.iter().map(|(&start, vma)| (start, vma))
    }

    /// The mapping that starts at `start`.
    pub(crate) fn get(&self, start: u64) -> Option<&Vma> {
        self.map.get(&start)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.map.clear();
        self.committed = 0;
    }

    /// Bytes that all mappings count for in the node's program memory.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// Bytes that those of `range` count for.
    pub(super) fn committed_in(&self, range: Range<u64>) -> u64 {
        let inside = |(start, vma): (u64, &Vma)| {
            let counted = vma.committed(start) > 0;
            let len = vma.end.min(range.end).saturating_sub(start.max(range.start));
            if counted { len } else { 0 }
        };
        self.overlapping(range.clone()).map(inside).sum()
    }
}

fn committed(mappings: &[(u64, Vma)]) -> u64 {
    mappings.iter().map(|(start, vma)| vma.committed(*start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anonymous(end: u64) -> Vma {
        Vma {
            end,
            prot: 3,
            kind: Kind::Anonymous(Role::Mapped),
        }
    }

    #[test]
    fn removing_the_middle_leaves_both_ends() {
        let mut tree = Tree::default();
        tree.insert(0x1000, anonymous(0x5000));
        let gone = tree.remove(0x2000..0x3000);
        assert_eq!(gone.len(), 1);
        assert_eq!((gone[0].0, gone[0].1.end), (0x2000, 0x3000));
        let left: Vec<_> = tree.iter().map(|(start, vma)| (start, vma.end)).collect();
        assert_eq!(left, [(0x1000, 0x2000), (0x3000, 0x5000)]);
        assert_eq!(tree.mapped_until(0x1000..0x5000), 0x2000);
        assert_eq!(tree.run_end(0x3000), Some(0x5000));
        assert_eq!(tree.run_end(0x2000), None);
    }

    #[test]
    fn the_lowest_hole_is_found_with_its_alignment() {
        let mut tree = Tree::default();
        tree.insert(0x1000, anonymous(0x3000));
        tree.insert(0x4000, anonymous(0x5000));
        assert_eq!(tree.first_hole(0x1000..0x10000, 0x1000, 0x1000), Some(0x3000));
        assert_eq!(tree.first_hole(0x1000..0x10000, 0x2000, 0x1000), Some(0x5000));
        assert_eq!(tree.first_hole(0x1000..0x10000, 0x1000, 0x8000), Some(0x8000));
        assert_eq!(tree.first_hole(0x1000..0x6000, 0x2000, 0x1000), None);
    }

    #[test]
    fn a_gap_is_free_for_the_program_but_not_for_the_allocator() {
        let mut tree = Tree::default();
        tree.insert(
            0x1000,
            Vma {
                end: 0x2000,
                prot: 0,
                kind: Kind::Gap { image: 0 },
            },
        );
        assert!(tree.is_free(0x1000..0x2000));
        assert!(!tree.is_empty(0x1000..0x2000));
        assert_eq!(tree.first_hole(0x1000..0x3000, 0x1000, 0x1000), Some(0x2000));
    }
}
