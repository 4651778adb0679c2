//! `windtunnel sweep FILE`

use crate::failure::Outcome;
use crate::python;
use serde::Serialize;
use std::path::PathBuf;

/// Run a scenario or a function over parameters and seeds
///
/// FILE.yaml names a scenario, what is put into it, and what is read from the results (`windtunnel schema sweep`); FILE.py makes
/// sweeps with windtunnel.Sweep. What has been finished before with the same inputs is not computed again, so the same command
/// goes on where it was ended. A cell that fails is reported, and the others are kept: the exit code is then 1.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Sweep file, or script
    file: PathBuf,
    /// Folder of the sweep; windtunnel-results/sweep-NAME by default
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Processes; as many as there are processors by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Where cells are computed: local, dask, dask:ADDRESS, slurm, slurm:PARTITION
    #[arg(long, value_name = "NAME", default_value = "local")]
    executor: String,
    /// Compute all cells anew
    #[arg(long)]
    fresh: bool,
    /// Print table, digest and failures as JSON
    #[arg(long)]
    json: bool,
}

/// Becomes the sweep.
pub fn run(args: &Args) -> Outcome {
    python::become_verb("sweep", args)
}
