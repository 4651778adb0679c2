//! A clock that interrupts the program of the calling thread again and again, as [`super::Watched::interrupt`] does once.

use std::io;
use std::mem::zeroed;
use std::ptr;

use super::stop;

const NS_PER_S: u64 = 1_000_000_000;

/// A timer of the host whose signals go to the thread that made it. It is off at first.
#[derive(Debug)]
pub struct Ticks {
    /// The host kernel's number of it.
    timer: libc::c_int,
}

impl Ticks {
    /// One for the calling thread, whose traps are set.
    ///
    /// # Errors
    /// When the host gives no more timers (RLIMIT_SIGPENDING).
    pub fn new() -> io::Result<Self> {
        let mut timer: libc::c_int = 0;
        // SAFETY: all zeros is a valid sigevent; the kernel reads it and writes the number of the timer. Its handler is
        // installed with the thread's traps.
        let made = unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = stop::SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            libc::syscall(
                libc::SYS_timer_create,
                libc::CLOCK_MONOTONIC,
                &raw const event,
                &raw mut timer,
            )
        };
        match made {
            0 => Ok(Self { timer }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ticks each `every_ns` from now on, for the first time after one such span; 0: no more.
    pub fn set(&self, every_ns: u64) {
        let span = libc::timespec {
            tv_sec: (every_ns / NS_PER_S) as i64,
            tv_nsec: (every_ns % NS_PER_S) as i64,
        };
        let times = libc::itimerspec {
            it_interval: span,
            it_value: span,
        };
        let nothing = ptr::null_mut::<libc::itimerspec>();
        // SAFETY: a timer of our own, and the kernel reads the times.
        unsafe { libc::syscall(libc::SYS_timer_settime, self.timer, 0, &raw const times, nothing) };
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: a timer of our own, which nobody uses any more.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.timer) };
    }
}
