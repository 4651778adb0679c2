//! A kernel image: the shared object `liblinux-*.so`, checked and described, ready to be mapped many times.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use object::elf;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, Sym as _};
use object::{LittleEndian, ReadRef as _};
use windtunnel_base::hashes;

use crate::symbols::Symbols;

type Header = elf::FileHeader64<LittleEndian>;
type ProgramHeader = elf::ProgramHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Dynamic tags of the generic ABI that the `object` crate has no names for yet.
const DT_RELRSZ: u32 = 35;
const DT_RELR: u32 = 36;

/// Page size of the host and of every image, bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Room for one image in a node region, bytes. Larger images are refused.
pub const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// Why a file is not a kernel image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read the kernel image {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the host says.
        source: io::Error,
    },
    /// The file is not what the loader can map.
    #[error("{path} is not a usable kernel image: {why}\nhint: build one with `windtunnel kernel build`")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The first thing found wrong.
        why: String,
    },
}

/// One `PT_LOAD` of an image. Addresses are relative to the image's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address, not rounded.
    pub address: u64,
    /// Offset of that address in the file.
    pub offset: u64,
    /// Bytes taken from the file.
    pub file_bytes: u64,
    /// Bytes in memory; those beyond `file_bytes` are zero.
    pub memory_bytes: u64,
    /// The only segment with pointers is writable.
    pub writable: bool,
    /// Holds code.
    pub executable: bool,
}

impl Segment {
    /// First page-aligned address.
    pub fn start(&self) -> u64 {
        self.address & !(PAGE_BYTES - 1)
    }

    /// End of the memory, rounded up to a page.
    pub fn end(&self) -> u64 {
        page_up(self.address + self.memory_bytes)
    }

    fn contains(&self, address: u64, bytes: u64) -> bool {
        address >= self.address && address + bytes <= self.address + self.memory_bytes
    }
}

/// `value` rounded up to a page.
pub(crate) fn page_up(value: u64) -> u64 {
    value.next_multiple_of(PAGE_BYTES)
}

/// A checked image. Cheap to share: instances keep a clone of the `Arc`.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    sha256: [u8; 32],
    segments: Vec<Segment>,
    relocations: Relocations,
    /// Address of the export `wt_kernel`.
    export: u64,
    /// What booting uses of a node's memory, by the size of that memory: learned from the first boot.
    boot_pages: Mutex<BTreeMap<u64, Arc<[Range<u64>]>>>,
    /// Read when first asked for: the file for debuggers is large, and few runs crash.
    symbols: OnceLock<Option<Symbols>>,
}

impl Image {
    /// Opens and checks an image.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>, ImageError> {
        let path = path.as_ref();
        let read = |source| ImageError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(read)?;
        let bytes = std::fs::read(path).map_err(read)?;
        let unusable = |why: String| ImageError::Unusable {
            path: path.to_owned(),
            why,
        };
        let parsed = Parsed::of(&bytes).map_err(unusable)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            file,
            sha256: hashes::sha256(&bytes),
            segments: parsed.segments,
            relocations: parsed.relocations,
            export: parsed.export,
            boot_pages: Mutex::default(),
            symbols: OnceLock::new(),
        }))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hash of the whole file.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// Its segments, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Bytes of address space an instance's image takes.
    pub fn span_bytes(&self) -> u64 {
        self.segments.last().map_or(0, Segment::end)
    }

    /// Names for addresses relative to the base: from `<path>.debug` if that exists, else from the image itself.
    pub fn symbols(&self) -> Option<&Symbols> {
        let read = || Symbols::beside(&self.path).or_else(|| Symbols::of(&std::fs::read(&self.path).ok()?));
        self.symbols.get_or_init(read).as_ref()
    }

    /// The offsets in a memory of `ram_bytes` that a boot used, if there has been one.
    pub(crate) fn boot_pages(&self, ram_bytes: u64) -> Option<Arc<[Range<u64>]>> {
        let known = self.boot_pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        known.get(&ram_bytes).cloned()
    }

    /// See [`Image::boot_pages`].
    pub(crate) fn learn_boot_pages(&self, ram_bytes: u64, used: Vec<Range<u64>>) {
        let mut known = self.boot_pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        known.insert(ram_bytes, used.into());
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn relocations(&self) -> &Relocations {
        &self.relocations
    }

    pub(crate) fn export(&self) -> u64 {
        self.export
    }
}

/// What to change in the writable segment of an image mapped at some base. All places lie inside it.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    /// DT_RELR: add the base to the word here.
    pub raise: Vec<u32>,
    /// `R_X86_64_RELATIVE` in DT_RELA: the word here becomes base + addend.
    pub set: Vec<(u32, u64)>,
}

/// What the ELF file says.
struct Parsed {
    segments: Vec<Segment>,
    relocations: Relocations,
    export: u64,
}

/// The entries of the dynamic section that matter, addresses relative to the base.
#[derive(Default)]
struct Dynamic {
    relr: u64,
    relr_bytes: u64,
    rela: u64,
    rela_bytes: u64,
    jmprel_bytes: u64,
}

impl Parsed {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let header = Header::parse(bytes).map_err(|_| "not a 64-bit ELF file".to_owned())?;
        if !header.is_little_endian() || header.e_machine(LE) != elf::EM_X86_64 {
            return Err("not for x86-64".to_owned());
        }
        if header.e_type(LE) != elf::ET_DYN {
            return Err("not a shared object".to_owned());
        }
        let headers = header.program_headers(LE, bytes).map_err(|e| e.to_string())?;
        let segments = segments(headers, bytes)?;
        let dynamic = dynamic(headers, bytes)?;
        let relocations = relocations(&dynamic, &segments, bytes)?;
        let export = export(header, bytes)?;
        let holder = segments
            .iter()
            .find(|s| s.contains(export, size_of::<crate::abi::Kernel>() as u64));
        if holder.is_none() || export % 8 != 0 {
            return Err("`wt_kernel` lies outside its segments".to_owned());
        }
        Ok(Self {
            segments,
            relocations,
            export,
        })
    }
}

fn segments(headers: &[ProgramHeader], bytes: &[u8]) -> Result<Vec<Segment>, String> {
    let mut segments: Vec<Segment> = Vec::new();
    for header in headers {
        match header.p_type(LE) {
            elf::PT_LOAD => {}
            elf::PT_INTERP | elf::PT_TLS => return Err("it asks for an interpreter or thread-local storage".to_owned()),
            _ => continue,
        }
        let segment = Segment {
            address: header.p_vaddr(LE),
            offset: header.p_offset(LE),
            file_bytes: header.p_filesz(LE),
            memory_bytes: header.p_memsz(LE),
            writable: header.p_flags(LE) & elf::PF_W != 0,
            executable: header.p_flags(LE) & elf::PF_X != 0,
        };
        check_segment(&segment, segments.last(), bytes.len() as u64)?;
        segments.push(segment);
    }
    if segments.first().is_none_or(|first| first.start() != 0) {
        return Err("its first segment is not at address 0".to_owned());
    }
    if segments.iter().filter(|s| s.writable).count() != 1 {
        return Err("it does not have exactly one writable segment".to_owned());
    }
    Ok(segments)
}

fn check_segment(segment: &Segment, before: Option<&Segment>, file_bytes: u64) -> Result<(), String> {
    let at = format!("segment at {:#x}", segment.address);
    let file_end = segment.offset.checked_add(segment.file_bytes);
    let memory_end = segment.address.checked_add(segment.memory_bytes);
    if file_end.is_none_or(|end| end > file_bytes) || segment.file_bytes > segment.memory_bytes {
        return Err(format!("{at}: reaches beyond the file"));
    }
    if memory_end.is_none_or(|end| end > MAX_IMAGE_BYTES) {
        return Err(format!("{at}: larger than {MAX_IMAGE_BYTES} bytes"));
    }
    if segment.address % PAGE_BYTES != segment.offset % PAGE_BYTES {
        return Err(format!("{at}: address and file offset differ within a page"));
    }
    if segment.writable && segment.executable {
        return Err(format!("{at}: writable and executable"));
    }
    if !segment.writable && segment.file_bytes != segment.memory_bytes {
        return Err(format!("{at}: read-only, but larger than its part of the file"));
    }
    if before.is_some_and(|before| before.end() > segment.start()) {
        return Err(format!("{at}: shares a page with the one before, or is out of order"));
    }
    Ok(())
}

fn dynamic(headers: &[ProgramHeader], bytes: &[u8]) -> Result<Dynamic, String> {
    let mut found = Dynamic::default();
    for header in headers {
        let Some(entries) = header.dynamic(LE, bytes).map_err(|e| e.to_string())? else {
            continue;
        };
        for entry in entries
            .iter()
            .take_while(|entry| entry.d_tag(LE) != u64::from(elf::DT_NULL))
        {
            let value = entry.d_val(LE);
            match u32::try_from(entry.d_tag(LE)).unwrap_or(0) {
                DT_RELR => found.relr = value,
                DT_RELRSZ => found.relr_bytes = value,
                elf::DT_RELA => found.rela = value,
                elf::DT_RELASZ => found.rela_bytes = value,
                elf::DT_PLTRELSZ => found.jmprel_bytes = value,
                elf::DT_REL => return Err("it has REL relocations".to_owned()),
                elf::DT_NEEDED => return Err("it needs other shared objects".to_owned()),
                elf::DT_TEXTREL => return Err("it has relocations in its text".to_owned()),
                _ => {}
            }
        }
    }
    if found.jmprel_bytes != 0 {
        return Err("it calls through a procedure linkage table".to_owned());
    }
    Ok(found)
}

/// All relocations of the image; any but the two relative kinds is an error.
fn relocations(dynamic: &Dynamic, segments: &[Segment], bytes: &[u8]) -> Result<Relocations, String> {
    let writable = segments
        .iter()
        .find(|s| s.writable)
        .ok_or("it has no writable segment")?;
    let inside = |place: u64| match place < MAX_IMAGE_BYTES && writable.contains(place, 8) {
        true => Ok(place as u32),
        false => Err(format!("the relocation at {place:#x} is outside the writable segment")),
    };
    let mut raise = Vec::new();
    decode_relr(table(segments, bytes, dynamic.relr, dynamic.relr_bytes)?, &mut raise)?;
    let rela = table(segments, bytes, dynamic.rela, dynamic.rela_bytes)?;
    let count = rela.len() / size_of::<elf::Rela64<LittleEndian>>();
    let rela: &[elf::Rela64<LittleEndian>] = rela
        .read_slice_at(0, count)
        .map_err(|()| "its relocations are cut off".to_owned())?;
    let set = rela.iter().map(|entry| match entry.r_type(LE, false) {
        elf::R_X86_64_RELATIVE => Ok((inside(entry.r_offset(LE))?, entry.r_addend(LE) as u64)),
        other => Err(format!("it has a relocation of type {other}")),
    });
    Ok(Relocations {
        raise: raise.into_iter().map(inside).collect::<Result<_, _>>()?,
        set: set.collect::<Result<_, _>>()?,
    })
}

/// Decodes DT_RELR: an even word is an address, an odd one a bitmap of the 63 words after the last place.
fn decode_relr(table: &[u8], places: &mut Vec<u64>) -> Result<(), String> {
    let mut next = 0u64;
    for word in table.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("a chunk of 8 bytes"));
        if word & 1 == 0 {
            if word >= MAX_IMAGE_BYTES {
                return Err(format!("the relocation at {word:#x} is outside the image"));
            }
            places.push(word);
            next = word + 8;
        } else {
            places.extend(
                (0..63)
                    .filter(|bit| word >> (bit + 1) & 1 == 1)
                    .map(|bit| next + 8 * bit),
            );
            next += 63 * 8;
        }
    }
    Ok(())
}

/// The file's bytes behind an address range of the image.
fn table<'a>(segments: &[Segment], bytes: &'a [u8], address: u64, len: u64) -> Result<&'a [u8], String> {
    if len == 0 {
        return Ok(&[]);
    }
    let outside = || format!("{len} bytes at {address:#x} are not in the file");
    let segment = segments
        .iter()
        .find(|s| address >= s.address && address - s.address < s.file_bytes)
        .ok_or_else(outside)?;
    let start = address - segment.address;
    if len > segment.file_bytes - start {
        return Err(outside());
    }
    let start = (segment.offset + start) as usize;
    Ok(&bytes[start..start + len as usize])
}

/// Address of the dynamic symbol `wt_kernel`.
fn export(header: &Header, bytes: &[u8]) -> Result<u64, String> {
    let sections = header.sections(LE, bytes).map_err(|e| e.to_string())?;
    let symbols = sections
        .symbols(LE, bytes, elf::SHT_DYNSYM)
        .map_err(|e| e.to_string())?;
    symbols
        .iter()
        .find(|symbol| {
            symbol.st_shndx(LE) != elf::SHN_UNDEF && symbol.name(LE, symbols.strings()).is_ok_and(|n| n == b"wt_kernel")
        })
        .map(|symbol| symbol.st_value(LE))
        .ok_or_else(|| "it does not export `wt_kernel`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn relr_addresses_and_bitmaps_decode_as_the_gabi_says() {
        let mut places = Vec::new();
        // One address, a bitmap with its first, third and last word, another bitmap's first, a new address.
        let bitmap = 1 | 1 << 1 | 1 << 3 | 1 << 63;
        decode_relr(&words(&[0x1000, bitmap, 0b11, 0x9000]), &mut places).unwrap();
        assert_eq!(
            places,
            [0x1000, 0x1008, 0x1018, 0x1008 + 62 * 8, 0x1008 + 63 * 8, 0x9000]
        );
    }

    #[test]
    fn relr_outside_the_image_is_refused() {
        assert!(decode_relr(&words(&[MAX_IMAGE_BYTES]), &mut Vec::new()).is_err());
    }

    #[test]
    fn a_program_is_not_a_kernel_image() {
        let path = std::env::current_exe().unwrap();
        let error = Image::open(path).unwrap_err().to_string();
        assert!(error.contains("is not a usable kernel image"), "{error}");
        assert!(error.contains("hint: build one"), "{error}");
    }

    #[test]
    fn a_missing_image_is_named() {
        let error = Image::open("/nonexistent/liblinux.so").unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read the kernel image /nonexistent/liblinux.so:"),
            "{error}"
        );
    }
}
