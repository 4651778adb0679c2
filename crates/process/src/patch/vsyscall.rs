//! The three calls at fixed addresses that Linux has kept for old static programs (arch/x86/entry/vsyscall): `gettimeofday` at
//! 0xffffffffff600000, `time` 0x400 and `getcpu` 0x800 bytes after it.
//!
//! The host's kernel carries them out itself, whatever traps are set. So where code loads such an address, it is made to
//! load the one 0x100000 below, where nothing is: the jump there faults, and the node's kernel does what was meant
//! (`wt_vsyscall` in `kernel/arch/wt/kernel/fault.c`).

use iced_x86::{Code, Instruction};

/// Bytes 2 and 3 of all three addresses.
pub(super) const PAGE_BYTES: [u8; 2] = [0x60, 0xff];
/// What byte 2 becomes.
pub(super) const MOVED: u8 = 0x50;

/// The index to change, if a `mov` of one of the addresses to a register has its byte 2 at `at` of `code`.
pub(super) fn moved_byte(code: &[u8], at: usize) -> Option<usize> {
    let low = code.get(at.checked_sub(2)?..at)?;
    if low[0] != 0 || !matches!(low[1], 0 | 4 | 8) {
        return None;
    }
    // mov $imm32,%r64, extended by its sign; mov $imm64,%r64.
    let short = matches!(
        at.checked_sub(5).and_then(|start| code.get(start..at - 2)),
        Some([0x48 | 0x49, 0xc7, 0xc0..=0xc7])
    );
    let long = matches!(
        at.checked_sub(4).and_then(|start| code.get(start..at - 2)),
        Some([0x48 | 0x49, 0xb8..=0xbf])
    ) && code.get(at + 2..at + 6) == Some(&[0xff; 4]);
    (short || long).then_some(at)
}

/// Whether `insn` may be such a `mov`.
pub(super) fn is_loaded_by(insn: &Instruction) -> bool {
    let constant = match insn.code() {
        Code::Mov_rm64_imm32 => insn.immediate32to64() as u64,
        Code::Mov_r64_imm64 => insn.immediate64(),
        _ => return false,
    };
    constant >> 12 == 0xffff_ffff_ff60_0000 >> 12
}
