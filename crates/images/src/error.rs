//! Why a file is no image, or an image cannot be used.

use std::io;

/// What is wrong with an image or the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The host refuses something.
    #[error("cannot {what}: {source}")]
    Host {
        /// "read web.tar" or the like.
        what: String,
        /// What the host said.
        source: io::Error,
    },
    /// There is nothing.
    #[error("there is no such file or folder")]
    Missing,
    /// A file that is no archive.
    #[error("it is neither a tar nor an OCI image layout: {problem}")]
    NotAnImage {
        /// What was found.
        problem: String,
    },
    /// An archive that breaks the rules of its format.
    #[error("{problem}")]
    Format {
        /// What is wrong.
        problem: String,
    },
    /// Bytes that do not have the digest they should.
    #[error("{what} is damaged: its SHA-256 is {found}, not {expected}")]
    Digest {
        /// Which part.
        what: String,
        /// As the image says.
        expected: String,
        /// As computed.
        found: String,
    },
    /// It is for another machine.
    #[error("it is for {found}; nodes run linux/amd64")]
    Platform {
        /// All that it is for.
        found: String,
    },
    /// A choice has to be made.
    #[error("it holds {} images: {}", names.len(), names.join(", "))]
    Several {
        /// Their names.
        names: Vec<String>,
    },
    /// It has no image of that name.
    #[error("it has no image `{name}`; there is {}", if names.is_empty() { "none with a name".to_owned() } else { names.join(", ") })]
    NoSuchName {
        /// What was asked for.
        name: String,
        /// What is there.
        names: Vec<String>,
    },
    /// A program that does the work is not there.
    #[error("{tool} is not installed")]
    NoTool {
        /// Its name.
        tool: &'static str,
    },
    /// A program that does the work failed.
    #[error("{tool} failed ({status}); its messages are above")]
    ToolFailed {
        /// Its name.
        tool: &'static str,
        /// How it ended.
        status: String,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ImageError {
    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing => "relative paths count from the scenario file's folder; `root: host` is this host".into(),
            Self::NotAnImage { .. } => {
                "a root is a folder, the tar of one (.tar, .tar.gz, .tar.zst, .tar.xz), a `docker save`, or an OCI image layout"
                    .into()
            }
            Self::Digest { .. } => "get or make the image once more".into(),
            Self::Platform { .. } => "with Docker: `docker pull --platform linux/amd64 NAME`, then save it again".into(),
            Self::Several { names } => format!("say which, as in {{image: FILE, name: {:?}}}", names[0]),
            Self::NoSuchName { .. } => "names are those of `docker save`, or the reference names of the OCI index".into(),
            Self::NoTool { tool } => format!("apt install {tool}"),
            Self::ToolFailed { .. } => {
                "without root it needs user namespaces, newuidmap (apt install uidmap), and lines for the user in \
                 /etc/subuid and /etc/subgid"
                    .into()
            }
            _ => return None,
        })
    }

    pub(crate) fn format(problem: impl Into<String>) -> Self {
        Self::Format {
            problem: problem.into(),
        }
    }

    /// For `map_err`; `what` as in "read web.tar".
    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Host { what, source }
    }
}
