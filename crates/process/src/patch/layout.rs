//! What patching needs to know of an ELF file: which file bytes are loaded where, and which of them are code.
//!
//! All addresses are virtual addresses as the file states them, before any load bias.

use std::ops::Range;

use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian, elf};

use super::PatchError;

type Header = elf::FileHeader64<LittleEndian>;
type Section = elf::SectionHeader64<LittleEndian>;

/// Bytes per page of every x86-64 Linux.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Highest virtual address accepted, exclusive: the end of user space with four-level page tables.
const USER_END: u64 = 1 << 47;

/// One `PT_LOAD` entry, clipped to what the file really holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// First virtual address.
    pub vaddr: u64,
    /// Where its bytes start in the file.
    pub offset: u64,
    /// Bytes taken from the file.
    pub file_bytes: u64,
    /// Mapped with `PROT_EXEC`.
    pub exec: bool,
    /// Mapped with `PROT_WRITE`.
    pub write: bool,
}

impl Segment {
    /// The virtual addresses whose bytes come from the file.
    pub fn range(&self) -> Range<u64> {
        self.vaddr..self.vaddr + self.file_bytes
    }

    fn file_range(&self) -> Range<u64> {
        self.offset..self.offset + self.file_bytes
    }
}

/// An x86-64 ELF file, opened for patching.
pub(super) struct Layout<'a> {
    file: &'a [u8],
    header: &'a Header,
    sections: SectionTable<'a, Header>,
    /// All `PT_LOAD` entries in file order.
    pub segments: Vec<Segment>,
    /// Code that may be changed: executable, not writable, in address order. Where the file has section headers,
    /// only its executable sections, so that constants in a text segment are not taken for code.
    pub code: Vec<Range<u64>>,
    /// First page boundary above all that is mapped.
    pub image_end: u64,
    /// Loaded at the addresses it states (`ET_EXEC`), so that its code may hold absolute addresses.
    pub fixed_address: bool,
    /// The loader will write into the text (`DT_TEXTREL`).
    pub text_relocations: bool,
}

impl<'a> Layout<'a> {
    /// Reads the headers. Section headers are optional and ignored when damaged; they only improve the result.
    pub fn parse(file: &'a [u8]) -> Result<Self, PatchError> {
        if !file.starts_with(&elf::ELFMAG) {
            return Err(PatchError::NotElf);
        }
        let header = Header::parse(file).map_err(|_| PatchError::NotElf64)?;
        if header.e_ident.data != elf::ELFDATA2LSB {
            return Err(PatchError::NotElf64);
        }
        let endian = LittleEndian;
        let machine = header.e_machine.get(endian);
        if machine != elf::EM_X86_64 {
            return Err(PatchError::Machine { found: machine });
        }
        let kind = header.e_type.get(endian);
        if kind != elf::ET_EXEC && kind != elf::ET_DYN {
            return Err(PatchError::Kind { found: kind });
        }
        let headers = header
            .program_headers(endian, file)
            .map_err(|_| PatchError::Malformed("program headers outside the file"))?;
        let mut layout = Self {
            file,
            header,
            sections: header.sections(endian, file).unwrap_or_default(),
            segments: Vec::new(),
            code: Vec::new(),
            image_end: 0,
            fixed_address: kind == elf::ET_EXEC,
            text_relocations: false,
        };
        for entry in headers {
            match entry.p_type.get(endian) {
                elf::PT_LOAD => layout.add_segment(entry)?,
                elf::PT_DYNAMIC => layout.text_relocations |= has_text_relocations(entry, file),
                _ => {}
            }
        }
        layout.code = layout.find_code();
        Ok(layout)
    }

    fn add_segment(&mut self, entry: &elf::ProgramHeader64<LittleEndian>) -> Result<(), PatchError> {
        let endian = LittleEndian;
        let vaddr = entry.p_vaddr.get(endian);
        let offset = entry.p_offset.get(endian);
        let end = vaddr
            .checked_add(entry.p_memsz.get(endian))
            .filter(|&end| end <= USER_END);
        let end = end.ok_or(PatchError::Malformed("a segment lies outside user space"))?;
        self.image_end = self.image_end.max(end.next_multiple_of(PAGE_BYTES));
        let held = (self.file.len() as u64).saturating_sub(offset);
        let flags = entry.p_flags.get(endian);
        self.segments.push(Segment {
            vaddr,
            offset,
            file_bytes: entry.p_filesz.get(endian).min(end - vaddr).min(held),
            exec: flags & elf::PF_X != 0,
            write: flags & elf::PF_W != 0,
        });
        Ok(())
    }

    fn find_code(&self) -> Vec<Range<u64>> {
        // A byte that is in two segments is seen at two addresses; which of them runs is not knowable here.
        let shared = |s: &Segment| {
            let overlap = |o: &&Segment| {
                let (a, b) = (s.file_range(), o.file_range());
                let (c, d) = (s.range(), o.range());
                a.start < b.end && b.start < a.end || c.start < d.end && d.start < c.end
            };
            self.segments.iter().filter(overlap).count() > 1
        };
        let fixed = |s: &&Segment| s.exec && !s.write && s.file_bytes > 0 && !shared(s);
        let segments: Vec<Range<u64>> = self.segments.iter().filter(fixed).map(Segment::range).collect();
        let mut code: Vec<Range<u64>> = self
            .sections
            .iter()
            .filter(|s| s.sh_flags.get(LittleEndian) & u64::from(elf::SHF_EXECINSTR) != 0)
            .filter_map(|s| {
                let start = s.sh_addr.get(LittleEndian);
                let end = start.checked_add(s.sh_size.get(LittleEndian))?;
                let home = segments.iter().find(|g| g.start <= start && end <= g.end)?;
                (start < end && home.contains(&start)).then_some(start..end)
            })
            .collect();
        if code.is_empty() {
            code = segments;
        }
        code.sort_by_key(|range| (range.start, range.end));
        // Keeps the first of two that overlap, so that every address has one place.
        let mut end = 0;
        code.retain(|range| {
            let keep = range.start >= end;
            end = end.max(range.end);
            keep
        });
        code
    }

    /// The bytes at `range`, if all of them come from one segment of the file.
    pub fn bytes(&self, range: Range<u64>) -> Option<&'a [u8]> {
        let offset = self.offset(range.clone())?;
        self.file
            .get(offset as usize..(offset + (range.end - range.start)) as usize)
    }

    /// The bytes from `start` to the end of its segment.
    pub fn bytes_from(&self, start: u64) -> Option<&'a [u8]> {
        let end = self
            .segments
            .iter()
            .map(Segment::range)
            .find(|s| s.contains(&start))?
            .end;
        self.bytes(start..end)
    }

    /// Where the bytes at `range` are in the file, if all of them come from one segment.
    pub fn offset(&self, range: Range<u64>) -> Option<u64> {
        let inside = |s: &&Segment| s.vaddr <= range.start && range.start <= range.end && range.end <= s.range().end;
        self.segments
            .iter()
            .find(inside)
            .map(|s| s.offset + (range.start - s.vaddr))
    }

    /// The part of the code that `addr` is in.
    pub fn code_around(&self, addr: u64) -> Option<&Range<u64>> {
        let after = self.code.partition_point(|range| range.start <= addr);
        self.code[..after].last().filter(|range| range.contains(&addr))
    }

    /// Address and bytes of the loaded section `name`.
    pub fn section(&self, name: &str) -> Option<(u64, &'a [u8])> {
        let endian = LittleEndian;
        let (_, section) = self.sections.section_by_name(endian, name.as_bytes())?;
        let data: &[u8] = section.data(endian, self.file).ok()?;
        Some((section.sh_addr.get(endian), data))
    }

    /// Address and size in bytes of the first program header of this type.
    pub fn program_header(&self, kind: u32) -> Option<Range<u64>> {
        let endian = LittleEndian;
        let headers = self.header.program_headers(endian, self.file).ok()?;
        let entry = headers.iter().find(|h| h.p_type.get(endian) == kind)?;
        let start = entry.p_vaddr.get(endian);
        Some(start..start.checked_add(entry.p_filesz.get(endian))?)
    }

    /// Calls `each(name, address, size)` for every function symbol of both symbol tables.
    pub fn for_each_function(&self, mut each: impl FnMut(&[u8], u64, u64)) {
        let endian = LittleEndian;
        for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(symbols) = self.sections.symbols(endian, self.file, table) else {
                continue;
            };
            for symbol in symbols.iter() {
                if symbol.st_type() == elf::STT_FUNC || symbol.st_type() == elf::STT_GNU_IFUNC {
                    let name = symbols.strings().get(symbol.st_name.get(endian)).unwrap_or_default();
                    each(name, symbol.st_value.get(endian), symbol.st_size.get(endian));
                }
            }
        }
    }

    /// The addend of the relative relocation of the word at `addr`, for a position-independent file.
    pub fn relative_addend(&self, addr: u64) -> Option<u64> {
        let endian = LittleEndian;
        let tables = self
            .sections
            .iter()
            .filter_map(|s: &Section| s.rela(endian, self.file).ok().flatten());
        for (entries, _) in tables {
            for entry in entries {
                if entry.r_offset.get(endian) == addr && entry.r_type(endian, false) == elf::R_X86_64_RELATIVE {
                    return u64::try_from(entry.r_addend.get(endian)).ok();
                }
            }
        }
        None
    }
}

fn has_text_relocations(entry: &elf::ProgramHeader64<LittleEndian>, file: &[u8]) -> bool {
    let endian = LittleEndian;
    let Ok(Some(dynamic)) = entry.dynamic(endian, file) else {
        return false;
    };
    dynamic.iter().any(|d| {
        let (tag, value) = (d.d_tag(endian), d.d_val(endian));
        tag == u64::from(elf::DT_TEXTREL) || tag == u64::from(elf::DT_FLAGS) && value & u64::from(elf::DF_TEXTREL) != 0
    })
}
