//! The host's files as all nodes see them: read once, without ever following a symbolic link.
//!
//! Shared by the nodes of a run, so that all of them see the same state even if the host changes meanwhile.
//! Of the host's own root only what everybody ("other") may read is visible, so that root and an ordinary user get the
//! same run. A directory that not everybody may search is empty: daemons find the ones that are theirs alone, as after
//! their first start. A directory that a scenario names as a root is shown whole; see [`Visibility`].
//! Sockets, pipes and devices are left out, and so is what [`HostView`] hides. A file's inode number and link count are
//! not the host's; see [`super::NodeTree`].
//!
//! What was opened or listed is remembered: those are the inputs of a run.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use windtunnel_base::hashes;

use super::host_file::Changes;
use super::host_view::{HostView, keeps_time};
use super::node_tree::{path_hash, root_ino};
use crate::host_failure::HostCall;

/// Directories kept open for quick look-ups.
const OPEN_DIRECTORIES: usize = 64;

/// What is known of a host file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAttr {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; 0 of a file that not everybody may read.
    pub size: u64,
    /// Wall clock, nanoseconds; none: the same as that of a node's own files.
    pub mtime_ns: Option<u64>,
    stamp: Stamp,
}

/// By what a file of the host is known again, unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    mtime: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
        }
    }

    fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A file or directory of the host that a run read, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputRecord {
    /// Path on the host, and in the nodes.
    pub path: String,
    /// SHA-256 of the contents in hexadecimal; none: they cannot be told, as they changed while the run went on.
    pub sha256: Option<String>,
}

impl HostAttr {
    /// Of a file whose owner (user and group) and time an image tells.
    pub(crate) fn of_image(mode: u32, (uid, gid): (u32, u32), size: u64, mtime_ns: u64) -> Self {
        Self {
            mode,
            uid,
            gid,
            size,
            mtime_ns: Some(mtime_ns),
            stamp: Stamp::default(),
        }
    }
}

/// A name that a run looked up in a directory of the host. What a node makes, changes or removes there, it has looked up before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The name.
    pub name: Box<[u8]>,
    /// What was there when it was looked up; none: nothing that nodes see.
    pub was: Option<SeenFile>,
    /// What was looked up in it, sorted by name.
    pub children: Vec<Seen>,
}

/// A file of the host as a run has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Modification time, and in a node change time, too: wall clock, nanoseconds.
    pub mtime_ns: u64,
    /// Inode number in a node, until another file takes its name.
    pub ino: u64,
}

/// Names and type bits of a directory's entries, sorted by name.
pub(crate) type Listing = Arc<[(Box<[u8]>, u32)]>;

#[derive(Debug)]
struct Entry {
    parent: u32,
    name: Box<[u8]>,
    attr: HostAttr,
    /// What was looked up so far; `None`: not there.
    children: HashMap<Box<[u8]>, Option<u32>>,
    listing: Option<Listing>,
    target: Option<Arc<[u8]>>,
}

impl Entry {
    fn new(parent: u32, name: &[u8], attr: HostAttr) -> Self {
        Self {
            parent,
            name: name.into(),
            attr,
            children: HashMap::new(),
            listing: None,
            target: None,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    directories: HashMap<u32, (u64, Arc<OwnedFd>)>,
    clock: u64,
}

/// What of a directory nodes see.
#[derive(Debug)]
pub(crate) enum Visibility {
    /// Of the host's own root what every user may read, as the view shows it.
    Everybody(HostView),
    /// What the engine's user may read, as it is.
    Same,
    /// What the engine's user may read. What belongs to that user and group is root's in the nodes, as in a user
    /// namespace: whoever unpacked the directory, it is the same root.
    Owner,
}

/// The tree below a host directory.
#[derive(Debug)]
pub(crate) struct HostTree {
    root: Arc<OwnedFd>,
    visibility: Visibility,
    inner: Mutex<Inner>,
    /// Paths of what is not on the host any more as the run has seen it.
    pub(super) changes: Changes,
}

pub(crate) const TYPE_MASK: u32 = libc::S_IFMT;
pub(crate) const DIRECTORY: u32 = libc::S_IFDIR;
pub(crate) const REGULAR: u32 = libc::S_IFREG;
pub(crate) const SYMLINK: u32 = libc::S_IFLNK;

impl HostTree {
    /// Index of the tree's root.
    pub(crate) const ROOT: u32 = 0;

    /// The tree below `root`.
    pub(crate) fn new(root: &Path, visibility: Visibility) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        let attr = visibility.attr_of(&fstat(&root)?, b"");
        let inner = Inner {
            entries: vec![Entry::new(Self::ROOT, b"", attr)],
            ..Inner::default()
        };
        Ok(Self {
            root: Arc::new(root),
            visibility,
            inner: Mutex::new(inner),
            changes: Changes::default(),
        })
    }

    /// How it is shown; none: as it is.
    pub(crate) fn view(&self) -> Option<&HostView> {
        match &self.visibility {
            Visibility::Everybody(view) => Some(view),
            Visibility::Owner | Visibility::Same => None,
        }
    }

    /// What is known of an entry.
    pub(crate) fn attr(&self, index: u32) -> HostAttr {
        self.lock().entries[index as usize].attr
    }

    /// Path from the tree's root, for messages.
    pub(crate) fn path(&self, index: u32) -> String {
        match self.lock().path(index) {
            path if path.is_empty() => "/".into(),
            path => path,
        }
    }

    /// Every directory whose entries were listed so far, sorted by path; of their names and types.
    pub(crate) fn listed_directories(&self) -> Vec<InputRecord> {
        let inner = self.lock();
        let record = |index: u32| {
            let listing = inner.entries[index as usize].listing.as_ref()?;
            let lines = listing
                .iter()
                .flat_map(|(name, mode)| [&**name, format!("\0{mode:o}\n").as_bytes()].concat());
            let path = Some(inner.path(index)).filter(|path| !path.is_empty());
            Some(InputRecord {
                path: path.unwrap_or_else(|| "/".into()),
                sha256: Some(hashes::hex(&hashes::sha256(&lines.collect::<Vec<u8>>()))),
            })
        };
        let listed = inner.numbers(|entry| entry.listing.is_some());
        let mut records: Vec<_> = listed.into_iter().filter_map(record).collect();
        records.sort();
        records
    }

    /// All names that were looked up in the root, with those in them.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().seen_in(Self::ROOT, root_ino())
    }

    /// Notes what an error says of entry `index`, and what the host lacks.
    fn told<T>(&self, inner: &Inner, index: u32, result: Result<T, Errno>) -> Result<T, Errno> {
        if let Err(Errno::STALE) = result {
            self.changes.note(inner.path(index));
        }
        result.or_short(|| format!("look at {}", inner.path(index)))
    }

    /// The entry `name` of directory `dir`.
    pub(crate) fn lookup(&self, dir: u32, name: &[u8]) -> Result<u32, Errno> {
        let mut inner = self.lock();
        let parent = inner.entries[dir as usize].attr;
        if parent.mode & TYPE_MASK != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        check_name(name)?;
        if !self.visibility.shows(parent.mode, 0o1) {
            return Err(Errno::NOENT);
        }
        if let Some(known) = inner.entries[dir as usize].children.get(name) {
            return known.ok_or(Errno::NOENT);
        }
        // A listing that was shown says which names there are.
        let listed = inner.entries[dir as usize].listing.as_ref().map(|listing| {
            let place = listing.binary_search_by(|(listed, _)| (**listed).cmp(name)).ok();
            place.map(|place| listing[place].1)
        });
        let path = inner.path(dir);
        let found = match listed {
            Some(None) => None,
            _ => {
                let found = inner.in_directory(self, dir, |fd| self.look_at(fd, &path, name));
                self.told(&inner, dir, found)?
            }
        };
        if let Some(Some(kind)) = listed
            && found.is_none_or(|attr| attr.mode & TYPE_MASK != kind)
        {
            self.changes.note(format!("{path}/{}", String::from_utf8_lossy(name)));
        }
        let index = found.map(|attr| {
            let index = u32::try_from(inner.entries.len()).expect("fewer than 2^32 files");
            inner.entries.push(Entry::new(dir, name, attr));
            index
        });
        inner.entries[dir as usize].children.insert(name.into(), index);
        index.ok_or(Errno::NOENT)
    }

    /// The entries of a directory.
    pub(crate) fn list(&self, dir: u32) -> Result<Listing, Errno> {
        let mut inner = self.lock();
        let entry = &inner.entries[dir as usize];
        if entry.attr.mode & TYPE_MASK != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        if let Some(listing) = &entry.listing {
            return Ok(listing.clone());
        }
        if !self.visibility.shows(entry.attr.mode, 0o1) {
            return Ok(Listing::default());
        }
        if !self.visibility.shows(entry.attr.mode, 0o4) {
            return Err(Errno::ACCESS);
        }
        let path = inner.path(dir);
        let entries = inner.in_directory(self, dir, |fd| self.read_names(fd, &path));
        let listing: Listing = self.told(&inner, dir, entries)?;
        inner.entries[dir as usize].listing = Some(listing.clone());
        Ok(listing)
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, index: u32) -> Result<Arc<[u8]>, Errno> {
        let mut inner = self.lock();
        let entry = &inner.entries[index as usize];
        if entry.attr.mode & TYPE_MASK != SYMLINK {
            return Err(Errno::INVAL);
        }
        if let Some(target) = &entry.target {
            return Ok(target.clone());
        }
        let parent = entry.parent;
        let name = inner.entries[index as usize].name.clone();
        let target = inner.in_directory(self, parent, |dir| readlinkat(dir, &*name, Vec::new()).map_err(as_gone));
        let target = self.told(&inner, index, target)?;
        let target: Arc<[u8]> = target.into_bytes().into();
        inner.entries[index as usize].target = Some(target.clone());
        Ok(target)
    }

    /// Opens a regular file for reading; with what the host says of it now. `ESTALE`: it is another one, or gone.
    pub(crate) fn open(&self, index: u32) -> Result<(OwnedFd, Stat), Errno> {
        let mut inner = self.lock();
        let Entry { attr, parent, .. } = inner.entries[index as usize];
        match attr.mode & TYPE_MASK {
            REGULAR => {}
            DIRECTORY => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        if !self.visibility.shows(attr.mode, 0o4) {
            return Err(Errno::ACCESS);
        }
        let name = inner.entries[index as usize].name.clone();
        let opened = inner.in_directory(self, parent, |dir| open_regular(dir, &name));
        let opened = opened.and_then(|(fd, stat)| {
            let now = Stamp::of(&stat);
            let same = stat.st_mode & TYPE_MASK == REGULAR && now.is_same_file(&attr.stamp);
            if same { Ok((fd, stat)) } else { Err(Errno::STALE) }
        });
        if matches!(opened, Err(Errno::STALE)) {
            self.changes.note(inner.path(index));
        }
        let (fd, stat) = opened?;
        if Stamp::of(&stat) != attr.stamp {
            // Its attributes were shown already.
            self.changes.note(inner.path(index));
        }
        Ok((fd, stat))
    }

    /// What is known of the entry `name` of the open directory with this path, if it shows.
    fn look_at(&self, dir: &OwnedFd, path: &str, name: &[u8]) -> Result<Option<HostAttr>, Errno> {
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.shows(path, name, stat.st_mode) => Ok(Some(self.visibility.attr_of(&stat, name))),
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Names and type bits of the entries that show of the open directory with this path, in order.
    fn read_names(&self, dir: &OwnedFd, path: &str) -> Result<Listing, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = openat(dir, ".", flags, Mode::empty())?;
        let mut entries = Vec::new();
        for item in Dir::read_from(&readable)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let mut mode = item.file_type().as_raw_mode() & TYPE_MASK;
            if mode == 0 {
                // This file system does not say in its directories.
                mode = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_mode & TYPE_MASK);
            }
            if self.shows(path, name, mode) {
                entries.push((Box::from(name), mode));
            }
        }
        entries.sort();
        Ok(entries.into())
    }

    /// Whether an entry of the directory `dir` is one for nodes.
    fn shows(&self, dir: &str, name: &[u8], mode: u32) -> bool {
        let has_contents = matches!(mode & TYPE_MASK, DIRECTORY | REGULAR | SYMLINK);
        has_contents && self.view().is_none_or(|view| view.shows(dir, name, mode))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while reading the host's files")
    }
}

impl Inner {
    /// What was looked up in directory `dir`, whose inode number in a node is `ino`.
    fn seen_in(&self, dir: u32, ino: u64) -> Vec<Seen> {
        let seen = |(name, index): (&[u8], Option<u32>)| {
            let ino = path_hash(ino, name);
            let attr = index.map(|index| self.entries[index as usize].attr);
            Seen {
                name: name.into(),
                was: attr.map(|attr| SeenFile {
                    mode: attr.mode,
                    uid: attr.uid,
                    gid: attr.gid,
                    size: attr.size,
                    mtime_ns: attr.mtime_ns.unwrap_or_default(),
                    ino,
                }),
                children: index.map_or_else(Vec::new, |index| self.seen_in(index, ino)),
            }
        };
        let children = self.entries[dir as usize].children.iter();
        let children = children.map(|(name, index)| (&**name, *index));
        let mut all: Vec<Seen> = children.map(seen).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Path from the root, which has none.
    fn path(&self, mut index: u32) -> String {
        let mut names = Vec::new();
        while index != HostTree::ROOT {
            let entry = &self.entries[index as usize];
            names.push(String::from_utf8_lossy(&entry.name));
            index = entry.parent;
        }
        names.iter().rev().flat_map(|name| ["/", name]).collect()
    }

    /// What `act` gives with a directory open; where descriptors are short, once more after all others are closed.
    fn in_directory<T>(
        &mut self,
        tree: &HostTree,
        dir: u32,
        act: impl Fn(&OwnedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.directory(tree, dir).and_then(|fd| act(&fd)) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.directories.clear();
                self.directory(tree, dir).and_then(|fd| act(&fd))
            }
            result => result,
        }
    }

    /// Numbers of the entries that are `wanted`.
    fn numbers(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u32> {
        let entries = (0..).zip(&self.entries);
        entries
            .filter(|(_, entry)| wanted(entry))
            .map(|(index, _)| index)
            .collect()
    }

    /// An open directory, reached from the root one component at a time.
    fn directory(&mut self, tree: &HostTree, dir: u32) -> Result<Arc<OwnedFd>, Errno> {
        if dir == HostTree::ROOT {
            return Ok(tree.root.clone());
        }
        self.clock += 1;
        let now = self.clock;
        if let Some((used, fd)) = self.directories.get_mut(&dir) {
            *used = now;
            return Ok(fd.clone());
        }
        let Entry { parent, attr, .. } = self.entries[dir as usize];
        let parent = self.directory(tree, parent)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&*parent, &*self.entries[dir as usize].name, flags, Mode::empty()).map_err(as_gone)?;
        if !Stamp::of(&fstat(&fd)?).is_same_file(&attr.stamp) {
            return Err(Errno::STALE);
        }
        if self.directories.len() >= OPEN_DIRECTORIES {
            let oldest = self
                .directories
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(&dir, _)| dir);
            self.directories.remove(&oldest.expect("not empty"));
        }
        let fd = Arc::new(fd);
        self.directories.insert(dir, (now, fd.clone()));
        Ok(fd)
    }
}

/// Opens what was a regular file when it was looked up.
fn open_regular(dir: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
    // Not blocking, lest the name has meanwhile become a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(as_gone)?;
    let stat = fstat(&fd)?;
    Ok((fd, stat))
}

/// `ESTALE` for errors that say that a name is not what it was when it was looked up.
fn as_gone(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::NXIO | Errno::INVAL => Errno::STALE,
        errno => errno,
    }
}

/// A name that stays in its directory.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > 255 {
        return Err(Errno::NAMETOOLONG);
    }
    let inside = !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|&c| c == b'/' || c == 0);
    if inside { Ok(()) } else { Err(Errno::NOENT) }
}

impl Visibility {
    /// Whether what needs permission `bit` of "other" is there.
    fn shows(&self, mode: u32, bit: u32) -> bool {
        matches!(self, Self::Owner | Self::Same) || mode & bit != 0
    }

    fn attr_of(&self, stat: &Stat, name: &[u8]) -> HostAttr {
        let mtime_ns = i128::from(stat.st_mtime) * 1_000_000_000 + stat.st_mtime_nsec as i128;
        let mtime_ns = mtime_ns.clamp(0, i128::from(u64::MAX)) as u64;
        let attr = HostAttr {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            mtime_ns: Some(mtime_ns),
            stamp: Stamp::of(stat),
        };
        let own_is_root = |id: u32, own: u32| if id == own { 0 } else { id };
        match self {
            Self::Same => attr,
            Self::Everybody(view) => {
                let unreadable = attr.mode & TYPE_MASK == REGULAR && attr.mode & 0o4 == 0;
                HostAttr {
                    uid: view.uid(attr.uid),
                    gid: view.gid(attr.gid),
                    size: if unreadable { 0 } else { attr.size },
                    mtime_ns: attr.mtime_ns.filter(|_| keeps_time(name, attr.mode)),
                    ..attr
                }
            }
            Self::Owner => HostAttr {
                uid: own_is_root(attr.uid, geteuid().as_raw()),
                gid: own_is_root(attr.gid, getegid().as_raw()),
                ..attr
            },
        }
    }
}
