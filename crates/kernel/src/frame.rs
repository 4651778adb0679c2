//! Frame buffers: owned handles, and the pool of the simulation thread that kernels take them from.
//!
//! There are two classes: *small* buffers of [`abi::FRAME_SMALL`] bytes, which are recycled through the pool of
//! the thread that drops them (last in, first out, so the warm one is next), and *large* ones, which come
//! from and go back to the allocator. A frame may be dropped on any thread.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};

use crate::abi;

/// Largest frame: a maximal IP packet with Ethernet header and VLAN tags, rounded up. Bytes.
pub const MAX_FRAME_BYTES: u32 = 128 * 1024;
/// Below this many buffers the pool is filled up before an entry.
const POOL_LOW: u32 = 128;
/// Fill level after that.
const POOL_FILL: u32 = 256;
const HEADER_BYTES: usize = size_of::<abi::Frame>();

thread_local! {
    /// The pool of this thread; null where no thread context is installed. Set by `ThreadContext` only.
    static POOL: Cell<*mut abi::FramePool> = const { Cell::new(ptr::null_mut()) };
}

/// A frame: an Ethernet header and what follows, without FCS.
#[repr(transparent)]
pub struct Frame(NonNull<abi::Frame>);

// SAFETY: a Frame is the only owner of its buffer, which has no tie to the thread that allocated it.
unsafe impl Send for Frame {}
// SAFETY: `&Frame` only allows reads of the buffer it owns.
unsafe impl Sync for Frame {}

impl Frame {
    /// A copy of `bytes`.
    ///
    /// # Panics
    /// If there are more than [`MAX_FRAME_BYTES`].
    pub fn new(bytes: &[u8]) -> Self {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut frame = Self(take(len));
        // SAFETY: the handle is the only owner, and `take` gave a buffer with room for `len` bytes.
        unsafe { frame.0.as_mut().len = len };
        frame.data_mut().copy_from_slice(bytes);
        frame
    }

    /// Bytes in use.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> u32 {
        self.header().len
    }

    /// `WT_FRAME_*` flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Says that a link changed bits, so that the receiver's NIC does not vouch for checksums.
    pub fn set_damaged(&mut self) {
        // SAFETY: the handle is the only owner of a live buffer.
        unsafe { self.0.as_mut() }.flags |= abi::FRAME_DAMAGED;
    }

    /// Six words for the engine's own use; they travel with the frame.
    #[inline]
    pub fn tag(&self) -> &[u64; 6] {
        &self.header().tag
    }

    /// See [`Frame::tag`].
    #[inline]
    pub fn tag_mut(&mut self) -> &mut [u64; 6] {
        // SAFETY: the handle is the only owner of a live buffer.
        unsafe { &mut self.0.as_mut().tag }
    }

    /// The bytes in use.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `len <= cap` bytes follow the header, checked where a frame comes from a kernel; they were zeroed
        // at allocation and so are initialized.
        unsafe { std::slice::from_raw_parts(self.payload(), self.len() as usize) }
    }

    /// The bytes in use.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`; the handle is the only owner.
        unsafe { std::slice::from_raw_parts_mut(self.payload(), self.len() as usize) }
    }

    /// Takes over a buffer that a kernel handed out.
    ///
    /// # Panics
    /// If the kernel wrote a length beyond the buffer's capacity.
    ///
    /// # Safety
    /// `frame` came from [`Frame::into_raw`] or a pool of this module, and nobody else uses it from here on.
    #[inline]
    pub(crate) unsafe fn from_raw(frame: *mut abi::Frame) -> Self {
        let frame = Self(NonNull::new(frame).expect("the kernel handed over a null frame"));
        let header = frame.header();
        assert!(
            header.len <= header.reserved,
            "a frame of {} bytes in a buffer of {}",
            header.len,
            header.reserved
        );
        frame
    }

    /// Gives the buffer up, for a kernel.
    pub(crate) fn into_raw(self) -> *mut abi::Frame {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// An uninitialized-length buffer with room for `len` bytes.
    pub(crate) fn with_room(len: u32) -> Self {
        Self(take(len))
    }

    #[inline]
    fn header(&self) -> &abi::Frame {
        // SAFETY: the handle owns a live buffer.
        unsafe { self.0.as_ref() }
    }

    /// Start of the data. Computed from the buffer, not through a reference to the header alone.
    #[inline]
    fn payload(&self) -> *mut u8 {
        // SAFETY: every buffer is longer than its header.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES) }
    }
}

impl Clone for Frame {
    /// A copy in a buffer of its own: bytes, flags and tag.
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.data());
        // SAFETY: the handle is the only owner of a live buffer.
        unsafe { copy.0.as_mut() }.flags = self.flags();
        *copy.tag_mut() = *self.tag();
        copy
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle owned the buffer and is gone after this.
        unsafe { give_back(self.0) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes, flags {:#x})", self.len(), self.flags())
    }
}

/// A buffer with room for `len` bytes: `len` 0, no flags, no tag.
fn take(len: u32) -> NonNull<abi::Frame> {
    if len > abi::FRAME_SMALL {
        assert!(len <= MAX_FRAME_BYTES, "a frame of {len} bytes");
        return allocate(len.next_power_of_two());
    }
    let pool = POOL.get();
    // SAFETY: a non-null POOL points to the live pool of this thread (see `bind`), which no kernel is using: this is
    // host code, either between entries or in a call out.
    unsafe {
        if pool.is_null() || (*pool).count == 0 {
            return allocate(abi::FRAME_SMALL);
        }
        (*pool).count -= 1;
        NonNull::new_unchecked((*pool).slot[(*pool).count as usize])
    }
}

/// # Safety
/// `frame` is a buffer of this module and nobody uses it any more.
#[inline]
unsafe fn give_back(frame: NonNull<abi::Frame>) {
    let pool = POOL.get();
    // SAFETY: for the pool as in `take`; the caller gives `frame` up.
    unsafe {
        // The host's own record of the capacity decides, not the field a kernel sees.
        let room = (*frame.as_ptr()).reserved;
        if room != abi::FRAME_SMALL || pool.is_null() || (*pool).count as usize >= abi::FRAME_POOL_SLOTS {
            dealloc(frame.as_ptr().cast(), layout(room));
            return;
        }
        clear_header(frame, abi::FRAME_SMALL);
        (*pool).slot[(*pool).count as usize] = frame.as_ptr();
        (*pool).count += 1;
    }
}

/// Fills `pool` up to its usual level when it runs low. Call before every entry.
///
/// # Safety
/// `pool` is valid, its first `count` slots hold buffers of this module, and no kernel is using it.
#[inline]
pub(crate) unsafe fn refill(pool: *mut abi::FramePool) {
    // SAFETY: promised by the caller.
    if unsafe { (*pool).count } < POOL_LOW {
        // SAFETY: as above.
        unsafe { refill_slowly(pool) };
    }
}

#[cold]
unsafe fn refill_slowly(pool: *mut abi::FramePool) {
    // SAFETY: promised by the caller of `refill`; POOL_FILL is below the number of slots.
    unsafe {
        while (*pool).count < POOL_FILL {
            (*pool).slot[(*pool).count as usize] = allocate(abi::FRAME_SMALL).as_ptr();
            (*pool).count += 1;
        }
    }
}

/// Makes `pool` the one this thread's frames go back to; null to unbind.
///
/// # Safety
/// `pool` stays valid until another one, or null, is bound on this thread.
pub(crate) unsafe fn bind(pool: *mut abi::FramePool) {
    POOL.set(pool);
}

/// Gives all buffers of `pool` back to the allocator.
///
/// # Safety
/// As for [`refill`].
pub(crate) unsafe fn drain(pool: *mut abi::FramePool) {
    // SAFETY: promised by the caller: the slots hold live small buffers nobody else uses.
    unsafe {
        while (*pool).count > 0 {
            (*pool).count -= 1;
            dealloc((*pool).slot[(*pool).count as usize].cast(), layout(abi::FRAME_SMALL));
        }
    }
}

fn layout(room: u32) -> Layout {
    Layout::from_size_align(HEADER_BYTES + room as usize, 64).expect("a frame's layout")
}

/// A new buffer with room for `room` bytes, zeroed so that its bytes are always initialized.
fn allocate(room: u32) -> NonNull<abi::Frame> {
    let layout = layout(room);
    // SAFETY: the layout is never empty.
    let memory = unsafe { alloc_zeroed(layout) };
    let Some(frame) = NonNull::new(memory.cast::<abi::Frame>()) else {
        handle_alloc_error(layout)
    };
    // SAFETY: the buffer was just allocated and starts with a header.
    unsafe { clear_header(frame, room) };
    frame
}

/// # Safety
/// `frame` is a buffer with room for `room` bytes that nobody else uses.
#[inline]
unsafe fn clear_header(frame: NonNull<abi::Frame>, room: u32) {
    // SAFETY: promised by the caller. Only the header is written, the bytes after it stay.
    unsafe {
        frame.as_ptr().write(abi::Frame {
            len: 0,
            cap: room,
            flags: 0,
            reserved: room,
            tag: [0; 6],
            data: [],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_frames_keep_their_bytes_flags_and_tag() {
        for len in [0usize, 1, 60, 2048, 2049, 65_550] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut frame = Frame::new(&bytes);
            frame.set_damaged();
            frame.tag_mut()[5] = 42;
            let copy = frame.clone();
            frame.data_mut().fill(0);
            drop(frame);
            assert_eq!(copy.data(), bytes);
            assert_eq!(copy.flags(), abi::FRAME_DAMAGED);
            assert_eq!(copy.tag()[5], 42);
        }
    }

    #[test]
    fn a_dropped_small_frame_is_the_next_one_taken_and_is_clean() {
        let mut pool = Box::new(abi::FramePool {
            count: 0,
            reserved: 0,
            slot: [ptr::null_mut(); abi::FRAME_POOL_SLOTS],
        });
        // SAFETY: the pool outlives the binding, which ends below.
        unsafe { bind(&raw mut *pool) };
        let mut frame = Frame::new(&[1; 100]);
        frame.set_damaged();
        let address = frame.data().as_ptr();
        drop(frame);
        drop(Frame::new(&[3; 5000]));
        assert_eq!(pool.count, 1, "the large one is not pooled");
        let again = Frame::new(&[2; 60]);
        assert_eq!(again.data().as_ptr(), address);
        assert_eq!((again.flags(), again.len()), (0, 60));
        assert_eq!(pool.count, 0);

        let many: Vec<Frame> = (0..abi::FRAME_POOL_SLOTS + 10).map(|_| Frame::new(&[0])).collect();
        drop(many);
        assert_eq!(
            pool.count as usize,
            abi::FRAME_POOL_SLOTS,
            "the overflow went to the allocator"
        );
        // SAFETY: unbinds; then the pool is ours alone.
        unsafe {
            bind(ptr::null_mut());
            drain(&raw mut *pool);
        }
        assert_eq!(pool.count, 0);
    }

    #[test]
    #[should_panic(expected = "a frame of 131073 bytes")]
    fn a_frame_beyond_the_maximum_is_refused() {
        let _ = Frame::with_room(MAX_FRAME_BYTES + 1);
    }
}
