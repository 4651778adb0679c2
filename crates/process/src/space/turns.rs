//! How one member of a family takes the place of another.
//!
//! What only one of them has is moved: page tables, not bytes. That costs some microseconds a mapping, more than to
//! copy a few dozen pages. So where both have the same mapping with few written pages, as in small programs all are,
//! it stays, and the pages are exchanged with copies at the parked places.

use std::ops::Range;

use rustix::io::Errno;

use super::low::Low;
use super::{LOW_END, Space, Vma, map_backing};
use crate::Shared;
use crate::sys::{PAGE, READ, Room, WRITE, count};

/// From this many written pages on a mapping is moved, since copies would cost more. Unit tests go both ways.
const PAGES_MOVED: u64 = if cfg!(test) { 3 } else { 48 };
/// Memory of a child that is gone is kept for the next one up to this many pages a mapping: 16 MiB.
const PAGES_PUT_BY: u64 = 4096;
/// Mappings at most this far from each other are searched for written pages as one, bytes.
const SEARCH_GAP: u64 = 64 * PAGE;
/// Without the host's fast search longer mappings are moved unseen, bytes.
const SEARCH_SLOWLY: u64 = 64 * PAGE;

/// A copy of a mapping's written pages at the place where it is parked. Of a space in place it is an old one, whose
/// memory will serve again.
#[derive(Debug)]
pub(super) struct Store {
    pub end: u64,
    pub prot: u8,
    /// Written pages, by the addresses where the program sees them.
    pub pages: Vec<Range<u64>>,
}

/// What has to be done for one space to take the place of another, as long as neither's mappings change.
#[derive(Debug)]
pub(super) struct Plan {
    pub from: u64,
    pub to: u64,
    /// Mappings of the old that the new has not, and where they go; what can be mapped anew goes nowhere.
    leave: Vec<(Range<u64>, Option<u64>)>,
    /// Private mappings that both have alike: where the old's and the new's are parked.
    exchange: Vec<(Range<u64>, [u64; 2])>,
    /// Mappings of the new that the old has not, and where they are.
    come: Vec<(Range<u64>, Option<u64>)>,
}

impl Plan {
    /// The plan for `to` in the place of `from`, with what `is_frozen` by its start left where it is.
    pub(super) fn new(from: &Space, to: &Space, is_frozen: impl Fn(u64) -> bool) -> Self {
        let place = |space: &Space, start| space.places.of(start).expect("made before the plan");
        let alike = |space: &Space, start, vma: &Vma| {
            let other = space.tree.get(start);
            other.is_some_and(|other| other.end == vma.end && other.prot == vma.prot && other.is_backed_as(vma))
        };
        let copied = |vma: &Vma| vma.is_private() && vma.prot & (READ | WRITE) == READ | WRITE;
        let mut plan = Self {
            from: from.id,
            to: to.id,
            leave: Vec::new(),
            exchange: Vec::new(),
            come: Vec::new(),
        };
        for (start, vma) in from.turning().filter(|(start, _)| !is_frozen(*start)) {
            let alike = alike(to, start, vma);
            if alike && copied(vma) {
                plan.exchange
                    .push((start..vma.end, [place(from, start), place(to, start)]));
            } else if vma.is_private() || !alike {
                plan.leave
                    .push((start..vma.end, vma.is_private().then(|| place(from, start))));
            }
        }
        for (start, vma) in to.turning().filter(|(start, _)| !is_frozen(*start)) {
            let alike = alike(from, start, vma);
            if !(alike && (vma.is_remakeable() || copied(vma))) {
                plan.come
                    .push((start..vma.end, vma.is_private().then(|| place(to, start))));
            }
        }
        plan
    }
}

/// Two spaces while they change places.
pub(super) struct Turn<'a> {
    pub shared: &'a Shared,
    pub room: &'a Room,
    pub low: &'a Low,
    pub from: &'a mut Space,
    pub to: &'a mut Space,
    /// The old one is going for good: its private memory is not kept.
    pub leaving: bool,
}

impl<'a> Turn<'a> {
    /// Carries out a plan; the address where it failed, and why.
    pub(super) fn carry_out(&mut self, plan: &Plan) -> Result<(), (u64, Errno)> {
        for (range, parked) in &plan.leave {
            match *parked {
                Some(parked) if !self.leaving => self.park(range, parked).map_err(|errno| (range.start, errno))?,
                _ => self.place(range.start).unmap(range.start, range.end - range.start),
            }
        }
        let written = self.search(&plan.exchange).map_err(|errno| (0, errno))?;
        for ((range, parked), written) in plan.exchange.iter().zip(written) {
            self.exchange(range, *parked, written)
                .map_err(|errno| (range.start, errno))?;
        }
        for (range, parked) in &plan.come {
            match *parked {
                Some(parked) => self.bring(range, parked),
                None => self.map_anew(range.start),
            }
            .map_err(|errno| (range.start, errno))?;
        }
        Ok(())
    }

    /// The room of the place where programs see `address`.
    fn place(&self, address: u64) -> &'a Room {
        match address {
            0..LOW_END => self.low.room_of(self.from.id).expect("brought in place by the caller"),
            _ => self.room,
        }
    }

    fn park(&mut self, range: &Range<u64>, parked: u64) -> Result<(), Errno> {
        forget_stores(self.from, self.room, range);
        self.place(range.start)
            .move_to(range.start, range.end - range.start, self.room, parked)
    }

    fn bring(&mut self, range: &Range<u64>, parked: u64) -> Result<(), Errno> {
        self.to.stores.remove(&range.start);
        self.room
            .move_to(parked, range.end - range.start, self.place(range.start), range.start)
    }

    fn map_anew(&self, start: u64) -> Result<(), Errno> {
        let vma = self.to.tree.get(start).expect("planned from this tree");
        map_backing(self.shared, self.place(start), start, start, vma)
    }

    /// The written pages of each mapping in place; none where they are many. One search serves for neighbours.
    fn search(&self, mappings: &[(Range<u64>, [u64; 2])]) -> Result<Vec<Option<Vec<Range<u64>>>>, Errno> {
        let pages = &self.shared.pages;
        let mut results = Vec::with_capacity(mappings.len());
        while results.len() < mappings.len() {
            let rest = &mappings[results.len()..];
            let near = |pair: &[(Range<u64>, [u64; 2])]| pair[1].0.start - pair[0].0.end <= SEARCH_GAP;
            let together = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
            let whole = rest[0].0.start..rest[together - 1].0.end;
            let long = whole.end - whole.start > SEARCH_SLOWLY && !pages.is_fast();
            let found = match together {
                1 if long => None,
                _ if long => pages.written_up_to(rest[0].0.clone(), PAGES_MOVED)?,
                _ => pages.written_up_to(whole, PAGES_MOVED)?,
            };
            match found {
                Some(found) if !long => {
                    results.extend(rest[..together].iter().map(|(range, _)| Some(clip(&found, range))))
                }
                found if together == 1 || long => results.push(found),
                _ => {
                    for (range, _) in &rest[..together] {
                        results.push(pages.written_up_to(range.clone(), PAGES_MOVED)?);
                    }
                }
            }
        }
        Ok(results)
    }

    /// Exchanges one mapping, whose `written` pages are in place if they are few.
    fn exchange(
        &mut self,
        range: &Range<u64>,
        [old_parked, new_parked]: [u64; 2],
        written: Option<Vec<Range<u64>>>,
    ) -> Result<(), Errno> {
        let few = written.filter(|_| self.has_store(range, new_parked));
        let Some(written) = few else {
            if self.leaving {
                self.put_by(range, old_parked)?;
            } else {
                self.park(range, old_parked)?;
            }
            return self.bring(range, new_parked);
        };
        let place = self.place(range.start);
        let vma = self.to.tree.get(range.start).expect("planned from this tree");
        let pages = &self.to.stores[&range.start].pages;
        let unwritten = without(&written, pages);
        if !self.leaving {
            keep(
                self.shared,
                self.room,
                place,
                self.from,
                (range.start, old_parked),
                written,
            )?;
        }
        // Pages that the new one has not written yet.
        for run in unwritten {
            if vma.is_anonymous() {
                place.clear(run.start, run.end - run.start);
            } else {
                place.advise(run.start, run.end - run.start, libc::MADV_DONTNEED)?;
            }
        }
        for run in pages {
            let parked = new_parked + (run.start - range.start);
            self.room.copy_to(parked, run.end - run.start, place, run.start);
        }
        Ok(())
    }

    /// Parks a mapping whose contents nobody needs, as a store: its memory may serve the next child.
    fn put_by(&mut self, range: &Range<u64>, parked: u64) -> Result<(), Errno> {
        let Some(pages) = self.shared.pages.written_up_to(range.clone(), PAGES_PUT_BY)? else {
            self.place(range.start).unmap(range.start, range.end - range.start);
            return Ok(());
        };
        self.park(range, parked)?;
        let prot = self.from.tree.get(range.start).expect("planned from this tree").prot;
        let store = Store {
            end: range.end,
            prot,
            pages,
        };
        self.from.stores.insert(range.start, store);
        Ok(())
    }

    /// Whether it is known which pages of the new one's parked mapping are written, and they are few.
    fn has_store(&mut self, range: &Range<u64>, parked: u64) -> bool {
        if let Some(store) = self.to.stores.get(&range.start) {
            return count(&store.pages) < PAGES_MOVED;
        }
        let len = range.end - range.start;
        if len > SEARCH_SLOWLY && !self.shared.pages.is_fast() {
            return false;
        }
        let found = self.shared.pages.written_up_to(parked..parked + len, PAGES_MOVED);
        let Ok(Some(found)) = found else { return false };
        let seen = |run: Range<u64>| run.start - parked + range.start..run.end - parked + range.start;
        let store = Store {
            end: range.end,
            prot: self.to.tree.get(range.start).expect("planned from this tree").prot,
            pages: found.into_iter().map(seen).collect(),
        };
        self.to.stores.insert(range.start, store);
        true
    }
}

/// Copies the written pages of the mapping of `space` at `start` to its store, which is made if there is none that fits.
fn keep(
    shared: &Shared,
    room: &Room,
    place: &Room,
    space: &mut Space,
    (start, parked): (u64, u64),
    written: Vec<Range<u64>>,
) -> Result<(), Errno> {
    let vma = space.tree.get(start).expect("planned from this tree");
    let fits = |store: &Store| store.end == vma.end && store.prot == vma.prot;
    if !space.stores.get(&start).is_some_and(fits) {
        let vma = vma.clone();
        forget_stores(space, room, &(start..vma.end));
        map_backing(shared, room, parked, start, &vma)?;
        let store = Store {
            end: vma.end,
            prot: vma.prot,
            pages: Vec::new(),
        };
        space.stores.insert(start, store);
    }
    let store = space.stores.get_mut(&start).expect("made above");
    store.fill(place, room, start, parked, written)
}

impl Store {
    /// Makes the store, at `parked`, a copy of the `written` pages of the mapping at `start`.
    pub(super) fn fill(
        &mut self,
        place: &Room,
        room: &Room,
        start: u64,
        parked: u64,
        written: Vec<Range<u64>>,
    ) -> Result<(), Errno> {
        for run in &written {
            place.copy_to(run.start, run.end - run.start, room, parked + (run.start - start));
        }
        // Pages that were written once, and discarded since.
        for run in without(&self.pages, &written) {
            room.advise(parked + (run.start - start), run.end - run.start, libc::MADV_DONTNEED)?;
        }
        self.pages = written;
        Ok(())
    }
}

/// Drops the stores of a space that overlap `range`.
pub(super) fn forget_stores(space: &mut Space, room: &Room, range: &Range<u64>) {
    let meets = |start: u64, store: &Store| start < range.end && range.start < store.end;
    let found = space.stores.iter().filter(|(start, store)| meets(**start, store));
    let gone: Vec<u64> = found.map(|(start, _)| *start).collect();
    for start in gone {
        let store = space.stores.remove(&start).expect("just seen");
        let parked = space.places.of(start).expect("has a store");
        room.unmap(parked, store.end - start);
    }
}

/// The parts of `ranges` inside `window`.
fn clip(ranges: &[Range<u64>], window: &Range<u64>) -> Vec<Range<u64>> {
    let first = ranges.partition_point(|range| range.end <= window.start);
    let inside = ranges[first..].iter().take_while(|range| range.start < window.end);
    inside
        .map(|range| range.start.max(window.start)..range.end.min(window.end))
        .collect()
}

/// The parts of `ranges` that are not in `other`; both are in order.
fn without(ranges: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut others = other.iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            match others.peek() {
                Some(next) if next.end <= at => drop(others.next()),
                Some(next) if next.start <= at => at = next.end,
                Some(next) if next.start < range.end => {
                    left.push(at..next.start);
                    at = next.end;
                }
                _ => {
                    left.push(at..range.end);
                    at = range.end;
                }
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_apart() {
        let ranges = [10..20, 30..40, 50..60];
        assert_eq!(clip(&ranges, &(15..55)), [15..20, 30..40, 50..55]);
        assert_eq!(clip(&ranges, &(20..30)), []);
        assert_eq!(without(&ranges, &[]), ranges);
        assert_eq!(without(&ranges, &ranges), []);
        assert_eq!(
            without(&ranges, &[0..12, 14..16, 35..52]),
            [12..14, 16..20, 30..35, 52..60]
        );
        assert_eq!(without(&ranges[..1], &[12..13, 13..14, 40..50]), [10..12, 14..20]);
    }
}
