//! The composition root: wires kernels, programs, links and results together and owns virtual time.
//!
//! A [`Simulation`] boots one kernel per node ([`build`]), configures it by real system calls ([`configure`]), and runs
//! the kernels in lookahead windows ([`window`]) over one event queue each ([`event`]). A node ([`node`]) enters its
//! kernel once per instant; frames that come out go through the node's ports ([`wire`]) to the queues of others; where
//! NICs keep a distance between [`interrupts`], frames wait for the next one.
//! Programs are started and stopped as [`lifecycle`] decides. What clients of a live run do becomes events ([`live`]) and
//! happens in a node's terminals ([`terminal`]); only there, and in its [`pacer`], the wall clock is looked at.

#![forbid(unsafe_code)]

mod build;
mod cables;
mod configure;
mod defaults;
mod error;
mod event;
mod family;
mod faults;
mod files;
mod flows;
mod headers;
mod host;
mod host_memory;
mod interrupts;
mod lateness;
mod layout;
mod lifecycle;
mod links;
mod live;
mod machine;
mod measure;
mod node;
mod outside;
mod pacer;
mod preempt;
mod preflight;
mod processes;
mod programs;
mod roots;
mod run;
mod samples;
mod shared;
mod slices;
mod terminal;
mod urgency;
mod visit;
mod watchdog;
mod window;
mod wire;
mod write_back;

use windtunnel_netlink as netlink;

pub use error::{EXIT_BROKEN, EXIT_UNUSABLE, EngineError, stray_write};
pub use layout::NODES_MAX;
pub use live::LiveOptions;
pub use roots::{Roots, check_roots};
pub use run::{DebugHooks, Options, RunOutcome, Simulation};
pub use shared::Progress;
