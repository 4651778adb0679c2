//! `windtunnel stop`

use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::live;
use windtunnel_control::{FromRun, Reply, Request};

/// End a live run
///
/// As Ctrl-C does where it was started: its results are kept, and written when this returns. A run that was held at its end
/// (`--hold`) ends as if it had not been.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: live::Which,
}

/// Ends it, and waits until it has.
pub fn run(args: &Args) -> Outcome {
    let mut connection = args.which.connect()?;
    connection.send(&Request::Stop)?;
    loop {
        match connection.receive()? {
            // It closes the connection when all is written.
            None => return Ok(EXIT_OK),
            Some(FromRun::Reply(Reply::RunOver)) => {}
            Some(other) => return Err(Failure::crash(format!("the run sent {other:?} for its end"))),
        }
    }
}
