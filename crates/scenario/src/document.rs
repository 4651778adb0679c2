//! A scenario file as it is written: the shape of the YAML, without any judgement. Doc comments become descriptions in
//! the JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::schema::{
    ByteCostText, DurationText, EndpointText, EpochText, MacText, ProbabilityText, QueueText, RateText, Scalar,
    SizeText,
};
use crate::text::{Entries, Flexible, Text, Words};

/// A Windtunnel scenario, version 1.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Windtunnel scenario", rename = "Scenario")]
pub(crate) struct Document {
    /// Version of this format: 1.
    #[schemars(with = "u32", range(min = 1, max = 1))]
    pub version: Text,
    /// Name of the scenario; by default the file's.
    pub name: Option<Text>,
    /// The run as a whole.
    pub run: RunDoc,
    /// Values for all nodes and links that do not give their own.
    pub defaults: Option<DefaultsDoc>,
    /// `none` (default); `auto`: an address of each IP version for every interface that has none; or the networks to take them from.
    pub addressing: Option<Flexible<AddressingDoc>>,
    /// `none` (default); `auto`: static routes along the shortest paths, as they are at the start; or `ecmp`: along all paths
    /// of the fewest hops, flow by flow.
    pub routing: Option<Text>,
    /// Nodes by name; at least one.
    #[schemars(with = "Entries<NodeDoc>", extend("minProperties" = 1))]
    pub nodes: Spanned<Entries<NodeDoc>>,
    /// Link ends outside the run, by name: where it meets the real network. Such a run goes by the wall clock.
    #[serde(default)]
    pub ports: Entries<PortDoc>,
    /// Cables between interfaces, or between an interface and a port.
    #[serde(default)]
    pub links: Vec<LinkDoc>,
    /// What changes, or is run, at a given time.
    #[serde(default)]
    pub events: Vec<EventDoc>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Run")]
pub(crate) struct RunDoc {
    /// `virtual` (default): time is the simulation's own. `realtime`: it goes with the wall clock, as links to ports need it.
    pub mode: Option<Text>,
    /// In real time: until this virtual time the run goes as fast as it can, with its ports closed, and then with the wall clock.
    /// It implies `mode: realtime`; 0s by default.
    #[schemars(with = "Option<DurationText>")]
    pub live_at: Option<Text>,
    /// In real time: a window that begins later than this after its time is told of in the summary; 1ms by default.
    #[schemars(with = "Option<DurationText>")]
    pub late_limit: Option<Text>,
    /// By the wall clock: so long before a window (on `--platform host`, a frame) is due the run waits busily instead of asleep, at most 1ms; 0s by default.
    #[schemars(with = "Option<DurationText>")]
    pub spin: Option<Text>,
    /// In real time: whether the run goes before all ordinary programs of the host (SCHED_FIFO) and locks the engine's memory; not by default.
    /// The host has to allow it.
    pub priority: Option<bool>,
    /// With ports: whether the frames that come in are kept in `outside.bin`, so that the run can be replayed; by default they are.
    pub record: Option<bool>,
    /// Virtual time at which the run ends.
    #[schemars(with = "DurationText")]
    pub stop: Text,
    /// Seed of everything random; 1 by default.
    #[schemars(with = "Option<u64>")]
    pub seed: Option<Text>,
    /// What clocks show at the start; 2026-01-01 by default.
    #[schemars(with = "Option<EpochText>")]
    pub epoch: Option<Text>,
    /// What happens to a program that runs on and on without a system call. `auto` (default): it makes way for others,
    /// exactly where it waits in a loop, else by the host's clock, which the summary then says. `spin`: it makes way
    /// where it waits in a loop, and is ended if it computes for too long. `off`: the run ends.
    pub preempt: Option<Text>,
    /// Whether programs are kept from the memory of other nodes while they run; not by default, for it costs time. A program
    /// that reaches there gets SIGSEGV, and the summary says so.
    pub isolate: Option<bool>,
    /// `none` (default) or `all`: which interfaces are captured unless they say so themselves.
    pub capture: Option<Text>,
    /// Whether the captures are put together as one, run.pcapng, at the end of the run; not by default. If no interface is captured,
    /// all are.
    pub pcapng: Option<bool>,
    /// Span of virtual time after which, again and again, all is measured, or such spans for what is to be; nothing by default.
    pub measure: Option<Flexible<MeasureDoc>>,
    /// Most bytes of each standard output and error of a program, 1GiB by default. Beyond it programs get ENOSPC.
    #[schemars(with = "Option<SizeText>")]
    pub output_limit: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Measure")]
pub(crate) struct MeasureDoc {
    /// How often each direction of each link, for links.csv.
    #[schemars(with = "Option<DurationText>")]
    pub links: Option<Text>,
    /// How often the TCP connections of each node, for tcp.csv.
    #[schemars(with = "Option<DurationText>")]
    pub tcp: Option<Text>,
    /// How often the MPTCP connections of each node, for mptcp.csv.
    #[schemars(with = "Option<DurationText>")]
    pub mptcp: Option<Text>,
    /// How often the queueing disciplines of each node, for qdiscs.csv.
    #[schemars(with = "Option<DurationText>")]
    pub qdiscs: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Addressing")]
pub(crate) struct AddressingDoc {
    /// An IPv4 network, 10.0.0.0/8 by default, or `none`.
    pub ipv4: Option<Text>,
    /// An IPv6 network, fd00::/48 by default, or `none`.
    pub ipv6: Option<Text>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Defaults")]
pub(crate) struct DefaultsDoc {
    /// For all nodes.
    pub node: Option<NodeDefaultsDoc>,
    /// For both directions of all links.
    pub link: Option<LinkValuesDoc>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NodeDefaults")]
pub(crate) struct NodeDefaultsDoc {
    /// Kernel series.
    #[schemars(with = "Option<Scalar>")]
    pub kernel: Option<Text>,
    /// RAM of the kernel.
    #[schemars(with = "Option<SizeText>")]
    pub memory: Option<Text>,
    /// Most memory that the node's programs may have together.
    #[schemars(with = "Option<SizeText>")]
    pub program_memory: Option<Text>,
    /// Most bytes that the node's files may take.
    #[schemars(with = "Option<SizeText>")]
    pub disk: Option<Text>,
    /// What work costs on the CPU: `instant` (default), or its costs.
    pub cpu: Option<Flexible<CpuDoc>>,
    /// What nodes see as `/`: `host` (default), a folder, or an image.
    pub root: Option<Flexible<RootDoc>>,
    /// MTU of all interfaces, in bytes.
    #[schemars(with = "Option<u32>")]
    pub mtu: Option<Text>,
    /// Model of the NIC of all interfaces: `ideal` (default), `virtio`, `e1000e`, `igb` or `mlx5`.
    pub model: Option<Text>,
    /// Kernel parameters by name.
    #[serde(default)]
    #[schemars(with = "Entries<Scalar>")]
    pub sysctls: Entries<Text>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Node")]
pub(crate) struct NodeDoc {
    /// `host` (default); `router`, which forwards IPv4 and IPv6; or `switch`, which joins its links to one network.
    pub kind: Option<Text>,
    /// Where a picture shows it: x and y.
    pub position: Option<[f64; 2]>,
    /// Kernel series, 6.12 by default.
    #[schemars(with = "Option<Scalar>")]
    pub kernel: Option<Text>,
    /// RAM of the kernel, 64MiB by default.
    #[schemars(with = "Option<SizeText>")]
    pub memory: Option<Text>,
    /// Most memory that its programs may have together, 16GiB by default: what is mapped private and writable, or shared
    /// without a file, and not with MAP_NORESERVE. Beyond it they get ENOMEM.
    #[schemars(with = "Option<SizeText>")]
    pub program_memory: Option<Text>,
    /// Most bytes that files written in the node may take, 16GiB by default. Beyond it programs get ENOSPC.
    #[schemars(with = "Option<SizeText>")]
    pub disk: Option<Text>,
    /// What work costs on the CPU: `instant` (default), or costs in place of those of `defaults`.
    pub cpu: Option<Flexible<CpuDoc>>,
    /// What it sees as `/`: `host` (default), a folder, or an image: a tar of a root, a `docker save`, an OCI image layout.
    pub root: Option<Flexible<RootDoc>>,
    /// Addresses with prefix length, by interface: one or a list.
    #[serde(default)]
    pub addresses: Entries<Words>,
    /// More about interfaces, by name.
    #[serde(default)]
    pub interfaces: Entries<InterfaceDoc>,
    /// Static routes, each as in `default via 10.0.0.1` or spelled out.
    #[serde(default)]
    pub routes: Vec<Flexible<RouteDoc>>,
    /// Kernel parameters by name, for instance `net.ipv4.ip_forward: 1`.
    #[serde(default)]
    #[schemars(with = "Entries<Scalar>")]
    pub sysctls: Entries<Text>,
    /// Files by absolute path.
    #[serde(default)]
    pub files: Entries<FileDoc>,
    /// Commands to run one after the other before any process; not by a shell.
    #[serde(default)]
    pub setup: Vec<Words>,
    /// Programs to run.
    #[serde(default)]
    pub processes: Vec<ProcessDoc>,
}

/// The CPU is busy for as long as these add up to; what is not named is free.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Cpu")]
pub(crate) struct CpuDoc {
    /// Each system call of a program.
    #[schemars(with = "Option<DurationText>")]
    pub syscall: Option<Text>,
    /// Each byte copied between a program and its kernel.
    #[schemars(with = "Option<ByteCostText>")]
    pub copy: Option<Text>,
}

/// One of the images of an archive.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Root")]
pub(crate) struct RootDoc {
    /// Path of the archive or OCI image layout, from the scenario's folder.
    pub image: Text,
    /// Name of the image, as in `web:1`; needed where there are several.
    pub name: Option<Text>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Interface")]
pub(crate) struct InterfaceDoc {
    /// Ethernet address; by default made from the positions of node and interface.
    #[schemars(with = "Option<MacText>")]
    pub mac: Option<Text>,
    /// Bytes of payload of a frame; 1500 by default.
    #[schemars(with = "Option<u32>")]
    pub mtu: Option<Text>,
    /// Whether frames are written to a pcap file.
    pub capture: Option<bool>,
    /// Addresses with prefix length: one or a list.
    pub addresses: Option<Words>,
    /// Model of its NIC: `ideal` (default), `virtio`, `e1000e`, `igb` or `mlx5`. What follows takes the place of single
    /// values of it; docs/nics.md has them all.
    pub model: Option<Text>,
    /// Frames that may wait for an interrupt; more are lost.
    #[schemars(with = "Option<u32>")]
    pub rx_ring: Option<Text>,
    /// Frames that may wait for the wire below the queueing discipline.
    #[schemars(with = "Option<u32>")]
    pub tx_ring: Option<Text>,
    /// Whether the driver limits the bytes in its transmit ring to what keeps the link busy (byte queue limits).
    pub bql: Option<bool>,
    /// Least memory that a received frame counts as: the buffer made ready for it (truesize).
    #[schemars(with = "Option<SizeText>")]
    pub rx_buffer: Option<Text>,
    /// Longest frame that is copied to a buffer of its own size instead.
    #[schemars(with = "Option<SizeText>")]
    pub rx_copybreak: Option<Text>,
    /// Whether it fills in checksums.
    #[schemars(with = "Option<bool>")]
    pub tx_checksum: Option<Spanned<bool>>,
    /// Whether it checks checksums.
    pub rx_checksum: Option<bool>,
    /// Whether it cuts long packets of TCP.
    #[schemars(with = "Option<bool>")]
    pub tso: Option<Spanned<bool>>,
    /// Whether it cuts long packets of UDP.
    #[schemars(with = "Option<bool>")]
    pub uso: Option<Spanned<bool>>,
    /// Whether Linux cuts long packets that the NIC does not cut.
    pub gso: Option<bool>,
    /// Whether Linux merges segments that arrive together.
    pub gro: Option<bool>,
    /// Longest packet that is made for the NIC to cut.
    #[schemars(with = "Option<SizeText>")]
    pub gso_max_size: Option<Text>,
    /// Least time between two interrupts: what comes sooner waits, the first after a quiet time does not.
    #[schemars(with = "Option<DurationText>")]
    pub interrupt_gap: Option<Text>,
    /// So many waiting frames interrupt at once.
    #[schemars(with = "Option<u32>")]
    pub interrupt_frames: Option<Text>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Route")]
pub(crate) struct RouteDoc {
    /// A network as in 10.0.0.0/8, an address, or `default`.
    pub to: Text,
    /// Address of the next hop.
    pub via: Option<Text>,
    /// Interface.
    pub dev: Option<Text>,
    /// Lower wins.
    #[schemars(with = "Option<u32>")]
    pub metric: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "File")]
pub(crate) struct FileDoc {
    /// The text of it.
    pub content: Option<Text>,
    /// Or the path of a file on the host, from the scenario's folder.
    pub source: Option<Text>,
    /// Permission bits in octal, "644" by default.
    #[schemars(with = "Option<Scalar>")]
    pub mode: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Process")]
pub(crate) struct ProcessDoc {
    /// Program and arguments: a list, or a string split like a shell's words. No shell runs it. Without `exec`, what the image
    /// of the node is made to run: its ENTRYPOINT with its CMD.
    pub exec: Option<Words>,
    /// Arguments of the image's ENTRYPOINT in place of its CMD, as after `docker run IMAGE`.
    pub args: Option<Words>,
    /// When it starts; 0s by default.
    #[schemars(with = "Option<DurationText>")]
    pub start: Option<Text>,
    /// When it is sent `signal`.
    #[schemars(with = "Option<DurationText>")]
    pub stop: Option<Text>,
    /// Signal sent at `stop`: a name or number, TERM by default.
    #[schemars(with = "Option<Scalar>")]
    pub signal: Option<Text>,
    /// What it reads on standard input.
    pub stdin: Option<Text>,
    /// Environment, besides PATH, HOME and LANG, and what the image of the node has.
    #[serde(default)]
    #[schemars(with = "Entries<Scalar>")]
    pub env: Entries<Text>,
    /// Working directory; that of the image, else `/` by default.
    pub cwd: Option<Text>,
    /// `root`, `nobody`, a user id, or user and group id as in 1000:1000; that of the image, else `root` by default.
    #[schemars(with = "Option<Scalar>")]
    pub user: Option<Text>,
    /// `success` (default), `running`, `any`, an exit code, or spelled out.
    pub expect: Option<Flexible<ExpectDoc>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Expect")]
pub(crate) struct ExpectDoc {
    /// `success` (default), `running` or `any`.
    pub end: Option<Text>,
    /// Or the exit code.
    #[schemars(with = "Option<u32>")]
    pub exit: Option<Text>,
    /// Or the signal that ends it.
    #[schemars(with = "Option<Scalar>")]
    pub signal: Option<Text>,
    /// What must be on standard output.
    pub stdout: Option<StdoutDoc>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Stdout")]
pub(crate) struct StdoutDoc {
    /// Text that must be in it; all of a list.
    pub contains: Option<Words>,
    /// Regular expression that must match somewhere; all of a list.
    pub matches: Option<Words>,
}

/// A link end outside the run: exactly one of `tap`, `interface`, `raw`, `udp`, `vxlan` and `stream`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Port")]
pub(crate) struct PortDoc {
    /// A TAP interface of the host, made for the run: its name, or `auto`.
    pub tap: Option<Text>,
    /// An existing interface of the host.
    pub interface: Option<Text>,
    /// Some ports of the host's own address on an existing interface.
    pub raw: Option<RawDoc>,
    /// Frames in UDP to another run.
    pub udp: Option<UdpDoc>,
    /// VXLAN to one peer.
    pub vxlan: Option<VxlanDoc>,
    /// A stream socket as QEMU and passt speak it: path of a Unix socket, `@name` of an abstract one, or `tcp:ADDRESS:PORT`.
    pub stream: Option<Text>,
    /// Of a TAP: the host's addresses on it, with prefix length: one or a list.
    pub address: Option<Words>,
    /// Of a TAP, an interface or VXLAN: its MTU in bytes.
    #[schemars(with = "Option<u32>")]
    pub mtu: Option<Text>,
    /// Of a TAP: file of the network namespace it is made in, as in /run/netns/NAME.
    pub netns: Option<Text>,
    /// Of a stream: wait for the peer to connect, instead of connecting to it.
    pub listen: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Raw")]
pub(crate) struct RawDoc {
    /// Name of the interface.
    pub interface: Text,
    /// Ports of TCP that are the run's, as in 8080 or 40000-40099: one or a list.
    pub tcp: Option<Words>,
    /// The same of UDP.
    pub udp: Option<Words>,
    /// Ask a broker for them, which needs no capability: its socket, or `auto` for /run/windtunnel/broker.sock.
    pub broker: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Udp")]
pub(crate) struct UdpDoc {
    /// Address and port to receive at.
    pub local: Text,
    /// Address and port of the other end.
    pub peer: Text,
    /// File with a shared key: 64 hexadecimal digits.
    pub key: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Vxlan")]
pub(crate) struct VxlanDoc {
    /// Number of the virtual network.
    #[schemars(with = "u32")]
    pub vni: Text,
    /// Address to receive at.
    pub local: Text,
    /// Address of the other end.
    pub peer: Text,
    /// UDP port at both ends; 4789 by default.
    #[schemars(with = "Option<u16>")]
    pub port: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Link")]
pub(crate) struct LinkDoc {
    /// The two ends: interfaces, of which one may be a port.
    #[schemars(with = "[EndpointText; 2]")]
    pub endpoints: Words,
    /// Values of both directions.
    pub both: Option<LinkValuesDoc>,
    /// Values of the direction from the first end to the second.
    pub a_to_b: Option<LinkValuesDoc>,
    /// Values of the direction from the second end to the first.
    pub b_to_a: Option<LinkValuesDoc>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LinkValues")]
pub(crate) struct LinkValuesDoc {
    /// Bits per second on the wire. Every direction needs one.
    #[schemars(with = "Option<RateText>")]
    pub rate: Option<Text>,
    /// Propagation delay. Every direction needs one.
    #[schemars(with = "Option<DurationText>")]
    pub delay: Option<Text>,
    /// Delays are uniform from delay - jitter to delay + jitter; 0s by default.
    #[schemars(with = "Option<DurationText>")]
    pub jitter: Option<Text>,
    /// Whether jitter may reorder frames; false by default.
    pub reorder: Option<bool>,
    /// Chance that a frame is lost; 0% by default.
    #[schemars(with = "Option<ProbabilityText>")]
    pub loss: Option<Text>,
    /// Chance that a frame arrives twice; 0% by default.
    #[schemars(with = "Option<ProbabilityText>")]
    pub duplicate: Option<Text>,
    /// Chance that a frame arrives with one bit flipped; 0% by default.
    #[schemars(with = "Option<ProbabilityText>")]
    pub corrupt: Option<Text>,
    /// Where frames wait; `nic` by default.
    #[schemars(with = "Option<QueueText>")]
    pub queue: Option<Text>,
    /// Whether there is a carrier; true by default.
    pub up: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Event")]
pub(crate) struct EventDoc {
    /// When.
    #[schemars(with = "DurationText")]
    pub at: Text,
    /// The link to change, by its two nodes or two ends.
    pub link: Option<Words>,
    /// New values of both directions; what is not named stays.
    pub set: Option<LinkValuesDoc>,
    /// New values of the direction from the first end named in `link` to the second.
    pub a_to_b: Option<LinkValuesDoc>,
    /// New values of the direction from the second end named in `link` to the first.
    pub b_to_a: Option<LinkValuesDoc>,
    /// `true`: the link gets its carrier back, or the node its power: it boots.
    pub up: Option<bool>,
    /// `true`: the link loses its carrier, and all that is on the way; or the node its power.
    pub down: Option<bool>,
    /// The node to run `exec` on, or to go `down` or `up`.
    pub node: Option<Text>,
    /// A program to run, as of a process.
    pub exec: Option<Words>,
    /// What is expected of that program.
    pub expect: Option<Flexible<ExpectDoc>>,
}
