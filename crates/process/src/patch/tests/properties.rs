//! Random programs and damaged files.

use proptest::prelude::*;

use super::super::{Patched, analyse};
use super::elf::{TEXT, TestElf};
use super::trace::{Image, trace};

/// Instructions that may move, of 1 to 10 bytes, some with operands relative to rip.
const PLAIN: [&[u8]; 10] = [
    &[0x90],                                     // nop
    &[0x31, 0xc0],                               // xor %eax,%eax
    &[0x48, 0x89, 0xf7],                         // mov %rsi,%rdi
    &[0x8b, 0x44, 0x24, 0x10],                   // mov 0x10(%rsp),%eax
    &[0xb8, 39, 0, 0, 0],                        // mov $39,%eax
    &[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff],       // cmp $-4096,%rax
    &[0x48, 0xc7, 0xc0, 60, 0, 0, 0],            // mov $60,%rax
    &[0x48, 0x8d, 0x3d, 0x80, 0x1f, 0, 0],       // lea 0x1f80(%rip),%rdi
    &[0xc7, 0x05, 0x90, 0x1f, 0, 0, 7, 0, 0, 0], // movl $7,0x1f90(%rip)
    &[0x64, 0x83, 0x3c, 0x25, 0x18, 0, 0, 0, 0], // cmpl $0,%fs:0x18
];

/// One item of a program; jumps go to the item this far away, if there is one.
#[derive(Clone, Debug)]
enum Item {
    Plain(usize),
    Syscall,
    Rdtsc,
    Rdtscp,
    Sigreturn,
    JumpShort(i64),
    BranchShort(i64),
    BranchLong(i64),
    Call(i64),
    CallRegister,
    JumpRegister,
    Ret,
}

impl Item {
    /// Opcode, distance, bytes of the displacement.
    fn encode(&self) -> (&'static [u8], Option<(i64, usize)>) {
        match *self {
            Self::Plain(index) => (PLAIN[index], None),
            Self::Syscall => (&[0x0f, 0x05], None),
            Self::Rdtsc => (&[0x0f, 0x31], None),
            Self::Rdtscp => (&[0x0f, 0x01, 0xf9], None),
            Self::Sigreturn => (&[0xb8, 15, 0, 0, 0, 0x0f, 0x05], None),
            Self::JumpShort(to) => (&[0xeb], Some((to, 1))),
            Self::BranchShort(to) => (&[0x74], Some((to, 1))),
            Self::BranchLong(to) => (&[0x0f, 0x85], Some((to, 4))),
            Self::Call(to) => (&[0xe8], Some((to, 4))),
            Self::CallRegister => (&[0xff, 0xd3], None),
            Self::JumpRegister => (&[0xff, 0xe0], None),
            Self::Ret => (&[0xc3], None),
        }
    }

    fn bytes(&self) -> usize {
        let (opcode, jump) = self.encode();
        opcode.len() + jump.map_or(0, |(_, bytes)| bytes)
    }
}

fn item() -> impl Strategy<Value = Item> {
    // Within reach of a short jump: eight items of at most ten bytes.
    let near = -8i64..8;
    prop_oneof![
        12 => (0..PLAIN.len()).prop_map(Item::Plain),
        6 => Just(Item::Syscall),
        2 => Just(Item::Rdtsc),
        2 => Just(Item::Rdtscp),
        1 => Just(Item::Sigreturn),
        1 => near.clone().prop_map(Item::JumpShort),
        1 => near.clone().prop_map(Item::BranchShort),
        1 => near.clone().prop_map(Item::BranchLong),
        1 => near.prop_map(Item::Call),
        1 => Just(Item::CallRegister),
        1 => Just(Item::Ret),
    ]
}

/// A program, where its items start, and which of those something jumps to.
struct Program {
    code: Vec<u8>,
    starts: Vec<usize>,
    labels: Vec<usize>,
}

fn assemble(items: &[Item]) -> Program {
    let mut starts = vec![0];
    for item in items {
        starts.push(starts.last().unwrap() + item.bytes());
    }
    let mut program = Program {
        code: Vec::new(),
        starts,
        labels: vec![0],
    };
    for (index, item) in items.iter().enumerate() {
        let (opcode, jump) = item.encode();
        program.code.extend(opcode);
        if let Some((distance, bytes)) = jump {
            let to = (index as i64 + distance).clamp(0, items.len() as i64 - 1) as usize;
            let displacement = program.starts[to] as i64 - program.starts[index + 1] as i64;
            program.code.extend(&displacement.to_le_bytes()[..bytes]);
            program.labels.push(program.starts[to]);
        }
    }
    program
}

/// What holds of every patch, whatever the file.
fn check(program: &Program, patched: &Patched, entries: &[usize]) -> Result<(), TestCaseError> {
    for (offset, bytes) in &patched.text {
        let start = offset.checked_sub(TEXT).expect("a patch before the text") as usize;
        let end = start + bytes.len();
        prop_assert!(end <= program.code.len(), "outside the text");
        prop_assert!(bytes.len() >= 5);
        prop_assert!(
            program.starts.contains(&start) && program.starts.contains(&end),
            "whole instructions"
        );
        prop_assert!(
            entries.iter().all(|&label| label <= start || label >= end),
            "a target inside {start}..{end}"
        );
    }
    let text = vec![(TEXT, program.code.clone())];
    let before = Image::new(text.clone());
    let after = Image::patched(text, patched, |offset| offset);
    for &entry in entries {
        let addr = TEXT + entry as u64;
        prop_assert_eq!(trace(&before, addr, 40), trace(&after, addr, 40), "from {:#x}", addr);
    }
    prop_assert_eq!(patched.stats.sites, patched.stats.patched() + patched.stats.left);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn patched_programs_do_what_they_did(items in prop::collection::vec(item(), 2..40), cut in 1usize..40) {
        let program = assemble(&items);
        let mut elf = TestElf::function(&program.code);
        // Two functions that jump into each other.
        let cut = program.starts[cut.min(items.len() - 1)];
        elf.functions = vec![0..cut, cut..program.code.len()];
        let patched = analyse(&elf.build()).expect("a valid file");
        let sites = items.iter().filter(|item| matches!(item, Item::Syscall | Item::Sigreturn)).count();
        prop_assert_eq!(patched.stats.sites as usize, sites);
        let mut entries = program.labels.clone();
        entries.push(cut);
        check(&program, &patched, &entries)?;
    }

    #[test]
    fn with_an_indirect_jump_any_instruction_may_be_its_target(mut items in prop::collection::vec(item(), 2..30)) {
        items.push(Item::JumpRegister);
        // The number of rt_sigreturn and its call are one item here, and nothing may jump between them.
        let program = assemble(&items);
        let patched = analyse(&TestElf::function(&program.code).build()).expect("a valid file");
        check(&program, &patched, &program.starts[..items.len()])?;
    }

    #[test]
    fn damaged_files_are_refused_or_analysed(
        items in prop::collection::vec(item(), 2..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let program = assemble(&items);
        let mut file = TestElf::function(&program.code).build();
        damage(&mut file, &changes);
        if cut {
            file.truncate(keep.index(file.len()));
        }
        let _ = analyse(&file);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_dynamic_linker_is_refused_or_analysed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64),
    ) {
        if let Ok(mut file) = std::fs::read("/lib64/ld-linux-x86-64.so.2") {
            damage(&mut file, &changes);
            let _ = analyse(&file);
        }
    }
}

/// Changes bytes; half of them in the headers and tables at both ends, where it matters most.
fn damage(file: &mut [u8], changes: &[(prop::sample::Index, u8)]) {
    for (number, (at, byte)) in changes.iter().enumerate() {
        let len = file.len();
        let index = match number % 4 {
            0 => at.index(len.min(0x400)),
            1 => len - 1 - at.index(len.min(0x400)),
            _ => at.index(len),
        };
        file[index] = *byte;
    }
}
