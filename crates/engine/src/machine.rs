//! Machines of nodes: a booted kernel with the files and programs that the scenario gives it. A node has one from the start of the run;
//! one whose power went has another after its next boot.
//!
//! Each boot is the first one's again, at a later time: a new kernel, memory and disk at the same addresses. Random numbers are
//! others in each life.

use std::ffi::CString;
use std::sync::Arc;

use windtunnel_base::random;
use windtunnel_kernel::{BootConfig, Image, Instance, Moderation, NicConfig, NicModel, PAGE_BYTES, VectorState, abi};
use windtunnel_process::{FileLimits, NodeConfig, NodeFile, ProcessHost};
use windtunnel_results::KernelLog;
use windtunnel_scenario::{Nic, Node as NodeSpec, Offload, Scenario};

use crate::build::speed_mbps;
use crate::error::EngineError;
use crate::files::node_files;
use crate::host::NodeHost;
use crate::layout::{Layout, NodeRegion};
use crate::programs::Programs;
use crate::run::Options;
use crate::shared::Shared;
use crate::wire::Port;

/// System calls at one instant after which a program must let time pass, and for how long, ns: a microsecond a call, about
/// what one costs on a real machine, so that a program that polls without waiting gets somewhere (iperf3 does, in the
/// last fraction of a microsecond before each of its timers). Programs that wait never notice.
const QUANTUM_CALLS: u32 = 64;
const QUANTUM_NS: u32 = 64_000;
/// What a kernel takes for the size of its files unless told (WTFS_BLOCKS in kernel/arch/wt/wtfs.h), bytes.
const USUAL_DISK_BYTES: u64 = 16 << 30;
const NS_PER_S: u64 = 1_000_000_000;

/// What is needed to boot any node of a run at any time.
pub struct Machines {
    /// What was planned.
    pub scenario: Scenario,
    /// How to run it.
    pub options: Options,
    /// The kernel of all nodes.
    pub image: Arc<Image>,
    /// What the programs of all nodes share.
    pub files: Arc<windtunnel_process::Shared>,
    /// Files of the nodes' own as they were at the start of the run, by node.
    pub own_files: Vec<Vec<NodeFile>>,
    vector_state: VectorState,
    shared: Arc<Shared>,
    layout: Layout,
}

/// A life of a node, from one boot to the next.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Counted from 1.
    pub number: u32,
    /// Time of the boot, ns.
    pub booted_ns: u64,
    /// Address spaces that programs had in earlier lives.
    pub spaces_made: u64,
}

impl Life {
    /// From the start of the run on.
    pub const FIRST: Self = Self {
        number: 1,
        booted_ns: 0,
        spaces_made: 0,
    };
}

impl Machines {
    /// Machines for the nodes of `scenario`; the files it gives them are read.
    ///
    /// # Errors
    /// When one of these cannot be read, or there are too many nodes.
    pub fn new(
        scenario: &Scenario,
        options: Options,
        image: Arc<Image>,
        files: Arc<windtunnel_process::Shared>,
        vector_state: VectorState,
        shared: Arc<Shared>,
    ) -> Result<Self, EngineError> {
        let own = |node| node_files(scenario, node, options.seed);
        Ok(Self {
            own_files: scenario.nodes.iter().map(own).collect::<Result<_, _>>()?,
            layout: Layout::new(scenario.nodes.len())?,
            scenario: scenario.clone(),
            options,
            image,
            files,
            vector_state,
            shared,
        })
    }

    /// Addresses of a node.
    ///
    /// # Errors
    /// When it wants more memory than fits.
    pub fn region(&self, number: usize) -> Result<NodeRegion, EngineError> {
        self.layout.region(number, self.scenario.nodes[number].memory_bytes)
    }

    /// A node's files and programs, for one life.
    ///
    /// # Errors
    /// When a file or a program of the scenario cannot be had.
    pub fn prepare(&self, number: usize, life: &Life) -> Result<(ProcessHost, Programs), EngineError> {
        let spec = &self.scenario.nodes[number];
        let files = self.own_files[number].clone();
        let region = self.region(number)?;
        let config = NodeConfig {
            node: number as u32,
            spaces_made: life.spaces_made,
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
        let defaults = self.options.roots.defaults(number);
        let programs = Programs::new(spec, defaults, &mut host, &self.options.out, life)?;
        Ok((host, programs))
    }

    /// Boots a node's kernel, which has not run yet when this returns but for the boot.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(
        &self,
        number: usize,
        host: ProcessHost,
        log: KernelLog,
        ports: &[Port],
        life: &Life,
    ) -> Result<Instance<NodeHost>, EngineError> {
        let spec = &self.scenario.nodes[number];
        let region = self.region(number)?;
        let nics = spec.interfaces.iter().zip(ports).map(|(interface, port)| NicConfig {
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
            seed: random::stream(self.options.seed, &seed_label(&spec.name, life)),
            epoch_s: self.scenario.run.epoch_s,
            booted_s: life.booted_ns / NS_PER_S,
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
        let mut host = NodeHost::new(number as u32, self.shared.clone(), host, log);
        host.now_ns = life.booted_ns;
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
        Ok(instance)
    }
}

/// Names the random numbers of a node's kernel: others in each life.
fn seed_label(name: &str, life: &Life) -> String {
    match life.number {
        1 => format!("node/{name}"),
        number => format!("node/{name}/life/{number}"),
    }
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
