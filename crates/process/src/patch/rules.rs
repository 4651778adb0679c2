//! Which instructions to replace at a system call site.
//!
//! A patch is a five-byte jump, and `syscall` has two bytes, so neighbours must make room. The rules, in order:
//!
//! | rule | replaced | moved to the trampoline |
//! |---|---|---|
//! | R1 | `mov $nr,%eax` right before | the `mov` |
//! | R3 | at least five bytes of instructions right before | those |
//! | R3b | at least three bytes before, and the `syscall` | those before |
//! | R2 | the `syscall` and at least three bytes after | those after |
//!
//! R1 and R3 leave the `syscall` in place, so a jump straight to it still works. The same rules serve `rdtsc` and `rdtscp`,
//! which trap where they stand: R2 first. No rule touches an instruction that
//! something may jump to, but for the first of a patch.

use std::ops::Range;

use super::code::{Insn, Kind};
use super::targets::Targets;
use super::trampoline::JMP_BYTES;

/// `rt_sigreturn`. Debuggers and unwinders know signal frames by the bytes of this call: they stay as they are.
const SIGRETURN: Kind = Kind::Number(15);
/// How many instructions before a `syscall` may load its number.
const NUMBER_REACH: usize = 8;

/// How a site was patched; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    R1,
    R3,
    R3b,
    R2,
}

/// A decision to patch one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan<'a> {
    pub rule: Rule,
    /// Instructions to move that stand right before the `syscall`.
    pub before: &'a [Insn],
    /// The `syscall`, or what else is to be carried out.
    pub site: Insn,
    /// Instructions to move that stand right after it.
    pub after: &'a [Insn],
}

impl Plan<'_> {
    /// The addresses that get new bytes.
    pub fn range(&self) -> Range<u64> {
        let start = self.before.first().unwrap_or(&self.site).addr;
        let end = match self.rule {
            Rule::R1 | Rule::R3 => self.site.addr,
            Rule::R3b => self.site.end(),
            Rule::R2 => self.after.last().unwrap_or(&self.site).end(),
        };
        start..end
    }
}

/// The sites of one function.
pub(super) struct Sites<'a> {
    /// The function's instructions, without gaps.
    pub insns: &'a [Insn],
    /// Where something may jump to.
    pub targets: &'a Targets,
    /// Its jumps are not all known: any instruction may be a target. Then a patch may replace just one, because nobody
    /// jumps into the middle of an instruction.
    pub unknown_jumps: bool,
}

impl<'a> Sites<'a> {
    /// Indices of all instructions to be carried out in a trampoline.
    pub fn indices(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.insns
            .iter()
            .enumerate()
            .filter(|(_, insn)| insn.is_site())
            .map(|(index, _)| index)
    }

    /// The first rule that fits the site at `index`, using nothing below address `floor`.
    pub fn plan(&self, index: usize, floor: u64) -> Option<Plan<'a>> {
        if self.insns[index].kind == Kind::Syscall && self.is_sigreturn(index) {
            return None;
        }
        let plan = |rule, before, after| Plan {
            rule,
            before,
            site: self.insns[index],
            after,
        };
        let none: &[Insn] = &[];
        let beside = JMP_BYTES.saturating_sub(u64::from(self.insns[index].len));
        if self.insns[index].kind == Kind::Counter
            && let Some(after) = self.after(index, beside, floor)
        {
            // Loops jump straight to it.
            return Some(plan(Rule::R2, none, after));
        }
        if let Some(before) = self.before(index, JMP_BYTES, floor, false) {
            let is_number = matches!(
                before,
                [Insn {
                    kind: Kind::Number(_),
                    ..
                }]
            );
            return Some(plan(if is_number { Rule::R1 } else { Rule::R3 }, before, none));
        }
        if let Some(before) = self.before(index, beside, floor, true) {
            return Some(plan(Rule::R3b, before, none));
        }
        let after = self.after(index, beside, floor)?;
        Some(plan(Rule::R2, none, after))
    }

    fn is_sigreturn(&self, index: usize) -> bool {
        let near = &self.insns[index.saturating_sub(NUMBER_REACH)..index];
        let decides = |insn: &&Insn| insn.kind == SIGRETURN || !insn.is_movable();
        near.iter()
            .rev()
            .find(decides)
            .is_some_and(|insn| insn.kind == SIGRETURN)
    }

    /// The fewest instructions right before `index` that have `bytes` bytes and may be replaced, with or without the
    /// site itself.
    fn before(&self, index: usize, bytes: u64, floor: u64, with_syscall: bool) -> Option<&'a [Insn]> {
        let end = if with_syscall {
            self.insns[index].end()
        } else {
            self.insns[index].addr
        };
        for first in (0..index).rev() {
            let insn = self.insns[first];
            let alone = first + 1 == index && !with_syscall;
            if insn.addr < floor || !insn.is_movable() || self.unknown_jumps && !alone {
                return None;
            }
            if self.targets.any_in(insn.addr + 1..end) {
                return None;
            }
            if self.insns[index].addr - insn.addr >= bytes {
                return Some(&self.insns[first..index]);
            }
        }
        None
    }

    /// The fewest instructions right after `index` that have `bytes` bytes and may be replaced with it.
    fn after(&self, index: usize, bytes: u64, floor: u64) -> Option<&'a [Insn]> {
        let site = self.insns[index];
        if self.unknown_jumps || site.addr < floor {
            return None;
        }
        for last in index + 1..self.insns.len() {
            let insn = self.insns[last];
            let stays = !insn.is_movable() || insn.kind == SIGRETURN;
            if stays || self.targets.any_in(site.addr + 1..insn.end()) {
                return None;
            }
            if insn.end() - site.end() >= bytes {
                return Some(&self.insns[index + 1..=last]);
            }
        }
        None
    }
}
