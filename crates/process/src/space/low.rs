//! The low range: addresses of programs linked to fixed ones, held by one program at a time.
//!
//! A program that does not hold the range has its low mappings parked, each at a place of its own ([`super::slots`]).
//! Changing hands moves page tables, not bytes.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use windtunnel_kernel::abi;

use super::slots::take_from;
use super::{Space, Work};
use crate::host_failure::HostCall;
use crate::sys::{PAGE, Room};

/// First address a program may use (the usual vm.mmap_min_addr).
pub(crate) const LOW_START: u64 = 0x1_0000;
/// End of the low addresses of a program whose image ends below it.
const LOW_USUAL_END: u64 = 1 << 32;
/// End of the low range: 64 GiB.
pub(crate) const LOW_END: u64 = abi::LOW_END;

/// The low range of the process.
#[derive(Debug, Default)]
pub(crate) struct Low {
    room: Option<Room>,
    holder: Option<Holder>,
}

#[derive(Debug)]
struct Holder {
    space: u64,
    /// The room of the places its mappings go to when it has to leave.
    home: Arc<Room>,
    /// What it has mapped, each within one mapping of the host.
    pieces: Vec<Piece>,
}

/// A mapping of the holder.
#[derive(Debug)]
struct Piece {
    start: u64,
    len: u64,
    /// Where it goes when the holder has to leave.
    parked: u64,
}

impl Low {
    /// Claims the range when the first program needs it.
    pub(super) fn prepare(&mut self, isolate: bool) -> Result<(), Errno> {
        if self.room.is_none() {
            // What moves to the room of a node takes its record along.
            let claimed = match isolate {
                true => Room::claim_with_shutter(LOW_START..LOW_END, None),
                false => Room::claim(LOW_START..LOW_END),
            };
            let room = claimed.or_failure(|| {
                format!("have the addresses {LOW_START:#x} to {LOW_END:#x} for programs linked to fixed ones")
            })?;
            self.room = Some(room);
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

    /// Gives the range with what is in it from `from`, if that holds it, to `to`, which tells its pieces next.
    pub(super) fn hand_over(&mut self, from: u64, to: u64) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.space == from) {
            holder.space = to;
            holder.pieces.clear();
        }
    }

    /// Parks the mappings of the holder.
    fn park(&mut self) {
        let (Some(room), Some(holder)) = (&self.room, self.holder.take()) else {
            return;
        };
        for Piece { start, len, parked } in holder.pieces {
            room.move_to(start, len, &holder.home, parked)
                .unwrap_or_else(|errno| panic!("parking {start:#x}+{len:#x} of space {}: {errno}", holder.space));
        }
    }
}

impl Work<'_> {
    /// Makes this space the holder of the low range, if it uses it.
    pub(super) fn activate(&mut self) {
        if self.space.low.is_none() {
            self.clear_low();
            return;
        }
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        if low.room_of(self.space.id).is_some() {
            return;
        }
        if let Some(watch) = &self.shared.image_watch {
            watch.low_range(None);
        }
        low.park();
        let room = low.room.as_ref().expect("claimed when the space got its low addresses");
        for (start, len) in self.space.low_pieces() {
            let parked = self.space.places.find(start).expect("the holder's pieces have places");
            self.room
                .move_to(parked, len, room, start)
                .unwrap_or_else(|errno| panic!("bringing {start:#x}+{len:#x} of space {}: {errno}", self.space.id));
        }
        low.holder = Some(Holder {
            space: self.space.id,
            home: self.room.clone(),
            pieces: Vec::new(),
        });
        drop(low);
        // Parking it has taken the place of copies that were kept there for a relative's turn.
        self.space.stores.retain(|start, _| *start >= LOW_END);
        self.sync_low()
            .unwrap_or_else(|errno| panic!("places for the low addresses of space {}: {errno}", self.space.id));
        if let Some(watch) = &self.shared.image_watch {
            watch.low_range(Some(self.space.id));
        }
    }

    /// Before a program without low addresses runs: where nodes are isolated, nobody else's are in its reach.
    fn clear_low(&self) {
        if self.shared.fence.is_none() {
            return;
        }
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        if low.holder.is_some() {
            if let Some(watch) = &self.shared.image_watch {
                watch.low_range(None);
            }
            low.park();
        }
    }

    /// Gives the space addresses in the low range, and a place for an image that is linked to `image`.
    pub(super) fn begin_low(&mut self, image: Range<u64>) -> Result<(), Errno> {
        let image = image.start - image.start % PAGE..image.end.next_multiple_of(PAGE);
        let place = self.take_piece(image.end - image.start)?;
        self.space.low = Some(LOW_START..image.end.max(LOW_USUAL_END));
        self.space.places.set(image.start, place);
        self.shared
            .low
            .lock()
            .expect("no panic while moving the low range")
            .prepare(self.shared.fence.is_some())
    }

    /// Whether the space has `range` of the low range now: all it may have, or places for it.
    pub(super) fn has_low(&self, range: &Range<u64>) -> bool {
        let low = self.shared.low.lock().expect("no panic while moving the low range");
        let places = &self.space.places;
        let in_one = |at| places.find(range.end - 1) == Some(at + (range.end - 1 - range.start));
        low.room_of(self.space.id).is_some() || places.find(range.start).is_some_and(in_one)
    }

    /// A place for `len` bytes.
    fn take_piece(&mut self, len: u64) -> Result<Range<u64>, Errno> {
        take_from(self.slots, self.families, self.room, |slots| slots.take_piece(len))
    }

    /// Renews the holder's list after a change of its mappings: each gets a place of its own size.
    pub(super) fn sync_low(&mut self) -> Result<(), Errno> {
        if self.space.low.is_none() {
            return Ok(());
        }
        let shared = self.shared;
        let mut low = shared.low.lock().expect("no panic while moving the low range");
        let Some(holder) = low.holder.as_mut().filter(|holder| holder.space == self.space.id) else {
            return Ok(());
        };
        let pieces = self.space.low_pieces();
        let Space { places, stores, .. } = &mut *self.space;
        places.retain(self.room, self.slots, |start, len| {
            start >= LOW_END || pieces.binary_search(&(start, len)).is_ok()
        });
        stores.retain(|start, _| *start >= LOW_END || places.of(*start).is_some());
        holder.pieces.clear();
        for (start, len) in pieces {
            if !self.space.places.fits(start, len) {
                let place = self.take_piece(len)?;
                self.space.places.set(start, place);
            }
            let parked = self.space.places.of(start).expect("given above");
            holder.pieces.push(Piece { start, len, parked });
        }
        Ok(())
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
