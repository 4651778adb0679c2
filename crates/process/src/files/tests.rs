//! A node's files over a made-up host root.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

const LIMITS: FileLimits = FileLimits {
    disk_bytes: 1 << 20,
    output_bytes: 1000,
};

struct Fixture {
    service: FileService,
    _root: tempfile::TempDir,
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A host's root with the shapes that matter; `files` over it.
fn fixture(files: &[(&str, &str)]) -> Result<Fixture, NodeFileError> {
    fixture_as(Root::Host, files)
}

fn fixture_as(kind: fn(PathBuf) -> Root, files: &[(&str, &str)]) -> Result<Fixture, NodeFileError> {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    set_mode(dir, 0o755);
    for name in [
        "etc",
        "usr/bin",
        "tmp",
        "proc",
        "home/me",
        "var/tmp",
        "var/log/daemon",
        "usr/private",
        "usr/searchonly",
        "opt/host",
        "data",
    ] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
        set_mode(&dir.join(name), 0o755);
    }
    for (name, text) in [
        ("etc/hostname", "the-host"),
        ("etc/passwd", "root:x:0:0\nmany:x:977:0\nredis:x:978:0\n"),
        ("etc/services", "root"),
        ("etc/sudoers", "secret"),
        ("etc/timezone", "Europe/Berlin"),
        ("etc/machine-id", "the host's"),
        ("data/file", "data"),
        ("opt/host/file", "data"),
        ("var/log/daemon/log", "events"),
        ("usr/bin/module.py", "pass"),
        ("usr/bin/tool", "tool"),
        ("tmp/junk", "junk"),
        ("proc/version", "host kernel"),
        ("home/me/diary", "secret"),
        ("var/tmp/junk", "junk"),
        ("usr/private/key", "secret"),
        ("usr/searchonly/known", "known"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
        set_mode(&dir.join(name), 0o644);
    }
    set_mode(&dir.join("etc/sudoers"), 0o640);
    symlink("usr/bin", dir.join("bin")).unwrap();
    symlink("/run", dir.join("var/run")).unwrap();
    symlink("/etc/passwd", dir.join("usr/escape")).unwrap();
    symlink("../../../../../etc", dir.join("usr/up")).unwrap();
    set_mode(&dir.join("usr/private"), 0o750);
    set_mode(&dir.join("usr/searchonly"), 0o711);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("usr/pipe"),
        rustix::fs::FileType::Fifo,
        0o666.into(),
        0,
    )
    .unwrap();
    let files: Vec<NodeFile> = files
        .iter()
        .map(|(path, text)| NodeFile {
            path: (*path).into(),
            bytes: text.as_bytes().into(),
            mode: 0o644,
        })
        .collect();
    let shared = Shared::with_roots(&[kind(dir.into())], None, false).unwrap();
    Ok(Fixture {
        service: FileService::new(shared, 0, &files, 7, LIMITS, Arc::default())?,
        _root: root,
    })
}

impl Fixture {
    fn look(&mut self, path: &str) -> Result<abi::FsAttr, Errno> {
        let mut attr = abi::FsAttr {
            id: 1,
            mode: libc::S_IFDIR,
            ..no_attr()
        };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let dir = attr.id;
            self.service.lookup(dir, name.as_bytes(), &mut attr)?;
        }
        Ok(attr)
    }

    fn text(&mut self, path: &str) -> Result<String, Errno> {
        let id = self.look(path)?.id;
        let handle = self.service.open(id)?;
        let content = self.service.content(handle)?;
        let bytes = content.bytes(&self.service.shared.fds)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Errno> {
        let id = self.look(path)?.id;
        let mut names = Vec::new();
        let mut entry = abi::FsDirent {
            ino: 0,
            mode: 0,
            name_len: 0,
            name: [0; 256],
        };
        while self.service.readdir(id, names.len() as u64, &mut entry)? == 1 {
            names.push(String::from_utf8(entry.name[..entry.name_len as usize].into()).unwrap());
        }
        Ok(names)
    }
}

fn no_attr() -> abi::FsAttr {
    abi::FsAttr {
        id: 0,
        size: 0,
        mtime_ns: 0,
        ino: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev_major: 0,
        rdev_minor: 0,
        nlink: 0,
    }
}

#[test]
fn own_directories_are_empty_and_the_rest_is_sorted() {
    let mut node = fixture(&[]).unwrap();
    let names = "bin boot dev etc home media mnt opt proc root run srv sys tmp usr var";
    assert_eq!(node.list("/").unwrap().join(" "), names);
    for hidden in [
        "/home", "/proc", "/tmp", "/var/tmp", "/root", "/run", "/sys", "/dev", "/opt",
    ] {
        assert_eq!(node.list(hidden).unwrap(), Vec::<String>::new(), "{hidden}");
    }
    assert_eq!(node.look("/home/me").unwrap_err(), Errno::NOENT);
    assert_eq!(node.look("/tmp").unwrap().mode, libc::S_IFDIR | 0o1777);
    assert_eq!(node.look("/usr/pipe").unwrap_err(), Errno::NOENT);
    assert_eq!(node.look("/data/file").unwrap_err(), Errno::NOENT);
    assert_eq!(node.list("/var").unwrap(), ["lib", "log", "run", "tmp"]);
    assert_eq!(node.list("/var/log/daemon").unwrap(), Vec::<String>::new());
}

#[test]
fn what_tells_hosts_apart_is_the_same_in_all_nodes() {
    let mut node = fixture(&[("/etc/machine-id", "own")]).unwrap();
    assert_eq!(node.text("/etc/timezone").unwrap(), "Etc/UTC\n");
    assert_eq!(node.text("/etc/machine-id").unwrap(), "own");
    assert!(node.text("/etc/passwd").unwrap().contains("\nredis:x:106:106:"));
    let shadow = node.look("/etc/shadow").unwrap();
    assert_eq!((shadow.mode, shadow.uid, shadow.gid), (libc::S_IFREG | 0o640, 0, 42));
    let mut target = [0; 64];
    for (link, to) in [
        ("/etc/localtime", "/usr/share/zoneinfo/Etc/UTC"),
        ("/etc/mtab", "../proc/self/mounts"),
    ] {
        let attr = node.look(link).unwrap();
        assert_eq!((attr.mode, attr.size), (libc::S_IFLNK | 0o777, to.len() as u64));
        let len = node.service.readlink(attr.id, &mut target).unwrap();
        assert_eq!(&target[..len as usize], to.as_bytes());
    }
    let listed = node.list("/etc").unwrap();
    for name in ["localtime", "group", "ld.so.cache", "services", "sudoers", "pam.d"] {
        assert!(listed.iter().any(|is| is == name), "{name} in {listed:?}");
    }
}

#[test]
fn times_and_owners_are_not_the_hosts() {
    let mut node = fixture(&[]).unwrap();
    let root = node._root.path().to_owned();
    let chown = |path: &str, uid| std::os::unix::fs::chown(root.join(path), Some(uid), None);
    for path in ["/usr/bin", "/usr/bin/tool", "/etc/services", "/bin"] {
        assert_eq!(node.look(path).unwrap().mtime_ns, 7, "{path}");
    }
    assert!(
        node.look("/usr/bin/module.py").unwrap().mtime_ns > 7,
        "Python compares it"
    );
    if chown("etc/sudoers", 978).is_ok() && chown("var/log", 977).is_ok() {
        let mut node = FileService::new(Shared::new(&root).unwrap(), 0, &[], 7, LIMITS, Arc::default()).unwrap();
        let mut attr = no_attr();
        node.lookup(1, b"var", &mut attr).unwrap();
        let var = attr.id;
        node.lookup(var, b"log", &mut attr).unwrap();
        assert_eq!(attr.uid, 0, "nobody here is called many");
        node.lookup(1, b"etc", &mut attr).unwrap();
        let etc = attr.id;
        node.lookup(etc, b"sudoers", &mut attr).unwrap();
        assert_eq!(
            (attr.uid, attr.size),
            (106, 0),
            "redis has a number here, and what is unreadable no size"
        );
    }
}

#[test]
fn a_directory_that_the_scenario_names_is_shown_whole() {
    let mut node = fixture_as(Root::Directory, &[("/etc/hostname", "h1")]).unwrap();
    assert_eq!(node.text("/etc/sudoers").unwrap(), "secret");
    assert_eq!(node.list("/usr/private").unwrap(), ["key"]);
    assert_eq!(node.text("/home/me/diary").unwrap(), "secret");
    assert_eq!(node.text("/var/tmp/junk").unwrap(), "junk");
    assert_eq!(node.text("/tmp/junk").unwrap(), "junk");
    assert_eq!(node.text("/etc/hostname").unwrap(), "h1");
    // What the kernel mounts over is empty; what is missing is made, but no home of a user who may not be there.
    assert_eq!(node.list("/proc").unwrap(), Vec::<String>::new());
    assert_eq!(node.look("/run").unwrap().mode, libc::S_IFDIR | 0o755);
    assert_eq!(node.look("/root").unwrap_err(), Errno::NOENT);
    // Whoever made the directory is root in the node.
    let attr = node.look("/etc/sudoers").unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode & 0o7777), (0, 0, 0o640));
    assert_eq!(node.look("/usr/pipe").unwrap_err(), Errno::NOENT);
}

#[test]
fn files_of_two_roots_are_told_apart() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (folder, program) in folders.iter().zip(["/bin/true", "/bin/false"]) {
        std::fs::copy(program, folder.path().join("program")).unwrap();
    }
    let roots = folders.each_ref().map(|folder| Root::Directory(folder.path().into()));
    let shared = Shared::with_roots(&roots, None, false).unwrap();
    let mut images = Vec::new();
    for root in 0..2 {
        let mut files = FileService::new(shared.clone(), root, &[], 0, LIMITS, Arc::default()).unwrap();
        let mut attr = no_attr();
        files.lookup(1, b"program", &mut attr).unwrap();
        let handle = files.open(attr.id).unwrap();
        images.push(
            files
                .content(handle)
                .unwrap()
                .image(&shared.fds, &shared.images)
                .unwrap(),
        );
    }
    assert!(
        !Arc::ptr_eq(&images[0], &images[1]),
        "the first file looked up in each has the same index"
    );
    assert_eq!(shared.images().len(), 2);
}

#[test]
fn what_was_read_is_recorded() {
    let mut node = fixture(&[("/etc/motd", "own")]).unwrap();
    for path in ["/usr/bin/tool", "/etc/motd", "/etc/timezone", "/etc/services"] {
        node.text(path).unwrap();
    }
    node.list("/usr/bin").unwrap();
    node.list("/home").unwrap();
    let shared = node.service.shared.clone();
    let record = |path: &str, sha256: Option<&str>| InputRecord {
        path: path.into(),
        sha256: sha256.map(Into::into),
    };
    // printf root | sha256sum; printf tool | sha256sum; printf 'module.py\0100000\ntool\0100000\n' | sha256sum
    let services = "4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2";
    let tool = "7c9bbe5ec9b3fb774e8fa0f54247e93c34ddf8e5d16fe3073420de0ae81a262d";
    let bin = "4624934f897141d4f75bb388dcb192b849ebead0ac2b1173a3d5cc121f4ac1b9";
    let files = [
        record("/etc/services", Some(services)),
        record("/usr/bin/tool", Some(tool)),
    ];
    assert_eq!(shared.opened_files(), files);
    assert_eq!(shared.listed_directories(), [record("/usr/bin", Some(bin))]);
    std::fs::write(node._root.path().join("usr/bin/tool"), "other").unwrap();
    assert_eq!(shared.opened_files(), files, "of the state that the run has seen");
}

#[test]
fn only_what_everybody_may_read_is_readable() {
    let mut node = fixture(&[]).unwrap();
    assert_eq!(node.look("/etc/sudoers").unwrap().mode & 0o777, 0o640);
    assert_eq!(node.text("/etc/sudoers").unwrap_err(), Errno::ACCESS);
    assert_eq!(node.look("/usr/private").unwrap().mode & 0o777, 0o750);
    assert_eq!(node.list("/usr/private").unwrap(), Vec::<String>::new());
    assert_eq!(node.look("/usr/private/key").unwrap_err(), Errno::NOENT);
    assert_eq!(node.list("/usr/searchonly").unwrap_err(), Errno::ACCESS);
    assert_eq!(node.text("/usr/searchonly/known").unwrap(), "known");
}

#[test]
fn nothing_leads_out_of_the_tree() {
    let mut node = fixture(&[]).unwrap();
    for name in ["..", ".", "", "a/b", "etc/passwd", "\0"] {
        let mut attr = no_attr();
        assert!(node.service.lookup(1, name.as_bytes(), &mut attr).is_err(), "{name:?}");
    }
    let long = vec![b'a'; 256];
    assert_eq!(node.service.lookup(1, &long, &mut no_attr()), Err(Errno::NAMETOOLONG));
    // Links are seen as links, not followed.
    let link = node.look("/usr/escape").unwrap();
    assert_eq!(link.mode & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(node.service.open(link.id), Err(Errno::INVAL));
    let mut buffer = [0; 64];
    assert_eq!(node.service.readlink(link.id, &mut buffer), Ok(11));
    assert_eq!(&buffer[..11], b"/etc/passwd");
    assert_eq!(node.look("/usr/up/passwd").unwrap_err(), Errno::NOTDIR);
    assert_eq!(node.look("/etc/services/x").unwrap_err(), Errno::NOTDIR);
    assert_eq!(node.service.lookup(99, b"x", &mut no_attr()), Err(Errno::STALE));
}

#[test]
fn a_directory_swapped_for_a_link_is_not_entered() {
    let mut node = fixture(&[]).unwrap();
    node.look("/usr/bin").unwrap();
    let root = node._root.path();
    std::fs::rename(root.join("usr"), root.join("moved")).unwrap();
    symlink("/", root.join("usr")).unwrap();
    // `usr` is held open and still the old directory; a name below it is found there and not through the link.
    assert_eq!(node.text("/usr/bin/tool").unwrap(), "tool");
    assert_eq!(node.look("/usr/etc").unwrap_err(), Errno::NOENT);
}

#[test]
fn given_files_lie_over_the_hosts() {
    let mut node = fixture(&[
        ("/etc/hostname", "h1"),
        ("/bin/extra", "x"),
        ("/opt/a/b", "deep"),
        ("/home/u/file", "own"),
    ])
    .unwrap();
    assert_eq!(node.text("/etc/hostname").unwrap(), "h1");
    assert_eq!(node.text("/etc/services").unwrap(), "root");
    // /bin is a link on the host: the file goes where it points, and the link stays.
    assert_eq!(node.look("/bin").unwrap().mode & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(node.list("/usr/bin").unwrap(), ["extra", "module.py", "tool"]);
    assert_eq!(node.text("/opt/a/b").unwrap(), "deep");
    assert_eq!(node.list("/home").unwrap(), ["u"]);
    let attr = node.look("/etc/hostname").unwrap();
    assert_eq!(
        (attr.mode, attr.size, attr.mtime_ns, attr.uid),
        (libc::S_IFREG | 0o644, 2, 7, 0)
    );
}

#[test]
fn impossible_files_are_named() {
    let text = |files: &[(&str, &str)]| fixture(files).err().unwrap().to_string();
    assert_eq!(
        text(&[("etc/x", "")]),
        "file \"etc/x\": a path inside a node starts with / and has no empty, . or .. parts"
    );
    assert!(text(&[("/a/../b", "")]).contains("no empty, . or .. parts"));
    assert_eq!(
        text(&[("/etc/services/x", "")]),
        "file \"/etc/services/x\": \"services\" on the way to it is not a directory"
    );
    assert_eq!(
        text(&[("/etc", "")]),
        "file \"/etc\": there is already a directory of that name"
    );
    assert_eq!(
        text(&[("/a", ""), ("/a", "")]),
        "file \"/a\": there is already a file of that name"
    );
}

#[test]
fn inode_numbers_are_those_of_the_path() {
    let mut first = fixture(&[]).unwrap();
    let mut second = fixture(&[("/etc/new", "")]).unwrap();
    let ino = first.look("/etc/services").unwrap().ino;
    second.look("/usr/bin/tool").unwrap();
    assert_eq!(second.look("/etc/services").unwrap().ino, ino);
    assert_ne!(first.look("/etc/group").unwrap().ino, ino);
    let mut entry = abi::FsDirent {
        ino: 0,
        mode: 0,
        name_len: 0,
        name: [0; 256],
    };
    let etc = first.look("/etc").unwrap().id;
    let names = first.list("/etc").unwrap();
    let number = names.iter().position(|name| name == "services").unwrap();
    first.service.readdir(etc, number as u64, &mut entry).unwrap();
    assert_eq!(entry.ino, ino);
}

#[test]
fn what_was_seen_once_stays() {
    let mut node = fixture(&[]).unwrap();
    node.list("/etc").unwrap();
    assert_eq!(node.look("/etc/late").unwrap_err(), Errno::NOENT);
    std::fs::write(node._root.path().join("etc/late"), "x").unwrap();
    assert_eq!(node.look("/etc/late").unwrap_err(), Errno::NOENT);
    assert!(!node.list("/etc").unwrap().contains(&"late".to_string()));
}

#[test]
fn a_failed_write_to_a_result_is_kept() {
    let mut node = fixture(&[]).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let handle = node.service.adopt(full.into(), "stdout of h1").unwrap();
    let data = [1_u8; 4];
    assert_eq!(
        node.service.write(handle, data.as_ptr() as u64, 4, 0),
        Err(Errno::NOSPC)
    );
    let error = node.service.take_write_error().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot write stdout of h1: No space left on device (os error 28)"
    );
    assert_eq!(node.service.take_write_error(), None);
}

#[test]
fn written_files_are_copies() {
    let mut node = fixture(&[]).unwrap();
    let id = node.look("/etc/services").unwrap().id;
    let lower = node.service.open(id).unwrap();
    let data = *b"toor";
    assert_eq!(node.service.write(lower, data.as_ptr() as u64, 4, 0), Err(Errno::BADF));
    let upper = node.service.create(lower, 4).unwrap();
    assert_eq!(node.service.write(upper, data.as_ptr() as u64, 4, 2), Ok(4));
    assert_eq!(node.service.size(upper), Ok(6));
    assert_eq!(node.text("/etc/services").unwrap(), "root");
    node.service.release(upper);
    assert_eq!(node.service.size(upper), Err(Errno::BADF));
}

#[test]
fn output_ends_at_its_limit() {
    let mut node = fixture(&[]).unwrap();
    let file = tempfile::tempfile().unwrap();
    let handle = node.service.adopt(file.into(), "h1/sh-0.stdout").unwrap();
    let bytes = [b'y'; 600];
    let at = bytes.as_ptr() as u64;
    assert_eq!(node.service.write(handle, at, 600, 0), Ok(600));
    assert_eq!(node.service.write(handle, at, 600, 600), Ok(400));
    assert_eq!(node.service.take_limit_met(), None);
    assert_eq!(node.service.write(handle, at, 600, 1000), Err(Errno::NOSPC));
    let met = LimitMet::Output(1000, "h1/sh-0.stdout".into());
    assert_eq!(node.service.take_limit_met(), Some(met));
    assert_eq!(node.service.take_write_error(), None, "nothing is lost");
}

#[test]
fn what_a_node_writes_is_bounded() {
    let mut node = fixture(&[]).unwrap();
    let bytes = vec![1_u8; 1 << 20];
    let at = bytes.as_ptr() as u64;
    let first = node.service.create(0, 0).unwrap();
    assert_eq!(node.service.write(first, at, 1 << 20, 4096), Ok(1 << 20));
    let second = node.service.create(0, 0).unwrap();
    assert_eq!(node.service.write(second, at, 1, 0), Err(Errno::NOSPC));
    assert_eq!(node.service.take_limit_met(), Some(LimitMet::Disk(1 << 20)));
    assert_eq!(node.service.create(first, 1).map(drop), Err(Errno::NOSPC), "a copy");
    assert_eq!(
        (node.service.size(0), node.service.storage(0)),
        (Ok(1 << 20), Ok(1 << 20))
    );
    node.service.release(first);
    assert_eq!(node.service.write(second, at, 1, 0), Ok(1));
}
