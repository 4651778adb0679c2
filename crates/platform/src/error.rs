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
            Self::Node { what, .. } if what.contains("namespace") => Some(
                "run as root, or on a host that lets ordinary users make user namespaces: sysctl user.max_user_namespaces, \
                 kernel.apparmor_restrict_unprivileged_userns"
                    .into(),
            ),
            Self::Node { what, .. } if what.contains("/dev/net/tun") => {
                Some("modprobe tun (as root); a container needs the device: docker run --device /dev/net/tun".into())
            }
            Self::Source { .. } => Some(SourceError::HINT.into()),
            Self::Results(error) => error.hint(),
            _ => None,
        }
    }
}
