//! What can end a run early, for the person who started it.

use std::path::PathBuf;

/// Exit code of the program when a run could not start because of its input or the host.
pub const EXIT_UNUSABLE: i32 = 2;
/// Exit code of the program when a run broke off.
pub const EXIT_BROKEN: i32 = 3;

/// An error that ends a run, or keeps it from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// More nodes than the address space has room for.
    #[error("{nodes} nodes do not fit in one engine; at most {max} do")]
    TooManyNodes {
        /// Nodes asked for.
        nodes: u64,
        /// Nodes possible.
        max: u64,
    },
    /// A kernel's memory does not fit in its region.
    #[error("{bytes} bytes of memory do not fit in a node's address range of {max_bytes} bytes")]
    MemoryTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes possible.
        max_bytes: u64,
    },
}
