//! What a node sees as `/`: the host's files, with a layer of its own above them, so that nothing it writes reaches the host.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::network::{Refusal, refused};
use crate::protocol::NodeSpec;

/// Where the new tree is put together; the host always has it, and what it hides there is of no use to a node.
const STAGE: &str = "/tmp";
/// Folders that a node has of its own, empty at first, with their permission bits.
const OWN: [(&str, u32); 3] = [("tmp", 0o1777), ("run", 0o755), ("mnt", 0o755)];
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
    let options = format!("mode=755,size={}", node.disk_bytes);
    plain(Some("tmpfs"), STAGE, Some("tmpfs"), MsFlags::empty(), Some(&options))?;
    let stage = Path::new(STAGE);
    for folder in ["root", "layers", "root/proc", "root/sys", "root/dev"] {
        make_dir(&stage.join(folder), 0o755)?;
    }
    let mut tree = Tree {
        root: stage.join("root"),
        layers: stage.join("layers"),
        count: 0,
        read_only: Vec::new(),
    };
    tree.top()?;
    for place in file_mounts(&mounts) {
        tree.layer(&place);
    }
    for (folder, mode) in OWN {
        make_dir(&tree.root.join(folder), mode)?;
    }
    // /var/run and /var/lock of the host lead to /run.
    make_dir(&tree.root.join("run/lock"), 0o1777)?;
    tree.devices(node)?;
    write_files(&tree, node)?;
    let root = tree.root.clone();
    nix::unistd::chdir(&root).map_err(refused("enter the node's files"))?;
    nix::unistd::pivot_root(".", ".").map_err(refused("make the node's files its root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(refused("let go of the host's files"))?;
    nix::unistd::chdir("/").map_err(refused("enter the node's files"))?;
    Ok(tree.read_only)
}

struct Tree {
    root: PathBuf,
    layers: PathBuf,
    count: usize,
    read_only: Vec<String>,
}

impl Tree {
    /// Everything that stands in the host's `/`.
    fn top(&mut self) -> Result<(), Refusal> {
        // A mount of its own, as a root has to be, but not a file system of its own: one limit holds for all that the node writes.
        let root = self.root.clone();
        plain(root.to_str(), &root, None, MsFlags::MS_BIND, None)?;
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
                    self.layer(&path);
                }
            }
        }
        Ok(())
    }

    /// Shows a folder of the host with a layer above it; without one, and read-only, where the kernel refuses that.
    fn layer(&mut self, from: &Path) {
        let to = self.root.join(from.strip_prefix("/").unwrap_or(from));
        if !to.is_dir() {
            return;
        }
        self.count += 1;
        let place = self.layers.join(self.count.to_string());
        let (upper, work) = (place.join("upper"), place.join("work"));
        let made = fs::create_dir_all(&upper).and_then(|()| fs::create_dir_all(&work));
        // The top of the layer is the folder's: its mode and owner are those that a node sees.
        let like = fs::metadata(from).and_then(|about| {
            let _ = std::os::unix::fs::chown(&upper, Some(std::os::unix::fs::MetadataExt::uid(&about)), None);
            fs::set_permissions(&upper, about.permissions())
        });
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            from.display(),
            upper.display(),
            work.display()
        );
        let tried = [options.clone(), format!("userxattr,{options}")];
        let layered = made.and(like).is_ok()
            && !from.to_string_lossy().contains([',', ':', '\\'])
            && tried.iter().any(|options| {
                mount(
                    Some("overlay"),
                    &to,
                    Some("overlay"),
                    MsFlags::empty(),
                    Some(options.as_str()),
                )
                .is_ok()
            });
        if layered {
            return;
        }
        self.read_only.push(from.display().to_string());
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        if mount(Some(from), &to, None::<&str>, bind, None::<&str>).is_err() {
            return;
        }
        // What cannot be made read-only is not shown.
        if remount_read_only(&to).is_err() {
            let _ = umount2(&to, MntFlags::MNT_DETACH);
        }
    }

    /// `/dev`, `/proc` and `/sys`.
    fn devices(&self, node: &NodeSpec) -> Result<(), Refusal> {
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
