//! A run in real time that goes before all ordinary programs of its host, and leaves some of the processor to them.
//!
//! The simulation thread has SCHED_FIFO, and makes way itself: in each period it sleeps for a part at least, whatever is due. A
//! kernel that does not come back would not: the watchdog, which goes before it, makes it an ordinary thread until it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windtunnel_process::trap::{host_clock_ns, priority};

use crate::shared::Shared;

/// In each such period, ns, ...
const PERIOD_NS: u64 = 10_000_000;
/// ... the run sleeps for so long at least, ns: a tenth.
const REST_NS: u64 = 1_000_000;
/// A turn that takes longer is that of an ordinary thread, ns.
const TURN_NS: u64 = 100_000_000;
/// In [`Shared::urgent_since_ns`]: as later than any time.
const ASLEEP: u64 = u64::MAX;

/// The simulation thread's side.
#[derive(Debug)]
pub struct Urgency {
    shared: Arc<Shared>,
    budget: Budget,
}

/// How much it has slept in the current period.
#[derive(Debug, Default)]
struct Budget {
    since_ns: u64,
    slept_ns: u64,
}

impl Budget {
    /// It is `wall_ns`: how long to sleep now, ns.
    fn due_ns(&mut self, wall_ns: u64) -> u64 {
        if wall_ns.saturating_sub(self.since_ns) < PERIOD_NS - REST_NS {
            return 0;
        }
        let due_ns = REST_NS.saturating_sub(self.slept_ns);
        (self.since_ns, self.slept_ns) = (wall_ns + due_ns, 0);
        due_ns
    }
}

impl Urgency {
    /// Of a run that `shared` knows, which is ordinary until its first turn.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            budget: Budget::default(),
        }
    }

    /// A turn begins at `wall_ns`, if need be after a moment for others.
    pub fn begin_turn(&mut self, wall_ns: u64) {
        let due_ns = self.budget.due_ns(wall_ns);
        if due_ns > 0 {
            self.rest();
            std::thread::sleep(Duration::from_nanos(due_ns));
        }
        // It was asked for when the run began, so that it is not refused now.
        if self.shared.urgent_since_ns.swap(host_clock_ns(), Ordering::Relaxed) == 0 {
            let _ = priority::raise(0, false);
        }
    }

    /// The run is about to sleep.
    pub fn rest(&self) {
        if self.shared.urgent_since_ns.load(Ordering::Relaxed) != 0 {
            self.shared.urgent_since_ns.store(ASLEEP, Ordering::Relaxed);
        }
    }

    /// It has slept for so long, ns.
    pub fn slept(&mut self, slept_ns: u64) {
        self.budget.slept_ns += slept_ns;
    }

    /// The run is over.
    pub fn end(&self) {
        self.shared.urgent_since_ns.store(0, Ordering::Relaxed);
        let _ = priority::lower(0);
    }
}

/// The watchdog's side: whether it goes before the simulation thread yet.
#[derive(Debug, Default)]
pub struct Guard {
    raised: bool,
}

impl Guard {
    /// Looks at the simulation thread.
    pub fn look(&mut self, shared: &Shared) {
        let since_ns = shared.urgent_since_ns.load(Ordering::Relaxed);
        if since_ns == 0 {
            return;
        }
        if !self.raised {
            self.raised = true;
            let _ = priority::raise(0, true);
        }
        if host_clock_ns().saturating_sub(since_ns) > TURN_NS {
            let _ = priority::lower(shared.simulation_tid.load(Ordering::Relaxed));
            shared.urgent_since_ns.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_busy_run_sleeps_for_a_tenth() {
        let mut budget = Budget::default();
        let (mut wall_ns, mut slept_ns) = (PERIOD_NS, 0);
        budget.due_ns(wall_ns);
        let began_ns = wall_ns;
        while wall_ns < began_ns + 1_000 * MS {
            wall_ns += MS / 2;
            let due_ns = budget.due_ns(wall_ns);
            (wall_ns, slept_ns) = (wall_ns + due_ns, slept_ns + due_ns);
        }
        assert!((95 * MS..=105 * MS).contains(&slept_ns), "{slept_ns}");
    }

    #[test]
    fn what_it_has_slept_counts() {
        let mut budget = Budget::default();
        budget.due_ns(PERIOD_NS);
        budget.slept_ns = 700_000;
        assert_eq!(budget.due_ns(2 * PERIOD_NS), 300_000);
        budget.slept_ns = 5 * MS;
        assert_eq!(budget.due_ns(4 * PERIOD_NS), 0);
    }
}
