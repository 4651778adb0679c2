//! Makes the parts of a run: kernels booted and configured, links, programs checked and ready.

use std::sync::atomic::Ordering;
use std::time::Instant;

use windtunnel_base::{IfaceId, Rng};
use windtunnel_kernel::{Image, ThreadContext, VectorState};
use windtunnel_links::{Link, LinkParams};
use windtunnel_process::trap::{TrapThread, Watched, watch_regions};
use windtunnel_process::{ImageHook, ProcessHost};
use windtunnel_results::{KernelRecord, Manifest, ScenarioRecord, hex};
use windtunnel_scenario::{Node as NodeSpec, Scenario};

use crate::configure::{configure, set_date};
use crate::error::EngineError;
use crate::event::Source;
use crate::files::Sources;
use crate::host_memory::MemoryGuard;
use crate::layout::Layout;
use crate::machine::{Life, Machines};
use crate::node::{Body, Node, NodeCalls};
use crate::programs::Programs;
use crate::run::{Books, DebugHooks, Options, Parts};
use crate::shared::Shared;
use crate::watchdog::{Habits, LastWords, Watchdog};
use crate::window::{Outbox, Windows};
use crate::wire::{Peer, Port};

/// Source numbers of events: 0 is the scenario, a kernel is its node's number plus this, clients come after the last kernel.
pub const FIRST_KERNEL: u32 = 1;

/// What is known before anything is done.
pub fn books(scenario: &Scenario, options: &Options) -> Books {
    let names = scenario.nodes.iter().map(|node| node.name.clone()).collect();
    let record = ScenarioRecord {
        path: options.scenario_path.display().to_string(),
        name: scenario.name.clone(),
        sha256: scenario.sha256.clone(),
        epoch_s: scenario.run.epoch_s,
    };
    let mut manifest = Manifest::starting(env!("CARGO_PKG_VERSION"), record, options.seed);
    manifest.roots = options.roots.records(scenario);
    let interfaces = |node: &NodeSpec| node.interfaces.iter().map(|interface| interface.name.clone()).collect();
    Books {
        out: options.out.clone(),
        manifest,
        scenario: scenario.name.clone(),
        interfaces: scenario.nodes.iter().map(interfaces).collect(),
        shared: Shared::new(options.progress.clone(), options.seed, names),
        started: Instant::now(),
        digest: options.digest,
        epoch_s: scenario.run.epoch_s,
    }
}

/// Makes everything, up to the start of the first programs.
///
/// # Errors
/// Whatever keeps the run from starting.
pub fn build(scenario: &Scenario, options: Options, books: &mut Books) -> Result<Parts, EngineError> {
    // Threads and questions to the processor come before the traps.
    windtunnel_results::prepare();
    let host_vectors = VectorState::of_this_cpu();
    let image = Image::open(&options.kernel_image)?;
    let image_hook = options.debug.map(|debug| image_hook(debug, books.shared.nodes.clone()));
    let files = windtunnel_process::Shared::with_roots(&options.roots.files(), image_hook, scenario.run.isolate)
        .map_err(EngineError::Shared)?;
    let words = LastWords {
        out: books.out.clone(),
        manifest: books.manifest.clone(),
        scenario: books.scenario.clone(),
        files: files.clone(),
        kernel: image.clone(),
        kernel_bases: kernel_bases(scenario)?,
    };
    for caution in &scenario.warnings {
        books.shared.warn(0, caution.code, None, &caution.text);
    }
    let memory_guard = MemoryGuard::start(books.shared.clone(), words.clone());
    let watched = Watched::default();
    let habits = Habits::new(scenario.run.preempt, options.stop_flag.clone());
    let watchdog = Watchdog::start(books.shared.clone(), words, watched.clone(), habits);
    let regions = Layout::new(scenario.nodes.len())?.regions();
    watch_regions(scenario.run.isolate.then_some(&regions));
    let traps = TrapThread::install_watched(ThreadContext::install()?, watched)?;
    books.shared.simulation_tid.store(traps.tid(), Ordering::Relaxed);
    // A program may find out by a cpuid that nobody saw what the processor has, and use it.
    let vector_state = match traps.facts().cpuid_faults {
        true => VectorState::FXSAVE_ONLY,
        false => host_vectors,
    };
    let machines = Machines::new(scenario, options, image, files, vector_state, books.shared.clone())?;
    let mut builder = Builder { machines, books };
    let mut outbox = Outbox::default();
    let mut nodes = builder.nodes(&mut outbox)?;
    let machines = builder.machines;
    for node in &mut nodes {
        node.begin()?;
    }
    let mut windows = Windows::new(&nodes);
    windows.distribute(&mut nodes, outbox, 0);
    Ok(Parts {
        nodes,
        windows,
        source: Source::new(0),
        files: machines.files.clone(),
        machines,
        traps,
        watchdog,
        memory_guard,
    })
}

/// Where the kernels' images are, by node.
fn kernel_bases(scenario: &Scenario) -> Result<Vec<u64>, EngineError> {
    let layout = Layout::new(scenario.nodes.len())?;
    let nodes = scenario.nodes.iter().enumerate();
    nodes
        .map(|(number, node)| Ok(layout.region(number, node.memory_bytes)?.image))
        .collect()
}

struct Builder<'a> {
    machines: Machines,
    books: &'a mut Books,
}

impl Builder<'_> {
    fn nodes(&mut self, outbox: &mut Outbox<Body>) -> Result<Vec<Node>, EngineError> {
        let count = self.machines.scenario.nodes.len();
        // All programs are looked at before the first kernel boots: bad input is told at once.
        let mut prepared = Vec::new();
        let mut sources = Sources::default();
        for number in 0..count {
            prepared.push(self.machines.prepare(number, &Life::FIRST)?);
            let Machines {
                scenario, own_files, ..
            } = &self.machines;
            sources.note(&scenario.nodes[number], &own_files[number]);
        }
        self.books.manifest.sources = sources.records();
        let mut ports = self.ports()?;
        let mut nodes = Vec::new();
        for (number, prepared) in prepared.into_iter().enumerate() {
            let node = self.boot(number, prepared, std::mem::take(&mut ports[number]))?;
            nodes.push(node);
            let node = &mut nodes[number];
            if number == 0 {
                self.record_kernel(node);
            }
            let spec = &self.machines.scenario.nodes[number];
            let run = &self.machines.scenario.run;
            if run.epoch_ns > 0 {
                set_date(&mut NodeCalls { node, outbox }, spec, run.epoch_s, run.epoch_ns)?;
            }
            let no_input = configure(&mut NodeCalls { node, outbox }, spec)?;
            nodes[number].programs.set_no_input(no_input);
            self.books.shared.progress.virtual_ns.store(0, Ordering::Relaxed);
        }
        Ok(nodes)
    }

    /// All ports, by node and NIC.
    fn ports(&self) -> Result<Vec<Vec<Port>>, EngineError> {
        let Machines { scenario, options, .. } = &self.machines;
        let mut ports: Vec<Vec<Option<Port>>> = scenario
            .nodes
            .iter()
            .map(|node| node.interfaces.iter().map(|_| None).collect())
            .collect();
        let mut plug = |from: IfaceId, peer: Peer, to: &str, params: LinkParams| -> Result<(), EngineError> {
            let node = scenario.node(from.node);
            let interface = &node.interfaces[from.index as usize];
            let label = format!("link/{}/{to}", scenario.iface_name(from));
            let rng = Rng::new(options.seed, &label);
            let capture = match options.pcap && interface.capture {
                true => Some(options.out.pcap(&node.name, &interface.name, scenario.run.epoch_s)?),
                false => None,
            };
            let mut port = Port::new(Link::new(params, rng), peer, options.digest, capture);
            port.flows = scenario.run.measure.links.map(|_| Box::default());
            ports[from.node.index()][from.index as usize] = Some(port);
            Ok(())
        };
        for link in &scenario.links {
            for (from, to, params) in [(link.a, link.b, link.a_to_b), (link.b, link.a, link.b_to_a)] {
                let peer = Peer::Node {
                    number: to.node.0,
                    nic: to.index,
                };
                plug(from, peer, &scenario.iface_name(to), params)?;
            }
        }
        for (number, port) in scenario.ports.iter().enumerate() {
            plug(port.end, Peer::Outside(number as u32), &port.name, port.outward)?;
        }
        let connected = |port: Option<Port>| port.expect("an interface is an end of a link");
        Ok(ports
            .into_iter()
            .map(|ports| ports.into_iter().map(connected).collect())
            .collect())
    }

    fn boot(
        &mut self,
        number: usize,
        (host, programs): (ProcessHost, Programs),
        ports: Vec<Port>,
    ) -> Result<Node, EngineError> {
        let Machines { options, scenario, .. } = &self.machines;
        let log = options.out.kernel_log(&scenario.nodes[number].name)?;
        if let Some(debug) = options.debug {
            (debug.image)(
                &options.kernel_image.to_string_lossy(),
                self.machines.region(number)?.image,
                &scenario.nodes[number].name,
            );
            (debug.node)(&scenario.nodes[number].name);
        }
        let instance = self.machines.boot(number, host, log, &ports, &Life::FIRST)?;
        let source = Source::new(number as u32 + FIRST_KERNEL);
        let shared = self.books.shared.clone();
        let debug = options.debug.map(|debug| debug.node);
        let mut node = Node::new(number as u32, instance, ports, programs, source, shared, debug);
        node.isolate(&self.machines.files);
        for (nic, up) in self.ups(number).into_iter().enumerate() {
            if !up {
                node.start_without_carrier(nic as u32);
            }
        }
        Ok(node)
    }

    /// Whether the link at each NIC of a node is up at the start: in both directions, as for a cable.
    fn ups(&self, number: usize) -> Vec<bool> {
        let scenario = &self.machines.scenario;
        let mut ups = vec![true; scenario.nodes[number].interfaces.len()];
        let cables = scenario.links.iter();
        let cables = cables.map(|link| (vec![link.a, link.b], link.a_to_b.up && link.b_to_a.up));
        let outside = scenario.ports.iter();
        let outside = outside.map(|port| (vec![port.end], port.outward.up && port.inward.up));
        for (ends, up) in cables.chain(outside) {
            for end in ends.into_iter().filter(|end| end.node.index() == number) {
                ups[end.index as usize] = up;
            }
        }
        ups
    }

    fn record_kernel(&mut self, node: &mut Node) {
        let Machines { scenario, options, .. } = &self.machines;
        let record = KernelRecord {
            series: scenario.nodes[node.number as usize].kernel.clone(),
            release: node.release(),
            sha256: hex(self.machines.image.sha256()),
            build_hash: options.kernel_build_hash.clone(),
        };
        self.books.manifest.kernels.push(record);
    }
}

/// Passes on to a debugger what it has to know of the images of programs; `nodes` by number.
fn image_hook(debug: DebugHooks, nodes: Vec<String>) -> ImageHook {
    Box::new(move |image| match image.mapped {
        true => (debug.image)(image.path, image.bias, &nodes[image.node as usize]),
        false => (debug.image_gone)(image.path, image.bias),
    })
}

/// What ethtool shows of a link, Mb/s.
pub fn speed_mbps(params: &LinkParams) -> u32 {
    u32::try_from(params.rate.as_bps() / 1_000_000).unwrap_or(u32::MAX)
}
