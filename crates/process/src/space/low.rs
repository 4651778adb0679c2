//! The low range: addresses of programs linked to fixed ones, held by one program at a time.
//!
//! A program that does not hold the range has its low mappings parked in a slot of its own, at parking + address.
//! Changing hands moves page tables, not bytes.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::{Space, Work};
use crate::sys::Room;

/// First address a program may use (the usual vm.mmap_min_addr).
pub(crate) const LOW_START: u64 = 0x1_0000;
/// End of the low range: 64 GiB.
pub(crate) const LOW_END: u64 = 0x10_0000_0000;

/// The low range of the process.
#[derive(Debug, Default)]
pub(crate) struct Low {
    room: Option<Room>,
    holder: Option<Holder>,
}

#[derive(Debug)]
struct Holder {
    space: u64,
    /// Where its mappings go when it has to leave.
    home: Arc<Room>,
    parking: u64,
    /// What it has mapped: start and length, each within one mapping of the host.
    pieces: Vec<(u64, u64)>,
}

/// The low addresses a space with this parking may use.
pub(super) fn window(parking: &Range<u64>) -> Range<u64> {
    LOW_START..(parking.end - parking.start).min(LOW_END)
}

impl Low {
    /// Claims the range when the first program needs it.
    pub(super) fn prepare(&mut self) -> Result<(), Errno> {
        if self.room.is_none() {
            self.room = Some(Room::claim(LOW_START..LOW_END)?);
        }
        Ok(())
    }

    /// The room of the range, if `space` holds it.
    pub(super) fn room_of(&self, space: u64) -> Option<&Room> {
        self.room
            .as_ref()
            .filter(|_| self.holder.as_ref().is_some_and(|holder| holder.space == space))
    }

    /// Drops what `space` has in the range, if it holds it.
    pub(super) fn vacate(&mut self, space: u64) {
        if let Some(room) = self.room_of(space) {
            let range = room.range();
            room.unmap(range.start, range.end - range.start);
            self.holder = None;
        }
    }

    /// Gives the range with what is in it from `from`, if that holds it, to `to`.
    pub(super) fn hand_over(&mut self, from: u64, to: &Space) {
        if let (Some(holder), Some(parking)) = (&mut self.holder, &to.parking)
            && holder.space == from
        {
            holder.space = to.id;
            holder.parking = parking.start;
            holder.pieces = to.low_pieces();
        }
    }

    /// Parks the mappings of the holder.
    fn park(&mut self) {
        let (Some(room), Some(holder)) = (&self.room, self.holder.take()) else {
            return;
        };
        for (start, len) in holder.pieces {
            room.move_to(start, len, &holder.home, holder.parking + start)
                .unwrap_or_else(|errno| panic!("parking {start:#x}+{len:#x} of space {}: {errno}", holder.space));
        }
    }
}

impl Work<'_> {
    /// Makes this space the holder of the low range, if it uses it.
    pub(super) fn activate(&mut self) {
        let Some(parking) = &self.space.parking else { return };
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        if low.room_of(self.space.id).is_some() {
            return;
        }
        if let Some(watch) = &self.shared.image_watch {
            watch.low_range(None);
        }
        low.park();
        let room = low.room.as_ref().expect("claimed when the space got its parking");
        let pieces = self.space.low_pieces();
        for &(start, len) in &pieces {
            self.room
                .move_to(parking.start + start, len, room, start)
                .unwrap_or_else(|errno| panic!("bringing {start:#x}+{len:#x} of space {}: {errno}", self.space.id));
        }
        low.holder = Some(Holder {
            space: self.space.id,
            home: self.room.clone(),
            parking: parking.start,
            pieces,
        });
        // Parking it has taken the place of copies that were kept there for a relative's turn.
        self.space.stores.retain(|start, _| *start >= LOW_END);
        if let Some(watch) = &self.shared.image_watch {
            watch.low_range(Some(self.space.id));
        }
    }

    /// Renews the holder's list after a change of its mappings.
    pub(super) fn sync_low(&self) {
        if self.space.parking.is_none() {
            return;
        }
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        if let Some(holder) = low.holder.as_mut().filter(|holder| holder.space == self.space.id) {
            holder.pieces = self.space.low_pieces();
        }
    }
}

impl Space {
    fn low_pieces(&self) -> Vec<(u64, u64)> {
        let low = self.tree.iter().take_while(|(start, _)| *start < LOW_END);
        low.filter(|(_, vma)| vma.backed())
            .map(|(start, vma)| (start, vma.end - start))
            .collect()
    }
}
