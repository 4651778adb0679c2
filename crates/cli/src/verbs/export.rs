//! `windtunnel export DIR`

use crate::failure::{Failure, Outcome};
use crate::python;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Write what a run left in the formats of other tools
///
/// `--pcapng` has Wireshark show the whole run at once: its captures as one, in the order of time, each frame with node and interface.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Folder of the results
    dir: PathBuf,
    /// One capture of the whole run, made of those of its interfaces
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    /// Folder for its tables, each as a Parquet file; needs Polars (pip install polars)
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
}

/// Makes one capture of those in a folder of results. Whether it is there; if not, it was said why.
pub(super) fn pcapng(dir: &Path, pcapng: &Path) -> Result<bool, Failure> {
    let args = Args {
        dir: dir.to_owned(),
        pcapng: Some(pcapng.to_owned()),
        parquet: None,
    };
    python::run_verb("export", &args)
}

/// Has the Python package do it.
pub fn run(args: &Args) -> Outcome {
    python::become_verb("export", args)
}
