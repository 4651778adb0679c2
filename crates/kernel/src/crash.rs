//! The report about an instance that ended in the middle of an entry.

use std::fmt;
use std::ops::Range;

use crate::abi;
use crate::image::Image;
use crate::thread::CrashRecord;

/// Longest backtrace, frames.
const MAX_FRAMES: usize = 48;
/// How much of a stack is searched when there is no chain of frame pointers, bytes.
const MAX_SCAN_BYTES: u64 = 8192;

/// What ended an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The kernel said so: a panic or an oops.
    Panic,
    /// Kernel code got a host signal.
    Fault {
        /// Linux signal number.
        signo: u32,
        /// `si_code`.
        code: i32,
        /// The address that faulted.
        address: u64,
    },
    /// The instance had crashed before and was entered again.
    CrashedBefore,
}

/// One step of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacktraceFrame {
    /// Address relative to the image's base: what a debugger with the symbol file knows.
    pub address: u64,
    /// `function+0xoffset`, where there are symbols.
    pub name: Option<String>,
    /// False for a word found on the stack that merely looks like a return address.
    pub certain: bool,
}

/// An instance that is lost, and all that is known about it.
#[derive(Clone, Debug)]
pub struct Crash {
    /// What happened.
    pub kind: CrashKind,
    /// The kernel's words, if any.
    pub message: String,
    /// Registers in the kernel; only rip, rsp and rbp after a panic.
    pub regs: abi::Regs,
    /// Innermost first.
    pub backtrace: Vec<BacktraceFrame>,
    /// Name of the running program thread.
    pub comm: String,
    /// Its pid inside the node.
    pub pid: u64,
    /// Virtual time, ns.
    pub now_ns: u64,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            CrashKind::Panic => write!(f, "kernel panic: {}", self.message.trim_end())?,
            CrashKind::Fault { signo, address, .. } => {
                write!(
                    f,
                    "kernel fault: signal {signo} for address {address:#x} at {:#x}",
                    self.regs.rip
                )?;
            }
            CrashKind::CrashedBefore => write!(f, "the kernel has crashed before")?,
        }
        write!(f, "\n  at {} ns, in {} (pid {})", self.now_ns, self.comm, self.pid)?;
        for frame in &self.backtrace {
            let mark = if frame.certain { "" } else { "? " };
            match &frame.name {
                Some(name) => write!(f, "\n  {mark}{name}")?,
                None => write!(f, "\n  {mark}image+{:#x}", frame.address)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Crash {}

/// The memory of an instance that may be read for a report.
pub(crate) struct Memory<'a> {
    pub image: &'a Image,
    pub base: u64,
    pub ram: Range<u64>,
}

impl Memory<'_> {
    /// The word at `address` if it is in a readable and writable part of the instance.
    fn word(&self, address: u64) -> Option<u64> {
        let end = address.checked_add(8)?;
        let in_ram = self.ram.start <= address && end <= self.ram.end;
        let in_data = || {
            let mut writable = self.image.segments().iter().filter(|s| s.writable);
            writable.any(|s| self.base + s.start() <= address && end <= self.base + s.end())
        };
        if !address.is_multiple_of(8) || !(in_ram || in_data()) {
            return None;
        }
        // SAFETY: the range is mapped readable as long as the instance lives, and no kernel is running.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    /// Up to `max` bytes of the NUL-terminated text at `address`, if it is all in the instance.
    pub fn text(&self, address: u64, max: u64) -> Option<String> {
        let mut text = Vec::new();
        for at in address..address.checked_add(max)? {
            let byte = (self.word(at & !7)? >> (8 * (at & 7))) as u8;
            if byte == 0 {
                break;
            }
            text.push(byte);
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn is_code(&self, address: u64) -> bool {
        let mut code = self.image.segments().iter().filter(|s| s.executable);
        code.any(|s| self.base + s.address <= address && address < self.base + s.address + s.memory_bytes)
    }

    /// `back` is 1 for a return address, whose call may be the last instruction of its function.
    fn frame(&self, address: u64, back: u64, certain: bool) -> BacktraceFrame {
        let address = address - self.base;
        let name = self
            .image
            .symbols()
            .and_then(|symbols| symbols.name(address.saturating_sub(back)));
        BacktraceFrame { address, name, certain }
    }

    /// The chain of frame pointers, then what looks like return addresses on the rest of the stack.
    pub fn backtrace(&self, regs: &abi::Regs) -> Vec<BacktraceFrame> {
        let mut frames = Vec::new();
        if self.is_code(regs.rip) {
            frames.push(self.frame(regs.rip, 0, true));
        }
        let mut frame_pointer = regs.rbp;
        let mut scan_from = if self.word(regs.rsp & !7).is_some() {
            regs.rsp & !7
        } else {
            regs.rbp & !7
        };
        while frames.len() < MAX_FRAMES {
            let (Some(next), Some(back)) = (self.word(frame_pointer), self.word(frame_pointer.wrapping_add(8))) else {
                break;
            };
            if !self.is_code(back) {
                break;
            }
            frames.push(self.frame(back, 1, true));
            scan_from = frame_pointer + 16;
            if next <= frame_pointer {
                break;
            }
            frame_pointer = next;
        }
        let scan_to = scan_from.saturating_add(MAX_SCAN_BYTES);
        for at in (scan_from..scan_to).step_by(8) {
            let Some(word) = self.word(at) else { break };
            if self.is_code(word) && frames.len() < MAX_FRAMES {
                frames.push(self.frame(word, 1, false));
            }
        }
        frames
    }
}

impl Crash {
    /// The report about the crash noted in `record`.
    pub(crate) fn new(record: &CrashRecord, memory: &Memory<'_>, comm: String, pid: u64, now_ns: u64) -> Self {
        let message = String::from_utf8_lossy(&record.message[..record.message_len]).into_owned();
        let kind = match record.signo {
            0 => CrashKind::Panic,
            signo => CrashKind::Fault {
                signo,
                code: record.code,
                address: record.address,
            },
        };
        Self {
            kind,
            message,
            regs: record.regs,
            backtrace: memory.backtrace(&record.regs),
            comm,
            pid,
            now_ns,
        }
    }

    /// The report about an instance that was entered after its crash.
    pub(crate) fn before(now_ns: u64) -> Self {
        Self {
            kind: CrashKind::CrashedBefore,
            message: String::new(),
            regs: abi::Regs::default(),
            backtrace: Vec::new(),
            comm: String::new(),
            pid: 0,
            now_ns,
        }
    }
}
