//! `windtunnel run FILE --out DIR`
//!
//! The simulation has a thread of its own, because that thread's system calls, rdtsc and cpuid are trapped for the
//! programs. The main thread draws progress and waits; a third one waits for Ctrl-C.

use crate::failure::{EXIT_EXPECTATION, EXIT_INTERRUPTED, EXIT_OK, Failure, Outcome, SIGNAL_BASE};
use crate::progress::{Position, ProgressLine};
use crate::{debug, host, kernels, report};
use nix::sys::signal::{SigSet, Signal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use windtunnel_base::result_files::{INPUT, OUTSIDE};
use windtunnel_base::{SimDuration, hashes};
use windtunnel_control::{Bell, Hello, LINK, PROTOCOL, Recording, Ringer, Server, bell};
use windtunnel_engine::{
    DebugHooks, EngineError, LiveOptions, Options, Progress, Roots, RunOutcome, Simulation, stray_write,
};
use windtunnel_images::{Cache, ImageError, Unpacker};
use windtunnel_process::trap::inherited;
use windtunnel_process::trap::priority::{self, PriorityError};
use windtunnel_results::{Ended, ExistingFiles, Manifest, OutDir};
use windtunnel_scenario::Scenario;

/// Of the simulation thread: generous, since address space is all it costs.
const STACK_BYTES: usize = 64 << 20;

/// Run a scenario in virtual time
///
/// The results are summary.json, manifest.json, each program's output, each node's kernel log, and captures.
/// Ctrl-C stops the run and keeps them; a second one ends the program at once. SIGTERM and SIGHUP do the same; the exit code
/// is 128 plus the number of the signal. While it lasts, `windtunnel shell`, `exec`,
/// `ps`, `logs` and `stop` reach it; what they do is written to input.jsonl.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file
    file: PathBuf,
    /// Folder for the results; made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of all random numbers, instead of the scenario's
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Virtual time at which to stop, instead of the scenario's: 500ms, 10s, 2min
    #[arg(long, value_name = "TIME")]
    stop: Option<SimDuration>,
    /// Measure links, TCP, MPTCP and queueing disciplines after each such span of virtual time, instead of what the scenario says: 10ms
    #[arg(long, value_name = "TIME")]
    measure: Option<SimDuration>,
    /// Put the captures together as run.pcapng when the run has ended; if the scenario captures nothing, all interfaces are captured
    #[arg(long)]
    pcapng: bool,
    /// Wait for `windtunnel shell` and others at the end, until `windtunnel stop` or Ctrl-C: virtual time stands still while nobody is there
    #[arg(long)]
    hold: bool,
    /// Let virtual time go with the wall clock, as it does while somebody is there
    #[arg(long)]
    realtime: bool,
    /// Go with the wall clock from this virtual time on, and as fast as can be until then, instead of what the scenario says: 60s
    #[arg(long, value_name = "TIME", conflicts_with_all = ["drive", "replay"])]
    live_at: Option<SimDuration>,
    /// In real time, go before all ordinary programs of the host (SCHED_FIFO), and lock the engine's memory: the host has to allow it, and keeps a tenth of the processor
    #[arg(long)]
    priority: bool,
    /// Let a program decide how time goes on, as the Python package does: nothing happens until one has taken the wheel at the control socket, and the run ends when it lets go
    #[arg(long, conflicts_with_all = ["hold", "realtime", "replay"])]
    drive: bool,
    /// What to run on: `virtual`, library kernels in virtual time; or `host`, network namespaces of the host's kernel with the wall clock
    #[arg(long, value_enum, default_value_t = Platform::Virtual)]
    platform: Platform,
    /// Keep programs from the memory of other nodes: a stray pointer ends in SIGSEGV, and the summary says whose it was. Costs time
    #[arg(long)]
    isolate: bool,
    /// Repeat what happened to another run of this scenario, in virtual time: what was typed, and what came from outside through ports. Its output folder, or the input.jsonl there
    #[arg(long, value_name = "DIR", conflicts_with = "hold")]
    replay: Option<PathBuf>,
    /// Print summary.json, and nothing else, to standard output
    #[arg(long)]
    json: bool,
    /// Show no progress and no report
    #[arg(long)]
    quiet: bool,
    /// Replace the results of an earlier run in DIR; files that are not results are kept
    #[arg(long)]
    force: bool,
    /// Compute no digest: what it costs is measured this way
    #[arg(long, hide = true)]
    no_digest: bool,
    /// Tell a debugger about images and nodes; see `windtunnel gdb`
    #[arg(long, hide = true)]
    debugger: bool,
}

/// What nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Platform {
    /// Library kernels, in virtual time.
    Virtual,
    /// Namespaces of the host's kernel, with the wall clock.
    Host,
}

impl Args {
    /// A run that prints nothing but what went wrong, and replaces the results of an earlier one.
    pub(super) fn plain(file: PathBuf, out: PathBuf) -> Self {
        Self {
            file,
            out,
            seed: None,
            stop: None,
            measure: None,
            pcapng: false,
            hold: false,
            realtime: false,
            live_at: None,
            priority: false,
            drive: false,
            platform: Platform::Virtual,
            isolate: false,
            replay: None,
            json: false,
            quiet: true,
            force: true,
            no_digest: false,
            debugger: false,
        }
    }
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// Runs the scenario; exit code 0 only if every expectation held.
pub fn run(args: &Args) -> Outcome {
    host::restart_if_need_be();
    host::lift_limits();
    let mut scenario = super::load_scenario(&args.file)?;
    if let Some(seed) = args.seed {
        scenario.run.seed = seed;
    }
    scenario.run.isolate |= args.isolate;
    if let Some(stop) = args.stop {
        scenario.run.stop = stop;
        if !scenario.run.ends_in_time() {
            return Err(
                Failure::user(format!("a run of {stop} would go on after the last date of pcap files"))
                    .hint("the scenario's `epoch` and `--stop` must add up to 2106-02-07 at most"),
            );
        }
    }
    if let Some(live_at) = args.live_at {
        if live_at >= scenario.run.stop {
            return Err(Failure::user(format!(
                "the run ends at {}, before it would go live",
                scenario.run.stop
            ))
            .hint("`--live-at` takes a time before the end of the run, which `--stop` sets"));
        }
        scenario.run.realtime.live_at = live_at;
    }
    if let Some(interval) = args.measure {
        scenario.run.set_measure(interval).map_err(Failure::user)?;
    }
    if args.platform == Platform::Host {
        return run_on_host(args, scenario);
    }
    let Recorded {
        replay,
        outside,
        not_deterministic,
    } = recording(args, &scenario)?;
    let realtime = args.realtime || args.live_at.is_some() || scenario.run.realtime.wanted && args.replay.is_none();
    if let Some(port) = scenario.ports.first().filter(|_| !realtime && args.replay.is_none()) {
        return Err(Failure::user(format!(
            "port `{}` leads outside, where time is that of the wall clock, and this run is in virtual time",
            port.name
        ))
        .hint("write `run: {mode: realtime}` or give `--realtime`; `--replay DIR` repeats a run that was recorded"));
    }
    if args.drive && scenario.run.realtime.wanted {
        return Err(Failure::user(
            "a run that goes with the wall clock (`run: {mode: realtime}`) cannot be driven",
        ));
    }
    let priority = wants_priority(args, &scenario, realtime)?;
    if args.pcapng || scenario.run.pcapng {
        scenario.set_pcapng();
    }
    let pcapng = scenario.run.pcapng;
    if let (Some(recording), None) = (&replay, args.seed) {
        scenario.run.seed = recording.header.seed;
    }
    host::require()?;
    if let Some(cache) = kernels::cache_dir() {
        hashes::remember_in(cache.join("sha256"));
        windtunnel_process::keep_analyses_in(cache.join("analyses"));
    }
    let kernel = kernels::image(series_of(&scenario)?)?;
    let existing = if args.force {
        ExistingFiles::ReplaceOurs
    } else {
        ExistingFiles::Refuse
    };
    super::check_current_dir(&args.out)?;
    let stop_flag = Arc::new(AtomicBool::new(false));
    let (ringer, bell) = ring_and_bell(realtime)?;
    let signal = catch_signals(&stop_flag, args.debugger, ringer.clone())?;
    let roots = match open_roots(&scenario, &stop_flag, args.quiet) {
        Err(EngineError::Root {
            source: ImageError::Interrupted,
            ..
        }) => return Ok(EXIT_INTERRUPTED),
        roots => roots?,
    };
    let out = OutDir::create(&args.out, existing)?;
    let progress = Arc::new(Progress::default());
    let mut options = Options {
        out: out.clone(),
        scenario_path: args.file.clone(),
        roots,
        kernel_image: kernel.path,
        kernel_build_hash: Some(kernel.hash),
        seed: scenario.run.seed,
        stop_flag: Arc::clone(&stop_flag),
        progress: Arc::clone(&progress),
        debug: args.debugger.then_some(DebugHooks {
            image: debug::image_loaded,
            image_gone: debug::image_gone,
            node: debug::set_node,
        }),
        digest: !args.no_digest,
        pcap: true,
        live: LiveOptions {
            inbox: None,
            hold: args.hold,
            realtime,
            drive: args.drive,
            replay,
            outside,
            not_deterministic,
            bell,
            live_at_ns: scenario.run.realtime.live_at.as_ns(),
            spin_ns: scenario.run.realtime.spin.as_ns(),
            priority,
        },
        write_back: false,
    };
    // Until the end of this function: clients hear of the end when it is known.
    let mut door = None;
    if args.replay.is_none() {
        door = open_door(args, &scenario, &mut options, ringer)?;
    }
    let socket = door.as_ref().map(|door: &Door| door.server.socket());
    let line = ProgressLine::new(args.quiet || args.debugger, socket, args.hold || realtime);
    let isolated = scenario.run.isolate;
    match wait(&start(scenario, options)?, &progress, line) {
        Some(outcome) => {
            // Also what was captured until the run broke off.
            let merged = if pcapng { merge_captures(&out) } else { Ok(()) };
            let code = finish(args, &outcome?, &signal)?;
            merged.map(|()| code)
        }
        None => Err(after_panic(&out, isolated)),
    }
}

/// Whether the run goes before ordinary programs, which the host was asked for then.
fn wants_priority(args: &Args, scenario: &Scenario, realtime: bool) -> Result<bool, Failure> {
    if args.priority && !realtime {
        return Err(
            Failure::user("`--priority` is for runs on the wall clock, and this one is in virtual time")
                .hint("write `run: {mode: realtime}` or give `--realtime`"),
        );
    }
    let wanted = realtime && (args.priority || scenario.run.realtime.priority);
    if wanted {
        let refused = |error: PriorityError| Failure::user(error.to_string()).hint(error.hint());
        priority::try_priority().map_err(refused)?;
        priority::lock_memory().map_err(refused)?;
    }
    Ok(wanted)
}

/// What `--replay` names.
#[derive(Default)]
struct Recorded {
    /// What was typed into the run.
    replay: Option<Recording>,
    /// The file of what came from outside.
    outside: Option<PathBuf>,
    /// As in its manifest.
    not_deterministic: Vec<String>,
}

fn recording(args: &Args, scenario: &Scenario) -> Result<Recorded, Failure> {
    let Some(path) = &args.replay else {
        return Ok(Recorded::default());
    };
    let input = if path.is_dir() { path.join(INPUT) } else { path.clone() };
    let recording = Recording::read(&input).map_err(|error| {
        Failure::user(error.to_string()).hint("name the output folder of a run, or the input.jsonl in it")
    })?;
    if !scenario.ports.is_empty() && !scenario.run.realtime.record {
        return Err(Failure::user(
            "what came in through this scenario's ports is not recorded: `run: {record: false}`",
        )
        .hint("leave that out, and let the run that is to be repeated happen once more"));
    }
    let outside = (!scenario.ports.is_empty()).then(|| input.with_file_name(OUTSIDE));
    // A recording by itself has none, which is no error: it says what happened, and that is enough.
    let manifest = input.parent().and_then(|folder| Manifest::read(folder).ok());
    Ok(Recorded {
        replay: Some(recording),
        outside,
        not_deterministic: manifest.map_or_else(Vec::new, |manifest| manifest.not_deterministic),
    })
}

/// A bell for a simulation that sleeps until something comes.
pub fn ring_and_bell(realtime: bool) -> Result<(Option<Ringer>, Option<Bell>), Failure> {
    if !realtime {
        return Ok((None, None));
    }
    let (ringer, bell) =
        bell().map_err(|error| Failure::user("cannot make a socket for the run to wait at").because(error))?;
    Ok((Some(ringer), Some(bell)))
}

/// Runs it in namespaces of the host's kernel, on this thread: nodes end with the thread that made them.
fn run_on_host(args: &Args, mut scenario: Scenario) -> Outcome {
    let given = [
        ("--hold", args.hold),
        ("--realtime", args.realtime),
        ("--live-at", args.live_at.is_some()),
        ("--priority", args.priority),
        ("--drive", args.drive),
        ("--isolate", args.isolate),
        ("--replay", args.replay.is_some()),
        ("--measure", args.measure.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::user(format!("`{option}` is not for `--platform host`"))
            .hint("it needs virtual time: leave one of them out; docs/platforms.md says what differs"));
    }
    if args.pcapng || scenario.run.pcapng {
        scenario.set_pcapng();
    }
    let existing = match args.force {
        true => ExistingFiles::ReplaceOurs,
        false => ExistingFiles::Refuse,
    };
    super::check_current_dir(&args.out)?;
    let stop_flag = Arc::new(AtomicBool::new(false));
    let signal = catch_signals(&stop_flag, false, None)?;
    let out = OutDir::create(&args.out, existing)?;
    let options = windtunnel_platform::Options {
        out: out.clone(),
        scenario_path: args.file.clone(),
        seed: scenario.run.seed,
        stop_flag,
        progress: Arc::default(),
    };
    let done = {
        let _line = draw_on_host(ProgressLine::new(args.quiet, None, false), &options.progress)?;
        windtunnel_platform::run(&scenario, &options)
    };
    // Also what was captured until the run broke off.
    let merged = if scenario.run.pcapng {
        merge_captures(&out)
    } else {
        Ok(())
    };
    let done = done.map_err(|error| {
        let failure = Failure::user(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let outcome = RunOutcome {
        summary: done.summary,
        failed_expectations: done.failed_expectations,
    };
    if !args.quiet {
        eprintln!("no digest: the host's kernel and clock ran this, and no two runs are equal");
    }
    let code = finish(args, &outcome, &signal)?;
    merged.map(|()| code)
}

/// Ends the drawing of progress when it goes.
struct Drawing {
    run: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.run = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, there would be no line, and nothing worse.
            let _ = thread.join();
        }
    }
}

/// Draws the progress of a run on the host's kernel, on a thread of its own: a terminal that is slow must not make frames late.
fn draw_on_host(mut line: ProgressLine, progress: &Arc<windtunnel_platform::Progress>) -> Result<Drawing, Failure> {
    let (run, over) = channel::<()>();
    let progress = Arc::clone(progress);
    let draw = move || {
        while over.recv_timeout(line.wait()) == Err(RecvTimeoutError::Timeout) {
            line.update(Position {
                virtual_ns: progress.time_ns.load(Ordering::Relaxed),
                stop_ns: progress.stop_ns.load(Ordering::Relaxed),
                frames: progress.frames.load(Ordering::Relaxed),
                live_after_ns: 0,
                held: false,
                on_host: true,
            });
        }
        line.clear();
    };
    let thread = std::thread::Builder::new()
        .name("progress".into())
        .spawn(draw)
        .map_err(|error| Failure::user("cannot start the thread that shows progress").because(error))?;
    Ok(Drawing {
        run: Some(run),
        thread: Some(thread),
    })
}

/// Opens what nodes see as `/`. Images are unpacked when they are used for the first time, which can take a while.
fn open_roots(scenario: &Scenario, stop: &AtomicBool, quiet: bool) -> Result<Roots, EngineError> {
    // Without a cache folder no kernel was found, either.
    let cache = kernels::images().unwrap_or_else(|| Cache::new("images".into()));
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    let unpacker = Unpacker {
        cache: &cache,
        stop,
        say: &say,
    };
    Roots::open(scenario, &unpacker)
}

/// The run's socket, and the link to it in the output folder.
struct Door {
    server: Server,
    out: OutDir,
}

impl Drop for Door {
    fn drop(&mut self) {
        // A link that stays leads nowhere, and says so to whoever follows it.
        let _ = self.out.unlink_control();
    }
}

/// Lets clients in. A run that nobody can reach is still a run, unless it would wait for them.
fn open_door(
    args: &Args,
    scenario: &Scenario,
    options: &mut Options,
    ringer: Option<Ringer>,
) -> Result<Option<Door>, Failure> {
    let absolute = std::path::absolute(&args.out);
    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        scenario: scenario.name.clone(),
        out: absolute.unwrap_or_else(|_| args.out.clone()),
        pid: std::process::id(),
        nodes: scenario.nodes.iter().map(|node| node.name.clone()).collect(),
    };
    let started = match Server::start(hello, ringer) {
        Ok((server, inbox)) => {
            let out = options.out.clone();
            let linked = out.link_control(server.socket()).map_err(Failure::from);
            linked.map(|()| (Door { server, out }, inbox))
        }
        Err(error) => Err(Failure::user(error.to_string())
            .hint("set XDG_RUNTIME_DIR to a folder of yours that nobody else can enter")),
    };
    match started {
        Ok((door, inbox)) => {
            options.live.inbox = Some(inbox);
            if args.drive && !args.quiet {
                let link = args.out.join(LINK);
                eprintln!("waiting for a driver at {} (Ctrl-C ends the run)", link.display());
            }
            Ok(Some(door))
        }
        Err(failure) if args.hold || args.drive => Err(failure),
        Err(failure) => {
            eprintln!(
                "note: `windtunnel shell` and others cannot reach this run: {}",
                failure.what()
            );
            Ok(None)
        }
    }
}

/// Puts the captures of a run that has ended together as one.
fn merge_captures(out: &OutDir) -> Result<(), Failure> {
    let file = out.pcapng()?;
    if super::export::pcapng(out.path(), &file)? {
        return Ok(());
    }
    let dir = out.path().display();
    Err(
        Failure::user("the captures could not be put together as run.pcapng; all results are there but this").hint(
            format!("windtunnel export {dir} --pcapng {dir}/run.pcapng does it again"),
        ),
    )
}

/// Completes the manifest, which the engine could not do any more.
fn after_panic(out: &OutDir, isolated: bool) -> Failure {
    // Where half of a change cannot be undone there is nothing but panic, whoever is to blame.
    let host = windtunnel_process::take_host_failure();
    let failure = match &host {
        Some(host) => Failure::user(host.to_string()).hint(host.hint()),
        None => Failure::crash("the engine panicked; its message is above").hint(format!(
            "this is a bug: please report it with the message, the scenario and the seed; {}",
            stray_write(isolated)
        )),
    };
    let noted = Manifest::read(out.path()).and_then(|mut manifest| {
        manifest.ended = Some(if host.is_some() { Ended::Error } else { Ended::Crash });
        manifest.error = Some(host.as_ref().map_or("the engine panicked".into(), ToString::to_string));
        out.write_manifest(&manifest)
    });
    match noted {
        Ok(()) => failure.because(format!("what was written until then is in {}", out.path().display())),
        Err(error) => failure.because(error),
    }
}

/// Prints what was asked for, and decides the exit code.
fn finish(args: &Args, outcome: &RunOutcome, signal: &AtomicI32) -> Outcome {
    let failed_at_all = !outcome.failed_expectations.is_empty();
    // In full, and whatever else is printed: a fault is mostly not what the user wanted to see simulated.
    for warning in &outcome.summary.warnings {
        if warning.code == "program_fault" {
            eprintln!("{}{}", warning.subject(), warning.text);
        }
    }
    if args.json {
        super::print(&outcome.summary.to_json())?;
    } else if !args.quiet {
        super::print(&report::render(&outcome.summary, &args.out.display().to_string()))?;
    } else {
        // Quiet, but not silent about why the exit code is not 0: what failed, and what may have led to it.
        for failed in &outcome.failed_expectations {
            eprintln!("failed: {failed}");
        }
        let causes = outcome.summary.warnings.iter();
        for warning in
            causes.filter(|warning| failed_at_all && !warning.nodes.is_empty() && warning.code != "program_fault")
        {
            eprintln!("warning: {}", report::one_line(warning));
        }
    }
    Ok(match outcome.summary.ended {
        Ended::Interrupted => match signal.load(Ordering::Relaxed) {
            // A client stopped it.
            0 => EXIT_INTERRUPTED,
            signal => SIGNAL_BASE + signal,
        },
        _ if !outcome.failed_expectations.is_empty() => EXIT_EXPECTATION,
        _ => EXIT_OK,
    })
}

/// The one kernel series of a scenario.
fn series_of(scenario: &Scenario) -> Result<&str, Failure> {
    let mut series: Vec<&str> = scenario.nodes.iter().map(|node| node.kernel.as_str()).collect();
    series.sort_unstable();
    series.dedup();
    match series[..] {
        [] => Err(Failure::user("the scenario has no nodes").hint("add at least one under `nodes:`")),
        [one] => Ok(one),
        _ => Err(
            Failure::user(format!("the scenario mixes the kernels {}", series.join(" and ")))
                .hint("one run uses one kernel series for now"),
        ),
    }
}

/// Builds and runs the simulation on a thread of its own; the channel closes without a word if that panics.
pub fn start(scenario: Scenario, options: Options) -> Result<Receiver<Result<RunOutcome, EngineError>>, Failure> {
    let (sender, receiver) = channel();
    let simulate = move || {
        let result = Simulation::new(&scenario, options).and_then(|simulation| {
            debug::all_booted();
            simulation.run()
        });
        // The main thread waits for exactly this; it is gone only when the process is.
        let _ = sender.send(result);
    };
    std::thread::Builder::new()
        .name("simulation".into())
        .stack_size(STACK_BYTES)
        .spawn(simulate)
        .map_err(|error| Failure::user("cannot start the simulation thread").because(error))?;
    Ok(receiver)
}

/// Draws progress until the simulation is over; none: it panicked.
fn wait(
    simulation: &Receiver<Result<RunOutcome, EngineError>>,
    progress: &Progress,
    mut line: ProgressLine,
) -> Option<Result<RunOutcome, Failure>> {
    let result = loop {
        match simulation.recv_timeout(line.wait()) {
            Ok(result) => break Some(result.map_err(Failure::from)),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => line.update(Position {
                virtual_ns: progress.virtual_ns.load(Ordering::Relaxed),
                stop_ns: progress.stop_ns.load(Ordering::Relaxed),
                frames: progress.frames.load(Ordering::Relaxed),
                live_after_ns: progress.live_after_ns.load(Ordering::Relaxed),
                held: progress.held.load(Ordering::Relaxed),
                on_host: false,
            }),
        }
    };
    line.clear();
    result
}

/// Takes Ctrl-C and its like off every thread, and has a thread of its own wait for them: a handler could run on the
/// simulation's thread in the middle of a program, with the program's stack and FS base. The number of the first that came
/// is in what this gives back; 0: none has.
///
/// One that was ignored when this program was started (nohup, `&` of a shell without job control) stays so. Under a debugger
/// Ctrl-C stays as it is: gdb does not see a signal that is waited for.
fn catch_signals(
    stop_flag: &Arc<AtomicBool>,
    debugger: bool,
    ringer: Option<Ringer>,
) -> Result<Arc<AtomicI32>, Failure> {
    let refused = |error| Failure::user("cannot set up signals").because(error);
    let first = Arc::new(AtomicI32::new(0));
    if debugger {
        return Ok(first);
    }
    let stopping = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGXCPU];
    let heard = stopping
        .into_iter()
        .filter(|&signal| !inherited::is_ignored(signal as i32));
    let awaited: SigSet = heard.collect();
    awaited.thread_block().map_err(refused)?;
    let (stop_flag, noted) = (Arc::clone(stop_flag), Arc::clone(&first));
    let wait_for_signals = move || {
        while let Ok(signal) = awaited.wait() {
            if stop_flag.load(Ordering::Relaxed) {
                std::process::exit(SIGNAL_BASE + signal as i32);
            }
            noted.store(signal as i32, Ordering::Relaxed);
            stop_flag.store(true, Ordering::SeqCst);
            if let Some(ringer) = &ringer {
                ringer.ring();
            }
            let why = match signal {
                Signal::SIGXCPU => "the limit of CPU time (ulimit -t) is reached: ",
                _ => "",
            };
            eprintln!("\n{why}stopping; the results so far are kept (once more: end at once)");
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait_for_signals)
        .map_err(|error| Failure::user("cannot start the signal thread").because(error))?;
    Ok(first)
}
