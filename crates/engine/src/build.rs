//! Makes the parts of a run: kernels booted and configured, links, programs checked and ready.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use windtunnel_base::{Rng, random};
use windtunnel_kernel::{
    BootConfig, Image, Instance, Moderation, NicConfig, NicModel, PAGE_BYTES, ThreadContext, VectorState, abi,
};
use windtunnel_links::{Link, LinkParams};
use windtunnel_process::trap::{TrapThread, Watched, watch_regions};
use windtunnel_process::{FileLimits, ImageHook, NodeConfig, ProcessHost};
use windtunnel_results::{KernelRecord, Manifest, ScenarioRecord, hex};
use windtunnel_scenario::{Nic, Node as NodeSpec, Offload, Scenario};

use crate::configure::configure;
use crate::error::EngineError;
use crate::event::Source;
use crate::files::{Sources, node_files};
use crate::host::NodeHost;
use crate::host_memory::MemoryGuard;
use crate::layout::Layout;
use crate::node::{Body, Node, NodeCalls};
use crate::programs::Programs;
use crate::run::{Books, DebugHooks, Options, Parts};
use crate::shared::Shared;
use crate::watchdog::{Habits, LastWords, Watchdog};
use crate::window::{Outbox, Windows};
use crate::wire::Port;

/// System calls at one instant after which a program must let time pass, and for how long, ns: a microsecond a call, about
/// what one costs on a real machine, so that a program that polls without waiting gets somewhere (iperf3 does, in the
/// last fraction of a microsecond before each of its timers). Programs that wait never notice.
const QUANTUM_CALLS: u32 = 64;
const QUANTUM_NS: u32 = 64_000;
/// What a kernel takes for the size of its files unless told (WTFS_BLOCKS in kernel/arch/wt/wtfs.h), bytes.
const USUAL_DISK_BYTES: u64 = 16 << 30;
const NS_PER_S: u64 = 1_000_000_000;
/// Source numbers of events: 0 is the scenario, a kernel is its node's number plus this, clients come after the last kernel.
pub const FIRST_KERNEL: u32 = 1;

/// What is known before anything is done.
pub fn books(scenario: &Scenario, options: &Options) -> Books {
    let names = scenario.nodes.iter().map(|node| node.name.clone()).collect();
    let record = ScenarioRecord {
        path: options.scenario_path.display().to_string(),
        name: scenario.name.clone(),
        sha256: scenario.sha256.clone(),
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
pub fn build(scenario: &Scenario, options: &Options, books: &mut Books) -> Result<Parts, EngineError> {
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
        books.shared.warn(caution.code, None, &caution.text);
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
    let mut builder = Builder {
        scenario,
        options,
        image,
        files,
        vector_state,
        books,
    };
    let mut outbox = Outbox::default();
    let mut nodes = builder.nodes(&mut outbox)?;
    for node in &mut nodes {
        node.begin()?;
    }
    let mut windows = Windows::new(&nodes);
    windows.distribute(&mut nodes, outbox, 0);
    Ok(Parts {
        nodes,
        windows,
        source: Source::new(0),
        files: builder.files,
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
    scenario: &'a Scenario,
    options: &'a Options,
    image: Arc<Image>,
    files: Arc<windtunnel_process::Shared>,
    vector_state: VectorState,
    books: &'a mut Books,
}

impl Builder<'_> {
    fn nodes(&mut self, outbox: &mut Outbox<Body>) -> Result<Vec<Node>, EngineError> {
        let layout = Layout::new(self.scenario.nodes.len())?;
        // All programs are looked at before the first kernel boots: bad input is told at once.
        let mut prepared = Vec::new();
        let mut sources = Sources::default();
        for number in 0..self.scenario.nodes.len() {
            prepared.push(self.prepare(number, &layout, &mut sources)?);
        }
        self.books.manifest.sources = sources.records();
        let mut ports = self.ports()?;
        let mut nodes = Vec::new();
        for (number, (host, programs)) in prepared.into_iter().enumerate() {
            let node = self.boot(number, &layout, host, programs, std::mem::take(&mut ports[number]))?;
            nodes.push(node);
            let spec = &self.scenario.nodes[number];
            let node = &mut nodes[number];
            if number == 0 {
                self.record_kernel(node, spec);
            }
            let no_input = configure(&mut NodeCalls { node, outbox }, spec)?;
            nodes[number].programs.set_no_input(no_input);
            self.books.shared.progress.virtual_ns.store(0, Ordering::Relaxed);
        }
        Ok(nodes)
    }

    /// A node's files and programs.
    fn prepare(
        &self,
        number: usize,
        layout: &Layout,
        sources: &mut Sources,
    ) -> Result<(ProcessHost, Programs), EngineError> {
        let spec = &self.scenario.nodes[number];
        let files = node_files(self.scenario, spec, self.options.seed)?;
        sources.note(spec, &files);
        let region = layout.region(number, spec.memory_bytes)?;
        let config = NodeConfig {
            node: number as u32,
            root: self.options.roots.of_node(number),
            programs: region.programs,
            files,
            files_mtime_ns: self.scenario.run.epoch_s * NS_PER_S,
            file_limits: FileLimits {
                disk_bytes: spec.disk_bytes,
                output_bytes: self.scenario.run.output_limit_bytes,
            },
            memory_limit_bytes: spec.program_memory_bytes,
        };
        let refused = |source| EngineError::Process {
            node: spec.name.clone(),
            source,
        };
        let mut host = ProcessHost::new(self.files.clone(), &config).map_err(refused)?;
        let programs = Programs::new(spec, self.options.roots.defaults(number), &mut host, &self.options.out)?;
        Ok((host, programs))
    }

    /// All ports, by node and NIC.
    fn ports(&self) -> Result<Vec<Vec<Port>>, EngineError> {
        let mut ports: Vec<Vec<Option<Port>>> = self
            .scenario
            .nodes
            .iter()
            .map(|node| node.interfaces.iter().map(|_| None).collect())
            .collect();
        for link in &self.scenario.links {
            for (from, to, params) in [(link.a, link.b, link.a_to_b), (link.b, link.a, link.b_to_a)] {
                let node = self.scenario.node(from.node);
                let interface = &node.interfaces[from.index as usize];
                let label = format!(
                    "link/{}/{}",
                    self.scenario.iface_name(from),
                    self.scenario.iface_name(to)
                );
                let rng = Rng::new(self.options.seed, &label);
                let capture = match self.options.pcap && interface.capture {
                    true => Some(
                        self.options
                            .out
                            .pcap(&node.name, &interface.name, self.scenario.run.epoch_s)?,
                    ),
                    false => None,
                };
                let mut port = Port::new(
                    Link::new(params, rng),
                    to.node.0,
                    to.index,
                    self.options.digest,
                    capture,
                );
                port.flows = self.scenario.run.measure.links.map(|_| Box::default());
                ports[from.node.index()][from.index as usize] = Some(port);
            }
        }
        let connected = |port: Option<Port>| port.expect("an interface is an end of a link");
        Ok(ports
            .into_iter()
            .map(|ports| ports.into_iter().map(connected).collect())
            .collect())
    }

    fn boot(
        &self,
        number: usize,
        layout: &Layout,
        host: ProcessHost,
        programs: Programs,
        ports: Vec<Port>,
    ) -> Result<Node, EngineError> {
        let spec = &self.scenario.nodes[number];
        let region = layout.region(number, spec.memory_bytes)?;
        let nics = spec.interfaces.iter().zip(&ports).map(|(interface, port)| NicConfig {
            name: interface.name.clone(),
            mac: interface.mac,
            mtu: interface.mtu,
            ring: interface.nic.tx_ring,
            speed_mbps: speed_mbps(port.link.params()),
            model: nic_model(&interface.nic),
        });
        let config = BootConfig {
            base: region.image,
            ram_base: region.ram,
            ram_bytes: spec.memory_bytes.next_multiple_of(PAGE_BYTES),
            seed: random::stream(self.options.seed, &format!("node/{}", spec.name)),
            epoch_s: self.scenario.run.epoch_s,
            cmdline: CString::new(command_line(spec)).expect("the command line has no NUL"),
            nics: nics.collect(),
            quantum_calls: QUANTUM_CALLS,
            quantum_ns: QUANTUM_NS,
            cpu: abi::Cpu {
                syscall_ns: spec.cpu.syscall.as_ns(),
                copy_ps: spec.cpu.copy.as_ps(),
            },
            vector_state: self.vector_state,
        };
        let shared = self.books.shared.clone();
        let log = self.options.out.kernel_log(&spec.name)?;
        let host = NodeHost::new(number as u32, shared.clone(), host, log);
        if let Some(debug) = self.options.debug {
            (debug.image)(&self.options.kernel_image.to_string_lossy(), region.image, &spec.name);
            (debug.node)(&spec.name);
        }
        let mut instance = Instance::boot(&self.image, &config, host).map_err(|source| EngineError::Boot {
            node: spec.name.clone(),
            source,
            log: self.options.out.path().join(&spec.name).join("kernel.log"),
        })?;
        let ram = instance.ram().0.try_clone_to_owned();
        let told = ram.and_then(|fd| instance.host_mut().programs.set_ram(fd).map_err(Into::into));
        told.map_err(|source| EngineError::Memory {
            node: spec.name.clone(),
            source,
        })?;
        let shutter = instance.shutter();
        instance.host_mut().programs.set_shutter(shutter);
        let ups: Vec<bool> = self.ups(number);
        let source = Source::new(number as u32 + FIRST_KERNEL);
        let debug = self.options.debug.map(|debug| debug.node);
        let mut node = Node::new(number as u32, instance, ports, programs, source, shared, debug);
        node.isolate(&self.files);
        for (nic, up) in ups.into_iter().enumerate() {
            if !up {
                node.start_without_carrier(nic as u32);
            }
        }
        Ok(node)
    }

    /// Whether the link at each NIC of a node is up at the start: in both directions, as for a cable.
    fn ups(&self, number: usize) -> Vec<bool> {
        let mut ups = vec![true; self.scenario.nodes[number].interfaces.len()];
        for link in &self.scenario.links {
            let up = link.a_to_b.up && link.b_to_a.up;
            for end in [link.a, link.b] {
                if end.node.index() == number {
                    ups[end.index as usize] = up;
                }
            }
        }
        ups
    }

    fn record_kernel(&mut self, node: &mut Node, spec: &NodeSpec) {
        let record = KernelRecord {
            series: spec.kernel.clone(),
            release: node.instance().release(),
            sha256: hex(self.image.sha256()),
            build_hash: self.options.kernel_build_hash.clone(),
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

/// The kernel's command line: empty but for what is unusual.
fn command_line(spec: &NodeSpec) -> String {
    match spec.disk_bytes {
        USUAL_DISK_BYTES => String::new(),
        bytes => format!("wtfs_disk={bytes}"),
    }
}

/// A scenario's NIC as the driver wants it.
fn nic_model(nic: &Nic) -> NicModel {
    let table = [
        (abi::NIC_SG, Offload::On),
        (abi::NIC_TX_CSUM, nic.tx_checksum),
        (abi::NIC_RX_CSUM, nic.rx_checksum),
        (abi::NIC_TSO, nic.tso),
        (abi::NIC_TSO_ECN, nic.tso_ecn),
        (abi::NIC_TSO_MANGLEID, nic.tso_mangleid),
        (abi::NIC_USO, nic.uso),
        (abi::NIC_FRAGLIST, nic.fraglist),
    ];
    let bits = |wanted: &dyn Fn(Offload) -> bool| -> u32 {
        let chosen = table.iter().filter(|(_, offload)| wanted(*offload));
        chosen.map(|(bit, _)| bit).sum()
    };
    let in_software = [(abi::NIC_GSO, nic.gso), (abi::NIC_GRO, nic.gro)];
    let in_software: u32 = in_software.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum();
    NicModel {
        driver: nic.model.driver().unwrap_or_default().to_owned(),
        moderation: Moderation {
            gap_ns: nic.interrupt_gap.as_ns(),
            frames: nic.interrupt_frames.unwrap_or(0),
            ring: nic.rx_ring.unwrap_or(0),
        },
        rx_buffer: nic.rx_buffer,
        rx_copybreak: nic.rx_copybreak,
        offloads: bits(&|offload| offload != Offload::Absent),
        enabled: bits(&|offload| offload == Offload::On) | in_software,
        tso_max_size: nic.gso_max_size.unwrap_or(0),
        bql: nic.bql,
    }
}

/// What ethtool shows of a link, Mb/s.
pub fn speed_mbps(params: &LinkParams) -> u32 {
    u32::try_from(params.rate.as_bps() / 1_000_000).unwrap_or(u32::MAX)
}
