//! What the run and the process 1 of a node tell each other over a socket: a JSON object a line.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};

/// All that a node is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeSpec {
    pub name: String,
    /// In a user namespace: the run is not root's.
    pub rootless: bool,
    /// The folder that it sees as `/`; none: the host's files.
    pub root: Option<String>,
    /// Most bytes that what it writes may take, /dev/shm apart.
    pub disk_bytes: u64,
    pub bridge: Option<String>,
    pub interfaces: Vec<InterfaceSpec>,
    pub sysctls: BTreeMap<String, String>,
    pub routes: Vec<RouteSpec>,
    pub files: Vec<FileSpec>,
    pub programs: Vec<ProgramSpec>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InterfaceSpec {
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u32,
    pub addresses: Vec<(IpAddr, u8)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RouteSpec {
    pub to: (IpAddr, u8),
    pub via: Vec<IpAddr>,
    pub dev: Option<String>,
    pub metric: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileSpec {
    pub path: String,
    pub bytes: Vec<u8>,
    pub mode: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgramSpec {
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    pub uid: u32,
    pub gid: u32,
    pub stdin: Option<String>,
    /// Files of the host, absolute.
    pub stdout: String,
    pub stderr: String,
}

/// From the run to process 1.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one.
    Make(Box<NodeSpec>),
    Start(usize),
    Signal {
        index: usize,
        signal: i32,
    },
    /// How many frames found the queue of an interface full: asked once, at the end.
    Count,
}

/// From process 1 to the run. Times are of `CLOCK_MONOTONIC`, ns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The node is there; its TAPs come with the byte after this line, in the order of interfaces.
    Ready {
        read_only: Vec<String>,
    },
    Refused {
        what: String,
        reason: String,
    },
    Started {
        index: usize,
        pid: u32,
        at_ns: u64,
    },
    NotStarted {
        index: usize,
        reason: String,
    },
    Ended {
        index: usize,
        exit: Option<i32>,
        signal: Option<i32>,
        at_ns: u64,
    },
    /// By interface.
    Counted(Vec<u64>),
}

/// Sends one message.
pub(crate) fn send<T: Serialize>(stream: &mut &UnixStream, message: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    stream.write_all(&bytes)
}

/// Cuts what arrives into messages.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn next<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let Some(end) = self.0.iter().position(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

/// So many descriptors go with one message (the kernel's SCM_MAX_FD is 253).
const FDS_MAX: usize = 64;

/// Passes descriptors, each group with a byte of its own.
pub(crate) fn send_fds(stream: &UnixStream, fds: &[OwnedFd]) -> io::Result<()> {
    for group in fds.chunks(FDS_MAX) {
        let raw: Vec<i32> = group.iter().map(AsRawFd::as_raw_fd).collect();
        let message = [ControlMessage::ScmRights(&raw)];
        sendmsg::<()>(
            stream.as_raw_fd(),
            &[IoSlice::new(b"f")],
            &message,
            MsgFlags::empty(),
            None,
        )?;
    }
    Ok(())
}

/// Takes `count` descriptors.
pub(crate) fn receive_fds(stream: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    while fds.len() < count {
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let mut room = nix::cmsg_space!([i32; FDS_MAX]);
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut parts,
            Some(&mut room),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                fds.extend(raw.into_iter().map(crate::sys::own));
            }
        }
    }
    Ok(fds)
}

/// Reads one byte at a time: what comes after the line may carry descriptors.
pub(crate) fn receive_line<T: for<'a> Deserialize<'a>>(mut stream: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        io::Read::read_exact(&mut stream, &mut byte)?;
        if byte[0] == b'\n' {
            return Ok(serde_json::from_slice(&line)?);
        }
        line.push(byte[0]);
    }
}
