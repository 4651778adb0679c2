//! Names in the folder of a run's results. There is a folder for each node, too, so no node can have one of these.

/// What is needed to repeat the run.
pub const MANIFEST: &str = "manifest.json";
/// What happened.
pub const SUMMARY: &str = "summary.json";
/// The digest of each interface on its way.
pub const TRAIL: &str = "trail.json";
/// What happened, in the order of virtual time.
pub const EVENTS: &str = "events.jsonl";
/// Conversations.
pub const FLOWS: &str = "flows.csv";
/// What links did in each interval.
pub const LINKS: &str = "links.csv";
/// TCP connections, sampled.
pub const TCP: &str = "tcp.csv";
/// MPTCP connections, sampled.
pub const MPTCP: &str = "mptcp.csv";
/// Queueing disciplines, sampled.
pub const QDISCS: &str = "qdiscs.csv";
/// Every file that the run made.
pub const FILES: &str = "files.list";
/// Folder of the captures.
pub const PCAP: &str = "pcap";
/// All captures as one.
pub const PCAPNG: &str = "run.pcapng";
/// The same, before it is complete.
pub const PCAPNG_TEMPORARY: &str = "run.pcapng.tmp";
/// What clients of the live run did.
pub const INPUT: &str = "input.jsonl";
/// What came from outside through ports.
pub const OUTSIDE: &str = "outside.bin";
/// Link to the socket of the live run.
pub const CONTROL: &str = "control.sock";
/// The manifest before it is complete.
pub const MANIFEST_TEMPORARY: &str = "manifest.json.tmp";
/// The summary before it is complete.
pub const SUMMARY_TEMPORARY: &str = "summary.json.tmp";
/// The events before they are complete.
pub const EVENTS_TEMPORARY: &str = "events.jsonl.tmp";
/// The conversations before they are complete.
pub const FLOWS_TEMPORARY: &str = "flows.csv.tmp";
/// The trail before it is complete.
pub const TRAIL_TEMPORARY: &str = "trail.json.tmp";

/// All of them.
pub const ALL: [&str; 21] = [
    MANIFEST,
    SUMMARY,
    EVENTS,
    EVENTS_TEMPORARY,
    FLOWS,
    FLOWS_TEMPORARY,
    LINKS,
    TCP,
    MPTCP,
    QDISCS,
    FILES,
    PCAP,
    PCAPNG,
    PCAPNG_TEMPORARY,
    INPUT,
    OUTSIDE,
    CONTROL,
    MANIFEST_TEMPORARY,
    SUMMARY_TEMPORARY,
    TRAIL,
    TRAIL_TEMPORARY,
];
