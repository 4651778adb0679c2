//! A run from its scenario to its results.
//!
//! # When a run ends
//! - At `run.stop`: events at that time are not run any more. Programs that still run are recorded as running.
//! - Earlier, when the scenario has programs, all of them have ended, no event of the scenario is to come, and no frame
//!   is on its way (`all_done`).
//! - When it is interrupted, a kernel crashes, or a result cannot be written. What was written so far is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use windtunnel_base::SimTime;
use windtunnel_process::InputRecord;
use windtunnel_process::trap::{Ticks, TrapThread};
use windtunnel_results::{
    ChangedBy, Cost, Ended, Event as Told, EventLog, FileRecord, LatenessSummary, LinkSummary, Manifest, OutDir,
    ProgramEvent, ProgramRecord, RunDigest, SUMMARY_VERSION, Summary, Trail,
};
use windtunnel_scenario::{Event, LinkSpec, Preempt, Scenario};

use crate::build;
use crate::cables::{self, Cables};
use crate::error::EngineError;
use crate::event::Source;
use crate::flows;
use crate::host_memory::MemoryGuard;
use crate::lateness::{self, Lateness};
use crate::links::Links;
use crate::live::{Identity, Live, LiveOptions, Network};
use crate::machine::Machines;
use crate::measure::Measure;
use crate::node::{Body, Node, NodeCalls, Switched};
use crate::outside::Outside;
use crate::programs::Programs;
use crate::roots::Roots;
use crate::shared::{Progress, Shared};
use crate::slices::Slicer;
use crate::urgency::Urgency;
use crate::watchdog::Watchdog;
use crate::window::{Outbox, Step, Windows};
use crate::write_back::{OwnFiles, write_back};

/// How to run a scenario.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: OutDir,
    /// The scenario's file as the user named it, for the manifest; it is not read.
    pub scenario_path: PathBuf,
    /// What the scenario's nodes see as `/`.
    pub roots: Roots,
    /// The kernel of all nodes.
    pub kernel_image: PathBuf,
    /// Hash that names the kernel in the cache, for the manifest; none: it is not from the cache.
    pub kernel_build_hash: Option<String>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Ends the run at the next window once it is set.
    pub stop_flag: Arc<AtomicBool>,
    /// Kept up to date while the run goes on.
    pub progress: Arc<Progress>,
    /// For debuggers.
    pub debug: Option<DebugHooks>,
    /// Whether to compute the digest.
    pub digest: bool,
    /// Whether to write the captures the scenario asks for.
    pub pcap: bool,
    /// How to deal with those who watch.
    pub live: LiveOptions,
    /// Whether what programs write is brought to the host's files at the end. It is for runs of one node, whose root is the host's.
    pub write_back: bool,
}

/// Functions that tell a debugger what happens.
#[derive(Clone, Copy, Debug)]
pub struct DebugHooks {
    /// An image was loaded: path of its file on the host, load bias, node.
    pub image: fn(&str, u64, &str),
    /// It goes: path and load bias.
    pub image_gone: fn(&str, u64),
    /// This node runs from now on; empty: none does.
    pub node: fn(&str),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// As written to `summary.json`.
    pub summary: Summary,
    /// A sentence for each expectation that did not hold.
    pub failed_expectations: Vec<String>,
}

/// A run, ready to go. It lives on one thread: that thread's system calls are trapped for the programs.
pub struct Simulation {
    // Instances before what they run on: fields are dropped in this order.
    nodes: Vec<Node>,
    windows: Windows<Body>,
    books: Books,
    events: Vec<Event>,
    links: Links,
    measure: Option<Measure>,
    stop_ns: u64,
    has_programs: bool,
    /// Numbers the events the scenario itself makes.
    source: Source,
    stop_flag: Arc<AtomicBool>,
    live: Live,
    outside: Option<Box<Outside>>,
    write_back: bool,
    /// Beyond this a window is late, ns.
    late_limit_ns: u64,
    /// From which virtual time on the run went with the wall clock, and how long it took until then, ns; none: from its start, or never.
    went_live: Option<(u64, u64)>,
    preempt: Preempt,
    priority: bool,
    debug: Option<DebugHooks>,
    files: Arc<windtunnel_process::Shared>,
    machines: Machines,
    _traps: TrapThread,
    _watchdog: Watchdog,
    _memory_guard: MemoryGuard,
}

/// What is written about a run, besides what happens in it.
#[derive(Debug)]
pub(crate) struct Books {
    pub out: OutDir,
    pub manifest: Manifest,
    pub scenario: String,
    /// Interface names by node.
    pub interfaces: Vec<Vec<String>>,
    pub shared: Arc<Shared>,
    pub started: Instant,
    pub digest: bool,
    /// Wall clock of the nodes at virtual time 0, seconds since 1970.
    pub epoch_s: u64,
}

impl Books {
    /// Writes down that the run ended with `error` before anything else could be known.
    pub fn note_error(&mut self, error: &EngineError) {
        self.manifest.ended = Some(ended_by(error));
        self.manifest.error = Some(error.to_string());
        self.manifest.cost = Cost::of_this_process(self.started.elapsed().as_nanos() as u64);
        // The error itself is what the user has to hear of.
        let _ = self.out.write_manifest(&self.manifest);
    }
}

fn ended_by(error: &EngineError) -> Ended {
    if error.is_crash() { Ended::Crash } else { Ended::Error }
}

/// The parts of a [`Simulation`] as the builder makes them.
pub(crate) struct Parts {
    pub nodes: Vec<Node>,
    pub windows: Windows<Body>,
    pub source: Source,
    pub files: Arc<windtunnel_process::Shared>,
    pub machines: Machines,
    pub traps: TrapThread,
    pub watchdog: Watchdog,
    pub memory_guard: MemoryGuard,
}

impl Simulation {
    /// Boots and configures all nodes on the calling thread, which then has to run the simulation, too.
    ///
    /// # Errors
    /// Whatever keeps the run from starting. The manifest says so as well.
    pub fn new(scenario: &Scenario, mut options: Options) -> Result<Self, EngineError> {
        let mut books = build::books(scenario, &options);
        books.out.write_manifest(&books.manifest)?;
        let mut live = std::mem::take(&mut options.live);
        let priority = live.priority;
        if !live.not_deterministic.is_empty() {
            let text = format!(
                "the run that was recorded depended on its host, so this replay can differ from it, also in its digest: {}",
                live.not_deterministic.join("; ")
            );
            books.shared.warn(0, "replay_not_exact", None, &text);
        }
        let source = Source::new(build::FIRST_KERNEL + scenario.nodes.len() as u32 + 1);
        // Before the traps, which threads inherit that a port may need for a moment.
        let outside = Outside::new(scenario, live.outside.take().as_deref(), &books, source);
        let stop_flag = options.stop_flag.clone();
        let live = outside.and_then(|outside| Ok((make_live(scenario, live, &books, stop_flag)?, outside)));
        let (live, mut outside) = match live {
            Ok(live) => live,
            Err(error) => {
                books.note_error(&error);
                return Err(error);
            }
        };
        options
            .progress
            .stop_ns
            .store(scenario.run.stop.as_ns(), Ordering::Relaxed);
        let (stop_flag, debug, write_back) = (options.stop_flag.clone(), options.debug, options.write_back);
        let links = Links::new(scenario.links.clone(), link_ends(scenario));
        let built = Measure::new(
            &scenario.run.measure,
            &books.out,
            &Cables::new(&links, outside.as_deref_mut()),
        )
        .and_then(|measure| Ok((measure, build::build(scenario, options, &mut books)?)));
        match blame_host(built) {
            Ok((measure, parts)) => Ok(Self {
                nodes: parts.nodes,
                windows: parts.windows,
                books,
                events: scenario.events.clone(),
                links,
                measure,
                stop_ns: scenario.run.stop.as_ns(),
                has_programs: scenario.nodes.iter().any(|node| !node.processes.is_empty()),
                source: parts.source,
                stop_flag,
                live,
                outside,
                write_back,
                late_limit_ns: scenario.run.realtime.late_limit.as_ns(),
                went_live: None,
                preempt: scenario.run.preempt,
                priority,
                debug,
                files: parts.files,
                machines: parts.machines,
                _traps: parts.traps,
                _watchdog: parts.watchdog,
                _memory_guard: parts.memory_guard,
            }),
            Err(error) => {
                books.note_error(&error);
                Err(error)
            }
        }
    }

    /// Runs to the end and writes the results.
    ///
    /// # Errors
    /// Whatever broke the run off; what is known until then is written all the same.
    pub fn run(mut self) -> Result<RunOutcome, EngineError> {
        let ended = blame_host(self.run_windows());
        self.live.stop_clock();
        let run = ended
            .and_then(|ended| self.live.finish(ended, self.windows.done_ns()).map(|()| ended))
            .and_then(|ended| self.bring_files_back().map(|()| ended))
            .and_then(|ended| self.close_outside().map(|()| ended))
            .and_then(|ended| self.check_setup(ended))
            .and_then(|ended| self.flush_captures().map(|()| ended))
            .and_then(|ended| self.end_measurements(ended).map(|()| ended));
        // However it ended, others may be looked at from here on.
        let opened = blame_host(self.open_memory());
        let run = run.and_then(|ended| opened.map(|()| ended));
        if let Some(debug) = self.debug {
            (debug.node)("");
        }
        let out = self.books.out.clone();
        let outcome = match run {
            Ok(ended) => self.finish(ended, None),
            Err(error) => {
                // A second error on the way out would hide the first.
                let _ = self.finish(ended_by(&error), Some(&error));
                Err(error)
            }
        };
        outcome.map_err(|error| match error {
            // Whatever could not be read or written: that the folder is gone is the reason.
            EngineError::Results(_) | EngineError::Output { .. } => {
                out.check_still_ours().err().map_or(error, EngineError::Results)
            }
            other => other,
        })
    }

    fn run_windows(&mut self) -> Result<Ended, EngineError> {
        if let Some(clock) = self.live.clock() {
            for node in &mut self.nodes {
                node.lateness = Some(Box::new(Lateness::new(clock.clone(), self.late_limit_ns)));
            }
            self.slice_programs()?;
            if self.priority {
                self.live.go_first(Urgency::new(self.books.shared.clone()));
            }
        }
        let mut events = std::mem::take(&mut self.events).into_iter().peekable();
        let mut lookahead_ns = Links::lookahead_ns(&self.nodes);
        let mut stop_ns = self.live.stop_ns(self.stop_ns);
        loop {
            let stopped = self.stop_flag.load(Ordering::Relaxed) || self.live.is_stopped();
            if stopped && self.windows.is_settled() {
                return Ok(self.live.interrupted());
            }
            let event_ns = events.peek().map_or(u64::MAX, |event| event.at.as_ns());
            let arrival_ns = self.outside.as_ref().map_or(u64::MAX, |outside| outside.replay_ns());
            let due_ns = stop_ns.min(event_ns).min(self.live.replay_ns()).min(arrival_ns);
            let limit_ns = self.attend(due_ns)?;
            if self.live.take_links_changed() {
                lookahead_ns = Links::lookahead_ns(&self.nodes);
            }
            if let Some((at_ns, after_ns)) = self.live.take_went_live() {
                self.went_live = Some((at_ns, after_ns));
                self.books
                    .shared
                    .progress
                    .live_after_ns
                    .store(after_ns.max(1), Ordering::Relaxed);
            }
            let Some(limit_ns) = limit_ns else { continue };
            match self.step(lookahead_ns, limit_ns)? {
                Step::Ran(start_ns, _) => self.books.shared.progress.virtual_ns.store(start_ns, Ordering::Relaxed),
                Step::Idle if limit_ns < due_ns => {}
                Step::Idle if due_ns == arrival_ns && due_ns < stop_ns => self.replay_outside(due_ns)?,
                Step::Idle if due_ns == stop_ns => match self.at_end(Ended::Stop, stop_ns) {
                    Some(ended) => return Ok(ended),
                    None => stop_ns = u64::MAX,
                },
                Step::Idle => {
                    // What visitors did came before what the scenario does at the same time.
                    self.live.replay(
                        &mut network(
                            &mut self.nodes,
                            &mut self.windows,
                            &self.links,
                            &mut self.measure,
                            &self.machines,
                            self.outside.as_deref_mut(),
                        ),
                        due_ns,
                    )?;
                    while let Some(event) = events.next_if(|event| event.at.as_ns() == due_ns) {
                        let outside = self.outside.as_deref_mut();
                        let mut network = network(
                            &mut self.nodes,
                            &mut self.windows,
                            &self.links,
                            &mut self.measure,
                            &self.machines,
                            outside,
                        );
                        let (action, by) = (&event.action, ChangedBy::Scenario);
                        self.links.change(&mut network, &mut self.source, due_ns, action, by)?;
                    }
                    // A run that ends by that ends after it, and so does its replay.
                    self.windows.pass(due_ns.saturating_add(1));
                    lookahead_ns = Links::lookahead_ns(&self.nodes);
                }
            }
            if self.outside.is_some() {
                self.look_outside();
            }
            self.live.deliver(&mut self.nodes);
            if self.all_done() && events.peek().is_none() && !self.live.keeps_running() {
                match self.at_end(Ended::AllDone, self.windows.done_ns()) {
                    Some(ended) => return Ok(ended),
                    None => stop_ns = u64::MAX,
                }
            }
        }
    }

    /// In real time programs that compute make way by the wall clock, unless the scenario has another end for them.
    fn slice_programs(&mut self) -> Result<(), EngineError> {
        if self.preempt == Preempt::Auto {
            let ticks = Ticks::new().map_err(EngineError::Ticks)?;
            self.live.slice_programs(Slicer::new(ticks, self.books.shared.clone()));
        }
        Ok(())
    }

    /// Takes what nodes have sent to ports. A replay sends it nowhere.
    fn look_outside(&mut self) {
        if let Some(outside) = &mut self.outside {
            outside.collect(&mut self.nodes);
            outside.send(self.windows.done_ns());
        }
    }

    /// What came from outside at `at_ns` in the recorded run comes again.
    fn replay_outside(&mut self, at_ns: u64) -> Result<(), EngineError> {
        match &mut self.outside {
            Some(outside) => outside.replay(&mut self.nodes, &mut self.windows, at_ns),
            None => Ok(()),
        }
    }

    /// The last of what passes ports, and of the recording.
    fn close_outside(&mut self) -> Result<(), EngineError> {
        // What came after all that was run counts on its link, and does not arrive.
        self.replay_outside(u64::MAX)?;
        let Some(outside) = &mut self.outside else {
            return Ok(());
        };
        if outside.is_replay() {
            // By the wall clock, all has left that was due before the end.
            outside.send(self.live.stop_ns(self.stop_ns));
        }
        outside.flush()
    }

    /// Brings what programs have written to the host's files, if that was asked for.
    fn bring_files_back(&mut self) -> Result<(), EngineError> {
        if !self.write_back {
            return Ok(());
        }
        let own = OwnFiles {
            paths: self
                .machines
                .own_files
                .iter()
                .flatten()
                .map(|file| file.path.clone())
                .collect(),
            mtime_ns: self.books.epoch_s * 1_000_000_000,
        };
        let (files, at_ns) = (self.files.clone(), self.windows.done_ns());
        let mut outbox = Outbox::default();
        let mut calls = NodeCalls {
            node: &mut self.nodes[0],
            outbox: &mut outbox,
        };
        let report = write_back(&mut calls, &|| files.seen(0), &own, Path::new("/"))?;
        let shared = &self.books.shared;
        for failure in &report.failures {
            shared.warn(at_ns, "write_back_failed", None, failure);
        }
        for note in &report.notes {
            shared.warn(at_ns, "write_back", None, note);
        }
        Ok(())
    }

    /// A run that came to its end while nodes were still being set up has shown nothing.
    fn check_setup(&self, ended: Ended) -> Result<Ended, EngineError> {
        let unready = match ended {
            Ended::Stop => self
                .nodes
                .iter()
                .find_map(|node| Some((node, node.programs.in_setup()?))),
            _ => None,
        };
        match unready {
            None => Ok(ended),
            Some((node, command)) => Err(EngineError::EndlessSetup {
                node: self.books.shared.nodes[node.number as usize].clone(),
                command: command.join(" "),
                at: SimTime(self.stop_ns),
            }),
        }
    }

    /// Runs one window, as [`Windows::step`] does, and takes the measurements that are due before its end.
    #[inline]
    fn step(&mut self, lookahead_ns: u64, limit_ns: u64) -> Result<Step, EngineError> {
        match &mut self.measure {
            None => self.windows.step(&mut self.nodes, lookahead_ns, limit_ns),
            Some(measure) => {
                let mut cables = Cables::new(&self.links, self.outside.as_deref_mut());
                measure.step(&mut self.nodes, &mut self.windows, &mut cables, lookahead_ns, limit_ns)
            }
        }
    }

    /// The run would end at `at_ns`. None: it waits for clients.
    fn at_end(&mut self, ended: Ended, at_ns: u64) -> Option<Ended> {
        let ended = self.live.at_end(ended, at_ns);
        self.books
            .shared
            .progress
            .held
            .store(ended.is_none(), Ordering::Relaxed);
        ended
    }

    /// Deals with clients, if there are any; how far the next window may go, ns.
    #[inline]
    fn attend(&mut self, due_ns: u64) -> Result<Option<u64>, EngineError> {
        if !self.live.is_wanted() {
            return Ok(Some(due_ns));
        }
        self.live.attend(
            &mut network(
                &mut self.nodes,
                &mut self.windows,
                &self.links,
                &mut self.measure,
                &self.machines,
                self.outside.as_deref_mut(),
            ),
            due_ns,
        )
    }

    fn all_done(&self) -> bool {
        self.has_programs
            && self.books.shared.busy_nodes.load(Ordering::Relaxed) == 0
            && !self.nodes.iter().any(Node::awaits_frame)
            && !self.outside.as_ref().is_some_and(|outside| outside.has_leaving())
    }

    /// Makes the memory of all nodes accessible again, where they were isolated.
    fn open_memory(&self) -> Result<(), EngineError> {
        let problem = |errno| EngineError::Internal(format!("access to the memory of nodes: {errno}"));
        self.files.open_all().map_err(problem)
    }

    /// Hands the rest of the captures to the host, where it can still fail.
    fn flush_captures(&mut self) -> Result<(), EngineError> {
        let mut ports = self.nodes.iter_mut().flat_map(|node| &mut node.ports);
        ports.try_for_each(|port| port.capture.as_mut().map_or(Ok(()), |capture| capture.flush()))?;
        Ok(())
    }

    /// The last of the measurements.
    fn end_measurements(&mut self, ended: Ended) -> Result<(), EngineError> {
        let mut at_ns = self.virtual_time_ns(ended);
        if let Some(outside) = self.outside.as_ref().filter(|_| ended == Ended::Interrupted) {
            // What came in since the last window is measured, too.
            at_ns = at_ns.max(match outside.is_replay() {
                true => self.live.stop_ns(self.stop_ns),
                false => self.windows.done_ns(),
            });
        }
        match &mut self.measure {
            Some(measure) => {
                let mut cables = Cables::new(&self.links, self.outside.as_deref_mut());
                measure.finish(&mut self.nodes, &mut cables, at_ns)
            }
            None => Ok(()),
        }
    }

    /// How far the run has come, ns.
    fn virtual_time_ns(&self, ended: Ended) -> u64 {
        let last_ns = self.nodes.iter().map(Node::now_ns).max().unwrap_or(0);
        match ended {
            Ended::Stop => self.stop_ns.max(last_ns),
            _ => last_ns,
        }
    }

    /// Writes everything there is to tell.
    fn finish(mut self, ended: Ended, error: Option<&EngineError>) -> Result<RunOutcome, EngineError> {
        let virtual_time_ns = self.virtual_time_ns(ended);
        for node in &mut self.nodes {
            node.tell_notes();
        }
        for (path, count) in self.files.unmasked_images() {
            let text = format!(
                "{path} may read the host's processor at {count} places that could not be patched: results may differ on \
                 other hosts"
            );
            self.books.shared.warn(virtual_time_ns, "cpuid_not_masked", None, &text);
        }
        self.books
            .shared
            .progress
            .virtual_ns
            .store(virtual_time_ns, Ordering::Relaxed);
        let changed_files = self.files.changed_files();
        if !changed_files.is_empty() {
            self.books.shared.warn(
                virtual_time_ns,
                "host_file_changed",
                None,
                &changed_text(&changed_files),
            );
        }
        self.warn_of_untold();
        let expectations = match error {
            None => self.expectations()?,
            Some(_) => Vec::new(),
        };
        let failed_expectations = match error {
            None => expectations
                .iter()
                .flat_map(|(_, _, failures)| failures.clone())
                .collect(),
            Some(error) => vec![error.to_string()],
        };
        let summary = Summary {
            summary_version: SUMMARY_VERSION,
            scenario: self.books.scenario.clone(),
            seed: self.books.manifest.seed,
            ended,
            digest: if self.books.digest { Some(self.digest()?) } else { None },
            virtual_time_ns,
            syscalls: self.nodes.iter().map(Node::syscalls).sum(),
            frames: self
                .nodes
                .iter()
                .flat_map(|node| &node.ports)
                .map(|port| port.link.counters().frames)
                .sum(),
            processes: self
                .each_process()
                .map(|(programs, index)| programs.summary(index))
                .chain(self.nodes.iter().flat_map(Node::client_summaries))
                .collect(),
            links: self.link_summaries(),
            ports: self
                .outside
                .as_ref()
                .map(|outside| outside.summaries())
                .unwrap_or_default(),
            lateness: self.lateness(virtual_time_ns),
            warnings: self.books.shared.warnings().list().to_vec(),
            failed_expectations: failed_expectations.clone(),
            delivery_lateness: None,
        };
        let events = self.events(&summary, &expectations, error);
        let books = &mut self.books;
        books.out.write_summary(&summary)?;
        books.out.write_events(&events)?;
        if self.measure.as_ref().is_some_and(Measure::has_flows) {
            let name =
                |node: usize, port: usize| format!("{}:{}", books.shared.nodes[node], books.interfaces[node][port]);
            let outside = self.outside.iter().flat_map(|outside| outside.flows());
            books.out.write_flows(&flows::table(&self.nodes, outside, name))?;
        }
        if books.digest {
            books.out.write_trail(&trail(&self.nodes, books))?;
        }
        books.manifest.ended = Some(ended);
        books.manifest.error = error.map(ToString::to_string);
        books.manifest.digest.clone_from(&summary.digest);
        books.manifest.virtual_time_ns = virtual_time_ns;
        books.manifest.not_deterministic = books.shared.preemption.marks(&books.shared.nodes);
        books.manifest.programs = program_records(&self.files);
        books.manifest.changed_files = changed_files;
        books.manifest.files = file_records(self.files.opened_files());
        books.manifest.directories = file_records(self.files.listed_directories());
        books.manifest.cost = Cost::of_this_process(books.started.elapsed().as_nanos() as u64);
        books.out.write_manifest(&books.manifest)?;
        Ok(RunOutcome {
            summary,
            failed_expectations,
        })
    }

    /// Warns of children and execs that events.jsonl only counts.
    fn warn_of_untold(&self) {
        let text = "more than 10,000 children, or as many execs, in one life of a node: events.jsonl counts the rest \
                    (`children_not_told`, `execs_not_told`)";
        let mut warnings = self.books.shared.warnings();
        for node in &self.nodes {
            for (first_ns, count) in node.lives().filter_map(|programs| programs.family.untold()) {
                warnings.add_times(first_ns, "events_not_told", Some(node.name()), None, text, count);
            }
        }
    }

    fn link_summaries(&self) -> Vec<LinkSummary> {
        cables::summaries(&self.links, self.outside.as_deref(), &self.nodes)
    }

    /// How late the run was, if it went with the wall clock, with warnings if that was too late.
    fn lateness(&self, at_ns: u64) -> Option<LatenessSummary> {
        let lateness = self.live.lateness(&self.nodes)?;
        for (code, text) in lateness::warnings(&lateness) {
            self.books.shared.warn(at_ns, code, None, &text);
        }
        Some(lateness)
    }

    /// Every process of the scenario, in each life of its node: the programs of that, and its number among them.
    fn each_process(&self) -> impl Iterator<Item = (&Programs, usize)> {
        self.nodes.iter().flat_map(Node::lives).flat_map(|programs| {
            let lifecycle = &programs.lifecycle;
            (lifecycle.setup_count()..lifecycle.len()).map(move |index| (programs, index))
        })
    }

    /// Every process of the scenario, with a sentence for each part of its expectation that did not hold.
    fn expectations(&self) -> Result<Vec<Checked<'_>>, EngineError> {
        let checked = |(programs, index): (_, usize)| {
            let programs: &Programs = programs;
            Ok((programs, index, programs.failed_expectations(index)?))
        };
        self.each_process().map(checked).collect()
    }

    /// All that happened.
    fn events(&self, summary: &Summary, expectations: &[Checked<'_>], error: Option<&EngineError>) -> EventLog {
        let names = self.books.shared.nodes.iter().map(String::as_str);
        let mut events = EventLog::new(&summary.scenario, summary.seed, names);
        for node in &self.nodes {
            let name = || node.name().to_owned();
            for &(at_ns, switched) in node.switched() {
                let event = match switched {
                    Switched::Off(by) => Told::NodeDown { node: name(), by },
                    Switched::On => Told::NodeBooted { node: name() },
                };
                events.add(at_ns, event);
            }
            for at_ns in node.lives().filter_map(|programs| programs.lifecycle.setup_end_ns()) {
                events.add(at_ns, Told::NodeReady { node: name() });
            }
        }
        self.links.tell(&mut events);
        if let Some((at_ns, after_wall_ns)) = self.went_live {
            events.add(at_ns, Told::RunLive { after_wall_ns });
        }
        self.tell_families(summary, &mut events);
        for (programs, index, failures) in expectations {
            let event = Told::Expectation {
                program: ProgramEvent::of(&programs.summary(*index)),
                held: failures.is_empty(),
                failures: failures.clone(),
            };
            events.add(summary.virtual_time_ns, event);
        }
        events.end(summary, error.map(ToString::to_string));
        events
    }

    /// Adds the processes of all nodes.
    fn tell_families(&self, summary: &Summary, events: &mut EventLog) {
        events.add_processes(summary, |name, pid, end_ns| {
            let pid = pid?;
            let node = self.nodes.iter().find(|node| node.name() == name)?;
            let spent = node
                .lives()
                .filter_map(|programs| programs.family.spent(pid, end_ns))
                .last()?;
            Some((spent.user_ns, spent.system_ns))
        });
        for node in &self.nodes {
            for programs in node.lives() {
                programs.family.tell(node.name(), events);
            }
        }
    }

    fn digest(&self) -> Result<String, EngineError> {
        let mut digest = RunDigest::new();
        for node in &self.nodes {
            let names = &self.books.interfaces[node.number as usize];
            for (port, name) in node.ports.iter().zip(names) {
                if let Some(interface) = &port.digest {
                    digest.add_interface(node.name(), name, interface);
                }
            }
            for programs in node.lives() {
                for index in 0..programs.lifecycle.len() {
                    digest.add_process(programs.record(index)?);
                }
            }
            for record in node.client_records()? {
                digest.add_process(record);
            }
        }
        Ok(digest.finish())
    }
}

/// A process of the scenario: the programs it is of, its number among them, and what of its expectation did not hold.
type Checked<'a> = (&'a Programs, usize, Vec<String>);

/// What a failure of the host's has led to is not the error to be told.
fn blame_host<T>(result: Result<T, EngineError>) -> Result<T, EngineError> {
    windtunnel_process::take_host_failure().map_or(result, |failure| Err(failure.into()))
}

/// The warning of host files that changed during the run: one, however many they are.
fn changed_text(paths: &[String]) -> String {
    /// So many are named; the manifest has all.
    const NAMED: usize = 5;
    let named = paths[..paths.len().min(NAMED)].join(", ");
    let more = match paths.len() - paths.len().min(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more (see changed_files in manifest.json)"),
    };
    format!("changed on the host during the run, so that programs may have seen more than one state: {named}{more}")
}

fn network<'a>(
    nodes: &'a mut [Node],
    windows: &'a mut Windows<Body>,
    links: &'a Links,
    measure: &'a mut Option<Measure>,
    machines: &'a Machines,
    outside: Option<&'a mut Outside>,
) -> Network<'a> {
    Network {
        nodes,
        windows,
        links,
        measure,
        machines,
        outside,
    }
}

/// Names of the ends of all links: "node:interface".
fn link_ends(scenario: &Scenario) -> Vec<(String, String)> {
    let ends = |link: &LinkSpec| (scenario.iface_name(link.a), scenario.iface_name(link.b));
    scenario.links.iter().map(ends).collect()
}

/// The live part of a run, which numbers its events after those of all kernels.
fn make_live(
    scenario: &Scenario,
    options: LiveOptions,
    books: &Books,
    stop_flag: Arc<AtomicBool>,
) -> Result<Live, EngineError> {
    let identity = Identity {
        out: books.out.clone(),
        scenario_sha256: scenario.sha256.clone(),
        seed: books.manifest.seed,
        nodes: books.shared.nodes.clone(),
        scenario: scenario.clone(),
    };
    let recorded = options
        .replay
        .as_ref()
        .map(|recording| &recording.header.scenario_sha256);
    if recorded.is_some_and(|recorded| *recorded != scenario.sha256) {
        let text = "the recording was made with another scenario file: the run may go another way";
        books.shared.warn(0, "replay_differs", None, text);
    }
    let source = Source::new(build::FIRST_KERNEL + scenario.nodes.len() as u32);
    Live::new(options, identity, source, stop_flag)
}

/// The digests of all interfaces on their way.
fn trail(nodes: &[Node], books: &Books) -> Trail {
    let interfaces = nodes.iter().flat_map(|node| {
        let number = node.number as usize;
        let (node_name, names) = (&books.shared.nodes[number], &books.interfaces[number]);
        let ports = node.ports.iter().zip(names);
        ports.filter_map(move |(port, name)| Some((node_name.as_str(), name.as_str(), port.digest.as_ref()?)))
    });
    Trail::new(books.epoch_s, interfaces)
}

fn program_records(files: &windtunnel_process::Shared) -> Vec<ProgramRecord> {
    let mut records: Vec<ProgramRecord> = files
        .images()
        .into_iter()
        .map(|image| ProgramRecord {
            path: image.path,
            sha256: image.sha256,
        })
        .collect();
    records.sort();
    records.dedup();
    records
}

fn file_records(records: Vec<InputRecord>) -> Vec<FileRecord> {
    let record = |InputRecord { path, sha256 }| FileRecord { path, sha256 };
    records.into_iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_one_warning_however_many() {
        let paths: Vec<String> = (0..7).map(|number| format!("/f{number}")).collect();
        assert!(changed_text(&paths[..1]).ends_with("more than one state: /f0"));
        assert!(
            changed_text(&paths).ends_with(": /f0, /f1, /f2, /f3, /f4 and 2 more (see changed_files in manifest.json)")
        );
    }
}
