//! The instructions of the table in code that a program made itself, as a just-in-time compiler does.
//!
//! It is looked at when it first runs. What is reached from there by direct jumps and calls is decoded as the processor
//! will; around it, what decodes from many places agree on is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use memchr::memchr_iter;

use super::code::{self, Kind};
use super::unbounded::{self, Verdict};
use super::{ESCAPE, Seeing, instructions};

/// Instructions followed at most from the first.
const FOLLOWED_MAX: usize = 1 << 14;

/// An instruction to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Where its new bytes go.
    pub at: u64,
    /// Those.
    pub bytes: Vec<u8>,
    /// What it was.
    pub seeing: Seeing,
}

/// What is to be replaced in `bytes`, which stand at `start`, before the instruction at `entry` runs; by the address of the
/// instruction.
pub(crate) fn in_made_code(bytes: &[u8], start: u64, entry: u64) -> BTreeMap<u64, Replacement> {
    let mut found = BTreeMap::new();
    let mut add = |at: usize, seeing: Seeing| {
        let opcode = at + usize::from(seeing.prefixes);
        let old = bytes.get(opcode..bytes.len().min(opcode + 3)).unwrap_or_default();
        if let Some(new) = seeing.replacement(old) {
            let replacement = Replacement {
                at: start + opcode as u64,
                bytes: new,
                seeing,
            };
            found.insert(start + at as u64, replacement);
        }
    };
    let candidates: Vec<usize> = memchr_iter(ESCAPE, bytes)
        .filter(|&at| instructions::may_start(&bytes[at..], &bytes[..at]))
        .collect();
    if candidates.is_empty() {
        return found;
    }
    let followed = follow(bytes, start, entry, &mut add);
    for at in candidates {
        let decoded = followed.range(..=at).next_back().is_some_and(|(_, end)| *end > at);
        if let (false, Verdict::Sure(first, seeing)) = (decoded, unbounded::seeing_at(bytes, at)) {
            add(first, seeing);
        }
    }
    found
}

/// Decodes all that is reached from `entry` without leaving `bytes`, telling `add` what is in the table; the end of each
/// instruction by its start, both as indices.
fn follow(bytes: &[u8], start: u64, entry: u64, add: &mut impl FnMut(usize, Seeing)) -> BTreeMap<usize, usize> {
    let range: Range<u64> = start..start + bytes.len() as u64;
    let (mut seen, mut entries) = (BTreeMap::new(), BTreeSet::from([entry]));
    let mut insn = Instruction::default();
    while let Some(addr) = entries.pop_first() {
        let at = addr.wrapping_sub(start) as usize;
        if !range.contains(&addr) || seen.contains_key(&at) || seen.len() >= FOLLOWED_MAX {
            continue;
        }
        let mut decoder = Decoder::with_ip(64, &bytes[at..], addr, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = (decoder.ip() - start) as usize;
            decoder.decode_out(&mut insn);
            if insn.is_invalid() || seen.len() >= FOLLOWED_MAX || seen.insert(at, at + insn.len()).is_some() {
                break;
            }
            let classified = code::classify(&decoder, &insn, &bytes[at..at + insn.len()]);
            if let Kind::Seeing(seeing) = classified.kind {
                add(at, seeing);
            }
            entries.extend(code::branch_target(&insn));
            if matches!(
                insn.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            ) {
                break;
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7000;
    const CPUID: [u8; 2] = [0x0f, 0xa2];

    fn addresses(bytes: &[u8], entry: u64) -> Vec<u64> {
        in_made_code(bytes, START, START + entry).into_keys().collect()
    }

    #[test]
    fn what_is_reached_is_found_and_constants_are_not() {
        // jmp 1f; .byte cpuid; 1: jne 2f; mov $cpuid,%eax; ret; 2: cpuid; ret
        let code = [
            0xeb, 0x02, 0x0f, 0xa2, 0x75, 0x06, 0xb8, 0x0f, 0xa2, 0x0f, 0xa2, 0xc3, 0x0f, 0xa2, 0xc3,
        ];
        let found = in_made_code(&code, START, START);
        let only = found.get(&(START + 12)).expect("the cpuid");
        assert_eq!(
            (found.len(), only.at, &only.bytes[..]),
            (1, START + 12, &[0x0f, 0x08][..])
        );
        assert!(addresses(&code, 14).is_empty(), "too little around to be sure");
    }

    #[test]
    fn what_stands_around_is_found_where_decodes_agree() {
        let moves = [0x48, 0x89, 0xf8].repeat(40);
        let code = [&[0xc3][..], &moves, &CPUID, &moves].concat();
        assert_eq!(addresses(&code, 0), [START + 121]);
    }

    #[test]
    fn loops_and_ends_are_survived() {
        assert_eq!(addresses(&[0x0f, 0xa2, 0xeb, 0xfc], 0), [START]);
        assert_eq!(addresses(&[0x0f, 0xa2, 0xe8], 0), [START]);
        assert!(addresses(&[0x0f, 0xa2], 5).is_empty());
    }
}
