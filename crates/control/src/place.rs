//! Where the sockets of live runs are: in one folder of the user, so that they can be found, and linked to from the output
//! folder of each run.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::ControlError;

/// Name of the link in the output folder.
pub const LINK: &str = "control.sock";
const FOLDER: &str = "windtunnel";
const SUFFIX: &str = ".sock";
const LOCK_SUFFIX: &str = ".lock";
/// Longest path of a socket, bytes (`sun_path` of unix(7), less its NUL).
const PATH_MAX_BYTES: usize = 107;
/// Longest name of a socket in the folder, with its slash, bytes.
const NAME_MAX_BYTES: usize = 20;
/// Runs with equal process ids, as containers have them, that find a name beside each other.
const NAMES_MAX: u32 = 100;

/// The folder for sockets: in `$XDG_RUNTIME_DIR`, or in `/tmp` where that is not set or too long.
fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let runtime = runtime.map(|dir| PathBuf::from(dir).join(FOLDER));
    let fits = |dir: &PathBuf| dir.is_absolute() && dir.as_os_str().len() + NAME_MAX_BYTES < PATH_MAX_BYTES;
    runtime.filter(fits).unwrap_or_else(|| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let user = user_outside(nix::unistd::geteuid().as_raw(), &map);
        PathBuf::from(format!("/tmp/{FOLDER}-{user}"))
    })
}

/// Who a user is outside of the user namespace whose `map` this is: the root of a namespace (`unshare --map-root-user`) shares no folder with
/// the host's, but with whoever made it. See user_namespaces(7).
fn user_outside(user: u32, map: &str) -> u32 {
    let outside = |line: &str| {
        let numbers: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [inside, outside, count] = numbers[..] else {
            return None;
        };
        let offset = user.checked_sub(inside)?;
        (offset < count).then(|| outside.checked_add(offset))?
    };
    map.lines().find_map(outside).unwrap_or(user)
}

/// Makes the folder if need be; it must be ours alone.
fn prepare(folder: &Path) -> Result<(), ControlError> {
    let failed = |action| {
        move |source| ControlError::Socket {
            action,
            path: folder.to_owned(),
            source,
        }
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create")(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(failed("look at"))?;
    let ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if ours {
        Ok(())
    } else {
        Err(ControlError::UnsafeFolder(folder.to_owned()))
    }
}

/// Listens on a new socket that only this user can open.
pub(crate) fn listen() -> Result<(UnixListener, PathBuf), ControlError> {
    let folder = folder();
    let pid = std::process::id();
    let mut number = 1;
    loop {
        // Another run may remove the folder when it ends, so it is made again each time.
        prepare(&folder)?;
        let path = folder.join(match number {
            1 => format!("{pid}{SUFFIX}"),
            number => format!("{pid}-{number}{SUFFIX}"),
        });
        let listening = UnixListener::bind(&path).and_then(|listener| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        });
        match listening {
            Ok(listener) => return Ok((listener, path)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(&path) => {
                // Whoever left it is gone, and somebody else may clean up as well.
                let _ = fs::remove_file(&path);
            }
            Err(error) if number == NAMES_MAX || !is_passing(&error) => {
                return Err(ControlError::Socket {
                    action: "listen on",
                    path,
                    source: error,
                });
            }
            Err(_) => number += 1,
        }
    }
}

/// The right to look for a run by its name and to start it if there is none: of one program of this user at a time.
#[derive(Debug)]
pub struct NameLock {
    path: PathBuf,
    /// Its lock goes with this, however the program ends.
    _file: Flock<File>,
}

impl NameLock {
    /// Waits until no other program has it.
    ///
    /// # Errors
    /// What the host refuses about the file, which is beside the sockets.
    pub fn take(name: &str) -> Result<Self, ControlError> {
        let path = folder().join(format!("{name}{LOCK_SUFFIX}"));
        let failed = |source: io::Error| ControlError::Socket {
            action: "lock",
            path: path.clone(),
            source,
        };
        loop {
            // As with sockets: others may remove the folder.
            prepare(&folder())?;
            let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            let file = lock(file).map_err(|errno| failed(errno.into()))?;
            // Whoever had it before has removed the file, and others may have made a new one meanwhile.
            let (own, now) = (file.metadata().map_err(failed)?, fs::metadata(&path));
            if now.is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino())) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

/// Waits for the lock of a file.
fn lock(mut file: File) -> Result<Flock<File>, Errno> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Err((back, Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(errno),
            Ok(locked) => return Ok(locked),
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // While it is still locked.
        remove(&self.path);
    }
}

/// Whether another attempt may go better.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::NotFound)
}

/// Whether nobody listens on a socket any more.
fn is_dead(path: &Path) -> bool {
    let connected = UnixStream::connect(path);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes a socket or a lock, and the folder if it was the last.
pub(crate) fn remove(file: &Path) {
    // Whatever is in the way, the run is over and the next one does not mind.
    let _ = fs::remove_file(file);
    if let Some(folder) = file.parent() {
        let _ = fs::remove_dir(folder);
    }
}

/// The sockets of this user's live runs, in order of their names; what dead runs left is removed.
pub fn live_sockets() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> = sockets
        .filter(|path| path.to_string_lossy().ends_with(SUFFIX))
        .collect();
    sockets.retain(|path| {
        let dead = is_dead(path);
        if dead {
            remove(path);
        }
        !dead
    });
    sockets.sort();
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_namespace_is_who_made_it() {
        assert_eq!(user_outside(0, "         0       1000          1\n"), 1000);
        assert_eq!(user_outside(7, "0 1000 1\n1 100000 65536\n"), 100_006);
        assert_eq!(user_outside(1000, "         0          0 4294967295\n"), 1000);
        assert_eq!(user_outside(3, ""), 3);
    }
}
