//! Patched copies of programs and libraries, one per content, shared by every node that maps it executable.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pwrite};
use windtunnel_base::hashes;

use crate::elf::{Elf, ElfError};
use crate::host_failure::HostCall;
use crate::kept;
use crate::patch::{self, PatchError, Patched, Seeing};
use crate::sys::{EXEC, PAGE};

/// A program image that ran or was mapped executable, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageRecord {
    /// Path in the node's tree, or a description of contents made in the run.
    pub path: String,
    /// SHA-256 of the file as it is on disk, in hexadecimal.
    pub sha256: String,
}

/// An ELF file with its system call sites redirected and instructions that show the processor replaced, as a memory file: the file's bytes, then the trampolines.
#[derive(Debug)]
pub(crate) struct PatchedImage {
    memory: OwnedFd,
    /// Inode number of the memory file, as in the host's `/proc/self/maps`.
    pub inode: u64,
    /// Path in the node of the first file with these bytes.
    pub path: String,
    /// The headers of the file.
    pub elf: Elf,
    /// Where the trampolines go, before the bias; page-aligned, past the image.
    pub trampolines_vaddr: u64,
    /// Whole pages of trampolines, bytes; 0: none.
    pub trampolines_len: u64,
    /// Offset of the trampolines in the memory file, bytes.
    pub trampolines_offset: u64,
    /// What stood where the text now faults, by offset in the file, ascending.
    seeing: Vec<(u64, Seeing)>,
    /// How many instructions may show the host's processor to programs.
    unsure: u32,
    /// How many more do where the file is mapped as it is.
    replaced: u32,
    /// Whether it was mapped so.
    pub unpatched: AtomicBool,
}

impl PatchedImage {
    /// The memory file.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Whether a link-time address is in its trampolines.
    pub(crate) fn in_trampolines(&self, address: u64) -> bool {
        (self.trampolines_vaddr..self.trampolines_vaddr + self.trampolines_len).contains(&address)
    }

    /// The instruction that stood at `offset` before it was replaced.
    pub(crate) fn seeing(&self, offset: u64) -> Option<Seeing> {
        let index = self.seeing.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        Some(self.seeing[index].1)
    }

    /// The load bias (run-time address minus link-time address), given that the file's `offset` is mapped at `start`.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segment = self
            .elf
            .executable_at(offset)
            // Older linkers' first segment is the text; newer ones map the whole file before the parts.
            .or_else(|| {
                let mut segments = self.elf.segments.iter();
                segments.find(|segment| segment.prot & EXEC != 0 && offset <= segment.offset)
            })?;
        let page = |value: u64| value - value % PAGE;
        let vaddr = page(segment.vaddr)
            .checked_add(offset)?
            .checked_sub(page(segment.offset))?;
        start.checked_sub(vaddr)
    }

    fn new(path: &str, file: &[u8], analyse: impl FnOnce() -> Result<Patched, PatchError>) -> Result<Self, ImageError> {
        let elf = Elf::parse(file).map_err(ImageError::Elf)?;
        let memory = memfd_create("windtunnel-image", MemfdFlags::CLOEXEC)
            .or_failure(|| "make a memory file".into())
            .map_err(ImageError::Io)?;
        write_all(&memory, file, 0)?;
        let mut image = Self {
            inode: rustix::fs::fstat(&memory).map_err(ImageError::Io)?.st_ino,
            memory,
            path: path.to_owned(),
            elf,
            trampolines_vaddr: 0,
            trampolines_len: 0,
            trampolines_offset: (file.len() as u64).next_multiple_of(PAGE),
            seeing: Vec::new(),
            unsure: 0,
            replaced: 0,
            unpatched: AtomicBool::new(false),
        };
        let Ok(patched) = analyse() else {
            return Ok(image);
        };
        for (offset, bytes) in &patched.replaced {
            write_all(&image.memory, bytes, *offset)?;
        }
        image.replaced = patched.replaced.len() as u32;
        (image.seeing, image.unsure) = (patched.seeing, patched.stats.unsure);
        // Trampolines are only speed: without, every `syscall` traps.
        if !patched.trampolines.is_empty() && patched.trampoline_vaddr >= image.elf.span().end {
            image.trampolines_vaddr = patched.trampoline_vaddr;
            image.trampolines_len = (patched.trampolines.len() as u64).next_multiple_of(PAGE);
            write_all(&image.memory, &patched.trampolines, image.trampolines_offset)?;
            rustix::fs::ftruncate(&image.memory, image.trampolines_offset + image.trampolines_len)
                .or_short(|| "lengthen a memory file".into())
                .map_err(ImageError::Io)?;
            for (offset, bytes) in &patched.text {
                write_all(&image.memory, bytes, *offset)?;
            }
        }
        Ok(image)
    }
}

/// Why there is no image of a file.
#[derive(Clone, Debug)]
pub(crate) enum ImageError {
    /// The file is no program.
    Elf(ElfError),
    /// It could not be read or kept.
    Io(Errno),
}

impl ImageError {
    /// What a program sees from `execve`.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Elf(_) => Errno::NOEXEC,
            Self::Io(errno) => *errno,
        }
    }
}

/// All patched images of a run.
#[derive(Debug, Default)]
pub(crate) struct ImageCache {
    by_hash: Mutex<HashMap<[u8; 32], Arc<PatchedImage>>>,
    /// By numbers of a root and of a file in it, which is a snapshot: a node does not read and hash what another one has.
    by_host_file: Mutex<HashMap<(u32, u32), Arc<PatchedImage>>>,
    records: Mutex<BTreeSet<ImageRecord>>,
}

impl ImageCache {
    /// The image of the host file with this `key`, which no other has; `bytes` reads it.
    pub(crate) fn get_host_file<B: Deref<Target = [u8]>>(
        &self,
        key: (u32, u32),
        path: &str,
        bytes: impl FnOnce() -> Result<B, ImageError>,
    ) -> Result<Arc<PatchedImage>, ImageError> {
        let known = self
            .by_host_file
            .lock()
            .expect("no panic while a map is in use")
            .get(&key)
            .cloned();
        if let Some(image) = known {
            return Ok(image);
        }
        let image = self.get_with(path, &bytes()?, kept::analyse)?;
        self.by_host_file
            .lock()
            .expect("no panic while a map is in use")
            .insert(key, image.clone());
        Ok(image)
    }

    /// The image of a file's bytes; `path` is recorded.
    pub(crate) fn get(&self, path: &str, file: &[u8]) -> Result<Arc<PatchedImage>, ImageError> {
        // What was made in the run will hardly be seen in another.
        self.get_with(path, file, |file, _| patch::analyse(file))
    }

    fn get_with(
        &self,
        path: &str,
        file: &[u8],
        analyse: impl FnOnce(&[u8], &[u8; 32]) -> Result<Patched, PatchError>,
    ) -> Result<Arc<PatchedImage>, ImageError> {
        let hash = hashes::sha256(file);
        let mut images = self.by_hash.lock().expect("no panic while patching");
        let image = match images.get(&hash) {
            Some(image) => image.clone(),
            None => {
                let image = Arc::new(PatchedImage::new(path, file, || analyse(file, &hash))?);
                images.insert(hash, image.clone());
                image
            }
        };
        let sha256 = hashes::hex(&hash);
        self.records
            .lock()
            .expect("no panic while recording")
            .insert(ImageRecord {
                path: path.into(),
                sha256,
            });
        Ok(image)
    }

    /// All images by the inode numbers of their memory files.
    pub(crate) fn by_inode(&self) -> HashMap<u64, Arc<PatchedImage>> {
        let images = self.by_hash.lock().expect("no panic while patching");
        images.values().map(|image| (image.inode, image.clone())).collect()
    }

    /// Images with instructions that may show the host's processor, and how many; sorted by path.
    pub(crate) fn unsure(&self) -> Vec<(String, u32)> {
        let images = self.by_hash.lock().expect("no panic while patching");
        let count = |image: &PatchedImage| match image.unpatched.load(Ordering::Relaxed) {
            true => image.unsure + image.replaced,
            false => image.unsure,
        };
        let counted = images.values().map(|image| (image.path.clone(), count(image)));
        let mut unsure: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
        unsure.sort();
        unsure
    }

    /// Every image asked for, sorted.
    pub(crate) fn records(&self) -> Vec<ImageRecord> {
        self.records
            .lock()
            .expect("no panic while recording")
            .iter()
            .cloned()
            .collect()
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), ImageError> {
    while !bytes.is_empty() {
        match pwrite(fd, bytes, offset).or_short(|| "write to a memory file".into()) {
            Ok(0) => return Err(ImageError::Io(Errno::NOSPC)),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ImageError::Io(errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_per_content_and_one_record_per_path() {
        let cache = ImageCache::default();
        let shell = std::fs::read("/bin/sh").unwrap();
        let first = cache.get("/bin/sh", &shell).unwrap();
        let second = cache.get("/bin/dash", &shell).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let records = cache.records();
        assert_eq!(
            records.iter().map(|r| r.path.as_str()).collect::<Vec<_>>(),
            ["/bin/dash", "/bin/sh"]
        );
        assert_eq!(records[0].sha256, records[1].sha256);
        assert!(matches!(
            cache.get("/etc/passwd", b"root"),
            Err(ImageError::Elf(ElfError::NotElf { .. }))
        ));
        assert_eq!(cache.records().len(), 2);
    }

    #[test]
    fn only_text_differs_from_the_file() {
        let file = std::fs::read("/bin/sh").unwrap();
        let image = PatchedImage::new("/bin/sh", &file, || patch::analyse(&file)).unwrap();
        let mut copy = vec![0; file.len()];
        assert_eq!(rustix::io::pread(image.fd(), &mut copy, 0).unwrap(), file.len());
        for (at, _) in file.iter().zip(&copy).enumerate().filter(|(_, (a, b))| a != b) {
            assert!(image.elf.executable_at(at as u64).is_some(), "byte {at} is not text");
        }
    }
}
