//! `windtunnel gdb FILE`

use crate::failure::{Failure, Outcome};
use crate::kernels;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("../../assets/windtunnel-gdb.py");

/// Run a scenario in gdb, with the symbols of every kernel and program
///
/// `run` stops when all kernels have booted. A breakpoint stops in every node; `$node` names the one that runs:
///     (gdb) run
///     (gdb) break tcp_v4_rcv if $node == "h2"
///     (gdb) continue
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Scenario file
    file: PathBuf,
    /// Folder for the results; those of an earlier run there are replaced
    #[arg(long, value_name = "DIR", default_value = "out/gdb")]
    out: PathBuf,
    /// Seed of all random numbers, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Repeat what happened to another run of this scenario, as `windtunnel run --replay` does
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// Arguments for gdb, such as -ex 'break tcp_v4_rcv'
    #[arg(last = true, value_name = "GDB-ARGUMENT")]
    gdb_arguments: Vec<String>,
}

/// Becomes gdb.
pub fn run(args: &Args) -> Outcome {
    super::load_scenario(&args.file)?;
    let script = write_script()?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::user("cannot find out where this program lies").because(error))?;
    let mut command = Command::new("gdb");
    command
        .arg("-q")
        .arg("-x")
        .arg(&script)
        .args(&args.gdb_arguments)
        .arg("--args")
        .arg(program);
    command
        .args(["run", "--debugger", "--force", "--out"])
        .arg(&args.out)
        .arg(&args.file);
    if let Some(seed) = args.seed {
        command.arg("--seed").arg(seed.to_string());
    }
    if let Some(replay) = &args.replay {
        command.arg("--replay").arg(replay);
    }
    let error = command.exec();
    let failure = Failure::user("cannot run gdb").because(&error);
    Err(if error.kind() == std::io::ErrorKind::NotFound {
        failure.hint("apt install gdb")
    } else {
        failure
    })
}

/// The script in the cache folder: gdb reads it after this process is gone, so a temporary file could not be removed.
fn write_script() -> Result<PathBuf, Failure> {
    let dir = kernels::cache_dir()
        .ok_or_else(|| Failure::user("no cache folder: HOME is not set").hint("set WINDTUNNEL_CACHE to a folder"))?
        .join("gdb");
    let path = dir.join("windtunnel-gdb.py");
    replace(&dir, &path).map_err(|error| {
        Failure::user(format!("cannot write {}", path.display()))
            .because(error)
            .hint("WINDTUNNEL_CACHE=DIR names another cache folder")
    })?;
    Ok(path)
}

fn replace(dir: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    if std::fs::read(path).is_ok_and(|old| old == SCRIPT.as_bytes()) {
        return Ok(());
    }
    let temporary = dir.join(format!(".windtunnel-gdb.{}.py", std::process::id()));
    std::fs::write(&temporary, SCRIPT)?;
    std::fs::rename(&temporary, path)
}
