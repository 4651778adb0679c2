//! `windtunnel prompt FILE`

use crate::failure::Outcome;
use crate::python;
use serde::Serialize;
use std::path::PathBuf;

/// Drive a run by hand: `h1 ping -c 3 h2`
///
/// NODE COMMAND runs a command on a node, as in Mininet; `help` lists what else there is: nodes, links, pingall, iperf, link, run,
/// ps. Virtual time stands still while nothing is asked for. `quit`, or the end of the input, ends the run.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Scenario file
    file: PathBuf,
    /// Folder for the results; a new one in windtunnel-results by default
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Becomes the prompt.
pub fn run(args: &Args) -> Outcome {
    python::become_verb("prompt", args)
}
