//! What is mapped in a room, with its protection, so that access to it can be taken away for a while and given back.
//!
//! Only what may be written counts: what nobody can write needs no protection.

use std::collections::BTreeMap;
use std::ops::Range;

use super::WRITE;

/// The writable memory of a room: start, end and protection (`PROT_*` of the host) of each piece; neighbours that are
/// alike are one.
#[derive(Debug, Default)]
pub(super) struct Record(BTreeMap<u64, (u64, i32)>);

impl Record {
    /// All pieces: addresses and protection.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<u64>, i32)> {
        self.0.iter().map(|(&start, &(end, prot))| (start..end, prot))
    }

    /// Whether an address is in one.
    pub(super) fn contains(&self, address: u64) -> bool {
        let below = self.0.range(..=address).next_back();
        below.is_some_and(|(_, &(end, _))| address < end)
    }

    /// `range` is mapped with `prot` from now on, whatever was there.
    pub(super) fn set(&mut self, range: Range<u64>, prot: i32) {
        self.remove(range.clone());
        if prot & i32::from(WRITE) == 0 || range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, &(middle, alike))) = self.0.range(..start).next_back()
            && (middle, alike) == (start, prot)
        {
            start = before;
        }
        if let Some(&(after, alike)) = self.0.get(&end)
            && alike == prot
        {
            self.0.remove(&end);
            end = after;
        }
        self.0.insert(start, (end, prot));
    }

    /// Nothing of `range` is mapped any more; what was, and how.
    pub(super) fn remove(&mut self, range: Range<u64>) -> Vec<(Range<u64>, i32)> {
        let meeting = self.0.range(..range.end).rev();
        let meeting: Vec<(u64, u64, i32)> = meeting
            .map(|(&start, &(end, prot))| (start, end, prot))
            .take_while(|&(_, end, _)| end > range.start)
            .collect();
        let mut removed = Vec::new();
        for (start, end, prot) in meeting.into_iter().rev() {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, prot));
            }
            if end > range.end {
                self.0.insert(range.end, (end, prot));
            }
            removed.push((start.max(range.start)..end.min(range.end), prot));
        }
        removed
    }

    /// The mapping that ended at `end` goes on to `new_end`.
    pub(super) fn lengthen(&mut self, end: u64, new_end: u64) {
        let last = self.0.range(..end).next_back();
        if let Some((_, &(known, prot))) = last
            && known == end
        {
            self.set(end..new_end, prot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EXEC, READ};
    use super::*;

    const RW: i32 = (READ | WRITE) as i32;
    const RWX: i32 = (READ | WRITE | EXEC) as i32;

    fn pieces(record: &Record) -> Vec<(u64, u64, i32)> {
        record
            .pieces()
            .map(|(range, prot)| (range.start, range.end, prot))
            .collect()
    }

    #[test]
    fn alike_neighbours_are_one_piece_and_what_cannot_be_written_is_none() {
        let mut record = Record::default();
        record.set(10..20, RW);
        record.set(30..40, RW);
        record.set(40..50, RWX);
        record.set(50..60, READ.into());
        record.set(20..30, RW);
        assert_eq!(pieces(&record), [(10, 40, RW), (40, 50, RWX)]);
        record.set(15..20, READ.into());
        assert_eq!(pieces(&record), [(10, 15, RW), (20, 40, RW), (40, 50, RWX)]);
        assert!(record.contains(14) && !record.contains(15) && !record.contains(50) && !record.contains(9));
    }

    #[test]
    fn removing_takes_pieces_apart_and_tells_what_was_there() {
        let mut record = Record::default();
        record.set(10..40, RW);
        record.set(40..50, RWX);
        assert_eq!(record.remove(20..45), [(20..40, RW), (40..45, RWX)]);
        assert_eq!(pieces(&record), [(10, 20, RW), (45, 50, RWX)]);
        assert_eq!(record.remove(20..45), []);
        assert_eq!(record.remove(0..100), [(10..20, RW), (45..50, RWX)]);
        assert_eq!(pieces(&record), []);
    }

    #[test]
    fn a_mapping_that_grows_keeps_its_protection() {
        let mut record = Record::default();
        record.set(10..20, RW);
        record.lengthen(20, 30);
        record.lengthen(40, 50);
        assert_eq!(pieces(&record), [(10, 30, RW)]);
    }
}
