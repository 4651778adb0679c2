//! The `windtunnel` command. One file per verb in `verbs/`; what several verbs need lies beside them.
#![deny(unsafe_code)]

mod attach;
mod attachment;
mod chart;
mod debug;
mod diff;
mod failure;
mod host;
mod kernels;
mod live;
mod progress;
mod python;
mod report;
mod top;
mod verbs;

use clap::{CommandFactory, Parser};
use clap_complete::env::CompleteEnv;
use std::process::ExitCode;

/// Runs real networks of real Linux kernels and unmodified programs in virtual time.
///
/// Same version, scenario and seed: same bytes, on any machine.
#[derive(Debug, Parser)]
#[command(
    name = "windtunnel",
    version,
    arg_required_else_help = true,
    propagate_version = false
)]
#[command(
    max_term_width = 100,
    after_help = "Exit codes: 0 all is well, 1 an expectation of the scenario failed, \
    2 the input or the host needs a change, 3 a crash, 128 plus its number for a signal (130: Ctrl-C)."
)]
struct Cli {
    #[command(subcommand)]
    verb: verbs::Verb,
}

/// Set by completion scripts, which ask the program itself for words: see `verbs/completions.rs`.
const COMPLETE_VARIABLE: &str = "WINDTUNNEL_COMPLETE";

fn main() -> ExitCode {
    // A node of `--platform host`: nothing of what follows is for it.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == windtunnel_platform::INIT_VERB) {
        let stage = words.next();
        return ExitCode::from(windtunnel_platform::node_init(stage.as_deref().and_then(|word| word.to_str())) as u8);
    }
    host::forget_inherited();
    CompleteEnv::with_factory(Cli::command)
        .var(COMPLETE_VARIABLE)
        .complete();
    let code = match Cli::parse().verb.run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    };
    ExitCode::from(code as u8)
}
