//! The host's calls that no crate wraps safely (an unsafe room): the TAP driver's ioctls.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

/// A TAP rather than a TUN, no packet information, a header for offloads before each frame, refuse a name that exists (`linux/if_tun.h`).
const TAP_FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
/// What superframes the reader splits (`linux/if_tun.h`): checksums, TCP over IPv4 and IPv6, also with ECN.
const TAP_OFFLOADS: libc::c_uint = 0x01 | 0x02 | 0x04 | 0x08;
/// Also those of UDP, from Linux 6.2.
const TAP_OFFLOADS_UDP: libc::c_uint = 0x20 | 0x40;

/// Makes the TAP interface that belongs to `fd`, an open `/dev/net/tun`, and returns its name. An empty one has the kernel choose.
/// `name` has at most 15 bytes.
pub(crate) fn make_tap(fd: impl AsFd, name: &str) -> Result<String, Errno> {
    // SAFETY: `ifreq` is plain integers and unions of them; all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.as_bytes().iter().take(libc::IFNAMSIZ - 1))
    {
        *to = *from as libc::c_char;
    }
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
