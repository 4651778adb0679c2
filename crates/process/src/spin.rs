//! Whether a program waits in a loop that cannot end by itself.
//!
//! While a program runs nothing else in its node does, and no time passes. So if all it has, registers and memory, is at
//! some time as it was before, it will be so again and again: it waits for another program, or for a signal. That is
//! found by carrying out its instructions on a copy ([`cpu`], [`memory`]), for some of them, from where it was
//! interrupted. What [`cpu`] does not know is taken for work, and so is what reaches beyond the program's own memory.
//!
//! The states that come again make a cycle, which is a property of the program: wherever it was interrupted, it gets
//! into the same one. That is why the place in the cycle where it is to sleep can be chosen so that it does not depend on
//! when that was: see [`Cycle::place`].

mod cpu;
mod memory;

use windtunnel_kernel::abi;

use cpu::{Cpu, State};
use memory::{Memory, Write};
pub(crate) use memory::{Page, Pages};

/// Longest cycle that counts, instructions. A bound of its own, so that what counts does not depend on how long is
/// looked: see [`BUDGET_MAX`].
const CYCLE_MAX: u64 = 1 << 18;
/// Instructions after which every cycle within the bound is found, if the program is in it already: the state that is
/// remembered is replaced at most after twice as many of them as the cycle has, and must come again.
pub const BUDGET_MAX: u64 = 4 * CYCLE_MAX;

/// A program that spins: how it is where it shall sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spin {
    /// Its registers.
    pub regs: abi::Regs,
    /// What its memory holds then and does not now: address and bytes, ascending.
    pub writes: Vec<Write>,
    /// Instructions of a round.
    pub cycle: u64,
}

/// Looks whether the program with these registers spins, for `budget` instructions; `choice` is an arbitrary number
/// that chooses where in the loop it shall sleep.
pub(crate) fn find(pages: &mut dyn Pages, regs: &abi::Regs, fs: u64, budget: u64, choice: u64) -> Option<Spin> {
    let mut cpu = Cpu::new(State::of(regs), fs, Memory::new(pages))?;
    let length = meet_again(&mut cpu, budget)?;
    let place = Cycle { length }.place(&mut cpu, choice)?;
    Some(Spin {
        regs: place.to_regs(),
        writes: cpu.memory.changes(),
        cycle: length,
    })
}

/// Runs until a state comes again; the length of the cycle, whose states are all that follow. This is Brent's
/// algorithm over the states after jumps backwards, of which each loop has one.
fn meet_again(cpu: &mut Cpu<'_>, budget: u64) -> Option<u64> {
    let (mut jumps, mut jumps_until_next) = (0u64, 1u64);
    let mut remembered = cpu.state;
    let mut since = 0;
    cpu.memory.remember();
    for _ in 0..budget {
        let from = cpu.state.rip;
        cpu.step()?;
        since += 1;
        if cpu.state.rip > from {
            continue;
        }
        if cpu.state == remembered && cpu.memory.is_as_remembered() {
            return (since <= CYCLE_MAX).then_some(since);
        }
        jumps += 1;
        if jumps == jumps_until_next {
            jumps = 0;
            jumps_until_next *= 2;
            remembered = cpu.state;
            since = 0;
            cpu.memory.remember();
        }
    }
    None
}

/// The states that come again and again, from a program that is in one of them.
struct Cycle {
    length: u64,
}

impl Cycle {
    /// Brings the program to the state where it shall sleep: so many instructions after the cycle's first state as
    /// `choice` says. First is the one with the lowest address; among those at the same address the one with the least
    /// registers, then the one with the least memory. All that depends on the cycle only.
    ///
    /// Always the same place would not do: the program may hold a lock there that others wait for.
    fn place(&self, cpu: &mut Cpu<'_>, choice: u64) -> Option<State> {
        cpu.memory.remember();
        let mut lowest = cpu.state.rip;
        for _ in 0..self.length {
            cpu.step()?;
            lowest = lowest.min(cpu.state.rip);
        }
        let written = cpu.memory.written();
        let mut first: Option<(State, Vec<u8>, u64)> = None;
        for at in 0..self.length {
            if cpu.state.rip == lowest {
                let order = first.as_ref().map(|(state, ..)| cpu.state.cmp(state));
                if order.is_none_or(|order| order.is_le()) {
                    let memory = cpu.memory.values(&written);
                    if first
                        .as_ref()
                        .is_none_or(|(state, least, _)| (&cpu.state, &memory) < (state, least))
                    {
                        first = Some((cpu.state, memory, at));
                    }
                }
            }
            cpu.step()?;
        }
        let (_, _, first_at) = first?;
        for _ in 0..(first_at + choice % self.length) % self.length {
            cpu.step()?;
        }
        Some(cpu.state)
    }
}

/// Carries out the one instruction at `rip`; registers by number, then flags, and the word at `address` afterwards.
#[cfg(test)]
pub(crate) fn run_one(pages: &mut dyn Pages, rip: u64, before: &[u64; 17], address: u64) -> Option<([u64; 17], u64)> {
    let [general @ .., flags] = *before;
    let state = State { rip, flags, general };
    let mut cpu = Cpu::new(state, 0, Memory::new(pages))?;
    cpu.step()?;
    let mut after = [0; 17];
    after[..16].copy_from_slice(&cpu.state.general);
    after[16] = cpu.state.flags;
    Some((after, cpu.memory.read(address, 8)?))
}

#[cfg(test)]
mod tests;
