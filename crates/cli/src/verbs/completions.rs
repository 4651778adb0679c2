//! `windtunnel completions SHELL`

use crate::failure::{Failure, Outcome};
use clap::ValueEnum;
use clap_complete::env::Shells;

/// Print a shell's completion script
///
/// Put it where the shell looks for them, or load it: `source <(windtunnel completions bash)`. It asks the program for
/// words, so it knows the nodes of a live run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> Outcome {
    let name = args.shell.to_possible_value().expect("no shell is hidden");
    let shells = Shells::builtins();
    let shell = shells.completer(name.get_name()).expect("the same shells are known");
    let mut script = Vec::new();
    let program = "windtunnel";
    shell
        .write_registration(crate::COMPLETE_VARIABLE, program, program, program, &mut script)
        .map_err(|error| Failure::crash("cannot write the script").because(error))?;
    super::print(&String::from_utf8_lossy(&script))
}
