//! Families of spaces against models that keep one entry per page and member.

use std::collections::BTreeMap;

use super::super::SLOT;
use super::super::tests::{ANON, Dice, FIXED, Fixture};
use super::*;
use crate::sys::PAGE;

/// Protection and first eight bytes of each mapped page.
type Model = BTreeMap<u64, (u8, u64)>;

const PAGES: u64 = 40;
const RW: u8 = READ | WRITE;

fn pages(start: u64, len: u64) -> impl Iterator<Item = u64> {
    (start..start + len).step_by(PAGE as usize)
}

/// One random memory call of a member, in the host and in its model.
fn change(fixture: &mut Fixture, dice: &mut Dice, id: u64, model: &mut Model, base: u64) {
    let start = base + dice.below(PAGES) * PAGE;
    let len = (dice.below(5) + 1) * PAGE;
    let prot = [0, READ, RW, RW][dice.below(4) as usize];
    match dice.below(6) {
        0 | 1 => {
            assert_eq!(fixture.map(id, start, len, prot, ANON | FIXED), Ok(start));
            model.extend(pages(start, len).map(|page| (page, (prot, 0))));
        }
        2 => {
            fixture.call(id, libc::SYS_munmap, [start, len, 0, 0, 0, 0]).unwrap();
            model.retain(|page, _| !(start..start + len).contains(page));
        }
        3 => {
            let mapped = pages(start, len).take_while(|page| model.contains_key(page)).count() as u64;
            let got = fixture.call(id, libc::SYS_mprotect, [start, len, u64::from(prot), 0, 0, 0]);
            assert_eq!(got.is_ok(), mapped * PAGE == len);
            pages(start, mapped * PAGE).for_each(|page| model.get_mut(&page).unwrap().0 = prot);
        }
        4 => {
            let discard = [start, len, libc::MADV_DONTNEED as u64, 0, 0, 0];
            // A hole is an error, after all that is mapped was discarded.
            let _ = fixture.call(id, libc::SYS_madvise, discard);
            pages(start, len).for_each(|page| {
                if let Some(page) = model.get_mut(&page) {
                    page.1 = 0;
                }
            });
        }
        _ => {
            let to = base + (PAGES + 8 + dice.below(PAGES)) * PAGE;
            let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            if fixture
                .call(id, libc::SYS_mremap, [start, PAGE, PAGE, flags, to, 0])
                .is_ok()
            {
                let page = model.remove(&start).unwrap();
                model.insert(to, page);
            } else {
                assert!(!model.contains_key(&start));
                // Linux unmaps the target first, if the source is there at all.
            }
        }
    }
}

/// All a member sees is its own; then it writes to some of it.
fn verify(fixture: &Fixture, dice: &mut Dice, model: &mut Model, base: u64, step: u64) {
    for page in pages(base, (2 * PAGES + 8) * PAGE) {
        let expected = model.get(&page).filter(|(prot, _)| prot & READ != 0).map(|page| page.1);
        assert_eq!(fixture.load(page), expected, "step {step}: page {page:#x}");
    }
    for (&page, (prot, value)) in model.iter_mut() {
        if dice.below(6) == 0 {
            let stored = fixture.store(page, step);
            assert_eq!(stored, *prot & WRITE != 0, "step {step}: {page:#x}");
            if stored {
                *value = step;
            }
        }
    }
}

#[test]
fn every_member_has_its_own_memory() {
    let mut fixture = Fixture::new();
    let first = fixture.spaces.create().unwrap();
    let base = fixture.map(first, 0, PAGE, RW, ANON).unwrap();
    let mut models: BTreeMap<u64, Model> = BTreeMap::from([(first, Model::from([(base, (RW, 0))]))]);
    let mut dice = Dice(0xf0f0);
    let mut forks = 0;
    for step in 1..4000 {
        let ids: Vec<u64> = models.keys().copied().collect();
        let id = ids[dice.below(ids.len() as u64) as usize];
        match dice.below(16) {
            0 if ids.len() < 6 => {
                let child = fixture.spaces.fork(id).unwrap();
                forks += 1;
                models.insert(child, models[&id].clone());
            }
            // Whether it is in place or parked.
            1 if ids.len() > 1 => {
                fixture.spaces.destroy(id);
                models.remove(&id);
            }
            2..=8 => change(&mut fixture, &mut dice, id, models.get_mut(&id).unwrap(), base),
            _ => {
                fixture.spaces.activate(id);
                verify(&fixture, &mut dice, models.get_mut(&id).unwrap(), base, step);
            }
        }
    }
    assert!(forks > 50);
    let last = models.into_keys().map(|id| fixture.spaces.destroy(id)).count();
    assert!(last > 0 && fixture.load(base).is_none());
    assert!(fixture.spaces.slots.are_free());
}

#[test]
fn what_is_shared_or_a_files_is_common_to_all() {
    let mut fixture = Fixture::new();
    let parent = fixture.spaces.create().unwrap();
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let common = fixture.map(parent, 0, 2 * PAGE, RW, shared).unwrap();
    assert!(fixture.store(common, 1));
    let child = fixture.spaces.fork(parent).unwrap();
    fixture.spaces.activate(child);
    assert!(fixture.load(common) == Some(1) && fixture.store(common, 2));
    // One of them does without; it is mapped anew for the other.
    fixture
        .call(child, libc::SYS_munmap, [common, PAGE, 0, 0, 0, 0])
        .unwrap();
    fixture.map(child, common, PAGE, RW, ANON | FIXED).unwrap();
    assert!(fixture.load(common) == Some(0) && fixture.store(common, 3));
    fixture.spaces.activate(parent);
    assert_eq!(fixture.load(common), Some(2));
    fixture.spaces.activate(child);
    assert_eq!(fixture.load(common), Some(3));
    fixture.spaces.destroy(child);
    assert_eq!(fixture.load(common), Some(2));
}

#[test]
fn a_fork_without_room_changes_nothing() {
    let mut fixture = Fixture::new();
    let parent = fixture.spaces.create().unwrap();
    let at = fixture.map(parent, 0, SLOT / 2, RW, ANON).unwrap();
    assert!(fixture.store(at, 5));
    let children: Vec<u64> = std::iter::from_fn(|| fixture.spaces.fork(parent).ok()).collect();
    assert_eq!(
        children.len(),
        21,
        "of 12 slots the parent has one, and half a one for the time it is parked"
    );
    assert_eq!(
        (fixture.load(at), fixture.spaces.create()),
        (Some(5), Err(Errno::NOMEM))
    );
    for child in children {
        fixture.spaces.activate(child);
        assert_eq!(fixture.load(at), Some(5));
        fixture.spaces.destroy(child);
    }
    assert!(fixture.load(at) == Some(5) && fixture.spaces.fork(parent).is_ok());
}

#[test]
fn small_children_take_little_room() {
    let mut fixture = Fixture::new();
    let parent = fixture.spaces.create().unwrap();
    let at = fixture.map(parent, 0, 4 * PAGE, RW, ANON).unwrap();
    let children: Vec<u64> = (0..500)
        .map(|value| {
            assert!(fixture.store(at, value));
            fixture.spaces.fork(parent).unwrap()
        })
        .collect();
    for (&child, value) in children.iter().zip(0..) {
        fixture.spaces.activate(child);
        assert_eq!(fixture.load(at), Some(value));
    }
    let others = std::iter::from_fn(|| fixture.spaces.create().ok()).count();
    assert_eq!(
        others, 10,
        "one of 12 slots is the parent's, one is full of small pieces"
    );
    children.into_iter().for_each(|child| fixture.spaces.destroy(child));
    assert_eq!(fixture.load(at), Some(499));
}

/// Large reservations are not walked through, and slots that one took after the fork are its own.
#[test]
fn slots_taken_after_the_fork_stay_in_place() {
    let mut fixture = Fixture::new();
    let parent = fixture.spaces.create().unwrap();
    let before = fixture.map(parent, 0, 1 << 29, RW, ANON).unwrap();
    assert!(fixture.store(before + (1 << 28), 1));
    let child = fixture.spaces.fork(parent).unwrap();
    let own = fixture.map(parent, 0, SLOT, RW, ANON).unwrap();
    assert!(fixture.store(own, 2));
    fixture.spaces.activate(child);
    assert_eq!(
        (fixture.load(before + (1 << 28)), fixture.load(before)),
        (Some(1), Some(0))
    );
    assert_eq!(fixture.load(own), Some(2), "not in the child's way");
    let other = fixture.map(child, 0, SLOT, RW, ANON).unwrap();
    assert_ne!(own, other);
    fixture.spaces.destroy(parent);
    assert_eq!((fixture.load(own), fixture.load(before + (1 << 28))), (None, Some(1)));
}

/// Programs linked to the same addresses, and their children.
#[test]
#[ignore = "run by low_range_tests_pass_in_a_process_of_their_own"]
fn families_take_turns_in_the_low_range() {
    let mut fixture = Fixture::new();
    let at = 0x40_0000;
    let mut ids = Vec::new();
    for number in 0..2 {
        let id = fixture.spaces.create().unwrap();
        let mut work = fixture.spaces.work(id).unwrap();
        work.begin(1 << 20, at..at + 8 * PAGE).unwrap();
        for (page, prot) in [(0, RW), (1, READ), (2, RW)] {
            let start = at + page * PAGE;
            work.map_anonymous(start..start + PAGE, prot, super::super::Role::Mapped)
                .unwrap();
        }
        work.finish().unwrap();
        fixture.spaces.activate(id);
        assert!(fixture.store(at, number));
        ids.push(id);
    }
    let mut values: BTreeMap<u64, u64> = ids.iter().copied().zip(0..).collect();
    let mut dice = Dice(9);
    for step in 10..400 {
        let id = ids[dice.below(ids.len() as u64) as usize];
        fixture.spaces.activate(id);
        assert_eq!(fixture.load(at), Some(values[&id]), "step {step}");
        assert_eq!(fixture.load(at + PAGE), Some(0));
        assert!(fixture.store(at, step) && !fixture.store(at + PAGE, 1));
        values.insert(id, step);
        if dice.below(4) == 0 && ids.len() < 4 {
            let child = fixture.spaces.fork(id).unwrap();
            values.insert(child, step);
            ids.push(child);
        } else if dice.below(4) == 0 && ids.len() > 2 {
            fixture.spaces.destroy(id);
            ids.retain(|other| *other != id);
        }
    }
    ids.into_iter().for_each(|id| fixture.spaces.destroy(id));
    assert!(fixture.spaces.slots.are_free());
}
