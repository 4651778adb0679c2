//! Library kernels: the one safe wrapper of the boundary header.
//!
//! [`Image::open`] checks a kernel image, [`Instance::boot`] maps and boots it, [`Instance::enter`] runs it until it is
//! idle. A thread that does so has a [`ThreadContext`]. What a kernel asks of its host is the trait [`Host`].
//!
//! A kernel that panics, or faults under a signal handler that calls [`note_kernel_fault`], ends the entry with a
//! [`Crash`]; its instance can't be entered again, others can.
//!
//! This crate is an unsafe room. What it relies on and cannot check: that the image keeps to the boundary header.

pub mod abi;
mod control;
mod crash;
mod frame;
pub mod host;
mod image;
mod instance;
mod map;
mod nic;
mod ops;
mod owned;
mod sample;
mod shutter;
mod symbols;
mod thread;
mod vector;

pub use control::{Argument, Completed, Descriptor, Request, SpawnSpec};
pub use crash::{BacktraceFrame, Crash, CrashKind};
pub use frame::{Frame, MAX_FRAME_BYTES};
pub use host::{FileName, Host, Verdict};
pub use image::{Image, ImageError, MAX_IMAGE_BYTES, PAGE_BYTES, Segment};
pub use instance::{BootConfig, DrainTx, Events, Instance, KernelError, Received, Transmitted};
pub use nic::{Moderation, Nic, NicConfig, NicModel};
pub use sample::Record;
pub use shutter::Shutter;
pub use symbols::Symbols;
pub use thread::{
    ProgramFault, ThreadContext, ThreadError, comm_text, forget_active, note_kernel_fault, program_fault, program_name,
    read_comm, running_program,
};
pub use vector::VectorState;
