//! Programs of classic BPF (`linux/filter.h`), written with labels.

use std::collections::BTreeMap;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD_X: u16 = 0x40;
const LOAD_HALF_X: u16 = 0x48;
const LOAD_BYTE_X: u16 = 0x50;
const LOAD_STORED: u16 = 0x60;
const X_OF_HEADER: u16 = 0xb1;
const STORE: u16 = 0x02;
const TO_X: u16 = 0x07;
const ADD_X: u16 = 0x0c;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_MORE: u16 = 0x25;
const IF_LEAST: u16 = 0x35;
const IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`.
const TAG_PRESENT: u32 = (-0x1000_i32 + 48) as u32;

/// One instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A program that is being written. All jumps go forward, as they must, by an unconditional one: those with a condition reach 255
/// instructions only.
#[derive(Debug, Default)]
pub(crate) struct Program {
    code: Vec<Insn>,
    /// Jumps whose aim is not known yet.
    jumps: Vec<(usize, String)>,
    labels: BTreeMap<String, usize>,
}

impl Program {
    fn add(&mut self, code: u16, k: u32) {
        self.code.push(Insn { code, jt: 0, jf: 0, k });
    }

    pub fn load_word(&mut self, at: u32) {
        self.add(LOAD_WORD, at);
    }

    pub fn load_half(&mut self, at: u32) {
        self.add(LOAD_HALF, at);
    }

    pub fn load_byte(&mut self, at: u32) {
        self.add(LOAD_BYTE, at);
    }

    pub fn load_tag_present(&mut self) {
        self.add(LOAD_BYTE, TAG_PRESENT);
    }

    pub fn load_word_x(&mut self, at: u32) {
        self.add(LOAD_WORD_X, at);
    }

    pub fn load_half_x(&mut self, at: u32) {
        self.add(LOAD_HALF_X, at);
    }

    pub fn load_byte_x(&mut self, at: u32) {
        self.add(LOAD_BYTE_X, at);
    }

    /// X becomes the bytes of the IPv4 header there.
    pub fn x_of_header(&mut self, at: u32) {
        self.add(X_OF_HEADER, at);
    }

    pub fn store(&mut self) {
        self.add(STORE, 0);
    }

    pub fn load_stored(&mut self) {
        self.add(LOAD_STORED, 0);
    }

    pub fn copy_to_x(&mut self) {
        self.add(TO_X, 0);
    }

    pub fn add_x(&mut self) {
        self.add(ADD_X, 0);
    }

    pub fn and(&mut self, mask: u32) {
        self.add(AND, mask);
    }

    pub fn shift_left(&mut self, bits: u32) {
        self.add(SHIFT_LEFT, bits);
    }

    pub fn ret(&mut self, bytes: u32) {
        self.add(RETURN, bytes);
    }

    pub fn jump(&mut self, label: &str) {
        self.jumps.push((self.code.len(), label.into()));
        self.add(JUMP, 0);
    }

    fn when(&mut self, code: u16, k: u32, is_true: bool, label: &str) {
        let (jt, jf) = if is_true { (0, 1) } else { (1, 0) };
        self.code.push(Insn { code, jt, jf, k });
        self.jump(label);
    }

    pub fn if_equal(&mut self, k: u32, label: &str) {
        self.when(IF_EQUAL, k, true, label);
    }

    pub fn unless_equal(&mut self, k: u32, label: &str) {
        self.when(IF_EQUAL, k, false, label);
    }

    /// If one of these bits is set.
    pub fn if_any(&mut self, bits: u32, label: &str) {
        self.when(IF_ANY, bits, true, label);
    }

    pub fn if_within(&mut self, first: u32, last: u32, label: &str) {
        // Over the other test and its jump, if it is less.
        self.code.push(Insn {
            code: IF_LEAST,
            jt: 0,
            jf: 2,
            k: first,
        });
        self.when(IF_MORE, last, false, label);
    }

    /// What comes next is called so.
    pub fn label(&mut self, label: &str) {
        self.labels.insert(label.into(), self.code.len());
    }

    /// The program with its jumps.
    pub fn finish(mut self) -> Vec<Insn> {
        for (at, label) in &self.jumps {
            let to = self.labels[label];
            debug_assert!(to > *at, "{label} lies behind");
            self.code[*at].k = (to - at - 1) as u32;
        }
        self.code
    }
}

/// What Linux's own interpreter would answer (`Documentation/networking/filter.rst`).
#[cfg(test)]
pub(crate) fn run(program: &[Insn], frame: &[u8], tagged: bool) -> u32 {
    let (mut a, mut x, mut stored, mut at) = (0_u32, 0_u32, 0_u32, 0);
    let load = |from: u32, bytes: usize| {
        let part = frame.get(from as usize..from as usize + bytes)?;
        Some(part.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)))
    };
    loop {
        let Insn { code, jt, jf, k } = program[at];
        at += 1;
        let is = match code {
            IF_EQUAL => a == k,
            IF_MORE => a > k,
            IF_LEAST => a >= k,
            IF_ANY => a & k != 0,
            _ => false,
        };
        let loaded = match code {
            LOAD_BYTE if k == TAG_PRESENT => Some(tagged.into()),
            LOAD_WORD => load(k, 4),
            LOAD_HALF => load(k, 2),
            LOAD_BYTE => load(k, 1),
            LOAD_WORD_X => load(k.wrapping_add(x), 4),
            LOAD_HALF_X => load(k.wrapping_add(x), 2),
            LOAD_BYTE_X => load(k.wrapping_add(x), 1),
            LOAD_STORED => Some(stored),
            X_OF_HEADER => match load(k, 1) {
                Some(byte) => {
                    x = (byte & 0x0f) << 2;
                    Some(a)
                }
                None => None,
            },
            STORE => {
                stored = a;
                Some(a)
            }
            TO_X => {
                x = a;
                Some(a)
            }
            ADD_X => Some(a.wrapping_add(x)),
            AND => Some(a & k),
            SHIFT_LEFT => Some(a << k),
            JUMP => {
                at += k as usize;
                Some(a)
            }
            IF_EQUAL | IF_MORE | IF_LEAST | IF_ANY => {
                at += usize::from(if is { jt } else { jf });
                Some(a)
            }
            RETURN => return k,
            other => panic!("instruction {other:#x}"),
        };
        // What lies beyond the frame ends the program.
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
    }
}
