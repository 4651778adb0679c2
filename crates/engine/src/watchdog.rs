//! The watchdog: sees to programs that run on and on without a system call.
//!
//! It looks at the simulation thread now and then. Where one program has run for a while, it has the thread interrupted, so
//! that the program's kernel looks whether it only waits in a loop ([`crate::preempt`]); looks become rarer and longer as
//! it goes on. After its patience, in CPU time of the thread, so that a busy machine does not look like a busy program,
//! the scenario says what happens. A kernel that does not come back by then ends the run, as does a program that cannot be
//! interrupted: the thread is stopped where it is, the report and what is known of the run are written from the watchdog's
//! own thread, and the process ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windtunnel_base::SimTime;
use windtunnel_kernel::{Image, comm_text};
use windtunnel_process::trap::{Doing, Place, Stopped, Watched, stop_thread};
use windtunnel_process::{BUDGET_MAX, backtrace};
use windtunnel_results::{Ended, EventLog, Manifest, OutDir, SUMMARY_VERSION, Summary};
use windtunnel_scenario::Preempt;

use crate::error::EXIT_BROKEN;
use crate::preempt::{BUDGET_MIN, Order, SLICE_NS, Waited, Want};
use crate::shared::Shared;
use crate::urgency::Guard;

const NS_PER_S: u64 = 1_000_000_000;
/// How often the thread is looked at.
const EVERY: Duration = Duration::from_millis(20);
/// The same while programs that wait in loops are about, and while the run is to end.
const EVERY_EAGER: Duration = Duration::from_micros(200);
/// How long they are taken to be about after the last one was found.
const EAGER: Duration = Duration::from_millis(20);
/// CPU time in one program before the first look at it, ns, and while programs that wait in loops are about. The next
/// looks come after twice that, four times, ...
const FIRST_LOOK_NS: u64 = 20_000_000;
const FIRST_LOOK_EAGER_NS: u64 = 100_000;
/// CPU time between looks at most, ns.
const LOOKS_APART_NS: u64 = NS_PER_S;
/// CPU time without a pulse that is too much, ns.
const PATIENCE_NS: u64 = 20 * NS_PER_S;
/// CPU time that may still go by when a program was interrupted, ns.
const GRACE_NS: u64 = 5 * NS_PER_S;
/// How long the simulation thread may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Environment variable that sets another patience, in seconds of CPU time; 0: without end.
const PATIENCE_VARIABLE: &str = "WINDTUNNEL_WATCHDOG_S";
/// Environment variable for tests: whatever program runs is looked at so often, in microseconds.
const LOOK_VARIABLE: &str = "WINDTUNNEL_LOOK_US";

/// How the watchdog treats programs.
#[derive(Clone, Debug)]
pub struct Habits {
    preempt: Preempt,
    /// The run is to end.
    stop_flag: Arc<AtomicBool>,
    patience_ns: Option<u64>,
    /// For tests.
    look_every: Option<Duration>,
}

impl Habits {
    /// As the scenario and the environment say; `stop_flag` is set when the run is to end.
    pub fn new(preempt: Preempt, stop_flag: Arc<AtomicBool>) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let patience_ns = number(PATIENCE_VARIABLE).map_or(PATIENCE_NS, |seconds| seconds.saturating_mul(NS_PER_S));
        Self {
            preempt,
            stop_flag,
            patience_ns: Some(patience_ns).filter(|&patience_ns| patience_ns > 0),
            look_every: number(LOOK_VARIABLE).filter(|&us| us > 0).map(Duration::from_micros),
        }
    }
}

/// The running watchdog; dropping it ends its thread.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the watchdog writes when it ends the run.
#[derive(Clone, Debug)]
pub struct LastWords {
    /// Where to.
    pub out: OutDir,
    /// As written when the run started.
    pub manifest: Manifest,
    /// Name of the scenario.
    pub scenario: String,
    /// For the names of what programs do.
    pub files: Arc<windtunnel_process::Shared>,
    /// For the names of what kernels do.
    pub kernel: Arc<Image>,
    /// Addresses of the kernels' images, by node.
    pub kernel_bases: Vec<u64>,
}

impl Watchdog {
    /// Starts watching `watched`. To be called before the traps of the simulation thread are set, which its threads
    /// inherit.
    pub fn start(shared: Arc<Shared>, words: LastWords, watched: Watched, habits: Habits) -> Self {
        let thread_shared = shared.clone();
        let watch = move || watch(&thread_shared, &words, &watched, habits);
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(watch).ok();
        Self { shared, thread }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.preemption.end();
        if let Some(thread) = self.thread.take() {
            // It only sleeps; a panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// The watchdog's thread.
fn watch(shared: &Shared, words: &LastWords, watched: &Watched, habits: Habits) {
    let stop_flag = habits.stop_flag.clone();
    let (look_every, patience_ns) = (habits.look_every, habits.patience_ns);
    let mut judge = Judge::new(habits);
    let mut eager_until = Instant::now();
    let mut guard = Guard::default();
    loop {
        let eager = Instant::now() < eager_until || stop_flag.load(Ordering::Relaxed);
        let patience = match eager {
            true => EVERY_EAGER,
            false => EVERY,
        };
        match shared.preemption.wait(look_every.unwrap_or(patience)) {
            Waited::Over => return,
            Waited::Found => {
                eager_until = Instant::now() + EAGER;
                continue;
            }
            Waited::Long => {}
        }
        guard.look(shared);
        let (pulse, Some(node)) = shared.watch() else {
            judge.outside();
            continue;
        };
        let Some(doing) = watched.doing() else { continue };
        match judge.look(pulse, node, doing, eager) {
            Some(Deed::Interrupt(want)) => {
                let after_s = patience_ns.unwrap_or_default() / NS_PER_S;
                let pid = doing.pid;
                shared.preemption.ask(Order {
                    want,
                    pulse,
                    pid,
                    after_s,
                });
                watched.interrupt();
            }
            Some(Deed::EndRun) => end_stuck(shared, words, node, patience_ns.unwrap_or_default()),
            None => {}
        }
    }
}

/// What the watchdog does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Interrupts the program that runs.
    Interrupt(Want),
    /// Ends the run.
    EndRun,
}

/// Decides what to do about what runs.
#[derive(Debug)]
struct Judge {
    habits: Habits,
    /// Pulse, node and thread of what was seen last.
    seen: Option<(u64, u32, u64)>,
    /// CPU time when it was first seen, ns.
    since_ns: u64,
    /// CPU time of the next look at it, ns, and how many there were.
    next_look_ns: u64,
    looks: u32,
    /// Programs that make way by the host's clock, by node and thread.
    sliced: BTreeSet<(u32, u64)>,
}

impl Judge {
    fn new(habits: Habits) -> Self {
        Self {
            habits,
            seen: None,
            since_ns: 0,
            next_look_ns: 0,
            looks: 0,
            sliced: BTreeSet::new(),
        }
    }

    /// The engine works for itself.
    fn outside(&mut self) {
        self.seen = None;
    }

    fn look(&mut self, pulse: u64, node: u32, doing: Doing, eager: bool) -> Option<Deed> {
        let Doing {
            in_program,
            pid,
            cpu_ns,
        } = doing;
        if in_program && self.habits.stop_flag.load(Ordering::Relaxed) {
            return Some(Deed::Interrupt(Want::Stop));
        }
        if self.seen != Some((pulse, node, pid)) {
            self.seen = Some((pulse, node, pid));
            self.since_ns = cpu_ns;
            self.looks = 0;
            self.next_look_ns = cpu_ns + self.first_look_ns(eager);
        }
        if let Some(deed) = self.out_of_patience(node, doing) {
            return Some(deed);
        }
        if !in_program || self.habits.preempt == Preempt::Off || cpu_ns < self.next_look_ns {
            return None;
        }
        let budget = (BUDGET_MIN << self.looks.min(16)).min(BUDGET_MAX);
        let apart_ns = (self.first_look_ns(eager) << self.looks.min(16)).min(LOOKS_APART_NS);
        self.looks += 1;
        self.next_look_ns = match self.habits.look_every {
            Some(_) => 0,
            None => cpu_ns + apart_ns,
        };
        Some(Deed::Interrupt(Want::Look(budget)))
    }

    fn first_look_ns(&self, eager: bool) -> u64 {
        match (self.habits.look_every, eager) {
            (Some(_), _) => 0,
            (None, true) => FIRST_LOOK_EAGER_NS,
            (None, false) => FIRST_LOOK_NS,
        }
    }

    /// What is to be done about a program or kernel that has run for too long.
    fn out_of_patience(&mut self, node: u32, doing: Doing) -> Option<Deed> {
        let patience_ns = self.habits.patience_ns?;
        let ran_ns = doing.cpu_ns.saturating_sub(self.since_ns);
        let too_long = ran_ns >= patience_ns;
        // What was interrupted may be in its kernel just because of that.
        let by_itself = !doing.in_program && self.looks == 0;
        let ends_run = self.habits.preempt == Preempt::Off || by_itself || ran_ns >= patience_ns + GRACE_NS;
        if too_long && ends_run {
            return Some(Deed::EndRun);
        }
        let sliced = self.sliced.contains(&(node, doing.pid));
        if !doing.in_program || !(too_long || sliced && ran_ns >= SLICE_NS) {
            return None;
        }
        if self.habits.preempt == Preempt::Spin {
            return Some(Deed::Interrupt(Want::End));
        }
        self.sliced.insert((node, doing.pid));
        Some(Deed::Interrupt(Want::MakeWay))
    }
}

/// Ends the run for a program or kernel that is stuck.
fn end_stuck(shared: &Shared, words: &LastWords, node: u32, patience_ns: u64) {
    let stopped = stop_thread(shared.simulation_tid.load(Ordering::Relaxed), STOP_WITHIN);
    // The progress is that of the last window.
    if let Some(stopped) = &stopped {
        // The kernel of a node that was booted later counts from then.
        shared.progress.virtual_ns.fetch_max(stopped.now_ns, Ordering::Relaxed);
    }
    let text = format!(
        "node {}: {}, at {} (seed {}){}",
        shared.nodes[node as usize],
        who(stopped.as_ref(), patience_ns / NS_PER_S),
        SimTime(shared.progress.virtual_ns.load(Ordering::Relaxed)),
        shared.seed,
        stopped.map_or_else(String::new, |stopped| place(&stopped, words, node)),
    );
    let hint = format!(
        "virtual time stands still while a program computes; if it only needs longer, set {PATIENCE_VARIABLE} to more \
         seconds, or to 0; with `preempt: auto` in the scenario's `run`, the default, programs do not end the run"
    );
    report(shared, words, text, &hint);
}

/// Stops the simulation thread, reports, and ends the process.
pub fn end_run(shared: &Shared, words: &LastWords, text: &str, hint: &str) {
    if let Some(stopped) = stop_thread(shared.simulation_tid.load(Ordering::Relaxed), STOP_WITHIN) {
        // The kernel of a node that was booted later counts from then.
        shared.progress.virtual_ns.fetch_max(stopped.now_ns, Ordering::Relaxed);
    }
    report(shared, words, text.to_owned(), hint);
}

/// Writes what is known, and ends the process.
fn report(shared: &Shared, words: &LastWords, text: String, hint: &str) {
    let virtual_ns = shared.progress.virtual_ns.load(Ordering::Relaxed);
    eprintln!("error: {text}");
    eprintln!("hint: {hint}");
    let summary = Summary {
        summary_version: SUMMARY_VERSION,
        scenario: words.scenario.clone(),
        seed: shared.seed,
        ended: Ended::Error,
        digest: None,
        virtual_time_ns: virtual_ns,
        syscalls: shared.progress.syscalls.load(Ordering::Relaxed),
        frames: shared.progress.frames.load(Ordering::Relaxed),
        processes: shared.processes().values().cloned().collect(),
        links: Vec::new(),
        ports: Vec::new(),
        lateness: None,
        warnings: shared.warnings().list().to_vec(),
        failed_expectations: vec![text.clone()],
        delivery_lateness: None,
    };
    let mut manifest = words.manifest.clone();
    manifest.ended = Some(Ended::Error);
    manifest.error = Some(text);
    manifest.virtual_time_ns = virtual_ns;
    let mut events = EventLog::new(&summary.scenario, summary.seed, shared.nodes.iter().map(String::as_str));
    events.add_processes(&summary, |_, _, _| None);
    events.end(&summary, manifest.error.clone());
    let written = [
        words.out.write_summary(&summary),
        words.out.write_events(&events),
        words.out.write_manifest(&manifest),
    ];
    for written in written {
        if let Err(error) = written {
            eprintln!("error: {error}");
        }
    }
    std::process::exit(EXIT_BROKEN);
}

/// Who has computed for how long.
fn who(stopped: Option<&Stopped>, seconds: u64) -> String {
    let program = |stopped: &Stopped| format!("`{}` (pid {})", comm_text(&stopped.comm), stopped.pid);
    let long = format!("for {seconds} s of CPU time");
    match stopped {
        Some(stopped) if stopped.place == Place::Program => {
            format!("{} has computed {long} without a system call", program(stopped))
        }
        Some(stopped) if stopped.place == Place::Kernel => {
            format!(
                "its kernel has run {long} and is not idle; the last program was {}",
                program(stopped)
            )
        }
        Some(_) => format!("the engine has worked on a call of its kernel {long}"),
        None => format!("a program or its kernel has computed {long}, and does not even stop for a signal"),
    }
}

/// Where it is: lines to follow the report.
fn place(stopped: &Stopped, words: &LastWords, node: u32) -> String {
    let lines = match stopped.place {
        Place::Program => backtrace(&words.files, &stopped.regs)
            .iter()
            .map(ToString::to_string)
            .collect(),
        Place::Kernel => {
            let address = stopped.regs.rip.wrapping_sub(words.kernel_bases[node as usize]);
            let name = words.kernel.symbols().and_then(|symbols| symbols.name(address));
            vec![name.unwrap_or_else(|| format!("image+{address:#x}"))]
        }
        Place::Host => vec![format!("{:#x} in the engine", stopped.regs.rip)],
    };
    lines.iter().map(|line| format!("\n  at {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn judge(preempt: Preempt) -> Judge {
        Judge::new(Habits {
            preempt,
            stop_flag: Arc::default(),
            patience_ns: Some(NS_PER_S),
            look_every: None,
        })
    }

    fn doing(in_program: bool, cpu_ms: u64) -> Doing {
        Doing {
            in_program,
            pid: 5,
            cpu_ns: cpu_ms * MS,
        }
    }

    #[test]
    fn looks_become_rarer_and_longer_until_the_program_does_something() {
        let mut judge = judge(Preempt::Auto);
        let mut at = Vec::new();
        for ms in 100..400 {
            if let Some(Deed::Interrupt(Want::Look(budget))) = judge.look(1, 3, doing(true, ms), false) {
                at.push((ms, budget / BUDGET_MIN));
            }
        }
        assert_eq!(at, [(120, 1), (140, 2), (180, 4), (260, 8)]);
        assert_eq!(judge.look(2, 3, doing(true, 400), false), None, "the pulse went on");
        assert_eq!(judge.look(2, 3, doing(false, 500), false), None, "in its kernel");
        assert!(judge.look(2, 3, doing(true, 500), false).is_some());
        judge.outside();
        assert_eq!(judge.look(2, 3, doing(true, 600), false), None, "seen anew");
    }

    #[test]
    fn looks_come_early_while_programs_spin() {
        let mut judge = judge(Preempt::Auto);
        assert_eq!(judge.look(1, 3, doing(true, 100), true), None);
        assert_eq!(
            judge.look(1, 3, doing(true, 101), true),
            Some(Deed::Interrupt(Want::Look(BUDGET_MIN)))
        );
    }

    #[test]
    fn the_scenario_says_what_happens_after_the_patience() {
        for (preempt, deed) in [
            (Preempt::Auto, Deed::Interrupt(Want::MakeWay)),
            (Preempt::Spin, Deed::Interrupt(Want::End)),
            (Preempt::Off, Deed::EndRun),
        ] {
            let mut judge = judge(preempt);
            assert_eq!(judge.look(1, 3, doing(true, 0), false), None);
            assert_ne!(judge.look(1, 3, doing(true, 999), false), Some(deed), "not yet");
            assert_eq!(judge.look(1, 3, doing(true, 1000), false), Some(deed));
            assert_eq!(
                judge.look(1, 3, doing(true, 6000), false),
                Some(Deed::EndRun),
                "{preempt:?}"
            );
        }
    }

    #[test]
    fn a_program_that_made_way_once_does_so_again_after_a_slice() {
        let mut judge = judge(Preempt::Auto);
        judge.look(1, 3, doing(true, 0), false);
        let make_way = Some(Deed::Interrupt(Want::MakeWay));
        assert_eq!(judge.look(1, 3, doing(true, 1000), false), make_way);
        assert_eq!(judge.look(2, 3, doing(true, 1010), false), None);
        assert_eq!(judge.look(2, 3, doing(true, 1110), false), make_way);
        let other = Doing {
            pid: 6,
            ..doing(true, 1200)
        };
        assert_eq!(judge.look(3, 3, other, false), None);
        let later = Doing {
            cpu_ns: 1310 * MS,
            ..other
        };
        assert_ne!(judge.look(3, 3, later, false), make_way);
    }

    #[test]
    fn a_kernel_that_never_comes_back_ends_the_run() {
        let mut judge = judge(Preempt::Auto);
        assert_eq!(judge.look(1, 3, doing(false, 0), false), None);
        assert_eq!(judge.look(1, 3, doing(false, 999), false), None);
        assert_eq!(judge.look(1, 3, doing(false, 1000), false), Some(Deed::EndRun));
        assert_eq!(judge.look(2, 3, doing(true, 1000), false), None);
        assert!(judge.look(2, 3, doing(true, 1999), false).is_some(), "a look");
        assert_eq!(judge.look(2, 3, doing(false, 2000), false), None, "its kernel looks");
        assert_eq!(judge.look(2, 3, doing(false, 7000), false), Some(Deed::EndRun));
        judge.habits.patience_ns = None;
        assert_eq!(judge.look(2, 3, doing(false, 99_000), false), None);
    }

    #[test]
    fn a_run_that_is_to_end_stops_programs_at_once_whatever_the_scenario_says() {
        for preempt in [Preempt::Auto, Preempt::Spin, Preempt::Off] {
            let mut judge = judge(preempt);
            assert_eq!(judge.look(1, 3, doing(true, 0), false), None);
            judge.habits.stop_flag.store(true, Ordering::Relaxed);
            assert_eq!(
                judge.look(1, 3, doing(true, 0), true),
                Some(Deed::Interrupt(Want::Stop))
            );
            assert_eq!(judge.look(1, 3, doing(false, 0), true), None);
        }
    }
}
