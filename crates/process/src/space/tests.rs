//! Address spaces against the host's own Linux, and against a model that keeps one entry per page.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::sys::{EXEC, READ, WRITE};

pub(crate) const ANON: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
pub(crate) const FIXED: u64 = libc::MAP_FIXED as u64;
const NO_FILE: u64 = u64::MAX;

/// Spaces in addresses of their own, with memory accesses that cannot fault.
pub(crate) struct Fixture {
    pub spaces: Spaces,
    scratch: OwnedFd,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_memory(1 << 40)
    }

    pub(crate) fn with_memory(limit: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Beside the nodes' addresses, which tests of other modules look at.
        let start = 0x5000_0000_0000 + number * 12 * SLOT;
        let shared = Shared::new(std::path::Path::new("/")).unwrap();
        let spaces = Spaces::new(shared, (number as u32, 0), start..start + 12 * SLOT, limit).unwrap();
        Self {
            spaces,
            scratch: Self::scratch(),
        }
    }

    /// A file to move bytes through.
    pub(crate) fn scratch() -> OwnedFd {
        rustix::fs::memfd_create("scratch", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    pub(crate) fn call(&mut self, id: u64, nr: i64, args: [u64; 6]) -> Result<u64, Errno> {
        self.spaces.mem_call(id, nr as u32, &args, None)
    }

    pub(crate) fn map(&mut self, id: u64, address: u64, len: u64, prot: u8, flags: u64) -> Result<u64, Errno> {
        self.call(id, libc::SYS_mmap, [address, len, u64::from(prot), flags, NO_FILE, 0])
    }

    /// The eight bytes at `address`, if readable.
    pub(crate) fn load(&self, address: u64) -> Option<u64> {
        crate::sys::write_from(self.scratch.as_fd(), address, 8, 0).ok()?;
        let mut bytes = [0; 8];
        rustix::io::pread(&self.scratch, &mut bytes, 0).unwrap();
        Some(u64::from_le_bytes(bytes))
    }

    /// Stores eight bytes at `address`; whether it is writable.
    pub(crate) fn store(&self, address: u64, value: u64) -> bool {
        rustix::io::pwrite(&self.scratch, &value.to_le_bytes(), 0).unwrap();
        crate::sys::read_to(self.scratch.as_fd(), address, 8, 0).is_ok()
    }
}

/// A small generator: xorshift64*.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// The same call on the host's Linux.
fn linux(nr: i64, args: [u64; 6]) -> Result<u64, Errno> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the callers name addresses of a range that is this test's own.
    let result = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if result == -1 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    } else {
        Ok(result as u64)
    }
}

/// A fixture with one space, the start of its mappings, and a range of Linux's own to compare with.
fn beside_linux() -> (Fixture, u64, u64, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let ours = fixture.spaces.work(id).unwrap().space.areas[0].start;
    let theirs = 0x6000_0000_0000 + NEXT.fetch_add(1, Ordering::Relaxed) * SLOT;
    (fixture, id, ours, theirs)
}

/// Pages 0..4 read-write, a hole of two, 6..8 read-only, 8..10 read-write; then each call on a fresh copy.
#[test]
fn single_calls_answer_as_linux_does() {
    use libc::*;
    const P: u64 = PAGE;
    let calls: Vec<(i64, u64, [u64; 5])> = vec![
        (SYS_munmap, 1, [P, 0, 0, 0, 0]),
        (SYS_munmap, 0, [0, 0, 0, 0, 0]),
        (SYS_munmap, 0, [1, 0, 0, 0, 0]),
        (SYS_munmap, 0, [100 * P, 0, 0, 0, 0]),
        (SYS_munmap, 0, [u64::MAX - P, 0, 0, 0, 0]),
        (SYS_munmap, 2 * P, [6 * P, 0, 0, 0, 0]),
        (SYS_mprotect, 1, [P, 1, 0, 0, 0]),
        (SYS_mprotect, 0, [0, 1, 0, 0, 0]),
        (SYS_mprotect, 50 * P, [0, 1, 0, 0, 0]),
        (SYS_mprotect, 0, [5 * P, 1, 0, 0, 0]),
        (SYS_mprotect, 4 * P, [P, 1, 0, 0, 0]),
        (SYS_mprotect, 0, [P, 0x100, 0, 0, 0]),
        (SYS_mprotect, 0, [P, 8 | 1, 0, 0, 0]),
        (SYS_mprotect, 0, [P, PROT_GROWSDOWN as u64, 0, 0, 0]),
        (SYS_mprotect, 0, [P, PROT_GROWSUP as u64, 0, 0, 0]),
        (SYS_mprotect, 0, [P, (PROT_GROWSUP | PROT_GROWSDOWN) as u64, 0, 0, 0]),
        (SYS_mprotect, 0, [u64::MAX - 5, 1, 0, 0, 0]),
        (SYS_mprotect, 6 * P, [4 * P, 1, 0, 0, 0]),
        (SYS_mremap, 1, [P, P, 0, 0, 0]),
        (SYS_mremap, 0, [P, 0, 0, 0, 0]),
        (SYS_mremap, 0, [0, P, MREMAP_MAYMOVE as u64, 0, 0]),
        (SYS_mremap, 0, [P, P, 8, 0, 0]),
        (SYS_mremap, 0, [P, P, MREMAP_FIXED as u64, 0, 0]),
        (SYS_mremap, 4 * P, [P, P, 0, 0, 0]),
        (SYS_mremap, 0, [4 * P, 6 * P, 0, 0, 0]),
        (SYS_mremap, 0, [4 * P, 7 * P, 0, 0, 0]),
        (SYS_mremap, 0, [2 * P, 3 * P, 0, 0, 0]),
        (SYS_mremap, 0, [5 * P, 7 * P, 1, 0, 0]),
        (SYS_mremap, 6 * P, [3 * P, 4 * P, 1, 0, 0]),
        (SYS_mremap, 0, [4 * P, 2 * P, 0, 0, 0]),
        (SYS_mremap, 0, [9 * P, 2 * P, 0, 0, 0]),
        (SYS_madvise, 1, [P, 0, 0, 0, 0]),
        (SYS_madvise, 0, [P, 7, 0, 0, 0]),
        (SYS_madvise, 0, [0, 4, 0, 0, 0]),
        (SYS_madvise, 0, [6 * P, 4, 0, 0, 0]),
        (SYS_madvise, 0, [u64::MAX, 4, 0, 0, 0]),
        (SYS_madvise, 0, [4 * P, MADV_REMOVE as u64, 0, 0, 0]),
        (SYS_madvise, 0, [4 * P, MADV_FREE as u64, 0, 0, 0]),
        (SYS_madvise, 4 * P, [P, MADV_DONTNEED as u64, 0, 0, 0]),
        (SYS_msync, 1, [P, 4, 0, 0, 0]),
        (SYS_msync, 0, [P, 5, 0, 0, 0]),
        (SYS_msync, 0, [P, 8, 0, 0, 0]),
        (SYS_msync, 0, [0, 4, 0, 0, 0]),
        (SYS_msync, 0, [5 * P, 4, 0, 0, 0]),
        (SYS_msync, 6 * P, [4 * P, 1, 0, 0, 0]),
        (SYS_mincore, 1, [P, 0, 0, 0, 0]),
        (SYS_mincore, 4 * P, [P, 0, 0, 0, 0]),
        (SYS_mincore, 0, [P, 0x10, 0, 0, 0]),
        (SYS_mlock, 4 * P, [P, 0, 0, 0, 0]),
        (SYS_mlock, 0, [0, 0, 0, 0, 0]),
        (SYS_munlock, 3 * P, [2 * P, 0, 0, 0, 0]),
        (SYS_mlock2, 0, [P, 6, 0, 0, 0]),
        (SYS_mlockall, 0, [0, 0, 0, 0, 0]),
        (SYS_mlockall, 0, [8, 0, 0, 0, 0]),
    ];
    let (mut fixture, id, ours, theirs) = beside_linux();
    for (nr, offset, rest) in calls {
        for (base, real) in [(ours, false), (theirs, true)] {
            let mut set = |nr, args| {
                if real {
                    linux(nr, args)
                } else {
                    fixture.call(id, nr, args)
                }
            };
            set(SYS_munmap, [base, 256 * P, 0, 0, 0, 0]).unwrap();
            for (page, count, prot) in [(0, 4, 3), (6, 2, 1), (8, 2, 3)] {
                set(SYS_mmap, [base + page * P, count * P, prot, ANON | FIXED, NO_FILE, 0]).unwrap();
            }
        }
        let first = |base: u64| if nr == SYS_mlockall { rest[0] } else { base + offset };
        let args = |base| [first(base), rest[0], rest[1], rest[2], rest[3], rest[4]];
        let relative = |base: u64, result: Result<u64, Errno>| result.map(|at| at.wrapping_sub(base) % SLOT);
        let expected = linux(nr, args(theirs));
        let got = fixture.call(id, nr, args(ours));
        if nr == SYS_mremap && got.is_ok() {
            assert_eq!(
                relative(ours, got),
                relative(theirs, expected),
                "{nr} +{offset:#x} {rest:x?}"
            );
        } else {
            assert_eq!(got, expected, "{nr} +{offset:#x} {rest:x?}");
        }
    }
    linux(SYS_munmap, [theirs, 256 * P, 0, 0, 0, 0]).unwrap();
}

#[test]
fn mapping_errors_are_those_of_linux() {
    let (mut fixture, id, ours, theirs) = beside_linux();
    const NO_REPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
    for (offset, args) in [
        (0, [0, 3, ANON, NO_FILE, 0]),
        (0, [u64::MAX, 3, ANON, NO_FILE, 0]),
        (0, [1 << 47, 3, ANON, NO_FILE, 0]),
        (0, [PAGE, 3, ANON, NO_FILE, 1]),
        (0, [PAGE, 3, libc::MAP_ANONYMOUS as u64, NO_FILE, 0]),
        (0, [PAGE, 3, libc::MAP_PRIVATE as u64, NO_FILE, 0]),
        (
            0,
            [
                PAGE,
                3,
                (libc::MAP_ANONYMOUS | libc::MAP_SHARED_VALIDATE) as u64,
                NO_FILE,
                0,
            ],
        ),
        (
            0,
            [
                PAGE,
                3,
                (libc::MAP_ANONYMOUS | libc::MAP_SHARED | libc::MAP_GROWSDOWN) as u64,
                NO_FILE,
                0,
            ],
        ),
        (1, [PAGE, 3, ANON | FIXED, NO_FILE, 0]),
        (0, [PAGE, 3, ANON | FIXED, NO_FILE, 0]),
        (0, [PAGE, 3, ANON | NO_REPLACE, NO_FILE, 0]),
        (PAGE, [PAGE, 3, ANON | NO_REPLACE, NO_FILE, 0]),
        (0, [2 * PAGE, 3, ANON | NO_REPLACE, NO_FILE, 0]),
        (0, [(1 << 47) - PAGE, 3, ANON | FIXED, NO_FILE, 0]),
    ] {
        let all = |base: u64| [base + offset, args[0], args[1], args[2], args[3], args[4]];
        let expected = linux(libc::SYS_mmap, all(theirs)).map(|at| at - theirs);
        let got = fixture.call(id, libc::SYS_mmap, all(ours)).map(|at| at - ours);
        assert_eq!(got, expected, "+{offset:#x} {args:x?}");
    }
    linux(libc::SYS_munmap, [theirs, 4 * PAGE, 0, 0, 0, 0]).unwrap();
}

/// Random calls on untouched memory, where Linux's answers depend on nothing but the mappings.
#[test]
fn random_calls_leave_the_same_map_as_linux() {
    const PAGES: u64 = 48;
    let (mut fixture, id, ours, theirs) = beside_linux();
    let mut dice = Dice(0x5eed);
    for step in 0..4000 {
        let (page, count) = (dice.below(PAGES - 8) * PAGE, (dice.below(8) + 1) * PAGE);
        let prot = [0, 1, 3, 5][dice.below(4) as usize];
        let (nr, rest) = match dice.below(8) {
            0..=2 => (libc::SYS_mmap, [count, prot, ANON | FIXED, NO_FILE, 0]),
            3 => (
                libc::SYS_mmap,
                [count, prot, ANON | libc::MAP_FIXED_NOREPLACE as u64, NO_FILE, 0],
            ),
            4 => (libc::SYS_munmap, [count, 0, 0, 0, 0]),
            5 | 6 => (libc::SYS_mprotect, [count, prot, 0, 0, 0]),
            _ => (libc::SYS_mremap, [(dice.below(4) + 1) * PAGE, count, 0, 0, 0]),
        };
        let args = |base: u64| [base + page, rest[0], rest[1], rest[2], rest[3], rest[4]];
        let expected = linux(nr, args(theirs));
        let got = fixture.call(id, nr, args(ours));
        let offset = |result: Result<u64, Errno>, base| result.map(|at| if at >= base { at - base } else { at });
        assert_eq!(
            offset(got, ours),
            offset(expected, theirs),
            "step {step}: {nr} +{page:#x} {rest:x?}"
        );
        if step % 16 == 0 {
            for at in (0..PAGES).map(|number| number * PAGE) {
                let (a, b) = (fixture.load(ours + at).is_some(), fixture.load(theirs + at).is_some());
                assert_eq!(a, b, "step {step}: page {at:#x} readable");
            }
        }
    }
    linux(libc::SYS_munmap, [theirs, PAGES * PAGE, 0, 0, 0, 0]).unwrap();
}

/// One entry per page: protection and contents.
type Model = BTreeMap<u64, (u8, u64)>;

fn run_end(model: &Model, start: u64) -> u64 {
    let Some(&(prot, _)) = model.get(&start) else {
        return start;
    };
    (start..)
        .step_by(PAGE as usize)
        .find(|at| model.get(at).is_none_or(|page| page.0 != prot))
        .unwrap()
}

fn first_hole(model: &Model, from: u64, len: u64) -> u64 {
    let free = |at: &u64| {
        (*at..at + len)
            .step_by(PAGE as usize)
            .all(|page| !model.contains_key(&page))
    };
    (from..).step_by(PAGE as usize).find(free).unwrap()
}

/// Contents follow their pages through everything that moves, splits and grows mappings.
#[test]
fn contents_follow_a_model_of_pages() {
    const PAGES: u64 = 64;
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let base = fixture.spaces.work(id).unwrap().space.areas[0].start;
    let mut model = Model::new();
    let mut dice = Dice(77);
    let pages = |start: u64, len: u64| (start..start + len).step_by(PAGE as usize);
    for step in 1..6000 {
        let start = base + dice.below(PAGES) * PAGE;
        let len = (dice.below(6) + 1) * PAGE;
        let prot = [0, READ, READ | WRITE, READ | WRITE][dice.below(4) as usize];
        match dice.below(6) {
            0 | 1 if model.len() < 48 => {
                let expected = first_hole(&model, base, len);
                assert_eq!(fixture.map(id, 0, len, prot, ANON), Ok(expected), "step {step}");
                model.extend(pages(expected, len).map(|page| (page, (prot, 0))));
            }
            0..=2 => {
                fixture.call(id, libc::SYS_munmap, [start, len, 0, 0, 0, 0]).unwrap();
                model.retain(|page, _| !(start..start + len).contains(page));
            }
            3 => {
                let until_hole = pages(start, len).take_while(|page| model.contains_key(page)).count() as u64;
                let expected = if until_hole * PAGE == len {
                    Ok(0)
                } else {
                    Err(Errno::NOMEM)
                };
                let got = fixture.call(id, libc::SYS_mprotect, [start, len, u64::from(prot), 0, 0, 0]);
                assert_eq!(got, expected, "step {step}");
                pages(start, until_hole * PAGE).for_each(|page| model.get_mut(&page).unwrap().0 = prot);
            }
            _ => {
                let new_len = (dice.below(9) + 1) * PAGE;
                let args = [start, len, new_len, libc::MREMAP_MAYMOVE as u64, 0, 0];
                let got = fixture.call(id, libc::SYS_mremap, args);
                remap_model(&mut model, base, [start, len, new_len], got, step);
            }
        }
        for (&page, (prot, value)) in model.iter_mut() {
            let expected = (*prot & READ != 0).then_some(*value);
            assert_eq!(fixture.load(page), expected, "step {step}: page {page:#x}");
            if dice.below(8) == 0 && fixture.store(page, step) {
                assert!(*prot & WRITE != 0, "step {step}: {page:#x} must not be writable");
                *value = step;
            }
        }
        assert_eq!(fixture.load(base + PAGES * 4 * PAGE), None);
    }
}

fn remap_model(model: &mut Model, base: u64, [start, len, new_len]: [u64; 3], got: Result<u64, Errno>, step: u64) {
    let shift = |model: &mut Model, from: u64, len: u64| -> Vec<(u64, (u8, u64))> {
        (from..from + len)
            .step_by(PAGE as usize)
            .filter_map(|page| Some((page, model.remove(&page)?)))
            .collect()
    };
    if !model.contains_key(&start) {
        assert_eq!(got, Err(Errno::FAULT), "step {step}");
    } else if len >= new_len {
        assert_eq!(got, Ok(start), "step {step}");
        shift(model, start + new_len, len - new_len);
    } else if run_end(model, start) < start + len {
        assert_eq!(got, Err(Errno::FAULT), "step {step}");
    } else {
        let prot = model[&start].0;
        let end = start + len;
        let in_place = (end..start + new_len)
            .step_by(PAGE as usize)
            .all(|page| !model.contains_key(&page));
        let to = if in_place {
            start
        } else {
            first_hole(model, base, new_len)
        };
        assert_eq!(got, Ok(to), "step {step}");
        for (page, content) in shift(model, start, len) {
            model.insert(page - start + to, content);
        }
        model.extend(
            (to + len..to + new_len)
                .step_by(PAGE as usize)
                .map(|page| (page, (prot, 0))),
        );
    }
}

#[test]
fn the_break_moves_within_its_room() {
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let start = fixture.spaces.work(id).unwrap().begin_heap(None);
    let limit = fixture.spaces.work(id).unwrap().space.heap.limit;
    let brk = |fixture: &mut Fixture, to: u64| fixture.call(id, libc::SYS_brk, [to, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(brk(&mut fixture, 0), start);
    assert_eq!(brk(&mut fixture, start + 100), start + 100);
    assert!(fixture.store(start + 4000, 1) && !fixture.store(start + PAGE, 1));
    for step in 1..50 {
        assert_eq!(brk(&mut fixture, start + step * PAGE + 1), start + step * PAGE + 1);
    }
    assert_eq!(
        fixture.spaces.work(id).unwrap().space.tree.iter().count(),
        1,
        "a heap is one mapping"
    );
    assert_eq!(brk(&mut fixture, start + 10), start + 10);
    assert!(!fixture.store(start + PAGE, 1));
    assert_eq!(fixture.load(start + 4000), Some(1));
    assert_eq!(brk(&mut fixture, limit + 1), start + 10);
    assert_eq!(brk(&mut fixture, start - 1), start + 10);
    fixture.map(id, start + 2 * PAGE, PAGE, READ, ANON | FIXED).unwrap();
    assert_eq!(
        brk(&mut fixture, start + 3 * PAGE),
        start + 10,
        "a mapping stands in the way"
    );
}

#[test]
fn nothing_but_the_programs_own_can_be_touched() {
    let mut fixture = Fixture::new();
    let (mine, other) = (fixture.spaces.create().unwrap(), fixture.spaces.create().unwrap());
    let victim = fixture.map(other, 0, PAGE, READ | WRITE, ANON).unwrap();
    assert!(fixture.store(victim, 7));
    let host = vec![1_u8; 3 * PAGE as usize];
    let host_page = (host.as_ptr() as u64).next_multiple_of(PAGE);
    for target in [victim, host_page, 0x40_0000] {
        let args = [target, PAGE, 3, 0, 0, 0];
        assert_eq!(fixture.call(mine, libc::SYS_munmap, args), Ok(0));
        assert_eq!(fixture.call(mine, libc::SYS_mprotect, args), Err(Errno::NOMEM));
        assert_eq!(
            fixture.call(mine, libc::SYS_madvise, [target, PAGE, 4, 0, 0, 0]),
            Err(Errno::NOMEM)
        );
        assert_eq!(
            fixture.call(mine, libc::SYS_mremap, [target, PAGE, 2 * PAGE, 1, 0, 0]),
            Err(Errno::FAULT)
        );
        assert_eq!(fixture.map(mine, target, PAGE, 3, ANON | FIXED), Err(Errno::NOMEM));
        let no_replace = ANON | libc::MAP_FIXED_NOREPLACE as u64;
        assert_eq!(fixture.map(mine, target, PAGE, 3, no_replace), Err(Errno::EXIST));
        let own = fixture.map(mine, target, PAGE, 3, ANON).unwrap();
        assert_ne!(own, target, "a hint elsewhere is not followed");
        let args = [own, PAGE, PAGE, 3, target, 0];
        assert_eq!(fixture.call(mine, libc::SYS_mremap, args), Err(Errno::NOMEM));
    }
    assert_eq!(fixture.load(victim), Some(7));
    assert!(host.iter().all(|&byte| byte == 1));
    assert!(!fixture.spaces.take_notes().is_empty());
    let most_of_linux = 1 << 46;
    assert_eq!(fixture.map(mine, 0, most_of_linux, 0, ANON), Err(Errno::NOMEM));
    assert!(!fixture.spaces.take_notes().is_empty(), "somebody must know why");
    fixture.spaces.destroy(other);
    assert_eq!(fixture.load(victim), None);
}

#[test]
fn large_reservations_get_slots_and_give_them_back() {
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let first = fixture.map(id, 0, 9 * SLOT, 0, ANON).unwrap();
    let small = fixture.map(id, 0, PAGE, READ, ANON).unwrap();
    assert!(small < first, "small mappings stay in the first slot");
    assert_eq!(fixture.map(id, 0, 4 * SLOT, 0, ANON), Err(Errno::NOMEM));
    fixture.spaces.destroy(id);
    let again = fixture.spaces.create().unwrap();
    assert_eq!(fixture.map(again, 0, 9 * SLOT, READ | WRITE, ANON), Ok(first));
    // A copy would need as many again.
    assert_eq!(fixture.spaces.fork(again), Err(Errno::NOMEM));
    assert!(fixture.map(again, 0, SLOT / 4, 0, ANON).is_ok());
}

#[test]
fn a_free_hint_is_followed() {
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let first = fixture.map(id, 0, PAGE, READ, ANON).unwrap();
    let hint = first + 100 * PAGE;
    assert_eq!(fixture.map(id, hint, PAGE, READ, ANON), Ok(hint));
    assert_eq!(fixture.map(id, hint, PAGE, READ, ANON), Ok(first + PAGE));
    assert_eq!(
        fixture.map(id, 0, PAGE, READ, ANON | libc::MAP_32BIT as u64),
        Err(Errno::NOMEM)
    );
}

#[test]
fn shared_memory_can_be_mapped_twice() {
    let mut fixture = Fixture::new();
    let id = fixture.spaces.create().unwrap();
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let one = fixture.map(id, 0, 2 * PAGE, READ | WRITE, shared).unwrap();
    let two = fixture
        .call(
            id,
            libc::SYS_mremap,
            [one + PAGE, 0, PAGE, libc::MREMAP_MAYMOVE as u64, 0, 0],
        )
        .unwrap();
    assert!(fixture.store(one + PAGE, 9));
    assert_eq!(fixture.load(two), Some(9));
    let keep = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP) as u64;
    let private = fixture.map(id, 0, PAGE, READ | WRITE, ANON).unwrap();
    fixture.store(private, 5);
    let moved = fixture
        .call(id, libc::SYS_mremap, [private, PAGE, PAGE, keep, 0, 0])
        .unwrap();
    assert_eq!((fixture.load(moved), fixture.load(private)), (Some(5), Some(0)));
    let vector = fixture.map(id, 0, PAGE, READ | WRITE, ANON).unwrap();
    fixture
        .call(id, libc::SYS_mincore, [one, 2 * PAGE, vector, 0, 0, 0])
        .unwrap();
    assert_eq!(fixture.load(vector), Some(0x0101));
    assert_eq!(
        fixture.call(id, libc::SYS_mincore, [one, PAGE, 8, 0, 0, 0]),
        Err(Errno::FAULT)
    );
}

/// The low range belongs to the process, and tests of other modules look at it: those that use it get their own.
#[test]
fn low_range_tests_pass_in_a_process_of_their_own() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["in_the_low_range", "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("3 passed"), "{said}");
}

#[test]
#[ignore = "run by low_range_tests_pass_in_a_process_of_their_own"]
fn programs_take_turns_in_the_low_range() {
    let mut fixture = Fixture::new();
    let at = 0x40_0000;
    let ids: Vec<u64> = (0..3).map(|_| fixture.spaces.create().unwrap()).collect();
    for (number, &id) in ids.iter().enumerate() {
        let mut work = fixture.spaces.work(id).unwrap();
        work.begin(1 << 20, at..at + 4 * PAGE).unwrap();
        work.map_anonymous(at..at + 2 * PAGE, READ | WRITE, Role::Mapped)
            .unwrap();
        work.map_anonymous(at + 2 * PAGE..at + 3 * PAGE, READ, Role::Mapped)
            .unwrap();
        work.zero(at + 8, 16);
        work.finish().unwrap();
        fixture.spaces.activate(id);
        assert!(fixture.store(at, number as u64 + 10));
    }
    for round in 0..3 {
        for (number, &id) in ids.iter().enumerate() {
            fixture.spaces.activate(id);
            assert_eq!(fixture.load(at), Some(number as u64 + 10 + 100 * round));
            assert!(fixture.store(at, number as u64 + 10 + 100 * (round + 1)));
            assert_eq!(fixture.load(at + 3 * PAGE), (round > 0 && number == 1).then_some(0));
            // What one maps, protects or unmaps there is its own.
            if number == 1 {
                fixture.map(id, at + 3 * PAGE, PAGE, READ, ANON | FIXED).unwrap();
                fixture
                    .call(id, libc::SYS_mprotect, [at + PAGE, PAGE, 1, 0, 0, 0])
                    .unwrap();
            }
            assert_eq!(fixture.store(at + PAGE, 1), number != 1);
        }
    }
    // A parked program can be worked on, and destroyed, where it is.
    fixture.spaces.activate(ids[0]);
    fixture.call(ids[1], libc::SYS_munmap, [at, PAGE, 0, 0, 0, 0]).unwrap();
    fixture.spaces.destroy(ids[2]);
    assert_eq!(fixture.load(at), Some(310));
    fixture.spaces.activate(ids[1]);
    assert_eq!((fixture.load(at), fixture.load(at + PAGE)), (None, Some(0)));
    fixture.spaces.destroy(ids[1]);
    assert_eq!(fixture.load(at + PAGE), None);
    fixture.spaces.activate(ids[0]);
    assert_eq!(fixture.load(at), Some(310));
    let low = fixture
        .map(ids[0], 0, PAGE, READ | EXEC, ANON | libc::MAP_32BIT as u64)
        .unwrap();
    assert_eq!(low, 0x4000_0000);
}
