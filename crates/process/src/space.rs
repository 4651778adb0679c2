//! Address spaces of a node's programs, all within the engine's one: which addresses each may have, and what is there.
//!
//! ```text
//! slot of 1 GiB:   +16 MiB  program image (PIE), program break after it
//!                  +256 MiB mappings, lowest free address first; the interpreter is the first of them
//!                  top      stack, 1 MiB below the end of the slot
//! ```
//! Programs linked to fixed addresses live in the low range, which all nodes share: the one that runs has its image
//! there, the others keep theirs parked elsewhere ([`Low`]). A program and those it forked share their addresses in the
//! same way ([`family`]). All addresses depend on the order of a node's own requests only. A mapping
//! too large for the slot gets further slots.
//!
//! The [`Tree`] is the truth about what is mapped; the host is never asked. Each of its mappings lies within one
//! mapping of the host, so that it can be moved with one `mremap`: that is why advice and locks that would split the
//! host's are not passed on.

mod calls;
mod commit;
mod executed;
mod family;
mod keys;
mod low;
mod program_pages;
mod remap;
mod slots;
mod tree;
mod turns;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use windtunnel_kernel::abi;

use crate::Shared;
use crate::files::Content;
use crate::sys::{Backing, EXEC, PAGE, Room};

use commit::Commit;
use executed::Made;
use family::Family;
pub(crate) use low::{LOW_END, Low};
pub(crate) use program_pages::ProgramPages;
use slots::{Places, Slots, take_from};
pub(crate) use tree::{FileMap, Kind, Role, Tree, Vma};
use turns::Store;

/// Bytes of a program slot, and its alignment.
pub(crate) const SLOT: u64 = 1 << abi::SLOT_SHIFT;
/// Offset of a position-independent program in its slot, before the stagger.
const IMAGE_OFFSET: u64 = 16 << 20;
/// Offset of the first mapping in a slot; the program break ends here.
const MAPPINGS_OFFSET: u64 = 256 << 20;
/// Never mapped at the ends of areas and below the stack, bytes.
const GUARD: u64 = 1 << 20;
/// How far after an image its trampolines are looked for, bytes: its greatest usual alignment and their room.
const AFTER_IMAGE: u64 = 4 << 20;
/// Bounds of the stack's size, bytes: an unlimited stack gets the greater.
const STACK_RANGE: Range<u64> = 128 << 10..256 << 20;
/// End of addresses a program may name.
const TASK_SIZE: u64 = (1 << 47) - PAGE;

/// Number of the node a space is of.
pub(crate) fn node_of(space: u64) -> u32 {
    ((space >> 32) - 1) as u32
}

/// The number of a node's first space.
fn first_id(node: u32) -> u64 {
    (u64::from(node) + 1) << 32
}

/// A program's request that was not carried out as Linux would; reported once per run.
pub(crate) type Note = (u32, &'static str);

/// One program's address space.
#[derive(Debug)]
pub(crate) struct Space {
    id: u64,
    /// Its first slot.
    slot: u64,
    /// All its slots, ascending.
    slots: Vec<Range<u64>>,
    /// Where mappings without a fixed address go, in order of preference.
    areas: Vec<Range<u64>>,
    tree: Tree,
    heap: Heap,
    /// The low addresses it may have; none for programs that can be anywhere.
    low: Option<Range<u64>>,
    /// The slots that it has, or had, in common with a relative.
    common: Vec<Range<u64>>,
    /// Where its mappings in these, and in the low range, are kept while another has their addresses.
    places: Places,
    /// Copies at its places, by where they belong.
    stores: BTreeMap<u64, Store>,
    /// The key of its family, if it forked or was forked.
    family: Option<u64>,
    /// What it counts for in the node's [`Commit`], bytes.
    settled: u64,
    /// Code that the program made.
    made: Made,
}

/// The program break.
#[derive(Clone, Copy, Debug, Default)]
struct Heap {
    start: u64,
    /// As the program set it: not aligned.
    end: u64,
    limit: u64,
}

/// The address spaces of one node.
#[derive(Debug)]
pub(crate) struct Spaces {
    shared: Arc<Shared>,
    /// Number of the node.
    node: u32,
    room: Arc<Room>,
    slots: Slots,
    spaces: BTreeMap<u64, Space>,
    families: BTreeMap<u64, Family>,
    /// Ids are never used twice, and not by two nodes: the kernels compare them with the low range's owner.
    next_id: u64,
    commit: Commit,
    notes: BTreeSet<Note>,
}

impl Spaces {
    /// Address spaces in `programs` for node number `node`, which has had so many `before`, and which may have `memory_limit` bytes
    /// together.
    pub(crate) fn new(
        shared: Arc<Shared>,
        (node, before): (u32, u64),
        programs: Range<u64>,
        memory_limit: u64,
    ) -> Result<Self, Errno> {
        if !programs.start.is_multiple_of(SLOT) || !programs.end.is_multiple_of(SLOT) {
            return Err(Errno::INVAL);
        }
        let room = match &shared.fence {
            Some(fence) => fence.claim(node, programs.clone())?,
            None => Arc::new(Room::claim(programs.clone())?),
        };
        Ok(Self {
            slots: Slots::new(programs, shared.image_watch.is_some()),
            shared,
            node,
            room,
            spaces: BTreeMap::new(),
            families: BTreeMap::new(),
            next_id: first_id(node) + before,
            commit: Commit::new(memory_limit),
            notes: BTreeSet::new(),
        })
    }

    /// A new, empty space.
    pub(crate) fn create(&mut self) -> Result<u64, Errno> {
        let take = |slots: &mut Slots| slots.take(1);
        let range = take_from(&mut self.slots, &mut self.families, &self.room, take)?;
        self.shared.note_owner(&range, Some(range.start));
        let id = self.new_id();
        let mappings = range.start + MAPPINGS_OFFSET..range.end - GUARD;
        let space = Space {
            id,
            slot: range.start,
            areas: vec![mappings],
            slots: vec![range],
            tree: Tree::default(),
            heap: Heap::default(),
            low: None,
            common: Vec::new(),
            places: Places::default(),
            stores: BTreeMap::new(),
            family: None,
            settled: 0,
            made: Made::default(),
        };
        self.spaces.insert(id, space);
        Ok(id)
    }

    /// How many spaces the node has had.
    pub(crate) fn made(&self) -> u64 {
        self.next_id - first_id(self.node)
    }

    /// Number of the node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Tells a debugger what is mapped in a space, if one listens.
    fn tell_images(&self, id: u64) {
        if let (Some(watch), Some(space)) = (&self.shared.image_watch, self.spaces.get(&id)) {
            watch.mapped(id, &space.tree);
        }
    }

    /// Drops a space.
    pub(crate) fn destroy(&mut self, id: u64) {
        self.leave_family(id);
        self.forget(id);
        if let Some(mut work) = self.work(id) {
            work.clear();
            if let Some(space) = self.spaces.remove(&id) {
                for range in space.slots {
                    if !self.slots.is_shared(&range) {
                        self.shared.note_owner(&range, None);
                    }
                    self.slots.give(range);
                }
            }
        }
    }

    /// Brings what a space has at addresses that others use, too, in place.
    pub(crate) fn activate(&mut self, id: u64) {
        self.replace_relative(id);
        if let Some(mut work) = self.work(id) {
            work.activate();
        }
    }

    /// A memory call: `nr` as on x86-64, `content` for a mapping of a file.
    pub(crate) fn mem_call(
        &mut self,
        id: u64,
        nr: u32,
        args: &[u64; 6],
        content: Option<Arc<Content>>,
    ) -> Result<u64, Errno> {
        let space = self.spaces.get(&id).ok_or(Errno::NOMEM)?;
        let (growth, heap_end) = (commit::growth(&space.tree, space.heap.end, nr, args), space.heap.end);
        if let Err(errno) = self.check_memory(growth) {
            // The program break answers where it stays.
            return if i64::from(nr) == libc::SYS_brk {
                Ok(heap_end)
            } else {
                Err(errno)
            };
        }
        self.before_change(id, nr, args)?;
        let mut work = self.work(id).ok_or(Errno::NOMEM)?;
        let result = work.call(nr, args, content);
        let synced = work.sync_low();
        self.settle(id);
        if matches!(i64::from(nr), libc::SYS_mmap | libc::SYS_mprotect) && args[2] & u64::from(EXEC) != 0 {
            self.tell_images(id);
        }
        synced.and(result)
    }

    /// The first mapping of a space that ends above `address`: 1 found, 0 none.
    pub(crate) fn map_above(&mut self, id: u64, address: u64, out: &mut abi::Map) -> Result<u64, Errno> {
        let work = self.work(id).ok_or(Errno::SRCH)?;
        Ok(u64::from(work.map_above(address, out)))
    }

    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Requests that were refused or changed since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes).into_iter().collect()
    }

    pub(crate) fn work(&mut self, id: u64) -> Option<Work<'_>> {
        let space = self.spaces.get_mut(&id)?;
        Some(Work {
            space,
            slots: &mut self.slots,
            families: &mut self.families,
            room: &self.room,
            shared: &self.shared,
            commit: &mut self.commit,
            notes: &mut self.notes,
        })
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        let ids: Vec<u64> = self.spaces.keys().copied().collect();
        ids.into_iter().for_each(|id| self.destroy(id));
    }
}

/// Maps what stands behind `vma` at `at` of `room`; `start` is where its program sees it.
fn map_backing(shared: &Shared, room: &Room, at: u64, start: u64, vma: &Vma) -> Result<(), Errno> {
    let map = |backing: Backing| room.map(at, vma.end - start, vma.prot, &backing, true);
    let private = |fd, offset| Backing::File {
        fd,
        offset,
        shared: false,
    };
    match &vma.kind {
        Kind::Anonymous(_) => map(Backing::Anonymous),
        Kind::File(FileMap {
            patched: Some(image),
            offset,
            ..
        }) => map(private(image.fd(), *offset)),
        Kind::File(file) => file
            .content
            .with_backing(&shared.fds, file.offset, vma.end - start, |fd, offset| {
                map(Backing::File {
                    fd,
                    offset,
                    // What a program cannot write it sees as it was opened, so a private mapping serves.
                    shared: file.shared && file.content.writable,
                })
            }),
        Kind::Trampolines { image, code } => {
            let offset = start - (image + code.trampolines_vaddr);
            map(private(code.fd(), code.trampolines_offset + offset))
        }
        Kind::Gap { .. } => Ok(()),
    }
}

/// One space together with what its operations need.
pub(crate) struct Work<'a> {
    space: &'a mut Space,
    slots: &'a mut Slots,
    families: &'a mut BTreeMap<u64, Family>,
    room: &'a Arc<Room>,
    shared: &'a Shared,
    commit: &'a mut Commit,
    notes: &'a mut BTreeSet<Note>,
}

impl Work<'_> {
    /// Whether all of `range` is this space's own to map. The last page of its slots is not: the kernel looks where an
    /// access to program memory starts, and one that goes on has to end there, before the slots of another.
    fn owns(&self, range: &Range<u64>) -> bool {
        let inside = |outer: &Range<u64>| outer.start <= range.start && range.end <= outer.end;
        match &self.space.low {
            Some(low) if range.start < LOW_END => inside(low) && self.has_low(range),
            _ => self
                .space
                .slots
                .iter()
                .any(|slots| inside(&(slots.start..slots.end - PAGE))),
        }
    }

    /// Runs `act` on the room and the address where the host has `address` now.
    fn at<T>(&self, address: u64, act: impl FnOnce(&Room, u64) -> T) -> T {
        if address >= LOW_END {
            return act(self.room, address);
        }
        let low = self.shared.low.lock().expect("no panic while moving the low range");
        match low.room_of(self.space.id) {
            Some(room) => act(room, address),
            None => act(self.room, self.space.places.find(address).expect("checked by `owns`")),
        }
    }

    /// Free slots in a row.
    fn take_slots(&mut self, count: u64) -> Result<Range<u64>, Errno> {
        take_from(self.slots, self.families, self.room, |slots| slots.take(count))
    }

    /// A free place for `len` bytes, from further slots if need be.
    fn find_place(&mut self, len: u64, align: u64) -> Result<u64, Errno> {
        let found = self
            .space
            .areas
            .iter()
            .find_map(|area| self.space.tree.first_hole(area.clone(), len, align));
        if let Some(start) = found {
            return Ok(start);
        }
        let bytes = len.checked_add(2 * GUARD + align).ok_or(Errno::NOMEM)?;
        let range = self.take_slots(bytes.div_ceil(SLOT))?;
        let area = range.start + GUARD..range.end - GUARD;
        self.shared.note_owner(&range, Some(self.space.slot));
        self.space.slots.push(range);
        self.space.areas.push(area.clone());
        self.space.tree.first_hole(area, len, align).ok_or(Errno::NOMEM)
    }

    /// Maps `vma` at `start`, replacing what is there; trampolines that served the old go with it.
    fn map(&mut self, start: u64, vma: Vma) -> Result<(), Errno> {
        let len = vma.end - start;
        self.space.tree.remove(start..vma.end);
        let result = self.at(start, |room, at| map_backing(self.shared, room, at, start, &vma));
        match result {
            Ok(()) => self.space.tree.insert(start, vma),
            // Linux has already unmapped the old by then, too.
            Err(_) => self.at(start, |room, at| room.unmap(at, len)),
        }
        result
    }

    /// Unmaps `range`, and the trampolines after an image that goes.
    fn unmap(&mut self, range: Range<u64>) {
        self.unmap_exact(range.clone());
        // The dynamic linker may have cut off what it mapped too much, so there can be a hole before them.
        let after = range.end..range.end.saturating_add(AFTER_IMAGE);
        let serves = |vma: &Vma| matches!(vma.kind, Kind::Gap { image } | Kind::Trampolines { image, .. } if range.contains(&image));
        let useless: Vec<Range<u64>> = self
            .space
            .tree
            .overlapping(after)
            .take_while(|(_, vma)| !vma.visible())
            .filter(|(_, vma)| serves(vma))
            .map(|(start, vma)| start..vma.end)
            .collect();
        useless.into_iter().for_each(|range| self.unmap_exact(range));
    }

    fn unmap_exact(&mut self, range: Range<u64>) {
        for (start, vma) in self.space.tree.remove(range) {
            if vma.backed() {
                self.at(start, |room, at| room.unmap(at, vma.end - start));
            }
        }
    }

    /// Empties the space down to its first slot.
    fn clear(&mut self) {
        let id = self.space.id;
        if let Some(watch) = &self.shared.image_watch {
            watch.unmapping(id);
        }
        self.shared
            .low
            .lock()
            .expect("no panic while moving the low range")
            .vacate(id);
        self.space.tree.clear();
        for range in &self.space.slots {
            // What relatives use has nothing of this space left: it is in their hands or was parked.
            if !self.slots.is_shared(range) {
                self.room.unmap(range.start, range.end - range.start);
            }
        }
        self.space.stores.clear();
        self.space.places.clear(self.room, self.slots);
        for range in self.space.slots.split_off(1) {
            if !self.slots.is_shared(&range) {
                self.shared.note_owner(&range, None);
            }
            self.slots.give(range);
        }
        self.space.areas.truncate(1);
        self.space.low = None;
        self.space.made = Made::default();
        self.space.heap = Heap::default();
    }

    fn note(&mut self, nr: i64, text: &'static str) {
        self.notes.insert((nr as u32, text));
    }
}

/// What exec needs of a space; see `image.rs`.
impl Work<'_> {
    /// Drops all there is and lays the space out anew: a stack of about `stack_size` bytes, whose place is the result,
    /// and room for an image in `low`, the part of the low range it is linked to, if that is not empty.
    pub(crate) fn begin(&mut self, stack_size: u64, low: Range<u64>) -> Result<Range<u64>, Errno> {
        if self.space.family.is_some() {
            // Exec makes a space of its own for the new program.
            return Err(Errno::BUSY);
        }
        self.clear();
        if !low.is_empty() {
            self.begin_low(low)?;
        }
        let size = stack_size
            .clamp(STACK_RANGE.start, STACK_RANGE.end)
            .next_multiple_of(PAGE);
        let top = self.space.slot + SLOT - GUARD;
        self.space.areas[0] = self.space.slot + MAPPINGS_OFFSET..top - size - GUARD;
        Ok(top - size..top)
    }

    /// Where a position-independent program goes: staggered, so that programs do not share cache sets.
    pub(crate) fn image_place(&self, align: u64) -> u64 {
        let stagger = (self.slots.number(self.space.slot) * 37 % 512) * PAGE;
        (self.space.slot + IMAGE_OFFSET + stagger).next_multiple_of(align)
    }

    /// Tells the fence, if there is one, which file the program is.
    pub(crate) fn note_program(&self, path: &str) {
        if let Some(fence) = &self.shared.fence {
            fence.note_program(node_of(self.space.id), self.space.slot, path);
        }
    }

    /// Whether all of `range` may be mapped by this program.
    pub(crate) fn may_map(&self, range: &Range<u64>) -> bool {
        self.owns(range)
    }

    /// A place among the mappings, with `extra` bytes free after it.
    pub(crate) fn mapping_place(&mut self, len: u64, extra: u64, align: u64) -> Result<u64, Errno> {
        self.find_place(len + extra, align)
    }

    /// Maps private zeroed memory.
    pub(crate) fn map_anonymous(&mut self, range: Range<u64>, prot: u8, role: Role) -> Result<(), Errno> {
        self.map(
            range.start,
            Vma {
                end: range.end,
                prot,
                kind: Kind::Anonymous(role),
            },
        )
    }

    /// Maps part of a file's patched copy.
    pub(crate) fn map_image(&mut self, range: Range<u64>, prot: u8, file: FileMap) -> Result<(), Errno> {
        self.map(
            range.start,
            Vma {
                end: range.end,
                prot,
                kind: Kind::File(file),
            },
        )
    }

    /// Overwrites mapped, writable memory with zeros.
    pub(crate) fn zero(&self, start: u64, len: u64) {
        self.at(start, |room, at| room.zero(at, len));
    }

    /// Lets the program break start at `start`, or at the place of an image if the program has none in its slot.
    pub(crate) fn begin_heap(&mut self, start: Option<u64>) -> u64 {
        let start = start.unwrap_or_else(|| self.image_place(PAGE));
        let limit = self.space.slot + MAPPINGS_OFFSET - GUARD;
        self.space.heap = Heap {
            start,
            end: start,
            limit,
        };
        start
    }

    /// Tells the low range, if the space holds it, what to move, and a debugger what is there.
    pub(crate) fn finish(&mut self) -> Result<(), Errno> {
        self.sync_low()?;
        if let Some(watch) = &self.shared.image_watch {
            watch.mapped(self.space.id, &self.space.tree);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
#[path = "space/tests.rs"]
pub(crate) mod tests;
