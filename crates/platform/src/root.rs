//! What a node sees as `/`: the host's files or those of a folder, with a layer of its own above them, so that nothing it writes
//! reaches the host.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::network::{Refusal, refused};
use crate::protocol::NodeSpec;

/// Where the new tree is put together; the host always has it, and what it hides there is of no use to a node.
const STAGE: &str = "/tmp";
/// Folders that a node has of its own, empty at first, with their permission bits.
const OWN: [(&str, u32); 3] = [("tmp", 0o1777), ("run", 0o755), ("mnt", 0o755)];
/// Folders that a node with a root of its own has anyway, as in virtual time.
const ALWAYS: [(&str, u32); 2] = [("run", 0o755), ("tmp", 0o1777)];
/// File systems that are no places for files.
const NO_FILES: [&str; 12] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "tmpfs",
    "cgroup",
    "cgroup2",
    "mqueue",
    "nsfs",
    "securityfs",
    "debugfs",
    "tracefs",
];

/// Puts the tree together and makes it `/`. The folders that are read-only, for the kernel refused a layer above them.
pub(crate) fn enter(node: &NodeSpec) -> Result<Vec<String>, Refusal> {
    plain(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(refused("read the mounts of the host"))?;
    // Before the stage hides what lies below it.
    let folder = node
        .root
        .as_deref()
        .map(|path| Folder::open(path, &mounts))
        .transpose()?;
    let options = format!("mode=755,size={}", node.disk_bytes);
    plain(Some("tmpfs"), STAGE, Some("tmpfs"), MsFlags::empty(), Some(&options))?;
    let stage = Path::new(STAGE);
    for folder in ["root", "layers"] {
        make_dir(&stage.join(folder), 0o755)?;
    }
    let mut tree = Tree {
        root: stage.join("root"),
        layers: stage.join("layers"),
        count: 0,
        read_only: Vec::new(),
    };
    match folder {
        Some(folder) => tree.folder(&folder, node.rootless)?,
        None => tree.host(&mounts)?,
    }
    tree.devices(node)?;
    write_files(&tree, node)?;
    let root = tree.root.clone();
    nix::unistd::chdir(&root).map_err(refused("enter the node's files"))?;
    nix::unistd::pivot_root(".", ".").map_err(refused("make the node's files its root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(refused("let go of the host's files"))?;
    nix::unistd::chdir("/").map_err(refused("enter the node's files"))?;
    Ok(tree.read_only)
}

/// A folder of the host that is to be `/`, and the file systems mounted beneath it, held open: names may lead elsewhere later.
struct Folder {
    path: String,
    file: File,
    /// Where in it, and what.
    mounts: Vec<(PathBuf, File)>,
}

impl Folder {
    fn open(path: &str, mountinfo: &str) -> Result<Self, Refusal> {
        let what = || format!("take {path} as the root");
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
            options.open(path)
        };
        let real = fs::canonicalize(path).map_err(refused(what()))?;
        let file = open(&real).map_err(refused(what()))?;
        let mut mounts = Vec::new();
        for (place, kind) in mounts_of(mountinfo) {
            if let Ok(inside) = place.strip_prefix(&real)
                && place != real
                && (kind == "tmpfs" || !NO_FILES.contains(&kind.as_str()))
                && let Ok(file) = open(&place)
            {
                mounts.push((inside.to_owned(), file));
            }
        }
        mounts.sort_by(|(a, _), (b, _)| a.cmp(b));
        let path = path.to_owned();
        Ok(Self { path, file, mounts })
    }
}

/// A name by which the kernel finds an open folder.
fn name_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

struct Tree {
    root: PathBuf,
    layers: PathBuf,
    count: usize,
    read_only: Vec<String>,
}

impl Tree {
    /// The host's `/`, with folders of its own in it.
    fn host(&mut self, mountinfo: &str) -> Result<(), Refusal> {
        // A mount of its own, as a root has to be, but not a file system of its own: one limit holds for all that the node writes.
        let root = self.root.clone();
        plain(root.to_str(), &root, None, MsFlags::MS_BIND, None)?;
        self.top()?;
        for place in file_mounts(mountinfo) {
            self.layer(&place, &place);
        }
        for (folder, mode) in OWN {
            make_dir(&self.root.join(folder), mode)?;
        }
        // /var/run and /var/lock of the host lead to /run.
        make_dir(&self.root.join("run/lock"), 0o1777)
    }

    /// A folder as `/`.
    fn folder(&mut self, folder: &Folder, rootless: bool) -> Result<(), Refusal> {
        let (root, from) = (self.root.clone(), name_of(&folder.file));
        self.overlay(&from, &root).map_err(refused(format!(
            "lay a layer over {}, which is to be the root",
            folder.path
        )))?;
        let entries = fs::read_dir(&root).map_err(refused(format!("list {}", folder.path)))?;
        for entry in entries.flatten() {
            let Ok(about) = entry.metadata() else { continue };
            // Without root nothing can be made in what others own, but in the top of a layer.
            if rootless && about.is_dir() && about.uid() != 0 {
                let inside = Path::new("/").join(entry.file_name());
                self.layer(&from.join(entry.file_name()), &inside);
            }
        }
        for (inside, file) in &folder.mounts {
            self.layer(&name_of(file), &Path::new("/").join(inside));
        }
        for (name, mode) in ALWAYS {
            let path = root.join(name);
            if path.symlink_metadata().is_err() && make_dir(&path, mode).is_err() {
                self.read_only.push(format!("/{name}"));
            }
        }
        Ok(())
    }

    /// Everything that stands in the host's `/`.
    fn top(&mut self) -> Result<(), Refusal> {
        let entries = fs::read_dir("/").map_err(refused("list /"))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let to = self.root.join(&name);
            let own = OWN.iter().any(|(own, _)| name.to_str() == Some(own));
            if kind.is_symlink() {
                if let Ok(target) = fs::read_link(&path) {
                    symlink(target, to).map_err(refused(format!("link {}", path.display())))?;
                }
            } else if kind.is_dir() {
                make_dir(&to, 0o755)?;
                let special = matches!(name.to_str(), Some("proc" | "sys" | "dev"));
                if !own && !special {
                    self.layer(&path, &path);
                }
            }
        }
        Ok(())
    }

    /// Shows a folder of the host at `inside` with a layer above it; without one, and read-only, where the kernel refuses that.
    fn layer(&mut self, from: &Path, inside: &Path) {
        let to = self.root.join(inside.strip_prefix("/").unwrap_or(inside));
        if !to.is_dir() || self.overlay(from, &to).is_ok() {
            return;
        }
        self.read_only.push(inside.display().to_string());
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        if mount(Some(from), &to, None::<&str>, bind, None::<&str>).is_err() {
            return;
        }
        // What cannot be made read-only is not shown.
        if remount_read_only(&to).is_err() {
            let _ = umount2(&to, MntFlags::MNT_DETACH);
        }
    }

    /// Shows a folder of the host with a layer above it.
    fn overlay(&mut self, from: &Path, to: &Path) -> nix::Result<()> {
        if from.to_string_lossy().contains([',', ':', '\\']) {
            return Err(Errno::EINVAL);
        }
        self.count += 1;
        let place = self.layers.join(self.count.to_string());
        let (upper, work) = (place.join("upper"), place.join("work"));
        // The top of the layer is the folder's: its mode and owner are those that a node sees.
        fs::create_dir_all(&upper)
            .and_then(|()| fs::create_dir_all(&work))
            .and_then(|()| fs::metadata(from))
            .and_then(|about| {
                let _ = std::os::unix::fs::chown(&upper, Some(about.uid()), None);
                fs::set_permissions(&upper, about.permissions())
            })
            .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            from.display(),
            upper.display(),
            work.display()
        );
        let lay = |options: &str| mount(Some("overlay"), to, Some("overlay"), MsFlags::empty(), Some(options));
        lay(&options).or_else(|_| lay(&format!("userxattr,{options}")))
    }

    /// `/dev`, `/proc` and `/sys`.
    fn devices(&self, node: &NodeSpec) -> Result<(), Refusal> {
        for folder in ["proc", "sys", "dev"] {
            make_dir(&self.root.join(folder), 0o755)?;
        }
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        let dev = self.root.join("dev");
        plain(Some("/dev"), &dev, None, bind, None)?;
        if dev.join("shm").is_dir() {
            plain(
                Some("tmpfs"),
                dev.join("shm"),
                Some("tmpfs"),
                MsFlags::MS_NOSUID,
                Some("mode=1777"),
            )?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        plain(Some("proc"), self.root.join("proc"), Some("proc"), flags, None)?;
        let sys = self.root.join("sys");
        match plain(Some("sysfs"), &sys, Some("sysfs"), flags, None) {
            // A user namespace may make one only where the host's is all visible.
            Err(_) if node.rootless => plain(Some("/sys"), &sys, None, bind, None),
            made => made,
        }
    }
}

/// A recursive bind takes over mounts beneath: each is made read-only, with the flags it has and must keep.
fn remount_read_only(to: &Path) -> nix::Result<()> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|_| nix::errno::Errno::EIO)?;
    for (place, _) in mounts_of(&text).filter(|(place, _)| place.starts_with(to)) {
        let now = statvfs(&place)?.flags();
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        let kept = [
            (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
            (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
            (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
            (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
            (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
            (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
        ];
        flags.extend(
            kept.into_iter()
                .filter(|(has, _)| now.contains(*has))
                .map(|(_, keep)| keep),
        );
        mount(None::<&str>, &place, None::<&str>, flags, None::<&str>)?;
    }
    Ok(())
}

/// Mount points of folders with files, beneath `/`, those above before those below.
fn file_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let hidden = |place: &Path| {
        let tops = ["/proc", "/sys", "/dev", "/tmp", "/run", "/mnt"];
        place == Path::new("/") || tops.iter().any(|top| place.starts_with(top))
    };
    let mut places: Vec<PathBuf> = mounts_of(mountinfo)
        .filter(|(place, kind)| !hidden(place) && !NO_FILES.contains(&kind.as_str()) && place.is_dir())
        .map(|(place, _)| place)
        // Those in `/` itself have been shown already.
        .filter(|place| place.components().count() > 2)
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Mount points and types, as in proc_pid_mountinfo(5).
fn mounts_of(text: &str) -> impl Iterator<Item = (PathBuf, String)> {
    text.lines().filter_map(|line| {
        let place = line.split(' ').nth(4)?;
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        let plain = place
            .replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\134", "\\");
        Some((PathBuf::from(plain), kind.to_owned()))
    })
}

fn write_files(tree: &Tree, node: &NodeSpec) -> Result<(), Refusal> {
    for file in &node.files {
        let path = tree.root.join(file.path.trim_start_matches('/'));
        let what = || format!("write {}", file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(refused(what()))?;
        }
        // A link there may lead out of the tree that is being made; and without root, what is the host's cannot be written, only replaced.
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(refused(what()))?;
        }
        fs::write(&path, &file.bytes).map_err(refused(what()))?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode)).map_err(refused(what()))?;
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Refusal> {
    let what = || format!("make {}", path.display());
    fs::create_dir_all(path).map_err(refused(what()))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(refused(what()))
}

fn plain(
    source: Option<&str>,
    to: impl AsRef<Path>,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), Refusal> {
    let to = to.as_ref();
    mount(source, to, kind, flags, options).map_err(refused(format!(
        "mount {} on {}",
        source.unwrap_or("/"),
        to.display()
    )))
}
