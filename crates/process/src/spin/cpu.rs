//! The instructions of loops that wait: integer arithmetic, jumps and calls, atomic operations (Intel SDM vol. 2).
//!
//! Flags that the manual leaves undefined are cleared, so that a state depends on nothing else.

use std::collections::HashMap;

use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use windtunnel_kernel::abi;

use super::memory::Memory;

const CARRY: u64 = 1 << 0;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
const STATUS: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;
/// Trap, direction and alignment check: with one of them set instructions do more than what is here.
const STRANGE: u64 = 1 << 8 | 1 << 10 | 1 << 18;

const RAX: usize = 0;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;

/// Registers of a program; ordered by the address of the instruction first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub rip: u64,
    pub flags: u64,
    /// By the processor's numbers.
    pub general: [u64; 16],
}

impl State {
    pub fn of(regs: &abi::Regs) -> Self {
        Self {
            rip: regs.rip,
            flags: regs.rflags,
            general: [
                regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi, regs.r8, regs.r9,
                regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
            ],
        }
    }

    pub fn to_regs(self) -> abi::Regs {
        let [
            rax,
            rcx,
            rdx,
            rbx,
            rsp,
            rbp,
            rsi,
            rdi,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = self.general;
        abi::Regs {
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            rip: self.rip,
            rflags: self.flags,
            rsp,
        }
    }
}

/// A processor that runs one program.
pub(super) struct Cpu<'a> {
    pub state: State,
    pub memory: Memory<'a>,
    fs: u64,
    decoded: HashMap<u64, Instruction>,
}

/// All bits of an operand of so many bytes.
fn mask(bytes: usize) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

fn sign_bit(bytes: usize) -> u64 {
    1 << (8 * bytes - 1)
}

fn sign_extend(value: u64, bytes: usize) -> u64 {
    let unused = 64 - 8 * bytes;
    ((value << unused) as i64 >> unused) as u64
}

impl<'a> Cpu<'a> {
    /// None if the program is in a state that needs more than what is here.
    pub fn new(state: State, fs: u64, memory: Memory<'a>) -> Option<Self> {
        (state.flags & STRANGE == 0).then(|| Self {
            state,
            memory,
            fs,
            decoded: HashMap::new(),
        })
    }

    /// Carries out one instruction; none if it is not known here, or would fault: the program is to do it itself.
    pub fn step(&mut self) -> Option<()> {
        let rip = self.state.rip;
        let insn = match self.decoded.get(&rip) {
            Some(insn) => *insn,
            None => {
                let code = self.memory.code(rip);
                let insn = Decoder::with_ip(64, &code, rip, DecoderOptions::NONE).decode();
                let may_repeat = matches!(insn.mnemonic(), Mnemonic::Ret | Mnemonic::Pause);
                if insn.is_invalid() || insn.has_rep_prefix() && !may_repeat {
                    return None;
                }
                self.decoded.insert(rip, insn);
                insn
            }
        };
        self.state.rip = insn.next_ip();
        if insn.condition_code() != ConditionCode::None {
            return self.conditional(&insn);
        }
        match insn.mnemonic() {
            Mnemonic::Nop
            | Mnemonic::Pause
            | Mnemonic::Endbr64
            | Mnemonic::Lfence
            | Mnemonic::Mfence
            | Mnemonic::Sfence => Some(()),
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.get(&insn, 1)?;
                self.set(&insn, 0, value)
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = sign_extend(self.get(&insn, 1)?, self.bytes(&insn, 1)?);
                self.set(&insn, 0, value)
            }
            Mnemonic::Lea => {
                let address = self.address(&insn, 1, true)?;
                self.set(&insn, 0, address)
            }
            Mnemonic::Cdqe | Mnemonic::Cwde | Mnemonic::Cbw | Mnemonic::Cqo | Mnemonic::Cdq => {
                self.extend_accumulator(insn.mnemonic());
                Some(())
            }
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave => self.stack(&insn),
            Mnemonic::Call | Mnemonic::Ret | Mnemonic::Jmp => self.branch(&insn),
            Mnemonic::Xchg | Mnemonic::Cmpxchg | Mnemonic::Xadd => self.exchange(&insn),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => self.bit(&insn),
            Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => self.shift(&insn),
            Mnemonic::Imul => self.multiply(&insn),
            Mnemonic::Bswap => {
                let (value, bytes) = (self.get(&insn, 0)?, self.bytes(&insn, 0)?);
                if bytes < 4 {
                    return None;
                }
                self.set(&insn, 0, value.swap_bytes() >> (64 - 8 * bytes))
            }
            _ => self.arithmetic(&insn),
        }
    }

    /// Size of an operand, bytes: at most 8.
    fn bytes(&self, insn: &Instruction, operand: u32) -> Option<usize> {
        let bytes = match insn.op_kind(operand) {
            OpKind::Register => insn.op_register(operand).size(),
            OpKind::Memory => insn.memory_size().size(),
            // Immediate values are as long as what they are for.
            _ if operand > 0 => self.bytes(insn, 0)?,
            _ => return None,
        };
        matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes)
    }

    /// An address, without the segment's for `lea`.
    fn address(&self, insn: &Instruction, operand: u32, plain: bool) -> Option<u64> {
        insn.virtual_address(operand, 0, |register, _, _| match register {
            Register::FS if plain => Some(0),
            Register::FS => Some(self.fs),
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            register => self.register(register),
        })
    }

    fn register(&self, register: Register) -> Option<u64> {
        if !register.is_gpr() {
            return None;
        }
        let value = self.state.general[register.full_register().number()];
        let high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        Some(if high { value >> 8 } else { value } & mask(register.size()))
    }

    fn get(&mut self, insn: &Instruction, operand: u32) -> Option<u64> {
        let bytes = self.bytes(insn, operand)?;
        match insn.op_kind(operand) {
            OpKind::Register => self.register(insn.op_register(operand)),
            OpKind::Memory => {
                let address = self.address(insn, operand, false)?;
                self.memory.read(address, bytes)
            }
            _ => Some(insn.try_immediate(operand).ok()? & mask(bytes)),
        }
    }

    fn set(&mut self, insn: &Instruction, operand: u32, value: u64) -> Option<()> {
        let bytes = self.bytes(insn, operand)?;
        if insn.op_kind(operand) == OpKind::Memory {
            let address = self.address(insn, operand, false)?;
            return self.memory.write(address, bytes, value);
        }
        let register = insn.op_register(operand);
        if !register.is_gpr() {
            return None;
        }
        let full = &mut self.state.general[register.full_register().number()];
        let value = value & mask(bytes);
        *full = match (register, bytes) {
            (Register::AH | Register::BH | Register::CH | Register::DH, _) => *full & !0xff00 | value << 8,
            // Writing the lower half clears the upper one.
            (_, 4 | 8) => value,
            _ => *full & !mask(bytes) | value,
        };
        Some(())
    }

    fn flag(&self, flag: u64) -> bool {
        self.state.flags & flag != 0
    }

    /// Sets the status flags: these, and those that every result of so many bytes has.
    fn set_flags(&mut self, result: u64, bytes: usize, more: u64) {
        let mut flags = more;
        if (result as u8).count_ones().is_multiple_of(2) {
            flags |= PARITY;
        }
        if result & mask(bytes) == 0 {
            flags |= ZERO;
        }
        if result & sign_bit(bytes) != 0 {
            flags |= SIGN;
        }
        self.state.flags = self.state.flags & !STATUS | flags;
    }

    fn add(&mut self, a: u64, b: u64, carry: bool, bytes: usize) -> u64 {
        let wide = u128::from(a) + u128::from(b) + u128::from(carry);
        let result = wide as u64 & mask(bytes);
        let mut flags = (a ^ b ^ result) & ADJUST;
        if wide > u128::from(mask(bytes)) {
            flags |= CARRY;
        }
        if (a ^ result) & (b ^ result) & sign_bit(bytes) != 0 {
            flags |= OVERFLOW;
        }
        self.set_flags(result, bytes, flags);
        result
    }

    fn subtract(&mut self, a: u64, b: u64, borrow: bool, bytes: usize) -> u64 {
        let result = a.wrapping_sub(b).wrapping_sub(borrow.into()) & mask(bytes);
        let mut flags = (a ^ b ^ result) & ADJUST;
        if u128::from(a) < u128::from(b) + u128::from(borrow) {
            flags |= CARRY;
        }
        if (a ^ b) & (a ^ result) & sign_bit(bytes) != 0 {
            flags |= OVERFLOW;
        }
        self.set_flags(result, bytes, flags);
        result
    }

    /// Instructions with a result from one or two operands, in the first.
    fn arithmetic(&mut self, insn: &Instruction) -> Option<()> {
        let mnemonic = insn.mnemonic();
        let unary = matches!(mnemonic, Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Neg | Mnemonic::Not);
        if insn.op_count() != if unary { 1 } else { 2 } {
            return None;
        }
        let known = unary
            || matches!(
                mnemonic,
                Mnemonic::Add | Mnemonic::Adc | Mnemonic::Sub | Mnemonic::Sbb | Mnemonic::Cmp
            )
            || matches!(mnemonic, Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test);
        if !known {
            return None;
        }
        let bytes = self.bytes(insn, 0)?;
        let a = self.get(insn, 0)?;
        let b = if unary { 1 } else { self.get(insn, 1)? };
        let carry = self.flag(CARRY);
        let result = match mnemonic {
            Mnemonic::Add => self.add(a, b, false, bytes),
            Mnemonic::Adc => self.add(a, b, carry, bytes),
            Mnemonic::Sub | Mnemonic::Cmp => self.subtract(a, b, false, bytes),
            Mnemonic::Sbb => self.subtract(a, b, carry, bytes),
            Mnemonic::Neg => self.subtract(0, a, false, bytes),
            Mnemonic::Not => !a,
            Mnemonic::Inc | Mnemonic::Dec => {
                let result = match mnemonic {
                    Mnemonic::Inc => self.add(a, 1, false, bytes),
                    _ => self.subtract(a, 1, false, bytes),
                };
                self.state.flags = self.state.flags & !CARRY | if carry { CARRY } else { 0 };
                result
            }
            _ => {
                let result = match mnemonic {
                    Mnemonic::And | Mnemonic::Test => a & b,
                    Mnemonic::Or => a | b,
                    _ => a ^ b,
                };
                self.set_flags(result, bytes, 0);
                result
            }
        };
        match mnemonic {
            Mnemonic::Cmp | Mnemonic::Test => Some(()),
            _ => self.set(insn, 0, result),
        }
    }

    fn shift(&mut self, insn: &Instruction) -> Option<()> {
        let bytes = self.bytes(insn, 0)?;
        let bits = 8 * bytes as u32;
        let count = self.get(insn, 1)? as u32 & if bytes == 8 { 63 } else { 31 };
        let value = self.get(insn, 0)?;
        if count == 0 {
            // The flags stay, and the upper half of a register is cleared.
            return self.set(insn, 0, value);
        }
        // More than the bits that there are leaves the carry undefined.
        if count > bits {
            return None;
        }
        let wide = u128::from(value);
        let (result, carry, overflow) = match insn.mnemonic() {
            Mnemonic::Shr => {
                let top = value & sign_bit(bytes) != 0;
                (wide >> count, wide >> (count - 1) & 1, top)
            }
            Mnemonic::Sar => {
                let signed = i128::from(sign_extend(value, bytes) as i64);
                ((signed >> count) as u128, (signed >> (count - 1)) as u128 & 1, false)
            }
            _ => {
                let result = wide << count;
                let carry = result >> bits & 1;
                (result, carry, (carry != 0) != (result as u64 & sign_bit(bytes) != 0))
            }
        };
        // Defined for shifts by one only.
        let overflow = if overflow && count == 1 { OVERFLOW } else { 0 };
        self.set_flags(result as u64, bytes, overflow | if carry != 0 { CARRY } else { 0 });
        self.set(insn, 0, result as u64)
    }

    /// `imul` with two or three operands.
    fn multiply(&mut self, insn: &Instruction) -> Option<()> {
        let first = match insn.op_count() {
            2 => 0,
            3 => 1,
            _ => return None,
        };
        let bytes = self.bytes(insn, 0)?;
        let a = sign_extend(self.get(insn, first)?, bytes) as i64;
        let b = sign_extend(self.get(insn, first + 1)?, bytes) as i64;
        let wide = i128::from(a) * i128::from(b);
        let result = wide as u64 & mask(bytes);
        let fits = i128::from(sign_extend(result, bytes) as i64) == wide;
        self.state.flags = self.state.flags & !STATUS | if fits { 0 } else { CARRY | OVERFLOW };
        self.set(insn, 0, result)
    }

    fn extend_accumulator(&mut self, mnemonic: Mnemonic) {
        let general = &mut self.state.general;
        let rax = general[RAX];
        match mnemonic {
            Mnemonic::Cdqe => general[RAX] = sign_extend(rax, 4),
            Mnemonic::Cwde => general[RAX] = sign_extend(rax, 2) & mask(4),
            Mnemonic::Cbw => general[RAX] = rax & !mask(2) | sign_extend(rax, 1) & mask(2),
            Mnemonic::Cqo => general[RDX] = (rax as i64 >> 63) as u64,
            _ => general[RDX] = (sign_extend(rax, 4) as i64 >> 63) as u64 & mask(4),
        }
    }

    /// `bt` and its like; the bit must be one of the operand's own, as it is but for strings of bits in memory.
    fn bit(&mut self, insn: &Instruction) -> Option<()> {
        if insn.op_kind(0) == OpKind::Memory && insn.op_kind(1) == OpKind::Register {
            return None;
        }
        let bytes = self.bytes(insn, 0)?;
        let value = self.get(insn, 0)?;
        let bit = 1 << (self.get(insn, 1)? % (8 * bytes as u64));
        // Zero is left alone, all others are undefined.
        let carry = if value & bit != 0 { CARRY } else { 0 };
        self.state.flags = self.state.flags & !(STATUS & !ZERO) | carry;
        match insn.mnemonic() {
            Mnemonic::Bt => Some(()),
            Mnemonic::Bts => self.set(insn, 0, value | bit),
            Mnemonic::Btr => self.set(insn, 0, value & !bit),
            _ => self.set(insn, 0, value ^ bit),
        }
    }

    fn exchange(&mut self, insn: &Instruction) -> Option<()> {
        let bytes = self.bytes(insn, 0)?;
        let (a, b) = (self.get(insn, 0)?, self.get(insn, 1)?);
        match insn.mnemonic() {
            // Memory, whose address may depend on the register, is always the first.
            Mnemonic::Xchg => {
                self.set(insn, 0, b)?;
                self.set(insn, 1, a)
            }
            Mnemonic::Xadd => {
                let sum = self.add(a, b, false, bytes);
                if insn.op_kind(0) == OpKind::Memory {
                    self.set(insn, 0, sum)?;
                    return self.set(insn, 1, a);
                }
                self.set(insn, 1, a)?;
                self.set(insn, 0, sum)
            }
            _ if insn.op_kind(0) != OpKind::Memory => None,
            _ => {
                let accumulator = self.state.general[RAX] & mask(bytes);
                self.subtract(accumulator, a, false, bytes);
                if self.flag(ZERO) {
                    return self.set(insn, 0, b);
                }
                // It writes what it found.
                self.set(insn, 0, a)?;
                let rax = &mut self.state.general[RAX];
                *rax = if bytes >= 4 { a } else { *rax & !mask(bytes) | a };
                Some(())
            }
        }
    }

    fn holds(&self, condition: ConditionCode) -> Option<bool> {
        let less = self.flag(SIGN) != self.flag(OVERFLOW);
        Some(match condition {
            ConditionCode::o => self.flag(OVERFLOW),
            ConditionCode::no => !self.flag(OVERFLOW),
            ConditionCode::b => self.flag(CARRY),
            ConditionCode::ae => !self.flag(CARRY),
            ConditionCode::e => self.flag(ZERO),
            ConditionCode::ne => !self.flag(ZERO),
            ConditionCode::be => self.flag(CARRY | ZERO),
            ConditionCode::a => !self.flag(CARRY | ZERO),
            ConditionCode::s => self.flag(SIGN),
            ConditionCode::ns => !self.flag(SIGN),
            ConditionCode::p => self.flag(PARITY),
            ConditionCode::np => !self.flag(PARITY),
            ConditionCode::l => less,
            ConditionCode::ge => !less,
            ConditionCode::le => less || self.flag(ZERO),
            ConditionCode::g => !less && !self.flag(ZERO),
            ConditionCode::None => return None,
        })
    }

    /// Jumps, moves and `setcc` on a condition.
    fn conditional(&mut self, insn: &Instruction) -> Option<()> {
        let holds = self.holds(insn.condition_code())?;
        if insn.is_jcc_short_or_near() {
            if holds {
                self.state.rip = insn.near_branch_target();
            }
            return Some(());
        }
        match insn.op_count() {
            1 if self.bytes(insn, 0)? == 1 => self.set(insn, 0, holds.into()),
            // Read in any case, and written in any case, which clears the upper half.
            2 if insn.op_kind(0) == OpKind::Register => {
                let (old, new) = (self.get(insn, 0)?, self.get(insn, 1)?);
                self.set(insn, 0, if holds { new } else { old })
            }
            _ => None,
        }
    }

    fn push(&mut self, value: u64) -> Option<()> {
        let rsp = self.state.general[RSP].wrapping_sub(8);
        self.memory.write(rsp, 8, value)?;
        self.state.general[RSP] = rsp;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        let rsp = self.state.general[RSP];
        let value = self.memory.read(rsp, 8)?;
        self.state.general[RSP] = rsp.wrapping_add(8);
        Some(value)
    }

    fn stack(&mut self, insn: &Instruction) -> Option<()> {
        match insn.mnemonic() {
            Mnemonic::Leave if insn.code() == Code::Leaveq => {
                self.state.general[RSP] = self.state.general[RBP];
                self.state.general[RBP] = self.pop()?;
                Some(())
            }
            Mnemonic::Push if insn.stack_pointer_increment() == -8 => {
                let value = match insn.op_kind(0) {
                    OpKind::Register | OpKind::Memory => self.get(insn, 0)?,
                    _ => insn.try_immediate(0).ok()?,
                };
                self.push(value)
            }
            Mnemonic::Pop if insn.stack_pointer_increment() == 8 && insn.op_kind(0) == OpKind::Register => {
                let value = self.pop()?;
                self.set(insn, 0, value)
            }
            _ => None,
        }
    }

    fn branch(&mut self, insn: &Instruction) -> Option<()> {
        if insn.mnemonic() == Mnemonic::Ret {
            if !matches!(insn.code(), Code::Retnq | Code::Retnq_imm16) {
                return None;
            }
            self.state.rip = self.pop()?;
            if insn.code() == Code::Retnq_imm16 {
                let rsp = &mut self.state.general[RSP];
                *rsp = rsp.wrapping_add(insn.immediate16().into());
            }
            return Some(());
        }
        let target = match insn.op_kind(0) {
            OpKind::NearBranch64 => insn.near_branch_target(),
            OpKind::Register | OpKind::Memory if self.bytes(insn, 0)? == 8 => self.get(insn, 0)?,
            _ => return None,
        };
        if insn.mnemonic() == Mnemonic::Call {
            self.push(self.state.rip)?;
        }
        self.state.rip = target;
        Some(())
    }
}
