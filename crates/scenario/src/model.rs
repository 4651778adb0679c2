//! A scenario with all defaults filled in and all names resolved.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use windtunnel_base::{ByteCost, IfaceId, NodeId, SimDuration, SimTime};
use windtunnel_links::{LinkChange, LinkParams};
use windtunnel_ports::PortSpec;

use crate::expect::Expect;

/// Everything that fixes a run, but for the versions of the programs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name; the file's without ending if it gives none.
    pub name: String,
    /// How long, with which seed, from which date.
    pub run: Run,
    /// In the order of the file; [`NodeId`]s count them.
    pub nodes: Vec<Node>,
    /// In the order of the file.
    pub links: Vec<LinkSpec>,
    /// Link ends outside the run, each with its link, in the order of the file.
    pub ports: Vec<PortEnd>,
    /// By time, and in the order of the file at the same time.
    pub events: Vec<Event>,
    /// What is allowed, but may not be meant.
    pub warnings: Vec<Caution>,
    /// SHA-256 of the file's bytes, in lower-case hexadecimal.
    pub sha256: String,
}

impl Scenario {
    /// Has the captures put together as one at the end. If no interface is captured, all are.
    pub fn set_pcapng(&mut self) {
        self.run.pcapng = true;
        let mut interfaces = self.nodes.iter_mut().flat_map(|node| &mut node.interfaces);
        if !interfaces.any(|interface| interface.capture) {
            let interfaces = self.nodes.iter_mut().flat_map(|node| &mut node.interfaces);
            interfaces.for_each(|interface| interface.capture = true);
        }
    }
}

/// Something that is allowed, but may not be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caution {
    /// A word for it, as of a run's warnings: `address_twice`, `switch_ring`.
    pub code: &'static str,
    /// What it is.
    pub text: String,
}

/// The run as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Virtual time at which it ends.
    pub stop: SimDuration,
    /// Seed of all random streams; 1 unless given.
    pub seed: u64,
    /// What the nodes' clocks show at virtual time 0: seconds since 1970 (UTC); 2026-01-01 unless given.
    pub epoch_s: u64,
    /// What they show besides, ns: less than a second. No scenario says; a run on the real network has the host's date.
    pub epoch_ns: u32,
    /// Most bytes of each program's standard output, and of its standard error; 1 GiB unless given.
    pub output_limit_bytes: u64,
    /// What happens to programs that run on and on.
    pub preempt: Preempt,
    /// What is measured, and how often.
    pub measure: Measures,
    /// Whether the captures are put together as one when it has ended.
    pub pcapng: bool,
    /// Whether programs are kept from the memory of other nodes.
    pub isolate: bool,
    /// How time goes on.
    pub realtime: Realtime,
}

/// How a run goes with the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realtime {
    /// Whether it does.
    pub wanted: bool,
    /// Until then it does not yet: it goes as fast as it can, and its ports are closed.
    pub live_at: SimDuration,
    /// Beginning later than this after its time is told of.
    pub late_limit: SimDuration,
    /// The last part of a wait that is spent awake.
    pub spin: SimDuration,
    /// Whether it goes before ordinary programs of the host.
    pub priority: bool,
    /// Whether what comes in through ports is kept for a replay.
    pub record: bool,
}

impl Default for Realtime {
    fn default() -> Self {
        Self {
            wanted: false,
            live_at: SimDuration::ZERO,
            late_limit: SimDuration::from_ms(1),
            spin: SimDuration::ZERO,
            priority: false,
            record: true,
        }
    }
}

/// How often what is measured; none: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// What links do.
    pub links: Option<SimDuration>,
    /// TCP connections.
    pub tcp: Option<SimDuration>,
    /// MPTCP connections.
    pub mptcp: Option<SimDuration>,
    /// Queueing disciplines.
    pub qdiscs: Option<SimDuration>,
}

impl Measures {
    /// All of them, after each `interval`.
    pub fn all(interval: SimDuration) -> Self {
        let each = Some(interval);
        Self {
            links: each,
            tcp: each,
            mptcp: each,
            qdiscs: each,
        }
    }
}

/// What happens to a program that runs on and on without a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempt {
    /// It makes way for others: exactly where it waits in a loop, by the host's clock where it computes for long.
    #[default]
    Auto,
    /// It makes way where it waits in a loop; it is ended where it computes for too long.
    Spin,
    /// The run ends.
    Off,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An end system.
    Host,
    /// Forwards IPv4 and IPv6: the sysctls for it are among [`Node::sysctls`] already.
    Router,
    /// Forwards frames between all its interfaces, which are ports of one bridge. It has no addresses.
    Switch,
}

impl NodeKind {
    /// Name of the bridge of a switch.
    pub const BRIDGE: &str = "br0";
}

/// A node: a Linux kernel with interfaces, files and programs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique; also its host name. Letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What it is for.
    pub kind: NodeKind,
    /// Where a picture shows it.
    pub position: Option<[f64; 2]>,
    /// Kernel series, for instance "6.12".
    pub kernel: String,
    /// RAM of its kernel; a multiple of 4 KiB.
    pub memory_bytes: u64,
    /// Most memory that its programs may have together; 16 GiB unless given.
    pub program_memory_bytes: u64,
    /// Most memory that files written in it may take; 16 GiB unless given.
    pub disk_bytes: u64,
    /// What work costs on its CPU; nothing unless given.
    pub cpu: Cpu,
    /// What it sees as `/`.
    pub root: Root,
    /// One per link end, in natural order of their names: eth2 before eth10. [`IfaceId::index`] counts them.
    pub interfaces: Vec<Interface>,
    /// To be set in this order, after the addresses.
    pub routes: Vec<Route>,
    /// Value by name (`net.ipv4.ip_forward`), to be set in this order, before the addresses.
    pub sysctls: BTreeMap<String, String>,
    /// Given by the scenario, by path.
    pub files: Vec<FileSpec>,
    /// Commands run one after the other at time 0, before any process; each must exit with 0.
    pub setup: Vec<Vec<String>>,
    /// Programs, in the order of the file; those of events with `exec` come last.
    pub processes: Vec<Process>,
}

/// What a node sees as `/`, beneath what it writes and what the scenario gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// What everybody may read of the host.
    #[default]
    Host,
    /// A folder or an image.
    Path {
        /// Relative paths count from the scenario file's folder; here they are joined with it.
        path: PathBuf,
        /// Which of the images of an archive; none: the one that is there.
        name: Option<String>,
    },
}

impl Root {
    /// Whether it is a folder now: a folder is a root itself, unless it is that of an OCI image layout, or an image in it is asked for.
    pub fn is_folder(&self) -> bool {
        match self {
            Self::Host => false,
            Self::Path { path, name } => path.is_dir() && name.is_none() && !path.join("oci-layout").is_file(),
        }
    }
}

/// What work costs on the one CPU of a node. By default it takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Each system call of a program; at most a second.
    pub syscall: SimDuration,
    /// Each byte copied between a program and its kernel; at most 1 us.
    pub copy: ByteCost,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Linux's name of it, at most 15 bytes.
    pub name: String,
    /// Unless given: 02:00, the node's number, the interface's number, 16 bits each.
    pub mac: [u8; 6],
    /// Bytes of payload of a frame; 1500 unless given.
    pub mtu: u32,
    /// Addresses with their prefix length.
    pub addresses: Vec<IpNet>,
    /// Whether its frames go to a pcap file.
    pub capture: bool,
    /// What kind of NIC it is.
    pub nic: Nic,
}

/// What tells kinds of network interface controllers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Whose values these are, but for those that the scenario gave.
    pub model: NicModel,
    /// Frames that may wait for an interrupt; any number if none.
    pub rx_ring: Option<u32>,
    /// Frames that may wait for the wire.
    pub tx_ring: u32,
    /// Whether its driver limits the bytes under way.
    pub bql: bool,
    /// Least bytes of memory that a received frame counts as.
    pub rx_buffer: u32,
    /// Longest frame for which `rx_buffer` does not hold, bytes.
    pub rx_copybreak: u32,
    /// Fills in checksums.
    pub tx_checksum: Offload,
    /// Checks checksums.
    pub rx_checksum: Offload,
    /// Cuts packets of TCP.
    pub tso: Offload,
    /// Also those that announce congestion.
    pub tso_ecn: Offload,
    /// Also those whose IPv4 identification may be anything.
    pub tso_mangleid: Offload,
    /// Cuts packets of UDP.
    pub uso: Offload,
    /// Takes packets that are lists of packets.
    pub fraglist: Offload,
    /// Linux cuts what the NIC does not.
    pub gso: bool,
    /// Linux merges what arrives together.
    pub gro: bool,
    /// Longest packet to be cut, bytes; Linux's default if none.
    pub gso_max_size: Option<u32>,
    /// Least time between two interrupts, at most 100 ms; zero: there is one for each cause.
    pub interrupt_gap: SimDuration,
    /// So many waiting frames interrupt at once.
    pub interrupt_frames: Option<u32>,
}

/// A kind of NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicModel {
    /// Interrupts for each frame, and does everything.
    Ideal,
    /// That of virtual machines.
    Virtio,
    /// Intel 8257x, I217 to I219: desktops and laptops.
    E1000e,
    /// Intel 82575 to I211: servers of 1 Gb/s.
    Igb,
    /// NVIDIA ConnectX.
    Mlx5,
}

impl NicModel {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Virtio => "virtio",
            Self::E1000e => "e1000e",
            Self::Igb => "igb",
            Self::Mlx5 => "mlx5",
        }
    }

    /// What `ethtool -i` calls its driver; none: our own.
    pub fn driver(self) -> Option<&'static str> {
        match self {
            Self::Ideal => None,
            Self::Virtio => Some("virtio_net"),
            Self::E1000e => Some("e1000e"),
            Self::Igb => Some("igb"),
            Self::Mlx5 => Some("mlx5_core"),
        }
    }
}

/// Something that a NIC may do in place of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// It cannot.
    Absent,
    /// It could, if `ethtool -K` told it.
    Off,
    /// It does.
    On,
}

impl Offload {
    /// What a scenario says of it: `true` makes a NIC that can.
    pub(crate) fn set(&mut self, wanted: Option<bool>) {
        *self = match (wanted, *self) {
            (Some(true), _) => Self::On,
            (Some(false), Self::On) => Self::Off,
            (_, as_it_is) => as_it_is,
        };
    }
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; `0.0.0.0/0` or `::/0` for a default route. Host bits are zero.
    pub to: IpNet,
    /// Next hop, of the same family as `to`.
    pub via: Option<IpAddr>,
    /// Further next hops, as good as `via`: the kernel takes one for each flow (multipath). None where `via` is none.
    pub also_via: Vec<IpAddr>,
    /// Name of an interface of the node. At least one of `via` and `dev` is there.
    pub dev: Option<String>,
    /// Lower wins; the kernel's default if none.
    pub metric: Option<u32>,
}

/// A file a node finds in its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Absolute, without `.` and `..`.
    pub path: String,
    /// What is in it.
    pub content: FileContent,
    /// Permission bits; 0o644 unless given. Owned by root.
    pub mode: u32,
}

/// Where a file's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Given in the scenario.
    Text(String),
    /// A file of the host. Relative paths count from the scenario file's folder; here they are joined with it.
    Source(PathBuf),
}

/// A program to run on a node.
#[derive(Clone, Debug)]
pub struct Process {
    /// What it runs.
    pub exec: Exec,
    /// When it starts.
    pub start: SimTime,
    /// When it is sent `stop_signal`.
    pub stop: Option<SimTime>,
    /// Signal number; 15 (SIGTERM) unless given.
    pub stop_signal: i32,
    /// What it reads on standard input; empty unless given.
    pub stdin: Option<String>,
    /// Its environment, besides what `PATH`, `HOME` and `LANG` are by default and what the image of the node has.
    pub env: BTreeMap<String, String>,
    /// Absolute; unless given that of the image, else `/`.
    pub cwd: Option<String>,
    /// Unless given that of the image, else root.
    pub user: Option<User>,
    /// How it must end, and what it must print.
    pub expect: Expect,
}

/// What a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exec {
    /// Program and arguments; never empty. A program without `/` is looked up in the `PATH` of its environment.
    Command(Vec<String>),
    /// The entrypoint of the node's image; never where the root is [`Root::Host`].
    Image {
        /// Its arguments; none: those of the image.
        args: Option<Vec<String>>,
    },
}

/// Whom a program runs as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A cable between two interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// First end as written.
    pub a: IfaceId,
    /// Second end as written.
    pub b: IfaceId,
    /// From `a` to `b`.
    pub a_to_b: LinkParams,
    /// From `b` to `a`.
    pub b_to_a: LinkParams,
}

/// A link end outside the run, and the cable to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEnd {
    /// Unique, also among the names of nodes.
    pub name: String,
    /// What it is.
    pub spec: PortSpec,
    /// The end inside.
    pub end: IfaceId,
    /// From inside to the port.
    pub outward: LinkParams,
    /// From the port to inside.
    pub inward: LinkParams,
}

impl PortEnd {
    /// The host's addresses there.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match &self.spec {
            PortSpec::Tap { addresses, .. } => addresses.iter().map(|subnet| subnet.address).collect(),
            _ => Vec::new(),
        }
    }

    /// What it is, in a word.
    pub fn kind(&self) -> &'static str {
        match &self.spec {
            PortSpec::Tap { .. } => "tap",
            PortSpec::Interface { .. } => "interface",
            PortSpec::Raw { .. } => "raw",
            PortSpec::Udp { .. } => "udp",
            PortSpec::Vxlan { .. } => "vxlan",
            PortSpec::Stream { .. } => "stream",
        }
    }
}

/// Something that changes while the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: SimTime,
    /// What.
    pub action: Action,
}

/// What an event does. (An event with `exec` became a [`Process`] of its node.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives a link new values; going up or down is [`LinkChange::up`].
    SetLink {
        /// Index into [`Scenario::links`].
        link: usize,
        /// For the direction from `a` to `b`.
        a_to_b: LinkChange,
        /// For the direction from `b` to `a`.
        b_to_a: LinkChange,
    },
    /// Takes the power of a node away, or gives it back.
    SetPower {
        /// Which node.
        node: NodeId,
        /// Whether it has power from then on.
        up: bool,
    },
    /// The same for the link of a port.
    SetOutside {
        /// Index into [`Scenario::ports`].
        port: usize,
        /// For the direction to the port.
        outward: LinkChange,
        /// For the direction from the port.
        inward: LinkChange,
    },
}

impl Scenario {
    /// The node's number by its name.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .map(|index| NodeId(index as u32))
    }

    /// The node of a number. Panics where there is none.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The interface of an id, as `h1:eth0`. Panics where there is none.
    pub fn iface_name(&self, id: IfaceId) -> String {
        let node = self.node(id.node);
        format!("{}:{}", node.name, node.interfaces[id.index as usize].name)
    }
}
