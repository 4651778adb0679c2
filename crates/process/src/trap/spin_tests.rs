//! [`crate::spin`] carries instructions out as the processor does: random ones, both ways.

use std::arch::naked_asm;
use std::ptr;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use windtunnel_base::Rng;

use crate::spin::{Page, Pages, run_one};
use crate::sys::PAGE;

const RSP: usize = 4;
const RDI: usize = 7;
const FLAGS: usize = 16;
const STATUS: u64 = 0x8d5;
const CARRY: u64 = 1;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const OVERFLOW: u64 = 1 << 11;

/// General registers by the processor's numbers, then the flags.
type Registers = [u64; 17];

/// Calls `code` with these registers, but for rsp.
///
/// # Safety
/// The code keeps to its registers and to memory that may be changed, and returns.
#[unsafe(naked)]
unsafe extern "C" fn call_with(registers: *mut Registers, code: *const u8) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        "push rsi",
        "push qword ptr [rdi + 128]",
        "popfq",
        "mov rax, [rdi]",
        "mov rcx, [rdi + 8]",
        "mov rdx, [rdi + 16]",
        "mov rbx, [rdi + 24]",
        "mov rbp, [rdi + 40]",
        "mov rsi, [rdi + 48]",
        "mov r8, [rdi + 64]",
        "mov r9, [rdi + 72]",
        "mov r10, [rdi + 80]",
        "mov r11, [rdi + 88]",
        "mov r12, [rdi + 96]",
        "mov r13, [rdi + 104]",
        "mov r14, [rdi + 112]",
        "mov r15, [rdi + 120]",
        "mov rdi, [rdi + 56]",
        "call [rsp]",
        "mov [rsp], rdi",
        "mov rdi, [rsp + 8]",
        "mov [rdi], rax",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], rdx",
        "mov [rdi + 24], rbx",
        "mov [rdi + 40], rbp",
        "mov [rdi + 48], rsi",
        "mov [rdi + 64], r8",
        "mov [rdi + 72], r9",
        "mov [rdi + 80], r10",
        "mov [rdi + 88], r11",
        "mov [rdi + 96], r12",
        "mov [rdi + 104], r13",
        "mov [rdi + 112], r14",
        "mov [rdi + 120], r15",
        "pushfq",
        "pop qword ptr [rdi + 128]",
        "pop rax",
        "mov [rdi + 56], rax",
        "pop rdi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// A page of code and one of data, mapped for the processor to use.
struct Native {
    pages: *mut u8,
}

impl Native {
    fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping wherever there is room; it stays.
        let pages = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE as usize, protection, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        Self { pages: pages.cast() }
    }

    fn data(&self) -> u64 {
        self.pages as u64 + PAGE
    }

    /// Carries `insn` out with `word` at [`Native::data`]; the word afterwards.
    fn run(&self, insn: &[u8], registers: &mut Registers, word: u64) -> u64 {
        // SAFETY: the pages are ours; the instruction is one that `random_insn` makes, and a `ret` follows.
        unsafe {
            ptr::copy_nonoverlapping(insn.as_ptr(), self.pages, insn.len());
            self.pages.add(insn.len()).write(0xc3);
            let data = self.pages.add(PAGE as usize).cast::<u64>();
            data.write(word);
            call_with(registers, self.pages);
            data.read()
        }
    }
}

/// The same pages for the other way.
struct Copied {
    native: u64,
    code: Vec<u8>,
    word: u64,
}

impl Pages for Copied {
    fn page(&mut self, address: u64) -> Option<Page> {
        let exec = address == self.native;
        if !exec && address != self.native + PAGE {
            return None;
        }
        let mut bytes = Box::new([0; PAGE as usize]);
        match exec {
            true => bytes[..self.code.len()].copy_from_slice(&self.code),
            false => bytes[..8].copy_from_slice(&self.word.to_le_bytes()),
        }
        Some(Page {
            bytes,
            read: true,
            write: !exec,
            exec,
            shared: false,
        })
    }
}

/// An instruction on registers or the memory at rdi, which does not touch rsp.
fn random_insn(rng: &mut Rng) -> Vec<u8> {
    let mut number = |end: u64| rng.below(end);
    loop {
        let mut insn = Vec::new();
        if number(4) == 0 {
            insn.push(0x66);
        }
        let rex = if number(3) > 0 { 0x40 | number(16) as u8 } else { 0 };
        if rex != 0 {
            insn.push(rex);
        }
        let memory = number(2) == 0;
        let (reg, rm) = (number(8) as u8, if memory { RDI as u8 } else { number(8) as u8 });
        // What the two fields stand for; rdi as an address has no extension.
        let registers = [reg | (rex & 4) << 1, rm | (rex & 1) << 3];
        if registers.contains(&(RSP as u8)) || memory && rex & 1 != 0 || memory && registers[0] == RDI as u8 {
            continue;
        }
        let modrm = if memory { 0 } else { 0xc0 } | reg << 3 | rm;
        let extension = |to: u8| modrm & 0xc7 | to << 3;
        match number(12) {
            0..=2 => insn.extend([(number(8) as u8 * 8) | number(4) as u8, modrm]),
            3 => insn.extend([0x83, modrm, number(256) as u8]),
            4 => insn.extend([0xfe | number(2) as u8, extension(number(2) as u8)]),
            5 => insn.extend([0xf6 | number(2) as u8, extension(2 + number(2) as u8)]),
            6 => insn.extend([
                0xc0 | number(2) as u8,
                extension([4, 5, 7][number(3) as usize]),
                number(40) as u8,
            ]),
            7 => insn.extend([0x0f, [0xb6, 0xb7, 0xbe, 0xbf, 0xaf][number(5) as usize], modrm]),
            8 => insn.extend([0x0f, 0x40 | number(16) as u8, modrm]),
            9 => insn.extend([0x0f, 0x90 | number(16) as u8, modrm]),
            10 if memory => insn.extend([0x0f, [0xb0, 0xb1, 0xc0, 0xc1][number(4) as usize], modrm]),
            10 => insn.extend([0x0f, 0xc0 | number(2) as u8, modrm]),
            _ => match number(5) {
                0 => insn.extend([0x0f, 0xba, extension(4 + number(4) as u8), number(64) as u8]),
                1 => insn.extend([0x86 | number(2) as u8, modrm]),
                2 => insn.push(0x98 | number(2) as u8),
                3 => insn.extend([0x84 | number(2) as u8, modrm]),
                _ => insn.extend([0x88 | number(4) as u8, modrm]),
            },
        }
        return insn;
    }
}

/// The flags whose values the manual defines after an instruction.
fn defined(insn: &Instruction, count: u64) -> u64 {
    match insn.mnemonic() {
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => STATUS & !ADJUST,
        Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar if count == 1 => STATUS & !ADJUST,
        Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar if count > 0 => STATUS & !ADJUST & !OVERFLOW,
        Mnemonic::Imul => CARRY | OVERFLOW,
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => CARRY | ZERO,
        _ => STATUS,
    }
}

#[test]
fn instructions_do_what_the_processor_does() {
    let native = Native::new();
    let mut rng = Rng::new(1, "spin");
    let (mut known, mut tried) = (std::collections::BTreeMap::new(), 0);
    while tried < 40_000 {
        let code = random_insn(&mut rng);
        let insn = Decoder::with_ip(64, &code, native.pages as u64, DecoderOptions::NONE).decode();
        assert_eq!((insn.is_invalid(), insn.len()), (false, code.len()), "{code:x?}");
        // Numbers of all lengths, and near the limits.
        let mut value = || match rng.below(4) {
            0 => rng.below(3).wrapping_sub(1),
            1 => 1 << rng.below(64),
            _ => rng.below(u64::MAX) >> rng.below(64),
        };
        let mut before: Registers = std::array::from_fn(|_| value());
        let word = value();
        before[FLAGS] = 0x202 | value() & STATUS;
        before[RDI] = native.data();
        before[RSP] = 0;
        let pages = &mut Copied {
            native: native.pages as u64,
            code: code.clone(),
            word,
        };
        let emulated = run_one(pages, native.pages as u64, &before, native.data());
        tried += 1;
        let Some((after, emulated_word)) = emulated else {
            continue;
        };
        *known.entry(format!("{:?}", insn.mnemonic())).or_insert(0) += 1;
        let mut real = before;
        let real_word = native.run(&code, &mut real, word);
        let bits = if insn.op_kind(0) == iced_x86::OpKind::Register && insn.op_register(0).size() == 8
            || insn.memory_size().size() == 8
        {
            63
        } else {
            31
        };
        let flags = defined(&insn, u64::from(insn.immediate8()) & bits);
        assert_eq!(
            after[FLAGS] & flags,
            real[FLAGS] & flags,
            "flags of {insn:?} from {before:x?}, {word:x}"
        );
        assert_eq!(after[..FLAGS], real[..FLAGS], "{insn:?} from {before:x?}, {word:x}");
        assert_eq!(emulated_word, real_word, "{insn:?} from {before:x?}, {word:x}");
    }
    assert!(known.values().sum::<u32>() > 30_000 && known.len() > 50, "{known:?}");
}
