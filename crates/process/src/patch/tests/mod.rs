//! Tests of whole analyses: exact bytes per rule, the distro's own files, and random programs.

mod elf;
mod host_files;
mod properties;
mod seeing;
mod trace;

use elf::{DATA, TEXT, TRAMPOLINES, TestElf};

use super::{PatchError, Patched, Stats, analyse};

const RET: u8 = 0xc3;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const MOV_EAX_39: [u8; 5] = [0xb8, 39, 0, 0, 0];
const MOV_RDI_RAX: [u8; 3] = [0x48, 0x89, 0xf8]; // mov %rdi,%rax
const MOV_RSI_RDI: [u8; 3] = [0x48, 0x89, 0xf7]; // mov %rsi,%rdi

fn patch(code: &[u8]) -> Patched {
    analyse(&TestElf::function(code).build()).expect("a valid file")
}

fn code(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The one patch of a file: offset in the code and bytes.
fn only(patched: &Patched) -> (u64, &[u8]) {
    assert_eq!(patched.text.len(), 1, "{patched:?}");
    (patched.text[0].0 - TEXT, &patched.text[0].1)
}

#[test]
fn r1_replaces_the_number_and_keeps_the_syscall() {
    let patched = patch(&code(&[&MOV_EAX_39, &SYSCALL, &[RET]]));
    assert_eq!(patched.trampoline_vaddr, TRAMPOLINES);
    assert_eq!(only(&patched), (0, &[0xe9, 0xfb, 0x3f, 0, 0][..]));
    #[rustfmt::skip]
    assert_eq!(patched.trampolines, [
        0xb8, 39, 0, 0, 0,                         // mov  $39,%eax
        0x48, 0x8d, 0x0d, 0xfb, 0xbf, 0xff, 0xff,  // lea  0x1007(%rip),%rcx
        0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0,        // jmp  *%gs:0
    ]);
    assert_eq!(
        patched.stats,
        Stats {
            sites: 1,
            r1: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn r1_takes_the_long_form_of_the_number() {
    let patched = patch(&code(&[&[0x48, 0xc7, 0xc0, 39, 0, 0, 0], &SYSCALL, &[RET]]));
    assert_eq!(only(&patched), (0, &[0xe9, 0xfb, 0x3f, 0, 0, 0x66, 0x90][..]));
    assert_eq!(patched.stats.r1, 1);
}

#[test]
fn r3_moves_what_stands_before() {
    let patched = patch(&code(&[&MOV_RDI_RAX, &MOV_RSI_RDI, &SYSCALL, &[RET]]));
    assert_eq!(only(&patched), (0, &[0xe9, 0xfb, 0x3f, 0, 0, 0x90][..]));
    #[rustfmt::skip]
    assert_eq!(patched.trampolines, [
        0x48, 0x89, 0xf8,                          // mov  %rdi,%rax
        0x48, 0x89, 0xf7,                          // mov  %rsi,%rdi
        0x48, 0x8d, 0x0d, 0xfb, 0xbf, 0xff, 0xff,  // lea  0x1008(%rip),%rcx
        0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0,        // jmp  *%gs:0
    ]);
    assert_eq!(
        patched.stats,
        Stats {
            sites: 1,
            r3: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn r3_keeps_the_address_of_rip_relative_operands() {
    let patched = patch(&code(&[&[0x8b, 0x05, 0xfa, 0x1f, 0, 0], &SYSCALL, &[RET]])); // mov DATA(%rip),%eax
    assert_eq!(0x1006 + 0x1ffa, DATA);
    assert_eq!(patched.trampolines[..2], [0x8b, 0x05]);
    let displacement = i32::from_le_bytes(patched.trampolines[2..6].try_into().unwrap());
    assert_eq!(TRAMPOLINES as i64 + 6 + i64::from(displacement), DATA as i64);
    assert_eq!(patched.stats.r3, 1);
}

#[test]
fn r3b_moves_three_bytes_before_and_the_syscall() {
    let patched = patch(&code(&[&[0xff, 0xd3], &MOV_RSI_RDI, &SYSCALL, &[RET]])); // call *%rbx
    assert_eq!(only(&patched), (2, &[0xe9, 0xf9, 0x3f, 0, 0][..]));
    #[rustfmt::skip]
    assert_eq!(patched.trampolines, [
        0x48, 0x89, 0xf7,                          // mov  %rsi,%rdi
        0x48, 0x8d, 0x0d, 0x0a, 0, 0, 0,           // lea  1f(%rip),%rcx
        0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0,        // jmp  *%gs:0
        0x0f, 0x05,                                // syscall
        0xe9, 0xee, 0xbf, 0xff, 0xff,              // 1: jmp 0x1007
    ]);
    assert_eq!(
        patched.stats,
        Stats {
            sites: 1,
            r3b: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn r2_moves_the_syscall_and_what_stands_after() {
    let cmp = [0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff]; // cmp $-4096,%rax
    let patched = patch(&code(&[&[0x31, 0xc0], &SYSCALL, &cmp, &[RET]])); // xor %eax,%eax
    assert_eq!(only(&patched), (2, &[0xe9, 0xf9, 0x3f, 0, 0, 0x0f, 0x1f, 0x00][..]));
    #[rustfmt::skip]
    assert_eq!(patched.trampolines, [
        0x48, 0x8d, 0x0d, 0x0a, 0, 0, 0,           // lea  1f(%rip),%rcx
        0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0,        // jmp  *%gs:0
        0x0f, 0x05,                                // syscall
        0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff,        // 1: cmp $-4096,%rax
        0xe9, 0xee, 0xbf, 0xff, 0xff,              // jmp  0x100a
    ]);
    assert_eq!(
        patched.stats,
        Stats {
            sites: 1,
            r2: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn trampolines_are_aligned_and_in_order_of_the_text() {
    let patched = patch(&code(&[&MOV_EAX_39, &SYSCALL, &MOV_EAX_39, &SYSCALL, &[RET]]));
    assert_eq!(patched.text.len(), 2);
    assert_eq!(patched.trampolines[20..32], [0xcc; 12]);
    assert_eq!(patched.trampolines[32..37], MOV_EAX_39);
    assert_eq!(patched.text[1].1, [0xe9, 0x14, 0x40, 0, 0], "0x5020 from 0x100c");
}

#[test]
fn rt_sigreturn_is_never_touched() {
    let forms: [&[u8]; 3] = [
        &[0xb8, 15, 0, 0, 0],
        &[0x48, 0xc7, 0xc0, 15, 0, 0, 0],
        &[0xc7, 0xc0, 15, 0, 0, 0],
    ];
    for mov in forms {
        for between in [&[][..], &MOV_RSI_RDI] {
            // The first byte is part of the function, as glibc's frame information has it.
            let patched = patch(&code(&[
                &[0x90],
                mov,
                between,
                &SYSCALL,
                &[0x48, 0x3d, 0, 0, 0, 0],
                &[RET],
            ]));
            assert_eq!(patched.text, []);
            assert_eq!(
                patched.stats,
                Stats {
                    sites: 1,
                    left: 1,
                    ..Stats::default()
                }
            );
        }
    }
}

#[test]
fn rt_sigreturn_lends_no_bytes_to_a_call_before_it() {
    let patched = patch(&code(&[&[0x31, 0xc0], &SYSCALL, &[0xb8, 15, 0, 0, 0], &SYSCALL]));
    assert_eq!((patched.text.len(), patched.stats.left), (0, 2));
}

#[test]
fn a_branch_target_is_never_inside_a_patch() {
    // Something jumps to the second of two instructions: it becomes the first of a patch.
    let patched = patch(&code(&[&MOV_RDI_RAX, &MOV_RSI_RDI, &SYSCALL, &[0xeb, 0xf9]]));
    assert_eq!((only(&patched).0, patched.stats.r3b), (3, 1));
    // To the syscall itself: what stands before may move, it may not.
    let patched = patch(&code(&[&MOV_RDI_RAX, &MOV_RSI_RDI, &SYSCALL, &[0xeb, 0xfc]]));
    assert_eq!((only(&patched).0, patched.stats.r3), (0, 1));
    // To what follows it, with too little before.
    let patched = patch(&code(&[
        &[0x31, 0xc0],
        &SYSCALL,
        &[0x48, 0x3d, 0, 0, 0, 0],
        &[0xeb, 0xf8],
    ]));
    assert_eq!((patched.text.len(), patched.stats.left), (0, 1));
}

#[test]
fn jumps_from_neighbours_count() {
    let site = code(&[&MOV_RDI_RAX, &MOV_RSI_RDI, &SYSCALL, &[RET]]);
    for with_bounds in [true, false] {
        // A short jump back, to the second instruction of the function before.
        let mut elf = TestElf::function(&code(&[&site, &[0xeb, 0xf8]]));
        elf.functions[0].end = 9;
        if with_bounds {
            elf.functions.push(9..11);
        }
        assert_eq!(analyse(&elf.build()).unwrap().stats.r3b, 1);
    }
}

#[test]
fn addresses_in_data_count() {
    let mut elf = TestElf::function(&code(&[&MOV_RDI_RAX, &MOV_RSI_RDI, &SYSCALL, &[RET]]));
    elf.data = [0, TEXT + 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(analyse(&elf.build()).unwrap().stats.r3b, 1);
}

#[test]
fn tables_of_displacements_count() {
    let lea = |to: u64| code(&[&[0x48, 0x8d, 0x05], &((to - TEXT - 16) as u32).to_le_bytes()]); // lea to(%rip),%rax
    let mut elf = TestElf::function(&code(&[
        &MOV_RDI_RAX,
        &MOV_RSI_RDI,
        &SYSCALL,
        &[RET],
        &lea(DATA),
        &[RET],
    ]));
    elf.functions = vec![0..9, 9..17];
    let entries = [TEXT as i64, TEXT as i64 + 3].map(|to| (to - DATA as i64) as i32);
    elf.data = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    assert_eq!(analyse(&elf.build()).unwrap().stats.r3b, 1);
}

#[test]
fn a_function_with_an_indirect_jump_gets_single_instruction_patches_only() {
    let jump = [0xff, 0xe0]; // jmp *%rax
    let patched = patch(&code(&[
        &MOV_EAX_39,
        &SYSCALL,
        &MOV_RDI_RAX,
        &MOV_RSI_RDI,
        &SYSCALL,
        &jump,
    ]));
    assert_eq!(
        patched.stats,
        Stats {
            sites: 2,
            r1: 1,
            left: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn bytes_of_a_constant_are_no_site() {
    let patched = patch(&code(&[&[0xb8, 0x0f, 0x05, 0x0f, 0x05], &MOV_RSI_RDI, &[RET]]));
    assert_eq!((patched.text.len(), patched.stats), (0, Stats::default()));
}

#[test]
fn without_bounds_only_a_number_right_before_is_believed() {
    let nops = [0x90; 128];
    let stripped = |tail: &[u8]| TestElf {
        code: code(&[&nops, tail, &SYSCALL, &[RET]]),
        ..TestElf::default()
    };
    let patched = analyse(&stripped(&MOV_EAX_39).build()).unwrap();
    assert_eq!((only(&patched).0, patched.stats.r1), (128, 1));
    let none: [&[u8]; 4] = [
        &code(&[&MOV_RDI_RAX, &MOV_RSI_RDI]),  // no number
        &[0x48, 0x8d, 0xb8, 0x27, 0x01, 0, 0], // lea 0x127(%rax),%rdi, which ends like a mov
        &[0xb8, 15, 0, 0, 0],                  // rt_sigreturn
        &[0xeb, 0x01, 0xb8, 39, 0, 0, 0],      // jump into the mov
    ];
    for tail in none {
        assert_eq!(analyse(&stripped(tail).build()).unwrap().text, [], "{tail:02x?}");
    }
    let too_near = TestElf {
        code: code(&[&MOV_EAX_39, &SYSCALL, &[RET]]),
        ..TestElf::default()
    };
    assert_eq!(analyse(&too_near.build()).unwrap().text, []);
}

#[test]
fn text_that_may_change_is_left_alone() {
    let mut elf = TestElf::function(&code(&[&MOV_EAX_39, &SYSCALL, &[RET]]));
    elf.writable_text = true;
    assert_eq!(analyse(&elf.build()).unwrap().text, []);
    elf.writable_text = false;
    elf.dynamic = true;
    for (tag, value, patches) in [(22u64, 0u64, 0), (30, 4, 0), (30, 8, 1)] {
        elf.data = [tag, value, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(
            analyse(&elf.build()).unwrap().text.len(),
            patches,
            "dynamic tag {tag}, value {value}"
        );
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let good = TestElf::function(&[RET]).build();
    let with = |at: usize, byte: u8| {
        let mut file = good.clone();
        file[at] = byte;
        analyse(&file).unwrap_err()
    };
    assert_eq!(analyse(b"#!/bin/sh\n").unwrap_err(), PatchError::NotElf);
    assert_eq!(analyse(&good[..40]).unwrap_err(), PatchError::NotElf64);
    assert_eq!(with(4, 1), PatchError::NotElf64);
    assert_eq!(with(5, 2), PatchError::NotElf64);
    assert_eq!(with(16, 1), PatchError::Kind { found: 1 });
    assert_eq!(with(18, 183).to_string(), "ELF machine 183 is not x86-64 (62)");
    assert_eq!(
        analyse(&good[..100]).unwrap_err(),
        PatchError::Malformed("program headers outside the file")
    );
}
