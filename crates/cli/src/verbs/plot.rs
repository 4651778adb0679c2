//! `windtunnel plot DIR`

use crate::failure::Outcome;
use crate::python;
use serde::Serialize;
use std::path::PathBuf;

/// Draw what a run or a sweep has measured, and write a report of it
///
/// Without --kind, all that the results have data for: `run --measure 10ms` brings series of links, `capture: all` in the scenario
/// the captures that round-trip times and time-sequence diagrams are drawn from. The report is one HTML file that needs nothing
/// else. Equal runs give equal pictures. Of a sweep, each value against each parameter, with 95 % intervals; --x, --y, --group and
/// --where choose among them, and `--kind cdf` draws distributions. Needs `pip install 'windtunnel[study]'`.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Results of a run, or the folder of a sweep
    dir: PathBuf,
    /// What to draw of a run: throughput, queue, rtt, cwnd, time-sequence, topology, timeline; of a sweep: mean (against a parameter, the default), cdf (over seeds)
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// The parameter on the x axis; by default a picture for each
    #[arg(long, value_name = "PARAMETER", help_heading = "Of a sweep")]
    x: Option<String>,
    /// Values to draw; all by default
    #[arg(long, value_name = "VALUE", value_delimiter = ',', help_heading = "Of a sweep")]
    y: Vec<String>,
    /// Parameters whose combinations are a series each; all others by default
    #[arg(long, value_name = "PARAMETER", value_delimiter = ',', help_heading = "Of a sweep")]
    group: Vec<String>,
    /// Only points with this value of a parameter, as in cc=bbr; may be given several times
    #[arg(long = "where", value_name = "PARAMETER=VALUE", help_heading = "Of a sweep")]
    r#where: Vec<String>,
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
