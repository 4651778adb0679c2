//! The words every other crate shares: virtual time, rates, sizes, costs, probabilities, ids and seeded random streams.
//!
//! All arithmetic is in integers and exact. What does not fit panics with the values that did not: a clock that
//! wrapped is a bug of the engine, and no result of such a run could be trusted. Text that people write goes
//! through the parsers ([`std::str::FromStr`] of each type), which answer with a [`UnitError`] instead.

#![forbid(unsafe_code)]

mod byte_cost;
pub mod hashes;
mod id;
pub mod input_file;
mod probability;
pub mod random;
mod rate;
pub mod result_files;
mod size;
mod time;
mod units;

pub use byte_cost::ByteCost;
pub use id::{IfaceId, NodeId};
pub use probability::Probability;
pub use random::Rng;
pub use rate::Rate;
pub use size::ByteSize;
pub use time::{SimDuration, SimTime};
pub use units::UnitError;
