//! What programs have written to the files beneath their own layer, brought to the host's files at the end of a run.
//!
//! A node's files are a layer over those of the host, and the layer is the kernel's. But whatever a program makes, changes or removes, it has
//! looked up before, and the tree beneath knows what was looked up ([`Seen`]). So each of these names is looked at once more, in the node,
//! by process 1: a file whose change time is not the one it was given has changed, one that is not there any more was removed, and one that
//! is there now was made. Folders that are new, or have come from elsewhere, are copied as a whole.
//!
//! Contents are read before any file of the host is changed, for the node may show that very file under another name. Nothing is removed
//! before everything else is written, and nothing at all if some of that failed. What has changed on the host meanwhile is told of.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use windtunnel_kernel::Argument;
use windtunnel_process::{Seen, SeenFile};

use crate::configure::{Calls, errno_text};
use crate::error::EngineError;
use crate::terminal::close_all;

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Room for entries of a directory, bytes.
const LISTING_BYTES: usize = 32 << 10;
/// `struct stat` of x86-64 (arch/x86/include/uapi/asm/stat.h), bytes.
const STAT_BYTES: usize = 144;
/// Header of a `struct linux_dirent64`, bytes: two numbers of 8 bytes, the record's length, the type.
const DIRENT_NAME_AT: usize = 19;
/// Where a node has file systems of its own.
const OF_THE_NODE: [&str; 3] = ["/dev", "/proc", "/sys"];
const TYPE: u32 = libc::S_IFMT;

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// What could not be written, and why.
    pub failures: Vec<String>,
    /// What else has to be known.
    pub notes: Vec<String>,
}

/// Brings what a node has changed of what it has `seen` to the host's files below `root`, but for its `own`.
///
/// # Errors
/// When the node's kernel crashes.
pub fn write_back(
    calls: &mut dyn Calls,
    seen: &dyn Fn() -> Vec<Seen>,
    own: &OwnFiles,
    root: &Path,
) -> Result<Report, EngineError> {
    let mut work = WriteBack {
        calls,
        own,
        root,
        device: 0,
        drafts: Vec::new(),
        folders: Vec::new(),
        replaced: Vec::new(),
        removals: Vec::new(),
        report: Report::default(),
    };
    match work.look(b"/")? {
        Ok(stat) => work.device = stat.device,
        Err(errno) => {
            work.failed(b"/", &errno_text(errno));
            return Ok(work.report);
        }
    }
    work.visit(b"", &seen())?;
    work.tell_of_own()?;
    work.put();
    // Two things cannot have one name: here the old one goes first.
    for (path, was, children, now) in std::mem::take(&mut work.replaced) {
        work.gone(&path, was, &children);
        work.remove();
        work.make(&path, now, None)?;
        work.put();
    }
    // Where a folder was moved, all that is in it has been seen by now.
    work.find_gone(b"", &seen())?;
    work.remove();
    Ok(work.report)
}

/// Files that a node has of its own.
#[derive(Debug, Default)]
pub struct OwnFiles {
    /// Their paths.
    pub paths: Vec<String>,
    /// Their time, and change time, too: wall clock, nanoseconds.
    pub mtime_ns: u64,
}

/// A file as the node shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stat {
    device: u64,
    ino: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime_ns: u64,
    ctime_ns: u64,
}

impl Stat {
    /// Reads a `struct stat`.
    fn parse(bytes: &[u8]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let int = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let time = |at: usize| long(at).wrapping_mul(1_000_000_000).wrapping_add(long(at + 8));
        Self {
            device: long(0),
            ino: long(8),
            mode: int(24),
            uid: int(28),
            gid: int(32),
            size: long(48),
            mtime_ns: time(88),
            ctime_ns: time(104),
        }
    }

    fn is(&self, kind: u32) -> bool {
        self.mode & TYPE == kind
    }
}

struct WriteBack<'a> {
    calls: &'a mut dyn Calls,
    own: &'a OwnFiles,
    root: &'a Path,
    /// Of the node's root file system.
    device: u64,
    /// Contents of files, read before any file of the host is changed: what the node shows may be read from there.
    drafts: Vec<(Draft, Vec<u8>, Stat, bool)>,
    /// Folders whose attributes are given when what is in them is there.
    folders: Vec<(Vec<u8>, Stat)>,
    /// Names that are of something else now, such as a folder in place of a file.
    replaced: Vec<(Vec<u8>, SeenFile, Vec<Seen>, Stat)>,
    /// Files and then their folders.
    removals: Vec<(Vec<u8>, SeenFile)>,
    report: Report,
}

impl WriteBack<'_> {
    /// Looks at the names `seen` in folder `dir` of the node, which has them beneath it.
    fn visit(&mut self, dir: &[u8], seen: &[Seen]) -> Result<(), EngineError> {
        for one in seen {
            let path = [dir, b"/", &one.name].concat();
            if self.is_of_the_node(&path) {
                continue;
            }
            let now = match self.look(&path)? {
                Ok(now) => Some(now),
                Err(errno) if errno == i64::from(libc::ENOENT) => None,
                Err(errno) => {
                    self.failed(&path, &errno_text(errno));
                    continue;
                }
            };
            match (one.was, now) {
                (_, None) => {}
                (None, Some(now)) => self.make(&path, now, None)?,
                (Some(was), Some(now)) if was.mode & TYPE != now.mode & TYPE => {
                    self.replaced.push((path, was, one.children.clone(), now));
                }
                (Some(was), Some(now)) => self.compare(&path, was, now, &one.children)?,
            }
        }
        Ok(())
    }

    /// What was there and is there, of one kind.
    fn compare(&mut self, path: &[u8], was: SeenFile, now: Stat, children: &[Seen]) -> Result<(), EngineError> {
        let replaced = now.ino != was.ino;
        match now.mode & TYPE {
            libc::S_IFDIR if now.device != self.device && !children.is_empty() => {
                self.note(
                    path,
                    "a file system was mounted there, and what is in it, or beneath it, is as it was",
                );
            }
            libc::S_IFDIR if now.device != self.device => {}
            libc::S_IFDIR => {
                if replaced {
                    self.make(path, now, None)?;
                } else if (was.mode, was.uid, was.gid) != (now.mode, now.uid, now.gid) {
                    self.folders.push((path.to_vec(), now));
                }
                self.visit(path, children)?;
            }
            libc::S_IFREG if replaced => self.make(path, now, Some(was))?,
            libc::S_IFREG if now.ctime_ns != was.mtime_ns => self.compare_files(path, was, now)?,
            libc::S_IFLNK if replaced => self.make(path, now, None)?,
            _ => {}
        }
        Ok(())
    }

    /// A file that something was done to: it may have other contents, only other attributes, or another name besides.
    fn compare_files(&mut self, path: &[u8], was: SeenFile, now: Stat) -> Result<(), EngineError> {
        if (now.mtime_ns, now.size) != (was.mtime_ns, was.size) {
            return self.make_file(path, now, Some(was));
        }
        // Written, and its time set back? That would show.
        let at = self.on_host(path);
        let there = fs::symlink_metadata(&at).ok();
        let as_seen = there.is_some_and(|there| there.is_file() && mtime_ns(&there) == was.mtime_ns);
        if as_seen && !self.is_same(path, &at)? {
            return self.make_file(path, now, Some(was));
        }
        if (was.mode, was.uid, was.gid) != (now.mode, now.uid, now.gid) {
            self.give_attributes(path, now, None);
        }
        Ok(())
    }

    /// Whether a file of the node has the contents of one of the host.
    fn is_same(&mut self, path: &[u8], at: &Path) -> Result<bool, EngineError> {
        let Ok(mut there) = File::open(at) else {
            return Ok(false);
        };
        let fd = match self.open(path)? {
            Ok(fd) => fd,
            Err(_) => return Ok(false),
        };
        let mut room = vec![0; PIECE_BYTES];
        let same = loop {
            let Ok(piece) = self.read(fd)? else { break false };
            let host = &mut room[..piece.len()];
            if piece.is_empty() {
                break true;
            }
            if there.read_exact(host).is_err() || *host != piece[..] {
                break false;
            }
        };
        close_all(self.calls, &[fd])?;
        Ok(same)
    }

    /// Opens a file of the node for reading, or an errno.
    fn open(&mut self, path: &[u8]) -> Result<Result<i32, i64>, EngineError> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let args = vec![text(path), Argument::Value(flags as u64)];
        let (fd, _) = self.calls.call(libc::SYS_open, args)?;
        Ok(if fd < 0 { Err(-fd) } else { Ok(fd as i32) })
    }

    /// What comes next of an open file, nothing at its end, or an errno.
    fn read(&mut self, from: i32) -> Result<Result<Vec<u8>, i64>, EngineError> {
        let room = Argument::Bytes(vec![0; PIECE_BYTES]);
        let args = vec![Argument::Value(from as u64), room, Argument::Value(PIECE_BYTES as u64)];
        let (length, mut args) = self.calls.call(libc::SYS_read, args)?;
        Ok(match (usize::try_from(length), args.swap_remove(1)) {
            (Ok(length), Argument::Bytes(mut piece)) => {
                piece.truncate(length);
                Ok(piece)
            }
            _ => Err(-length),
        })
    }

    /// A file, link or folder with all that is in it, as the node has it. `was`: the regular file of that name.
    fn make(&mut self, path: &[u8], now: Stat, was: Option<SeenFile>) -> Result<(), EngineError> {
        if now.device != self.device {
            return Ok(());
        }
        match now.mode & TYPE {
            libc::S_IFDIR => self.make_folder(path, now),
            libc::S_IFREG => self.make_file(path, now, was),
            libc::S_IFLNK => self.make_link(path),
            _ => {
                self.note(path, "sockets, pipes and devices are not brought to the host");
                Ok(())
            }
        }
    }

    fn make_folder(&mut self, path: &[u8], now: Stat) -> Result<(), EngineError> {
        let at = self.on_host(path);
        match fs::create_dir(&at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !is_folder(&at) => {
                self.failed(path, &words(&error));
                return Ok(());
            }
            _ => {}
        }
        let names = match self.list(path)? {
            Ok(names) => names,
            Err(errno) => {
                self.failed(path, &errno_text(errno));
                return Ok(());
            }
        };
        for name in names {
            let path = [path, b"/", &name].concat();
            match self.look(&path)? {
                Ok(now) => self.make(&path, now, None)?,
                Err(errno) => self.failed(&path, &errno_text(errno)),
            }
        }
        self.folders.push((path.to_vec(), now));
        Ok(())
    }

    fn make_link(&mut self, path: &[u8]) -> Result<(), EngineError> {
        let room = Argument::Bytes(vec![0; libc::PATH_MAX as usize]);
        let args = vec![text(path), room, Argument::Value(libc::PATH_MAX as u64)];
        let (length, mut args) = self.calls.call(libc::SYS_readlink, args)?;
        let (Ok(length), Argument::Bytes(mut target)) = (usize::try_from(length), args.swap_remove(1)) else {
            self.failed(path, &errno_text(-length));
            return Ok(());
        };
        target.truncate(length);
        let at = self.on_host(path);
        let target = OsStr::from_bytes(&target);
        if fs::read_link(&at).is_ok_and(|there| there == target) {
            return Ok(());
        }
        if let Err(error) = remove_file(&at).and_then(|()| symlink(target, &at)) {
            self.failed(path, &words(&error));
        }
        Ok(())
    }

    fn make_file(&mut self, path: &[u8], now: Stat, was: Option<SeenFile>) -> Result<(), EngineError> {
        let at = self.on_host(path);
        let there = fs::symlink_metadata(&at).ok();
        if there
            .as_ref()
            .is_some_and(|there| !there.is_file() && !there.is_symlink())
        {
            self.failed(path, "there is something else of that name on the host");
            return Ok(());
        }
        let changed = match (&was, &there) {
            (Some(was), Some(there)) => mtime_ns(there) != was.mtime_ns,
            (was, there) => was.is_some() != there.is_some(),
        };
        if changed {
            self.note(
                path,
                "it was changed on the host meanwhile; now it is as the program has written it",
            );
        }
        let fd = match self.open(path)? {
            Ok(fd) => fd,
            Err(errno) => {
                self.failed(path, &errno_text(errno));
                return Ok(());
            }
        };
        // The same file, where the program has kept it: others may have it open, or have other names for it.
        let keeps = was.is_some_and(|was| was.ino == now.ino) && there.is_some_and(|there| there.is_file());
        let copied = match Draft::beside(&at) {
            Ok((draft, mut file)) => self.copy(fd, &mut file)?.map(|()| draft),
            Err(error) => Err(words(&error)),
        };
        close_all(self.calls, &[fd])?;
        match copied {
            Ok(draft) => self.drafts.push((draft, path.to_vec(), now, keeps)),
            Err(why) => self.failed(path, &why),
        }
        Ok(())
    }

    /// Puts files in their places, and then gives folders their attributes.
    fn put(&mut self) {
        for (draft, path, now, keeps) in std::mem::take(&mut self.drafts) {
            match draft.put(&self.on_host(&path), keeps) {
                Ok(file) => self.give_attributes(&path, now, Some(&file)),
                Err(error) => self.failed(&path, &words(&error)),
            }
        }
        while let Some((path, now)) = self.folders.pop() {
            self.give_attributes(&path, now, None);
        }
    }

    /// Copies an open file of process 1; why not, if it fails.
    fn copy(&mut self, from: i32, to: &mut File) -> Result<Result<(), String>, EngineError> {
        loop {
            let piece = match self.read(from)? {
                Ok(piece) => piece,
                Err(errno) => return Ok(Err(errno_text(errno))),
            };
            if piece.is_empty() {
                return Ok(Ok(()));
            }
            if let Err(error) = to.write_all(&piece) {
                return Ok(Err(words(&error)));
            }
        }
    }

    /// Owner, mode and, of a file, time.
    fn give_attributes(&mut self, path: &[u8], now: Stat, file: Option<&File>) {
        let at = self.on_host(path);
        let given = (|| {
            let there = fs::symlink_metadata(&at)?;
            if (there.uid(), there.gid()) != (now.uid, now.gid) {
                std::os::unix::fs::lchown(&at, Some(now.uid), Some(now.gid))?;
            }
            if there.mode() & 0o7777 != now.mode & 0o7777 || there.uid() != now.uid {
                fs::set_permissions(&at, fs::Permissions::from_mode(now.mode & 0o7777))?;
            }
            match file {
                Some(file) => file.set_modified(UNIX_EPOCH + Duration::from_nanos(now.mtime_ns)),
                None => Ok(()),
            }
        })();
        if let Err(error) = given {
            self.failed(path, &format!("its attributes: {}", words(&error)));
        }
    }

    /// Says which of the node's own files were changed.
    fn tell_of_own(&mut self) -> Result<(), EngineError> {
        for path in &self.own.paths {
            let found = self.look(path.as_bytes())?;
            if found.map_or(true, |found| found.ctime_ns != self.own.mtime_ns) {
                let text = "it is the node's own, and what was written to it is dropped";
                self.note(path.as_bytes(), text);
            }
        }
        Ok(())
    }

    /// Finds what of the names `seen` in folder `dir` the node does not have any more.
    fn find_gone(&mut self, dir: &[u8], seen: &[Seen]) -> Result<(), EngineError> {
        for one in seen {
            let path = [dir, b"/", &one.name].concat();
            let Some(was) = one.was.filter(|_| !self.is_of_the_node(&path)) else {
                continue;
            };
            match self.look(&path)? {
                Ok(now) if now.is(libc::S_IFDIR) && now.device == self.device => {
                    self.find_gone(&path, &one.children)?
                }
                Err(errno) if errno == i64::from(libc::ENOENT) => self.gone(&path, was, &one.children),
                // What cannot be looked at was told before.
                _ => {}
            }
        }
        Ok(())
    }

    /// It is not in the node any more, nor is what was seen in it.
    fn gone(&mut self, path: &[u8], was: SeenFile, children: &[Seen]) {
        for child in children {
            if let Some(was) = child.was {
                self.gone(&[path, b"/", &child.name].concat(), was, &child.children);
            }
        }
        self.removals.push((path.to_vec(), was));
    }

    /// Removes what is gone, unless something could not be written.
    fn remove(&mut self) {
        let removals = std::mem::take(&mut self.removals);
        if !self.report.failures.is_empty() {
            for (path, _) in removals {
                self.note(
                    &path,
                    "the program has removed it, or moved it away, and it is left because of what failed",
                );
            }
            return;
        }
        for (path, was) in removals {
            let at = self.on_host(&path);
            let Ok(there) = fs::symlink_metadata(&at) else { continue };
            let is_folder = was.mode & TYPE == libc::S_IFDIR;
            if there.mode() & TYPE != was.mode & TYPE || !is_folder && mtime_ns(&there) != was.mtime_ns {
                self.note(
                    &path,
                    "the program has removed it, and it is left: it was changed on the host meanwhile",
                );
                continue;
            }
            let removed = if is_folder {
                fs::remove_dir(&at)
            } else {
                fs::remove_file(&at)
            };
            match removed {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    self.note(
                        &path,
                        "the program has removed it, or moved it away, and what it did not see of it is left",
                    );
                }
                Err(error) => self.failed(&path, &words(&error)),
                Ok(()) => {}
            }
        }
    }

    /// The entry of this name in the node, whatever it is, or an errno.
    fn look(&mut self, path: &[u8]) -> Result<Result<Stat, i64>, EngineError> {
        let args = vec![text(path), Argument::Bytes(vec![0; STAT_BYTES])];
        let (result, mut args) = self.calls.call(libc::SYS_lstat, args)?;
        Ok(match args.pop() {
            Some(Argument::Bytes(bytes)) if result == 0 => Ok(Stat::parse(&bytes)),
            _ => Err(-result),
        })
    }

    /// Names in a folder of the node, or an errno.
    fn list(&mut self, path: &[u8]) -> Result<Result<Vec<Vec<u8>>, i64>, EngineError> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let (fd, _) = self
            .calls
            .call(libc::SYS_open, vec![text(path), Argument::Value(flags as u64)])?;
        if fd < 0 {
            return Ok(Err(-fd));
        }
        let mut names = Vec::new();
        let end = loop {
            let room = Argument::Bytes(vec![0; LISTING_BYTES]);
            let args = vec![Argument::Value(fd as u64), room, Argument::Value(LISTING_BYTES as u64)];
            let (length, mut args) = self.calls.call(libc::SYS_getdents64, args)?;
            match (usize::try_from(length), args.swap_remove(1)) {
                (Ok(0), _) => break Ok(names),
                (Ok(length), Argument::Bytes(bytes)) => names.extend(names_in(&bytes[..length.min(bytes.len())])),
                _ => break Err(-length),
            }
        };
        close_all(self.calls, &[fd as i32])?;
        Ok(end)
    }

    fn is_of_the_node(&self, path: &[u8]) -> bool {
        let own = self.own.paths.iter().map(String::as_str).chain(OF_THE_NODE);
        own.map(str::as_bytes).any(|own| own == path)
    }

    fn on_host(&self, path: &[u8]) -> PathBuf {
        let inside = path.strip_prefix(b"/").unwrap_or(path);
        self.root.join(OsStr::from_bytes(inside))
    }

    fn failed(&mut self, path: &[u8], why: &str) {
        let path = String::from_utf8_lossy(path);
        self.report
            .failures
            .push(format!("{path} could not be brought to the host's files: {why}"));
    }

    fn note(&mut self, path: &[u8], what: &str) {
        self.report
            .notes
            .push(format!("{}: {what}", String::from_utf8_lossy(path)));
    }
}

fn text(path: &[u8]) -> Argument {
    Argument::Bytes([path, b"\0"].concat())
}

fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => errno_text(errno.into()),
        None => error.to_string(),
    }
}

fn mtime_ns(there: &fs::Metadata) -> u64 {
    let ns = i128::from(there.mtime()) * 1_000_000_000 + i128::from(there.mtime_nsec());
    ns.clamp(0, i128::from(u64::MAX)) as u64
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Removes what may be there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A file in the making, beside the one it is for; it goes with this unless it was put there.
#[derive(Debug)]
struct Draft(Option<PathBuf>);

impl Draft {
    /// With the file, to be written.
    fn beside(at: &Path) -> io::Result<(Self, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = at.with_file_name(format!(".windtunnel-{}-{number}.tmp", std::process::id()));
        let create = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(&path)
        };
        let created = match create() {
            // One that a killed run of the same number left.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_file(&path).and_then(|()| create()),
            created => created,
        };
        Ok((Self(Some(path.clone())), created?))
    }

    /// Makes it the file at `at`, or that file's contents if it is to stay the same file.
    fn put(mut self, at: &Path, keeps: bool) -> io::Result<File> {
        let path = self.0.as_ref().expect("it is put once");
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW);
        if !keeps {
            fs::rename(path, at)?;
            self.0 = None;
            return options.open(at);
        }
        let mut file = options.truncate(true).open(at)?;
        io::copy(&mut File::open(path)?, &mut file)?;
        Ok(file)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What went wrong with it was told.
        let _ = self.0.take().map(fs::remove_file);
    }
}

/// Names in the records of getdents64(2), without `.` and `..`.
fn names_in(mut records: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while records.len() > DIRENT_NAME_AT {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]])).clamp(DIRENT_NAME_AT, records.len());
        let name = records[DIRENT_NAME_AT..length]
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
        records = &records[length..];
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_listing_are_read() {
        let mut records = Vec::new();
        for name in [&b"."[..], b"..", b"a", b"longer name"] {
            let length = (DIRENT_NAME_AT + name.len() + 1).next_multiple_of(8);
            let mut record = vec![0; length];
            record[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
            record[DIRENT_NAME_AT..][..name.len()].copy_from_slice(name);
            records.extend(record);
        }
        assert_eq!(names_in(&records), [b"a".to_vec(), b"longer name".to_vec()]);
        assert!(names_in(&[0; DIRENT_NAME_AT]).is_empty());
    }

    /// Shows a folder of the host as a node would that has changed nothing.
    struct Host;

    impl Calls for Host {
        fn call(&mut self, nr: i64, args: Vec<Argument>) -> Result<(i64, Vec<Argument>), EngineError> {
            assert_eq!(nr, libc::SYS_lstat, "nothing is read of what has not changed");
            let [Argument::Bytes(path), Argument::Bytes(_)] = &args[..] else {
                panic!("a path and a buffer")
            };
            let there = Path::new(OsStr::from_bytes(&path[..path.len() - 1]));
            let Ok(there) = fs::symlink_metadata(there) else {
                return Ok((-i64::from(libc::ENOENT), args));
            };
            let mut bytes = vec![0; STAT_BYTES];
            bytes[0..8].copy_from_slice(&7u64.to_ne_bytes());
            bytes[8..16].copy_from_slice(&there.ino().to_ne_bytes());
            bytes[24..28].copy_from_slice(&there.mode().to_ne_bytes());
            bytes[104..112].copy_from_slice(&there.mtime().to_ne_bytes());
            bytes[112..120].copy_from_slice(&there.mtime_nsec().to_ne_bytes());
            Ok((0, vec![args[0].clone(), Argument::Bytes(bytes)]))
        }
    }

    #[test]
    fn what_has_not_changed_is_not_touched_and_what_changed_meanwhile_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kept"), "1").unwrap();
        let seen_as = |name: &str, mtime_ns: u64| {
            let there = fs::symlink_metadata(dir.path().join(name)).unwrap();
            let was = SeenFile {
                mode: there.mode(),
                uid: 0,
                gid: 0,
                size: there.size(),
                mtime_ns,
                ino: there.ino(),
            };
            Seen {
                name: name.as_bytes().into(),
                was: Some(was),
                children: Vec::new(),
            }
        };
        let there = fs::symlink_metadata(dir.path().join("kept")).unwrap();
        let kept = seen_as("kept", mtime_ns(&there));
        let mut host = Host;
        let mut work = WriteBack {
            calls: &mut host,
            own: &OwnFiles::default(),
            root: Path::new("/"),
            device: 7,
            drafts: Vec::new(),
            folders: Vec::new(),
            replaced: Vec::new(),
            removals: Vec::new(),
            report: Report::default(),
        };
        let path = dir.path().as_os_str().as_bytes().to_vec();
        work.visit(&path, std::slice::from_ref(&kept)).unwrap();
        work.find_gone(&path, &[kept]).unwrap();
        assert!(work.removals.is_empty() && work.report.failures.is_empty() && work.report.notes.is_empty());
        // Gone in the node, but not what the node has seen any more.
        let stale = seen_as("kept", 1).was.unwrap();
        work.removals.push(([&path[..], b"/kept"].concat(), stale));
        work.remove();
        assert!(dir.path().join("kept").exists() && work.report.notes[0].contains("changed on the host meanwhile"));
    }
}
