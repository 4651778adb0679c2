//! The plain description of a network and of what runs on it: the scenario file, version 1.
//!
//! [`Scenario::parse`] reads a file's text, checks it as a whole and fills in every default, so that whoever runs it has
//! nothing left to decide. This crate knows no engine.

#![forbid(unsafe_code)]

mod document;
mod error;
mod expect;
pub mod generate;
mod model;
mod own_files;
mod reader;
mod resolve;
mod schema;
mod text;

pub use error::{ChangeError, Diagnostic, ScenarioError, nearest};
pub use expect::{End, Expect, Outcome, StdoutCheck};
pub use ipnet::IpNet;
pub use model::{
    Action, Caution, Cpu, Event, Exec, FileContent, FileSpec, Interface, LinkSpec, Measures, Nic, NicModel, Node,
    NodeKind, Offload, PortEnd, Preempt, Process, Realtime, Root, Route, Run, Scenario, User,
};
pub use own_files::{OwnFile, SourceError};
pub use schema::json_schema;
