//! The run behind an attached program: one node, composed in memory, on a thread of this process.

use super::Wire;
use crate::failure::Failure;
use crate::verbs::run::{ring_and_bell, start};
use crate::{host, kernels, report};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use windtunnel_base::{SimDuration, hashes, result_files};
use windtunnel_control::{Connection, Hello, PROTOCOL, Server};
use windtunnel_engine::{EngineError, LiveOptions, Options, Progress, Roots, RunOutcome};
use windtunnel_results::{ExistingFiles, OutDir};
use windtunnel_scenario::Scenario;

/// The node's name where the host's own cannot be one.
const NODE: &str = "attached";
/// RAM of the kernel: Linux makes windows of TCP no larger than a share of it.
const MEMORY: &str = "256MiB";
/// The cable costs nothing: what there is of a network is on the other side of it.
const CABLE: [(&str, &str); 2] = [("rate", "100Gbit"), ("delay", "0s")];
/// As real NICs have it: the first frame after a quiet time interrupts at once, and those right behind it share the next interrupt.
/// Without it each is received alone, which takes three times the CPU time.
const INTERRUPT_GAP: &str = "20us";
/// Longer than a program is attached.
const STOP_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;
/// Files that the host has of its own, and its programs expect.
const NAMES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/machine-id"];
/// Warnings that are about equal results, of which there are none here, and about lateness, of which --out tells.
const ABOUT_RESULTS: [&str; 6] = [
    "cpuid_not_masked",
    "host_file_changed",
    "preempted_by_clock",
    "preempted_by_wall_clock",
    "late",
    "clock_slipped",
];

/// The code of warnings that something written did not reach the host's files.
const WRITE_BACK_FAILED: &str = "write_back_failed";

/// What to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Its name among live runs.
    pub name: &'a str,
    /// Kernel series.
    pub kernel: &'a str,
    /// Sysctls with their values.
    pub sysctls: &'a [(String, String)],
    /// Where results are kept; none: nowhere.
    pub out: Option<&'a Path>,
    /// Whether what is written reaches the host's files at the end.
    pub write_back: bool,
}

/// A run that goes on.
pub struct Engine {
    /// Its only node.
    pub node: String,
    socket: PathBuf,
    over: Receiver<Option<Result<RunOutcome, EngineError>>>,
    ending: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl Engine {
    /// Starts the run, whose node is at the end of `wire`.
    ///
    /// # Errors
    /// What is wrong with the plan, or missing on this host. What goes wrong later is told by [`Engine::finish`].
    pub fn start(plan: &Plan<'_>, wire: &Wire) -> Result<Self, Failure> {
        let node = node_name();
        let text = compose(plan, wire, &node).to_string();
        let mut scenario = Scenario::parse(&text, Path::new("attach"))?;
        scenario.run.stop = SimDuration::from_ns(STOP_NS);
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (scenario.run.epoch_s, scenario.run.epoch_ns) = (date.as_secs().max(1), date.subsec_nanos());
        host::require()?;
        if let Some(cache) = kernels::cache_dir() {
            hashes::remember_in(cache.join("sha256"));
            windtunnel_process::keep_analyses_in(cache.join("analyses"));
        }
        let kernel = kernels::image(plan.kernel)?;
        let out = match plan.out {
            Some(dir) => OutDir::create(dir, ExistingFiles::Refuse)?,
            None => OutDir::nowhere(),
        };
        let (ringer, bell) = ring_and_bell(true)?;
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            scenario: plan.name.into(),
            out: std::path::absolute(out.path()).unwrap_or_else(|_| out.path().into()),
            pid: std::process::id(),
            nodes: vec![node.clone()],
        };
        let (server, inbox) = Server::start(hello, ringer).map_err(|error| {
            Failure::user(error.to_string()).hint("set XDG_RUNTIME_DIR to a folder of yours that nobody else can enter")
        })?;
        out.link_control(server.socket())?;
        let options = Options {
            out: out.clone(),
            scenario_path: "attach".into(),
            roots: Roots::of_host(&scenario),
            kernel_image: kernel.path,
            kernel_build_hash: Some(kernel.hash),
            seed: scenario.run.seed,
            stop_flag: Arc::default(),
            progress: Arc::new(Progress::default()),
            debug: None,
            digest: false,
            pcap: plan.out.is_some(),
            live: LiveOptions {
                inbox: Some(inbox),
                realtime: true,
                bell,
                ..LiveOptions::default()
            },
            write_back: plan.write_back,
        };
        let socket = server.socket().to_owned();
        let simulation = start(scenario, options)?;
        let (sender, over) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let noted = is_over.clone();
        let wait = move || {
            let outcome = simulation.recv().ok();
            noted.store(true, Ordering::SeqCst);
            // Whoever waits for the run hears that it is over.
            let _ = out.unlink_control();
            drop(server);
            let _ = sender.send(outcome);
        };
        let ending = std::thread::Builder::new().name("ending".into()).spawn(wait);
        let ending = ending.map_err(|error| Failure::user("cannot start a thread").because(error))?;
        Ok(Self {
            node,
            socket,
            over,
            ending,
            is_over,
        })
    }

    /// Whether the run has ended, for whatever reason.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Where others connect to it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A connection to it.
    ///
    /// # Errors
    /// When the run is over already.
    pub fn connect(&self) -> Result<Connection, Failure> {
        Ok(Connection::open(&self.socket)?)
    }

    /// Waits for the end of a run that has been told to stop, or has failed; tells what it had to warn of.
    ///
    /// # Errors
    /// Why it failed, or that what was written could not be brought to the host's files.
    pub fn finish(self) -> Result<(), Failure> {
        let outcome = self.over.recv().ok().flatten();
        // A panic in it has been printed.
        let _ = self.ending.join();
        let outcome = match outcome {
            Some(outcome) => outcome.map_err(Failure::from).map_err(super::explain)?,
            None => return Err(panicked()),
        };
        let warnings = outcome.summary.warnings.iter();
        let mut lost = false;
        for warning in warnings.filter(|warning| !ABOUT_RESULTS.contains(&warning.code.as_str())) {
            if warning.code == WRITE_BACK_FAILED {
                eprintln!("attach: error: {}", warning.text);
                lost = true;
            } else {
                eprintln!("attach: warning: {}", report::one_line(warning));
            }
        }
        match lost {
            true => Err(Failure::user("not all that was written is in the host's files")),
            false => Ok(()),
        }
    }
}

fn panicked() -> Failure {
    match windtunnel_process::take_host_failure() {
        Some(host) => Failure::user(host.to_string()).hint(host.hint()),
        None => Failure::crash("the engine panicked; its message is above")
            .hint("this is a bug: please report it with the message and the command"),
    }
}

/// The host's name, if a node can have it.
fn node_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=63).contains(&name.len()) && name.chars().all(usable);
    let fits = fits && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !result_files::ALL.contains(&name);
    if fits && name != PORT { name.into() } else { NODE.into() }
}

/// The node's interface.
pub const INTERFACE: &str = "eth0";
/// The port's name.
const PORT: &str = "wire";

/// The scenario. JSON is YAML.
fn compose(plan: &Plan<'_>, wire: &Wire, node: &str) -> Value {
    let mut files = Map::new();
    for path in NAMES {
        if std::fs::File::open(path).is_ok_and(|file| file.metadata().is_ok_and(|found| found.is_file())) {
            files.insert(path.into(), json!({"source": path}));
        }
    }
    files.insert("/etc/resolv.conf".into(), json!({"content": wire.resolv_conf}));
    let sysctls: Map<String, Value> = (wire.sysctls.iter())
        .chain(plan.sysctls.iter().map(|(name, value)| (name, value)))
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    let addresses: Vec<String> = wire.addresses.iter().map(ToString::to_string).collect();
    let cable: Map<String, Value> = CABLE
        .map(|(key, value)| (key.to_owned(), value.into()))
        .into_iter()
        .collect();
    let mut interface = json!({"addresses": addresses, "mtu": wire.mtu, "interrupt_gap": INTERRUPT_GAP});
    if let Some(mac) = &wire.mac {
        interface["mac"] = json!(mac);
    }
    json!({
        "version": 1,
        "name": plan.name,
        "run": {"mode": "realtime", "stop": "1h", "capture": if plan.out.is_some() { "all" } else { "none" }},
        "ports": {PORT: wire.port},
        "nodes": {node: {
            "kernel": plan.kernel,
            "memory": MEMORY,
            "interfaces": {INTERFACE: interface},
            "routes": wire.routes,
            "sysctls": sysctls,
            "files": files,
        }},
        "links": [{"endpoints": [PORT, format!("{node}:{INTERFACE}")], "both": cable}],
    })
}
