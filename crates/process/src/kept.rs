//! Analyses of programs and libraries ([`crate::patch`]), kept from run to run.
//!
//! Looking at every byte of a program and its libraries costs more than all else at its start. What is found depends on
//! their bytes alone, so it is kept in the cache folder: a file for each, named after the SHA-256 of the bytes and a hash
//! of the code that looked at them. It is written under another name first, says of what it is, and ends with a
//! checksum; whatever is damaged, too large, or may have been written by another user is passed over and made anew. A
//! folder that cannot be read or written only costs time: nothing that a run shows depends on what is kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::SystemTime;

use rustix::fs::OFlags;
use windtunnel_base::hashes;

use crate::patch::{self, PatchError, Patched};

/// Of smaller files an analysis is made as quickly as it is read, bytes.
const WORTH_BYTES: usize = 32 << 10;
/// A larger entry is none of ours, bytes.
const ENTRY_MAX: u64 = 16 << 20;
/// What is kept at most, bytes and entries; half of it goes then, the oldest first.
const KEPT_MAX: Size = Size {
    bytes: 64 << 20,
    entries: 8192,
};
/// Whose analyses these are; see `build.rs`.
const VERSION: &str = env!("WINDTUNNEL_ANALYSIS");
/// Bytes of the checksum at the end of an entry.
const CHECKSUM: usize = 16;

static FOLDER: OnceLock<Folder> = OnceLock::new();

/// Keeps analyses of host files in `folder` from now on, and takes those that it holds. The first call counts.
pub fn keep_analyses_in(folder: PathBuf) {
    FOLDER.get_or_init(|| Folder::new(folder));
}

/// [`patch::analyse`] of `file`, whose SHA-256 is `hash`.
pub(crate) fn analyse(file: &[u8], hash: &[u8; 32]) -> Result<Patched, PatchError> {
    match FOLDER.get() {
        Some(folder) if file.len() >= WORTH_BYTES => folder.analyse(file, hash),
        _ => patch::analyse(file),
    }
}

/// An amount that is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    entries: u64,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Done before the first entry is written.
    prepared: Once,
}

impl Folder {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            prepared: Once::new(),
        }
    }

    fn analyse(&self, file: &[u8], hash: &[u8; 32]) -> Result<Patched, PatchError> {
        let path = self.path.join(format!("{}-{VERSION}", hashes::hex(hash)));
        let known = read(&path).and_then(|entry| decode(&entry, hash));
        if let Some(patched) = known.filter(|patched| patched.fits(file.len() as u64)) {
            return Ok(patched);
        }
        let patched = patch::analyse(file)?;
        if let Some(entry) = encode(&patched, hash) {
            self.prepared.call_once(|| {
                // Without it, writing fails below.
                let _ = fs::create_dir_all(&self.path);
                let _ = prune(&self.path, KEPT_MAX);
            });
            let _ = write(&path, &entry);
        }
        Ok(patched)
    }
}

/// The bytes of an entry: whose it is, the analysis, and a checksum of both.
fn encode(patched: &Patched, hash: &[u8; 32]) -> Option<Vec<u8>> {
    let mut entry = postcard::to_extend(&(VERSION, hash, patched), Vec::new()).ok()?;
    let checksum = hashes::checksum(&entry).to_le_bytes();
    entry.extend_from_slice(&checksum);
    Some(entry)
}

/// What an entry for the file with this SHA-256 says.
fn decode(entry: &[u8], hash: &[u8; 32]) -> Option<Patched> {
    let (body, checksum) = entry.split_at_checked(entry.len().checked_sub(CHECKSUM)?)?;
    if hashes::checksum(body).to_le_bytes() != checksum {
        return None;
    }
    let ((version, of, patched), rest): ((&str, [u8; 32], Patched), _) = postcard::take_from_bytes(body).ok()?;
    (version == VERSION && of == *hash && rest.is_empty()).then_some(patched)
}

/// All of an entry, unless somebody else could have written it.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = open.ok()?;
    let about = file.metadata().ok()?;
    let others_write = about.mode() & 0o022 != 0;
    let ours = [rustix::process::geteuid().as_raw(), 0].contains(&about.uid());
    if !about.is_file() || !ours || others_write || about.len() > ENTRY_MAX {
        return None;
    }
    let mut entry = Vec::with_capacity(about.len() as usize + 1);
    file.take(ENTRY_MAX).read_to_end(&mut entry).ok()?;
    Some(entry)
}

/// Writes an entry, all of it or nothing.
fn write(path: &Path, entry: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_file_name(format!(".unfinished-{}-{number}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file: File| file.write_all(entry))
        .and_then(|()| fs::rename(&draft, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// Removes the oldest entries, and what was left unfinished, until half of `max` is left; nothing while there is no more
/// than that.
fn prune(folder: &Path, max: Size) -> io::Result<()> {
    let mut entries = Vec::new();
    let mut held = Size::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() {
            held.bytes += about.len();
            held.entries += 1;
            entries.push((
                about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                entry.path(),
                about.len(),
            ));
        }
    }
    if held.bytes <= max.bytes && held.entries <= max.entries {
        return Ok(());
    }
    entries.sort();
    for (_, path, bytes) in entries {
        if held.bytes <= max.bytes / 2 && held.entries <= max.entries / 2 {
            break;
        }
        fs::remove_file(path)?;
        held.bytes -= bytes;
        held.entries -= 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Kept {
        place: tempfile::TempDir,
        file: Vec<u8>,
        hash: [u8; 32],
        patched: Patched,
    }

    impl Kept {
        fn new() -> Self {
            let file = fs::read("/bin/sh").unwrap();
            assert!(file.len() >= WORTH_BYTES);
            Self {
                place: tempfile::tempdir().unwrap(),
                hash: hashes::sha256(&file),
                patched: patch::analyse(&file).unwrap(),
                file,
            }
        }

        fn path(&self) -> PathBuf {
            self.place.path().join("analyses")
        }

        /// Makes or takes the analysis; the names in the folder afterwards.
        fn analyse(&self) -> Vec<PathBuf> {
            let folder = Folder::new(self.path());
            assert_eq!(folder.analyse(&self.file, &self.hash).unwrap(), self.patched);
            let entries = fs::read_dir(self.path());
            entries.map_or(Vec::new(), |entries| {
                entries.map(|entry| entry.unwrap().path()).collect()
            })
        }
    }

    #[test]
    fn what_is_kept_is_what_would_be_found() {
        let kept = Kept::new();
        let entries = kept.analyse();
        assert_eq!(entries.len(), 1);
        assert_eq!(kept.analyse(), entries);
        let entry = read(&entries[0]).unwrap();
        assert_eq!(decode(&entry, &kept.hash), Some(kept.patched.clone()));
        assert_eq!(decode(&entry, &[7; 32]), None, "it is of another file");
    }

    #[test]
    fn what_is_damaged_is_made_anew() {
        let kept = Kept::new();
        let path = kept.analyse().remove(0);
        let whole = fs::read(&path).unwrap();
        let mut damaged = vec![
            Vec::new(),
            whole[..whole.len() / 2].to_vec(),
            [&whole[..], b"x"].concat(),
        ];
        damaged.extend((0..whole.len()).step_by(whole.len() / 50).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        }));
        for bytes in damaged {
            assert_eq!(decode(&bytes, &kept.hash), None);
            fs::write(&path, &bytes).unwrap();
            kept.analyse();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let kept = Kept::new();
        let path = kept.analyse().remove(0);
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path), None);
        }
        kept.analyse();
        assert!(read(&path).is_some(), "made anew");
        let other = kept.place.path().join("other");
        fs::rename(&path, &other).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(read(&path), None);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(read(&path), None);
        assert_eq!(
            kept.analyse(),
            [path],
            "nothing unfinished is left where an entry cannot be written"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_done_without() {
        let kept = Kept::new();
        fs::write(kept.path(), b"no folder").unwrap();
        assert!(kept.analyse().is_empty());
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let place = tempfile::tempdir().unwrap();
        let left = |max: Size| {
            prune(place.path(), max).unwrap();
            let mut names: Vec<_> = fs::read_dir(place.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        for (age, name) in ["d", "c", "b", "a"].iter().enumerate() {
            let path = place.path().join(name);
            fs::write(&path, [0; 10]).unwrap();
            let time = SystemTime::now() - std::time::Duration::from_secs(age as u64 * 60);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let max = |bytes, entries| Size { bytes, entries };
        assert_eq!(left(max(40, 4)), ["a", "b", "c", "d"]);
        assert_eq!(left(max(60, 3)), ["d"]);
        assert_eq!(left(max(9, 3)).len(), 0);
    }
}
