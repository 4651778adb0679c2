//! Reading the program headers of an ELF file, and saying precisely why one cannot run here.

use std::ops::Range;

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::sys::PAGE;

/// Most program headers a file may have, as in Linux (64 KiB of them).
const HEADERS_MAX: usize = 65536 / 56;

/// Why a file is not a program that runs here. The text completes a sentence that starts with the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Not ELF at all.
    #[error("is not an ELF program (it starts with {start})")]
    NotElf {
        /// The first bytes, printable or as hexadecimal numbers.
        start: String,
    },
    /// Another kind of machine.
    #[error("is a program for {machine}, this host runs x86-64")]
    Machine {
        /// Name of the machine.
        machine: String,
    },
    /// Neither a program nor a shared object.
    #[error("is {kind}, not a program")]
    NotExecutable {
        /// What it is instead.
        kind: &'static str,
    },
    /// Not a sound file.
    #[error("is damaged: {what}")]
    Damaged {
        /// The first thing found wrong.
        what: String,
    },
}

/// A `PT_LOAD` segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Address wanted, before the bias.
    pub vaddr: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory, not less.
    pub memory_size: u64,
    /// `READ | WRITE | EXEC` as in `PROT_*`.
    pub prot: u8,
}

/// The program headers that matter to a loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// `ET_EXEC`: runs only at its own addresses.
    pub fixed: bool,
    /// `e_entry`, before the bias.
    pub entry: u64,
    /// Loadable segments by ascending address; at least one.
    pub segments: Vec<Segment>,
    /// Greatest alignment of a segment, a power of two, at least a page.
    pub align: u64,
    /// `PT_INTERP`, without the final NUL.
    pub interpreter: Option<Vec<u8>>,
    /// Whether `PT_GNU_STACK` asks for an executable stack.
    pub executable_stack: bool,
    /// Address of the program headers in memory, before the bias; 0 when no segment holds them.
    pub headers_vaddr: u64,
    /// Number of program headers.
    pub header_count: u64,
}

impl Elf {
    /// Reads the headers of a whole file.
    ///
    /// # Errors
    /// When it cannot be run on x86-64.
    pub fn parse(file: &[u8]) -> Result<Self, ElfError> {
        check_identity(file)?;
        let header = elf::FileHeader64::<LE>::parse(file).map_err(|error| damaged(error.to_string()))?;
        let kind = match header.e_type.get(LE) {
            elf::ET_EXEC | elf::ET_DYN => None,
            elf::ET_REL => Some("an object file"),
            elf::ET_CORE => Some("a core dump"),
            _ => Some("an ELF file of unknown type"),
        };
        if let Some(kind) = kind {
            return Err(ElfError::NotExecutable { kind });
        }
        let headers = header
            .program_headers(LE, file)
            .map_err(|error| damaged(error.to_string()))?;
        if headers.len() > HEADERS_MAX {
            return Err(damaged(format!("{} program headers", headers.len())));
        }
        let mut result = Self {
            fixed: header.e_type.get(LE) == elf::ET_EXEC,
            entry: header.e_entry.get(LE),
            segments: Vec::new(),
            align: PAGE,
            interpreter: None,
            executable_stack: false,
            headers_vaddr: 0,
            header_count: headers.len() as u64,
        };
        for header in headers {
            result.add(header, file)?;
        }
        if result.segments.is_empty() {
            return Err(damaged("it has no segment to load".into()));
        }
        if result.headers_vaddr == 0 {
            result.headers_vaddr = result.find_headers(header.e_phoff.get(LE));
        }
        Ok(result)
    }

    fn add(&mut self, header: &elf::ProgramHeader64<LE>, file: &[u8]) -> Result<(), ElfError> {
        match header.p_type(LE) {
            elf::PT_LOAD => self.add_segment(header, file.len() as u64)?,
            elf::PT_INTERP => {
                let bytes = header
                    .data(LE, file)
                    .map_err(|()| damaged("PT_INTERP lies outside the file".into()))?;
                match bytes.split_last() {
                    Some((0, path)) if !path.is_empty() && !path.contains(&0) => self.interpreter = Some(path.into()),
                    _ => return Err(damaged("PT_INTERP is not a path".into())),
                }
            }
            elf::PT_GNU_STACK => self.executable_stack = header.p_flags(LE) & elf::PF_X != 0,
            elf::PT_PHDR => self.headers_vaddr = header.p_vaddr(LE),
            _ => {}
        }
        Ok(())
    }

    fn add_segment(&mut self, header: &elf::ProgramHeader64<LE>, file_len: u64) -> Result<(), ElfError> {
        let flags = header.p_flags(LE);
        let bit = |flag, prot| if flags & flag != 0 { prot } else { 0 };
        let segment = Segment {
            offset: header.p_offset(LE),
            vaddr: header.p_vaddr(LE),
            file_size: header.p_filesz(LE),
            memory_size: header.p_memsz(LE),
            prot: bit(elf::PF_R, crate::sys::READ)
                | bit(elf::PF_W, crate::sys::WRITE)
                | bit(elf::PF_X, crate::sys::EXEC),
        };
        let at = segment.vaddr;
        if segment.memory_size == 0 {
            return Ok(());
        }
        if segment
            .offset
            .checked_add(segment.file_size)
            .is_none_or(|end| end > file_len)
        {
            return Err(damaged(format!(
                "the segment at {at:#x} lies beyond the end of the file"
            )));
        }
        if segment.file_size > segment.memory_size {
            return Err(damaged(format!(
                "the segment at {at:#x} is larger in the file than in memory"
            )));
        }
        if segment.vaddr % PAGE != segment.offset % PAGE {
            return Err(damaged(format!(
                "the segment at {at:#x} is not aligned as its place in the file"
            )));
        }
        if at.checked_add(segment.memory_size).is_none_or(|end| end > 1 << 47) {
            return Err(damaged(format!(
                "the segment at {at:#x} does not fit the address space"
            )));
        }
        if self
            .segments
            .last()
            .is_some_and(|last| last.vaddr + last.memory_size > at)
        {
            return Err(damaged(format!(
                "the segment at {at:#x} overlaps the one before or is out of order"
            )));
        }
        let align = header.p_align(LE);
        if align.is_power_of_two() && align <= 1 << 30 {
            self.align = self.align.max(align);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Where the table at file offset `offset` appears in memory.
    fn find_headers(&self, offset: u64) -> u64 {
        let holder = self
            .segments
            .iter()
            .find(|s| s.offset <= offset && offset < s.offset + s.file_size);
        holder.map_or(0, |s| s.vaddr + (offset - s.offset))
    }

    /// Addresses of the whole image, in whole pages, before the bias.
    pub fn span(&self) -> Range<u64> {
        let first = self.segments[0].vaddr;
        let last = self
            .segments
            .iter()
            .map(|s| s.vaddr + s.memory_size)
            .max()
            .expect("parse saw a segment");
        first - first % PAGE..last.next_multiple_of(PAGE)
    }

    /// The executable segment that holds file offset `offset`, counting whole pages.
    pub(crate) fn executable_at(&self, offset: u64) -> Option<&Segment> {
        self.segments.iter().find(|s| {
            let pages = s.offset - s.offset % PAGE..(s.offset + s.file_size).next_multiple_of(PAGE);
            s.prot & crate::sys::EXEC != 0 && pages.contains(&offset)
        })
    }
}

fn damaged(what: String) -> ElfError {
    ElfError::Damaged { what }
}

/// Magic, class, byte order and machine, in this order so that the message names the first thing that is wrong.
fn check_identity(file: &[u8]) -> Result<(), ElfError> {
    if !file.starts_with(&elf::ELFMAG) {
        let head = &file[..file.len().min(4)];
        let start = if head.is_empty() {
            "nothing: it is empty".into()
        } else if head.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
            format!("{:?}", String::from_utf8_lossy(head))
        } else {
            head.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        return Err(ElfError::NotElf { start });
    }
    let Some(head) = file.get(..20) else {
        return Err(damaged("it ends within its header".into()));
    };
    let big_endian = head[5] == elf::ELFDATA2MSB;
    let machine = if big_endian {
        u16::from_be_bytes([head[18], head[19]])
    } else {
        u16::from_le_bytes([head[18], head[19]])
    };
    if machine == elf::EM_X86_64 && head[4] == elf::ELFCLASS64 && !big_endian {
        return Ok(());
    }
    let name = match machine {
        elf::EM_386 => "32-bit x86",
        elf::EM_X86_64 => "x86-64 with 32-bit pointers (x32)",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "32-bit ARM",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "64-bit PowerPC",
        elf::EM_S390 => "s390x",
        elf::EM_MIPS => "MIPS",
        elf::EM_LOONGARCH => "LoongArch",
        _ => "",
    };
    let machine = if name.is_empty() {
        format!("machine number {machine}")
    } else {
        name.into()
    };
    Err(ElfError::Machine { machine })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal program: one header, one segment holding the whole file.
    fn program(kind: u16, machine: u16) -> Vec<u8> {
        let mut file = vec![0_u8; 0x200];
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        file[16..18].copy_from_slice(&kind.to_le_bytes());
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[20] = 1;
        put(&mut file, 24, 0x40_0078);
        put(&mut file, 32, 64);
        file[52] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = 1;
        file[68] = 5;
        put(&mut file, 64 + 16, 0x40_0000);
        put(&mut file, 64 + 32, 0x200);
        put(&mut file, 64 + 40, 0x1200);
        put(&mut file, 64 + 48, 0x20_0000);
        file
    }

    fn put(file: &mut [u8], at: usize, value: u64) {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn error(file: &[u8]) -> String {
        Elf::parse(file).unwrap_err().to_string()
    }

    #[test]
    fn a_minimal_program_is_read() {
        let elf = Elf::parse(&program(2, 62)).unwrap();
        assert!(elf.fixed && !elf.executable_stack);
        assert_eq!(elf.span(), 0x40_0000..0x40_2000);
        assert_eq!(
            (elf.entry, elf.align, elf.headers_vaddr, elf.header_count),
            (0x40_0078, 0x20_0000, 0x40_0040, 1)
        );
        assert_eq!(elf.segments[0].prot, 5);
    }

    #[test]
    fn errors_say_what_the_file_is() {
        assert_eq!(
            error(b""),
            "is not an ELF program (it starts with nothing: it is empty)"
        );
        assert_eq!(error(b"#!/bin/sh\n"), "is not an ELF program (it starts with \"#!/b\")");
        assert_eq!(
            error(&[0xfe, 0xed, 0xfa, 0xcf, 1]),
            "is not an ELF program (it starts with fe ed fa cf)"
        );
        assert_eq!(
            error(&program(2, 183)),
            "is a program for aarch64, this host runs x86-64"
        );
        assert_eq!(
            error(&program(2, 9999)),
            "is a program for machine number 9999, this host runs x86-64"
        );
        assert_eq!(error(&program(1, 62)), "is an object file, not a program");
        assert_eq!(error(&program(4, 62)), "is a core dump, not a program");
        let mut x32 = program(2, 62);
        x32[4] = 1;
        assert_eq!(
            error(&x32),
            "is a program for x86-64 with 32-bit pointers (x32), this host runs x86-64"
        );
        let mut big = program(2, 0);
        big[5] = 2;
        big[19] = 22;
        assert_eq!(error(&big), "is a program for s390x, this host runs x86-64");
    }

    #[test]
    fn damage_is_named() {
        let whole = program(2, 62);
        assert_eq!(error(&whole[..10]), "is damaged: it ends within its header");
        assert_eq!(
            error(&whole[..0x180]),
            "is damaged: the segment at 0x400000 lies beyond the end of the file"
        );
        let mut skewed = whole.clone();
        put(&mut skewed, 64 + 16, 0x40_0010);
        assert_eq!(
            error(&skewed),
            "is damaged: the segment at 0x400010 is not aligned as its place in the file"
        );
        let mut shrunk = whole.clone();
        put(&mut shrunk, 64 + 40, 0x100);
        assert_eq!(
            error(&shrunk),
            "is damaged: the segment at 0x400000 is larger in the file than in memory"
        );
        let mut none = whole;
        none[64] = 4;
        assert_eq!(error(&none), "is damaged: it has no segment to load");
    }

    #[test]
    fn the_hosts_own_shell_is_a_program() {
        let shell = Elf::parse(&std::fs::read("/bin/sh").unwrap()).unwrap();
        assert!(shell.interpreter.is_none_or(|path| path.starts_with(b"/")));
        assert!(
            shell
                .segments
                .iter()
                .any(|segment| segment.prot & crate::sys::EXEC != 0)
        );
    }
}
