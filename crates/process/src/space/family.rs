//! fork: spaces with private copies of their memory at the same addresses.
//!
//! A program keeps pointers anywhere, so its copy must find everything at the addresses of the original. A space, those
//! forked from it, and those forked from these are a family: they share their slots and take turns there. One member is
//! in place. Of the others
//! * private memory is *parked*: in slots of their own, at the same offset as in the slot where it belongs;
//! * what comes from a file unchanged, or is shared, is nowhere: it can be mapped anew, and mostly needs not be,
//!   because the member in place has the same;
//! * what was written before the first fork and is read-only since (relocated pointers) is *frozen*: in place for all
//!   members, until one of them changes it, before which all others get copies.
//!
//! Changing places moves page tables, not bytes. Slots that a member took after the fork are its own and stay as they
//! are. When the member in place goes, the one that was in place before it comes back. A failure of the host while
//! members change places cannot be answered by any system call, so it ends the run.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;

use super::calls::page_align;
use super::{LOW_END, SLOT, Space, Spaces, Vma, map_backing};
use crate::Shared;
use crate::sys::{READ, Room, WRITE};

/// Spaces that take turns at their addresses.
#[derive(Debug)]
pub(super) struct Family {
    /// The one in place first, then by how recently they were.
    members: Vec<u64>,
    /// Start and end of what is frozen; each is one mapping of every member.
    pub(super) frozen: BTreeMap<u64, u64>,
}

/// Where the mappings of a slot are while another space has its addresses.
#[derive(Debug)]
pub(super) struct Home {
    slot: Range<u64>,
    pub(super) parking: Range<u64>,
}

impl Space {
    /// Where `address` is kept while a relative is in place; none for what no relative ever shared.
    pub(super) fn parked(&self, address: u64) -> Option<u64> {
        if address < LOW_END {
            return self.parking.as_ref().map(|parking| parking.start + address);
        }
        let home = self.homes.iter().find(|home| home.slot.contains(&address))?;
        Some(home.parking.start + (address - home.slot.start))
    }

    /// The mappings that take turns, with the places where they are parked.
    fn turning(&self) -> impl Iterator<Item = (u64, &Vma, u64)> {
        let backed = self.tree.iter().filter(|(_, vma)| vma.backed());
        backed.filter_map(|(start, vma)| Some((start, vma, self.parked(start)?)))
    }
}

impl Spaces {
    /// A private copy of a space. The copy is parked, the original in place.
    pub(crate) fn fork(&mut self, id: u64) -> Result<u64, Errno> {
        self.activate(id);
        let mut child = self.child_of(id)?;
        let key = self.join_family(id);
        if let Err(errno) = self.copy_private(id, &child) {
            for parking in child.parkings() {
                self.room.unmap(parking.start, parking.end - parking.start);
                self.slots.give(parking);
            }
            return Err(errno);
        }
        let id = child.id;
        child.slots.iter().for_each(|range| self.slots.share(range));
        self.families.get_mut(&key).expect("joined above").members.push(id);
        self.spaces.insert(id, child);
        self.tell_images(id);
        Ok(id)
    }

    /// A space like `id` with parkings of its own that hold nothing yet. `id` has parkings for all its slots then, too.
    fn child_of(&mut self, id: u64) -> Result<Space, Errno> {
        let parent = self.spaces.get(&id).ok_or(Errno::NOMEM)?;
        let homeless = |slot: &&Range<u64>| !parent.homes.iter().any(|home| home.slot == **slot);
        let new: Vec<Range<u64>> = parent.slots.iter().filter(homeless).cloned().collect();
        let all = parent.slots.clone();
        let low = parent.parking.clone();
        let wanted = new.iter().chain(&all).chain(&low);
        let mut taken = Vec::new();
        for range in wanted {
            match self.slots.take((range.end - range.start) / SLOT) {
                Some(parking) => taken.push(parking),
                None => {
                    taken.into_iter().for_each(|range| self.slots.give(range));
                    return Err(Errno::NOMEM);
                }
            }
        }
        let child_id = self.new_id();
        let mut taken = taken.into_iter();
        let mut home = |slot| Home {
            slot,
            parking: taken.next().expect("one was taken for each"),
        };
        let new: Vec<Home> = new.into_iter().map(&mut home).collect();
        let homes = all.into_iter().map(&mut home).collect();
        let parent = self.spaces.get_mut(&id).expect("seen above");
        parent.homes.extend(new);
        Ok(Space {
            id: child_id,
            slot: parent.slot,
            slots: parent.slots.clone(),
            areas: parent.areas.clone(),
            tree: parent.tree.clone(),
            heap: parent.heap,
            parking: low.and_then(|_| taken.next()),
            homes,
            family: parent.family.or(Some(id)),
        })
    }

    /// The key of a space's family, of which it is the only member if it had none.
    fn join_family(&mut self, id: u64) -> u64 {
        let space = self.spaces.get_mut(&id).expect("the caller has seen it");
        let key = *space.family.get_or_insert(id);
        let family = self.families.entry(key).or_insert_with(|| Family {
            members: vec![id],
            frozen: BTreeMap::new(),
        });
        if family.members.len() == 1 {
            let written_once = |(_, vma, _): &(u64, &Vma, u64)| vma.is_private() && vma.prot & WRITE == 0;
            family.frozen = space
                .turning()
                .filter(written_once)
                .map(|(start, vma, _)| (start, vma.end))
                .collect();
        }
        key
    }

    /// Copies the private memory of `parent`, which is in place, to where that of `child` is parked.
    fn copy_private(&self, parent: u64, child: &Space) -> Result<(), Errno> {
        let family = &self.families[&child.family.expect("a child has its parent's")];
        for (start, vma, parked) in child.turning() {
            if vma.is_private() && !family.frozen.contains_key(&start) {
                copy_mapping(&self.shared, &self.room, (start, vma), parked, parent)?;
            }
        }
        Ok(())
    }

    /// Puts `id` in the place of the relative that is there.
    pub(super) fn replace_relative(&mut self, id: u64) {
        if let Some(present) = self.in_place(id)
            && present != id
        {
            self.change_places(present, id, false);
        }
    }

    /// The member in place of the family of `id`, if it has one.
    pub(super) fn in_place(&self, id: u64) -> Option<u64> {
        let family = self.spaces.get(&id)?.family?;
        self.families[&family].members.first().copied()
    }

    /// Takes a space out of its family, and its private memory from the addresses that relatives use.
    pub(super) fn leave_family(&mut self, id: u64) {
        let Some(key) = self.spaces.get(&id).and_then(|space| space.family) else {
            return;
        };
        let members = &self.families[&key].members;
        if members[0] == id && members.len() > 1 {
            let next = members[1];
            self.change_places(id, next, true);
        }
        let family = self.families.get_mut(&key).expect("seen above");
        family.members.retain(|member| *member != id);
        match family.members.len() {
            0 => drop(self.families.remove(&key)),
            1 => family.frozen.clear(),
            _ => {}
        }
        self.spaces.get_mut(&id).expect("seen above").family = None;
    }

    /// Before a memory call of `id`: brings it in place, and gives its relatives copies of what is frozen there.
    pub(super) fn before_change(&mut self, id: u64, nr: u32, args: &[u64; 6]) -> Result<(), Errno> {
        let Some(space) = self.spaces.get(&id) else {
            return Ok(());
        };
        let Some(key) = space.family else { return Ok(()) };
        let changed = changed_by(nr, args, space.heap.end);
        self.activate(id);
        let family = self.families.get_mut(&key).expect("of a member");
        let meets = |start: u64, end: u64| changed.iter().any(|range| range.start < end && start < range.end);
        let pieces = family.frozen.iter().map(|(&start, &end)| (start, end));
        let pieces: Vec<(u64, u64)> = pieces.filter(|&(start, end)| meets(start, end)).collect();
        for (start, _) in pieces {
            let space = &self.spaces[&id];
            for relative in &family.members[1..] {
                let relative = &self.spaces[relative];
                let (Some(vma), Some(parked)) = (relative.tree.get(start), relative.parked(start)) else {
                    unreachable!("every member has what is frozen");
                };
                copy_mapping(&self.shared, &self.room, (start, vma), parked, space.id)?;
            }
            family.frozen.remove(&start);
        }
        Ok(())
    }

    /// Parks what `from` has in place, or drops its private memory if it is leaving, and brings `to`'s there.
    fn change_places(&mut self, from: u64, to: u64, leaving: bool) {
        if let Some(work) = self.work(from) {
            work.activate();
        }
        let (old, new) = (&self.spaces[&from], &self.spaces[&to]);
        let family = self
            .families
            .get_mut(&new.family.expect("relatives have a family"))
            .expect("of a member");
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        let room_of = |address: u64| match address {
            0..LOW_END => low.room_of(from).expect("brought in place above"),
            _ => &*self.room,
        };
        let failed = |start: u64, errno: Errno| -> ! {
            panic!("space {to} cannot take the place of {from} at {start:#x}: {errno}; hint: raise vm.max_map_count")
        };
        let same = |space: &Space, start, vma: &Vma| space.tree.get(start).is_some_and(|other| vma.is_same_as(other));
        for (start, vma, parked) in old.turning() {
            let len = vma.end - start;
            if vma.is_private() && !leaving && !family.frozen.contains_key(&start) {
                room_of(start)
                    .move_to(start, len, &self.room, parked)
                    .unwrap_or_else(|errno| failed(start, errno));
            } else if vma.is_private() && !family.frozen.contains_key(&start)
                || vma.is_remakeable() && !same(new, start, vma)
            {
                room_of(start).unmap(start, len);
            }
        }
        for (start, vma, parked) in new.turning() {
            let result = if vma.is_remakeable() {
                if same(old, start, vma) {
                    continue;
                }
                map_backing(&self.shared, room_of(start), start, start, vma)
            } else if family.frozen.contains_key(&start) {
                continue;
            } else {
                self.room.move_to(parked, vma.end - start, room_of(start), start)
            };
            result.unwrap_or_else(|errno| failed(start, errno));
        }
        low.hand_over(from, new);
        family.members.retain(|member| *member != to);
        family.members.insert(0, to);
    }
}

impl Space {
    /// All its parkings.
    fn parkings(&mut self) -> impl Iterator<Item = Range<u64>> {
        let homes = std::mem::take(&mut self.homes);
        self.parking
            .take()
            .into_iter()
            .chain(homes.into_iter().map(|home| home.parking))
    }
}

/// Maps at `parked` what `holder` has in place at `start`, with the pages it has written.
fn copy_mapping(
    shared: &Shared,
    room: &Room,
    (start, vma): (u64, &Vma),
    parked: u64,
    holder: u64,
) -> Result<(), Errno> {
    let low = shared.low.lock().expect("no panic while moving the low range");
    let source = match start {
        0..LOW_END => low.room_of(holder).ok_or(Errno::FAULT)?,
        _ => room,
    };
    let open = Vma {
        prot: vma.prot | READ | WRITE,
        ..vma.clone()
    };
    let len = vma.end - start;
    map_backing(shared, room, parked, start, &open)?;
    let written = shared.pages.written(start..vma.end)?;
    let readable = vma.prot & (READ | WRITE) != 0;
    if !readable && !written.is_empty() {
        source.protect(start, len, READ)?;
    }
    for run in &written {
        source.copy_to(run.start, run.end - run.start, room, parked + (run.start - start));
    }
    if !readable && !written.is_empty() {
        source.protect(start, len, vma.prot)?;
    }
    if open.prot != vma.prot {
        room.protect(parked, len, vma.prot)?;
    }
    Ok(())
}

/// What a memory call may change of what is mapped, at most.
fn changed_by(nr: u32, args: &[u64; 6], heap_end: u64) -> Vec<Range<u64>> {
    let [a, b, c, d, e, _] = *args;
    let range = |start: u64, len: u64| start..start.saturating_add(page_align(len));
    match i64::from(nr) {
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => vec![range(a, b)],
        libc::SYS_mmap if d & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64 != 0 => vec![range(a, b)],
        libc::SYS_mremap if d & libc::MREMAP_FIXED as u64 != 0 => vec![range(a, b.max(c)), range(e, c)],
        libc::SYS_mremap => vec![range(a, b.max(c))],
        libc::SYS_brk if a != 0 && a < heap_end => vec![range(a, heap_end - a)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
