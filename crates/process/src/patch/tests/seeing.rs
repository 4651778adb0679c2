//! Instructions that show the processor, and reads of the time stamp counter.

use windtunnel_kernel::abi::{INSTRUCTION_DONE, Regs, put_random};

use super::super::{Patched, analyse};
use super::elf::{TEXT, TestElf};
use super::{MOV_EAX_39, MOV_RDI_RAX, MOV_RSI_RDI, RET, SYSCALL, TRAMPOLINES, code, patch};

const CPUID: [u8; 2] = [0x0f, 0xa2];
const RDTSC: [u8; 2] = [0x0f, 0x31];
const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];

/// The code as it is after patching.
fn patched_code(elf: &TestElf) -> (Patched, Vec<u8>) {
    let patched = analyse(&elf.build()).expect("a valid file");
    let mut code = elf.code.clone();
    for (offset, bytes) in patched.text.iter().chain(&patched.replaced) {
        let at = (offset - TEXT) as usize;
        code[at..at + bytes.len()].copy_from_slice(bytes);
    }
    (patched, code)
}

/// What stands in place of `insn` after patching.
fn replaced(insn: &[u8]) -> Vec<u8> {
    let (_, bytes) = patched_code(&TestElf::function(&code(&[&MOV_RDI_RAX, insn, &[RET]])));
    assert_eq!((&bytes[..3], bytes[bytes.len() - 1]), (&MOV_RDI_RAX[..], RET));
    bytes[3..bytes.len() - 1].to_vec()
}

#[test]
fn each_instruction_of_the_table_becomes_one_that_faults() {
    let cases: [(&[u8], &[u8]); 16] = [
        (&CPUID, &[0x0f, 0x08]),                                            // invd
        (&[0x0f, 0xc7, 0xf0], &[0x0f, 0x00, 0xd0]),                         // rdrand %eax: lldt %ax
        (&[0x48, 0x0f, 0xc7, 0xf3], &[0x48, 0x0f, 0x00, 0xd3]),             // rdrand %rbx
        (&[0x66, 0x41, 0x0f, 0xc7, 0xf7], &[0x66, 0x41, 0x0f, 0x00, 0xd7]), // rdrand %r15w
        (&[0x49, 0x0f, 0xc7, 0xfa], &[0x49, 0x0f, 0x00, 0xda]),             // rdseed %r10: ltr
        (&[0x0f, 0x01, 0xd0], &[0x0f, 0xb9, 0xd0]),                         // xgetbv: ud1
        (&[0xf3, 0x0f, 0xc7, 0xf8], &[0xf3, 0x0f, 0xb9, 0xf8]),             // rdpid %rax
        (&[0xf3, 0x41, 0x0f, 0xc7, 0xf9], &[0xf3, 0x41, 0x0f, 0xb9, 0xf9]), // rdpid %r9
        (&[0xf3, 0x48, 0x0f, 0xae, 0xc0], &[0xf3, 0x48, 0x0f, 0xb9, 0xc0]), // rdfsbase %rax
        (&[0xf3, 0x48, 0x0f, 0xae, 0xca], &[0xf3, 0x48, 0x0f, 0xb9, 0xca]), // rdgsbase %rdx
        (&[0xf3, 0x48, 0x0f, 0xae, 0xd0], &[0xf3, 0x48, 0x0f, 0xb9, 0xd0]), // wrfsbase %rax
        (&[0xf3, 0x0f, 0xae, 0xd8], &[0xf3, 0x0f, 0xb9, 0xd8]),             // wrgsbase %eax
        (&[0x0f, 0x01, 0xee], &[0x0f, 0xb9, 0xee]),                         // rdpkru
        (&[0x0f, 0x01, 0xef], &[0x0f, 0xb9, 0xef]),                         // wrpkru
        (&[0x0f, 0x01, 0xfd], &[0x0f, 0xb9, 0xfd]),                         // rdpru
        (&[0x0f, 0x08], &[0x0f, 0x08]),                                     // a program's own invd
    ];
    for (insn, expected) in cases {
        assert_eq!(replaced(insn), expected, "{insn:02x?}");
    }
}

#[test]
fn only_what_is_answered_is_remembered_and_at_its_first_byte() {
    let patched = patch(&code(&[
        &[0x0f, 0x08],
        &CPUID,
        &[0x48, 0x0f, 0xc7, 0xf3],
        &[0x0f, 0x01, 0xd0],
        &[RET],
    ]));
    let offsets: Vec<u64> = patched.seeing.iter().map(|(offset, _)| offset - TEXT).collect();
    assert_eq!(offsets, [2, 4]);
    assert_eq!((patched.replaced.len(), patched.stats.unsure), (3, 0));
}

#[test]
fn answers_go_on_after_the_instruction() {
    let patched = patch(&code(&[
        &CPUID,
        &[0x49, 0x0f, 0xc7, 0xf7],
        &[0x66, 0x0f, 0xc7, 0xf9],
        &[RET],
    ]));
    let mut regs = Regs {
        rax: 0x8000_0002,
        rip: 0x10,
        rbx: u64::MAX,
        rflags: 0xad7,
        ..Regs::default()
    };
    assert_eq!(patched.seeing[0].1.answer(&mut regs), INSTRUCTION_DONE);
    assert_eq!((regs.rax, regs.rip), (u32::from_le_bytes(*b"Wind").into(), 0x12));
    assert_eq!(regs.rbx >> 32, 0, "the upper halves are cleared");
    assert_eq!(regs.rflags, 0xad7, "cpuid leaves the flags alone");
    assert_eq!(patched.seeing[1].1.answer(&mut regs), put_random(15, 8));
    assert_eq!(
        (regs.rip, regs.rflags),
        (0x16, 0x203),
        "carry and what is no result of arithmetic"
    );
    assert_eq!(patched.seeing[2].1.answer(&mut regs), put_random(1, 2));
    assert_eq!(regs.rip, 0x1a);
}

#[test]
fn bytes_within_other_instructions_stay() {
    let constants = code(&[
        &[0xb8, 0x0f, 0xa2, 0x0f, 0xa2],             // mov $0xa20fa20f,%eax
        &[0x48, 0x8d, 0x80, 0x0f, 0xc7, 0xf0, 0x00], // lea 0xf0c70f(%rax),%rax
        &[0xb9, 0x0f, 0x01, 0xd0, 0x0f],             // mov $0xfd0010f,%ecx
        &[RET],
    ]);
    let (patched, bytes) = patched_code(&TestElf::function(&constants));
    assert_eq!((bytes, patched.stats.unsure), (constants.clone(), 0));
    // The same in code of unknown bounds, among instructions of several bytes.
    let moves = MOV_RDI_RAX.repeat(40);
    let elf = TestElf {
        code: code(&[&moves, &constants, &moves]),
        ..TestElf::default()
    };
    let (patched, bytes) = patched_code(&elf);
    assert_eq!((bytes, patched.stats.unsure), (elf.code, 0));
}

#[test]
fn without_bounds_decodes_from_many_places_must_agree() {
    let moves = MOV_RDI_RAX.repeat(40);
    let insns = code(&[
        &CPUID,
        &MOV_RSI_RDI,
        &[0x48, 0x0f, 0xc7, 0xf3],
        &MOV_RSI_RDI,
        &[0xf3, 0x0f, 0xc7, 0xf8],
    ]);
    let elf = TestElf {
        code: code(&[&moves, &insns, &moves]),
        ..TestElf::default()
    };
    let (patched, bytes) = patched_code(&elf);
    let expected = code(&[
        &[0x0f, 0x08],
        &MOV_RSI_RDI,
        &[0x48, 0x0f, 0x00, 0xd3],
        &MOV_RSI_RDI,
        &[0xf3, 0x0f, 0xb9, 0xf8],
    ]);
    assert_eq!(bytes[120..120 + expected.len()], expected);
    assert_eq!((patched.seeing.len(), patched.stats.unsure), (2, 0));
}

#[test]
fn what_cannot_be_replaced_is_counted() {
    let mut elf = TestElf::function(&code(&[&CPUID, &[RET]]));
    elf.writable_text = true;
    let (patched, bytes) = patched_code(&elf);
    assert_eq!((bytes, patched.stats.unsure), (elf.code, 1));
}

#[test]
fn a_system_call_beside_one_lends_no_bytes() {
    let (patched, bytes) = patched_code(&TestElf::function(&code(&[&MOV_EAX_39, &CPUID, &SYSCALL, &[RET]])));
    assert_eq!((patched.text.len(), patched.stats.left), (0, 1));
    assert_eq!(bytes[5..7], [0x0f, 0x08]);
}

#[test]
fn rdtsc_moves_what_stands_after() {
    let shl = [0x48, 0xc1, 0xe2, 0x20]; // shl $32,%rdx
    let patched = patch(&code(&[&RDTSC, &shl, &[RET]]));
    assert_eq!(patched.text, [(TEXT, vec![0xe9, 0xfb, 0x3f, 0, 0, 0x90])]);
    #[rustfmt::skip]
    assert_eq!(patched.trampolines, [
        0x48, 0x8d, 0x05, 0x08, 0, 0, 0,           // lea  1f(%rip),%rax
        0x65, 0xff, 0x24, 0x25, 0x18, 0x01, 0, 0,  // jmp  *%gs:280
        0x48, 0xc1, 0xe2, 0x20,                    // 1: shl $32,%rdx
        0xe9, 0xee, 0xbf, 0xff, 0xff,              // jmp  0x1006
    ]);
    assert_eq!(
        (
            patched.stats.counters,
            patched.stats.counters_patched,
            patched.stats.sites
        ),
        (1, 1, 0)
    );
}

#[test]
fn a_loop_that_jumps_to_rdtsc_takes_the_trampoline() {
    let nop = [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    let shl = [0x48, 0xc1, 0xe2, 0x20];
    let patched = patch(&code(&[&nop, &RDTSC, &shl, &[0x75, 0xf8], &[RET]])); // jne to rdtsc
    assert_eq!(
        (patched.text.len(), patched.text[0].0, patched.stats.counters_patched),
        (1, TEXT + 8, 1)
    );
}

#[test]
fn rdtscp_tells_the_cpu_and_goes_on_behind_itself() {
    let patched = patch(&code(&[&MOV_EAX_39, &RDTSCP, &[RET]]));
    assert_eq!(patched.text, [(TEXT, vec![0xe9, 0xfb, 0x3f, 0, 0])]);
    let jump = patched.trampolines[25..30].to_vec();
    assert_eq!(patched.trampolines[20..25], [0xb9, 0, 0, 0, 0], "mov $0,%ecx");
    let to = TRAMPOLINES as i64 + 30 + i64::from(i32::from_le_bytes(jump[1..].try_into().unwrap()));
    assert_eq!((jump[0], to), (0xe9, TEXT as i64 + 8));
}

#[test]
fn addresses_of_vsyscalls_are_moved_where_they_stand() {
    let mov = |low: u8| vec![0x48, 0xc7, 0xc0, 0x00, low, 0x60, 0xff];
    let mov_64 = [0x49, 0xbb, 0x00, 0x08, 0x60, 0xff, 0xff, 0xff, 0xff, 0xff];
    let other = [0x48, 0x81, 0xc0, 0x00, 0x00, 0x60, 0xff]; // add
    let all = code(&[&mov(0), &mov(4), &mov(8), &mov(1), &mov_64, &other, &RDTSC, &[RET]]);
    let (patched, bytes) = patched_code(&TestElf::function(&all));
    let mut expected = all.clone();
    for at in [5, 12, 19, 32] {
        expected[at] = 0x50;
    }
    expected[38..45].copy_from_slice(&bytes[38..45]);
    assert_eq!((bytes[38], &bytes), (0xe9, &expected), "the add makes room for rdtsc");
    assert_eq!(patched.replaced.len(), 4);
    let (_, bytes) = patched_code(&TestElf::function(&code(&[&mov(4), &RDTSC, &[RET]])));
    assert_eq!(
        bytes[..9],
        code(&[&mov(4)[..5], &[0x50, 0xff], &RDTSC]),
        "it does not move"
    );
}

#[test]
fn rdtsc_without_room_stays() {
    let patched = patch(&code(&[&RDTSC, &[RET]]));
    assert_eq!(
        (
            patched.text.len(),
            patched.stats.counters,
            patched.stats.counters_patched
        ),
        (0, 1, 0)
    );
}
