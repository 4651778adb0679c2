//! The addresses of a node's region: whole slots for programs, and pieces of slots for memory that is parked.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;

use super::SLOT;
use super::family::Family;
use crate::sys::Room;

/// The slots of a node's region.
#[derive(Debug)]
pub(super) struct Slots {
    start: u64,
    /// How many use each.
    users: Vec<u32>,
    /// Start and end of what is free of the slots that are given away in pieces.
    pieces: BTreeMap<u64, u64>,
    /// Where to look first; only under a debugger, which takes a program for the one that was there before.
    next: Option<usize>,
}

impl Slots {
    pub(super) fn new(programs: Range<u64>, rotate: bool) -> Self {
        let count = (programs.end - programs.start) / SLOT;
        Self {
            start: programs.start,
            users: vec![0; count as usize],
            pieces: BTreeMap::new(),
            next: rotate.then_some(0),
        }
    }

    /// The lowest `count` free slots in a row.
    pub(super) fn take(&mut self, count: u64) -> Option<Range<u64>> {
        let count = usize::try_from(count).ok()?;
        let end = self.users.len().checked_sub(count)? + 1;
        let from = self.next.unwrap_or(0).min(end);
        let first = (from..end)
            .chain(0..from)
            .find(|&first| self.users[first..first + count].iter().all(|&users| users == 0))?;
        self.users[first..first + count].fill(1);
        self.next = self.next.map(|_| first + count);
        let start = self.start + first as u64 * SLOT;
        Some(start..start + count as u64 * SLOT)
    }

    /// The lowest `len` free bytes of slots that are given away in pieces, or of further ones.
    pub(super) fn take_piece(&mut self, len: u64) -> Option<Range<u64>> {
        let lowest = |pieces: &BTreeMap<u64, u64>| {
            let mut fitting = pieces.iter().filter(|&(start, end)| end - start >= len);
            fitting.next().map(|(start, end)| *start..*end)
        };
        let piece = match lowest(&self.pieces) {
            Some(piece) => piece,
            None => {
                let slots = self.take(len.div_ceil(SLOT))?;
                self.join_pieces(slots)
            }
        };
        self.pieces.remove(&piece.start);
        let taken = piece.start..piece.start + len;
        if taken.end < piece.end {
            self.pieces.insert(taken.end, piece.end);
        }
        Some(taken)
    }

    /// Gives back what was taken as a piece, and the slots that are free by that.
    pub(super) fn give_piece(&mut self, piece: Range<u64>) {
        let free = self.join_pieces(piece);
        let whole = free.start.next_multiple_of(SLOT)..free.end - free.end % SLOT;
        if whole.is_empty() {
            return;
        }
        self.pieces.remove(&free.start);
        for left in [free.start..whole.start, whole.end..free.end] {
            if !left.is_empty() {
                self.pieces.insert(left.start, left.end);
            }
        }
        self.give(whole);
    }

    /// Adds a free piece, joined to its neighbours; the whole.
    fn join_pieces(&mut self, piece: Range<u64>) -> Range<u64> {
        let mut whole = piece;
        if let Some((&start, &end)) = self.pieces.range(..=whole.start).next_back() {
            assert!(end <= whole.start, "{whole:#x?} given back twice");
            if end == whole.start {
                whole.start = start;
            }
        }
        if let Some(end) = self.pieces.remove(&whole.end) {
            whole.end = end;
        }
        self.pieces.insert(whole.start, whole.end);
        whole
    }

    /// One more uses what was taken as `range`.
    pub(super) fn share(&mut self, range: &Range<u64>) {
        self.of(range).iter_mut().for_each(|users| *users += 1);
    }

    /// One less uses what was taken as `range`.
    pub(super) fn give(&mut self, range: Range<u64>) {
        for users in self.of(&range) {
            *users = users.checked_sub(1).expect("slots given back too often");
        }
    }

    /// Whether more than one use what was taken as `range`.
    pub(super) fn is_shared(&mut self, range: &Range<u64>) -> bool {
        self.of(range).iter().any(|&users| users > 1)
    }

    fn of(&mut self, range: &Range<u64>) -> &mut [u32] {
        let first = ((range.start - self.start) / SLOT) as usize;
        let count = ((range.end - range.start) / SLOT) as usize;
        &mut self.users[first..first + count]
    }

    pub(super) fn number(&self, address: u64) -> u64 {
        (address - self.start) / SLOT
    }

    /// Whether nobody uses any.
    #[cfg(test)]
    pub(super) fn are_free(&self) -> bool {
        self.pieces.is_empty() && self.users.iter().all(|&users| users == 0)
    }
}

/// What `take` takes of the slots: if need be, after families gave up what they keep for their next children.
pub(super) fn take_from<T>(
    slots: &mut Slots,
    families: &mut BTreeMap<u64, Family>,
    room: &Room,
    take: impl Fn(&mut Slots) -> Option<T>,
) -> Result<T, Errno> {
    take(slots)
        .or_else(|| {
            for mut spare in families.values_mut().filter_map(Family::take_spare) {
                spare.places.clear(room, slots);
            }
            take(slots)
        })
        .ok_or(Errno::NOMEM)
}

/// Where the mappings of a space are kept while another has their addresses, by their start.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<u64, Range<u64>>);

impl Places {
    /// The place of the mapping at `start`.
    pub(super) fn of(&self, start: u64) -> Option<u64> {
        self.0.get(&start).map(|place| place.start)
    }

    /// Where `address` is kept.
    pub(super) fn find(&self, address: u64) -> Option<u64> {
        let (start, place) = self.0.range(..=address).next_back()?;
        let at = place.start + (address - start);
        place.contains(&at).then_some(at)
    }

    /// Whether the mapping of `len` bytes at `start` has a place.
    pub(super) fn fits(&self, start: u64, len: u64) -> bool {
        self.0.get(&start).is_some_and(|place| place.end - place.start == len)
    }

    /// Gives the mapping at `start` a place, which was taken as a piece.
    pub(super) fn set(&mut self, start: u64, place: Range<u64>) {
        let old = self.0.insert(start, place);
        assert!(old.is_none(), "{start:#x} has a place already");
    }

    /// The places of all mappings that meet `range`, by the mappings' start.
    pub(super) fn meeting(&self, range: &Range<u64>) -> Vec<u64> {
        let below = self.0.range(..range.end).rev();
        let reach = |&(start, place): &(&u64, &Range<u64>)| start + (place.end - place.start) > range.start;
        below.take_while(reach).map(|(start, _)| *start).collect()
    }

    /// Gives the place of the mapping at `start` back, with all that is in it.
    pub(super) fn drop_place(&mut self, start: u64, room: &Room, slots: &mut Slots) {
        if let Some(place) = self.0.remove(&start) {
            room.unmap(place.start, place.end - place.start);
            slots.give_piece(place);
        }
    }

    /// Gives all places back but those that `keep`, by the mappings' start, wants.
    pub(super) fn retain(&mut self, room: &Room, slots: &mut Slots, keep: impl Fn(u64, u64) -> bool) {
        let useless = self
            .0
            .iter()
            .filter(|(start, place)| !keep(**start, place.end - place.start));
        let useless: Vec<u64> = useless.map(|(start, _)| *start).collect();
        useless
            .into_iter()
            .for_each(|start| self.drop_place(start, room, slots));
    }

    /// Gives all places back.
    pub(super) fn clear(&mut self, room: &Room, slots: &mut Slots) {
        self.retain(room, slots, |_, _| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE;

    #[test]
    fn pieces_come_from_few_slots_and_give_them_back() {
        let start = 0x4000_0000_0000;
        let mut slots = Slots::new(start..start + 6 * SLOT, false);
        let program = slots.take(1).unwrap();
        let small: Vec<_> = (0..100).map(|_| slots.take_piece(5 * PAGE).unwrap()).collect();
        assert_eq!(small[0].start, start + SLOT);
        assert!(small.windows(2).all(|pair| pair[0].end == pair[1].start));
        let large = slots.take_piece(2 * SLOT).unwrap();
        assert_eq!(slots.users, [1, 1, 1, 1, 0, 0], "the rest of the second slot counts");
        assert_eq!(slots.take_piece(4 * SLOT), None);
        slots.give_piece(large);
        assert_eq!(slots.users, [1, 1, 0, 0, 0, 0]);
        for piece in small.iter().step_by(2).chain(small.iter().skip(1).step_by(2)) {
            slots.give_piece(piece.clone());
        }
        assert!(slots.pieces.is_empty());
        slots.give(program);
        assert!(slots.are_free());
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_piece_is_given_back_once() {
        let start = 0x4000_0000_0000;
        let mut slots = Slots::new(start..start + SLOT, false);
        let (_kept, piece) = (slots.take_piece(PAGE), slots.take_piece(PAGE).unwrap());
        slots.take_piece(PAGE);
        slots.give_piece(piece.clone());
        slots.give_piece(piece);
    }
}
