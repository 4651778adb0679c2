//! The host's calls that no crate wraps safely (an unsafe room): the TAP driver's ioctls, datagrams in batches, packet sockets.
#![allow(unsafe_code)]

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

use crate::raw::bpf::Insn;

/// A TAP rather than a TUN, no packet information, a header for offloads before each frame, refuse a name that exists (`linux/if_tun.h`).
const TAP_FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
/// What superframes the reader splits (`linux/if_tun.h`): checksums, TCP over IPv4 and IPv6, also with ECN.
const TAP_OFFLOADS: libc::c_uint = 0x01 | 0x02 | 0x04 | 0x08;
/// Also those of UDP, from Linux 6.2.
const TAP_OFFLOADS_UDP: libc::c_uint = 0x20 | 0x40;

/// Makes the TAP interface that belongs to `fd`, an open `/dev/net/tun`, and returns its name. An empty one has the kernel choose.
/// `name` has at most 15 bytes.
pub(crate) fn make_tap(fd: impl AsFd, name: &str) -> Result<String, Errno> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = TAP_FLAGS as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call has returned.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let offload = |flags: libc::c_uint| {
        // SAFETY: TUNSETOFFLOAD takes an integer and touches no memory of ours.
        Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, flags) })
    };
    offload(TAP_OFFLOADS | TAP_OFFLOADS_UDP).or_else(|_| offload(TAP_OFFLOADS))?;
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0);
    Ok(String::from_utf8_lossy(&name.map(|&byte| byte as u8).collect::<Vec<u8>>()).into_owned())
}

/// Datagrams that one call moves.
pub(crate) const BATCH: usize = 32;
/// Room for what the host says about a datagram beside its bytes, in words of 8 bytes: a `struct tpacket_auxdata` and an integer, each behind a `cmsghdr`.
const CONTROL_WORDS: usize = 8;

/// What came with a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    /// Bytes of it in the buffer.
    pub length: usize,
    /// There was no room for all of it.
    pub truncated: bool,
    /// A VLAN tag that the host has taken out: its type and its value.
    pub vlan: Option<(u16, u16)>,
    /// How many found the socket's buffer full since it was made, modulo 2^32, for sockets with SO_RXQ_OVFL.
    pub overflow: Option<u32>,
    /// Who sent it, for sockets of the Internet.
    pub from: Option<IpAddr>,
}

/// Datagrams that have been received together, and room for them.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    room: usize,
    heads: [Head; BATCH],
}

impl Inbox {
    /// For datagrams of at most `room` bytes.
    pub fn new(room: usize) -> Self {
        Self {
            bytes: vec![0; room * BATCH],
            room,
            heads: [Head::default(); BATCH],
        }
    }

    /// What is known of a datagram of the last batch, and its whole buffer.
    pub fn message(&mut self, number: usize) -> (Head, &mut [u8]) {
        let at = number * self.room;
        (self.heads[number], &mut self.bytes[at..at + self.room])
    }

    /// Receives what has arrived, up to [`BATCH`] datagrams, of at most `room - spare` bytes each; how many.
    pub fn receive(&mut self, fd: impl AsFd, spare: usize) -> Result<usize, Errno> {
        let mut control = [[0_u64; CONTROL_WORDS]; BATCH];
        // SAFETY: these are plain integers and pointers, of which all zeros is a value.
        let mut names: [libc::sockaddr_storage; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (number, buffer) in self.bytes.chunks_exact_mut(self.room).enumerate() {
            vectors[number].iov_base = buffer.as_mut_ptr().cast();
            vectors[number].iov_len = self.room - spare;
            let message = &mut messages[number].msg_hdr;
            message.msg_iov = &raw mut vectors[number];
            message.msg_iovlen = 1;
            message.msg_name = (&raw mut names[number]).cast();
            message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            message.msg_control = control[number].as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control[number]);
        }
        let (fd, flags) = (fd.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: every message points to buffers with the lengths given, which are borrowed mutably or live on this stack until
        // the call has returned; there is no time-out to point to.
        let count = unsafe {
            libc::recvmmsg(
                fd,
                messages.as_mut_ptr(),
                BATCH as u32,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        let count = Errno::result(count)? as usize;
        for (head, message) in self.heads.iter_mut().zip(&messages[..count]) {
            *head = Head {
                length: message.msg_len as usize,
                truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                vlan: None,
                overflow: None,
                from: sender_of(&message.msg_hdr),
            };
            read_controls(&message.msg_hdr, head);
        }
        Ok(count)
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

/// Reads what the host says beside a datagram: a VLAN tag, and how many found no room.
fn read_controls(message: &libc::msghdr, to: &mut Head) {
    // SAFETY: the header and its control buffer are those that the host has just filled in; lengths are the host's.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !head.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole `cmsghdr` inside the buffer, which is aligned for it.
        let control = unsafe { &*head };
        // SAFETY: as above; the data begin where the `cmsghdr` ends.
        let data = unsafe { libc::CMSG_DATA(head) };
        let bytes = control.cmsg_len.saturating_sub(size_of::<libc::cmsghdr>());
        match (control.cmsg_level, control.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if bytes >= size_of::<libc::tpacket_auxdata>() => {
                // SAFETY: the length was checked; a `tpacket_auxdata` is integers, and may lie unaligned.
                let data = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                let has_kind = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                let kind = if has_kind { data.tp_vlan_tpid } else { 0x8100 };
                to.vlan = (data.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some((kind, data.tp_vlan_tci));
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if bytes >= size_of::<u32>() => {
                // SAFETY: the length was checked; an integer may lie unaligned.
                to.overflow = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            _ => {}
        }
        // SAFETY: as for the first.
        head = unsafe { libc::CMSG_NXTHDR(message, head) };
    }
}

fn sender_of(message: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the name is a `sockaddr_storage` of ours, of which the host has filled in `msg_namelen` bytes.
    let address = unsafe { SockaddrStorage::from_raw(message.msg_name.cast(), Some(message.msg_namelen)) }?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or(address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// Sends datagrams together, to the peer of the socket or to `to`: how many the host took. It took none if there is an error, which
/// is that of the first.
pub(crate) fn send_together(fd: impl AsFd, datagrams: &[&[u8]], to: Option<&SockaddrStorage>) -> Result<usize, Errno> {
    // SAFETY: these are plain integers and pointers, of which all zeros is a value.
    let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let count = datagrams.len().min(BATCH);
    for (number, datagram) in datagrams.iter().take(count).enumerate() {
        vectors[number].iov_base = datagram.as_ptr().cast_mut().cast();
        vectors[number].iov_len = datagram.len();
        let message = &mut messages[number].msg_hdr;
        message.msg_iov = &raw mut vectors[number];
        message.msg_iovlen = 1;
        if let Some(to) = to {
            message.msg_name = to.as_ptr().cast_mut().cast();
            message.msg_namelen = to.len();
        }
    }
    let (fd, flags) = (fd.as_fd().as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: every message points to a borrowed datagram and address, which the host only reads.
    let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count as u32, flags as _) };
    Errno::result(sent).map(|sent| sent as usize)
}

/// Sets an option of a socket that is an integer.
pub(crate) fn set_option(fd: impl AsFd, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    let (fd, bytes) = (fd.as_fd().as_raw_fd(), size_of::<i32>() as u32);
    // SAFETY: the host reads one integer, which lives until the call has returned.
    Errno::result(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), bytes) }).map(drop)
}

/// The groups of the process at the other end of a Unix socket, besides its first one.
///
/// # Errors
/// What the host said; ERANGE if there are more than 1,024.
pub fn peer_groups(fd: impl AsFd) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; 1024];
    let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the host writes at most `bytes` bytes, which is the size of what is pointed to.
    Errno::result(unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    })?;
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

/// Has a socket take only what this program of classic BPF returns something for.
pub(crate) fn attach_filter(fd: impl AsFd, program: &[Insn]) -> Result<(), Errno> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|&Insn { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(code.len()).map_err(|_| Errno::E2BIG)?,
        filter: code.as_mut_ptr(),
    };
    let (fd, bytes) = (fd.as_fd().as_raw_fd(), size_of_val(&program) as u32);
    // SAFETY: the host reads one `sock_fprog` and as many instructions as it says, which live until the call has returned.
    Errno::result(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            bytes,
        )
    })
    .map(drop)
}

/// Binds a packet socket to an interface, for frames of all kinds; if it is to be `promiscuous`, so is the interface for as long as the socket lives.
pub(crate) fn bind_packet(fd: impl AsFd, index: u32, promiscuous: bool) -> Result<(), Errno> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: plain integers, of which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: plain integers, of which all zeros is a value.
    let mut member: libc::packet_mreq = unsafe { std::mem::zeroed() };
    member.mr_ifindex = index as i32;
    member.mr_type = libc::PACKET_MR_PROMISC as u16;
    let (option, bytes) = (libc::PACKET_ADD_MEMBERSHIP, size_of_val(&member) as u32);
    if promiscuous {
        // SAFETY: the host reads one `packet_mreq`, which lives until the call has returned.
        Errno::result(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const member).cast(), bytes) })?;
    }
    // SAFETY: the host reads one `sockaddr_ll`, which lives until the call has returned.
    Errno::result(unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) }).map(drop)
}

/// Frames that found the buffer of a packet socket full since this was asked last.
pub(crate) fn packet_drops(fd: impl AsFd) -> Result<u32, Errno> {
    // SAFETY: plain integers, of which all zeros is a value.
    let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut bytes = size_of_val(&statistics) as u32;
    let (fd, option) = (fd.as_fd().as_raw_fd(), libc::PACKET_STATISTICS);
    // SAFETY: the host writes at most `bytes` bytes, which is the size of what is pointed to.
    Errno::result(unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_PACKET,
            option,
            (&raw mut statistics).cast(),
            &raw mut bytes,
        )
    })?;
    Ok(statistics.tp_drops)
}

/// What a port has to know of an interface of the host.
pub(crate) struct InterfaceState {
    pub is_ethernet: bool,
    pub is_up: bool,
    pub mac: [u8; 6],
    pub mtu: u32,
}

/// Asks for it over any socket. `name` has at most 15 bytes.
pub(crate) fn interface_state(fd: impl AsFd, name: &str) -> Result<InterfaceState, Errno> {
    let fd = fd.as_fd().as_raw_fd();
    let ask = |what: libc::Ioctl| {
        let mut request = interface_request(name);
        // SAFETY: these requests read and write one `ifreq`, which lives until the call has returned.
        Errno::result(unsafe { libc::ioctl(fd, what, &raw mut request) }).map(|_| request.ifr_ifru)
    };
    // SAFETY: SIOCGIFHWADDR fills in the address.
    let hardware = unsafe { ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr };
    // SAFETY: SIOCGIFFLAGS fills in the flags.
    let flags = unsafe { ask(libc::SIOCGIFFLAGS)?.ifru_flags };
    // SAFETY: SIOCGIFMTU fills in the MTU.
    let mtu = unsafe { ask(libc::SIOCGIFMTU)?.ifru_mtu };
    Ok(InterfaceState {
        is_ethernet: hardware.sa_family == libc::ARPHRD_ETHER,
        mac: std::array::from_fn(|at| hardware.sa_data[at] as u8),
        is_up: i32::from(flags) & libc::IFF_UP != 0,
        mtu: mtu as u32,
    })
}

/// A request about the interface of this name.
fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain integers and unions of them; all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.as_bytes().iter().take(libc::IFNAMSIZ - 1))
    {
        *to = *from as libc::c_char;
    }
    request
}
