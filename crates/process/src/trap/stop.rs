//! What another thread does to the simulation thread: it watches it, interrupts the program that runs on it, and stops it
//! where it is for a report.
//!
//! The rules of [`super::handler`] hold for the handler here as well.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windtunnel_kernel::{abi, read_comm};

use super::handler::{Fault, Frame, enter_kernel, handler_entry, in_host, system_call, within};

/// The signal. Programs' own signals are their kernels' affair and never the host's.
pub(super) const SIGNAL: i32 = libc::SIGUSR2;
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

/// Whether the signal means to stop for good.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);
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

/// Lets the signal reach the calling thread, whatever was blocked when the process was started.
pub(super) fn unblock() {
    // SAFETY: a set of signals of our own; nothing but the mask of this thread changes.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
    }
}

/// A simulation thread as others see it, which may outlive it.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Option<Target>>>);

/// A thread that is there.
#[derive(Debug)]
struct Target {
    tid: i32,
    thread: *const abi::Thread,
}

// SAFETY: the pointer is used under the lock only, and taken away before what it points to goes.
unsafe impl Send for Target {}

/// What a simulation thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    /// A program runs.
    pub in_program: bool,
    /// Thread id of the program that runs or ran last, inside its node.
    pub pid: u64,
    /// CPU time of the thread so far, ns.
    pub cpu_ns: u64,
}

impl Watched {
    /// From now on this is thread `tid`, whose state `thread` points to.
    pub(super) fn begin(&self, tid: i32, thread: *const abi::Thread) {
        *self.lock() = Some(Target { tid, thread });
    }

    /// It is about to go.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Target>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What it does right now; none while there is none.
    pub fn doing(&self) -> Option<Doing> {
        let target = self.lock();
        let Target { tid, thread } = target.as_ref()?;
        // SAFETY: the thread's state is there as long as the target is. Others write it meanwhile: each word is as it
        // was at some time.
        let (in_user, pid) = unsafe {
            (
                (&raw const (**thread).in_user).read_volatile(),
                (&raw const (**thread).pid).read_volatile(),
            )
        };
        Some(Doing {
            in_program: in_user != 0,
            pid,
            cpu_ns: cpu_ns(*tid),
        })
    }

    /// Has its kernel look at the program that runs on it. Nothing happens if none does any more when the signal comes.
    pub fn interrupt(&self) {
        if let Some(Target { tid, .. }) = self.lock().as_ref() {
            // SAFETY: a signal to a thread of our own, for which there is a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *tid, SIGNAL) };
        }
    }
}

/// CPU time of thread `tid` of this process, ns.
fn cpu_ns(tid: i32) -> u64 {
    // As pthread_getcpuclockid makes it: CPUCLOCK_SCHED of a thread (Linux, include/linux/posix-timers.h).
    let clock = !tid << 3 | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the timespec given.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Stops simulation thread `tid` of this process for good, and says where it was; none if it does not within `patience`.
/// To be called from another thread, once: the process can only end after that.
pub fn stop_thread(tid: i32, patience: Duration) -> Option<Stopped> {
    FOR_GOOD.store(true, Ordering::Relaxed);
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

/// Sends a program to its kernel, for a look at it; or notes where the thread is, and stays there.
unsafe extern "C" fn on_stop(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = Frame(context.cast());
    let thread = frame.thread();
    if thread.is_null() {
        return;
    }
    let regs = frame.regs();
    // SAFETY: `thread` is this thread's state.
    let place = unsafe {
        if in_host(regs.rip) {
            Place::Host
        } else if within((*thread).kernel_text[0]..(*thread).kernel_text[1], regs.rip) || (*thread).in_user == 0 {
            Place::Kernel
        } else {
            Place::Program
        }
    };
    if !FOR_GOOD.load(Ordering::Relaxed) {
        if place == Place::Program {
            let look = Fault {
                signo: 0,
                code: abi::FAULT_LOOK,
                address: 0,
                trap: 0,
                error: 0,
            };
            // SAFETY: this thread's state, and a program was running: neither kernel nor host code, and in_user is set.
            unsafe { enter_kernel(thread, frame, (*thread).fault_entry, &look) };
        }
        return;
    }
    if READY.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: an instance that the thread was in lives as long as the run, which this is in the middle of. STOPPED is
    // written by one thread, once.
    unsafe {
        (&raw mut STOPPED).cast::<Stopped>().write(Stopped {
            place,
            regs,
            now_ns: (*thread).now_ns,
            pid: (*thread).pid,
            comm: read_comm(&*thread),
        });
    }
    READY.store(true, Ordering::Release);
    if place != Place::Host {
        loop {
            // SAFETY: waits for the next signal, and then again.
            unsafe { system_call(libc::SYS_pause, [0; 6]) };
        }
    }
}
