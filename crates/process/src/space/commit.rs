//! How much memory a node's programs may have together: its `program_memory`.
//!
//! What counts is what Linux counts where it does not overcommit (mm/mmap.c, VM_ACCOUNT; vm.overcommit_memory = 2): memory
//! that may be written and that nothing else holds, whether it was touched or not. So what a program is told depends on its
//! calls alone, not on the host. Reservations do not count: memory without any access, and what is mapped with
//! MAP_NORESERVE, of which Java, Go, sanitizers and others have terabytes. Nor does the stack made at exec, which ends by
//! itself. Where Linux counts memory for good once it was writable, here it counts as long as it can be accessed.

use std::sync::{Arc, Weak};

use rustix::io::Errno;

use super::calls::page_align;
use super::family::Family;
use super::{Kind, Role, Spaces, TASK_SIZE, Tree, Vma};
use crate::files::{Content, LimitMet};
use crate::sys::WRITE;

/// Memory that a node's programs have.
#[derive(Debug)]
pub(super) struct Commit {
    /// Bytes.
    limit: u64,
    /// Of all spaces, as of their last [`Spaces::settle`], bytes.
    private: u64,
    /// Memory that is shared and no file's: contents and bytes. It counts as long as anyone has it mapped.
    shared: Vec<(Weak<Content>, u64)>,
    /// Somebody was refused, and it was not told yet.
    refused: bool,
}

impl Commit {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            private: 0,
            shared: Vec::new(),
            refused: false,
        }
    }

    fn fits(&self, more: u64) -> bool {
        let shared: u64 = self.shared.iter().map(|(_, bytes)| bytes).sum();
        (self.private + shared).saturating_add(more) <= self.limit
    }

    /// Counts shared memory that was just made.
    pub(super) fn share(&mut self, content: &Arc<Content>, bytes: u64) {
        self.shared.retain(|(content, _)| content.strong_count() > 0);
        self.shared.push((Arc::downgrade(content), bytes));
    }
}

impl Vma {
    /// Bytes that it counts for; it starts at `start`.
    pub(super) fn committed(&self, start: u64) -> u64 {
        let counts = match &self.kind {
            Kind::Anonymous(Role::Mapped | Role::Heap) => self.prot != 0,
            Kind::File(file) => !file.shared && file.touched,
            Kind::Anonymous(Role::Reserved | Role::Stack) | Kind::Gap { .. } | Kind::Trampolines { .. } => false,
        };
        if counts { self.end - start } else { 0 }
    }
}

/// How many bytes more a memory call would make count, if it succeeds.
pub(super) fn growth(tree: &Tree, heap_end: u64, nr: u32, args: &[u64; 6]) -> u64 {
    let [address, len, third, fourth, ..] = *args;
    match i64::from(nr) {
        libc::SYS_mmap => mmap_growth(tree, address, len, third, fourth as i32),
        libc::SYS_brk => page_align(address).saturating_sub(page_align(heap_end)),
        libc::SYS_mprotect => mprotect_growth(tree, address, len, third as u8),
        libc::SYS_mremap => {
            let (old_len, new_len) = (page_align(len), page_align(third));
            let kept = fourth & libc::MREMAP_DONTUNMAP as u64 != 0;
            let counted = |(start, vma): (u64, &Vma)| vma.committed(start) > 0;
            match tree.find_visible(address).is_some_and(counted) {
                true if kept => new_len,
                true => new_len.saturating_sub(old_len),
                false => 0,
            }
        }
        _ => 0,
    }
}

fn mmap_growth(tree: &Tree, address: u64, len: u64, prot: u64, flags: i32) -> u64 {
    let len = page_align(len);
    let private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    let anonymous = flags & libc::MAP_ANONYMOUS != 0;
    let counts = match (anonymous, private) {
        (true, _) if flags & libc::MAP_NORESERVE != 0 => false,
        (true, true) => prot & 7 != 0,
        (true, false) => true,
        (false, true) => prot & u64::from(WRITE) != 0,
        (false, false) => false,
    };
    if !counts || len > TASK_SIZE {
        return 0;
    }
    let replaced = match flags & libc::MAP_FIXED {
        0 => 0,
        _ => tree.committed_in(address..address.saturating_add(len)),
    };
    len.saturating_sub(replaced)
}

fn mprotect_growth(tree: &Tree, address: u64, len: u64, prot: u8) -> u64 {
    let range = address..address.saturating_add(page_align(len));
    let becomes = |vma: &Vma| match &vma.kind {
        Kind::Anonymous(Role::Mapped | Role::Heap) => vma.prot == 0 && prot & 7 != 0,
        Kind::File(file) => !file.shared && !file.touched && prot & WRITE != 0,
        _ => false,
    };
    let pieces = tree.overlapping(range.clone()).filter(|(_, vma)| becomes(vma));
    pieces
        .map(|(start, vma)| vma.end.min(range.end).saturating_sub(start.max(range.start)))
        .sum()
}

impl Spaces {
    /// The limit on programs' memory, if they met it since the last call.
    pub(crate) fn take_limit_met(&mut self) -> Option<LimitMet> {
        std::mem::take(&mut self.commit.refused).then_some(LimitMet::Memory(self.commit.limit))
    }

    /// Whether `more` bytes keep within the limit.
    pub(crate) fn check_memory(&mut self, more: u64) -> Result<(), Errno> {
        if more == 0 || self.commit.fits(more) {
            return Ok(());
        }
        // What families keep for their next children may be the last that has shared memory mapped.
        for mut spare in self.families.values_mut().filter_map(Family::take_spare) {
            spare.places.clear(&self.room, &mut self.slots);
        }
        self.commit.shared.retain(|(content, _)| content.strong_count() > 0);
        if self.commit.fits(more) {
            return Ok(());
        }
        self.commit.refused = true;
        Err(Errno::NOMEM)
    }

    /// Counts what a space has now.
    pub(crate) fn settle(&mut self, id: u64) {
        if let Some(space) = self.spaces.get_mut(&id) {
            let committed = space.tree.committed();
            self.commit.private = self.commit.private - space.settled + committed;
            space.settled = committed;
        }
    }

    /// Counts a space no more.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(space) = self.spaces.get_mut(&id) {
            self.commit.private -= std::mem::take(&mut space.settled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;
    use crate::sys::{PAGE, READ};

    const RW: u8 = READ | WRITE;
    const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    const SHARED: u64 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    const LIMIT: u64 = 100 * PAGE;

    fn fixture() -> (Fixture, u64) {
        let mut fixture = Fixture::with_memory(LIMIT);
        let id = fixture.spaces.create().unwrap();
        (fixture, id)
    }

    fn used(fixture: &Fixture) -> u64 {
        let trees = fixture.spaces.spaces.values().map(|space| {
            let counted: u64 = space.tree.iter().map(|(start, vma)| vma.committed(start)).sum();
            assert_eq!(space.tree.committed(), counted);
            counted
        });
        let sum: u64 = trees.sum();
        assert_eq!(fixture.spaces.commit.private, sum);
        sum / PAGE
    }

    #[test]
    fn writable_memory_counts_and_reservations_do_not() {
        let (mut f, id) = fixture();
        let at = f.map(id, 0, 60 * PAGE, RW, ANONYMOUS).unwrap();
        let reserved = f.map(id, 0, 1000 * PAGE, 0, ANONYMOUS).unwrap();
        f.map(id, 0, 1000 * PAGE, RW, ANONYMOUS | libc::MAP_NORESERVE as u64)
            .unwrap();
        assert_eq!(used(&f), 60);
        assert_eq!(f.map(id, 0, 41 * PAGE, RW, ANONYMOUS), Err(Errno::NOMEM));
        assert_eq!(f.spaces.take_limit_met(), Some(LimitMet::Memory(LIMIT)));
        assert_eq!(f.spaces.take_limit_met(), None, "told once");
        let protect = |f: &mut Fixture, at, pages: u64, prot: u8| {
            f.call(id, libc::SYS_mprotect, [at, pages * PAGE, u64::from(prot), 0, 0, 0])
        };
        assert_eq!(protect(&mut f, reserved, 41, RW), Err(Errno::NOMEM));
        assert_eq!(protect(&mut f, reserved, 40, RW), Ok(0));
        assert_eq!(protect(&mut f, reserved, 40, READ), Ok(0));
        assert_eq!(used(&f), 100);
        let fixed = ANONYMOUS | libc::MAP_FIXED as u64;
        assert_eq!(f.map(id, at, 60 * PAGE, RW, fixed), Ok(at), "in place of as much");
        f.call(id, libc::SYS_munmap, [at, 30 * PAGE, 0, 0, 0, 0]).unwrap();
        assert_eq!(protect(&mut f, reserved, 40, 0), Ok(0));
        assert_eq!(used(&f), 30);
    }

    #[test]
    fn what_grows_counts() {
        let (mut f, id) = fixture();
        let at = f.map(id, 0, 60 * PAGE, RW, ANONYMOUS).unwrap();
        let remap = |f: &mut Fixture, pages: u64| {
            let may_move = libc::MREMAP_MAYMOVE as u64;
            f.call(id, libc::SYS_mremap, [at, 60 * PAGE, pages * PAGE, may_move, 0, 0])
        };
        assert_eq!(remap(&mut f, 101), Err(Errno::NOMEM));
        remap(&mut f, 90).unwrap();
        assert_eq!(used(&f), 90);
        let start = f.spaces.work(id).unwrap().begin_heap(None);
        let brk = |f: &mut Fixture, pages: u64| f.call(id, libc::SYS_brk, [start + pages * PAGE, 0, 0, 0, 0, 0]);
        assert_eq!(brk(&mut f, 10), Ok(start + 10 * PAGE));
        assert_eq!(brk(&mut f, 11), Ok(start + 10 * PAGE), "the break stays");
        assert_eq!(brk(&mut f, 0), Ok(start));
        assert_eq!(used(&f), 90);
    }

    #[test]
    fn forks_count_and_shared_memory_counts_once() {
        let (mut f, id) = fixture();
        f.map(id, 0, 20 * PAGE, RW, ANONYMOUS).unwrap();
        let shared = f.map(id, 0, 50 * PAGE, RW, SHARED).unwrap();
        let child = f.spaces.fork(id).unwrap();
        assert_eq!(used(&f), 40);
        assert_eq!(f.spaces.fork(id), Err(Errno::NOMEM), "ten are left");
        f.spaces.destroy(child);
        assert_eq!(used(&f), 20);
        assert_eq!(f.map(id, 0, 50 * PAGE, RW, SHARED), Err(Errno::NOMEM));
        f.call(id, libc::SYS_munmap, [shared, 50 * PAGE, 0, 0, 0, 0]).unwrap();
        f.map(id, 0, 50 * PAGE, RW, SHARED).unwrap();
        f.spaces.destroy(id);
        assert_eq!(used(&f), 0);
    }
}
