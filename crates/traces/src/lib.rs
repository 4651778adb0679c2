//! Captures of packets, compared connection by connection: `windtunnel compare`.
//!
//! A capture is read once, front to back ([`Capture`]); what is kept of it are segments without payload ([`Collector`], [`Trace`]). Two
//! traces are compared in relative numbers ([`compare`]).
#![forbid(unsafe_code)]

mod align;
mod capture;
mod comparison;
mod metrics;
mod normal;
mod options;
mod packet;
mod sequence;
mod trace;

pub use align::{Alignment, align};
pub use capture::{Capture, CaptureError, Frame, LinkType};
pub use comparison::{
    Comparison, Difference, Differences, FieldDifference, FlowPair, FlowSide, MatchedBy, Pair, PingTimes, Ratio,
    SentRatio, Shown, Side, Source, Tolerances, Unmatched, compare, name, ratio,
};
pub use metrics::{Distribution, Metrics, Sent};
pub use normal::{Field, Fields, Normal, Relative, Tolerance};
pub use options::Options;
pub use sequence::{Diagram, Points, diagram};
pub use trace::{Collector, Connection, Counts, Flow, Segment, Trace};

/// The JSON Schema of what a comparison is written as.
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(Comparison);
    serde_json::to_string_pretty(&schema).expect("string keys only")
}
