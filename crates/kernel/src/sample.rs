//! Samples: what a kernel knows of its connections and queues, between two entries. Taking one changes nothing in it.

use std::io;

use crate::abi;
use crate::crash::Crash;
use crate::host::Host;
use crate::instance::Instance;

/// A kind of record that a kernel can be asked for.
pub trait Record: sealed::Kind {}

impl<T: sealed::Kind> Record for T {}

mod sealed {
    use crate::abi;

    /// # Safety
    /// `KIND` is what the kernel fills with records of this type, in which any bytes are valid.
    pub unsafe trait Kind: Copy {
        /// `SAMPLE_*`.
        const KIND: u32;
    }

    // SAFETY: as the boundary header says; integers and arrays of them only.
    unsafe impl Kind for abi::TcpSample {
        const KIND: u32 = abi::SAMPLE_TCP;
    }
    // SAFETY: as above.
    unsafe impl Kind for abi::MptcpSample {
        const KIND: u32 = abi::SAMPLE_MPTCP;
    }
    // SAFETY: as above.
    unsafe impl Kind for abi::QdiscSample {
        const KIND: u32 = abi::SAMPLE_QDISC;
    }
}

/// Room for so many records is made at first.
const ROOM: usize = 16;

impl<H: Host> Instance<H> {
    /// Replaces `records` by all that the kernel has of this kind, in the order of its tables. Nothing in it changes.
    ///
    /// # Errors
    /// When it crashes meanwhile, or did so before.
    ///
    /// # Panics
    /// If the thread has no [`crate::ThreadContext`].
    pub fn sample<T: Record>(&mut self, records: &mut Vec<T>) -> Result<(), Box<Crash>> {
        if self.crashed {
            return Err(Box::new(Crash::before(self.now_ns())));
        }
        records.clear();
        records.reserve(ROOM);
        loop {
            let mut sample = abi::Sample {
                kind: T::KIND,
                capacity: u32::try_from(records.capacity()).unwrap_or(u32::MAX),
                records: records.as_mut_ptr().cast(),
                count: 0,
                reserved: 0,
            };
            // SAFETY: the instance has booted, has not crashed and is not running; it writes `capacity` records at most to the room
            // that the vector has, and only during the call.
            let result = unsafe { self.call(self.kernel.sample as *const (), (&raw mut sample).cast()) }?;
            assert_eq!(
                result,
                0,
                "a sample of kind {}: {}",
                T::KIND,
                io::Error::from_raw_os_error(-result as i32)
            );
            let count = sample.count as usize;
            if sample.count <= sample.capacity {
                // SAFETY: the kernel filled them, and their types take any bytes.
                unsafe { records.set_len(count) };
                return Ok(());
            }
            records.reserve(count);
        }
    }
}
