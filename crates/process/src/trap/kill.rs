//! Ending the program that runs, from another thread: what is left when the host's memory runs out.
//!
//! The rules of [`super::handler`] hold for the handler here as well.

use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use windtunnel_kernel::abi;

use super::handler::{Fault, Frame, enter_kernel, handler_entry, in_host, within};

/// The signal: one that does nothing where it has no handler.
const SIGNAL: i32 = libc::SIGURG;
const SI_KERNEL: i32 = 0x80;

/// First slot of the program to be ended; 0: none.
static DOOMED: AtomicU64 = AtomicU64::new(0);
/// Its kernel has been told.
static STRUCK: AtomicBool = AtomicBool::new(false);

/// Installs the handler for the whole process.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all zeros is a valid sigaction; the handler is written for SA_SIGINFO and lives as long as the process.
    let result = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = kill_entry as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(SIGNAL, &action, ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the program whose first slot begins at `slot`, or one of its family, end by SIGKILL if it runs on simulation thread
/// `tid` just now. To be called from one other thread, again and again until [`struck`] says that it was.
pub fn strike(tid: i32, slot: u64) {
    DOOMED.store(slot, Ordering::Relaxed);
    if tid != 0 {
        // SAFETY: a signal to a thread of our own, which ignores it without a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
    }
}

/// Whether a program was told to end since the last call.
pub fn struck() -> bool {
    STRUCK.swap(false, Ordering::Acquire)
}

handler_entry!(kill_entry, on_kill);

/// Sends the doomed program into its kernel as if it had got SIGKILL for a fault.
unsafe extern "C" fn on_kill(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = Frame(context.cast());
    let thread = frame.thread();
    let slot = DOOMED.load(Ordering::Relaxed);
    if thread.is_null() || slot == 0 {
        return;
    }
    let regs = frame.regs();
    // A program runs its own code or has its stack in its first slot, but for threads of fixed images.
    let slot = slot..slot.wrapping_add(1 << abi::SLOT_SHIFT);
    // SAFETY: `thread` is this thread's state; while a program runs, no kernel or host code uses what is filled in.
    unsafe {
        let in_kernel = within((*thread).kernel_text[0]..(*thread).kernel_text[1], regs.rip);
        let in_program = (*thread).in_user != 0 && !in_kernel && !in_host(regs.rip);
        if !in_program || !(within(slot.clone(), regs.rip) || within(slot, regs.rsp)) {
            return;
        }
        DOOMED.store(0, Ordering::Relaxed);
        let kill = Fault {
            signo: libc::SIGKILL,
            code: SI_KERNEL,
            address: 0,
            trap: 0,
            error: 0,
        };
        enter_kernel(thread, frame, (*thread).fault_entry, &kill);
    }
    STRUCK.store(true, Ordering::Release);
}
