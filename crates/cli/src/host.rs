//! What a run needs of the host, check by check: behind `windtunnel doctor`, and before every run.

use crate::failure::Failure;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use serde::Serialize;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use windtunnel_process::trap::{AddressRange, Capabilities, inherited};

/// What most distributions limit stacks to.
const USUAL_STACK_BYTES: u64 = 8 << 20;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Runs work, with the restriction that the detail tells.
    Limited,
    /// Nothing can run like this.
    Missing,
}

/// One line of the doctor's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do about it; null where nothing needs to be done.
    pub hint: Option<String>,
}

impl Check {
    /// A check that came out well.
    pub fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: State::Ok,
            detail: detail.into(),
            hint: None,
        }
    }

    /// A check that did not.
    pub fn not_ok(name: &str, state: State, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state,
            detail: detail.into(),
            hint: Some(hint.into()),
        }
    }
}

/// Of the personality only this is kept, which changes no result: addresses are not random (`setarch -R`, gdb).
const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
/// How long before the hard limit of CPU time a run is asked to end, seconds: time to write its results.
const CPU_RESERVE_S: u64 = 5;

/// Frees this process from what it may have inherited and no verb can use: blocked and ignored signals, a mask that keeps it from
/// reading its own files, output that does not wait for its reader.
pub fn forget_inherited() {
    // It can only fail for arguments that do not exist.
    let _ = SigSet::empty().thread_set_mask();
    inherited::reset_ignored_signals();
    let mask = umask(Mode::empty());
    umask(mask & !Mode::S_IRWXU);
    for output in [std::io::stdout().as_fd(), std::io::stderr().as_fd()] {
        let Ok(flags) = fcntl(output, FcntlArg::F_GETFL) else {
            continue;
        };
        let flags = OFlag::from_bits_retain(flags);
        if flags.contains(OFlag::O_NONBLOCK) {
            // Where that is refused, a full pipe is an error as before.
            let _ = fcntl(output, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK));
        }
    }
}

/// Starts this program once more if its stack has no limit, or its personality is an unusual one: Linux then maps files where nodes
/// belong. Otherwise it does not; programs in nodes have limits of their own. Where that fails, [`require`] says what to do.
pub fn restart_if_need_be() {
    let personality = inherited::personality();
    let mut restart =
        personality & !ADDR_NO_RANDOMIZE != 0 && inherited::set_personality(personality & ADDR_NO_RANDOMIZE);
    if let Ok((RLIM_INFINITY, hard)) = getrlimit(Resource::RLIMIT_STACK) {
        restart |= setrlimit(Resource::RLIMIT_STACK, USUAL_STACK_BYTES, hard).is_ok();
    }
    if !restart {
        return;
    }
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    // Returns only if it fails.
    let _ = Command::new("/proc/self/exe").arg0(name).args(words).exec();
}

/// Takes limits off this process that would strike in mid-run: programs' files count as files of this process, and the limit of CPU
/// time would end it before its results are written. What cannot be changed, [`require`] tells.
pub fn lift_limits() {
    let infinite = RLIM_INFINITY;
    if setrlimit(Resource::RLIMIT_FSIZE, infinite, infinite).is_err()
        && let Ok((_, hard)) = getrlimit(Resource::RLIMIT_FSIZE)
    {
        // Raising the soft limit is always allowed.
        let _ = setrlimit(Resource::RLIMIT_FSIZE, hard, hard);
    }
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_CPU)
        && hard != infinite
        && soft.saturating_add(CPU_RESERVE_S) > hard
    {
        // SIGXCPU ends the run with its results; at the hard limit there is only SIGKILL.
        let _ = setrlimit(Resource::RLIMIT_CPU, hard.saturating_sub(CPU_RESERVE_S).max(1), hard);
    }
}

/// Refuses to start a run that this host cannot carry, with everything that is missing.
pub fn require() -> Result<(), Failure> {
    refusal(&windtunnel_process::trap::capabilities()).map_or(Ok(()), Err)
}

fn refusal(found: &Capabilities) -> Option<Failure> {
    let missing = checks(found).into_iter();
    let missing: Vec<Check> = missing.filter(|check| check.state == State::Missing).collect();
    let hint = missing.first()?.hint.clone().unwrap_or_default();
    let failure = Failure::user("this host cannot run scenarios").hint(hint);
    Some(missing.iter().fold(failure, |failure, check| {
        failure.because(format!("{}: {}", check.name, check.detail))
    }))
}

/// The checks of processor, kernel and limits.
pub fn checks(found: &Capabilities) -> Vec<Check> {
    let mut checks = vec![
        required(
            found.syscall_user_dispatch,
            "syscall user dispatch",
            "prctl refused",
            "it came with Linux 5.11; some containers filter prctl(PR_SET_SYSCALL_USER_DISPATCH)",
        ),
        required(
            found.fsgsbase,
            "FSGSBASE",
            "the processor or the kernel does not offer it",
            "it needs Linux 5.9 and a processor since Ivy Bridge or Zen; boot without `nofsgsbase`",
        ),
        required(
            found.tsc_trapping,
            "rdtsc trapping",
            "prctl refused",
            "some containers filter prctl(PR_SET_TSC): allow it",
        ),
        required(
            found.executable_memory,
            "executable memory",
            "memory that was written cannot become executable, which compilers in programs need",
            "start it without PR_SET_MDWE (systemd: MemoryDenyWriteExecute=), and allow it where a security module does not \
             (SELinux: execmem)",
        ),
        Check::ok(
            "cpuid masking",
            match found.cpuid_faulting {
                true => "available",
                false => "in programs and libraries; this processor cannot fault on it",
            },
        ),
        address_space(found),
    ];
    checks.extend(memory_areas(found));
    checks.push(file_size(
        getrlimit(Resource::RLIMIT_FSIZE).map_or(RLIM_INFINITY, |(_, hard)| hard),
    ));
    checks.push(personality(inherited::personality()));
    checks.push(data(found));
    checks.push(if found.page_map {
        Check::ok("/proc", "mounted")
    } else {
        Check::not_ok(
            "/proc",
            State::Limited,
            "/proc/self/pagemap cannot be read: a program that forks ends the run",
            "mount -t proc proc /proc",
        )
    });
    checks.push(open_files(found));
    checks
}

fn required(available: bool, name: &str, detail: &str, hint: &str) -> Check {
    if available {
        Check::ok(name, "available")
    } else {
        Check::not_ok(name, State::Missing, detail, hint)
    }
}

fn address_space(found: &Capabilities) -> Check {
    let name = "address space";
    let taken: Vec<&AddressRange> = found.address_ranges.iter().filter(|range| !range.free).collect();
    if taken.is_empty() {
        return Check::ok(name, "all fixed ranges are free");
    }
    let ranges: Vec<String> = taken
        .iter()
        .map(|taken| {
            format!(
                "{:#x} to {:#x} ({}) is not available",
                taken.range.start, taken.range.end, taken.purpose
            )
        })
        .collect();
    let (limit, hint) = match found.address_space_limit {
        Some(bytes) => (
            format!("; RLIMIT_AS is {} MiB", bytes >> 20),
            "lift the limit: ulimit -v unlimited",
        ),
        None if found.stack_unlimited => (
            "; RLIMIT_STACK is unlimited".into(),
            "limit the stack, so that libraries lie below it: ulimit -s 8192",
        ),
        None => (
            String::new(),
            "run without preloaded libraries and sanitizers; check vm.overcommit_memory",
        ),
    };
    Check::not_ok(name, State::Missing, ranges.join(", ") + &limit, hint)
}

/// What about 1,000 small programs need.
const GOOD_MAP_COUNT: u64 = 65_530;

fn memory_areas(found: &Capabilities) -> Option<Check> {
    let count = found.max_map_count?;
    let name = "memory areas";
    let detail = format!("vm.max_map_count = {count}");
    Some(if count >= GOOD_MAP_COUNT {
        Check::ok(name, detail)
    } else {
        let hint = format!("large runs need more: sysctl vm.max_map_count={GOOD_MAP_COUNT}");
        Check::not_ok(name, State::Limited, detail, hint)
    })
}

fn file_size(hard_bytes: u64) -> Check {
    let name = "file size";
    if hard_bytes == RLIM_INFINITY {
        return Check::ok(name, "files may have any size");
    }
    let detail =
        format!("RLIMIT_FSIZE is {hard_bytes} bytes, and the memory of nodes and their programs' files count as files");
    Check::not_ok(name, State::Missing, detail, "lift the limit: ulimit -f unlimited")
}

fn personality(personality: u32) -> Check {
    let name = "personality";
    let unusual = personality & !ADDR_NO_RANDOMIZE;
    if unusual == 0 {
        return Check::ok(name, "as usual");
    }
    // A run starts this program once more with the usual one.
    let detail = format!("{unusual:#x} (personality(2)) changes where Linux maps files");
    Check::not_ok(name, State::Missing, detail, "start it without setarch and its like")
}

/// Below this many bytes of private memory not even small runs get far.
const LEAST_DATA: u64 = 256 << 20;

fn data(found: &Capabilities) -> Check {
    let name = "private memory";
    let hint = "lift the limit: ulimit -d unlimited";
    match found.data_limit {
        None => Check::ok(name, "no limit"),
        Some(bytes) => {
            let detail = format!(
                "RLIMIT_DATA is {} MiB for the programs of all nodes together",
                bytes >> 20
            );
            let state = if bytes < LEAST_DATA {
                State::Missing
            } else {
                State::Limited
            };
            Check::not_ok(name, state, detail, hint)
        }
    }
}

/// Enough for some hundred nodes with a few programs each.
const GOOD_OPEN_FILES: u64 = 4096;
/// Fewer are used up before the first program runs.
const LEAST_OPEN_FILES: u64 = 64;

fn open_files(found: &Capabilities) -> Check {
    let (soft, hard) = found.open_files_limit;
    let detail = format!("RLIMIT_NOFILE: {soft} of at most {hard}");
    let state = if hard < LEAST_OPEN_FILES {
        State::Missing
    } else {
        State::Limited
    };
    if hard >= GOOD_OPEN_FILES {
        Check::ok("open files", detail)
    } else {
        Check::not_ok("open files", state, detail, "large runs need more: ulimit -Hn 4096")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Capabilities {
        Capabilities {
            kernel_release: "6.1.0".into(),
            syscall_user_dispatch: true,
            fsgsbase: true,
            cpuid_faulting: true,
            tsc_trapping: true,
            executable_memory: true,
            max_map_count: Some(65_530),
            address_space_limit: None,
            data_limit: None,
            page_map: true,
            stack_unlimited: false,
            open_files_limit: (1024, 1_048_576),
            address_ranges: vec![AddressRange {
                purpose: "nodes",
                range: 0x1000..0x2000,
                free: true,
            }],
        }
    }

    fn states(found: &Capabilities) -> Vec<(String, State)> {
        let not_ok = checks(found).into_iter().filter(|check| check.state != State::Ok);
        not_ok.map(|check| (check.name, check.state)).collect()
    }

    #[test]
    fn each_lack_is_found_and_has_a_remedy() {
        assert_eq!(states(&good()), []);
        type Change = fn(&mut Capabilities);
        let cases: [(Change, &str, State); 11] = [
            (
                |host| host.syscall_user_dispatch = false,
                "syscall user dispatch",
                State::Missing,
            ),
            (|host| host.fsgsbase = false, "FSGSBASE", State::Missing),
            (
                |host| host.executable_memory = false,
                "executable memory",
                State::Missing,
            ),
            (|host| host.tsc_trapping = false, "rdtsc trapping", State::Missing),
            (
                |host| host.address_ranges[0].free = false,
                "address space",
                State::Missing,
            ),
            (|host| host.max_map_count = Some(1000), "memory areas", State::Limited),
            (|host| host.open_files_limit = (256, 256), "open files", State::Limited),
            (|host| host.open_files_limit = (40, 40), "open files", State::Missing),
            (|host| host.data_limit = Some(1 << 30), "private memory", State::Limited),
            (
                |host| host.data_limit = Some(64 << 20),
                "private memory",
                State::Missing,
            ),
            (|host| host.page_map = false, "/proc", State::Limited),
        ];
        for (change, name, state) in cases {
            let mut host = good();
            change(&mut host);
            assert_eq!(states(&host), [(name.to_owned(), state)]);
            let bad = checks(&host).into_iter().find(|check| check.state != State::Ok);
            assert!(
                bad.is_some_and(|check| check.hint.is_some_and(|hint| !hint.is_empty())),
                "{name}"
            );
        }
    }

    #[test]
    fn a_host_without_fsgsbase_is_refused_in_words() {
        assert!(refusal(&good()).is_none());
        let host = Capabilities {
            fsgsbase: false,
            ..good()
        };
        let text = refusal(&host).map(|failure| failure.to_string());
        let expected = "error: this host cannot run scenarios\n  \
            because: FSGSBASE: the processor or the kernel does not offer it\n\
            hint: it needs Linux 5.9 and a processor since Ivy Bridge or Zen; boot without `nofsgsbase`";
        assert_eq!(text.as_deref(), Some(expected));
    }

    #[test]
    fn what_cannot_be_shaken_off_is_named() {
        assert_eq!(file_size(RLIM_INFINITY).state, State::Ok);
        let check = file_size(1 << 20);
        assert_eq!(check.state, State::Missing);
        assert!(check.detail.starts_with("RLIMIT_FSIZE is 1048576 bytes"), "{check:?}");
        assert_eq!(personality(0).state, State::Ok);
        assert_eq!(personality(ADDR_NO_RANDOMIZE).state, State::Ok);
        let check = personality(ADDR_NO_RANDOMIZE | 0x10_0000);
        assert_eq!(check.state, State::Missing);
        assert!(check.detail.starts_with("0x100000 "), "{check:?}");
    }

    #[test]
    fn an_address_space_limit_is_named() {
        let mut host = good();
        host.address_space_limit = Some(1 << 30);
        host.address_ranges[0].free = false;
        let check = checks(&host).into_iter().find(|check| check.name == "address space");
        let check = check.expect("it is always checked");
        assert_eq!(
            check.detail,
            "0x1000 to 0x2000 (nodes) is not available; RLIMIT_AS is 1024 MiB"
        );
        assert_eq!(check.hint.as_deref(), Some("lift the limit: ulimit -v unlimited"));
    }

    #[test]
    fn a_stack_without_limit_is_named() {
        let mut host = good();
        host.stack_unlimited = true;
        assert_eq!(states(&host), [], "it matters only where it is in the way");
        host.address_ranges[0].free = false;
        let text = refusal(&host).map(|failure| failure.to_string()).unwrap_or_default();
        assert!(text.contains("RLIMIT_STACK is unlimited"), "{text}");
        assert!(text.contains("ulimit -s 8192"), "{text}");
    }
}
