//! A scenario on the host's own kernel: every node is a set of namespaces, its programs are ordinary processes, and the link models
//! carry frames between TAP interfaces as the wall clock goes.
//!
//! Each node has a process 1, which is this program started again: it makes the node's namespaces, file tree and interfaces, starts
//! programs when the run tells it to, and reaps them. It ends when the socket to the run closes, and the kernel ends everything in the
//! node with it; so nothing outlives the run, also if that is killed.
//!
//! # What is not as in virtual time
//! docs/platforms.md has the table. What a scenario asks for and the host cannot give is refused or warned of: see `limits.rs`.
#![deny(unsafe_code)]

mod error;
mod init;
mod limits;
mod network;
mod probe;
mod process1;
mod protocol;
mod root;
mod run;
mod supervisor;
mod sys;
mod wire;

pub use error::PlatformError;
pub use init::{INIT_VERB, INNER, node_init};
pub use probe::probe;
pub use run::{Options, Outcome, Progress, run};
