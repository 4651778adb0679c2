//! What each kind of port needs of the host, and whether it is there: for `windtunnel doctor`. Looking changes nothing.

use std::fs::OpenOptions;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use windtunnel_netlink::Request;

use crate::BROKER_SOCKET;
use crate::link::{ADMIN_HINT, Configurator, RAW_HINT};
use crate::tap::DEVICE;

/// No interface has this number.
const NO_INTERFACE: u32 = i32::MAX as u32;

/// A kind of port, or several, on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The kinds, as scenarios call them.
    pub kinds: &'static str,
    /// They can be opened by this process.
    pub available: bool,
    /// What they need, and what of it is missing.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Whether this process may make a TAP: the first row of [`availability`], for a thousandth of the time, as closing a packet socket
/// waits for the host's network.
pub fn tap_availability() -> Availability {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    tap(may_configure(), device.err().map(|error| error.to_string()))
}

/// Looks what this process may open.
pub fn availability() -> Vec<Availability> {
    let mut rows = vec![
        tap_availability(),
        interface(may_see_packets()),
        raw(may_configure(), may_see_packets(), Path::new(BROKER_SOCKET).exists()),
        Availability {
            kinds: "udp, vxlan, stream",
            available: true,
            detail: "need no capability".into(),
            hint: None,
        },
    ];
    if rows.iter().any(|row| !row.available) {
        rows.push(user_namespaces());
    }
    rows
}

/// Whether the host lets ordinary users make user namespaces, as far as its settings say: the last row of [`availability`].
pub fn user_namespaces() -> Availability {
    namespaces(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).ok())
}

/// CAP_NET_ADMIN in this network namespace: it is looked at before whether there is such an interface.
fn may_configure() -> bool {
    let request = Request::SetUp {
        index: NO_INTERFACE,
        up: true,
    };
    let answer = Configurator::open().and_then(|mut host| host.ask(&request));
    answer == Err(Errno::ENODEV)
}

/// CAP_NET_RAW in this network namespace.
fn may_see_packets() -> bool {
    socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).is_ok()
}

fn tap(may_configure: bool, device_error: Option<String>) -> Availability {
    let needs = format!("needs CAP_NET_ADMIN and {DEVICE}");
    let (detail, hint) = match (may_configure, &device_error) {
        (true, None) => (needs, None),
        (false, _) => (format!("{needs}; the capability is missing"), Some(ADMIN_HINT.into())),
        (true, Some(error)) => (
            format!("{needs}, which cannot be opened: {error}"),
            Some("modprobe tun (as root); a container needs the device: docker run --device /dev/net/tun".into()),
        ),
    };
    Availability {
        kinds: "tap",
        available: hint.is_none(),
        detail,
        hint,
    }
}

fn interface(may_see_packets: bool) -> Availability {
    let missing = if may_see_packets { "" } else { "; it is missing" };
    Availability {
        kinds: "interface",
        available: may_see_packets,
        detail: format!("needs CAP_NET_RAW{missing}"),
        hint: (!may_see_packets).then(|| RAW_HINT.into()),
    }
}

fn raw(may_configure: bool, may_see_packets: bool, has_broker: bool) -> Availability {
    let missing = match (may_configure, may_see_packets) {
        (true, true) => "",
        (true, false) => "; CAP_NET_RAW is missing",
        (false, true) => "; CAP_NET_ADMIN is missing",
        (false, false) => "; both capabilities are missing",
    };
    let available = missing.is_empty() || has_broker;
    let broker = if has_broker && !missing.is_empty() {
        "; a broker lends ports as far as the administrator allows (`broker: auto`)"
    } else {
        ""
    };
    Availability {
        kinds: "raw",
        available,
        detail: format!("needs CAP_NET_RAW and CAP_NET_ADMIN, and nf_tables{missing}{broker}"),
        hint: (!available).then(|| format!("{RAW_HINT}; or `windtunnel broker`, run by root, and `broker: auto`")),
    }
}

/// Whether an ordinary user may have a network namespace, and TAPs in it. `setting` reads one of /proc/sys.
fn namespaces(setting: impl Fn(&str) -> Option<String>) -> Availability {
    let is = |name: &str, value: &str| setting(name).is_some_and(|found| found.trim() == value);
    // The first is Linux's, the second Debian's, the third Ubuntu's.
    let closed = [
        ("user.max_user_namespaces", "0", "user.max_user_namespaces=15000"),
        (
            "kernel.unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let closed = closed
        .iter()
        .find(|(name, value, _)| is(&name.replace('.', "/"), value));
    let (detail, hint) = match closed {
        None => (
            "open to ordinary users: TAPs in a network of their own".to_string(),
            None,
        ),
        Some((name, value, remedy)) => (
            format!("closed to ordinary users: {name} = {value}"),
            Some(format!("sysctl -w {remedy} (as root)")),
        ),
    };
    Availability {
        kinds: "user namespaces",
        available: hint.is_none(),
        detail,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_a_remedy() {
        assert!(tap(true, None).available && interface(true).available);
        let row = tap(false, None);
        assert_eq!(
            row.detail,
            "needs CAP_NET_ADMIN and /dev/net/tun; the capability is missing"
        );
        assert!(row.hint.unwrap().contains("unshare --user --map-root-user --net"));
        let row = tap(true, Some("No such file or directory".into()));
        assert!(
            row.detail
                .ends_with("which cannot be opened: No such file or directory")
        );
        assert!(row.hint.unwrap().contains("modprobe tun"));
        assert_eq!(interface(false).detail, "needs CAP_NET_RAW; it is missing");
        assert!(raw(true, true, false).available && raw(false, false, true).available);
        assert!(raw(false, true, false).detail.ends_with("CAP_NET_ADMIN is missing"));
        let closed = |name: &str| (name == "kernel/apparmor_restrict_unprivileged_userns").then(|| "1\n".to_string());
        let row = namespaces(closed);
        assert!(!row.available);
        assert_eq!(
            row.detail,
            "closed to ordinary users: kernel.apparmor_restrict_unprivileged_userns = 1"
        );
        assert!(namespaces(|_| None).available);
    }

    #[test]
    fn what_is_said_of_taps_holds() {
        // In a network of the test's own, where it may have one, so that the host does not see the interface.
        let _ = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
        let rows = availability();
        let opened = crate::tap::Tap::open("p", None, &[], None, None);
        assert_eq!(rows[0].available, opened.is_ok(), "{rows:?} {opened:?}");
        let all = rows[..3].iter().all(|row| row.available);
        assert_eq!(rows.len(), if all { 4 } else { 5 });
    }
}
