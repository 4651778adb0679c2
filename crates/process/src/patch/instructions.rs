//! Instructions that show a program its host's processor, and what programs get instead.
//!
//! Where one stands in an image, a byte or two of it are replaced, so that it faults on every processor and keeps its
//! length. All of them exist in user mode on some processors only, and the virtual CPU lacks all but `cpuid`.
//!
//! | instruction | encoding | becomes | the program gets |
//! |---|---|---|---|
//! | `cpuid` | 0f a2 | `invd`, 0f 08 | the virtual CPU ([`crate::trap`]) |
//! | `rdrand` | 0f c7 /6 | `lldt`, 0f 00 /2 | random numbers of its node, always at once |
//! | `rdseed` | 0f c7 /7 | `ltr`, 0f 00 /3 | the same |
//! | `xgetbv` | 0f 01 d0 | `ud1`, 0f b9 d0 | SIGILL: no OSXSAVE |
//! | `rdpid` | f3 0f c7 /7 | `ud1`, f3 0f b9 /7 | SIGILL: not in its leaf 7; the host's answer is the host's CPU |
//! | `rdfsbase` and its like | f3 0f ae /0 to /3 | `ud1`, f3 0f b9 | SIGILL: not in AT_HWCAP2; GS is the engine's |
//! | `rdpkru`, `wrpkru` | 0f 01 ee, ef | `ud1`, 0f b9 ee, ef | SIGILL: no OSPKE |
//! | `rdpru` | 0f 01 fd | `ud1`, 0f b9 fd | SIGILL: AMD's, counts the host's cycles |
//!
//! `invd`, `lldt` and `ltr` raise a protection fault in user mode, on bare metal and in virtual machines alike (Intel SDM
//! volume 2 and volume 3, 26.1.1: faults by privilege come before an exit); their kernel then asks whether something was
//! replaced there, so a program's own `invd` stays a fault. `ud1` raises #UD everywhere.

use iced_x86::{Instruction, Mnemonic, Register};
use serde::{Deserialize, Serialize};
use windtunnel_kernel::abi;

use crate::trap::cpuid;

/// An instruction of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeing {
    /// Bytes before its `0f`: prefixes.
    pub(super) prefixes: u8,
    /// Its bytes in all.
    len: u8,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    Cpuid,
    /// Random numbers for a register, numbered as in machine code, of so many bytes.
    Random {
        register: u8,
        bytes: u8,
    },
    /// Not there on the virtual CPU.
    Undefined,
}

/// Carry, overflow, sign, zero, adjust and parity, of which `rdrand` sets the first and clears the others.
const ARITHMETIC_FLAGS: u64 = 0x8d5;
const CARRY: u64 = 1;
/// The second opcode byte of what replaces them.
const INVD: u8 = 0x08;
const LLDT_LTR: u8 = 0x00;
const UD1: u8 = 0xb9;
/// In the ModRM byte, between /6 and /2, and between /7 and /3.
const MODRM_HIGH: u8 = 0x20;

impl Seeing {
    /// What `insn`, which has these bytes, is in the table.
    pub(super) fn of(insn: &Instruction, bytes: &[u8]) -> Option<Self> {
        use Mnemonic::*;
        let what = match insn.mnemonic() {
            Cpuid => What::Cpuid,
            Rdrand | Rdseed => {
                let register = insn.op0_register();
                What::Random {
                    register: register.number() as u8,
                    bytes: register.size() as u8,
                }
            }
            Xgetbv | Rdpid | Rdfsbase | Rdgsbase | Wrfsbase | Wrgsbase | Rdpkru | Wrpkru | Rdpru => What::Undefined,
            _ => return None,
        };
        debug_assert!(what == What::Cpuid || what == What::Undefined || insn.op0_register() != Register::None);
        let prefixes = bytes.iter().position(|&byte| byte == 0x0f)? as u8;
        Some(Self {
            prefixes,
            len: insn.len() as u8,
            what,
        })
    }

    /// The new bytes from its `0f` on, of which there are two or three.
    pub(super) fn replacement(&self, opcode: &[u8]) -> Option<Vec<u8>> {
        let modrm = |byte: u8| opcode.get(2).map(|modrm| vec![0x0f, byte, *modrm]);
        match self.what {
            What::Cpuid => Some(vec![0x0f, INVD]),
            What::Random { .. } => modrm(LLDT_LTR).map(|mut bytes| {
                bytes[2] &= !MODRM_HIGH;
                bytes
            }),
            What::Undefined => modrm(UD1),
        }
    }

    /// Whether the program goes on after the fault that the replacement raises.
    pub(crate) fn is_answered(&self) -> bool {
        self.what != What::Undefined
    }

    /// Carries it out, except for the random bytes: the result for [`windtunnel_kernel::host::Host::instruction`].
    pub(crate) fn answer(&self, regs: &mut abi::Regs) -> i64 {
        let result = match self.what {
            What::Undefined => return 0,
            What::Cpuid => {
                let leaf = cpuid(regs.rax as u32, regs.rcx as u32);
                (regs.rax, regs.rbx) = (leaf.eax.into(), leaf.ebx.into());
                (regs.rcx, regs.rdx) = (leaf.ecx.into(), leaf.edx.into());
                abi::INSTRUCTION_DONE
            }
            What::Random { register, bytes } => {
                regs.rflags = regs.rflags & !ARITHMETIC_FLAGS | CARRY;
                abi::put_random(register, bytes)
            }
        };
        regs.rip += u64::from(self.len);
        result
    }
}

/// Whether `bytes`, which start with a `0f`, may be the opcode of one of the table; `before` are the bytes before it.
pub(super) fn may_start(bytes: &[u8], before: &[u8]) -> bool {
    match (bytes.get(1), bytes.get(2)) {
        (Some(0xa2), _) => true,
        (Some(0x01), Some(0xd0 | 0xee | 0xef | 0xfd)) => true,
        (Some(0xc7), Some(0xf0..)) => true,
        (Some(0xae), Some(0xc0..=0xdf)) => before.iter().rev().take(2).any(|&byte| byte == 0xf3),
        _ => false,
    }
}
