//! The processes of a node, as its own `/proc` shows them.

use windtunnel_control::Process;
use windtunnel_kernel::{Argument, abi};

use crate::configure::Calls;
use crate::error::EngineError;

/// Room for entries of a folder, or a file, bytes.
const ROOM_BYTES: usize = 32 << 10;
/// Length of a tick in `/proc/PID/stat`, ns (USER_HZ is 100).
const TICK_NS: u64 = 10_000_000;
/// What the clock of `/proc/PID/stat` says at virtual time 0, ticks.
const UPTIME_TICKS: u64 = abi::UPTIME_S * 100;
/// Flag of kernel threads in `/proc/PID/stat` (PF_KTHREAD of include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Where names start in an entry of getdents64(2), bytes.
const NAME_OFFSET: usize = 19;

/// The processes of `node` but process 1 and the kernel's own threads, by process id. `exact_starts` has start times
/// (process id, ns) that are known better than to a tick.
///
/// # Errors
/// When the node's kernel crashes.
pub fn list(calls: &mut dyn Calls, node: &str, exact_starts: &[(u32, u64)]) -> Result<Vec<Process>, EngineError> {
    let mut found = Vec::new();
    for pid in process_ids(calls)?.into_iter().filter(|&pid| pid != 1) {
        let stat = read_file(calls, &format!("/proc/{pid}/stat"))?;
        // One that is not there any more has just ended.
        let Some(stat) = Stat::parse(&String::from_utf8_lossy(&stat)).filter(|stat| stat.flags & KERNEL_THREAD == 0)
        else {
            continue;
        };
        let start_ns_rounded = stat.start_ticks.saturating_sub(UPTIME_TICKS) * TICK_NS;
        let words = read_file(calls, &format!("/proc/{pid}/cmdline"))?;
        // A process id may have been used before.
        let exact = exact_starts
            .iter()
            .rev()
            .find(|&&(known, start_ns)| known == pid && start_ns.abs_diff(start_ns_rounded) <= TICK_NS);
        found.push(Process {
            node: node.to_owned(),
            pid,
            parent: stat.parent,
            state: stat.state,
            command: command_line(&words, &stat.name),
            start_ns: exact.map_or(start_ns_rounded, |&(_, start_ns)| start_ns),
        });
    }
    Ok(found)
}

/// What `/proc/PID/stat` tells, see proc(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: String,
    parent: u32,
    flags: u64,
    start_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything, parentheses as well.
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        Some(Self {
            name: name.to_owned(),
            state: (*fields.first()?).to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

fn command_line(words: &[u8], name: &str) -> String {
    let words: Vec<_> = words.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let text = words.join(" ");
    match text.trim() {
        "" => format!("[{name}]"),
        text => text.to_owned(),
    }
}

fn process_ids(calls: &mut dyn Calls) -> Result<Vec<u32>, EngineError> {
    let mut ids = Vec::new();
    let Some(fd) = open(calls, "/proc", libc::O_DIRECTORY)? else {
        return Ok(ids);
    };
    loop {
        let entries = fill(calls, libc::SYS_getdents64, fd)?;
        if entries.is_empty() {
            break;
        }
        ids.extend(entry_names(&entries).filter_map(|name| std::str::from_utf8(name).ok()?.parse::<u32>().ok()));
    }
    close(calls, fd)?;
    ids.sort_unstable();
    Ok(ids)
}

/// Names in what getdents64(2) gave.
fn entry_names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(entries.get(16..18)?.try_into().ok()?));
        let name = entries.get(NAME_OFFSET..length)?;
        entries = &entries[length..];
        name.split(|&byte| byte == 0).next()
    })
}

/// A whole file; empty if it is not there.
fn read_file(calls: &mut dyn Calls, path: &str) -> Result<Vec<u8>, EngineError> {
    let mut contents = Vec::new();
    let Some(fd) = open(calls, path, 0)? else {
        return Ok(contents);
    };
    loop {
        let more = fill(calls, libc::SYS_read, fd)?;
        if more.is_empty() {
            break;
        }
        contents.extend(more);
    }
    close(calls, fd)?;
    Ok(contents)
}

fn open(calls: &mut dyn Calls, path: &str, flags: i32) -> Result<Option<u64>, EngineError> {
    let mut bytes = path.as_bytes().to_vec();
    bytes.push(0);
    let flags = (flags | libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let (fd, _) = calls.call(libc::SYS_open, vec![Argument::Bytes(bytes), Argument::Value(flags)])?;
    Ok(u64::try_from(fd).ok())
}

/// The next bytes; empty: there are none, or it failed.
fn fill(calls: &mut dyn Calls, nr: i64, fd: u64) -> Result<Vec<u8>, EngineError> {
    let room = Argument::Bytes(vec![0; ROOM_BYTES]);
    let args = vec![Argument::Value(fd), room, Argument::Value(ROOM_BYTES as u64)];
    let (length, mut args) = calls.call(nr, args)?;
    let Argument::Bytes(mut bytes) = args.swap_remove(1) else {
        return Err(EngineError::Internal("a buffer did not come back".into()));
    };
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    Ok(bytes)
}

fn close(calls: &mut dyn Calls, fd: u64) -> Result<(), EngineError> {
    calls.call(libc::SYS_close, vec![Argument::Value(fd)])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "42 (a) (b) c) S 1 42 42 34816 42 4194304 90 0 0 0 1 2 3 4 20 0 1 0 123 8192 9 0\n";
        let expected = Stat {
            name: "a) (b) c".into(),
            state: "S".into(),
            parent: 1,
            flags: 4_194_304,
            start_ticks: 123,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn commands_are_shown_as_ps_does() {
        assert_eq!(command_line(b"ping\0-c\x001\0", "ping"), "ping -c 1");
        assert_eq!(command_line(b"", "kworker"), "[kworker]");
    }

    #[test]
    fn names_of_a_folder() {
        let mut entries = Vec::new();
        for name in [&b"1"[..], b"self"] {
            let length = (NAME_OFFSET + name.len() + 1).next_multiple_of(8);
            let start = entries.len();
            entries.extend([0; 16]);
            entries.extend((length as u16).to_ne_bytes());
            entries.push(4);
            entries.extend(name);
            entries.resize(start + length, 0);
        }
        assert_eq!(entry_names(&entries).collect::<Vec<_>>(), [&b"1"[..], b"self"]);
    }
}
