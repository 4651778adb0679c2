//! What makes a host thread fit to run programs (an unsafe room).
//!
//! On the simulation thread, a program's system call that no patched call site took, its `cpuid` and `rdtsc`, and
//! its faults all become signals; the handlers in [`handler`] send each to where it belongs. Nothing here is on
//! the fast path: a patched call site never leaves the process.
//!
//! The thread's traps are switched on last and off first, so that ordinary code runs with none of them:
//! - system calls from anywhere but this program's own text raise SIGSYS (Syscall User Dispatch),
//! - `rdtsc` raises SIGSEGV and is answered with virtual time for programs, the true counter for the host,
//! - `cpuid` raises SIGSEGV, where the processor can do that, and is answered from the table in [`cpuid`]; in images it was
//!   replaced by something that faults everywhere ([`crate::patch`]).
//!
//! Threads started by the simulation thread inherit the second and third trap: start them before.

mod capabilities;
mod cpuid;
mod handler;
pub mod inherited;
mod kill;
pub mod priority;
mod stop;
mod tick;
mod wild;

use std::io;
use std::ops::Range;
use std::ptr;

use windtunnel_kernel::{ThreadContext, ThreadError};

pub use capabilities::{AddressRange, Capabilities, capabilities};
pub(crate) use cpuid::cpuid;
pub use handler::{host_clock_ns, host_cpu_ns};
pub use kill::{strike, struck};
pub use stop::{Doing, Place, Stopped, Watched, stop_thread};
pub use tick::Ticks;
pub use wild::{Regions, Wild, take_wild, watch_regions};

/// Size of the stack that signal handlers run on, bytes.
const ALTSTACK_BYTES: usize = 256 * 1024;

const ARCH_CPUID: libc::c_long = 0x1012;
/// Environment: `off` does without `cpuid` faults, so that a machine which has them can stand for those without. For tests.
const FAULTING_VARIABLE: &str = "WINDTUNNEL_CPUID_FAULTING";
const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
const PR_SYS_DISPATCH_OFF: libc::c_ulong = 0;
const PR_SYS_DISPATCH_ON: libc::c_ulong = 1;

/// Why a thread can't run programs.
#[derive(Debug, thiserror::Error)]
pub enum TrapError {
    /// The thread can't even enter kernels.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The host kernel has no Syscall User Dispatch.
    #[error(
        "this host can't intercept system calls: {0}\nhint: Syscall User Dispatch came with Linux 5.11; some containers \
         filter prctl(PR_SET_SYSCALL_USER_DISPATCH)"
    )]
    NoSyscallUserDispatch(io::Error),
    /// The host refused something every Linux offers.
    #[error("cannot {what}: {source}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What the host says.
        source: io::Error,
    },
}

/// What programs on a thread will see, besides what is the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapFacts {
    /// Every `cpuid` shows the virtual CPU. False on processors that can't fault on it: then only those do that were found
    /// in images and made to fault.
    pub cpuid_faults: bool,
}

/// A thread with all traps set. Dropping it, on the same thread, takes them off again; the handlers stay.
#[derive(Debug)]
pub struct TrapThread {
    facts: TrapFacts,
    tid: i32,
    watched: Watched,
    altstack: Altstack,
    context: ThreadContext,
}

impl TrapThread {
    /// Sets all traps on the calling thread.
    pub fn install(context: ThreadContext) -> Result<Self, TrapError> {
        Self::install_watched(context, Watched::default())
    }

    /// As [`TrapThread::install`]; `watched` is this thread from now on, as long as it is there.
    pub fn install_watched(context: ThreadContext, watched: Watched) -> Result<Self, TrapError> {
        let altstack = Altstack::install().map_err(refused("set the stack for signal handlers"))?;
        handler::install().map_err(refused("install signal handlers"))?;
        stop::install().map_err(refused("install signal handlers"))?;
        kill::install().map_err(refused("install signal handlers"))?;
        // From here on `drop` undoes what was done.
        let mut thread = Self {
            facts: TrapFacts { cpuid_faults: false },
            // SAFETY: it only tells the thread's number.
            tid: unsafe { libc::gettid() },
            watched,
            altstack,
            context,
        };
        if !handler::enlist(thread.altstack.memory as u64, thread.context.thread()) {
            return Err(refused("know one more thread that runs programs")(io::Error::from(
                io::ErrorKind::StorageFull,
            )));
        }
        stop::unblock();
        thread.watched.begin(thread.tid, thread.context.thread());
        // SAFETY: `cpuid` faults are answered by the handler, also for host code.
        thread.facts.cpuid_faults =
            faulting_wanted() && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_CPUID, 0) } == 0;
        // SAFETY: the same for rdtsc.
        if unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) } != 0 {
            return Err(refused("make rdtsc trap")(io::Error::last_os_error()));
        }
        dispatch(PR_SYS_DISPATCH_ON, host_text()).map_err(TrapError::NoSyscallUserDispatch)?;
        Ok(thread)
    }

    /// What programs will see.
    pub fn facts(&self) -> TrapFacts {
        self.facts
    }

    /// The thread's number, for [`stop_thread`].
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The kernel side of the thread.
    pub fn context(&self) -> &ThreadContext {
        &self.context
    }
}

impl Drop for TrapThread {
    fn drop(&mut self) {
        self.watched.end();
        let _ = dispatch(PR_SYS_DISPATCH_OFF, 0..0);
        // SAFETY: back to what every thread starts with.
        unsafe {
            libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_ENABLE);
            libc::syscall(libc::SYS_arch_prctl, ARCH_CPUID, 1);
        }
        handler::delist(self.altstack.memory as u64);
    }
}

fn faulting_wanted() -> bool {
    std::env::var_os(FAULTING_VARIABLE).is_none_or(|value| value != "off")
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> TrapError {
    move |source| TrapError::Refused { what, source }
}

/// Switches Syscall User Dispatch of the calling thread. Without a selector byte there is nothing that a stray write
/// of a program could switch off.
fn dispatch(mode: libc::c_ulong, allowed: Range<u64>) -> io::Result<()> {
    let len = allowed.end - allowed.start;
    // SAFETY: the kernel reads no memory without a selector. All system calls of host code come from the allowed
    // range or the vDSO, which the handler lets pass.
    match unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, allowed.start, len, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The code of this program: one static file, so all host code but the vDSO.
fn host_text() -> Range<u64> {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    (&raw const __executable_start) as u64..(&raw const etext) as u64
}

/// The stack of the signal handlers, and the one that was set before.
#[derive(Debug)]
struct Altstack {
    memory: *mut libc::c_void,
    before: libc::stack_t,
}

impl Altstack {
    fn install() -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping wherever there is room.
        let memory = unsafe { libc::mmap(ptr::null_mut(), ALTSTACK_BYTES, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = libc::stack_t {
            ss_sp: memory,
            ss_flags: 0,
            ss_size: ALTSTACK_BYTES,
        };
        let mut altstack = Self {
            memory,
            before: libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            },
        };
        // SAFETY: the memory lives until `drop` sets the stack before it again.
        match unsafe { libc::sigaltstack(&stack, &mut altstack.before) } {
            0 => Ok(altstack),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Altstack {
    fn drop(&mut self) {
        // SAFETY: no handler is running on this stack: that is the frame above this one. It was ours alone.
        unsafe {
            libc::sigaltstack(&self.before, ptr::null_mut());
            libc::munmap(self.memory, ALTSTACK_BYTES);
        }
    }
}

#[cfg(test)]
mod spin_tests;
#[cfg(test)]
mod tests;
