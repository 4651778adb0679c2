//! Programs that compute in real time: after a slice of the wall clock they make way for what is due.
//!
//! A turn is what the run does between two looks at the wall clock, a window mostly. While one lasts, the host's timer ticks
//! ([`Ticks`]). A program whose slice is over sleeps until the virtual time that the wall clock shows by then, as on a computer
//! on which it took that long. So what was due before, in its node and in others, happens first, and programs of one node take
//! turns.
//!
//! How far a program had got depends on the host, so a replay cannot repeat it. That is why a first slice is long: most programs
//! start, and do what they have to between two system calls, within it, and are the same with and without a clock. Those that
//! do not have short slices from then on. All are counted, and told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windtunnel_process::trap::Ticks;

use crate::pacer::Pacer;
use crate::shared::Shared;

/// How often programs are looked at, ns of the wall clock. A short slice is two of these, or one after another slice in the same
/// turn: so what is due waits for less than 1 ms while no more than two programs compute.
const TICK_NS: u64 = 300_000;
/// CPU time of a long slice, at one instant of virtual time, ns: with the ticks it is 5 ms at most. What the engine does for a
/// program, as when it maps files, is none of it.
const LONG_NS: u64 = 4_400_000;
/// The same before the clock begins: nothing waits outside, and programs are loaded.
const TICK_BEFORE_NS: u64 = 250_000_000;
const LONG_BEFORE_NS: u64 = 1_000_000_000;
/// What a program gets of the processor at least, in parts of a tick: less was the host's doing.
const SHARE: (u64, u64) = (4, 5);
/// It sleeps for no longer, ns, if the run is far behind: it gets its share while that catches up.
const SLEEP_MAX_NS: u64 = 5_000_000;
/// After so many slices, twice as many, and so on, it is looked whether the program only waits in a loop.
const LOOK_AFTER: u64 = 40;

/// What becomes of a program at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// How long it sleeps, ns of virtual time.
    pub sleep_ns: u64,
    /// Whether it is time to look for a loop.
    pub look: bool,
    /// The first one of its node.
    pub first: bool,
}

/// A program at a tick.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its node and its thread there.
    pub program: (u32, u64),
    /// The pulse of the run, and system calls so far: nothing but computing was done as long as they are the same.
    pub done: (u64, u64),
    /// Virtual time of the entry, ns.
    pub now_ns: u64,
    /// The host's monotonic clock, ns.
    pub wall_ns: u64,
    /// CPU time of the simulation thread, ns.
    pub cpu_ns: u64,
}

/// A program as ticks of one turn found it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    program: (u32, u64),
    /// Virtual time, ns.
    now_ns: u64,
    /// CPU time between ticks in which nothing was done for it by the engine, ns.
    computed_ns: u64,
    /// What had been done at the last tick, and CPU time then, ns.
    done: (u64, u64),
    at_ns: u64,
    /// CPU time at the first tick since it made no call, ns.
    since_ns: u64,
}

/// Who has computed for how long, and how often somebody made way.
#[derive(Debug, Default)]
pub struct Slices {
    /// None: the clock has not begun.
    pacer: Option<Pacer>,
    /// What ticks of this turn found.
    seen: Option<Seen>,
    /// Somebody has had a slice in this turn.
    late: bool,
    /// Those who had a slice: the next ones are short.
    known: BTreeSet<(u32, u64)>,
    /// Who had the last slice, and how many in a row.
    row: Option<((u32, u64), u64)>,
    times: BTreeMap<u32, u64>,
}

impl Slices {
    fn begin_turn(&mut self, pacer: Option<Pacer>) {
        self.pacer = pacer;
        self.seen = None;
        self.late = false;
    }

    /// A tick has found a program; none: it goes on.
    pub fn tick(&mut self, found: Found) -> Option<Slice> {
        let Found {
            program,
            now_ns,
            wall_ns,
            ..
        } = found;
        if !self.is_over(found) {
            return None;
        }
        self.seen = None;
        self.late = self.pacer.is_some();
        let behind_ns = self
            .pacer
            .map_or(0, |pacer| pacer.virtual_ns(wall_ns).saturating_sub(now_ns));
        let in_row = match self.row {
            Some((same, times)) if same == program => times + 1,
            _ => 1,
        };
        self.row = Some((program, in_row));
        self.known.insert(program);
        let times = self.times.entry(program.0).or_default();
        *times += 1;
        Some(Slice {
            sleep_ns: behind_ns.clamp(TICK_NS, SLEEP_MAX_NS),
            look: in_row.is_multiple_of(LOOK_AFTER) && (in_row / LOOK_AFTER).is_power_of_two(),
            first: *times == 1,
        })
    }

    /// Whether the slice of a program is over that a tick found.
    fn is_over(&mut self, found: Found) -> bool {
        let Found {
            program,
            done,
            now_ns,
            cpu_ns,
            ..
        } = found;
        let same = |seen: &&mut Seen| (seen.program, seen.now_ns) == (program, now_ns);
        let Some(seen) = self.seen.as_mut().filter(same) else {
            self.seen = Some(Seen {
                program,
                now_ns,
                computed_ns: 0,
                done,
                at_ns: cpu_ns,
                since_ns: cpu_ns,
            });
            return self.late && self.known.contains(&program);
        };
        let long_ns = match self.pacer {
            Some(_) => LONG_NS,
            None => LONG_BEFORE_NS,
        };
        if seen.done.0 == done.0 {
            seen.computed_ns += cpu_ns.saturating_sub(seen.at_ns);
        }
        if seen.done != done {
            seen.since_ns = cpu_ns;
        }
        (seen.done, seen.at_ns) = (done, cpu_ns);
        if seen.computed_ns >= long_ns {
            return true;
        }
        let short_ns = TICK_NS / SHARE.1 * SHARE.0;
        self.pacer.is_some() && cpu_ns.saturating_sub(seen.since_ns) >= short_ns && self.known.contains(&program)
    }

    /// How often programs of a node made way.
    pub fn times(&self, node: u32) -> u64 {
        self.times.get(&node).copied().unwrap_or_default()
    }
}

/// The clock that ticks while turns last.
#[derive(Debug)]
pub struct Slicer {
    ticks: Ticks,
    shared: Arc<Shared>,
    /// When it was set, on the host's monotonic clock, ns; none: it does not tick.
    since_ns: Option<u64>,
}

impl Slicer {
    /// For the simulation thread, whose programs `shared` knows. It does not tick.
    pub fn new(ticks: Ticks, shared: Arc<Shared>) -> Self {
        Self {
            ticks,
            shared,
            since_ns: None,
        }
    }

    /// A turn begins at `wall_ns`. Where turns are short, the clock is not set for each.
    pub fn begin_turn(&mut self, pacer: Option<Pacer>, wall_ns: u64) {
        self.shared.preemption.slices().begin_turn(pacer);
        let fresh = |since_ns: u64| wall_ns.saturating_sub(since_ns) < TICK_NS / 2;
        if pacer.is_some() && self.since_ns.is_some_and(fresh) {
            return;
        }
        self.since_ns = Some(wall_ns);
        self.ticks.set(if pacer.is_some() { TICK_NS } else { TICK_BEFORE_NS });
    }

    /// How often programs of a node made way.
    pub fn times(&self, node: u32) -> u64 {
        self.shared.preemption.slices().times(node)
    }

    /// The run is about to sleep.
    pub fn rest(&mut self) {
        if self.since_ns.take().is_some() {
            self.ticks.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn found(program: (u32, u64), now_ns: u64, wall_ns: u64, cpu_ns: u64) -> Found {
        Found {
            program,
            done: (5, 5),
            now_ns,
            wall_ns,
            cpu_ns,
        }
    }

    /// The clock has begun, and program 7 of node 1 has computed before.
    fn running() -> Slices {
        let mut slices = Slices::default();
        slices.known.insert((1, 7));
        slices.begin_turn(Some(Pacer::new(0, 0)));
        slices
    }

    /// After how many ticks a slice ends.
    fn ticks(slices: &mut Slices, program: (u32, u64), change: impl Fn(u64, Found) -> Found) -> Option<u64> {
        (1..99).find(|&number| {
            let at_ns = number * TICK_NS;
            slices.tick(change(number, found(program, 0, at_ns, at_ns))).is_some()
        })
    }

    #[test]
    fn the_first_slice_of_a_program_is_long_and_the_others_are_short() {
        let mut slices = Slices::default();
        for (ends, first) in [(Some(16), true), (Some(2), false), (Some(2), false)] {
            slices.begin_turn(Some(Pacer::new(0, 0)));
            assert_eq!(slices.times(1) == 0, first);
            assert_eq!(ticks(&mut slices, (1, 7), |_, found| found), ends);
        }
        assert_eq!(
            ticks(&mut slices, (1, 7), |_, found| found),
            Some(1),
            "the turn is long enough"
        );
        assert_eq!((slices.times(1), slices.times(0)), (4, 0));
    }

    #[test]
    fn a_program_that_makes_calls_has_a_long_slice_at_each_instant() {
        let calls = |number, found| Found {
            done: (5, number),
            ..found
        };
        assert_eq!(ticks(&mut running(), (1, 7), calls), Some(16));
        let waits = |number, found| Found {
            now_ns: number,
            ..calls(number, found)
        };
        assert_eq!(ticks(&mut running(), (1, 7), waits), None, "it lets time pass");
    }

    #[test]
    fn it_sleeps_until_now() {
        let mut slices = running();
        slices.tick(found((1, 7), 10 * MS, 10 * MS, 0));
        let slice = slices.tick(found((1, 7), 10 * MS, 11 * MS, MS)).unwrap();
        assert_eq!((slice.sleep_ns, slice.first), (MS, true));
    }

    #[test]
    fn others_new_turns_and_what_the_host_took_do_not_count() {
        let mut slices = running();
        assert_eq!(slices.tick(found((1, 7), 0, 0, 0)), None);
        assert_eq!(slices.tick(found((1, 8), 0, 0, MS)), None, "another one");
        assert_eq!(slices.tick(found((1, 8), 0, 9 * MS, MS + 1)), None, "it did not run");
        slices.begin_turn(Some(Pacer::new(0, 0)));
        assert_eq!(slices.tick(found((1, 8), 0, 9 * MS, 9 * MS)), None, "a new turn");
        assert!(slices.tick(found((1, 8), 0, 10 * MS, 14 * MS)).is_some());
    }

    #[test]
    fn nobody_sleeps_for_long_and_not_for_nothing() {
        let mut slices = running();
        for (now_ns, sleep_ns) in [(0, SLEEP_MAX_NS), (99 * MS, TICK_NS)] {
            slices.begin_turn(Some(Pacer::new(0, 0)));
            slices.tick(found((1, 7), now_ns, 80 * MS, 0));
            let slice = slices.tick(found((1, 7), now_ns, 80 * MS, MS)).unwrap();
            assert_eq!(slice.sleep_ns, sleep_ns);
        }
    }

    #[test]
    fn before_the_clock_programs_have_time_to_be_loaded() {
        let mut slices = Slices::default();
        assert_eq!(slices.tick(found((1, 7), 0, 0, 0)), None);
        assert_eq!(slices.tick(found((1, 7), 0, 0, 900 * MS)), None);
        assert!(slices.tick(found((1, 7), 0, 0, 1_000 * MS)).is_some());
    }

    #[test]
    fn loops_are_looked_for_ever_more_rarely() {
        let mut slices = running();
        let mut looks = Vec::new();
        for number in 1..500 {
            slices.begin_turn(Some(Pacer::new(0, 0)));
            slices.tick(found((1, 7), 0, 0, 0));
            let slice = slices.tick(found((1, 7), 0, 0, MS));
            if slice.is_some_and(|slice| slice.look) {
                looks.push(number);
            }
        }
        assert_eq!(looks, [40, 80, 160, 320]);
    }
}
