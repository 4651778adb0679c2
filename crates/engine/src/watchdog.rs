//! The watchdog: ends a run whose simulation thread is stuck in a program that computes without a system call, or in a
//! kernel.
//!
//! Such a program can't be taken off the thread, so the thread is stopped where it is, the report and what is known of the
//! run are written from the watchdog's own thread, and the process ends. What counts is the CPU time of the process, so that a busy machine does
//! not look like a busy program.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use windtunnel_base::SimTime;
use windtunnel_kernel::{Image, comm_text};
use windtunnel_process::backtrace;
use windtunnel_process::trap::{Place, Stopped, stop_thread};
use windtunnel_results::{Cost, Ended, Manifest, OutDir, SUMMARY_VERSION, Summary};

use crate::error::EXIT_BROKEN;
use crate::shared::Shared;

const NS_PER_S: u64 = 1_000_000_000;
/// How often the pulse is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// CPU time without a pulse that is too much, ns.
const PATIENCE_NS: u64 = 20 * NS_PER_S;
/// How long the simulation thread may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Environment variable that sets another patience, in seconds of CPU time; 0: no watchdog.
const PATIENCE_VARIABLE: &str = "WINDTUNNEL_WATCHDOG_S";

/// The running watchdog; dropping it ends its thread.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<Sender<()>>,
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
    /// Starts watching. To be called before the traps of the simulation thread are set, which its threads inherit.
    pub fn start(shared: Arc<Shared>, words: LastWords) -> Self {
        let patience_ns = std::env::var(PATIENCE_VARIABLE)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
            .map_or(PATIENCE_NS, |seconds| seconds.saturating_mul(NS_PER_S));
        if patience_ns == 0 {
            return Self {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = channel();
        let watch = move || {
            let mut judge = Judge::new(patience_ns);
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let cpu_ns = Cost::of_this_process(0).cpu_time_ns;
                let (pulse, inside) = shared.watch();
                if let Some(node) = judge.look(pulse, inside, cpu_ns) {
                    end_stuck(&shared, &words, node, patience_ns);
                }
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(watch).ok();
        Self {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only sleeps; a panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// Decides whether a program is stuck.
#[derive(Debug)]
struct Judge {
    patience_ns: u64,
    last_pulse: u64,
    /// CPU time when the pulse was last seen to change, ns.
    since_cpu_ns: u64,
}

impl Judge {
    fn new(patience_ns: u64) -> Self {
        Self {
            patience_ns,
            last_pulse: u64::MAX,
            since_cpu_ns: 0,
        }
    }

    /// The node that is stuck, if one is.
    fn look(&mut self, pulse: u64, inside: Option<u32>, cpu_ns: u64) -> Option<u32> {
        if pulse != self.last_pulse || inside.is_none() {
            self.last_pulse = pulse;
            self.since_cpu_ns = cpu_ns;
            return None;
        }
        inside.filter(|_| cpu_ns - self.since_cpu_ns >= self.patience_ns)
    }
}

/// Ends the run for a program or kernel that is stuck.
fn end_stuck(shared: &Shared, words: &LastWords, node: u32, patience_ns: u64) {
    let stopped = stop_thread(shared.simulation_tid.load(Ordering::Relaxed), STOP_WITHIN);
    // The progress is that of the last window.
    if let Some(stopped) = &stopped {
        shared.progress.virtual_ns.store(stopped.now_ns, Ordering::Relaxed);
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
         seconds, or to 0"
    );
    report(shared, words, text, &hint);
}

/// Stops the simulation thread, reports, and ends the process.
pub fn end_run(shared: &Shared, words: &LastWords, text: &str, hint: &str) {
    if let Some(stopped) = stop_thread(shared.simulation_tid.load(Ordering::Relaxed), STOP_WITHIN) {
        shared.progress.virtual_ns.store(stopped.now_ns, Ordering::Relaxed);
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
        warnings: shared.warnings().list().to_vec(),
        failed_expectations: vec![text.clone()],
    };
    let mut manifest = words.manifest.clone();
    manifest.ended = Some(Ended::Error);
    manifest.error = Some(text);
    manifest.virtual_time_ns = virtual_ns;
    for written in [words.out.write_summary(&summary), words.out.write_manifest(&manifest)] {
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

    #[test]
    fn only_cpu_time_inside_a_kernel_without_a_pulse_counts() {
        let mut judge = Judge::new(10);
        assert_eq!(judge.look(1, Some(3), 100), None, "the first look");
        assert_eq!(judge.look(1, Some(3), 109), None, "not long enough");
        assert_eq!(judge.look(2, Some(3), 200), None, "the pulse goes on");
        assert_eq!(judge.look(2, None, 300), None, "the engine works for itself");
        assert_eq!(judge.look(2, Some(3), 309), None, "counted from there");
        assert_eq!(judge.look(2, Some(3), 310), Some(3));
    }
}
