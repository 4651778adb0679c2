//! The cache of unpacked images: a folder each, named by the hash of what it was made from.
//!
//! A folder is made under another name and appears whole, so two runs at once and a run that is killed do no harm. Whoever
//! uses or makes a folder holds a lock on it, by which others see what is in use and what was left behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::ImageError;
use crate::open::Image;
use crate::tree::{About, Index};

const INDEX: &str = "index";
const CONTENTS: &str = "files";
/// What is being made, or taken away.
const UNFINISHED: &str = ".unfinished-";
const DOOR: &str = ".lock";

/// Where unpacked images are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// An image in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is.
    pub about: About,
}

/// What was taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Images.
    pub images: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Images that are in use, and stay.
    pub in_use: u64,
}

/// A folder being filled. It goes when this is dropped, unless it was published.
#[derive(Debug)]
pub(crate) struct Draft {
    folder: PathBuf,
    _lock: File,
}

impl Cache {
    /// The cache in a folder, which is made when something is to be kept.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All images, by name of their folder.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Cached>, ImageError> {
        let about = |folder: PathBuf| {
            let index = Index::from_bytes(&fs::read(folder.join(INDEX)).ok()?)?;
            let about = index.about;
            Some(Cached { folder, about })
        };
        Ok(self.folders()?.into_iter().filter_map(about).collect())
    }

    /// Takes away all images that nobody uses, and what was left unfinished.
    ///
    /// # Errors
    /// When something cannot be taken away.
    pub fn prune(&self) -> Result<Pruned, ImageError> {
        let mut pruned = Pruned::default();
        if !self.folder.exists() {
            return Ok(pruned);
        }
        let _door = self.door()?;
        for folder in self.folders()? {
            let index = fs::read(folder.join(INDEX))
                .ok()
                .and_then(|bytes| Index::from_bytes(&bytes));
            let Some(_lock) = lock(&folder, FlockOperation::NonBlockingLockExclusive)? else {
                pruned.in_use += 1;
                continue;
            };
            // Nobody finds it half there.
            let gone = self.unfinished_name();
            fs::rename(&folder, &gone).map_err(ImageError::host(format!("rename {}", folder.display())))?;
            remove(&gone)?;
            pruned.images += 1;
            pruned.bytes += index.map_or(0, |index| index.about.bytes);
        }
        self.sweep();
        Ok(pruned)
    }

    fn folders(&self) -> Result<Vec<PathBuf>, ImageError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ImageError::host(format!("read {}", self.folder.display()))(error)),
        };
        let names = entries.flatten().map(|entry| entry.path());
        let mut folders: Vec<_> = names.filter(|path| !is_unfinished(path) && path.is_dir()).collect();
        folders.sort();
        Ok(folders)
    }

    /// The image that is there under `key`, if it is whole.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Image>, ImageError> {
        let folder = self.folder.join(key);
        let lock = match lock(&folder, FlockOperation::LockShared) {
            Ok(Some(lock)) => lock,
            // It is not there, or on its way out.
            Ok(None) | Err(_) => return Ok(None),
        };
        // One that was taken away while this waited for the lock has no index any more.
        let Some(index) = fs::read(folder.join(INDEX))
            .ok()
            .and_then(|bytes| Index::from_bytes(&bytes))
        else {
            return Ok(None);
        };
        Ok(Some(Image::new(folder.join(CONTENTS), index, Arc::new(lock))))
    }

    /// A folder to unpack into.
    pub(crate) fn draft(&self) -> Result<Draft, ImageError> {
        fs::create_dir_all(&self.folder).map_err(ImageError::host(format!("make {}", self.folder.display())))?;
        let _door = self.door()?;
        self.sweep();
        let folder = self.unfinished_name();
        let made = fs::create_dir(&folder).and_then(|()| fs::create_dir(folder.join(CONTENTS)));
        made.map_err(ImageError::host(format!("make {}", folder.display())))?;
        let lock = lock(&folder, FlockOperation::LockExclusive)?;
        let _lock = lock.expect("the call waits");
        Ok(Draft { folder, _lock })
    }

    /// Makes a draft the image under `key`, unless there is one meanwhile.
    pub(crate) fn publish(&self, draft: Draft, key: &str, index: &Index) -> Result<Image, ImageError> {
        let path = draft.folder.join(INDEX);
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(&index.to_bytes())
        };
        write().map_err(ImageError::host(format!("write {}", path.display())))?;
        let place = self.folder.join(key);
        for attempt in 0.. {
            match fs::rename(&draft.folder, &place) {
                Ok(()) => break,
                Err(error) if attempt < 2 && error.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error()) => {
                    if let Some(image) = self.get(key)? {
                        return Ok(image);
                    }
                    // Damaged, or of an older version.
                    remove(&place)?;
                }
                Err(error) => return Err(ImageError::host(format!("make {}", place.display()))(error)),
            }
        }
        // Its lock would keep this from taking one.
        drop(draft);
        let image = self.get(key)?;
        image.ok_or_else(|| ImageError::format(format!("{} went away as soon as it was made", place.display())))
    }

    /// Held while something is begun or swept, so that nobody sweeps what has just been begun and is not locked yet.
    fn door(&self) -> Result<File, ImageError> {
        let path = self.folder.join(DOOR);
        let made = File::options().create(true).append(true).open(&path);
        drop(made.map_err(ImageError::host(format!("make {}", path.display())))?);
        Ok(lock(&path, FlockOperation::LockExclusive)?.expect("the call waits"))
    }

    /// Takes away what others left unfinished. It costs nothing but room if that fails.
    fn sweep(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| is_unfinished(path)) {
            if let Ok(Some(_lock)) = lock(&path, FlockOperation::NonBlockingLockExclusive) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }

    fn unfinished_name(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()))
    }
}

impl Draft {
    /// Where contents go.
    pub fn contents(&self) -> PathBuf {
        self.folder.join(CONTENTS)
    }

    /// A file without name, for what takes too much memory.
    pub fn scratch(&self) -> io::Result<File> {
        let path = self.folder.join("scratch");
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After it was published there is nothing of that name.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// None: it is locked by somebody else.
fn lock(folder: &Path, how: FlockOperation) -> Result<Option<File>, ImageError> {
    let what = || ImageError::host(format!("lock {}", folder.display()));
    let file = File::open(folder).map_err(what())?;
    loop {
        match flock(&file, how) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(what()(errno.into())),
        }
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
}

fn remove(folder: &Path) -> Result<(), ImageError> {
    fs::remove_dir_all(folder).map_err(ImageError::host(format!("remove {}", folder.display())))
}
