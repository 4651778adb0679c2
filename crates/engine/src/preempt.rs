//! Programs that run on and on: what the watchdog wants of them, and what becomes of them.
//!
//! The watchdog's thread leaves an [`Order`] and interrupts the simulation thread, whose kernel then asks the node's host
//! ([`windtunnel_kernel::Host::look`]). What a program does that waits in a loop depends on virtual time only; what is done
//! by the host's clock is marked.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use windtunnel_kernel::{Verdict, abi, running_program};
use windtunnel_process::BUDGET_MAX;
use windtunnel_process::trap::{host_clock_ns, host_cpu_ns};

use crate::faults::too_long_report;
use crate::host::NodeHost;
use crate::slices::{Found, Slice, Slices};

/// What makes way by the host's clock does so for this long, and has run for as long of CPU time before, ns.
pub const SLICE_NS: u64 = 100_000_000;
/// A program that is asleep when the run ends does not wake again, ns.
const FOR_GOOD_NS: u64 = 3_600_000_000_000;
/// Stands for all programs of a node among the marks.
const ALL_PROGRAMS: u64 = u64::MAX;
/// Instructions of the first look at a program that runs.
pub const BUDGET_MIN: u64 = 1 << 14;

/// What is wanted of the program that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To know whether it waits in a loop, by looking at so many instructions.
    Look(u64),
    /// That it makes way for others.
    MakeWay,
    /// Its end.
    End,
    /// That it runs no more: the run ends.
    Stop,
}

/// What the watchdog wants of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What.
    pub want: Want,
    /// Pulse of the run when the program was seen: it has done nothing but compute if that is still the same.
    pub pulse: u64,
    /// Its thread id in its node.
    pub pid: u64,
    /// CPU time after which it was wanted, s; for reports.
    pub after_s: u64,
}

/// How the watchdog's wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The time is over.
    Long,
    /// A program was found waiting in a loop.
    Found,
    /// The run is over.
    Over,
}

#[derive(Debug, Default)]
struct State {
    order: Option<Order>,
    found: bool,
    over: bool,
    /// Programs treated by the host's clock, by node and thread.
    marks: BTreeMap<(u32, u64), Mark>,
}

#[derive(Debug)]
struct Mark {
    /// For the manifest: who, what and where.
    text: String,
    times: u64,
}

/// Where the watchdog and the simulation thread meet.
#[derive(Debug, Default)]
pub struct Preemption {
    state: Mutex<State>,
    news: Condvar,
    /// In real time.
    slices: Mutex<Slices>,
}

impl Preemption {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What programs have of the wall clock.
    pub fn slices(&self) -> MutexGuard<'_, Slices> {
        self.slices.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Leaves an order, in place of one that was not taken.
    pub fn ask(&self, order: Order) {
        self.state().order = Some(order);
    }

    /// The order, if it is meant for what runs now.
    fn take(&self, pulse: u64, pid: u64) -> Option<Order> {
        let order = self.state().order.take()?;
        let meant = order.pulse == pulse && order.pid == pid || matches!(order.want, Want::Look(_) | Want::Stop);
        meant.then_some(order)
    }

    /// A program waits in a loop: the watchdog shall look often for a while.
    fn found(&self) {
        self.state().found = true;
        self.news.notify_one();
    }

    /// The run is over.
    pub fn end(&self) {
        self.state().over = true;
        self.news.notify_one();
    }

    /// Waits for news; for the watchdog.
    pub fn wait(&self, patience: Duration) -> Waited {
        let quiet = |state: &mut State| !state.found && !state.over;
        let waited = self.news.wait_timeout_while(self.state(), patience, quiet);
        let (mut state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        match (std::mem::take(&mut state.found), state.over) {
            (_, true) => Waited::Over,
            (true, _) => Waited::Found,
            _ => Waited::Long,
        }
    }

    /// Marks a program once more; `text` is made at the first time.
    fn mark(&self, node: u32, pid: u64, text: impl FnOnce() -> String) -> String {
        let mut state = self.state();
        let mark = state
            .marks
            .entry((node, pid))
            .or_insert_with(|| Mark { text: text(), times: 0 });
        mark.times += 1;
        mark.text.clone()
    }

    /// A sentence for each program that was treated by the host's clock, for the manifest.
    pub fn marks(&self, nodes: &[String]) -> Vec<String> {
        let state = self.state();
        let marks = state.marks.iter();
        marks
            .map(|((node, _), mark)| format!("node {}: {} (times: {})", nodes[*node as usize], mark.text, mark.times))
            .collect()
    }
}

/// Spreads the bits of a number (the last steps of SplitMix64).
fn spread(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl NodeHost {
    /// See [`windtunnel_kernel::Host::look`].
    pub(crate) fn judge(&mut self, space: u64, look: &mut abi::Look, calls: u64) -> Verdict {
        if look.again != 0 {
            // What decides here depends on the program only, as no other time than virtual time has passed.
            let spins = self.spins(space, look, BUDGET_MIN.max(4 * look.cycle));
            self.shared.preemption.found();
            return spins;
        }
        let Some((pid, comm)) = running_program() else {
            return Verdict::Runs;
        };
        let (pulse, _) = self.shared.watch();
        let Some(order) = self.shared.preemption.take(pulse, pid) else {
            return self.tick(space, look, pid, (pulse, calls));
        };
        match order.want {
            Want::Look(budget) => self.spins(space, look, budget),
            Want::Stop => {
                look.sleep_ns = FOR_GOOD_NS;
                Verdict::Stops
            }
            // It may have begun to wait since the last look.
            Want::MakeWay | Want::End if self.spins(space, look, BUDGET_MAX) == Verdict::Spins => Verdict::Spins,
            Want::MakeWay => {
                self.make_way(look, pid, &comm, order.after_s);
                Verdict::Sleeps
            }
            Want::End => {
                self.end(look, pid, &comm, order.after_s);
                Verdict::Dies
            }
        }
    }

    /// Looks whether the program waits in a loop. It sleeps at another place of the loop each time.
    fn spins(&mut self, space: u64, look: &mut abi::Look, budget: u64) -> Verdict {
        let choice = spread(self.now_ns ^ look.row.rotate_right(8));
        if !self.programs.settle_spin(space, look, budget, choice) {
            return Verdict::Runs;
        }
        self.shared.beat();
        self.shared.preemption.found();
        Verdict::Spins
    }

    /// Nobody but the clock has interrupted it.
    fn tick(&mut self, space: u64, look: &mut abi::Look, pid: u64, done: (u64, u64)) -> Verdict {
        let found = Found {
            program: (self.number, pid),
            done,
            now_ns: self.now_ns,
            wall_ns: host_clock_ns(),
            cpu_ns: host_cpu_ns(),
        };
        let slice = self.shared.preemption.slices().tick(found);
        let Some(Slice {
            sleep_ns,
            look: loops,
            first,
        }) = slice
        else {
            return Verdict::Runs;
        };
        if loops && self.spins(space, look, BUDGET_MIN) == Verdict::Spins {
            return Verdict::Spins;
        }
        self.shared.beat();
        look.sleep_ns = sleep_ns;
        let text = self.shared.preemption.mark(self.number, ALL_PROGRAMS, || {
            "programs computed for long, and made way by the wall clock".to_owned()
        });
        if first {
            let text = format!(
                "{text}: how far they had got depends on this host, so `--replay` of this run can differ from it"
            );
            self.shared
                .warn(self.now_ns, "preempted_by_wall_clock", Some(self.number), &text);
        }
        Verdict::Sleeps
    }

    /// A program has computed for too long, and makes way by the host's clock.
    fn make_way(&mut self, look: &mut abi::Look, pid: u64, comm: &str, after_s: u64) {
        self.shared.beat();
        look.sleep_ns = SLICE_NS;
        let programs = &self.programs;
        let text = self.shared.preemption.mark(self.number, pid, || {
            let at = programs
                .backtrace(&look.regs)
                .first()
                .map_or_else(String::new, |frame| format!(" in {frame}"));
            format!(
                "`{comm}` (pid {pid}) computed for {after_s} s of CPU time without a system call{at}; since then it has \
                 made way for others by the host's clock"
            )
        });
        let text = format!("{text}: results can differ from run to run");
        self.shared
            .warn(self.now_ns, "preempted_by_clock", Some(self.number), &text);
    }

    /// A program has computed for too long, and is ended.
    fn end(&mut self, look: &abi::Look, pid: u64, comm: &str, after_s: u64) {
        self.shared.beat();
        let frames = self.programs.backtrace(&look.regs);
        let (head, report) = too_long_report(comm, pid, self.now_ns, after_s, &look.regs, &frames);
        self.shared.preemption.mark(self.number, pid, || head);
        self.shared
            .warn(self.now_ns, "computed_too_long", Some(self.number), &report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(want: Want) -> Order {
        Order {
            want,
            pulse: 7,
            pid: 3,
            after_s: 20,
        }
    }

    #[test]
    fn an_order_is_for_the_program_it_was_meant_for() {
        let preemption = Preemption::default();
        assert_eq!(preemption.take(7, 3), None);
        for (want, others_too) in [
            (Want::Look(5), true),
            (Want::Stop, true),
            (Want::MakeWay, false),
            (Want::End, false),
        ] {
            preemption.ask(order(want));
            assert_eq!(preemption.take(7, 3), Some(order(want)));
            assert_eq!(preemption.take(7, 3), None, "taken once");
            for (pulse, pid) in [(8, 3), (7, 4)] {
                preemption.ask(order(want));
                assert_eq!(preemption.take(pulse, pid).is_some(), others_too, "{want:?}");
            }
        }
    }

    #[test]
    fn the_watchdog_hears_of_finds_and_of_the_end() {
        let preemption = Preemption::default();
        let moment = Duration::from_millis(1);
        assert_eq!(preemption.wait(moment), Waited::Long);
        preemption.found();
        assert_eq!(preemption.wait(moment), Waited::Found);
        assert_eq!(preemption.wait(moment), Waited::Long);
        preemption.end();
        assert_eq!(preemption.wait(Duration::from_secs(9)), Waited::Over);
    }

    #[test]
    fn marks_are_counted_by_program() {
        let preemption = Preemption::default();
        for (node, pid) in [(1, 9), (0, 4), (1, 9)] {
            preemption.mark(node, pid, || format!("`p` (pid {pid}) computes"));
        }
        let marks = preemption.marks(&["a".into(), "b".into()]);
        assert_eq!(
            marks,
            [
                "node a: `p` (pid 4) computes (times: 1)",
                "node b: `p` (pid 9) computes (times: 2)"
            ]
        );
    }
}
