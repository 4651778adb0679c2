//! Linear decode of one function into what the patching rules ask about its instructions.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instructions::Seeing;
use super::vsyscall;

/// One instruction in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insn {
    /// Address of its first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u8,
    /// Where in it a 32-bit displacement relative to its end stands, if it addresses memory that way.
    pub displacement_at: Option<u8>,
    /// What may be done with it.
    pub kind: Kind,
}

impl Insn {
    /// Address of the byte after its last.
    pub fn end(&self) -> u64 {
        self.addr + u64::from(self.len)
    }

    /// It is carried out by a kernel, by way of a trampoline.
    pub fn is_site(&self) -> bool {
        matches!(self.kind, Kind::Syscall | Kind::Counter)
    }

    /// It does the same wherever it stands, once its displacement is adjusted.
    pub fn is_movable(&self) -> bool {
        matches!(self.kind, Kind::Plain | Kind::Number(_))
    }
}

/// What the rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes on to the next instruction and does not care where it stands.
    Plain,
    /// Plain, and loads rax with this constant: `mov $nr,%eax` or `mov $nr,%rax`.
    Number(u32),
    /// `syscall`.
    Syscall,
    /// `rdtsc` or `rdtscp`.
    Counter,
    /// Shows the host's processor.
    Seeing(Seeing),
    /// Must stay where it is.
    Fixed,
}

/// A decoded function.
pub(super) struct Body {
    /// Its instructions, without gaps, to its last byte.
    pub insns: Vec<Insn>,
    /// Where its direct jumps and calls go, in it and elsewhere.
    pub targets: Vec<u64>,
    /// It jumps to a computed address, perhaps through a table of places in itself.
    pub indirect_jump: bool,
}

/// Decodes `bytes`, which stand at `start`, from the first to the last.
///
/// `None` unless it all makes sense as code: no invalid or truncated instruction, and every jump within the range lands
/// on one of the instructions found.
pub(super) fn decode(bytes: &[u8], start: u64) -> Option<Body> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut body = Body {
        insns: Vec::with_capacity(bytes.len() / 4),
        targets: Vec::new(),
        indirect_jump: false,
    };
    let mut insn = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut insn);
        if insn.is_invalid() {
            return None;
        }
        body.targets.extend(branch_target(&insn));
        body.indirect_jump |= jumps_to_computed_address(&insn);
        let at = (insn.ip() - start) as usize;
        body.insns.push(classify(&decoder, &insn, &bytes[at..at + insn.len()]));
    }
    let range = start..start + bytes.len() as u64;
    body.jumps_land_on_instructions(&range, bytes).then_some(body)
}

impl Body {
    /// It holds a `syscall`, or something else to be carried out in a trampoline.
    pub fn has_site(&self) -> bool {
        self.insns.iter().any(Insn::is_site)
    }

    fn jumps_land_on_instructions(&self, range: &Range<u64>, bytes: &[u8]) -> bool {
        let lands = |target: u64| match self.insns.binary_search_by_key(&target, |i| i.addr) {
            Ok(_) => true,
            // glibc skips a `lock` prefix where there is but one thread.
            Err(after) => {
                let insn = self.insns[after - 1];
                insn.addr + 1 == target && bytes[(insn.addr - range.start) as usize] == LOCK_PREFIX
            }
        };
        self.targets
            .iter()
            .filter(|target| range.contains(target))
            .all(|&target| lands(target))
    }
}

const LOCK_PREFIX: u8 = 0xf0;

/// Where a direct jump or call goes.
pub(super) fn branch_target(insn: &Instruction) -> Option<u64> {
    matches!(insn.op0_kind(), OpKind::NearBranch64).then(|| insn.near_branch64())
}

/// An indirect jump, except one through a fixed word of memory: such a word is seen among the data.
fn jumps_to_computed_address(insn: &Instruction) -> bool {
    insn.flow_control() == FlowControl::IndirectBranch && !insn.is_ip_rel_memory_operand()
}

/// What `insn`, of these bytes, is to the rules.
pub(super) fn classify(decoder: &Decoder<'_>, insn: &Instruction, bytes: &[u8]) -> Insn {
    let offsets = decoder.get_constant_offsets(insn);
    let relative = insn.is_ip_rel_memory_operand();
    let adjustable = relative && insn.memory_base() == Register::RIP && offsets.displacement_size() == 4;
    let kind = if insn.code() == Code::Syscall {
        Kind::Syscall
    } else if matches!(insn.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp) {
        Kind::Counter
    } else if let Some(seeing) = Seeing::of(insn, bytes) {
        Kind::Seeing(seeing)
    } else if insn.flow_control() != FlowControl::Next || stays_put(insn) || relative && !adjustable {
        Kind::Fixed
    } else {
        number(insn).map_or(Kind::Plain, Kind::Number)
    };
    Insn {
        addr: insn.ip(),
        len: insn.len() as u8,
        displacement_at: adjustable.then(|| offsets.displacement_offset() as u8),
        kind,
    }
}

/// Instructions that go on to the next and still belong to their place: landing marks for indirect jumps, those that
/// trap, whose handler may look where they stand, and those whose constant is replaced.
fn stays_put(insn: &Instruction) -> bool {
    insn.is_privileged()
        || vsyscall::is_loaded_by(insn)
        || matches!(insn.mnemonic(), Mnemonic::Endbr32 | Mnemonic::Endbr64)
}

/// The constant that `mov` puts into rax, if it clears the upper half of rax or is not negative.
fn number(insn: &Instruction) -> Option<u32> {
    let register = match insn.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 => Register::EAX,
        Code::Mov_rm64_imm32 => Register::RAX,
        _ => return None,
    };
    let loads = insn.op0_kind() == OpKind::Register && insn.op0_register() == register;
    loads.then(|| insn.immediate32())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(bytes: &[u8]) -> Vec<Kind> {
        decode(bytes, 0x1000)
            .expect("valid code")
            .insns
            .iter()
            .map(|i| i.kind)
            .collect()
    }

    #[test]
    fn numbers_are_recognised_in_all_their_forms() {
        let mov_eax = [0xb8, 39, 0, 0, 0];
        let mov_rm_eax = [0xc7, 0xc0, 39, 0, 0, 0];
        let mov_rax = [0x48, 0xc7, 0xc0, 39, 0, 0, 0];
        for bytes in [&mov_eax[..], &mov_rm_eax, &mov_rax] {
            assert_eq!(kinds(bytes), [Kind::Number(39)]);
        }
        let mov_ecx = [0xb9, 39, 0, 0, 0];
        let mov_memory = [0xc7, 0x00, 39, 0, 0, 0];
        let mov_r8 = [0x49, 0xc7, 0xc0, 39, 0, 0, 0];
        for bytes in [&mov_ecx[..], &mov_memory, &mov_r8] {
            assert_eq!(kinds(bytes), [Kind::Plain]);
        }
    }

    #[test]
    fn what_depends_on_its_place_is_fixed() {
        let fixed: [&[u8]; 7] = [
            &[0xf3, 0x0f, 0x1e, 0xfa],                   // endbr64
            &[0xe8, 0, 0, 0, 0],                         // call
            &[0xff, 0xd0],                               // call *%rax
            &[0xc3],                                     // ret
            &[0xcc],                                     // int3
            &[0xf4],                                     // hlt
            &[0x67, 0x8b, 0x05, 0x00, 0x01, 0x00, 0x00], // mov 0x100(%eip),%eax
        ];
        for bytes in fixed {
            assert_eq!(kinds(bytes), [Kind::Fixed], "{bytes:02x?}");
        }
        assert_eq!(kinds(&[0x0f, 0x05]), [Kind::Syscall]);
    }

    #[test]
    fn rip_relative_operands_are_located() {
        // movl $7,0x10(%rip): the displacement is followed by an immediate.
        let body = decode(&[0xc7, 0x05, 0x10, 0, 0, 0, 7, 0, 0, 0], 0).unwrap();
        assert_eq!(body.insns[0].displacement_at, Some(2));
    }

    #[test]
    fn code_that_does_not_add_up_is_not_believed() {
        assert!(decode(&[0x06], 0).is_none(), "invalid in 64-bit mode");
        assert!(decode(&[0xb8, 0, 0], 0).is_none(), "truncated");
        assert!(
            decode(&[0xeb, 0x01, 0xb8, 0, 0, 0, 0], 0).is_none(),
            "jump into the middle of a mov"
        );
        let skips_lock = [0x74, 0x01, 0xf0, 0x48, 0xff, 0x00];
        assert!(decode(&skips_lock, 0).is_some(), "jump over a lock prefix");
    }

    #[test]
    fn only_jumps_to_computed_addresses_count_as_indirect() {
        assert!(decode(&[0xff, 0xe0], 0).unwrap().indirect_jump, "jmp *%rax");
        assert!(
            decode(&[0xff, 0x24, 0xc5, 0, 0, 0x40, 0], 0).unwrap().indirect_jump,
            "jmp *table(,%rax,8)"
        );
        assert!(
            !decode(&[0xff, 0x25, 0, 1, 0, 0], 0).unwrap().indirect_jump,
            "jmp *word(%rip)"
        );
    }
}
