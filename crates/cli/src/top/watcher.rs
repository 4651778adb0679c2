//! The connection of `windtunnel top` to its run.

use windtunnel_control::{Break, Broken, Connection, FromRun, Look, Reply, Request, State};

use crate::failure::Failure;

/// Somebody who looks, and may let time stand still.
#[derive(Debug)]
pub struct Watcher {
    connection: Connection,
    /// Where time stands by this watcher's condition.
    broken: Option<Broken>,
}

impl Watcher {
    /// Over this connection.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            broken: None,
        }
    }

    /// Name of the run's scenario.
    pub fn scenario(&self) -> &str {
        &self.connection.hello().scenario
    }

    /// How the run stands; none: it is over.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is not understood.
    pub fn look(&mut self) -> Result<Option<State>, Failure> {
        // A run that has ended closes its end: that is not a failure.
        if self.connection.send(&Request::Look(Look { tcp: true })).is_err() {
            return Ok(None);
        }
        loop {
            match self.connection.receive()? {
                Some(FromRun::Reply(Reply::State(state))) => return Ok(Some(*state)),
                Some(FromRun::Reply(Reply::Broken(broken))) => self.broken = Some(*broken),
                Some(FromRun::Reply(Reply::RunOver)) | None => return Ok(None),
                Some(other) => return Err(Failure::crash(format!("the run sent {other:?} for how it stands"))),
            }
        }
    }

    /// Lets time stand still each time when this begins to hold for a connection.
    ///
    /// # Errors
    /// When the run refuses it, or cannot be reached.
    pub fn break_when(&mut self, condition: &str, interval_ns: u64) -> Result<(), Failure> {
        let condition = condition.to_owned();
        self.connection
            .send(&Request::BreakWhen(Break { condition, interval_ns }))?;
        match self.connection.receive()? {
            Some(FromRun::Reply(Reply::Watching)) => Ok(()),
            Some(FromRun::Reply(Reply::Refused(refusal))) => {
                let failure = Failure::user(refusal.message);
                Err(match refusal.hint {
                    Some(hint) => failure.hint(hint),
                    None => failure.hint("as in --break 'cwnd < 2*mss'; names are those of tcp.csv (docs/results.md)"),
                })
            }
            Some(FromRun::Reply(Reply::RunOver)) | None => Err(crate::live::over("the run has ended".into(), "")),
            Some(other) => Err(Failure::crash(format!("the run sent {other:?} for a condition"))),
        }
    }

    /// Where time stands by the condition, if it does.
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// Lets time go on.
    ///
    /// # Errors
    /// When the run cannot be reached.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        if self.broken.take().is_some() {
            self.connection.send(&Request::GoOn)?;
        }
        Ok(())
    }
}
