//! Stopping the simulation thread where it is, for a report by another thread.
//!
//! The rules of [`super::handler`] hold for the handler here as well.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windtunnel_kernel::{abi, read_comm};

use super::handler::{Frame, handler_entry, in_host, system_call, within};

/// The signal. Programs' own signals are their kernels' affair and never the host's.
const SIGNAL: i32 = libc::SIGUSR2;
/// How often the other thread looks.
const EVERY: Duration = Duration::from_millis(10);

/// What was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program.
    Program,
    /// A kernel.
    Kernel,
    /// The engine's own code. It was not stopped, for it may hold locks.
    Host,
}

/// Where a simulation thread was when it was stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    /// What was running.
    pub place: Place,
    /// Registers of that.
    pub regs: abi::Regs,
    /// Virtual time of the entry, ns.
    pub now_ns: u64,
    /// Thread id of the program that ran last, inside its node.
    pub pid: u64,
    /// Its name.
    pub comm: [u8; 16],
}

static READY: AtomicBool = AtomicBool::new(false);
/// Written once by the handler, before READY.
static mut STOPPED: MaybeUninit<Stopped> = MaybeUninit::uninit();

/// Installs the handler for the whole process.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all zeros is a valid sigaction; the handler is written for SA_SIGINFO and lives as long as the process.
    let result = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = stop_entry as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(SIGNAL, &action, ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops simulation thread `tid` of this process for good, and says where it was; none if it does not within `patience`.
/// To be called from another thread, once: the process can only end after that.
pub fn stop_thread(tid: i32, patience: Duration) -> Option<Stopped> {
    // SAFETY: a signal to a thread of our own. Without a handler, which comes with the first simulation thread, it is not
    // sent.
    let sent = tid != 0 && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) } == 0;
    let start = Instant::now();
    while sent && start.elapsed() < patience {
        if READY.load(Ordering::Acquire) {
            // SAFETY: written before READY was set, and never again.
            return Some(unsafe { (&raw const STOPPED).read().assume_init() });
        }
        std::thread::sleep(EVERY);
    }
    None
}

handler_entry!(stop_entry, on_stop);

/// Notes where the thread is, and stays there.
unsafe extern "C" fn on_stop(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = Frame(context.cast());
    let thread = frame.thread();
    if thread.is_null() || READY.load(Ordering::Relaxed) {
        return;
    }
    let regs = frame.regs();
    // SAFETY: `thread` is this thread's state; an instance it was in lives as long as the run, which this is in the
    // middle of. STOPPED is written by one thread, once.
    let place = unsafe {
        let place = if in_host(regs.rip) {
            Place::Host
        } else if within((*thread).kernel_text[0]..(*thread).kernel_text[1], regs.rip) || (*thread).in_user == 0 {
            Place::Kernel
        } else {
            Place::Program
        };
        (&raw mut STOPPED).cast::<Stopped>().write(Stopped {
            place,
            regs,
            now_ns: (*thread).now_ns,
            pid: (*thread).pid,
            comm: read_comm(&*thread),
        });
        place
    };
    READY.store(true, Ordering::Release);
    if place != Place::Host {
        loop {
            // SAFETY: waits for the next signal, and then again.
            unsafe { system_call(libc::SYS_pause, [0; 6]) };
        }
    }
}
