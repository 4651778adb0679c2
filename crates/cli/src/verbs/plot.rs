//! `windtunnel plot DIR`

use crate::failure::Outcome;
use crate::python;
use serde::Serialize;
use std::path::PathBuf;

/// Draw what a run or a sweep has measured, and write a report of it
///
/// Without --kind, all that the results have data for: `run --measure 10ms` brings series of links, `capture: all` in the scenario
/// the captures that round-trip times and time-sequence diagrams are drawn from. The report is one HTML file that needs nothing
/// else. Equal runs give equal pictures. Of a sweep, each value against each parameter, with 95 % intervals. Needs `pip install 'windtunnel[study]'`.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Results of a run, or the folder of a sweep
    dir: PathBuf,
    /// What to draw of a run: throughput, queue, rtt, cwnd, time-sequence, topology, timeline
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// Formats: png, svg, pdf; html is the report. By default png and html
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    format: Vec<String>,
    /// Folder for the files; DIR/plots by default
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Becomes the plotter.
pub fn run(args: &Args) -> Outcome {
    python::become_verb("plot", args)
}
