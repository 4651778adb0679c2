//! What the simulation thread shares with others: progress for a display, a pulse for the watchdog, and the books a
//! report can be written from when the simulation thread can't.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use windtunnel_results::{ProcessSummary, Warnings};

use crate::preempt::Preemption;

/// How far a run is; for a progress display, read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Virtual time, ns.
    pub virtual_ns: AtomicU64,
    /// Virtual time at which the run stops, ns; 0: not known yet.
    pub stop_ns: AtomicU64,
    /// System calls of all programs.
    pub syscalls: AtomicU64,
    /// Frames that left an interface.
    pub frames: AtomicU64,
    /// How long a run that began in virtual time took until it went with the wall clock, ns of the host's clock; 0: it does not yet.
    pub live_after_ns: AtomicU64,
    /// Whether the run has come to its end and waits for clients.
    pub held: AtomicBool,
}

/// No kernel is running.
const NOWHERE: u32 = u32::MAX;

/// State of a run outside of its kernels.
#[derive(Debug)]
pub struct Shared {
    /// For the display.
    pub progress: Arc<Progress>,
    /// Seed of the run.
    pub seed: u64,
    /// Names of the nodes by number.
    pub nodes: Vec<String>,
    /// Nodes that have a process running or to be started.
    pub busy_nodes: AtomicUsize,
    /// Number of the simulation thread; 0: it has not begun.
    pub simulation_tid: AtomicI32,
    /// Since when the current turn of a run lasts that goes before ordinary programs, on the host's monotonic clock, ns; 0: it does not.
    pub urgent_since_ns: AtomicU64,
    /// Counts entries and calls out of kernels: as long as it grows, no program is stuck.
    pulse: AtomicU64,
    /// Node whose kernel or program runs, or [`NOWHERE`].
    inside: AtomicU32,
    /// Programs that run on and on.
    pub preemption: Preemption,
    warnings: Mutex<Warnings>,
    /// What became of the programs so far, by node, life and position.
    processes: Mutex<BTreeMap<(u32, u32, u32), ProcessSummary>>,
}

impl Shared {
    /// Nothing has happened yet.
    pub fn new(progress: Arc<Progress>, seed: u64, nodes: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            progress,
            seed,
            nodes,
            busy_nodes: AtomicUsize::new(0),
            simulation_tid: AtomicI32::new(0),
            urgent_since_ns: AtomicU64::new(0),
            pulse: AtomicU64::new(0),
            inside: AtomicU32::new(NOWHERE),
            preemption: Preemption::default(),
            warnings: Mutex::new(Warnings::new()),
            processes: Mutex::new(BTreeMap::new()),
        })
    }

    /// The kernel of `node` is about to run.
    #[inline]
    pub fn going_inside(&self, node: u32) {
        self.inside.store(node, Ordering::Relaxed);
        self.beat();
    }

    /// It has come back.
    #[inline]
    pub fn outside(&self) {
        self.inside.store(NOWHERE, Ordering::Relaxed);
    }

    /// Something was done that is not a program's own computing. One thread writes, so that no locked instruction is
    /// needed.
    #[inline]
    pub fn beat(&self) {
        self.pulse
            .store(self.pulse.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The pulse, and the node whose kernel or program runs.
    pub fn watch(&self) -> (u64, Option<u32>) {
        let inside = self.inside.load(Ordering::Relaxed);
        (
            self.pulse.load(Ordering::Relaxed),
            (inside != NOWHERE).then_some(inside),
        )
    }

    /// Warns at `now_ns`, once for each text; further occurrences are counted.
    pub fn warn(&self, now_ns: u64, code: &str, node: Option<u32>, text: &str) {
        self.warn_of(now_ns, code, node, None, text);
    }

    /// As [`Self::warn`] of what a program did: `text` goes on after its name.
    pub fn warn_of(&self, now_ns: u64, code: &str, node: Option<u32>, program: Option<&str>, text: &str) {
        let node = node.map(|node| self.nodes[node as usize].as_str());
        self.warnings().add(now_ns, code, node, program, text);
    }

    /// As [`Self::warn_of`], `times` at once.
    pub fn warn_times(&self, now_ns: u64, code: &str, node: u32, program: &str, text: &str, times: u64) {
        let node = Some(self.nodes[node as usize].as_str());
        self.warnings()
            .add_times(now_ns, code, node, Some(program), text, times);
    }

    /// The warnings so far.
    pub fn warnings(&self) -> MutexGuard<'_, Warnings> {
        self.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The books on programs.
    pub fn processes(&self) -> MutexGuard<'_, BTreeMap<(u32, u32, u32), ProcessSummary>> {
        self.processes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
