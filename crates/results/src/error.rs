//! The one error of this crate: what failed, on which path, why, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for results of this crate.
pub type Result<T, E = ResultsError> = std::result::Result<T, E>;

/// Why a result could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The folder holds files and overwriting was not asked for.
    #[error("output folder {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// Overwriting was asked for, but the folder is not one of ours.
    #[error("output folder {} holds files that are not results of an earlier run (no manifest.json by windtunnel)", .0.display())]
    NotOurs(PathBuf),
    /// Overwriting was asked for, but the run is not over.
    #[error("output folder {} belongs to a run that is not over", .0.display())]
    InUse(PathBuf),
    /// Somebody took the folder, or its list of files, away from the run.
    #[error("output folder {} was removed or replaced while the run was going on", .0.display())]
    Removed(PathBuf),
    /// A symbolic link lies where a folder of ours should be.
    #[error("{} is a symbolic link, and results are not written through those", .0.display())]
    Link(PathBuf),
    /// The path is taken by something else than a folder.
    #[error("output folder {} is not a folder", .0.display())]
    NotADirectory(PathBuf),
    /// The file system or its permissions refuse writing.
    #[error("cannot write to {}: {source}", path.display())]
    NotWritable {
        /// File or folder in question.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// No space or quota left.
    #[error("disk full while writing {}: {source}", path.display())]
    DiskFull {
        /// File in question.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A limit on the size of one file was hit (`ulimit -f`, or the file system's own).
    #[error("file size limit reached while writing {}: {source}", path.display())]
    FileTooLarge {
        /// File in question.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A name that would leave the output folder or clash with a file of ours.
    #[error("{what} name {name:?} cannot be used as a file name")]
    BadName {
        /// "node", "interface" or "process".
        what: &'static str,
        /// The name as given.
        name: String,
    },
    /// A file of an earlier run has contents we do not know.
    #[error("{} is not readable as {what}: {reason}", path.display())]
    BadContents {
        /// File in question.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// Where and why parsing failed.
        reason: String,
    },
    /// Anything else the host refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Verb, as in "create", "write", "read".
        action: &'static str,
        /// File in question.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
}

impl ResultsError {
    /// Sorts an error of the host into the kinds users can act on.
    pub(crate) fn from_io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            io::ErrorKind::FileTooLarge => Self::FileTooLarge { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path, source },
            io::ErrorKind::NotADirectory => Self::NotADirectory(path),
            _ => Self::Io { action, path, source },
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotEmpty(_) => "name a new folder, or pass --force to replace the results of an earlier run".into(),
            Self::NotOurs(_) => "--force replaces only what windtunnel wrote; name a new folder".into(),
            Self::InUse(_) => "name another folder, or end that run before: windtunnel stop --run DIR".into(),
            Self::Removed(_) => "run it again: what the run had written into that folder is gone".into(),
            Self::Link(_) => "remove the link, or name another folder".into(),
            Self::NotADirectory(_) => "name a folder that exists or can be made".into(),
            Self::NotWritable { .. } => "name a folder you may write to".into(),
            Self::DiskFull { .. } => {
                "what was written so far is kept; free some space or capture fewer interfaces (capture: false)".into()
            }
            Self::FileTooLarge { .. } => {
                "what was written so far is kept; raise the limit (ulimit -f) or capture fewer interfaces".into()
            }
            Self::BadName { .. } => "use letters, digits, '-', '_' and '.'".into(),
            Self::Io { source, .. } if source.raw_os_error() == Some(nix::libc::EMFILE) => {
                "raise the limit on open files: `ulimit -Hn 65536` as root, or LimitNOFILE= of the service".into()
            }
            Self::BadContents { .. } | Self::Io { .. } => return None,
        })
    }
}
