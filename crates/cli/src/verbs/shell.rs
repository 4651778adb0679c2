//! `windtunnel shell NODE`

use crate::failure::Outcome;
use crate::{attach, live};
use clap_complete::engine::ArgValueCompleter;

/// Open a shell in a node of a live run
///
/// Virtual time goes with the wall clock while it is open. What is typed is written to input.jsonl in the output folder of
/// the run, with its virtual time: `windtunnel run FILE --replay input.jsonl` repeats it.
/// `~.` at the start of a line leaves it, whatever runs in it, and hangs up; `~~` there is one `~`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node
    #[arg(add = ArgValueCompleter::new(live::complete_node))]
    node: String,
    /// Whom it runs as: a name in the node's /etc/passwd, a user id, or user and group id as in 1000:1000
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    which: live::Which,
}

/// The shell's exit code.
pub fn run(args: &Args) -> Outcome {
    let program = attach::on_terminal(Vec::new(), args.user.clone())?;
    attach::attach(args.which.connect()?, &args.node, program)
}
