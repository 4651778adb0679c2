//! Host calls of the engine's own that fail: the run ends with them.
//!
//! What a program is told must not depend on the host's limits, so a shortage of the host is no program's error: it is
//! noted here, and the run ends with it as soon as the kernel that runs now returns. What the calling program sees until
//! then does not matter. The limit on mappings has a way of its own ([`crate::MapLimit`]), which notes nothing here.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A host call that failed through no fault of a program: the run must end with this error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host: cannot {what}: {errno}")]
pub struct HostFailure {
    /// What was to be done: "open /usr/share/dict/words".
    pub what: String,
    /// What the host said.
    pub errno: Errno,
}

/// The first failure nobody was told of yet.
static FAILURE: Mutex<Option<HostFailure>> = Mutex::new(None);
/// There is one.
static PENDING: AtomicBool = AtomicBool::new(false);

/// The first failure since the last call.
#[inline]
pub fn take_host_failure() -> Option<HostFailure> {
    // As long as nothing fails, this is all it costs.
    PENDING.load(Ordering::Relaxed).then(take).flatten()
}

#[cold]
fn take() -> Option<HostFailure> {
    PENDING.store(false, Ordering::Relaxed);
    FAILURE.lock().expect("no panic while noting a failure").take()
}

/// Notes a failure of the host, unless one waits already or the limit on mappings is the reason.
#[cold]
pub(crate) fn note(what: String, errno: Errno) {
    if errno == Errno::NOMEM && crate::sys::at_limit() {
        return;
    }
    let mut failure = FAILURE.lock().expect("no panic while noting a failure");
    failure.get_or_insert(HostFailure { what, errno });
    PENDING.store(true, Ordering::Relaxed);
}

/// Whether an error says that the host has not enough of something, whatever was asked of it.
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC | Errno::DQUOT | Errno::AGAIN
    )
}

/// Notes errors of host calls on their way to a program.
pub(crate) trait HostCall {
    /// Only a shortage is the host's failure; other errors are the program's affair. `what` follows "cannot".
    fn or_short(self, what: impl FnOnce() -> String) -> Self;

    /// Every error is the host's failure, as no program asked for this call. `what` follows "cannot".
    fn or_failure(self, what: impl FnOnce() -> String) -> Self;
}

impl<T> HostCall for Result<T, Errno> {
    #[inline]
    fn or_short(self, what: impl FnOnce() -> String) -> Self {
        self.inspect_err(|&errno| {
            if is_shortage(errno) {
                note(what(), errno);
            }
        })
    }

    #[inline]
    fn or_failure(self, what: impl FnOnce() -> String) -> Self {
        self.inspect_err(|&errno| note(what(), errno))
    }
}

impl HostFailure {
    /// A failure that `error` tells of; `what` follows "cannot".
    pub fn of(what: String, error: &io::Error) -> Self {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self { what, errno }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let limit = |resource| getrlimit(resource).maximum;
        let of = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
        if self.what.contains("/proc/") {
            return "mount /proc: `mount -t proc proc /proc`".into();
        }
        match self.errno {
            Errno::MFILE => format!(
                "raise the limit on open files, which is {}: `ulimit -Hn 65536` as root, or LimitNOFILE= of the service",
                of(limit(Resource::Nofile))
            ),
            Errno::NFILE => "raise the host's limit on open files: `sudo sysctl -w fs.file-max=1000000`".into(),
            Errno::NOMEM | Errno::AGAIN | Errno::NOBUFS => match (limit(Resource::Data), limit(Resource::As)) {
                (None, None) => {
                    "free some memory of the host, or see to it that vm.overcommit_memory is not 2 and the \
                                 cgroup's memory.max is not reached"
                        .into()
                }
                (data, space) => format!(
                    "lift the limits on memory: RLIMIT_DATA is {} (`ulimit -d unlimited`), RLIMIT_AS is {} \
                     (`ulimit -v unlimited`)",
                    of(data),
                    of(space)
                ),
            },
            Errno::NOSPC | Errno::DQUOT => "free some memory or disk space of the host".into(),
            Errno::FBIG => "lift the limit on the size of files: `ulimit -f unlimited`".into(),
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
                "a container's seccomp profile or a security module may forbid it; `windtunnel doctor` shows what this host \
                 can do"
                    .into()
            }
            _ => "`windtunnel doctor` shows what this host can do".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(what: &str, errno: Errno) -> HostFailure {
        HostFailure {
            what: what.into(),
            errno,
        }
    }

    #[test]
    fn every_shortage_says_what_to_raise() {
        let text = failure("open /x", Errno::MFILE).to_string();
        assert_eq!(text, "host: cannot open /x: Too many open files (os error 24)");
        let hint = |what, errno| failure(what, errno).hint();
        assert!(hint("open /x", Errno::MFILE).contains("ulimit -Hn"));
        assert!(hint("make a memory file", Errno::NFILE).contains("fs.file-max"));
        assert!(hint("map memory", Errno::NOMEM).contains("memory"));
        assert!(hint("make a memory file", Errno::PERM).contains("seccomp"));
        assert!(hint("read /proc/self/pagemap", Errno::NOENT).contains("mount /proc"));
    }
}
