//! The composition root: wires kernels, programs, links and results together and owns virtual time.
#![forbid(unsafe_code)]

mod configure;
pub mod error;
mod event;
mod layout;
mod netlink;
mod window;

pub use error::EngineError;
