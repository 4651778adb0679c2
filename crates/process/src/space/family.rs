//! fork: spaces with private copies of their memory at the same addresses.
//!
//! A program keeps pointers anywhere, so its copy must find everything at the addresses of the original. A space, those
//! forked from it, and those forked from these are a family: they share their slots and take turns there. One member is
//! in place. Of the others
//! * private memory is *parked*: each mapping at a place of its own ([`super::slots`]);
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
use super::slots::{Places, Slots, take_from};
use super::turns::{Plan, Store, Turn};
use super::{LOW_END, Space, Spaces, Tree, Vma, map_backing};
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
    /// What is left of a member that is gone: the next child gets it, since fresh memory costs several times what
    /// copying into it does.
    spare: Option<Remains>,
}

/// The copies of a member that is gone, their places, and the mappings they are of.
#[derive(Debug)]
pub(super) struct Remains {
    tree: Tree,
    stores: BTreeMap<u64, Store>,
    pub(super) places: Places,
}

/// Most plans of a family that are kept.
const PLANS: usize = 64;

impl Space {
    /// Whether what it has at `address` gives way to a relative.
    pub(super) fn takes_turns(&self, address: u64) -> bool {
        address < LOW_END || self.common.iter().any(|slot| slot.contains(&address))
    }

    /// The mappings that take turns.
    pub(super) fn turning(&self) -> impl Iterator<Item = (u64, &Vma)> {
        let backed = self.tree.iter().filter(|(_, vma)| vma.backed());
        backed.filter(|(start, _)| self.takes_turns(*start))
    }
}

impl Spaces {
    /// A private copy of a space. The copy is parked, the original in place.
    pub(crate) fn fork(&mut self, id: u64) -> Result<u64, Errno> {
        let committed = self.spaces.get(&id).ok_or(Errno::NOMEM)?.tree.committed();
        self.check_memory(committed)?;
        self.activate(id);
        let key = self.join_family(id);
        self.find_places(id)?;
        let mut child = self.child_of(id);
        let spare = self.families.get_mut(&key).expect("joined above").take_spare();
        if let Err(errno) = self.copy_private(id, &mut child, spare) {
            child.places.clear(&self.room, &mut self.slots);
            return Err(errno);
        }
        let id = child.id;
        child.slots.iter().for_each(|range| self.slots.share(range));
        self.families.get_mut(&key).expect("joined above").members.push(id);
        self.spaces.insert(id, child);
        self.settle(id);
        self.tell_images(id);
        Ok(id)
    }

    /// A space like `id`, without contents so far.
    fn child_of(&mut self, id: u64) -> Space {
        let child_id = self.new_id();
        let parent = &self.spaces[&id];
        Space {
            id: child_id,
            slot: parent.slot,
            slots: parent.slots.clone(),
            areas: parent.areas.clone(),
            tree: parent.tree.clone(),
            heap: parent.heap,
            low: parent.low.clone(),
            common: parent.slots.clone(),
            places: Places::default(),
            stores: BTreeMap::new(),
            family: parent.family,
            settled: 0,
            made: parent.made.clone(),
        }
    }

    /// Sees to it that all private mappings of a member in place that take turns have places.
    fn find_places(&mut self, id: u64) -> Result<(), Errno> {
        let space = &self.spaces[&id];
        let frozen = &self.families[&space.family.expect("a member has a family")].frozen;
        let private = space.turning().filter(|(_, vma)| vma.is_private());
        let without =
            private.filter(|(start, vma)| !frozen.contains_key(start) && !space.places.fits(*start, vma.end - start));
        let without: Vec<(u64, u64)> = without.map(|(start, vma)| (start, vma.end)).collect();
        for (start, end) in without {
            let place = self.take_piece(end - start)?;
            let space = self.spaces.get_mut(&id).expect("seen above");
            // Old ones of mappings that are no more, or longer by now.
            space.drop_places(&(start..end), &self.room, &mut self.slots);
            space.places.set(start, place);
        }
        Ok(())
    }

    /// Addresses for `len` bytes of parked memory.
    fn take_piece(&mut self, len: u64) -> Result<Range<u64>, Errno> {
        let take = |slots: &mut Slots| slots.take_piece(len);
        take_from(&mut self.slots, &mut self.families, &self.room, take)
    }

    /// The key of a space's family, of which it is the only member if it had none.
    fn join_family(&mut self, id: u64) -> u64 {
        let space = self.spaces.get_mut(&id).expect("the caller has seen it");
        space.common = space.slots.clone();
        let key = *space.family.get_or_insert(id);
        let family = self.families.entry(key).or_insert_with(|| Family {
            members: vec![id],
            frozen: BTreeMap::new(),
            plans: Vec::new(),
            spare: None,
        });
        family.plans.clear();
        if family.members.len() == 1 {
            let written_once = |(_, vma): &(u64, &Vma)| vma.is_private() && vma.prot & WRITE == 0;
            family.frozen = space
                .turning()
                .filter(written_once)
                .map(|(start, vma)| (start, vma.end))
                .collect();
        }
        key
    }

    /// Copies the private memory of `parent`, which is in place, to places of `child`. Copies that are at `spare`'s are
    /// used again.
    fn copy_private(&mut self, parent: u64, child: &mut Space, spare: Option<Remains>) -> Result<(), Errno> {
        let mut old_stores = match spare {
            Some(spare) => self.inherit(child, spare),
            None => BTreeMap::new(),
        };
        let frozen = &self.families[&child.family.expect("a child has its parent's")].frozen;
        let copied = child.turning().filter(|(_, vma)| vma.is_private());
        let copied: Vec<(u64, Vma)> = copied
            .filter(|(start, _)| !frozen.contains_key(start))
            .map(|(start, vma)| (start, vma.clone()))
            .collect();
        for (start, vma) in copied {
            let store = match (old_stores.remove(&start), child.places.of(start)) {
                (Some(mut store), Some(parked)) => {
                    let written = self.shared.pages.written(start..vma.end)?;
                    with_place(&self.shared, &self.room, start, parent, |place| {
                        store.fill(place, &self.room, start, parked, written)
                    })?;
                    store
                }
                _ => {
                    let place = self.take_piece(vma.end - start)?;
                    let parked = place.start;
                    child.places.set(start, place);
                    Store {
                        end: vma.end,
                        prot: vma.prot,
                        pages: copy_mapping(&self.shared, &self.room, (start, &vma), parked, parent)?,
                    }
                }
            };
            child.stores.insert(start, store);
        }
        Ok(())
    }

    /// Gives `child`, which has none, the places of `spare` with the copies there, which are the result; but only of
    /// mappings like its own.
    fn inherit(&mut self, child: &mut Space, spare: Remains) -> BTreeMap<u64, Store> {
        let Remains {
            tree,
            mut stores,
            places,
        } = spare;
        let frozen = &self.families[&child.family.expect("a child has its parent's")].frozen;
        stores.retain(|start, store| {
            let turns = child.takes_turns(*start) && !frozen.contains_key(start);
            child.tree.get(*start).is_some_and(|vma| {
                let alike = turns && vma.is_private() && tree.get(*start).is_some_and(|old| old.is_backed_as(vma));
                alike && store.end == vma.end && store.prot == vma.prot && vma.prot & (READ | WRITE) == READ | WRITE
            })
        });
        child.places = places;
        let keep = |start: u64, _| stores.contains_key(&start);
        child.places.retain(&self.room, &mut self.slots, keep);
        stores
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
                    spare.places.clear(&self.room, &mut self.slots);
                }
                return;
            }
            1 => family.frozen.clear(),
            _ => {}
        }
        if family.spare.is_none() {
            family.spare = Some(space.leave_remains(&self.room, &mut self.slots));
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
        for range in &changed {
            // Of the low range what has none any more gets places after the call.
            space.drop_places(range, &self.room, &mut self.slots);
        }
        let meets = |start: u64, end: u64| changed.iter().any(|range| range.start < end && start < range.end);
        let pieces = family.frozen.iter().map(|(&start, &end)| (start, end));
        let pieces: Vec<(u64, u64)> = pieces.filter(|&(start, end)| meets(start, end)).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        let relatives = family.members[1..].to_vec();
        for (start, end) in pieces {
            for &relative in &relatives {
                self.copy_frozen(start..end, id, relative)?;
            }
            self.families.get_mut(&key).expect("of a member").frozen.remove(&start);
        }
        Ok(())
    }

    /// Gives `relative`, which is parked, a copy of the frozen mapping `range`, which `holder` has in place.
    fn copy_frozen(&mut self, range: Range<u64>, holder: u64, relative: u64) -> Result<(), Errno> {
        let relation = &self.spaces[&relative];
        let vma = relation
            .tree
            .get(range.start)
            .expect("every member has what is frozen")
            .clone();
        if !relation.places.fits(range.start, range.end - range.start) {
            let place = self.take_piece(range.end - range.start)?;
            let relation = self.spaces.get_mut(&relative).expect("seen above");
            relation.drop_places(&range, &self.room, &mut self.slots);
            relation.places.set(range.start, place);
        }
        let parked = self.spaces[&relative].places.of(range.start).expect("taken above");
        copy_mapping(&self.shared, &self.room, (range.start, &vma), parked, holder).map(|_| ())
    }

    /// Parks what `from` has in place, or drops its private memory if it is leaving, and brings `to`'s there.
    fn change_places(&mut self, from: u64, to: u64, leaving: bool) {
        if let Some(mut work) = self.work(from) {
            work.activate();
        }
        let key = self.spaces[&to].family.expect("relatives have a family");
        let known = self.families.get_mut(&key).expect("of a member").take_plan(from, to);
        if known.is_none() {
            self.find_places(from)
                .unwrap_or_else(|errno| panic!("places for the memory of space {from}: {errno}"));
        }
        let mut old = self.spaces.remove(&from).expect("a member");
        let mut new = self.spaces.remove(&to).expect("a member");
        let family = self.families.get_mut(&key).expect("of a member");
        let plan = known.unwrap_or_else(|| Plan::new(&old, &new, |start| family.frozen.contains_key(&start)));
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
            panic!("space {to} cannot take the place of {from} at {start:#x}: {errno}");
        }
        low.hand_over(from, to);
        drop(low);
        family.keep_plan(plan);
        family.members.retain(|member| *member != to);
        family.members.insert(0, to);
        self.spaces.insert(from, old);
        self.spaces.insert(to, new);
        self.work(to)
            .expect("just inserted")
            .sync_low()
            .unwrap_or_else(|errno| panic!("places for the low addresses of space {to}: {errno}"));
    }
}

impl Family {
    /// What is left of a member that is gone, if nobody has taken it.
    pub(super) fn take_spare(&mut self) -> Option<Remains> {
        self.spare.take()
    }

    /// The plan for `to` in the place of `from`, if there is one; the caller gives it back if it is to serve again.
    fn take_plan(&mut self, from: u64, to: u64) -> Option<Plan> {
        let mut plans = self.plans.iter();
        let index = plans.position(|plan| plan.from == from && plan.to == to)?;
        Some(self.plans.swap_remove(index))
    }

    fn keep_plan(&mut self, plan: Plan) {
        if self.plans.len() >= PLANS {
            self.plans.clear();
        }
        self.plans.push(plan);
    }
}

impl Space {
    /// Drops places that overlap `range`, with the copies there.
    pub(super) fn drop_places(&mut self, range: &Range<u64>, room: &Room, slots: &mut Slots) {
        for start in self.places.meeting(range) {
            self.stores.remove(&start);
            self.places.drop_place(start, room, slots);
        }
    }

    /// What a space that goes leaves to its relatives.
    fn leave_remains(&mut self, room: &Room, slots: &mut Slots) -> Remains {
        let stores = std::mem::take(&mut self.stores);
        let mut places = std::mem::take(&mut self.places);
        places.retain(room, slots, |start, _| stores.contains_key(&start));
        Remains {
            tree: std::mem::take(&mut self.tree),
            stores,
            places,
        }
    }
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
