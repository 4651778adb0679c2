//! The machine code of trampolines and of the jumps to them.

use std::mem::offset_of;

use windtunnel_kernel::abi;

use super::code::{Insn, Kind};
use super::layout::Layout;
use super::rules::{Plan, Rule};

/// Trampolines start at multiples of this many bytes: a fetch block of the processor.
const ALIGN: u64 = 16;
/// `jmp *%gs:0`
const ENTER: [u8; 8] = [0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0];
/// `jmp *%gs:disp32` without its displacement
const ENTER_AT: [u8; 4] = [0x65, 0xff, 0x24, 0x25];
/// Where the entry for a read of the time stamp counter is.
const CLOCK_ENTRY: u32 = offset_of!(abi::Thread, clock_entry) as u32;
/// `lea disp32(%rip),%rax` without its displacement
const LEA_RAX: [u8; 3] = [0x48, 0x8d, 0x05];
/// `mov $0,%ecx`: the CPU, as `rdtscp` tells it; leaves the flags alone.
const MOV_ECX_0: [u8; 5] = [0xb9, 0, 0, 0, 0];
/// Bytes of `rdtscp`; `rdtsc` has 2.
const RDTSCP_BYTES: u8 = 3;
/// `lea disp32(%rip),%rcx` without its displacement
const LEA_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];
/// `syscall`
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `int3`: between trampolines, where nothing goes.
const PADDING: u8 = 0xcc;
/// `jmp rel32` without its displacement
const JMP: u8 = 0xe9;
/// Bytes of `jmp rel32`.
pub(super) const JMP_BYTES: u64 = 5;

/// All trampolines of one file, growing.
pub(super) struct Trampolines {
    vaddr: u64,
    bytes: Vec<u8>,
}

impl Trampolines {
    /// None yet; the first will be at `vaddr`.
    pub fn new(vaddr: u64) -> Self {
        Self {
            vaddr,
            bytes: Vec::new(),
        }
    }

    /// The finished machine code.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends the trampoline for `plan` and returns the bytes to stand in its range from now on. `None`, and nothing
    /// appended, if some displacement does not fit.
    pub fn add(&mut self, layout: &Layout<'_>, plan: &Plan<'_>) -> Option<Vec<u8>> {
        let before = self.bytes.len();
        let patched = self.try_add(layout, plan);
        if patched.is_none() {
            self.bytes.truncate(before);
        }
        patched
    }

    fn try_add(&mut self, layout: &Layout<'_>, plan: &Plan<'_>) -> Option<Vec<u8>> {
        while !self.here().is_multiple_of(ALIGN) {
            self.bytes.push(PADDING);
        }
        let start = self.here();
        for insn in plan.before {
            self.relocate(layout, insn)?;
        }
        if plan.site.kind == Kind::Counter {
            self.counter(layout, plan)?;
            return jump_over(plan, start);
        }
        self.bytes.extend(LEA_RCX);
        match plan.rule {
            Rule::R1 | Rule::R3 => {
                self.displacement(plan.site.end())?;
                self.bytes.extend(ENTER);
            }
            Rule::R3b | Rule::R2 => {
                let resume = self.here() + 4 + (ENTER.len() + SYSCALL.len()) as u64;
                self.displacement(resume)?;
                self.bytes.extend(ENTER);
                self.bytes.extend(SYSCALL);
                for insn in plan.after {
                    self.relocate(layout, insn)?;
                }
                self.bytes.push(JMP);
                self.displacement(plan.range().end)?;
            }
        }
        jump_over(plan, start)
    }

    /// What stands in place of `rdtsc`: its results are the two registers that it needs itself, so that it uses no stack.
    fn counter(&mut self, layout: &Layout<'_>, plan: &Plan<'_>) -> Option<()> {
        self.bytes.extend(LEA_RAX);
        let resume = self.here() + 4 + (ENTER_AT.len() + 4) as u64;
        self.displacement(resume)?;
        self.bytes.extend(ENTER_AT);
        self.bytes.extend(CLOCK_ENTRY.to_le_bytes());
        if plan.site.len == RDTSCP_BYTES {
            self.bytes.extend(MOV_ECX_0);
        }
        for insn in plan.after {
            self.relocate(layout, insn)?;
        }
        self.bytes.push(JMP);
        self.displacement(plan.range().end.max(plan.site.end()))
    }

    fn here(&self) -> u64 {
        self.vaddr + self.bytes.len() as u64
    }

    /// Appends the distance from the end of this 32-bit field to `to`.
    fn displacement(&mut self, to: u64) -> Option<()> {
        let value = i32::try_from(to as i64 - (self.here() + 4) as i64).ok()?;
        self.bytes.extend(value.to_le_bytes());
        Some(())
    }

    fn relocate(&mut self, layout: &Layout<'_>, insn: &Insn) -> Option<()> {
        let moved_by = insn.addr as i64 - self.here() as i64;
        let copy = self.bytes.len();
        self.bytes.extend(layout.bytes(insn.addr..insn.end())?);
        if let Some(at) = insn.displacement_at {
            let field = self.bytes.get_mut(copy + usize::from(at)..)?.first_chunk_mut::<4>()?;
            let value = i64::from(i32::from_le_bytes(*field)) + moved_by;
            *field = i32::try_from(value).ok()?.to_le_bytes();
        }
        Some(())
    }
}

/// `jmp trampoline`, then no-operations to the end of the range, so that a disassembler keeps its step.
fn jump_over(plan: &Plan<'_>, trampoline: u64) -> Option<Vec<u8>> {
    let range = plan.range();
    let mut bytes = vec![JMP];
    let displacement = i32::try_from(trampoline as i64 - (range.start + JMP_BYTES) as i64).ok()?;
    bytes.extend(displacement.to_le_bytes());
    let mut left = (range.end - range.start).checked_sub(JMP_BYTES)? as usize;
    while left > 0 {
        let nop = NOPS[left.min(NOPS.len()) - 1];
        bytes.extend(nop);
        left -= nop.len();
    }
    Some(bytes)
}

/// The no-operations of 1 to 9 bytes that Intel's manual recommends (NOP in volume 2).
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
];
