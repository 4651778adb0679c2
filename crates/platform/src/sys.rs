//! The TAP driver's ioctls, which no crate wraps safely (an unsafe room).
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// A TAP rather than a TUN, no packet information, refuse a name that exists (`linux/if_tun.h`).
const TAP_FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
/// `_IOW('T', 226, int)` (`linux/if_tun.h`).
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;

/// Makes the TAP interface `name` that belongs to `fd`, an open `/dev/net/tun`, with this Ethernet address.
pub(crate) fn make_tap(fd: impl AsFd, name: &str, mac: [u8; 6]) -> Result<(), Errno> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `ifreq` is plain integers and unions of them; all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes().iter().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = TAP_FLAGS as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call has returned.
    Errno::result(unsafe { libc::ioctl(fd, libc::TUNSETIFF as _, &raw mut request) })?;
    // SAFETY: plain integers, of which all zeros is a value.
    let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
    address.sa_family = libc::ARPHRD_ETHER;
    for (to, from) in address.sa_data.iter_mut().zip(mac) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    // SAFETY: the driver takes SIOCSIFHWADDR on its own descriptor; it reads one `ifreq`, which lives until the call has returned.
    Errno::result(unsafe { libc::ioctl(fd, libc::SIOCSIFHWADDR as _, &raw mut request) }).map(drop)
}

/// Tells a TAP interface whether its cable is plugged in.
pub(crate) fn set_carrier(fd: impl AsFd, up: bool) -> Result<(), Errno> {
    let value = libc::c_int::from(up);
    // SAFETY: TUNSETCARRIER reads one `int`, which lives until the call has returned.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), TUNSETCARRIER as _, &raw const value) }).map(drop)
}

/// Takes over a descriptor that the kernel has just handed to this process.
pub(crate) fn own(fd: i32) -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: it came with SCM_RIGHTS, which makes a new descriptor that nobody else knows of.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }
}
