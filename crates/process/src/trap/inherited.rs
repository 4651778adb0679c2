//! What a process inherits from whoever started it and this one must not keep: ignored signals and the personality.

use std::mem::zeroed;
use std::ptr;

/// Signals whose ignoring is a wish of the user's: of `nohup`, and of shells for what runs in the background.
const MAY_BE_IGNORED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];
/// Largest signal number.
const SIGNAL_MAX: i32 = 64;
/// Asks personality(2) for the present value.
const ASK: libc::c_ulong = 0xffff_ffff;

/// Whether the signal was ignored when this process was started, and still is.
pub fn is_ignored(signo: i32) -> bool {
    // SAFETY: no action is set; the present one is written to a variable of the right type, for which zeros are a value.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        libc::sigaction(signo, ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Gives signals their usual effect that a parent had set to be ignored: a child's end could not be waited for with SIGCHLD ignored.
/// SIGXFSZ is ignored instead, so that a write beyond a limit is an error with a name, not a sudden end.
pub fn reset_ignored_signals() {
    let reset = (1..=SIGNAL_MAX).filter(|signo| !MAY_BE_IGNORED.contains(signo) && is_ignored(*signo));
    for signo in reset {
        set(signo, libc::SIG_DFL);
    }
    set(libc::SIGXFSZ, libc::SIG_IGN);
}

fn set(signo: i32, action: libc::sighandler_t) {
    // SAFETY: the actions are the default and ignoring, which run no code of this process.
    unsafe {
        libc::signal(signo, action);
    }
}

/// The personality of this process, as in personality(2).
pub fn personality() -> u32 {
    // SAFETY: it only asks.
    unsafe { libc::personality(ASK) as u32 }
}

/// Changes it; whether that was allowed. Most of it has an effect from the next exec on.
pub fn set_personality(personality: u32) -> bool {
    // SAFETY: it changes how later mappings and execs are laid out; what is mapped stays.
    let refused = unsafe { libc::personality(libc::c_ulong::from(personality)) } < 0;
    !refused && self::personality() == personality
}
