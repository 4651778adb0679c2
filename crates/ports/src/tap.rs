//! A TAP interface made for the run: the host's own stack is at the other end of the link.
//!
//! The host's stack hands over superframes, which are split here, and gets such of what is sent together: that costs one
//! call for up to 64 KiB.
//!
//! It is not persistent, so it goes with its descriptor, also when the process is killed; its addresses and routes go with it.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use windtunnel_netlink::Request;

use crate::counters::Tally;
use crate::join::Joiner;
use crate::link::{Configurator, capability_error, check_name, holder_of};
use crate::offload::{self, Segments, VNET_BYTES, VnetHeader};
use crate::poller::Poller;
use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Port, PortCounters, PortError, Subnet, sys};

/// The device that makes TAP interfaces.
pub(crate) const DEVICE: &str = "/dev/net/tun";
/// What the kernel gives a new one, bytes.
const USUAL_MTU: u32 = 1500;
/// What the driver takes, bytes (`drivers/net/tun.c`: 65535 less the Ethernet header).
const MTU_MAX: u32 = 65_521;
const MTU_MIN: u32 = 68;

/// What makes a port: the interface's descriptor, the host's list of interfaces, and the name.
type Made = (File, Option<File>, String);

/// See the module.
#[derive(Debug)]
pub(crate) struct Tap {
    port: String,
    interface: String,
    addresses: Vec<Subnet>,
    mtu: u32,
    file: File,
    /// The interfaces of its network namespace, as the host counts them; none where /proc is not mounted.
    devices: Option<File>,
    /// What the interface's queue had no room for, when that was asked last.
    overflow: Cell<u64>,
    poller: Poller,
    /// One superframe with its header before it.
    buffer: Vec<u8>,
    /// What of `buffer` has not been handed on: how it is split, and where it ends.
    rest: Option<(Segments, usize)>,
    segment: Vec<u8>,
    joiner: Joiner,
    tally: Tally,
    /// The interface was deleted by somebody: nothing can pass any more.
    gone: bool,
    /// The interface is down, and that was told.
    down: bool,
}

impl Tap {
    pub fn open(
        port: &str,
        interface: Option<&str>,
        addresses: &[Subnet],
        mtu: Option<u32>,
        netns: Option<&Path>,
    ) -> Result<Self, PortError> {
        if let Some(interface) = interface {
            check_name(port, interface)?;
        }
        if let Some(mtu) = mtu.filter(|mtu| !(MTU_MIN..=MTU_MAX).contains(mtu)) {
            let what = format!("an MTU of {mtu} bytes is not possible: {MTU_MIN} to {MTU_MAX} are allowed");
            return Err(PortError::Value {
                port: port.into(),
                what,
            });
        }
        let make = || Self::make(port, interface.unwrap_or_default(), addresses, mtu);
        let (file, devices, interface) = match netns {
            None => make()?,
            Some(netns) => in_netns(port, netns, make)?,
        };
        let poller = Poller::new().map_err(|errno| PortError::host(port, "epoll_create", errno))?;
        poller
            .add(&file, 0)
            .map_err(|errno| PortError::host(port, "epoll_ctl", errno))?;
        Ok(Self {
            port: port.into(),
            interface,
            addresses: addresses.to_vec(),
            mtu: mtu.unwrap_or(USUAL_MTU),
            file,
            devices,
            overflow: Cell::new(0),
            poller,
            buffer: vec![0; VNET_BYTES + FRAME_BYTES_MAX + 1],
            rest: None,
            segment: Vec::new(),
            joiner: Joiner::default(),
            tally: Tally::default(),
            gone: false,
            down: false,
        })
    }

    /// Makes the interface in the network namespace of this thread.
    fn make(port: &str, name: &str, addresses: &[Subnet], mtu: Option<u32>) -> Result<Made, PortError> {
        for subnet in addresses {
            if let Some(interface) = holder_of(subnet.address) {
                return Err(PortError::AddressInUse {
                    port: port.into(),
                    address: subnet.address,
                    interface,
                });
            }
        }
        let file = open_device(port)?;
        let interface = sys::make_tap(&file, name).map_err(|errno| match errno {
            Errno::EBUSY | Errno::EEXIST => PortError::Exists {
                port: port.into(),
                interface: name.into(),
            },
            other => admin_error(port, "making a TAP interface", other),
        })?;
        configure(&interface, addresses, mtu)
            .map_err(|(doing, errno)| admin_error(port, &format!("{doing} of {interface}"), errno))?;
        // A file of this thread's namespace, which it stays.
        Ok((file, File::open("/proc/thread-self/net/dev").ok(), interface))
    }

    /// Hands on the next part of a superframe; false if there is none.
    fn next_segment(&mut self, each: &mut dyn FnMut(&[u8])) -> bool {
        let Some((segments, end)) = &mut self.rest else {
            return false;
        };
        if !segments.next(&self.buffer[VNET_BYTES..*end], &mut self.segment) {
            self.rest = None;
            return false;
        }
        self.tally.passed_in(self.segment.len());
        each(&self.segment);
        true
    }

    /// Looks at what was read: hands it on if it is one whole frame, keeps it if it has to be split, or counts it. False if there is
    /// something to come of it.
    fn take(&mut self, length: usize, each: &mut dyn FnMut(&[u8])) -> bool {
        let Some((header, frame)) = self.buffer[..length].split_first_chunk_mut::<VNET_BYTES>() else {
            self.tally.dropped(DropCause::InMalformed);
            return true;
        };
        match offload::whole(VnetHeader::parse(header), frame) {
            Ok(None) => {
                self.tally.passed_in(frame.len());
                each(frame);
            }
            Ok(Some(segments)) => {
                self.rest = Some((segments, length));
                return false;
            }
            Err(cause) => self.tally.dropped(cause),
        }
        true
    }

    /// The interface was deleted.
    fn lose(&mut self) -> Result<(), PortError> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        // A broken descriptor is ready for ever.
        self.poller.remove(&self.file);
        Err(PortError::Lost {
            port: self.port.clone(),
            what: format!("the interface {} was deleted on the host", self.interface),
            hint: Some("start the run again".into()),
        })
    }

    /// Counts frames that the interface did not take.
    fn refuse(&mut self, errno: Errno, frames: u64) -> Result<(), PortError> {
        match errno {
            Errno::EIO => {
                self.tally.dropped_many(DropCause::OutDown, frames);
                if std::mem::replace(&mut self.down, true) {
                    return Ok(());
                }
                return Err(PortError::Lost {
                    port: self.port.clone(),
                    what: format!("the interface {} is down", self.interface),
                    hint: Some(format!("ip link set dev {} up", self.interface)),
                });
            }
            Errno::EBADFD => {
                self.tally.dropped_many(DropCause::OutDown, frames);
                return self.lose();
            }
            Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => self.tally.dropped_many(DropCause::OutFull, frames),
            _ => self.tally.dropped_many(DropCause::OutRefused, frames),
        }
        Ok(())
    }
}

impl Port for Tap {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let mut taken = 0;
        while taken < most && !self.gone {
            if self.next_segment(each) {
                taken += 1;
                continue;
            }
            match self.file.read(&mut self.buffer) {
                Ok(length) => taken += usize::from(self.take(length, each)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EBADFD) => return self.lose().map(|()| taken),
                Err(error) => return Err(PortError::host(&self.port, "reading frames", error)),
            }
        }
        Ok(taken)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        match frame.len() {
            _ if self.gone => self.tally.dropped(DropCause::OutDown),
            ..FRAME_BYTES_MIN => self.tally.dropped(DropCause::OutMalformed),
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX => {
                if !self.joiner.add(frame) {
                    let written = self.flush();
                    // Nothing waits now, so this one is the first.
                    self.joiner.add(frame);
                    return written;
                }
            }
            _ => self.tally.dropped(DropCause::OutTooLong),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let (frames, bytes) = self.joiner.waiting();
        if frames == 0 {
            return Ok(());
        }
        match nix::unistd::write(&self.file, self.joiner.take()) {
            Ok(_) => {
                self.down = false;
                self.tally.passed_out_many(frames, bytes);
                Ok(())
            }
            Err(errno) => self.refuse(errno, frames as u64),
        }
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.tally.counters();
        if let Some(dropped) = self
            .devices
            .as_ref()
            .and_then(|devices| queue_drops(devices, &self.interface))
        {
            self.overflow.set(dropped);
        }
        if self.overflow.get() > 0 {
            counters.drops.insert(DropCause::InOverflow, self.overflow.get());
        }
        counters
    }

    fn describe(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(Subnet::to_string).collect();
        let addresses = if addresses.is_empty() {
            "no address".into()
        } else {
            addresses.join(", ")
        };
        format!("TAP {} of the host ({addresses}, MTU {})", self.interface, self.mtu)
    }
}

/// What the host had to drop on its way to the interface, by its list of interfaces; none if it is not there any more.
fn queue_drops(devices: &File, interface: &str) -> Option<u64> {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        match devices.read_at(&mut part, text.len() as u64).ok()? {
            0 => break,
            bytes => text.extend_from_slice(&part[..bytes]),
        }
    }
    drops_in(std::str::from_utf8(&text).ok()?, interface)
}

/// The fourth number behind the eight of the other direction (`net/core/net-procfs.c`).
fn drops_in(text: &str, interface: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == interface)?;
    numbers.split_whitespace().nth(8 + 3)?.parse().ok()
}

fn open_device(port: &str) -> Result<File, PortError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open(DEVICE).map_err(|source| {
        let hint = match source.kind() {
            ErrorKind::NotFound => {
                "modprobe tun (as root); a container needs the device: docker run --device /dev/net/tun".into()
            }
            ErrorKind::PermissionDenied => format!("chmod 666 {DEVICE} (as root): most hosts let everybody open it"),
            _ => "`windtunnel doctor` says what ports need".to_string(),
        };
        PortError::Host {
            port: port.into(),
            doing: format!("opening {DEVICE}"),
            source,
            hint: Some(hint),
        }
    })
}

/// Addresses, MTU and up; what failed, and why.
fn configure(interface: &str, addresses: &[Subnet], mtu: Option<u32>) -> Result<(), (String, Errno)> {
    let told = |doing: &'static str| move |errno| (doing.to_string(), errno);
    let mut host = Configurator::open().map_err(told("configuration"))?;
    let index = host.index_of(interface).map_err(told("configuration"))?;
    if let Some(mtu) = mtu {
        host.ask(&Request::SetMtu { index, mtu })
            .map_err(told("setting the MTU"))?;
    }
    for subnet in addresses {
        let request = Request::AddAddress {
            index,
            address: subnet.address,
            prefix_bits: subnet.prefix_bits,
        };
        host.ask(&request)
            .map_err(|errno| (format!("adding the address {subnet}"), errno))?;
    }
    host.ask(&Request::SetUp { index, up: true })
        .map_err(told("setting up"))?;
    Ok(())
}

/// Does something in another network namespace: on a thread of its own, for a namespace belongs to a thread.
fn in_netns<T: Send>(
    port: &str,
    netns: &Path,
    make: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, PortError> {
    let doing = format!("entering the network namespace {}", netns.display());
    let file = File::open(netns).map_err(|source| PortError::Host {
        port: port.into(),
        doing: doing.clone(),
        source,
        hint: Some("`ip netns add NAME` makes /run/netns/NAME; /proc/PID/ns/net is that of a process".into()),
    })?;
    let inside = || {
        setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EPERM => capability_error(port, &doing, "CAP_SYS_ADMIN"),
            other => PortError::host(port, doing.clone(), other),
        })?;
        make()
    };
    std::thread::scope(|scope| match scope.spawn(inside).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn admin_error(port: &str, doing: &str, errno: Errno) -> PortError {
    match errno {
        Errno::EPERM | Errno::EACCES => capability_error(port, doing, "CAP_NET_ADMIN"),
        other => PortError::host(port, doing, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named_with_what_gives_it() {
        let error = admin_error("outside", "making a TAP interface", Errno::EPERM);
        assert_eq!(
            error.to_string(),
            "port outside: making a TAP interface needs CAP_NET_ADMIN, which this process does not have"
        );
        assert_eq!(
            error.hint().unwrap(),
            "sudo windtunnel run ...; or as ordinary user in a network of your own: unshare --user --map-root-user --net windtunnel run ..."
        );
    }

    #[test]
    fn the_hosts_list_of_interfaces_is_read() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13\n  tap0: 1 2 3 4 5 6 7 8 9 10 11 77 13\n";
        assert_eq!(drops_in(text, "tap0"), Some(77));
        assert_eq!(drops_in(text, "tap1"), None);
    }
}
