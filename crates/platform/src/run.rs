//! A run from its scenario to its results, on the wall clock.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use windtunnel_links::LinkChange;
use windtunnel_results::{
    ChangedBy, Cost, Ended, Event as Told, EventLog, LinkValues, Manifest, OutDir, PlatformRecord, ProgramEvent,
    RootRecord, SUMMARY_VERSION, ScenarioRecord, Summary, Warnings,
};
use windtunnel_scenario::{Action, Node, OwnFile, Root, Scenario};

use crate::PlatformError;
use crate::init::now_ns;
use crate::limits;
use crate::protocol::FileSpec;
use crate::supervisor::Supervisor;
use crate::wire::Wire;

/// How often the stop flag is looked at, ns.
const LOOK_NS: u64 = 100_000_000;
/// How long nodes may take to say what their interfaces dropped, ns.
const LAST_WORDS_NS: u64 = 2_000_000_000;

/// How to run a scenario.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: OutDir,
    /// The scenario's file as the user named it.
    pub scenario_path: PathBuf,
    /// Seed of the links' random effects.
    pub seed: u64,
    /// Ends the run once it is set.
    pub stop_flag: Arc<AtomicBool>,
    /// How far the run is.
    pub progress: Arc<Progress>,
}

/// Written while the run goes on, for somebody on another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Time since the start, ns.
    pub time_ns: AtomicU64,
    /// When it stops, ns; 0: nodes are being made.
    pub stop_ns: AtomicU64,
    /// Frames that nodes have sent.
    pub frames: AtomicU64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As written to `summary.json`.
    pub summary: Summary,
    /// A sentence for each expectation that did not hold.
    pub failed_expectations: Vec<String>,
}

/// Runs the scenario; the calling thread has to be the one that lives longest, for nodes end with it.
///
/// # Errors
/// Whatever keeps it from starting or going on. The manifest says so as well.
pub fn run(scenario: &Scenario, options: &Options) -> Result<Outcome, PlatformError> {
    let record = ScenarioRecord {
        path: options.scenario_path.display().to_string(),
        name: scenario.name.clone(),
        sha256: scenario.sha256.clone(),
        epoch_s: scenario.run.epoch_s,
    };
    let rootless = !nix::unistd::geteuid().is_root();
    let mut manifest = Manifest::starting(env!("CARGO_PKG_VERSION"), record, options.seed);
    manifest.platform = Some(PlatformRecord {
        name: "host".into(),
        kernel_release: nix::sys::utsname::uname()
            .map_or(String::new(), |name| name.release().to_string_lossy().into()),
        rootless,
        no_digest: "time is the host's: no two runs are equal".into(),
        read_only: Vec::new(),
    });
    manifest.roots = roots(scenario);
    options.out.write_manifest(&manifest)?;
    let began_ns = now_ns();
    let result = Run::make(scenario, options, rootless, &mut manifest).and_then(|mut run| {
        let ended = run.go()?;
        run.finish(ended, &mut manifest)
    });
    manifest.cost = Cost::of_this_process(now_ns() - began_ns);
    if let Err(error) = &result {
        manifest.ended = Some(Ended::Error);
        manifest.error = Some(error.to_string());
    }
    let written = options.out.write_manifest(&manifest);
    let outcome = result?;
    written?;
    Ok(outcome)
}

struct Run<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    nodes: Vec<Supervisor>,
    wire: Wire,
    warnings: Warnings,
    /// Changes of links, with their times.
    changes: Vec<(u64, Told)>,
    /// Time 0 on the host's clock, ns.
    base_ns: u64,
}

impl<'a> Run<'a> {
    fn make(
        scenario: &'a Scenario,
        options: &'a Options,
        rootless: bool,
        manifest: &mut Manifest,
    ) -> Result<Self, PlatformError> {
        let mut warnings = Warnings::new();
        for caution in &scenario.warnings {
            warnings.add(0, caution.code, None, None, &caution.text);
        }
        limits::check(scenario, rootless, &mut warnings)?;
        // Nodes are made side by side.
        let mut nodes = Vec::new();
        for node in &scenario.nodes {
            nodes.push(Supervisor::start(
                node,
                files(scenario, node, options.seed)?,
                &options.out,
                rootless,
            )?);
        }
        let mut taps = Vec::new();
        for (supervisor, node) in nodes.iter_mut().zip(&scenario.nodes) {
            taps.push(supervisor.wait_until_made(node.interfaces.len())?);
        }
        let mut read_only: Vec<String> = nodes.iter().flat_map(|node| node.read_only.clone()).collect();
        read_only.sort();
        read_only.dedup();
        if !read_only.is_empty() {
            let text = format!(
                "nodes cannot write to {}: the kernel refused a layer there",
                read_only.join(", ")
            );
            warnings.add(0, "host_read_only", None, None, &text);
        }
        if let Some(platform) = &mut manifest.platform {
            platform.read_only = read_only;
        }
        let capture = |node: usize, index: usize| {
            let node = &scenario.nodes[node];
            let interface = &node.interfaces[index];
            let epoch_s = scenario.run.epoch_s;
            interface
                .capture
                .then(|| options.out.pcap(&node.name, &interface.name, epoch_s))
                .transpose()
        };
        let wire = Wire::new(scenario, options.seed, taps, capture)?;
        // Sleeps end when they should; by default they may be 50 us late. Where that cannot be had, lateness shows it.
        let _ = nix::sys::prctl::set_timerslack(1);
        Ok(Self {
            scenario,
            options,
            nodes,
            wire,
            warnings,
            changes: Vec::new(),
            base_ns: now_ns(),
        })
    }

    fn time_ns(&self) -> u64 {
        now_ns() - self.base_ns
    }

    /// Until the end.
    fn go(&mut self) -> Result<Ended, PlatformError> {
        let scenario = self.scenario;
        let stop_ns = scenario.run.stop.as_ns();
        let mut events = scenario.events.iter().peekable();
        let progress = &self.options.progress;
        progress.stop_ns.store(stop_ns, Ordering::Relaxed);
        let has_programs = self.nodes.iter().any(Supervisor::has_processes);
        loop {
            let now = self.time_ns();
            progress.time_ns.store(now, Ordering::Relaxed);
            progress.frames.store(self.wire.frames, Ordering::Relaxed);
            if self.options.stop_flag.load(Ordering::Relaxed) {
                return Ok(Ended::Interrupted);
            }
            if now >= stop_ns {
                return Ok(Ended::Stop);
            }
            while let Some(event) = events.next_if(|event| event.at.as_ns() <= now) {
                self.change(event.at.as_ns(), &event.action)?;
            }
            for node in &mut self.nodes {
                node.due(now)?;
            }
            let base_ns = self.base_ns;
            self.wire.due(|| now_ns() - base_ns)?;
            let over = has_programs && self.nodes.iter().all(Supervisor::all_over);
            if over && events.peek().is_none() && self.wire.is_empty() {
                return Ok(Ended::AllDone);
            }
            let event_ns = events.peek().map_or(u64::MAX, |event| event.at.as_ns());
            let node_ns = self.nodes.iter().map(Supervisor::next_ns).min().unwrap_or(u64::MAX);
            let next_ns = stop_ns.min(event_ns).min(node_ns).min(self.wire.next_ns());
            self.wait(next_ns)?;
        }
    }

    /// Waits until `next_ns` at most, and takes in what has come.
    fn wait(&mut self, next_ns: u64) -> Result<(), PlatformError> {
        let rest_ns = next_ns.saturating_sub(self.time_ns()).min(LOOK_NS);
        let mut fds: Vec<PollFd<'_>> = self
            .nodes
            .iter()
            .map(|node| PollFd::new(node.fd(), PollFlags::POLLIN))
            .collect();
        let (numbers, taps): (Vec<usize>, Vec<_>) = self.wire.readable().unzip();
        fds.extend(taps.iter().map(|tap| PollFd::new(tap.as_fd(), PollFlags::POLLIN)));
        // The last part of a wait is spent awake, if the scenario says so: then this only looks, again and again.
        let rest_ns = rest_ns.saturating_sub(self.scenario.run.realtime.spin.as_ns());
        let timeout = TimeSpec::new((rest_ns / 1_000_000_000) as i64, (rest_ns % 1_000_000_000) as i64);
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(PlatformError::host("wait for frames", errno)),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let (nodes, taps) = ready.split_at(self.nodes.len());
        for (number, _) in numbers.into_iter().zip(taps).filter(|(_, ready)| **ready) {
            let now = self.time_ns();
            self.wire.read(number, now)?;
        }
        for (node, _) in self.nodes.iter_mut().zip(nodes).filter(|(_, ready)| **ready) {
            for (program, text) in node.attend(self.base_ns)? {
                let now = self.base_ns.max(now_ns()) - self.base_ns;
                self.warnings
                    .add(now, "program_not_started", Some(&node.name), Some(&program), &text);
            }
        }
        Ok(())
    }

    fn change(&mut self, at_ns: u64, action: &Action) -> Result<(), PlatformError> {
        let Action::SetLink { link, a_to_b, b_to_a } = action else {
            // No other gets past the check at the start.
            return Ok(());
        };
        let (a, b) = self.wire.change(*link, a_to_b, b_to_a)?;
        let event = Told::LinkChanged {
            a: a.to_owned(),
            b: b.to_owned(),
            by: ChangedBy::Scenario,
            a_to_b: values(a_to_b),
            b_to_a: values(b_to_a),
        };
        self.changes.push((at_ns, event));
        Ok(())
    }

    /// Asks every node what its interfaces dropped. One that does not answer has none to tell of, and a warning.
    fn count_drops(&mut self) -> Result<Vec<Vec<u64>>, PlatformError> {
        for node in &mut self.nodes {
            node.ask_count()?;
        }
        let until_ns = self.time_ns() + LAST_WORDS_NS;
        while self.nodes.iter().any(|node| node.queue_drops.is_none()) && self.time_ns() < until_ns {
            self.wait(until_ns)?;
        }
        for node in self.nodes.iter().filter(|node| node.queue_drops.is_none()) {
            let text = "did not say how many frames its interfaces dropped: `tap_queue_full` may be too low";
            self.warnings.add(0, "host_no_count", Some(&node.name), None, text);
        }
        Ok(self
            .nodes
            .iter()
            .map(|node| node.queue_drops.clone().unwrap_or_default())
            .collect())
    }

    fn finish(mut self, ended: Ended, manifest: &mut Manifest) -> Result<Outcome, PlatformError> {
        let end_ns = self.time_ns();
        let results: Vec<_> = self
            .nodes
            .iter()
            .flat_map(|node| node.results(&self.options.out))
            .collect();
        let queue_drops = self.count_drops()?;
        self.wire.flush()?;
        let lateness = self.wire.lateness();
        if lateness.p99_ns > self.scenario.run.realtime.late_limit.as_ns() {
            let text = format!(
                "the host was busy: a hundredth of the frames arrived {:.1} ms late or more, the last one {:.1} ms: delays and rates \
                 are not quite those of the scenario",
                lateness.p99_ns as f64 / 1e6,
                lateness.max_ns as f64 / 1e6
            );
            self.warnings.add(end_ns, "late", None, None, &text);
        }
        let failed_expectations: Vec<String> = results.iter().flat_map(|(_, failures)| failures.clone()).collect();
        let summary = Summary {
            summary_version: SUMMARY_VERSION,
            scenario: self.scenario.name.clone(),
            seed: self.options.seed,
            ended,
            digest: None,
            virtual_time_ns: end_ns,
            syscalls: 0,
            frames: self.wire.frames,
            processes: results.iter().map(|(summary, _)| summary.clone()).collect(),
            links: self.wire.summaries(&queue_drops),
            warnings: self.warnings.list().to_vec(),
            failed_expectations: failed_expectations.clone(),
            ports: Vec::new(),
            lateness: None,
            delivery_lateness: Some(lateness),
        };
        let names = self.scenario.nodes.iter().map(|node| node.name.as_str());
        let mut events = EventLog::new(&summary.scenario, summary.seed, names);
        for node in &self.nodes {
            if let Some(at_ns) = node.ready_ns {
                events.add(
                    at_ns,
                    Told::NodeReady {
                        node: node.name.clone(),
                    },
                );
            }
        }
        for (at_ns, change) in self.changes {
            events.add(at_ns, change);
        }
        events.add_processes(&summary, |_, _, _| None);
        for (process, failures) in results {
            let event = Told::Expectation {
                program: ProgramEvent::of(&process),
                held: failures.is_empty(),
                failures,
            };
            events.add(end_ns, event);
        }
        events.end(&summary, None);
        self.options.out.write_summary(&summary)?;
        self.options.out.write_events(&events)?;
        manifest.ended = Some(ended);
        manifest.virtual_time_ns = end_ns;
        Ok(Outcome {
            summary,
            failed_expectations,
        })
    }
}

fn values(change: &LinkChange) -> LinkValues {
    LinkValues {
        rate_bps: change.rate.map(|rate| rate.0),
        delay_ns: change.delay.map(|delay| delay.as_ns()),
        jitter_ns: change.jitter.map(|jitter| jitter.as_ns()),
        reorder: change.reorder,
        loss_ppb: change.loss.map(|chance| chance.as_ppb()),
        duplicate_ppb: change.duplicate.map(|chance| chance.as_ppb()),
        corrupt_ppb: change.corrupt.map(|chance| chance.as_ppb()),
        queue: change.queue.map(|queue| queue.to_string()),
        up: change.up,
    }
}

/// What nodes have as `/`, for the manifest.
fn roots(scenario: &Scenario) -> Vec<RootRecord> {
    let mut records: Vec<RootRecord> = Vec::new();
    for node in &scenario.nodes {
        let (kind, path) = match &node.root {
            Root::Host => ("host", "/".to_owned()),
            Root::Path { path, .. } => ("directory", path.display().to_string()),
        };
        match records.iter_mut().find(|known| known.path == path) {
            Some(known) => known.nodes.push(node.name.clone()),
            None => records.push(RootRecord {
                kind: kind.into(),
                path,
                name: None,
                sha256: None,
                nodes: vec![node.name.clone()],
            }),
        }
    }
    records
}

/// The files a node has of its own.
fn files(scenario: &Scenario, node: &Node, seed: u64) -> Result<Vec<FileSpec>, PlatformError> {
    let files = scenario.own_files(node, seed).map_err(|source| PlatformError::Source {
        node: node.name.clone(),
        source,
    })?;
    let spec = |file: OwnFile| FileSpec {
        path: file.path,
        bytes: file.bytes.to_vec(),
        mode: file.mode,
    };
    Ok(files.into_iter().map(spec).collect())
}
