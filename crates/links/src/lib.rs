//! Link models: what happens to a frame between the NIC that sends it and the NIC that receives it.
//!
//! A [`Link`] is one direction of a cable. It is pure: a frame's length and a time go in, a [`Verdict`] comes out. It
//! holds no frames, knows no other link and never looks at a clock, so the same offers give the same verdicts.
//!
//! A frame passes, in this order: carrier (up or down), queue limit, serialization at the rate, loss, delay with
//! jitter, corruption, duplication.
//!
//! # What is not modelled
//! - Media access: a direction is full duplex and its own; there are no collisions, no autonegotiation, no pause frames.
//! - Bit errors that depend on length: loss and corruption strike frames independently, whatever their length.
//! - The receiver's FCS check: a corrupted frame is delivered with one bit flipped (marked so that the NIC does
//!   not vouch for its checksum); real Ethernet would drop nearly all of them at the receiver. Model that as loss.
//! - A change of rate reaches frames offered after it. Those already accepted leave as planned.
//! - A queue of the link is one tail-drop FIFO. For others (fq_codel, RED, priorities) put a qdisc on the node.

#![forbid(unsafe_code)]

mod counters;
mod effects;
mod link;
mod params;
mod queue;
mod serializer;

pub use counters::{Counters, Dropped};
pub use link::{Backlog, Delivery, DropCause, Link, Verdict};
pub use params::{LinkChange, LinkParams, QueueLimit};
pub use serializer::{ETHERNET_OVERHEAD_BYTES, MIN_FRAME_BYTES, wire_bytes};
pub use smallvec::SmallVec;
