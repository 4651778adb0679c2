//! A kernel instance: boot, entries, and what comes out of them.

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::ptr;
use std::sync::Arc;

use crate::abi;
use crate::control::{Completed, Control, Request};
use crate::crash::{Crash, Memory};
use crate::frame::{self, Frame};
use crate::host::Host;
use crate::image::{Image, PAGE_BYTES};
use crate::map::{Mapping, Ram, map_image};
use crate::nic::{Nic, NicConfig};
use crate::ops::{HostContext, Ops};
use crate::owned::Owned;
use crate::shutter::Shutter;
use crate::thread::{Room, call_kernel, keep_name, room};
use crate::vector::VectorState;

/// How to boot an instance.
#[derive(Clone, Debug)]
pub struct BootConfig {
    /// Address of the image; page aligned, with [`Image::span_bytes`] free.
    pub base: u64,
    /// Address of the memory; page aligned, with `ram_bytes` free.
    pub ram_base: u64,
    /// Memory of the instance, bytes, a multiple of the page size.
    pub ram_bytes: u64,
    /// Of this node's random numbers.
    pub seed: [u8; 32],
    /// Wall clock at virtual time 0, seconds since 1970.
    pub epoch_s: u64,
    /// Virtual time of the boot in whole seconds; the first entry may be later. The kernel's clocks count from there.
    pub booted_s: u64,
    /// Kernel command line.
    pub cmdline: CString,
    /// NICs, in the order of their indices.
    pub nics: Vec<NicConfig>,
    /// System calls at one instant before a thread must let time pass; 0: no limit.
    pub quantum_calls: u32,
    /// How long it then sleeps, ns.
    pub quantum_ns: u32,
    /// What work costs on the instance's CPU.
    pub cpu: abi::Cpu,
    /// What to save of a program thread's vector registers.
    pub vector_state: VectorState,
}

/// Why an instance did not come up.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// An address range is taken, or a limit is in the way.
    #[error(
        "cannot map {what} at {address:#x}: {source}\nhint: `windtunnel doctor` shows whether the address range is free \
         and which limit (ulimit -v, vm.max_map_count) is in the way"
    )]
    Map {
        /// "the kernel image" or "the node's memory".
        what: &'static str,
        /// Where.
        address: u64,
        /// What the host says.
        source: io::Error,
    },
    /// The image was built for another boundary.
    #[error(
        "the kernel image speaks version {found} of the boundary (with {size} bytes), this program version {}\n\
         hint: rebuild it with `windtunnel kernel build`",
        abi::ABI_VERSION
    )]
    Version {
        /// The image's version.
        found: u32,
        /// The image's size of `struct wt_kernel`, bytes.
        size: u32,
    },
    /// The kernel gave up in an orderly way.
    #[error("the kernel does not boot: {}", io::Error::from_raw_os_error(*errno))]
    Boot {
        /// Linux errno value.
        errno: i32,
    },
    /// The kernel crashed while it booted.
    #[error("the kernel crashed while booting\n{0}")]
    Crash(Box<Crash>),
}

/// A frame for a NIC of the instance that is entered.
#[repr(C)]
#[derive(Debug)]
pub struct Received {
    frame: Frame,
    nic: u32,
    reserved: u32,
}

// A slice of these is passed to the kernel as it is.
const _: () = assert!(size_of::<Received>() == size_of::<abi::Rx>());
const _: () = assert!(std::mem::offset_of!(Received, nic) == std::mem::offset_of!(abi::Rx, nic));

impl Received {
    /// `frame` arrives at NIC number `nic`.
    #[inline]
    pub fn new(nic: u32, frame: Frame) -> Self {
        Self {
            frame,
            nic,
            reserved: 0,
        }
    }

    /// The frame.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The NIC's index.
    pub fn nic(&self) -> u32 {
        self.nic
    }
}

/// A frame that left a NIC.
#[derive(Debug)]
pub struct Transmitted {
    /// The frame.
    pub frame: Frame,
    /// The NIC's index.
    pub nic: u32,
    /// The kernel wants an entry when the frame has left the wire's sender.
    pub irq: bool,
}

impl Transmitted {
    /// # Safety
    /// `tx` was written by a kernel and is taken once.
    #[inline]
    pub(crate) unsafe fn from_raw(tx: abi::Tx) -> Self {
        // SAFETY: promised by the caller; the kernel gave the frame up.
        let frame = unsafe { Frame::from_raw(tx.frame) };
        Self {
            frame,
            nic: tx.nic,
            irq: tx.flags & abi::TX_IRQ != 0,
        }
    }
}

/// Why a kernel is entered, besides frames, due timers and requests, which it sees itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// A frame whose departure was asked for has left.
    pub tx_done: bool,
    /// A carrier changed.
    pub link: bool,
}

/// A booted kernel. Dropping it ends everything in it.
///
/// An entry needs a [`crate::ThreadContext`] on the calling thread.
pub struct Instance<H: Host> {
    entry: Owned<abi::Entry>,
    context: Owned<HostContext<H>>,
    pub(crate) kernel: abi::Kernel,
    control: Control,
    pub(crate) crashed: bool,
    nics: Vec<Owned<abi::Nic>>,
    image: Arc<Image>,
    image_mapping: Arc<Mapping>,
    ram: Ram,
    /// Virtual time at which the kernel's own begins, ns.
    origin_ns: u64,
    _boot: BootArguments,
}

const NS_PER_S: u64 = 1_000_000_000;

// SAFETY: the kernel has no tie to a host thread between entries: an entry passes the thread it runs on. All memory
// behind the raw pointers belongs to the instance.
unsafe impl<H: Host + Send> Send for Instance<H> {}

/// What boot arguments point to; kept as long as the instance, so that a kernel may keep the pointers.
struct BootArguments {
    _cmdline: CString,
    _nics: Vec<abi::NicConf>,
    boot: Owned<abi::Boot>,
}

impl<H: Host> Instance<H> {
    /// Maps `image` and boots it on the calling thread.
    ///
    /// # Panics
    /// If the thread has no [`crate::ThreadContext`], or an address or size is not page aligned.
    pub fn boot(image: &Arc<Image>, config: &BootConfig, host: H) -> Result<Self, KernelError> {
        for value in [config.base, config.ram_base, config.ram_bytes] {
            assert_eq!(value % PAGE_BYTES, 0, "{value:#x} is not page aligned");
        }
        let map_error = |what, address| move |source| KernelError::Map { what, address, source };
        let image_mapping = map_image(image, config.base).map_err(map_error("the kernel image", config.base))?;
        let ram =
            Ram::new(config.ram_base, config.ram_bytes).map_err(map_error("the node's memory", config.ram_base))?;
        let boot_pages = image.boot_pages(config.ram_bytes);
        if let Some(pages) = &boot_pages {
            ram.provide(pages);
        }
        // SAFETY: `Image::open` checked that the export is 8-byte aligned and inside a segment, mapped just now. The
        // fields of wt_kernel are plain data whatever the image holds.
        let kernel = unsafe { ptr::read((config.base + image.export()) as *const RawKernel) }.check()?;

        let nics: Vec<_> = config.nics.iter().map(|nic| Owned::new(nic.initial_state())).collect();
        let entry = Owned::new(empty_entry());
        let context = Owned::new(HostContext {
            host,
            entry: entry.ptr(),
            flushed: Vec::new(),
            unwinding: None,
        });
        let boot = BootArguments::new(config, &nics, &entry, &context);
        let mut instance = Self {
            entry,
            context,
            kernel,
            control: Control::default(),
            crashed: false,
            nics,
            image: image.clone(),
            image_mapping: Arc::new(image_mapping),
            ram,
            origin_ns: config.booted_s * NS_PER_S,
            _boot: boot,
        };
        let argument = instance._boot.boot.ptr();
        // SAFETY: this is the first call of `boot`, and only call, with arguments that live as long as the instance.
        let result = unsafe { instance.call(instance.kernel.boot as *const (), argument.cast()) };
        match result.map_err(KernelError::Crash)? {
            0 => {
                if boot_pages.is_none() {
                    image.learn_boot_pages(config.ram_bytes, instance.ram.used());
                }
                Ok(instance)
            }
            error => Err(KernelError::Boot {
                errno: i32::try_from(-error).unwrap_or(libc::EINVAL),
            }),
        }
    }

    /// Runs the kernel until it is idle, or its CPU is busy until a later time, at `now_ns`, with the frames `rx` arriving. They are the caller's again
    /// afterwards, to be dropped or sent elsewhere.
    ///
    /// # Panics
    /// If time goes back, or the thread has no [`crate::ThreadContext`]; and with the host's own panic, if one of its
    /// operations did.
    #[inline]
    pub fn enter(&mut self, now_ns: u64, rx: &mut [Received], events: Events) -> Result<(), Box<Crash>> {
        if self.crashed {
            return Err(Box::new(Crash::before(now_ns)));
        }
        let entry = self.entry.ptr();
        // SAFETY: the kernel is not running, so the entry is the host's.
        unsafe {
            assert!(
                now_ns >= (*entry).now_ns + self.origin_ns,
                "time goes back: {} ns to {now_ns} ns",
                (*entry).now_ns + self.origin_ns
            );
            (*entry).now_ns = now_ns - self.origin_ns;
            (*entry).rx_count = u32::try_from(rx.len()).expect("a count of frames");
            (*entry).rx = rx.as_mut_ptr().cast();
            let mut flags = 0;
            if events.tx_done {
                flags |= abi::EV_TX_DONE;
            }
            if events.link {
                flags |= abi::EV_LINK;
            }
            if let Some(head) = self.control.take_untold() {
                (*entry).ctl_head = head;
                flags |= abi::EV_CTL;
            }
            (*entry).events = flags;
        }
        // SAFETY: the instance has booted and has not crashed; the frames stay borrowed during the call.
        unsafe { self.call(self.kernel.enter as *const (), entry.cast()) }.map(|_| ())
    }

    /// Calls into the kernel.
    ///
    /// # Safety
    /// `function` is an entry of this kernel that may be called now, with `argument`.
    #[inline]
    pub(crate) unsafe fn call(&mut self, function: *const (), argument: *const ()) -> Result<i64, Box<Crash>> {
        let room = room();
        assert!(!room.is_null(), "a kernel is entered on a thread without a context");
        let entry = self.entry.ptr();
        // SAFETY: the room belongs to this thread, on which no kernel runs: host operations, which would be inside one,
        // have no access to the instance.
        let called = unsafe {
            frame::refill(&raw mut (*room).pool);
            (*entry).pool = &raw mut (*room).pool;
            (*entry).thread = &raw mut (*room).thread;
            call_kernel(function, argument)
        };
        if called.crashed == 0 {
            return Ok(called.value);
        }
        Err(self.crash(room))
    }

    /// Marks the instance as lost and collects what is known.
    #[cold]
    fn crash(&mut self, room: *mut Room) -> Box<Crash> {
        self.crashed = true;
        // SAFETY: no kernel runs any more, so that the context is the host's alone.
        if let Some(payload) = unsafe { (*self.context.ptr()).unwinding.take() } {
            resume_unwind(payload);
        }
        // SAFETY: the room is this thread's, and nobody is using it. Asking for the name may crash as well, which
        // overwrites the record: it is copied first. The function takes no argument and changes nothing.
        let (record, pid, now_ns, comm) = unsafe {
            let record = (*room).crash.clone();
            let (pid, now_ns) = ((*room).thread.pid, self.now_ns());
            (
                record,
                pid,
                now_ns,
                call_kernel(self.kernel.current_comm as *const (), ptr::null()),
            )
        };
        let memory = Memory {
            image: &self.image,
            base: self.image_mapping.start(),
            ram: self.ram.mapping.start()..self.ram.mapping.end(),
        };
        let comm = match comm.crashed {
            0 => memory.text(comm.value as u64, 16),
            _ => None,
        };
        Box::new(Crash::new(
            &record,
            &memory,
            comm.unwrap_or_else(|| "?".to_owned()),
            pid,
            now_ns,
        ))
    }

    /// Absolute time of the next timer, or when the CPU is done with what it is busy with, ns.
    #[inline]
    pub fn next_timer(&self) -> Option<u64> {
        // SAFETY: the kernel is not running.
        let next = unsafe { (*self.entry.ptr()).next_timer_ns };
        (next != abi::NONE).then(|| next.saturating_add(self.origin_ns))
    }

    /// The time of the last entry, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        // SAFETY: the kernel is not running.
        unsafe { (*self.entry.ptr()).now_ns + self.origin_ns }
    }

    /// Running count of system calls by programs.
    #[inline]
    pub fn syscalls(&self) -> u64 {
        // SAFETY: the kernel is not running.
        unsafe { (*self.entry.ptr()).syscalls }
    }

    /// The frames that have left since the last time, in order.
    #[inline]
    pub fn drain_tx(&mut self) -> DrainTx<'_> {
        let entry = self.entry.ptr();
        // SAFETY: the kernel is not running, and no host operation either. The iterator borrows the instance, so that
        // the kernel stays away.
        unsafe {
            let count = std::mem::take(&mut (*entry).tx_count) as usize;
            assert!(count <= abi::TX_MAX, "the kernel sent {count} frames in one entry");
            DrainTx {
                flushed: (*self.context.ptr()).flushed.drain(..),
                rest: (&(*entry).tx)[..count].iter(),
            }
        }
    }

    /// NIC number `index`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn nic(&mut self, index: u32) -> Nic<'_> {
        // SAFETY: the state lives as long as the instance, which stays borrowed and so can't be entered.
        unsafe { Nic::new(self.nics[index as usize].ptr(), self.origin_ns) }
    }

    /// Queues requests for process 1, to be carried out at the next entry. Their ids, for [`Completed::id`].
    pub fn submit(&mut self, requests: Vec<Request>) -> Range<u64> {
        self.control.submit(requests)
    }

    /// The next finished request.
    #[inline]
    pub fn pop_completed(&mut self) -> Option<Completed> {
        match self.control.is_empty() {
            true => None,
            false => self.control.pop_completed(),
        }
    }

    /// The host given at boot.
    #[inline]
    pub fn host(&self) -> &H {
        // SAFETY: the kernel is not running, so no call out is using it.
        unsafe { &(*self.context.ptr()).host }
    }

    /// The host given at boot.
    #[inline]
    pub fn host_mut(&mut self) -> &mut H {
        // SAFETY: as above.
        unsafe { &mut (*self.context.ptr()).host }
    }

    /// The image it was booted from.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Address of the image: what a debugger adds to the symbol file's addresses.
    pub fn base(&self) -> u64 {
        self.image_mapping.start()
    }

    /// The instance's memory, for mapping parts of it into programs, and its address.
    pub fn ram(&self) -> (BorrowedFd<'_>, u64) {
        (self.ram.fd.as_fd(), self.ram.mapping.start())
    }

    /// What it writes, to be closed while others run.
    pub fn shutter(&self) -> Shutter {
        let base = self.image_mapping.start();
        let written = self.image.segments().iter().filter(|segment| segment.writable);
        let mut ranges: Vec<Range<u64>> = written.map(|s| base + s.start()..base + s.end()).collect();
        ranges.push(self.ram.mapping.start()..self.ram.mapping.end());
        Shutter::new(ranges, [self.image_mapping.clone(), self.ram.mapping.clone()])
    }

    /// Version of the kernel as it calls itself, such as "6.12.117".
    pub fn release(&self) -> String {
        self.constant_text(self.kernel.release as u64)
    }

    /// The kernel's banner.
    pub fn banner(&self) -> String {
        self.constant_text(self.kernel.banner as u64)
    }

    /// A NUL-terminated text in the image; empty if the pointer leads elsewhere.
    fn constant_text(&self, address: u64) -> String {
        let base = self.image_mapping.start();
        let segments = self.image.segments().iter();
        let Some(end) = segments
            .map(|s| base + s.start()..base + s.end())
            .find(|range| range.contains(&address))
            .map(|range| range.end)
        else {
            return String::new();
        };
        // SAFETY: the bytes are in a mapped, readable segment, and the kernel is not running.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, (end - address) as usize) };
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

impl<H: Host> Drop for Instance<H> {
    fn drop(&mut self) {
        // Frames nobody took go back to their pool.
        drop(self.drain_tx());
        // Reports name the program that ran last.
        let image = self.image_mapping.start()..self.image_mapping.end();
        keep_name(&[image, self.ram.mapping.start()..self.ram.mapping.end()]);
    }
}

/// Iterator over transmitted frames; see [`Instance::drain_tx`].
pub struct DrainTx<'a> {
    flushed: std::vec::Drain<'a, Transmitted>,
    rest: std::slice::Iter<'a, abi::Tx>,
}

impl Iterator for DrainTx<'_> {
    type Item = Transmitted;

    #[inline]
    fn next(&mut self) -> Option<Transmitted> {
        if let Some(first) = self.flushed.next() {
            return Some(first);
        }
        // SAFETY: the kernel wrote it, and the iterator yields it once.
        self.rest.next().map(|tx| unsafe { Transmitted::from_raw(*tx) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.flushed.len() + self.rest.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for DrainTx<'_> {}

impl Drop for DrainTx<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// `struct wt_kernel` before it is known to be one: function pointers must not be read from a wrong image.
#[repr(C)]
struct RawKernel {
    version: u32,
    size: u32,
    words: [u64; 6],
}

const _: () = assert!(size_of::<RawKernel>() == size_of::<abi::Kernel>());

impl RawKernel {
    fn check(self) -> Result<abi::Kernel, KernelError> {
        let size = size_of::<abi::Kernel>() as u32;
        if self.version != abi::ABI_VERSION || self.size != size || [0, 1, 4, 5].iter().any(|&i| self.words[i] == 0) {
            return Err(KernelError::Version {
                found: self.version,
                size: self.size,
            });
        }
        // SAFETY: same layout; the function pointers are not null, and of these types by the version they declare.
        Ok(unsafe { std::mem::transmute::<RawKernel, abi::Kernel>(self) })
    }
}

fn empty_entry() -> abi::Entry {
    abi::Entry {
        now_ns: 0,
        next_timer_ns: abi::NONE,
        events: 0,
        rx_count: 0,
        rx: ptr::null_mut(),
        pool: ptr::null_mut(),
        thread: ptr::null_mut(),
        ctl_head: ptr::null_mut(),
        syscalls: 0,
        tx_count: 0,
        ctl_done: 0,
        tx: [abi::Tx {
            frame: ptr::null_mut(),
            nic: 0,
            flags: 0,
        }; abi::TX_MAX],
    }
}

impl BootArguments {
    fn new<H: Host>(
        config: &BootConfig,
        nics: &[Owned<abi::Nic>],
        entry: &Owned<abi::Entry>,
        context: &Owned<HostContext<H>>,
    ) -> Self {
        let cmdline = config.cmdline.clone();
        let nics: Vec<_> = config
            .nics
            .iter()
            .zip(nics)
            .map(|(nic, shared)| nic.to_abi(shared.ptr()))
            .collect();
        let boot = Owned::new(abi::Boot {
            version: abi::ABI_VERSION,
            size: size_of::<abi::Boot>() as u32,
            ops: Ops::<H>::TABLE,
            host: context.ptr().cast(),
            entry: entry.ptr(),
            ram: config.ram_base as *mut _,
            ram_size: config.ram_bytes,
            seed: config.seed,
            epoch_s: config.epoch_s + config.booted_s,
            cmdline: cmdline.as_ptr(),
            xsave_mask: config.vector_state.mask,
            xsave_size: config.vector_state.size_bytes,
            quantum_calls: config.quantum_calls,
            quantum_ns: config.quantum_ns,
            nic_count: nics.len() as u32,
            reserved: 0,
            nics: nics.as_ptr(),
            cpu: config.cpu,
        });
        Self {
            _cmdline: cmdline,
            _nics: nics,
            boot,
        }
    }
}
