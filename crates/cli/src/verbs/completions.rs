//! `windtunnel completions SHELL`

use crate::failure::Outcome;
use clap::CommandFactory;

/// Print a shell's completion script
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "windtunnel", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
