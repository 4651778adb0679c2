//! The host's real-time scheduling, for a run that keeps up with the wall clock.

use std::io;

/// Above whatever ordinary programs have, below what a host's own threads usually take.
const LEVEL: i32 = 10;

/// What the host refuses.
#[derive(Debug, thiserror::Error)]
pub enum PriorityError {
    /// SCHED_FIFO.
    #[error(
        "this host does not let the run have SCHED_FIFO: {source}; it needs the capability CAP_SYS_NICE, or RLIMIT_RTPRIO of at least \
         {}, which is {limit}", LEVEL + 1
    )]
    Scheduling {
        /// What the host says.
        source: io::Error,
        /// RLIMIT_RTPRIO.
        limit: u64,
    },
    /// Locked memory.
    #[error(
        "this host does not let the run lock its memory: {source}; it needs the capability CAP_IPC_LOCK, or RLIMIT_MEMLOCK of \
         `unlimited`, which is {limit} bytes"
    )]
    Memory {
        /// What the host says.
        source: io::Error,
        /// RLIMIT_MEMLOCK, bytes.
        limit: u64,
    },
}

impl PriorityError {
    /// How to get it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Scheduling { .. } => {
                "run it as root, or `ulimit -r 11` after `rtprio 11` in /etc/security/limits.conf; in a container: \
                 --cap-add SYS_NICE"
            }
            Self::Memory { .. } => {
                "run it as root, or `ulimit -l unlimited` after `memlock unlimited` in /etc/security/limits.conf; in a \
                 container: --cap-add IPC_LOCK"
            }
        }
    }
}

/// Whether the host grants it all: the calling thread has it for a moment.
///
/// # Errors
/// What it refuses.
pub fn try_priority() -> Result<(), PriorityError> {
    let scheduling = |source| PriorityError::Scheduling {
        source,
        limit: limit(libc::RLIMIT_RTPRIO),
    };
    schedule(0, libc::SCHED_FIFO, LEVEL + 1).map_err(scheduling)?;
    schedule(0, libc::SCHED_OTHER, 0).map_err(scheduling)?;
    lock_memory()?;
    // SAFETY: nothing is locked any more, as before.
    unsafe { libc::munlockall() };
    Ok(())
}

/// Locks what this process has so far, the engine's own code and data, page by page as they are used.
///
/// # Errors
/// When the host refuses it.
pub fn lock_memory() -> Result<(), PriorityError> {
    // SAFETY: no memory changes, but that it stays where it is.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(PriorityError::Memory {
            source: io::Error::last_os_error(),
            limit: limit(libc::RLIMIT_MEMLOCK),
        }),
    }
}

/// Thread `tid` goes before all ordinary ones (0: the calling one); `above`: also before the others of this program that do.
/// Threads that it makes do not inherit it.
///
/// # Errors
/// When the host refuses it.
pub fn raise(tid: i32, above: bool) -> io::Result<()> {
    schedule(tid, libc::SCHED_FIFO, LEVEL + i32::from(above))
}

/// Thread `tid` is an ordinary one again.
///
/// # Errors
/// When there is no such thread.
pub fn lower(tid: i32) -> io::Result<()> {
    schedule(tid, libc::SCHED_OTHER, 0)
}

fn schedule(tid: i32, policy: i32, level: i32) -> io::Result<()> {
    // SAFETY: all zeros is a valid sched_param, of which the kernel reads the priority.
    let result = unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = level;
        let policy = policy | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const param)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: it writes to the limit given.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}
