//! `mremap`, after mm/mremap.c of Linux 6.12.
//!
//! What Linux holds as one mapping may be several in the tree. Moving is done piece by piece, and growing means to map
//! more of the same at the end, so that no piece ever spans two mappings of the host.

use rustix::io::Errno;

use super::calls::page_align;
use super::{Kind, TASK_SIZE, Vma, Work};
use crate::sys::PAGE;

impl Work<'_> {
    /// The `mremap` system call: the new address.
    pub(super) fn mremap(&mut self, old: u64, old_len: u64, new_len: u64, flags: u64, new: u64) -> Result<u64, Errno> {
        const MAY_MOVE: u64 = libc::MREMAP_MAYMOVE as u64;
        const FIXED: u64 = libc::MREMAP_FIXED as u64;
        const KEEP: u64 = libc::MREMAP_DONTUNMAP as u64;
        if flags & !(MAY_MOVE | FIXED | KEEP) != 0
            || flags & FIXED != 0 && flags & MAY_MOVE == 0
            || flags & KEEP != 0 && (flags & MAY_MOVE == 0 || old_len != new_len)
            || !old.is_multiple_of(PAGE)
        {
            return Err(Errno::INVAL);
        }
        let (old_len, new_len) = (page_align(old_len), page_align(new_len));
        if new_len == 0 {
            return Err(Errno::INVAL);
        }
        if self.space.tree.find_visible(old).is_none() {
            return Err(Errno::FAULT);
        }
        if flags & FIXED != 0 {
            return self.remap_to(old, old_len, new_len, new, flags & KEEP != 0);
        }
        if flags & KEEP != 0 {
            self.check_resize(old, old_len, new_len)?;
            let place = self.find_place(new_len, PAGE)?;
            self.move_pieces(old, new_len, place, true)?;
            return Ok(place);
        }
        if old_len >= new_len {
            if old_len > new_len {
                let end = old
                    .checked_add(old_len)
                    .filter(|&end| end <= TASK_SIZE)
                    .ok_or(Errno::INVAL)?;
                self.unmap(old + new_len..end);
            }
            return Ok(old);
        }
        self.check_resize(old, old_len, new_len)?;
        let end = old + old_len;
        let grown = end..old + new_len;
        if old_len > 0 && self.can_grow(end, &grown) {
            let tail = self.tail_of(end, grown.end);
            self.map(end, tail)?;
            return Ok(old);
        }
        if flags & MAY_MOVE == 0 {
            return Err(Errno::NOMEM);
        }
        let place = self.find_place(new_len, PAGE)?;
        self.move_and_grow(old, old_len, place, new_len, false)?;
        Ok(place)
    }

    fn remap_to(&mut self, old: u64, old_len: u64, new_len: u64, new: u64, keep: bool) -> Result<u64, Errno> {
        if !new.is_multiple_of(PAGE) || new_len > TASK_SIZE || new > TASK_SIZE - new_len {
            return Err(Errno::INVAL);
        }
        if old.checked_add(old_len).is_none_or(|end| end > new) && new + new_len > old {
            return Err(Errno::INVAL);
        }
        if !self.owns(&(new..new + new_len)) {
            self.note(
                libc::SYS_mremap,
                "MREMAP_FIXED outside the program's own addresses is refused with ENOMEM",
            );
            return Err(Errno::NOMEM);
        }
        self.unmap(new..new + new_len);
        let mut old_len = old_len;
        if old_len > new_len {
            self.unmap(old + new_len..old + old_len);
            old_len = new_len;
        }
        self.check_resize(old, old_len, new_len)?;
        self.move_and_grow(old, old_len, new, new_len, keep)?;
        Ok(new)
    }

    /// `vma_to_resize`: what can be moved and grown at all.
    fn check_resize(&self, old: u64, old_len: u64, new_len: u64) -> Result<(), Errno> {
        let (_, vma) = self.space.tree.find_visible(old).ok_or(Errno::FAULT)?;
        let shared = matches!(&vma.kind, Kind::File(file) if file.shared);
        if old_len == 0 && !shared {
            return Err(Errno::INVAL);
        }
        let run_end = self.space.tree.run_end(old).expect("found above");
        if old_len > run_end - old {
            return Err(Errno::FAULT);
        }
        if new_len > TASK_SIZE { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Whether the mapping ending at `end` can be made longer in place.
    fn can_grow(&self, end: u64, grown: &std::ops::Range<u64>) -> bool {
        self.space.tree.run_end(end - 1) == Some(end)
            && self.owns(grown)
            && self.space.tree.is_empty(grown.clone())
            // In the slot below the first area is the program break's room.
            && (end < super::LOW_END || self.space.areas.iter().any(|a| a.start <= grown.start && grown.end <= a.end))
    }

    /// The mapping that continues the one ending at `end` up to `new_end`.
    fn tail_of(&self, end: u64, new_end: u64) -> Vma {
        let (start, vma) = self.space.tree.find_visible(end - 1).expect("the mapping that grows");
        let mut tail = vma.clone();
        tail.end = new_end;
        if let Kind::File(file) = &mut tail.kind {
            file.offset += end - start;
            file.patched = None;
        }
        tail
    }

    /// Moves `old_len` bytes to `new` and lengthens them to `new_len`. An `old_len` of 0 maps shared memory once more.
    fn move_and_grow(&mut self, old: u64, old_len: u64, new: u64, new_len: u64, keep: bool) -> Result<(), Errno> {
        if old_len == 0 {
            let (start, vma) = self.space.tree.find_visible(old).expect("checked by the caller");
            let mut copy = vma.clone();
            copy.end = new + new_len;
            if let Kind::File(file) = &mut copy.kind {
                file.offset += old - start;
            }
            return self.map(new, copy);
        }
        self.move_pieces(old, old_len, new, keep)?;
        if new_len > old_len {
            let tail = self.tail_of(new + old_len, new + new_len);
            self.map(new + old_len, tail)?;
        }
        Ok(())
    }

    /// Moves every mapping of `old..old + len` by the same distance; with `keep`, fresh ones like them stay behind.
    fn move_pieces(&mut self, old: u64, len: u64, new: u64, keep: bool) -> Result<(), Errno> {
        for (start, mut vma) in self.space.tree.remove(old..old + len) {
            let (size, to) = (vma.end - start, new + (start - old));
            let fresh = vma.clone();
            if let Err(errno) = self.move_piece(start, size, to) {
                self.space.tree.insert(start, vma);
                return Err(errno);
            }
            vma.end = to + size;
            self.space.tree.insert(to, vma);
            if keep {
                self.map(start, fresh)?;
            }
        }
        Ok(())
    }

    fn move_piece(&self, start: u64, size: u64, to: u64) -> Result<(), Errno> {
        // The low range can be locked once only, so the target's room is found first.
        let low = self.shared.low.lock().expect("no panic while moving the low range");
        let place = |address: u64| match low.room_of(self.space.id) {
            _ if address >= super::LOW_END => (&**self.room, address),
            Some(room) => (room, address),
            None => (
                &**self.room,
                self.space.places.find(address).expect("checked by `owns`"),
            ),
        };
        let ((from_room, from), (to_room, to)) = (place(start), place(to));
        from_room.move_to(from, size, to_room, to)
    }
}
