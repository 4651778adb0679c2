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
//! `turns.rs` has what it takes to change places. Slots that a member took after the fork are its own and stay as they
//! are. When the member in place goes, the one that was in place before it comes back. A failure of the host while
//! members change places cannot be answered by any system call, so it ends the run.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;

use super::calls::page_align;
use super::turns::{Plan, Store, Turn, forget_stores};
use super::{LOW_END, SLOT, Slots, Space, Spaces, Tree, Vma, map_backing};
use crate::Shared;
use crate::sys::{READ, Room, WRITE};

/// Spaces that take turns at their addresses.
#[derive(Debug)]
pub(super) struct Family {
    /// The one in place first, then by how recently they were.
    members: Vec<u64>,
    /// Start and end of what is frozen; each is one mapping of every member.
    pub(super) frozen: BTreeMap<u64, u64>,
    /// How members change places, until anything of what they have mapped changes.
    plans: Vec<Plan>,
    /// What is left of a member that is gone, its parkings with the stores in them: the next child gets them, since
    /// fresh memory costs several times what copying into it does.
    spare: Option<Space>,
}

/// Most plans of a family that are kept.
const PLANS: usize = 64;

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
    pub(super) fn turning(&self) -> impl Iterator<Item = (u64, &Vma, u64)> {
        let backed = self.tree.iter().filter(|(_, vma)| vma.backed());
        backed.filter_map(|(start, vma)| Some((start, vma, self.parked(start)?)))
    }
}

impl Spaces {
    /// A private copy of a space. The copy is parked, the original in place.
    pub(crate) fn fork(&mut self, id: u64) -> Result<u64, Errno> {
        self.activate(id);
        let spare = self.take_spare(id);
        let (mut child, old_tree) = self.child_of(id, spare)?;
        let key = self.join_family(id);
        if let Err(errno) = self.copy_private(id, &mut child, &old_tree) {
            child.free_parkings(&self.room, &mut self.slots);
            return Err(errno);
        }
        let id = child.id;
        child.slots.iter().for_each(|range| self.slots.share(range));
        self.families.get_mut(&key).expect("joined above").members.push(id);
        self.spaces.insert(id, child);
        self.tell_images(id);
        Ok(id)
    }

    /// What a relative of `id` left, if a child of `id` can use it.
    fn take_spare(&mut self, id: u64) -> Option<Space> {
        let space = self.spaces.get(&id)?;
        let mut spare = self.families.get_mut(&space.family?)?.spare.take()?;
        if spare.slots == space.slots && space.slots.iter().all(|slot| space.has_home(slot)) {
            return Some(spare);
        }
        spare.free_parkings(&self.room, &mut self.slots);
        None
    }

    /// A space like `id` with parkings of its own: those of `spare`, whose mappings are the second result, or new ones
    /// that hold nothing yet. `id` has parkings for all its slots then, too.
    fn child_of(&mut self, id: u64, spare: Option<Space>) -> Result<(Space, Tree), Errno> {
        let (old_tree, stores, homes, parking) = match spare {
            Some(spare) => (spare.tree, spare.stores, spare.homes, spare.parking),
            None => {
                let (homes, parking) = self.new_homes(id)?;
                (Tree::default(), BTreeMap::new(), homes, parking)
            }
        };
        let child_id = self.new_id();
        let parent = &self.spaces[&id];
        let child = Space {
            id: child_id,
            slot: parent.slot,
            slots: parent.slots.clone(),
            areas: parent.areas.clone(),
            tree: parent.tree.clone(),
            heap: parent.heap,
            parking,
            homes,
            stores,
            family: parent.family.or(Some(id)),
        };
        Ok((child, old_tree))
    }

    /// Homes and a parking of the low range for a child of `id`, which gets the homes it has not yet.
    fn new_homes(&mut self, id: u64) -> Result<(Vec<Home>, Option<Range<u64>>), Errno> {
        let parent = self.spaces.get(&id).ok_or(Errno::NOMEM)?;
        let (slots, low) = (parent.slots.clone(), parent.parking.clone());
        let homeless: Vec<Range<u64>> = slots.iter().filter(|slot| !parent.has_home(slot)).cloned().collect();
        let mut taken = self
            .take_parkings(homeless.iter().chain(&slots).chain(&low))?
            .into_iter();
        let mut homes_for = |slots: Vec<Range<u64>>| -> Vec<Home> {
            let pairs = slots.into_iter().zip(taken.by_ref());
            pairs.map(|(slot, parking)| Home { slot, parking }).collect()
        };
        let (parents, childs) = (homes_for(homeless), homes_for(slots));
        self.spaces.get_mut(&id).expect("seen above").homes.extend(parents);
        Ok((childs, taken.next()))
    }

    /// As many slots as each range has, or none.
    fn take_parkings<'a>(&mut self, ranges: impl Iterator<Item = &'a Range<u64>>) -> Result<Vec<Range<u64>>, Errno> {
        let mut taken = Vec::new();
        for range in ranges {
            let count = (range.end - range.start) / SLOT;
            match take_slots(&mut self.slots, &mut self.families, &self.room, count) {
                Some(parking) => taken.push(parking),
                None => {
                    taken.into_iter().for_each(|range| self.slots.give(range));
                    return Err(Errno::NOMEM);
                }
            }
        }
        Ok(taken)
    }

    /// The key of a space's family, of which it is the only member if it had none.
    fn join_family(&mut self, id: u64) -> u64 {
        let space = self.spaces.get_mut(&id).expect("the caller has seen it");
        let key = *space.family.get_or_insert(id);
        let family = self.families.entry(key).or_insert_with(|| Family {
            members: vec![id],
            frozen: BTreeMap::new(),
            plans: Vec::new(),
            spare: None,
        });
        family.plans.clear();
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

    /// Copies the private memory of `parent`, which is in place, to where that of `child` is parked. Stores that are
    /// there already, of mappings as in `old_tree`, are used again.
    fn copy_private(&self, parent: u64, child: &mut Space, old_tree: &Tree) -> Result<(), Errno> {
        let family = &self.families[&child.family.expect("a child has its parent's")];
        let frozen = |start| family.frozen.contains_key(&start);
        let fits = |start: u64, store: &Store| {
            let old = old_tree.get(start);
            child.tree.get(start).is_some_and(|vma| {
                let alike = vma.is_private() && !frozen(start) && old.is_some_and(|old| old.is_backed_as(vma));
                alike && store.end == vma.end && store.prot == vma.prot && vma.prot & (READ | WRITE) == READ | WRITE
            })
        };
        let (mut old_stores, useless): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut child.stores)
            .into_iter()
            .partition(|(start, store)| fits(*start, store));
        for (start, store) in useless {
            let parked = child.parked(start).expect("a store has a place");
            self.room.unmap(parked, store.end - start);
        }
        let mut stores = BTreeMap::new();
        for (start, vma, parked) in child.turning() {
            if !vma.is_private() || frozen(start) {
                continue;
            }
            let store = match old_stores.remove(&start) {
                Some(mut store) => {
                    let written = self.shared.pages.written(start..vma.end)?;
                    with_place(&self.shared, &self.room, start, parent, |place| {
                        store.fill(place, &self.room, start, parked, written)
                    })?;
                    store
                }
                None => Store {
                    end: vma.end,
                    prot: vma.prot,
                    pages: copy_mapping(&self.shared, &self.room, (start, vma), parked, parent)?,
                },
            };
            stores.insert(start, store);
        }
        child.stores = stores;
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
        family.plans.retain(|plan| plan.from != id && plan.to != id);
        let space = self.spaces.get_mut(&id).expect("seen above");
        space.family = None;
        match family.members.len() {
            0 => {
                let family = self.families.remove(&key);
                if let Some(mut spare) = family.and_then(|family| family.spare) {
                    spare.free_parkings(&self.room, &mut self.slots);
                }
                return;
            }
            1 => family.frozen.clear(),
            _ => {}
        }
        if family.spare.is_none() {
            family.spare = Some(space.leave_parkings(&self.room));
        }
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
        family.plans.clear();
        let space = self.spaces.get_mut(&id).expect("seen above");
        changed.iter().for_each(|range| forget_stores(space, &self.room, range));
        let meets = |start: u64, end: u64| changed.iter().any(|range| range.start < end && start < range.end);
        let pieces = family.frozen.iter().map(|(&start, &end)| (start, end));
        let pieces: Vec<(u64, u64)> = pieces.filter(|&(start, end)| meets(start, end)).collect();
        for (start, _) in pieces {
            for relative in &family.members[1..] {
                let relative = &self.spaces[relative];
                let (Some(vma), Some(parked)) = (relative.tree.get(start), relative.parked(start)) else {
                    unreachable!("every member has what is frozen");
                };
                copy_mapping(&self.shared, &self.room, (start, vma), parked, id)?;
            }
            family.frozen.remove(&start);
        }
        Ok(())
    }

    /// Parks what `from` has in place, or drops its private memory if it is leaving, and brings `to`'s there.
    fn change_places(&mut self, from: u64, to: u64, leaving: bool) {
        if let Some(mut work) = self.work(from) {
            work.activate();
        }
        let mut old = self.spaces.remove(&from).expect("a member");
        let mut new = self.spaces.remove(&to).expect("a member");
        let key = new.family.expect("relatives have a family");
        let family = self.families.get_mut(&key).expect("of a member");
        let plan = family.plan(&old, &new);
        let mut low = self.shared.low.lock().expect("no panic while moving the low range");
        let mut turn = Turn {
            shared: &self.shared,
            room: &self.room,
            low: &low,
            from: &mut old,
            to: &mut new,
            leaving,
        };
        if let Err((start, errno)) = turn.carry_out(&plan) {
            panic!("space {to} cannot take the place of {from} at {start:#x}: {errno}; hint: raise vm.max_map_count");
        }
        low.hand_over(from, &new);
        family.plans.push(plan);
        family.members.retain(|member| *member != to);
        family.members.insert(0, to);
        self.spaces.insert(from, old);
        self.spaces.insert(to, new);
    }
}

impl Family {
    /// The plan for `new` in the place of `old`, which the caller gives back if it is to serve again.
    fn plan(&mut self, old: &Space, new: &Space) -> Plan {
        let known = self
            .plans
            .iter()
            .position(|plan| plan.from == old.id && plan.to == new.id);
        match known {
            Some(index) => self.plans.swap_remove(index),
            None => {
                if self.plans.len() >= PLANS {
                    self.plans.clear();
                }
                Plan::new(old, new, |start| self.frozen.contains_key(&start))
            }
        }
    }
}

impl Space {
    fn has_home(&self, slot: &Range<u64>) -> bool {
        self.homes.iter().any(|home| home.slot == *slot)
    }

    /// Takes its parkings from a space that goes, with nothing in them but stores.
    fn leave_parkings(&mut self, room: &Room) -> Space {
        let spare = Space {
            id: self.id,
            slot: self.slot,
            slots: self.slots.clone(),
            areas: Vec::new(),
            tree: std::mem::take(&mut self.tree),
            heap: self.heap,
            parking: self.parking.take(),
            homes: std::mem::take(&mut self.homes),
            stores: std::mem::take(&mut self.stores),
            family: None,
        };
        for (start, vma, parked) in spare.turning() {
            if vma.is_private() && !spare.stores.contains_key(&start) {
                room.unmap(parked, vma.end - start);
            }
        }
        spare
    }

    /// Gives its parkings back, with all that is in them.
    pub(super) fn free_parkings(&mut self, room: &Room, slots: &mut Slots) {
        self.stores.clear();
        let homes = std::mem::take(&mut self.homes);
        let parked = homes.into_iter().map(|home| home.parking);
        for parking in self.parking.take().into_iter().chain(parked) {
            room.unmap(parking.start, parking.end - parking.start);
            slots.give(parking);
        }
    }
}

/// Free slots in a row: if need be of those that families keep for their next children.
pub(super) fn take_slots(
    slots: &mut Slots,
    families: &mut BTreeMap<u64, Family>,
    room: &Room,
    count: u64,
) -> Option<Range<u64>> {
    slots.take(count).or_else(|| {
        for mut spare in families.values_mut().filter_map(|family| family.spare.take()) {
            spare.free_parkings(room, slots);
        }
        slots.take(count)
    })
}

/// Runs `act` on the room where `holder` has `address` in place.
fn with_place<T>(
    shared: &Shared,
    room: &Room,
    address: u64,
    holder: u64,
    act: impl FnOnce(&Room) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if address >= LOW_END {
        return act(room);
    }
    let low = shared.low.lock().expect("no panic while moving the low range");
    act(low.room_of(holder).ok_or(Errno::FAULT)?)
}

/// Maps at `parked` what `holder` has in place at `start`, with the pages it has written, which are the result.
fn copy_mapping(
    shared: &Shared,
    room: &Room,
    (start, vma): (u64, &Vma),
    parked: u64,
    holder: u64,
) -> Result<Vec<Range<u64>>, Errno> {
    let open = Vma {
        prot: vma.prot | READ | WRITE,
        ..vma.clone()
    };
    let len = vma.end - start;
    map_backing(shared, room, parked, start, &open)?;
    let written = shared.pages.written(start..vma.end)?;
    with_place(shared, room, start, holder, |place| {
        let hidden = vma.prot & (READ | WRITE) == 0 && !written.is_empty();
        if hidden {
            place.protect(start, len, READ)?;
        }
        for run in &written {
            place.copy_to(run.start, run.end - run.start, room, parked + (run.start - start));
        }
        if hidden {
            place.protect(start, len, vma.prot)
        } else {
            Ok(())
        }
    })?;
    if open.prot != vma.prot {
        room.protect(parked, len, vma.prot)?;
    }
    Ok(written)
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
