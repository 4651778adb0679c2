//! From a path to an unpacked image.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::archive::Parts;
use crate::cache::{Cache, Draft};
use crate::compression::{self, Compression};
use crate::config::Config;
use crate::digest::{self, Hashing};
use crate::error::ImageError;
use crate::layers::{Layers, Names};
use crate::oci::{self, Plan};
use crate::tree::{self, About, Data, Entry, Index, Kind, LINKS_MAX};

/// Marks the rules by which an archive becomes a tree: other rules, other keys.
const RULES: &str = "windtunnel image 1";
/// What a tar's first header says at this offset, bytes.
const USTAR_OFFSET: usize = 257;
const TAR_BLOCK: usize = 512;

/// An unpacked image. While it lives, nobody takes its files out of the cache.
#[derive(Clone, Debug)]
pub struct Image {
    contents: PathBuf,
    index: Arc<Index>,
    _lock: Arc<File>,
}

impl Image {
    pub(crate) fn new(contents: PathBuf, index: Index, lock: Arc<File>) -> Self {
        Self {
            contents,
            index: Arc::new(index),
            _lock: lock,
        }
    }

    /// What it is.
    pub fn about(&self) -> &About {
        &self.index.about
    }

    /// Its files: entry 0 is the root, folders come before what is in them, and entries of a folder are sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.index.entries
    }

    /// Opens contents by their number.
    ///
    /// # Errors
    /// When the cache was damaged.
    pub fn open_content(&self, content: u32) -> io::Result<File> {
        File::open(self.contents.join(content.to_string()))
    }

    /// The bytes of a file of the image, by its absolute path; none: there is no such file.
    ///
    /// # Errors
    /// When the cache was damaged.
    pub fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(Data::File { content, .. }) = self.find(path).map(|entry| &entry.data) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        self.open_content(*content)?.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Follows a path, symbolic links included.
    fn find(&self, path: &str) -> Option<&Entry> {
        let entries = self.entries();
        let children = tree::children(entries);
        let mut rest: Vec<Box<[u8]>> = path.as_bytes().split(|&c| c == b'/').rev().map(Box::from).collect();
        let mut trail = vec![0];
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match &*part {
                b"" | b"." => continue,
                b".." => {
                    trail.truncate(trail.len().saturating_sub(1).max(1));
                    continue;
                }
                _ => {}
            }
            let next = *children[*trail.last()? as usize].get(&part)?;
            match &entries[next as usize].data {
                Data::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    if target.starts_with(b"/") {
                        trail.truncate(1);
                    }
                    rest.extend(target.split(|&c| c == b'/').rev().map(Box::from));
                }
                _ => trail.push(next),
            }
        }
        Some(&entries[*trail.last()? as usize])
    }
}

/// Finds images in the cache, or unpacks them into it.
pub struct Unpacker<'a> {
    /// Where they are kept.
    pub cache: &'a Cache,
    /// Ends the work once it is set.
    pub stop: &'a AtomicBool,
    /// Is told what takes a while, a sentence at a time.
    pub say: &'a dyn Fn(&str),
}

/// An opened archive or layout.
enum Found {
    /// An image, and the key of what it becomes.
    Image { parts: Parts, plan: Box<Plan> },
    /// A plain or compressed file that is the tar of a root, or of an image once it is decompressed.
    File { file: File, compression: Compression },
}

/// Looks whether there is an image that nodes could have as root, without unpacking it: of what is compressed as a whole
/// only the beginning is looked at.
///
/// # Errors
/// What is wrong with it.
pub fn check(path: &Path, name: Option<&str>) -> Result<(), ImageError> {
    match find(path, name)? {
        Found::Image { parts, plan } => {
            for layer in &plan.layers {
                drop(parts.open(&layer.part)?);
            }
        }
        Found::File { file, .. } => {
            let no_scratch = || Err(io::Error::other("xz"));
            match compression::plain(&file, &no_scratch) {
                Ok(mut plain) => check_is_tar(&mut plain)?,
                // Of xz the first bytes were seen.
                Err(error) if error.to_string() == "xz" => {}
                Err(error) => return Err(not_a_tar(&error.to_string())),
            }
        }
    }
    Ok(())
}

impl Unpacker<'_> {
    /// The image at `path`; `name` says which where there are several. It is unpacked if the cache does not have it.
    ///
    /// # Errors
    /// When it is not there, is damaged, is no image for this machine, or the cache cannot be written.
    pub fn open(&self, path: &Path, name: Option<&str>) -> Result<Image, ImageError> {
        match find(path, name)? {
            Found::Image { parts, plan } => {
                let key = key(&["config", &plan.id]);
                if let Some(image) = self.cache.get(&key)? {
                    return Ok(image);
                }
                self.tell(path);
                self.image(path, &key, self.cache.draft()?, &parts, *plan)
            }
            Found::File { file, compression } => self.file(path, name, file, compression),
        }
    }

    fn tell(&self, path: &Path) {
        (self.say)(&format!("unpacking {} for the first time", path.display()));
    }

    fn image(&self, path: &Path, key: &str, draft: Draft, parts: &Parts, plan: Plan) -> Result<Image, ImageError> {
        let mut layers = Layers::new(draft.contents(), self.stop);
        for (number, layer) in plan.layers.iter().enumerate() {
            let what = format!("layer {} of {} ({})", number + 1, plan.layers.len(), layer.part);
            let stored = parts.open(&layer.part)?;
            let unreadable = |error: io::Error| ImageError::format(format!("{what} cannot be read: {error}"));
            let mut stored = Hashing::new(stored);
            let plain = {
                let plain = compression::plain(&mut stored, &|| draft.scratch()).map_err(unreadable)?;
                let mut plain = Hashing::new(plain);
                let applied = layers.apply(&mut plain, Names::Layer);
                if let Err(ImageError::Interrupted | ImageError::Host { .. }) = applied {
                    return applied.map(|()| unreachable!("it is an error"));
                }
                // Damage shows as a tar that makes no sense, too; the digest is what tells.
                (plain.finish(), applied)
            };
            if let Some(expected) = &layer.stored {
                digest::expect(&what, expected, stored.finish().map_err(unreadable)?)?;
            }
            let (digest, applied) = plain;
            applied?;
            digest::expect(&what, &layer.plain, digest.map_err(unreadable)?)?;
        }
        let about = (plan.kind, plan.id, plan.config);
        self.publish(path, key, draft, layers, about)
    }

    /// A file that is no image by its members: the tar of a root, or something compressed.
    fn file(&self, path: &Path, name: Option<&str>, file: File, compression: Compression) -> Result<Image, ImageError> {
        let unreadable = || ImageError::host(format!("read {}", path.display()));
        let sha256 = Hashing::new(&file).finish().map_err(unreadable())?;
        let key = key(&["file", &sha256, name.unwrap_or_default()]);
        if let Some(image) = self.cache.get(&key)? {
            return Ok(image);
        }
        self.tell(path);
        let draft = self.cache.draft()?;
        rewind(&file, path)?;
        if compression != Compression::None {
            let plain = self.decompressed(path, &file, &draft)?;
            let parts = Parts::of_tar(plain.try_clone().map_err(unreadable())?)?;
            if let Some(plan) = oci::find(&parts, name)? {
                return self.image(path, &key, draft, &parts, plan);
            }
            rewind(&plain, path)?;
            return self.root(path, name, &key, draft, &plain, sha256);
        }
        let mut again = Hashing::new(&file);
        let image = self.layers_of_root(name, &draft, &mut again)?;
        digest::expect(
            "the file, which changed while it was read,",
            &sha256,
            again.finish().map_err(unreadable())?,
        )?;
        self.publish(path, &key, draft, image, (Kind::Tar, sha256, Config::default()))
    }

    fn root(
        &self,
        path: &Path,
        name: Option<&str>,
        key: &str,
        draft: Draft,
        mut tar: &File,
        sha256: String,
    ) -> Result<Image, ImageError> {
        let layers = self.layers_of_root(name, &draft, &mut tar)?;
        self.publish(path, key, draft, layers, (Kind::Tar, sha256, Config::default()))
    }

    fn layers_of_root(&self, name: Option<&str>, draft: &Draft, tar: &mut dyn Read) -> Result<Layers<'_>, ImageError> {
        if let Some(name) = name {
            return Err(ImageError::NoSuchName {
                name: name.into(),
                names: Vec::new(),
            });
        }
        let mut layers = Layers::new(draft.contents(), self.stop);
        layers.apply(tar, Names::Plain)?;
        Ok(layers)
    }

    /// A file without name that holds what `file` is compressed from.
    fn decompressed(&self, path: &Path, file: &File, draft: &Draft) -> Result<File, ImageError> {
        let unreadable = |error| not_a_tar(&format!("{}: {error}", path.display()));
        let mut plain = compression::plain(file, &|| draft.scratch()).map_err(unreadable)?;
        let mut out = draft.scratch().map_err(ImageError::host("write to the cache"))?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(ImageError::Interrupted);
            }
            let count = plain.read(&mut buffer).map_err(unreadable)?;
            if count == 0 {
                break;
            }
            io::Write::write_all(&mut out, &buffer[..count]).map_err(ImageError::host("write to the cache"))?;
        }
        rewind(&out, path)?;
        check_is_tar(&mut &out)?;
        rewind(&out, path)?;
        Ok(out)
    }

    fn publish(
        &self,
        path: &Path,
        key: &str,
        draft: Draft,
        layers: Layers<'_>,
        (kind, sha256, config): (Kind, String, Config),
    ) -> Result<Image, ImageError> {
        let (entries, bytes) = layers.finish();
        let about = About {
            kind,
            sha256,
            origin: path.display().to_string(),
            config,
            entries: entries.len() as u64,
            bytes,
        };
        self.cache.publish(draft, key, &Index { about, entries })
    }
}

fn key(parts: &[&str]) -> String {
    digest::sha256(format!("{RULES}\n{}", parts.join("\n")).as_bytes())
}

fn rewind(mut file: &File, path: &Path) -> Result<(), ImageError> {
    file.seek(SeekFrom::Start(0))
        .map(drop)
        .map_err(ImageError::host(format!("read {}", path.display())))
}

/// Opens what is at `path`, and tells what it is.
fn find(path: &Path, name: Option<&str>) -> Result<Found, ImageError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ImageError::Missing,
        _ => ImageError::host(format!("read {}", path.display()))(error),
    };
    let about = fs::metadata(path).map_err(refused)?;
    if about.is_dir() {
        let parts = Parts::Folder(path.into());
        let plan = oci::find(&parts, name)?;
        let plan = plan.ok_or_else(|| not_a_tar("the folder has no oci-layout and index.json"))?;
        return Ok(Found::Image {
            parts,
            plan: Box::new(plan),
        });
    }
    if !about.is_file() {
        return Err(not_a_tar("it is no regular file"));
    }
    let file = File::open(path).map_err(refused)?;
    let mut head = [0; 16];
    let mut length = 0;
    while length < head.len() {
        match (&file).read(&mut head[length..]).map_err(refused)? {
            0 => break,
            count => length += count,
        }
    }
    let compression = Compression::of(&head[..length]);
    rewind(&file, path)?;
    if compression == Compression::None {
        check_is_tar(&mut &file)?;
        rewind(&file, path)?;
        let parts = Parts::of_tar(file)?;
        let plan = oci::find(&parts, name)?;
        let Parts::Tar { file, members } = parts else {
            unreachable!("made from a tar")
        };
        rewind(&file, path)?;
        return Ok(match plan {
            Some(plan) => Found::Image {
                parts: Parts::Tar { file, members },
                plan: Box::new(plan),
            },
            None => Found::File { file, compression },
        });
    }
    Ok(Found::File { file, compression })
}

/// Whether a plain file begins like a tar: with a header that its check sum fits.
fn check_is_tar(file: &mut dyn Read) -> Result<(), ImageError> {
    let mut block = Vec::new();
    let read = file.take(TAR_BLOCK as u64).read_to_end(&mut block);
    read.map_err(|error| not_a_tar(&error.to_string()))?;
    if block.len() < TAR_BLOCK {
        return Err(not_a_tar("it is shorter than a tar's first header"));
    }
    // Old tars have no magic; a sum of the header's bytes they all have.
    let magic = block[USTAR_OFFSET..].starts_with(b"ustar");
    let header = tar::Header::from_byte_slice(&block);
    let sum = block[..148].iter().chain([b' '; 8].iter()).chain(&block[156..]);
    let sum: u32 = sum.map(|&byte| u32::from(byte)).sum();
    if header.cksum().is_ok_and(|expected| expected == sum) {
        return Ok(());
    }
    Err(not_a_tar(match magic {
        true => "its first header is damaged",
        false => "it does not begin with a tar's header",
    }))
}

fn not_a_tar(problem: &str) -> ImageError {
    ImageError::NotAnImage {
        problem: problem.into(),
    }
}
