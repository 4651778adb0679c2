//! What a run leaves behind: captures, logs, counters, digest, summary and manifest.
//!
//! ```text
//! DIR/manifest.json        who ran what, where and how it ended; the only file with facts of the host  (manifest)
//! DIR/summary.json         what happened in virtual time; equal runs give equal bytes                   (summary)
//! DIR/trail.json           the digest of each interface on its way, to compare runs without captures    (trail)
//! DIR/events.jsonl         what happened, in the order of virtual time                                  (events)
//! DIR/links.csv            what links did in each interval, if that was asked for                    (link_series)
//! DIR/tcp.csv, mptcp.csv, qdiscs.csv   what kernels knew at each sample, if that was asked for           (samples)
//! DIR/flows.csv            conversations by five-tuple, where links are measured                      (flow_table)
//! DIR/files.list           every file the run made, so that --force removes nothing else                (out_dir)
//! DIR/pcap/NODE-IFACE.pcap frames of a captured interface, nanosecond time stamps                       (pcap)
//! DIR/NODE/kernel.log      kernel log with virtual time                                                 (kernel_log)
//! DIR/NODE/NAME-INDEX.stdout, .stderr   what a program wrote; the program owns the file descriptor      (out_dir)
//! DIR/input.jsonl          what clients of the live run did, with virtual time; only if they did         (out_dir)
//! DIR/control.sock         link to the socket of the live run                                            (out_dir)
//! ```
//!
//! Nothing here knows the engine: times are nanoseconds since the start of the run, nodes and interfaces are names.
//! Every failing write is a [`ResultsError`] that says what, why and what to do about it.
#![forbid(unsafe_code)]

mod digest;
mod error;
mod events;
mod flow_table;
mod host_facts;
mod kernel_log;
mod link_series;
mod manifest;
mod out_dir;
mod pcap;
mod samples;
mod series;
mod summary;
mod trail;
mod warnings;

pub use digest::{
    Direction, InterfaceDigest, ProcessRecord, RunDigest, frame_hash, prepare, sha256_bytes, sha256_file,
};
pub use error::{Result, ResultsError};
pub use events::{ChangedBy, Event, EventLine, EventLog, LinkValues, ProgramEvent, events_schema};
pub use flow_table::{FlowDirection, FlowRow, flows_csv};
pub use host_facts::HostFacts;
pub use kernel_log::KernelLog;
pub use link_series::LinkInterval;
pub use manifest::{
    Cost, Ended, FileRecord, GENERATOR, KernelRecord, MANIFEST_VERSION, Manifest, PlatformRecord, ProgramRecord,
    RootRecord, ScenarioRecord, SourceRecord,
};
pub use out_dir::{ExistingFiles, OutDir, ProcessLogs};
pub use pcap::PcapWriter;
pub use samples::{MptcpLine, QdiscLine, TcpLine};
pub use series::{Line, Series};
pub use summary::{
    DeliveryLateness, DirectionSummary, LatenessSummary, LinkSummary, NodeLateness, PortSummary, ProcessSummary,
    SUMMARY_VERSION, Summary,
};
pub use trail::{InterfaceTrail, Mark, TRAIL_VERSION, Trail};
pub use warnings::{Warning, Warnings};
pub use windtunnel_base::hashes::hex;
