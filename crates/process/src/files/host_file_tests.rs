//! Host files that change under a run.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::Content;
use super::*;
use crate::files::Root;

/// A host root, where files are made and changed.
struct Host {
    dir: tempfile::TempDir,
    tree: Arc<LowerTree>,
    budget: FdBudget,
}

impl Host {
    /// With room for so many open files, and bytes of copies.
    fn new(files: usize, copies: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            tree: LowerTree::open_root(&Root::Directory(dir.path().into()), 0).unwrap(),
            budget: FdBudget::with_limits(files, copies).unwrap(),
            dir,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file long enough ago that its times say what happens to it from now on.
    fn make(&self, name: &str, text: &str) -> u32 {
        fs::write(self.path(name), text).unwrap();
        set_old(&self.path(name));
        self.tree.lookup(LowerTree::ROOT, name.as_bytes()).unwrap()
    }

    fn open(&self, index: u32) -> Result<Arc<Content>, Errno> {
        Content::host(&self.tree, index, &self.budget)
    }

    fn text(&self, content: &Content) -> String {
        String::from_utf8(content.bytes(&self.budget).unwrap()).unwrap()
    }

    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }
}

fn set_old(path: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(100);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
}

#[test]
fn a_copied_file_stays_what_it_was_whatever_happens_to_it() {
    let host = Host::new(8, 1 << 20);
    let names = ["written", "replaced", "longer", "shorter", "removed"];
    let before: Vec<_> = names.map(|name| host.make(name, "before")).into();
    let contents: Vec<_> = before.iter().map(|&index| host.open(index).unwrap()).collect();
    fs::write(host.path("written"), "after!").unwrap();
    host.replace("replaced", "after");
    fs::File::options()
        .append(true)
        .open(host.path("longer"))
        .unwrap()
        .write_at(b"more", 6)
        .unwrap();
    fs::write(host.path("shorter"), "").unwrap();
    fs::remove_file(host.path("removed")).unwrap();
    for (content, &index) in contents.iter().zip(&before) {
        assert_eq!(host.text(content), "before", "{}", content.name);
        let again = host.open(index).unwrap();
        assert_eq!(host.text(&again), "before", "{}", content.name);
        assert_eq!(again.size(&host.budget), Ok(6));
    }
    assert_eq!(host.tree.changed(), [""; 0]);
}

#[test]
fn a_mapping_of_a_copy_ends_where_the_file_does() {
    let host = Host::new(8, 1 << 20);
    let first = host.open(host.make("first", "first")).unwrap();
    let second = host.open(host.make("second", "second")).unwrap();
    let mapped = |content: &Content, len| {
        let bytes = |fd: BorrowedFd, offset| {
            let mut bytes = vec![0; len as usize];
            let count = rustix::io::pread(fd, &mut bytes, offset)?;
            Ok((String::from_utf8(bytes[..count].into()).unwrap(), fstat(fd)?.st_size))
        };
        content.with_backing(&host.budget, 0, len, bytes).unwrap()
    };
    let page = crate::sys::PAGE;
    let (text, size) = mapped(&second, page);
    assert_eq!(text.trim_end_matches('\0'), "second");
    assert_eq!(size as u64, 2 * page, "they share a file");
    assert_eq!(
        mapped(&first, 2 * page),
        ("first".to_owned(), 5),
        "the second's page must not show"
    );
    assert_eq!(host.text(&first), "first");
}

#[test]
fn what_is_too_large_for_a_copy_is_held_and_a_change_is_noted() {
    let host = Host::new(8, 0);
    let names = ["same", "written", "replaced", "removed", "shorter"];
    let indices = names.map(|name| host.make(name, "before"));
    let contents = indices.map(|index| host.open(index).unwrap());
    assert_eq!(host.tree.changed(), [""; 0]);
    fs::write(host.path("written"), "after!").unwrap();
    host.replace("replaced", "after");
    fs::remove_file(host.path("removed")).unwrap();
    fs::write(host.path("shorter"), "").unwrap();
    let [same, _, replaced, removed, shorter] = &contents;
    assert_eq!(host.text(same), "before");
    assert_eq!(host.text(replaced), "before");
    assert_eq!(host.text(removed), "before");
    let mut buffer = [0_u8; 8];
    let to = buffer.as_mut_ptr() as u64;
    assert_eq!(
        shorter.read(&host.budget, to, 6, 0),
        Err(Errno::IO),
        "not silently empty"
    );
    assert_eq!(host.tree.changed(), ["/shorter", "/written"]);
}

#[test]
fn held_files_beyond_the_limit_are_closed_and_opened_again() {
    let host = Host::new(8, 0);
    let indices: Vec<u32> = (0..40)
        .map(|number| host.make(&format!("f{number}"), &format!("{number}")))
        .collect();
    let contents: Vec<_> = indices.iter().map(|&index| host.open(index).unwrap()).collect();
    let open = |index: u32| host.tree.file(index).unwrap().open.lock().unwrap().is_some();
    assert!(indices.iter().filter(|&&index| open(index)).count() <= 8);
    assert!(!open(indices[0]), "the one used longest ago is closed");
    for (number, content) in contents.iter().enumerate() {
        assert_eq!(host.text(content), number.to_string());
    }
    // Of what is closed nothing is left once it is replaced.
    assert!(!open(indices[0]));
    host.replace("f0", "other");
    fs::write(host.path("f1"), "other").unwrap();
    assert_eq!(contents[0].bytes(&host.budget), Err(Errno::STALE));
    assert_eq!(host.text(&contents[1]), "other");
    assert_eq!(host.tree.changed(), ["/f0", "/f1"]);
}

#[test]
fn what_changes_after_its_attributes_were_shown_is_noted() {
    let host = Host::new(8, 1 << 20);
    let [written, replaced, removed] = ["written", "replaced", "removed"].map(|name| host.make(name, "before"));
    fs::write(host.path("written"), "after!").unwrap();
    host.replace("replaced", "after");
    fs::remove_file(host.path("removed")).unwrap();
    assert_eq!(host.text(&host.open(written).unwrap()), "after!");
    assert_eq!(host.open(replaced).unwrap_err(), Errno::STALE);
    assert_eq!(host.open(removed).unwrap_err(), Errno::STALE);
    assert_eq!(host.tree.changed(), ["/removed", "/replaced", "/written"]);
}

#[test]
fn a_listing_that_was_shown_holds() {
    let host = Host::new(8, 1 << 20);
    fs::create_dir(host.path("dir")).unwrap();
    fs::set_permissions(host.path("dir"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["dir/kept", "dir/removed", "dir/swapped"] {
        fs::write(host.path(name), "x").unwrap();
    }
    let dir = host.tree.lookup(LowerTree::ROOT, b"dir").unwrap();
    assert_eq!(host.tree.list(dir).unwrap().len(), 3);
    fs::write(host.path("dir/late"), "x").unwrap();
    fs::remove_file(host.path("dir/removed")).unwrap();
    fs::remove_file(host.path("dir/swapped")).unwrap();
    fs::create_dir(host.path("dir/swapped")).unwrap();
    assert!(host.tree.lookup(dir, b"kept").is_ok());
    assert_eq!(host.tree.lookup(dir, b"late"), Err(Errno::NOENT));
    assert_eq!(host.tree.changed(), [""; 0], "a name that was never seen is hidden");
    assert_eq!(host.tree.lookup(dir, b"removed"), Err(Errno::NOENT));
    host.tree.lookup(dir, b"swapped").unwrap();
    assert_eq!(host.tree.changed(), ["/dir/removed", "/dir/swapped"]);
}

#[test]
fn only_what_may_change_contents_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "before").unwrap();
    let now = || Identity::of(&rustix::fs::stat(&path).unwrap());
    let before = now();
    assert!(!before.is_settled() && !before.differs(&before));
    std::thread::sleep(2 * CLOCK_STEP);
    assert!(before.is_settled());
    fs::hard_link(&path, dir.path().join("link")).unwrap();
    let linked = now();
    assert!(
        linked != before && !before.differs(&linked),
        "another name is no other contents"
    );
    // Written to, with the time put back as `cp -p` does.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    std::thread::sleep(2 * CLOCK_STEP);
    fs::write(&path, "after!").unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    assert!(linked.differs(&now()));
}

#[test]
fn programs_are_mapped_beyond_their_end_without_another_copy() {
    let host = Host::new(8, 1 << 20);
    let names = ["text", "first", "second", "third"];
    let files = names.map(|name| host.make(name, if name == "text" { "text" } else { "\x7fELF" }));
    let contents = files.map(|index| host.open(index).unwrap());
    let own = |index: u32| matches!(host.tree.file(index).unwrap().copy, Some(Copied::Own(_)));
    // A quarter of the descriptors.
    assert_eq!(files.map(own), [false, true, true, false]);
    for content in &contents {
        let backing = content.with_backing(&host.budget, 0, 2 * PAGE, |fd, at| Ok((fstat(fd)?.st_size, at)));
        assert_eq!(backing, Ok((4, 0)), "it ends where the file ends");
    }
    for (content, name) in contents.iter().zip(names) {
        fs::remove_file(host.path(name)).unwrap();
        assert_eq!(host.text(content).len(), 4);
        assert_eq!(content.size(&host.budget), Ok(4));
    }
}

#[test]
fn a_file_that_does_not_hold_still_is_noted_and_told_in_its_last_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "0").unwrap();
    let (copies, fd) = (
        Copies::new(1 << 20, 0).unwrap(),
        OwnedFd::from(fs::File::open(&path).unwrap()),
    );
    let old = Identity {
        mtime: (1, 0),
        ..Identity::of(&fstat(&fd).unwrap())
    };
    let mut noted = false;
    let (now, copy) = take_copy(&fd, old, &copies, || noted = true).unwrap();
    assert!(
        !noted && matches!(copy, Some(Copied::Shared(0))),
        "it held still while it was read again"
    );
    assert_eq!(now, Identity::of(&fstat(&fd).unwrap()));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (stop, path) = (stop.clone(), path.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                fs::write(&path, "1").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    std::thread::sleep(CLOCK_STEP);
    let found = take_copy(&fd, now, &copies, || noted = true);
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(found.unwrap().1.is_some() && noted);
}
