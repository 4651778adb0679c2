//! How others reach a live run.
//!
//! ```text
//!  windtunnel shell, exec, ps        ---frames over a Unix socket--->  server threads  --Incoming-->  simulation thread
//!  (client)                          <--------------------------------                 <--Client----
//! ```
//!
//! A run listens on a socket of its user ([`place`]); a connection carries [`frame`]s, either a JSON [`message`] or bytes of
//! a program's input and output. The server's threads ([`server`]) only pass things on: when something reaches a node is
//! for the simulation to decide, which writes it down as an [`input`] record, so that the run can be repeated.
//!
//! The protocol is for other programs as well. After connecting, the run says [`Reply::Hello`]; the client sends one
//! [`Request::Open`] or [`Request::Processes`] and reads replies until the run closes the connection. Closing it earlier hangs
//! up. Or it sends [`Request::Drive`], and from then on as many [`Command`]s as it likes.
#![forbid(unsafe_code)]

mod bell;
mod client;
mod driver;
mod frame;
mod input;
mod message;
mod place;
mod predicate;
mod schema;
mod server;
mod state;

pub use bell::{Bell, Ringer, bell};
pub use client::{Connection, FromRun};
pub use driver::{
    Answer, Command, Content, FILE_MAX_BYTES, INTERVAL_MIN_NS, Measured, NodePower, Numbered, Outcome, Pause,
    ProgramEnd, Run, Sample, Sampled, signal_problem,
};
pub use frame::{Decoder, Frame, FrameError, Stream};
pub use input::{INPUT_VERSION, Input, InputHeader, InputLog, InputRecord, Recording, RecordingError};
pub use message::{End, Hello, Open, PROTOCOL, Process, Refusal, Reply, Request, WindowSize};
pub use place::{LINK, NameLock, live_sockets};
pub use predicate::{Predicate, PredicateError};
pub use schema::json_schema;
pub use server::{Client, Inbox, Incoming, Server};
pub use state::{Break, Broken, DirectionState, LinkState, Look, NodeState, PeerState, PortState, ProgramState, State};

use std::io;
use std::path::PathBuf;

/// Why a run could not be reached, or not be made reachable.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The host refuses something about the socket.
    #[error("cannot {action} {}: {source}", path.display())]
    Socket {
        /// Verb, as in "listen on".
        action: &'static str,
        /// The socket, or its folder.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The folder for sockets could be changed by others.
    #[error("{} is not a folder of this user that nobody else can enter", .0.display())]
    UnsafeFolder(PathBuf),
    /// The run is of another version.
    #[error("the run speaks version {theirs} of the control protocol, this program version {PROTOCOL}")]
    Version {
        /// The run's.
        theirs: u32,
    },
    /// What came is not the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection ended too soon.
    #[error("the run closed the connection")]
    Closed,
}
