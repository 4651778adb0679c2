//! Configuration of a node before its programs: real system calls, carried out by process 1 of the node.
//!
//! Order: file systems, host name, loopback, sysctls, then for each interface up and addresses, then routes. Sysctls come
//! before addresses, so that what governs addresses (disable_ipv6, accept_dad, ...) holds for them.

use std::io;

use windtunnel_kernel::Argument;
use windtunnel_scenario::{Node, NodeKind, Route};

use crate::error::EngineError;
use crate::netlink::{self, Answer};

/// Makes system calls inside a node.
pub trait Calls {
    /// One system call that does not block: its result (negated errno values below zero) and the buffers given.
    ///
    /// # Errors
    /// When the node's kernel crashes or process 1 does not come back.
    fn call(&mut self, nr: i64, args: Vec<Argument>) -> Result<(i64, Vec<Argument>), EngineError>;
}

/// File systems, and where they go: type, folder, flags, options. `/tmp`, `/run` and the rest of the tree are the root
/// file system's own.
const MOUNTS: [(&str, &str, u64, &str); 6] = [
    ("proc", "/proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, ""),
    ("sysfs", "/sys", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC, ""),
    ("devtmpfs", "/dev", libc::MS_NOSUID, "mode=755"),
    (
        "devpts",
        "/dev/pts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        "gid=5,mode=620,ptmxmode=666",
    ),
    (
        "mqueue",
        "/dev/mqueue",
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
        "",
    ),
    ("tmpfs", "/dev/shm", libc::MS_NOSUID | libc::MS_NODEV, "mode=1777"),
];
/// What a distribution puts into `/dev`.
const DEV_LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];
/// Room for a netlink answer, bytes.
const ANSWER_BYTES: usize = 16 * 1024;

/// Configures `node` as the scenario says. The descriptor of process 1 that programs without input read from: `/dev/null`, which
/// they cannot write to, as elsewhere.
///
/// # Errors
/// The first step the kernel refuses, with its reason.
pub fn configure(calls: &mut dyn Calls, node: &Node) -> Result<i32, EngineError> {
    let mut setup = Setup {
        calls,
        node: &node.name,
    };
    setup.mount_all()?;
    setup.host_name()?;
    let mut netlink = Netlink::open(&mut setup)?;
    netlink.bring_up(&mut setup, "lo")?;
    for (name, value) in &node.sysctls {
        setup.sysctl(name, value)?;
    }
    let mut indices = Vec::new();
    for interface in &node.interfaces {
        let index = netlink.bring_up(&mut setup, &interface.name)?;
        indices.push((interface.name.as_str(), index));
        for address in &interface.addresses {
            let request = netlink::Request::AddAddress {
                index,
                address: address.addr(),
                prefix_bits: address.prefix_len(),
            };
            netlink.ask(&mut setup, &request, || {
                format!("add address {address} to {}", interface.name)
            })?;
        }
    }
    if node.kind == NodeKind::Switch {
        netlink.join(&mut setup, &indices)?;
    }
    for route in &node.routes {
        let index = route.dev.as_ref().map(|dev| index_of(&indices, dev));
        let to = (route.to.network(), route.to.prefix_len());
        let request = netlink::Request::AddRoute {
            to,
            via: route.via.iter().chain(&route.also_via).copied().collect(),
            index,
            metric: route.metric,
        };
        netlink.ask(&mut setup, &request, || describe_route(route))?;
    }
    netlink.close(&mut setup)?;
    let flags = value((libc::O_RDONLY | libc::O_CLOEXEC).into());
    let (fd, _) = setup.call(libc::SYS_open, vec![text("/dev/null"), flags, value(0)], || {
        "open /dev/null".into()
    })?;
    Ok(fd as i32)
}

/// Sets the node's clock to `epoch_s` and `epoch_ns`: it was booted at a full second.
///
/// # Errors
/// When the node's kernel refuses.
pub fn set_date(calls: &mut dyn Calls, node: &Node, epoch_s: u64, epoch_ns: u32) -> Result<(), EngineError> {
    let mut time = epoch_s.to_ne_bytes().to_vec();
    time.extend(u64::from(epoch_ns).to_ne_bytes());
    let args = vec![value(libc::CLOCK_REALTIME.into()), Argument::Bytes(time)];
    let node = &node.name;
    let what = || "set the clock".into();
    Setup { calls, node }.call(libc::SYS_clock_settime, args, what)?;
    Ok(())
}

fn index_of(indices: &[(&str, u32)], name: &str) -> u32 {
    indices
        .iter()
        .find(|(known, _)| *known == name)
        .expect("the scenario checked the names of interfaces")
        .1
}

fn describe_route(route: &Route) -> String {
    let hops = route.via.iter().chain(&route.also_via);
    let via: String = hops.map(|via| format!(" via {via}")).collect();
    let dev = route.dev.as_ref().map(|dev| format!(" dev {dev}")).unwrap_or_default();
    format!("add route {}{via}{dev}", route.to)
}

/// A path or other text as the kernel wants it.
fn text(text: &str) -> Argument {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    Argument::Bytes(bytes)
}

fn value(value: i64) -> Argument {
    Argument::Value(value.cast_unsigned())
}

struct Setup<'a> {
    calls: &'a mut dyn Calls,
    node: &'a str,
}

impl Setup<'_> {
    /// A call that must succeed; `what` completes "cannot ...".
    fn call(
        &mut self,
        nr: i64,
        args: Vec<Argument>,
        what: impl FnOnce() -> String,
    ) -> Result<(i64, Vec<Argument>), EngineError> {
        let (result, args) = self.calls.call(nr, args)?;
        if result < 0 {
            return Err(self.refused(what(), -result, None));
        }
        Ok((result, args))
    }

    fn refused(&self, what: String, errno: i64, detail: Option<String>) -> EngineError {
        EngineError::Configure {
            node: self.node.to_owned(),
            what,
            reason: errno_text(errno),
            detail,
        }
    }

    fn mount_all(&mut self) -> Result<(), EngineError> {
        for (kind, at, flags, options) in MOUNTS {
            if at.starts_with("/dev/") {
                self.make_dir(at, 0o755)?;
            }
            let args = vec![text(kind), text(at), text(kind), Argument::Value(flags), text(options)];
            self.call(libc::SYS_mount, args, || format!("mount {kind} on {at}"))?;
        }
        for (target, link) in DEV_LINKS {
            self.call(libc::SYS_symlink, vec![text(target), text(link)], || {
                format!("make {link}")
            })?;
        }
        Ok(())
    }

    /// A folder with exactly these permission bits, whatever the mask of process 1.
    fn make_dir(&mut self, path: &str, mode: i64) -> Result<(), EngineError> {
        let (result, _) = self.calls.call(libc::SYS_mkdir, vec![text(path), value(mode)])?;
        if result < 0 && result != -i64::from(libc::EEXIST) {
            return Err(self.refused(format!("make folder {path}"), -result, None));
        }
        self.call(libc::SYS_chmod, vec![text(path), value(mode)], || {
            format!("set the mode of {path}")
        })?;
        Ok(())
    }

    fn host_name(&mut self) -> Result<(), EngineError> {
        let name = self.node.as_bytes().to_vec();
        let args = vec![Argument::Bytes(name), value(self.node.len() as i64)];
        self.call(libc::SYS_sethostname, args, || "set the host name".into())?;
        Ok(())
    }

    fn sysctl(&mut self, name: &str, setting: &str) -> Result<(), EngineError> {
        let path = sysctl_path(name);
        let what = || format!("set sysctl {name} to {setting:?}");
        let flags = i64::from(libc::O_WRONLY | libc::O_CLOEXEC);
        let (fd, _) = self.call(libc::SYS_open, vec![text(&path), value(flags), value(0)], what)?;
        let bytes = format!("{setting}\n").into_bytes();
        let length = bytes.len() as i64;
        let (written, _) = self
            .calls
            .call(libc::SYS_write, vec![value(fd), Argument::Bytes(bytes), value(length)])?;
        self.call(libc::SYS_close, vec![value(fd)], what)?;
        if written < 0 {
            return Err(self.refused(what(), -written, None));
        }
        Ok(())
    }
}

/// The file of a sysctl. As sysctl(8): the first separator in the name is the separator, the other one is part of names.
fn sysctl_path(name: &str) -> String {
    let slashes = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    let swapped: String = if slashes {
        name.to_owned()
    } else {
        name.chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect()
    };
    format!("/proc/sys/{swapped}")
}

/// What an errno value means, as people know it.
pub fn errno_text(errno: i64) -> String {
    let text = io::Error::from_raw_os_error(errno as i32).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// A netlink socket in the node.
struct Netlink {
    fd: i64,
    sequence: u32,
}

impl Netlink {
    fn open(setup: &mut Setup<'_>) -> Result<Self, EngineError> {
        let kind = i64::from(libc::SOCK_RAW | libc::SOCK_CLOEXEC);
        let args = vec![
            value(libc::AF_NETLINK.into()),
            value(kind),
            value(libc::NETLINK_ROUTE.into()),
        ];
        let (fd, _) = setup.call(libc::SYS_socket, args, || "open a netlink socket".into())?;
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK] {
            let on = Argument::Bytes(1i32.to_ne_bytes().to_vec());
            let args = vec![
                value(fd),
                value(libc::SOL_NETLINK.into()),
                value(option.into()),
                on,
                value(4),
            ];
            setup.call(libc::SYS_setsockopt, args, || "ask netlink for explanations".into())?;
        }
        Ok(Self { fd, sequence: 0 })
    }

    /// Sets an interface up; its number.
    fn bring_up(&mut self, setup: &mut Setup<'_>, name: &str) -> Result<u32, EngineError> {
        let find = netlink::Request::FindLink { name: name.to_owned() };
        let what = || format!("find interface {name}");
        let index = match self.ask(setup, &find, what)? {
            Answer::Link { index } => index,
            other => {
                return Err(EngineError::Internal(format!(
                    "{other:?} is no answer about an interface"
                )));
            }
        };
        let request = netlink::Request::SetUp { index, up: true };
        self.ask(setup, &request, || format!("set interface {name} up"))?;
        Ok(index)
    }

    /// Makes all interfaces ports of one bridge, whose spanning tree protocol is off, as Linux has it.
    fn join(&mut self, setup: &mut Setup<'_>, interfaces: &[(&str, u32)]) -> Result<(), EngineError> {
        let name = NodeKind::BRIDGE;
        let add = netlink::Request::AddBridge { name: name.to_owned() };
        self.ask(setup, &add, || format!("add bridge {name}"))?;
        let bridge = self.bring_up(setup, name)?;
        for &(port, index) in interfaces {
            let join = netlink::Request::JoinBridge { index, bridge };
            self.ask(setup, &join, || format!("make {port} a port of {name}"))?;
        }
        Ok(())
    }

    /// Sends one request and reads its answer, which is there at once.
    fn ask(
        &mut self,
        setup: &mut Setup<'_>,
        request: &netlink::Request,
        what: impl Fn() -> String,
    ) -> Result<Answer, EngineError> {
        self.sequence += 1;
        let bytes = request.to_bytes(self.sequence);
        let length = bytes.len() as i64;
        let args = vec![
            value(self.fd),
            Argument::Bytes(bytes),
            value(length),
            value(0),
            value(0),
            value(0),
        ];
        setup.call(libc::SYS_sendto, args, &what)?;
        let room = Argument::Bytes(vec![0; ANSWER_BYTES]);
        let flags = value(libc::MSG_DONTWAIT.into());
        let args = vec![
            value(self.fd),
            room,
            value(ANSWER_BYTES as i64),
            flags,
            value(0),
            value(0),
        ];
        let (length, mut args) = setup.call(libc::SYS_recvfrom, args, &what)?;
        let Argument::Bytes(answer) = args.swap_remove(1) else {
            return Err(EngineError::Internal("a buffer did not come back".into()));
        };
        let answer = netlink::parse_answer(&answer[..length as usize], self.sequence)
            .map_err(|problem| EngineError::Internal(format!("netlink: {problem}")))?;
        match answer {
            Answer::Refused { errno, text } => Err(setup.refused(what(), errno.into(), text)),
            answer => Ok(answer),
        }
    }

    fn close(self, setup: &mut Setup<'_>) -> Result<(), EngineError> {
        setup.call(libc::SYS_close, vec![value(self.fd)], || {
            "close a netlink socket".into()
        })?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "configure_tests.rs"]
mod tests;
