//! What programs execute that is not as it stands in the file: instructions that were replaced (see [`crate::patch`]).
//!
//! Memory of no file that is to be executable is not so in the host until the program jumps there; then its code is looked
//! at. That is one fault for each mapping that becomes executable. What is written to it afterwards nobody sees, so there is a
//! warning where it can be written to.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;
use windtunnel_kernel::abi;

use super::{FileMap, Kind, Spaces, Work};
use crate::patch::{Replacement, in_made_code};
use crate::sys::{Copy, EXEC, HELD, READ, WRITE};

/// How often code of a program is looked at: one that makes a mapping executable again and again is a compiler that has long
/// asked for what it wants to know of the processor.
const LOOKS_MAX: u32 = 256;
/// How far around the place where it starts, bytes.
const AROUND: u64 = 1 << 20;
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// Said of a program that can write code which nobody looks at.
const UNSEEN: &str = "code that a program writes where it executed some before is not looked at: instructions there that show \
                      the host's processor are not masked";

/// Code that a program made.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// What was replaced in it, by address.
    replaced: BTreeMap<u64, Replacement>,
    /// How often some was looked at.
    looks: u32,
}

impl Spaces {
    /// Carries out what stood at `regs.rip` of space `id` before it was replaced, or lets code there be executed that was not
    /// before; 0 if there is nothing of that.
    pub(crate) fn instruction(&mut self, id: u64, regs: &mut abi::Regs) -> i64 {
        let Some(work) = self.work(id) else { return 0 };
        if let Some((range, prot)) = work.held_at(regs.rip) {
            let released = self.release(id, &range, prot, regs.rip);
            return released.map_or(0, |()| abi::INSTRUCTION_DONE);
        }
        let Some((start, vma)) = work.space.tree.find_visible(regs.rip) else {
            return 0;
        };
        match &vma.kind {
            Kind::File(FileMap {
                patched: Some(image),
                offset,
                ..
            }) => image
                .seeing(offset + (regs.rip - start))
                .map_or(0, |seeing| seeing.answer(regs)),
            Kind::Anonymous(_) => work.made_at(regs.rip).map_or(0, |made| made.seeing.answer(regs)),
            _ => 0,
        }
    }

    /// Makes the held mapping `range` executable, with protection `prot`; the instruction at `entry`, which is in it or reaches
    /// into it, is about to run.
    fn release(&mut self, id: u64, range: &Range<u64>, prot: u8, entry: u64) -> Result<(), Errno> {
        // To relatives, who may have the same memory, it is a change like that of the call.
        let args = [range.start, range.end - range.start, prot.into(), 0, 0, 0];
        self.before_change(id, libc::SYS_mprotect as u32, &args)?;
        let mut work = self.work(id).ok_or(Errno::SRCH)?;
        work.release(range, prot, entry)?;
        work.sync_low()
    }
}

impl Work<'_> {
    /// `prot` as it is for the host at first, where `kind` becomes executable.
    pub(super) fn held(&self, prot: u8, kind: &Kind) -> u8 {
        let look = prot & EXEC != 0 && matches!(kind, Kind::Anonymous(_)) && self.space.made.looks < LOOKS_MAX;
        if look { prot | HELD } else { prot }
    }

    /// The held mapping that an instruction at `address` is in, or reaches into; and its protection to be.
    fn held_at(&self, address: u64) -> Option<(Range<u64>, u8)> {
        let near = address..address.checked_add(LONGEST)?;
        let mut held = self
            .space
            .tree
            .overlapping(near)
            .filter(|(_, vma)| vma.prot & HELD != 0);
        held.next().map(|(start, vma)| (start..vma.end, vma.prot & !HELD))
    }

    /// What was replaced at `address`, if it is still there.
    fn made_at(&self, address: u64) -> Option<&Replacement> {
        let made = self.space.made.replaced.get(&address)?;
        (self.read(made.at, made.bytes.len()) == made.bytes).then_some(made)
    }

    /// See [`Spaces::release`].
    fn release(&mut self, range: &Range<u64>, prot: u8, entry: u64) -> Result<(), Errno> {
        let protect = |prot: u8| self.at(range.start, |room, at| room.protect(at, range.end - range.start, prot));
        if prot & READ == 0 {
            protect(READ)?;
        }
        let near = range.start.max(entry.saturating_sub(AROUND))..range.end.min(entry.saturating_add(AROUND));
        let replaced = in_made_code(
            &self.read(near.start, (near.end - near.start) as usize),
            near.start,
            entry,
        );
        if !replaced.is_empty() {
            protect(READ | WRITE)?;
        }
        for made in replaced.values() {
            let (from, bytes) = (made.bytes.as_ptr() as u64, made.bytes.len() as u64);
            self.at(made.at, |room, at| room.copy(Copy::In, at, from, bytes));
        }
        protect(prot)?;
        for (start, mut vma) in self.space.tree.remove(range.clone()) {
            vma.prot = prot;
            self.space.tree.insert(start, vma);
        }
        self.space.made.looks += 1;
        if prot & WRITE != 0 || self.space.made.looks == LOOKS_MAX {
            self.note(libc::SYS_mmap, UNSEEN);
        }
        self.space.made.replaced.extend(replaced);
        Ok(())
    }

    /// Bytes of the program's memory, up to the first that cannot be read.
    fn read(&self, start: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; len];
        let to = bytes.as_mut_ptr() as u64;
        let read = self.at(start, |room, at| room.copy(Copy::Out, at, to, len as u64));
        bytes.truncate(read as usize);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;
    use crate::sys::PAGE;

    const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    const RWX: u64 = (READ | WRITE | EXEC) as u64;
    /// mov $1,%eax; cpuid; ret
    const CODE: [u8; 8] = [0xb8, 1, 0, 0, 0, 0x0f, 0xa2, 0xc3];

    fn at(rip: u64) -> abi::Regs {
        abi::Regs {
            rip,
            rax: 1,
            ..abi::Regs::default()
        }
    }

    fn put(fixture: &mut Fixture, id: u64, address: u64, bytes: &[u8]) {
        let (from, len) = (bytes.as_ptr() as u64, bytes.len() as u64);
        assert_eq!(fixture.spaces.copy(id, Copy::In, address, from, len), Ok(len));
    }

    #[test]
    fn made_code_is_looked_at_when_it_first_runs() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let start = fixture
            .call(id, libc::SYS_mmap, [0, 2 * PAGE, RWX, ANONYMOUS, 0, 0])
            .unwrap();
        put(&mut fixture, id, start, &CODE);
        let mut map = abi::Map::default();
        fixture.spaces.map_above(id, start, &mut map).unwrap();
        assert_eq!(u64::from(map.prot), RWX, "the program sees what it asked for");
        let mut regs = at(start);
        assert_eq!(fixture.spaces.instruction(id, &mut regs), abi::INSTRUCTION_DONE);
        assert_eq!(regs.rip, start, "the instruction is fetched again");
        assert_eq!(
            fixture.spaces.take_notes(),
            [(libc::SYS_mmap as u32, UNSEEN)],
            "it can be written to"
        );
        let work = fixture.spaces.work(id).unwrap();
        assert_eq!(work.read(start, 8), [0xb8, 1, 0, 0, 0, 0x0f, 0x08, 0xc3]);
        let mut regs = at(start + 5);
        assert_eq!(fixture.spaces.instruction(id, &mut regs), abi::INSTRUCTION_DONE);
        assert_eq!((regs.rip, regs.rax), (start + 7, 0x2_06c1));
        // Elsewhere, or once the program wrote something else, a fault is its own.
        assert_eq!(fixture.spaces.instruction(id, &mut at(start + 4)), 0);
        put(&mut fixture, id, start + 5, &[0x0f, 0x09]);
        assert_eq!(fixture.spaces.instruction(id, &mut at(start + 5)), 0);
    }

    #[test]
    fn an_instruction_may_reach_into_memory_that_nobody_looked_at() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let start = fixture
            .call(id, libc::SYS_mmap, [0, 2 * PAGE, RWX, ANONYMOUS, 0, 0])
            .unwrap();
        assert_eq!(fixture.spaces.instruction(id, &mut at(start)), 1);
        for prot in [3, 5] {
            fixture
                .call(id, libc::SYS_mprotect, [start + PAGE, PAGE, prot, 0, 0, 0])
                .unwrap();
        }
        let last = start + PAGE - 1;
        assert_eq!(fixture.spaces.instruction(id, &mut at(last - 14)), 0, "it ends before");
        assert_eq!(fixture.spaces.instruction(id, &mut at(last)), 1);
        assert_eq!(fixture.spaces.instruction(id, &mut at(last)), 0, "it was looked at");
    }

    #[test]
    fn what_becomes_executable_again_is_looked_at_again_but_not_for_ever() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let start = fixture.call(id, libc::SYS_mmap, [0, PAGE, 3, ANONYMOUS, 0, 0]).unwrap();
        put(&mut fixture, id, start, &CODE);
        for look in 0..LOOKS_MAX + 2 {
            let more = u64::from(look < LOOKS_MAX);
            fixture.call(id, libc::SYS_mprotect, [start, PAGE, 5, 0, 0, 0]).unwrap();
            assert_eq!(fixture.spaces.instruction(id, &mut at(start)) as u64, more, "{look}");
            fixture.call(id, libc::SYS_mprotect, [start, PAGE, 3, 0, 0, 0]).unwrap();
            let notes = fixture.spaces.take_notes();
            assert_eq!(notes.len(), usize::from(look == LOOKS_MAX - 1), "{look}: {notes:?}");
        }
    }

    #[test]
    fn relatives_have_the_code_that_they_looked_at() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let start = fixture.call(id, libc::SYS_mmap, [0, PAGE, 3, ANONYMOUS, 0, 0]).unwrap();
        put(&mut fixture, id, start, &CODE);
        fixture.call(id, libc::SYS_mprotect, [start, PAGE, 5, 0, 0, 0]).unwrap();
        let child = fixture.spaces.fork(id).unwrap();
        for member in [child, id, child, id] {
            fixture.spaces.activate(member);
            fixture.spaces.instruction(member, &mut at(start));
            let mut regs = at(start + 5);
            assert_eq!(fixture.spaces.instruction(member, &mut regs), 1);
            assert_eq!(regs.rax, 0x2_06c1);
        }
        let grandchild = fixture.spaces.fork(child).unwrap();
        fixture.spaces.activate(grandchild);
        assert_eq!(fixture.spaces.instruction(grandchild, &mut at(start + 5)), 1);
    }
}
