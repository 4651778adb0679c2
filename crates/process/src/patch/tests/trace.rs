//! What code does, instruction by instruction, whichever way it is laid out: the oracle for patches.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::super::Patched;

/// Jumps in a row without an event, after which code is taken to spin.
const JUMPS_MAX: usize = 256;
/// `jmp *%gs:0`
const ENTER: [u8; 8] = [0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0];
/// `jmp *%gs:disp32`
const ENTER_AT: [u8; 4] = [0x65, 0xff, 0x24, 0x25];
/// `mov $0,%ecx`, as a trampoline does after `rdtscp`
const MOV_ECX_0: [u8; 5] = [0xb9, 0, 0, 0, 0];

/// Code by address: that of a file, or that of the patched file and its trampolines.
pub struct Image {
    areas: Vec<(u64, Vec<u8>)>,
}

impl Image {
    pub fn new(areas: Vec<(u64, Vec<u8>)>) -> Self {
        Self { areas }
    }

    /// The image of `areas` with `patched` applied; `address` turns an offset in the file into an address.
    pub fn patched(mut areas: Vec<(u64, Vec<u8>)>, patched: &Patched, address: impl Fn(u64) -> u64) -> Self {
        for (offset, bytes) in patched.text.iter().chain(&patched.replaced) {
            let start = address(*offset);
            let (base, area) = areas
                .iter_mut()
                .find(|(base, area)| (*base..*base + area.len() as u64).contains(&start))
                .expect("patches are in the code");
            let at = (start - *base) as usize;
            area[at..at + bytes.len()].copy_from_slice(bytes);
        }
        areas.push((patched.trampoline_vaddr, patched.trampolines.clone()));
        Self { areas }
    }

    fn bytes(&self, addr: u64) -> Option<&[u8]> {
        let (base, area) = self
            .areas
            .iter()
            .find(|(base, area)| (*base..*base + area.len() as u64).contains(&addr))?;
        area.get((addr - base) as usize..)
    }
}

/// What running from `addr` does, up to where the code is left, or `events` events. Straight jumps are followed and
/// leave no event, so the result does not depend on the layout.
pub fn trace(image: &Image, mut addr: u64, events: usize) -> Vec<String> {
    let mut trace = Vec::new();
    let mut jumps = 0;
    while trace.len() < events {
        let Some(bytes) = image.bytes(addr) else {
            trace.push(format!("leaves to {addr:#x}"));
            break;
        };
        let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
        let insn = decoder.decode();
        let target = insn.near_branch_target();
        if insn.code() == Code::Lea_r64_m && bytes[7..].starts_with(&ENTER) {
            addr = insn.ip_rel_memory_address();
            trace.push("syscall".into());
            jumps = 0;
            assert_eq!(
                image_before(image, addr),
                [0x0f, 0x05],
                "no syscall instruction before {addr:#x}"
            );
            continue;
        }
        if insn.code() == Code::Lea_r64_m && bytes[7..].starts_with(&ENTER_AT) {
            addr = insn.ip_rel_memory_address();
            let rdtscp = image.bytes(addr).is_some_and(|bytes| bytes.starts_with(&MOV_ECX_0));
            trace.push(if rdtscp { "rdtscp" } else { "rdtsc" }.into());
            addr += if rdtscp { MOV_ECX_0.len() as u64 } else { 0 };
            jumps = 0;
            continue;
        }
        match insn.flow_control() {
            _ if insn.code() == Code::Rdtsc => trace.push("rdtsc".into()),
            _ if insn.code() == Code::Rdtscp => trace.push("rdtscp".into()),
            _ if insn.code() == Code::Syscall => trace.push("syscall".into()),
            FlowControl::Next => trace.push(place_free(&insn)),
            FlowControl::UnconditionalBranch => {
                jumps += 1;
                if jumps > JUMPS_MAX {
                    trace.push("spins".into());
                    break;
                }
                addr = target;
                continue;
            }
            FlowControl::ConditionalBranch | FlowControl::Call if target != 0 => {
                trace.push(format!("{:?} {target:#x}", insn.mnemonic()));
            }
            _ => {
                trace.push(place_free(&insn));
                break;
            }
        }
        jumps = 0;
        addr = insn.next_ip();
    }
    trace
}

fn image_before(image: &Image, addr: u64) -> [u8; 2] {
    let bytes = image.bytes(addr - 2).expect("code before a resume address");
    [bytes[0], bytes[1]]
}

/// An instruction in words; operands relative to rip read as addresses.
fn place_free(insn: &Instruction) -> String {
    format!("{:?} {insn}", insn.code())
}
