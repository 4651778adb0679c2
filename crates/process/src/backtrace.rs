//! Where a program is, in words: the call chain of a thread, with files and symbols, for reports.
//!
//! All comes from what is mapped right now, so this is for the program whose memory is in place: the one that runs.
//! Nothing is trusted: a program that is in trouble may have overwritten its stack, and files may be damaged.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule, UnwindContext,
    UnwindSection, X86_64,
};
use object::{Object as _, ObjectSection as _};
use windtunnel_kernel::{Symbols, abi};

use crate::Shared;
use crate::patched::PatchedImage;
use crate::sys;

/// Longest call chain that is told.
const FRAMES_MAX: usize = 32;
/// DWARF's numbers of registers go up to the return address (System V ABI, figure 3.36).
const REGISTERS: usize = 17;
/// Where separate symbol files lie, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// One step of a call chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address in memory.
    pub address: u64,
    /// File that is mapped there, and the address as linked: what `addr2line` and `objdump` know.
    pub file: Option<(String, u64)>,
    /// `function+0xoffset`.
    pub symbol: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.symbol, &self.file) {
            (Some(symbol), Some((path, address))) => write!(f, "{symbol} ({path}+{address:#x})"),
            (None, Some((path, address))) => write!(f, "{path}+{address:#x}"),
            (_, None) => write!(f, "{:#x}", self.address),
        }
    }
}

/// The call chain of the program whose registers these are, innermost first.
pub fn backtrace(shared: &Shared, regs: &abi::Regs) -> Vec<Frame> {
    let mut walk = Walk::new(shared);
    let mut registers = Registers::of(regs);
    let mut frames = vec![walk.frame(regs.rip, 0)];
    while frames.len() < FRAMES_MAX {
        let first = frames.len() == 1;
        let Some(caller) = walk.caller(&registers, first) else {
            break;
        };
        // The stack shrinks from frame to frame, or this is no call chain.
        let (rsp, caller_rsp) = (registers.get(X86_64::RSP), caller.get(X86_64::RSP));
        let Some(address) = caller
            .get(X86_64::RA)
            .filter(|&address| address != 0 && caller_rsp > rsp)
        else {
            break;
        };
        if walk.find(address).is_none() {
            break;
        }
        // A call may be the last instruction of its function: look at the one before the return address.
        frames.push(walk.frame(address, 1));
        registers = caller;
    }
    frames
}

/// Registers by DWARF's numbers, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Registers([Option<u64>; REGISTERS]);

impl Registers {
    fn of(regs: &abi::Regs) -> Self {
        let all = [
            regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8, regs.r9, regs.r10,
            regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
        ];
        Self(all.map(Some))
    }

    fn get(&self, register: Register) -> Option<u64> {
        *self.0.get(usize::from(register.0))?
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(slot) = self.0.get_mut(usize::from(register.0)) {
            *slot = value;
        }
    }
}

/// An executable mapping of this process.
struct Mapping {
    range: Range<u64>,
    offset: u64,
    inode: u64,
}

/// What is read of files and of the memory map while one report is made.
struct Walk {
    mappings: Vec<Mapping>,
    images: HashMap<u64, Arc<PatchedImage>>,
    files: HashMap<u64, Option<Arc<File>>>,
}

impl Walk {
    fn new(shared: &Shared) -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self {
            mappings: maps.lines().filter_map(parse_mapping).collect(),
            images: shared.images.by_inode(),
            files: HashMap::new(),
        }
    }

    /// The executable mapping that holds `address`.
    fn find(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.range.contains(&address))
    }

    /// The image at `address`, and its load bias.
    fn image(&self, address: u64) -> Option<(Arc<PatchedImage>, u64)> {
        let mapping = self.find(address)?;
        let image = self.images.get(&mapping.inode)?;
        let bias = match mapping.offset.checked_sub(image.trampolines_offset) {
            Some(into) if image.trampolines_len > 0 => {
                mapping.range.start.checked_sub(image.trampolines_vaddr + into)?
            }
            _ => image.bias(mapping.range.start, mapping.offset)?,
        };
        Some((image.clone(), bias))
    }

    /// The contents of an image, read once.
    fn file(&mut self, image: &Arc<PatchedImage>) -> Option<Arc<File>> {
        let inode = image.inode;
        self.files
            .entry(inode)
            .or_insert_with(|| File::read(image).map(Arc::new))
            .clone()
    }

    /// The step at `address`; `back` is 1 for a return address.
    fn frame(&mut self, address: u64, back: u64) -> Frame {
        let mut frame = Frame {
            address,
            file: None,
            symbol: None,
        };
        if let Some((image, bias)) = self.image(address) {
            let linked = address.wrapping_sub(bias);
            frame.file = Some((image.path.clone(), linked));
            frame.symbol = if image.in_trampolines(linked) {
                Some("a system call's new place".into())
            } else {
                self.file(&image)
                    .and_then(|file| file.symbols.as_ref()?.name(linked.wrapping_sub(back)))
            };
        }
        frame
    }

    /// The registers of the caller, as far as they are known.
    fn caller(&mut self, registers: &Registers, first: bool) -> Option<Registers> {
        let address = registers.get(X86_64::RA)?;
        let Some((image, bias)) = self.image(address) else {
            // A call of a bad pointer has only left its return address.
            return if first && self.find(address).is_none() {
                returned(registers)
            } else {
                by_frame_pointer(registers)
            };
        };
        // A call may be the last instruction of its function.
        let linked = address.wrapping_sub(bias).wrapping_sub(u64::from(!first));
        let by_table = self.file(&image).and_then(|file| file.caller(linked, registers));
        by_table.or_else(|| by_frame_pointer(registers))
    }
}

/// The caller's registers right after a call.
fn returned(registers: &Registers) -> Option<Registers> {
    let rsp = registers.get(X86_64::RSP)?;
    let mut caller = *registers;
    caller.set(X86_64::RA, Some(sys::peek(rsp)?));
    caller.set(X86_64::RSP, rsp.checked_add(8));
    Some(caller)
}

/// The caller's registers where rbp points to the chain of frames.
fn by_frame_pointer(registers: &Registers) -> Option<Registers> {
    let rbp = registers.get(X86_64::RBP)?;
    let mut caller = Registers::default();
    caller.set(X86_64::RBP, Some(sys::peek(rbp)?));
    caller.set(X86_64::RA, Some(sys::peek(rbp.checked_add(8)?)?));
    caller.set(X86_64::RSP, rbp.checked_add(16));
    Some(caller)
}

/// A line of `/proc/self/maps`, if it is of executable memory.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let executable = words.next()?.as_bytes().get(2) == Some(&b'x');
    let offset = words.next()?;
    let _device = words.next()?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    executable.then_some(Mapping {
        range: number(start)?..number(end)?,
        offset: number(offset)?,
        inode: words.next()?.parse().ok()?,
    })
}

/// Symbols and call frame information of a file.
struct File {
    symbols: Option<Symbols>,
    eh_frame: Section,
    eh_frame_hdr: Section,
    text: u64,
}

/// A section's address and bytes; empty: there is none.
#[derive(Default)]
struct Section {
    address: u64,
    bytes: Vec<u8>,
}

impl File {
    fn read(image: &PatchedImage) -> Option<Self> {
        // The patched copy: patching leaves symbols and tables alone.
        let bytes = contents(image)?;
        let elf = object::File::parse(&*bytes).ok()?;
        let section = |name| {
            let section = elf.section_by_name(name);
            let data = section.map(|section| Section {
                address: section.address(),
                bytes: section.data().unwrap_or_default().to_vec(),
            });
            data.unwrap_or_default()
        };
        Some(Self {
            symbols: separate_symbols(&elf).or_else(|| Symbols::of(&bytes)),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            text: section(".text").address,
        })
    }

    /// The caller's registers by the call frame information for `linked`.
    fn caller(&self, linked: u64, registers: &Registers) -> Option<Registers> {
        let eh_frame = EhFrame::new(&self.eh_frame.bytes, LittleEndian);
        let bases = BaseAddresses::default()
            .set_eh_frame(self.eh_frame.address)
            .set_eh_frame_hdr(self.eh_frame_hdr.address)
            .set_text(self.text);
        let mut context = UnwindContext::new();
        let fde = self
            .fde_by_table(&eh_frame, &bases, linked)
            .or_else(|| eh_frame.fde_for_address(&bases, linked, EhFrame::cie_from_offset).ok())?;
        let row = fde
            .unwind_info_for_address(&eh_frame, &bases, &mut context, linked)
            .ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            return None;
        };
        let cfa = registers.get(*register)?.checked_add_signed(*offset)?;
        let mut caller = *registers;
        // What a function may change without saving is not known any more.
        for scratch in [0, 1, 2, 4, 5, 8, 9, 10, 11] {
            caller.set(Register(scratch), None);
        }
        caller.set(X86_64::RA, None);
        caller.set(X86_64::RSP, Some(cfa));
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::Offset(offset) => cfa.checked_add_signed(*offset).and_then(sys::peek),
                RegisterRule::ValOffset(offset) => cfa.checked_add_signed(*offset),
                RegisterRule::Register(other) => registers.get(*other),
                RegisterRule::SameValue => registers.get(*register),
                _ => None,
            };
            caller.set(*register, value);
        }
        Some(caller)
    }

    /// The description of the function at `linked` by the sorted table, which spares a search through all.
    fn fde_by_table<'a>(
        &self,
        eh_frame: &EhFrame<gimli::EndianSlice<'a, LittleEndian>>,
        bases: &BaseAddresses,
        linked: u64,
    ) -> Option<gimli::FrameDescriptionEntry<gimli::EndianSlice<'a, LittleEndian>>> {
        let header = EhFrameHdr::new(&self.eh_frame_hdr.bytes, LittleEndian)
            .parse(bases, 8)
            .ok()?;
        let table = header.table()?;
        let at = match table.lookup(linked, bases).ok()? {
            Pointer::Direct(at) => at.checked_sub(self.eh_frame.address)?,
            Pointer::Indirect(_) => return None,
        };
        let fde = eh_frame
            .fde_from_offset(bases, usize::try_from(at).ok()?.into(), EhFrame::cie_from_offset)
            .ok()?;
        fde.contains(linked).then_some(fde)
    }
}

/// The bytes of the file an image was made from, but for its patched text.
fn contents(image: &PatchedImage) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(image.trampolines_offset).ok()?];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(image.fd(), &mut bytes[done..], done as u64).ok()? {
            0 => bytes.truncate(done),
            count => done += count,
        }
    }
    Some(bytes)
}

/// The symbols that a distribution keeps in a file of their own.
fn separate_symbols(elf: &object::File) -> Option<Symbols> {
    let id = elf.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(DEBUG_FILES)
        .join(format!("{first:02x}"))
        .join(format!("{hex}.debug"));
    Symbols::of(&std::fs::read(path).ok()?)
}
