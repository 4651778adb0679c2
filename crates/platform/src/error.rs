//! What keeps a scenario from running on the host's kernel.

use windtunnel_results::ResultsError;
use windtunnel_scenario::SourceError;

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The scenario asks for what the host's kernel does not give.
    #[error("{what}, which `--platform host` cannot do")]
    Unsupported {
        /// What it asks for, and where.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A node could not be set up.
    #[error("node {node}: cannot {what}: {reason}")]
    Node {
        /// Its name.
        node: String,
        /// What failed; completes "cannot ...".
        what: String,
        /// Why.
        reason: String,
    },
    /// A host file the scenario gives a node cannot be had.
    #[error("node {node}: {source}")]
    Source {
        /// Its name.
        node: String,
        /// Which, and why.
        source: SourceError,
    },
    /// A set-up command failed.
    #[error("node {node}: the set-up command `{command}` {how}")]
    Setup {
        /// Its name.
        node: String,
        /// The command.
        command: String,
        /// What became of it.
        how: String,
    },
    /// A call to the host failed.
    #[error("cannot {what}: {source}")]
    Host {
        /// What failed; completes "cannot ...".
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// A result could not be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
}

impl PlatformError {
    pub(crate) fn host(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Host {
            what: what.into(),
            source: source.into(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unsupported { hint, .. } => Some(hint.clone()),
            Self::Node { what, reason, .. } => node_hint(what, reason, nix::unistd::geteuid().is_root()),
            Self::Source { .. } => Some(SourceError::HINT.into()),
            Self::Results(error) => error.hint(),
            _ => None,
        }
    }
}

/// What to do about a node that could not be set up, by what failed.
fn node_hint(what: &str, reason: &str, is_root: bool) -> Option<String> {
    const CONTAINER: &str = "a container needs `docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt apparmor=unconfined \
         --security-opt systempaths=unconfined --device /dev/net/tun`";
    if what.contains("/dev/net/tun") && reason.contains("Permission denied") {
        Some("chmod 0666 /dev/net/tun (as root), as most distributions have it".into())
    } else if what.contains("/dev/net/tun") {
        Some("modprobe tun (as root); a container needs the device: docker run --device /dev/net/tun".into())
    } else if what.ends_with("as the root") {
        Some("name a folder that you may read; relative paths count from that of the scenario file".into())
    } else if what.starts_with("lay a layer over") {
        Some("the kernel's overlay file system cannot have this folder below: copy it to another file system".into())
    } else if what.contains("namespace") && !is_root {
        let remedy = windtunnel_ports::user_namespaces().hint;
        Some(match remedy {
            Some(remedy) => format!("run as root, or let ordinary users make user namespaces: {remedy}"),
            None => format!("run as root; {CONTAINER}"),
        })
    } else if what.contains("namespace") || what.starts_with("mount ") {
        Some(CONTAINER.into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_remedy() {
        for (what, reason, is_root, remedy) in [
            (
                "open /dev/net/tun",
                "ENOENT: No such file or directory",
                true,
                "modprobe tun",
            ),
            (
                "open /dev/net/tun",
                "Permission denied (os error 13)",
                false,
                "chmod 0666",
            ),
            ("make a user namespace", "EPERM", false, "run as root"),
            ("make the namespaces of a node", "EPERM", true, "--cap-add SYS_ADMIN"),
            ("take /srv/none as the root", "ENOENT", false, "name a folder"),
            (
                "lay a layer over /srv/x, which is to be the root",
                "EINVAL",
                false,
                "overlay",
            ),
            ("mount tmpfs on /tmp", "EACCES", true, "apparmor=unconfined"),
        ] {
            let hint = node_hint(what, reason, is_root).unwrap_or_default();
            assert!(hint.contains(remedy), "{what}: {hint}");
        }
        assert_eq!(node_hint("add address 10.0.0.1/24 to eth0", "EEXIST", true), None);
    }
}
