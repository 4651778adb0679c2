//! `windtunnel exec NODE -- CMD...`

use crate::failure::Outcome;
use crate::{attach, live};
use clap_complete::engine::ArgValueCompleter;
use windtunnel_control::Open;

/// Run a command in a node of a live run
///
/// Standard input, output and error are the command's, and so is the exit code: 127 if the node does not have it, 126 if it
/// cannot be executed, 128 and the signal's number if a signal ended it. Ctrl-C hangs up, which sends it SIGHUP; with
/// a terminal, which passes Ctrl-C on, `~.` at the start of a line does.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node
    #[arg(add = ArgValueCompleter::new(live::complete_node))]
    node: String,
    /// Give it a terminal, as `shell` does
    #[arg(short, long)]
    tty: bool,
    /// Whom it runs as: a name in the node's /etc/passwd, a user id, or user and group id as in 1000:1000
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    which: live::Which,
    /// Command and its arguments; no shell is involved
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The command's exit code.
pub fn run(args: &Args) -> Outcome {
    let program = if args.tty {
        attach::on_terminal(args.command.clone(), args.user.clone())?
    } else {
        Open {
            argv: args.command.clone(),
            env: [].into(),
            env_only: false,
            terminal: None,
            user: args.user.clone(),
            cwd: None,
        }
    };
    attach::attach(args.which.connect()?, &args.node, program)
}
