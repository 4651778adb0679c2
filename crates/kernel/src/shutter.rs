//! Taking away access to the memory of an instance while programs of others run.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::map::Mapping;
use crate::thread::keep_name;

/// The memory that an instance writes: its kernel's data and its RAM. It is open or closed, and open at first. Nobody but the
/// instance uses it, in an entry, and reports about its crash; it has to be open for both.
#[derive(Debug)]
pub struct Shutter {
    ranges: Vec<Range<u64>>,
    /// Keeps what is behind the ranges mapped, whatever becomes of the instance.
    _mappings: [Arc<Mapping>; 2],
}

impl Shutter {
    /// Of `ranges`, which lie in `mappings`, and may be read and written.
    pub(crate) fn new(ranges: Vec<Range<u64>>, mappings: [Arc<Mapping>; 2]) -> Self {
        let inside = |range: &Range<u64>| {
            let mut mappings = mappings.iter();
            mappings.any(|mapping| mapping.start() <= range.start && range.end <= mapping.end())
        };
        assert!(ranges.iter().all(inside), "{ranges:#x?} are not the instance's");
        Self {
            ranges,
            _mappings: mappings,
        }
    }

    /// Takes away all access.
    ///
    /// # Errors
    /// What the host says, for instance that it has no memory left for this.
    pub fn close(&self) -> io::Result<()> {
        keep_name(&self.ranges);
        self.protect(libc::PROT_NONE)
    }

    /// Gives access back.
    ///
    /// # Errors
    /// As [`Shutter::close`].
    pub fn open(&self) -> io::Result<()> {
        self.protect(libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Whether an address is of this memory.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    fn protect(&self, protection: i32) -> io::Result<()> {
        for range in &self.ranges {
            let bytes = (range.end - range.start) as usize;
            // SAFETY: the range lies in a live mapping of an instance, where no Rust object is. An access to it while it is
            // closed is a fault, and no wrong value.
            if unsafe { libc::mprotect(range.start as *mut _, bytes, protection) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}
