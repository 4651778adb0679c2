//! Sites in code of unknown bounds: stripped static programs without call frame information, assembly without it.
//!
//! Looked for there are `mov $nr,%eax; syscall`, and the instructions that show the processor. What is found is believed only
//! if decoding from many places before it agrees on it: x86 code falls into step within a few instructions, wherever a
//! decode starts.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::code::{self, Insn, Kind};
use super::instructions::Seeing;
use super::layout::Layout;
use super::targets::SHORT_REACH;

/// Where trial decodes start, in bytes before the `mov`: far enough to fall into step.
const TRIALS: Range<u64> = 32..96;
/// At least this many of the trials must arrive, and none may miss.
const TRIALS_NEEDED: usize = 32;
/// How many times those that arrive must outnumber those that do not, where a lone instruction is looked for.
const STRAYS_PER: usize = 8;
/// Bytes of the longest instruction.
const LONGEST: usize = 15;
/// Constants above this are no system call numbers.
const NR_MAX: u32 = 1023;

/// A `mov` of a number into rax and the `syscall` after it.
pub(super) type Pair = [Insn; 2];

/// The pair whose `syscall` is at `addr`, if that is what the bytes there surely are.
pub(super) fn pair_at(layout: &Layout<'_>, addr: u64) -> Option<Pair> {
    let code = layout.code_around(addr)?;
    // `mov $nr,%eax` has 5 bytes, `mov $nr,%rax` 7; the shorter one could be the tail of a longer instruction.
    [7, 5].into_iter().find_map(|mov_bytes| {
        let start = addr.checked_sub(mov_bytes).filter(|start| code.contains(start))?;
        let pair = code::decode(layout.bytes(start..addr + 2)?, start)?;
        let pair = Pair::try_from(pair.insns).ok()?;
        let numbered = matches!(pair[0].kind, Kind::Number(nr) if nr <= NR_MAX) && pair[1].kind == Kind::Syscall;
        (numbered && trials_agree(layout, code, &pair)).then_some(pair)
    })
}

/// Whether decodes from many places arrive at the pair, none jumps over it, and none meets a short jump into the `mov`.
fn trials_agree(layout: &Layout<'_>, code: &Range<u64>, pair: &Pair) -> bool {
    let mov = pair[0];
    let mut arrived = 0;
    for start in TRIALS
        .filter_map(|back| mov.addr.checked_sub(back))
        .filter(|start| code.contains(start))
    {
        match trial(layout, start, mov.addr) {
            Trial::Arrives => arrived += 1,
            Trial::Misses => return false,
            Trial::Nonsense => {}
        }
    }
    arrived >= TRIALS_NEEDED && !has_short_jump_into(layout, code, &(mov.addr + 1..mov.end()))
}

enum Trial {
    Arrives,
    Misses,
    Nonsense,
}

fn trial(layout: &Layout<'_>, start: u64, goal: u64) -> Trial {
    // Room for the longest instruction, so that one which reaches over the goal is complete.
    let Some(bytes) = layout.bytes(start..goal + 7) else {
        return Trial::Nonsense;
    };
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut insn = Instruction::default();
    while decoder.ip() < goal {
        decoder.decode_out(&mut insn);
        if insn.is_invalid() {
            return Trial::Nonsense;
        }
    }
    if decoder.ip() == goal {
        Trial::Arrives
    } else {
        Trial::Misses
    }
}

/// What bytes are that look like an instruction of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// That instruction, from this index on.
    Sure(usize, Seeing),
    /// Part of other ones.
    Other,
    /// Perhaps it.
    Unsure,
}

/// What the `0f` at index `at` of `code` belongs to.
pub(super) fn seeing_at(code: &[u8], at: usize) -> Verdict {
    let (mut found, mut arrived, mut missed) = (None, 0, 0);
    for start in TRIALS.filter_map(|back| at.checked_sub(back as usize)) {
        let Some(insn) = instruction_over(code, start, at) else {
            continue;
        };
        match insn.kind {
            Kind::Seeing(seeing) if insn.addr as usize + usize::from(seeing.prefixes) == at => {
                found = Some((insn.addr as usize, seeing));
                arrived += 1;
            }
            _ => missed += 1,
        }
    }
    match found {
        Some((start, seeing)) if arrived >= TRIALS_NEEDED && missed * STRAYS_PER < arrived => {
            Verdict::Sure(start, seeing)
        }
        Some(_) if arrived * STRAYS_PER > missed => Verdict::Unsure,
        _ => Verdict::Other,
    }
}

/// The instruction that holds index `goal`, in a decode from index `start`; its address is an index.
fn instruction_over(code: &[u8], start: usize, goal: usize) -> Option<Insn> {
    let bytes = code.get(start..(goal + LONGEST).min(code.len()))?;
    let mut decoder = Decoder::with_ip(64, bytes, start as u64, DecoderOptions::NONE);
    let mut insn = Instruction::default();
    while decoder.ip() <= goal as u64 {
        decoder.decode_out(&mut insn);
        if insn.is_invalid() {
            return None;
        }
    }
    let at = insn.ip() as usize - start;
    Some(code::classify(&decoder, &insn, &bytes[at..at + insn.len()]))
}

/// Whether bytes within reach read as a short jump into `inside`.
fn has_short_jump_into(layout: &Layout<'_>, code: &Range<u64>, inside: &Range<u64>) -> bool {
    let start = inside.start.saturating_sub(SHORT_REACH).max(code.start);
    let end = (inside.end + SHORT_REACH).min(code.end);
    let Some(bytes) = layout.bytes(start..end) else {
        return true;
    };
    bytes.windows(2).zip(start..).any(|(pair, addr)| {
        let branches = matches!(pair[0], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
        branches && inside.contains(&(addr + 2).wrapping_add_signed(i64::from(pair[1] as i8)))
    })
}
