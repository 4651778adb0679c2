//! What of the host a node sees: the system that packages installed, and nothing that tells one host from another.
//!
//! Packages ship most of /usr and /etc, the same everywhere. What their installation, the administrator or the system's
//! running wrote beside that is left out here, or replaced by what [`own_entries`] gives in its place: users and groups,
//! the time zone, caches, logs, keys. What a package may not do without stays, though an installation made it
//! (/etc/alternatives, the certificates of authorities, /usr/local): programs that open it find it, and the manifest
//! names it with its hash.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::host_tree::{DIRECTORY, REGULAR, SYMLINK, TYPE_MASK};
use super::ld_cache;

/// Entries of the host's root directory that nodes see: where packages install, and the stores of Nix and Guix, whose
/// names are hashes. What else lies there is the host's own affair, as /home is.
pub const HOST_FOLDERS: [&str; 11] = [
    "bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "sbin", "usr", "var",
];

/// Below /var, directories show (packages make them, with the owner that their daemons need), and so do the links that
/// lie here; files are what some program left there.
const VAR_LINKS: [&str; 2] = ["/var", "/var/spool"];
/// Below these, all of /var/lib shows: libraries that live there.
const VAR_SHOWN: [&str; 3] = ["/var/lib/gems", "/var/lib/ghc", "/var/lib/texmf"];

/// What no node sees, besides that. A `*` at the end stands for the rest of the name.
const HIDDEN: [&str; 43] = [
    // The engine gives these to every node.
    "/etc/hostname",
    "/etc/hosts",
    "/etc/machine-id",
    "/etc/resolv.conf",
    // Locks, backups and stamps.
    "/etc/.pwd.lock",
    "/etc/.updated",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/passwd-",
    "/etc/shadow-",
    "/etc/subgid-",
    "/etc/subuid-",
    // Answers to the installer's questions, and the host's hardware.
    "/etc/NetworkManager/system-connections/*",
    "/etc/adjtime",
    "/etc/blkid.tab*",
    "/etc/cloud/*",
    "/etc/crypttab",
    "/etc/default/console-setup",
    "/etc/default/grub*",
    "/etc/default/keyboard",
    "/etc/hostid",
    "/etc/locale.conf",
    "/etc/locale.gen",
    "/etc/lvm/archive",
    "/etc/lvm/backup",
    "/etc/machine-info",
    "/etc/mailname",
    "/etc/netplan/*",
    "/etc/network/interfaces",
    "/etc/network/interfaces.d/*",
    "/etc/papersize",
    "/etc/printcap",
    "/etc/udev/hwdb.bin",
    "/etc/vconsole.conf",
    // Package sources.
    "/etc/apt/apt.conf.d/*",
    "/etc/apt/preferences.d/*",
    "/etc/apt/sources.list*",
    "/etc/apt/trusted.gpg*",
    // Keys.
    "/etc/brlapi.key",
    "/etc/ssh/ssh_host_*",
    "/etc/ssl/certs/ssl-cert-snakeoil.pem",
    // The locales that the host's administrator chose. C, POSIX and C.UTF-8 need no archive.
    "/usr/lib/locale/locale-archive",
    // Named by the host's machine-id.
    "/var/log/journal/*",
];

/// An entry of every node's own in the place of the host's.
#[derive(Clone, Debug)]
pub(crate) enum OwnEntry {
    /// Contents, permission bits, group.
    File(Arc<[u8]>, u32, u32),
    /// Target.
    Link(&'static str),
}

/// Group of /etc/shadow.
const SHADOW: u32 = 42;
/// Users and groups: those of Debian's base-passwd, and those that its packages make when they are installed, where they
/// get whatever number is free: here they have one for good. Homes, shells and memberships are the packages'.
const PASSWD: &str = include_str!("etc/passwd");
const GROUP: &str = include_str!("etc/group");
/// Day of the last change of a password, since 1970.
const PASSWORD_DAY: u32 = 19_000;

/// Where the host's root is shown through this, its files that stand for the host are replaced by these.
fn fixed_entries() -> [(&'static str, OwnEntry); 20] {
    let text = |text: &str| OwnEntry::File(text.as_bytes().into(), 0o644, 0);
    let secret = |text: String| OwnEntry::File(text.into_bytes().into(), 0o640, SHADOW);
    let session = include_str!("etc/pam.d/common-session");
    [
        ("/etc/default/locale", text("")),
        ("/etc/environment", text("")),
        ("/etc/fstab", text("")),
        ("/etc/group", text(GROUP)),
        ("/etc/gshadow", secret(gshadow())),
        ("/etc/localtime", OwnEntry::Link("/usr/share/zoneinfo/Etc/UTC")),
        ("/etc/mtab", OwnEntry::Link("../proc/self/mounts")),
        ("/etc/nsswitch.conf", text(include_str!("etc/nsswitch.conf"))),
        (
            "/etc/pam.d/common-account",
            text(include_str!("etc/pam.d/common-account")),
        ),
        ("/etc/pam.d/common-auth", text(include_str!("etc/pam.d/common-auth"))),
        (
            "/etc/pam.d/common-password",
            text(include_str!("etc/pam.d/common-password")),
        ),
        ("/etc/pam.d/common-session", text(session)),
        ("/etc/pam.d/common-session-noninteractive", text(session)),
        ("/etc/passwd", text(PASSWD)),
        ("/etc/shadow", secret(shadow())),
        ("/etc/subgid", text("")),
        ("/etc/subuid", text("")),
        ("/etc/timezone", text("Etc/UTC\n")),
        ("/var/lib/dbus/machine-id", OwnEntry::Link("/etc/machine-id")),
        (ld_cache::PATH, text("")),
    ]
}

fn shadow() -> String {
    let line = |user: &str| format!("{user}:*:{PASSWORD_DAY}:0:99999:7:::\n");
    names(PASSWD).map(|(name, _)| line(name)).collect()
}

fn gshadow() -> String {
    let members = |line: &'static str| line.rsplit(':').next().unwrap_or_default();
    GROUP
        .lines()
        .zip(names(GROUP))
        .map(|(line, (name, _))| format!("{name}:*::{}\n", members(line)))
        .collect()
}

/// Names and numbers in the text of passwd(5) or group(5).
fn names(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        Some((name, number.parse().ok()?))
    })
}

/// How the host's root shows in nodes.
#[derive(Debug)]
pub(crate) struct HostView {
    /// The number here of whom the host knows by that number.
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
    own: Vec<(&'static str, OwnEntry)>,
}

impl HostView {
    /// The view of the host's files below `root`.
    pub(crate) fn of(root: &Path) -> Self {
        let own = fixed_entries().map(|(path, entry)| match path {
            ld_cache::PATH => (path, OwnEntry::File(ld_cache::make(root).into(), 0o644, 0)),
            _ => (path, entry),
        });
        Self {
            users: numbers(root, "etc/passwd", PASSWD),
            groups: numbers(root, "etc/group", GROUP),
            own: own.into(),
        }
    }

    /// What every node has of its own over the host's files, by path.
    pub(crate) fn own_entries(&self) -> &[(&'static str, OwnEntry)] {
        &self.own
    }

    /// Whether an entry of a directory shows; `dir` is the directory's path from the root, empty for the root.
    pub(crate) fn shows(&self, dir: &str, name: &[u8], mode: u32) -> bool {
        if dir.is_empty() {
            return HOST_FOLDERS.iter().any(|shown| shown.as_bytes() == name);
        }
        let kind = mode & TYPE_MASK;
        let below = |top: &str| {
            dir.strip_prefix(top)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let left_behind = match kind {
            REGULAR => true,
            SYMLINK => !VAR_LINKS.contains(&dir),
            _ => false,
        };
        if left_behind && below("/var") && !VAR_SHOWN.into_iter().any(below) {
            return false;
        }
        let is = |path: &str| {
            let rest = path.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/'));
            rest.is_some_and(|rest| match rest.strip_suffix('*') {
                Some(start) => !start.contains('/') && name.starts_with(start.as_bytes()),
                None => rest.as_bytes() == name,
            })
        };
        let replaced = kind != DIRECTORY && self.own.iter().any(|(path, _)| is(path));
        !replaced && !HIDDEN.into_iter().any(is)
    }

    /// The owner here of a file that belongs to the host's user `uid`: the one of that name, else root.
    pub(crate) fn uid(&self, uid: u32) -> u32 {
        self.users.get(&uid).copied().unwrap_or(0)
    }

    /// The same for groups.
    pub(crate) fn gid(&self, gid: u32) -> u32 {
        self.groups.get(&gid).copied().unwrap_or(0)
    }
}

/// Whether a file keeps the host's modification time. All others have one time for all: a package's files have the same
/// time on every host that installed it, but not on one that was copied or restored, and what is not of a package has
/// none. Programs seldom mind; those that keep the time of another file beside what they made of it do: Python
/// (`.pyc`) and Java (shared archives of `.jar` and of `lib/modules`).
pub(crate) fn keeps_time(name: &[u8], mode: u32) -> bool {
    mode & TYPE_MASK == REGULAR && (name.ends_with(b".py") || name.ends_with(b".jar") || name == b"modules")
}

/// Numbers of the host's users or groups in `file` below `root`, and what those of the same names have in `own`.
fn numbers(root: &Path, file: &str, own: &'static str) -> HashMap<u32, u32> {
    let own: HashMap<&str, u32> = names(own).collect();
    // A host without such a file has only numbers, which mean nothing here.
    let text = std::fs::read(root.join(file)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    names(&text)
        .filter_map(|(name, number)| Some((number, *own.get(name)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_well_formed_and_unlike_each_other() {
        for (text, fields) in [(PASSWD, 7), (GROUP, 4)] {
            let mut numbers: Vec<u32> = names(text).map(|(_, number)| number).collect();
            let mut known: Vec<&str> = names(text).map(|(name, _)| name).collect();
            assert_eq!(numbers.len(), text.lines().count());
            assert!(text.lines().all(|line| line.split(':').count() == fields));
            numbers.sort_unstable();
            known.sort_unstable();
            assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
            assert!(known.windows(2).all(|pair| pair[0] != pair[1]), "{known:?}");
        }
        let groups: HashMap<u32, &str> = names(GROUP).map(|(name, number)| (number, name)).collect();
        for line in PASSWD.lines() {
            let gid = line.split(':').nth(3).unwrap().parse().unwrap();
            assert!(groups.contains_key(&gid), "{line}");
        }
        let users: Vec<&str> = names(PASSWD).map(|(name, _)| name).collect();
        for line in GROUP.lines() {
            let members = line.rsplit(':').next().unwrap();
            let mut members = members.split(',').filter(|name| !name.is_empty());
            assert!(members.all(|name| users.contains(&name)), "{line}");
        }
        assert!(shadow().starts_with("root:*:19000:0:99999:7:::\n"));
        assert!(gshadow().contains("\nssl-cert:*::postgres\n"));
    }

    #[test]
    fn numbers_are_those_of_the_names() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(
            root.path().join("etc/passwd"),
            "root:x:0:0::/:\nme:x:1000:1000::/:\nredis:x:977:5::/:\n",
        )
        .unwrap();
        std::fs::write(root.path().join("etc/group"), "frr:x:5:\n+nis\n\nssl-cert:y\n").unwrap();
        let view = HostView::of(root.path());
        assert_eq!([0, 977, 1000, 4242].map(|uid| view.uid(uid)), [0, 106, 0, 0]);
        assert_eq!([5, 6].map(|gid| view.gid(gid)), [108, 0]);
    }

    #[test]
    fn what_tells_hosts_apart_is_hidden() {
        let root = tempfile::tempdir().unwrap();
        let view = HostView::of(root.path());
        let file = |path: &str| {
            let (dir, name) = path.rsplit_once('/').unwrap();
            view.shows(dir, name.as_bytes(), REGULAR)
        };
        let directory = |path: &str| {
            let (dir, name) = path.rsplit_once('/').unwrap();
            view.shows(dir, name.as_bytes(), DIRECTORY)
        };
        for path in [
            "/data",
            "/swapfile",
            "/etc/passwd",
            "/etc/ld.so.cache",
            "/etc/ssh/ssh_host_rsa_key.pub",
        ] {
            assert!(!file(path), "{path}");
        }
        for path in [
            "/etc/apt/sources.list",
            "/var/log/syslog",
            "/var/lib/dpkg/status",
            "/etc/pam.d/common-auth",
        ] {
            assert!(!file(path), "{path}");
        }
        for path in [
            "/etc/services",
            "/etc/ssh/ssh_config",
            "/usr/local/bin/mine",
            "/etc/group.d",
            "/var/lib/gems/a/b.rb",
        ] {
            assert!(file(path), "{path}");
        }
        for path in ["/opt", "/srv", "/mnt", "/lost+found", "/var/log/journal/0123"] {
            assert!(!directory(path), "{path}");
        }
        for path in [
            "/usr",
            "/nix",
            "/var/log",
            "/var/log/nginx",
            "/etc/apt/sources",
            "/variety/x",
        ] {
            assert!(directory(path), "{path}");
        }
        assert!(view.shows("/var", b"run", SYMLINK) && !view.shows("/var/lib/x", b"link", SYMLINK));
        assert!(view.shows("/variety", b"x", REGULAR), "not below /var");
    }

    #[test]
    fn times_stay_where_others_keep_them() {
        assert!(keeps_time(b"site.py", REGULAR) && keeps_time(b"modules", REGULAR) && keeps_time(b"a.jar", REGULAR));
        assert!(!keeps_time(b"modules", DIRECTORY) && !keeps_time(b"site.pyc", REGULAR));
    }
}
