//! What is done in a node for whoever drives the run, by system calls of its process 1: signals, and files as a whole.

use windtunnel_control::{Content, FILE_MAX_BYTES, Outcome};
use windtunnel_kernel::Argument;

use crate::configure::{Calls, errno_text};
use crate::error::EngineError;
use crate::terminal::{close_all, refusal};

/// Bytes read or written at once. Sysctls are written at once.
const PIECE_BYTES: usize = 64 << 10;
/// Mode of a file that is made without one.
const FILE_MODE: u32 = 0o644;
/// `struct stat` of x86-64: its size, and where `st_mode` is (arch/x86/include/uapi/asm/stat.h).
const STAT_BYTES: usize = 144;
const STAT_MODE_AT: usize = 24;

/// Sends a signal, as kill(2).
///
/// # Errors
/// When the node's kernel crashes.
pub fn signal(calls: &mut dyn Calls, pid: i32, signal: i32) -> Result<Outcome, EngineError> {
    let args = [i64::from(pid) as u64, signal as u64];
    let (result, _) = calls.call(libc::SYS_kill, args.map(Argument::Value).to_vec())?;
    Ok(match result {
        0 => Outcome::Done {},
        error => refused(&format!("cannot send signal {signal} to {pid}"), -error),
    })
}

/// Reads all of a regular file.
///
/// # Errors
/// When the node's kernel crashes.
pub fn read_file(calls: &mut dyn Calls, path: &str) -> Result<Outcome, EngineError> {
    let fd = match open(calls, path, libc::O_RDONLY)? {
        Ok(fd) => fd,
        Err(refused) => return Ok(refused),
    };
    let mut content = Vec::new();
    let outcome = loop {
        let room = Argument::Bytes(vec![0; PIECE_BYTES]);
        let args = vec![Argument::Value(fd as u64), room, Argument::Value(PIECE_BYTES as u64)];
        let (result, mut args) = calls.call(libc::SYS_read, args)?;
        let Ok(length) = usize::try_from(result) else {
            break refused(&format!("cannot read {path}"), -result);
        };
        if length == 0 {
            break Outcome::File(Content::of(content));
        }
        if let Argument::Bytes(piece) = args.swap_remove(1) {
            content.extend_from_slice(&piece[..length.min(piece.len())]);
        }
        if content.len() > FILE_MAX_BYTES {
            let text = format!("{path} is longer than the {FILE_MAX_BYTES} bytes that can be read at once");
            break Outcome::Refused(refusal(text, 2));
        }
    };
    close_all(calls, &[fd])?;
    Ok(outcome)
}

/// Writes all of a regular file; it is made if it is not there.
///
/// # Errors
/// When the node's kernel crashes.
pub fn write_file(calls: &mut dyn Calls, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<Outcome, EngineError> {
    let fd = match open(calls, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)? {
        Ok(fd) => fd,
        Err(refused) => return Ok(refused),
    };
    let mut rest = bytes;
    let mut outcome = Outcome::Done {};
    if let Some(mode) = mode {
        let args = [fd as u64, u64::from(mode & 0o7777)];
        let (result, _) = calls.call(libc::SYS_fchmod, args.map(Argument::Value).to_vec())?;
        if result < 0 {
            outcome = refused(&format!("cannot change the mode of {path}"), -result);
            rest = &[];
        }
    }
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        let args = vec![
            Argument::Value(fd as u64),
            Argument::Bytes(piece.to_vec()),
            Argument::Value(piece.len() as u64),
        ];
        let (result, _) = calls.call(libc::SYS_write, args)?;
        match usize::try_from(result) {
            Ok(written) if written > 0 => rest = &rest[written.min(rest.len())..],
            _ => {
                outcome = refused(&format!("cannot write {path}"), -result);
                break;
            }
        }
    }
    close_all(calls, &[fd])?;
    Ok(outcome)
}

/// Opens a regular file: from a pipe or a device process 1 could wait for ever.
fn open(calls: &mut dyn Calls, path: &str, flags: i32) -> Result<Result<i32, Outcome>, EngineError> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut name = path.as_bytes().to_vec();
    name.push(0);
    let args = vec![
        Argument::Bytes(name),
        Argument::Value(flags as u64),
        Argument::Value(FILE_MODE.into()),
    ];
    let (fd, _) = calls.call(libc::SYS_open, args)?;
    if fd < 0 {
        return Ok(Err(refused(&format!("cannot open {path}"), -fd)));
    }
    let fd = fd as i32;
    let args = vec![Argument::Value(fd as u64), Argument::Bytes(vec![0; STAT_BYTES])];
    let (result, mut args) = calls.call(libc::SYS_fstat, args)?;
    let mode = match args.pop() {
        Some(Argument::Bytes(stat)) if result == 0 => {
            let mode = stat[STAT_MODE_AT..][..4].try_into().expect("four bytes");
            u32::from_ne_bytes(mode)
        }
        _ => 0,
    };
    if mode & libc::S_IFMT != libc::S_IFREG {
        close_all(calls, &[fd])?;
        let what = if mode & libc::S_IFMT == libc::S_IFDIR {
            "a folder"
        } else {
            "no regular file"
        };
        return Ok(Err(Outcome::Refused(refusal(format!("{path} is {what}"), 2))));
    }
    Ok(Ok(fd))
}

fn refused(what: &str, errno: i64) -> Outcome {
    Outcome::Refused(refusal(format!("{what}: {}", errno_text(errno)), 2))
}
