//! Programs of a few instructions, run on a thread with all traps, with assembly stubs for a kernel's entries.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::process::Command;
use std::ptr;
use std::time::Instant;

use windtunnel_kernel::abi::{Regs, Thread};
use windtunnel_kernel::{PAGE_BYTES, ThreadContext};

use super::*;

/// Use of the last words of `wt_thread` before `comm` by the stubs below, which are the kernel's.
const SAVED_RSP: usize = offset_of!(Thread, comm) - 64;
const WAY_OUT: usize = SAVED_RSP + 8;
const FLAGS_AT_ENTRY: usize = SAVED_RSP + 16;
const RSP_AT_ENTRY: usize = SAVED_RSP + 24;
const XMM3_AT_ENTRY: usize = offset_of!(Thread, active_as);
const REGISTERS_AT_END: usize = offset_of!(Thread, reserved_too);

/// Which entry a program left by.
const BY_CALL: u64 = 1;
const BY_FAULT: u64 = 2;
const BY_SLOW_CALL: u64 = 3;

/// `jmp *%gs:0`: the end of a test program.
const END: [u8; 8] = [0x65, 0xff, 0x24, 0x25, 0, 0, 0, 0];

/// Runs the code at `rdi` as a program, with rdi = `rsi`.
#[unsafe(naked)]
unsafe extern "C" fn run_program(code: *const u8, argument: u64) {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov gs:[{rsp}], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov qword ptr gs:[{in_user}], 1",
        "jmp rax",
        rsp = const SAVED_RSP,
        in_user = const offset_of!(Thread, in_user),
    )
}

/// An entry of the pretended kernel: notes what it finds and returns from `run_program`.
macro_rules! entry {
    ($name:ident, $way:expr) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov qword ptr gs:[{in_user}], 0",
                "mov qword ptr gs:[{way_out}], {way}",
                "mov gs:[{rsp_at_entry}], rsp",
                "movq gs:[{xmm3}], xmm3",
                "mov gs:[{registers}], rax",
                "mov gs:[{registers} + 8], rdx",
                "mov gs:[{registers} + 16], rcx",
                "mov rsp, gs:[{rsp}]",
                "pushfq",
                "pop rax",
                "mov gs:[{flags}], rax",
                "cld",
                "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
                "ret",
                in_user = const offset_of!(Thread, in_user),
                way_out = const WAY_OUT,
                way = const $way,
                rsp_at_entry = const RSP_AT_ENTRY,
                xmm3 = const XMM3_AT_ENTRY,
                registers = const REGISTERS_AT_END,
                rsp = const SAVED_RSP,
                flags = const FLAGS_AT_ENTRY,
            )
        }
    };
}

entry!(call_entry, BY_CALL);
entry!(fault_entry, BY_FAULT);
entry!(slow_entry, BY_SLOW_CALL);

/// How a program ended.
struct Ended {
    by: u64,
    thread: Thread,
    code: u64,
}

impl Ended {
    fn word(&self, offset: usize) -> u64 {
        // SAFETY: a word of the thread's state, by its offset.
        unsafe { (&raw const self.thread).byte_add(offset).cast::<u64>().read() }
    }

    /// eax, edx, ecx where the program ended by `END`.
    fn results(&self) -> [u64; 3] {
        assert_eq!(self.by, BY_CALL);
        [0, 8, 16].map(|offset| self.word(REGISTERS_AT_END + offset))
    }

    /// Offset of the noted rip in the program.
    fn rip_offset(&self) -> u64 {
        self.thread.fault.rip.wrapping_sub(self.code)
    }
}

/// Runs `programs` on a new thread with all traps, `prepare`d, each with rdi = 0x1122.
fn run(programs: &[&[u8]], prepare: fn(&mut Thread, u64)) -> Vec<Ended> {
    let programs: Vec<Vec<u8>> = programs.iter().map(|program| [program, &END[..]].concat()).collect();
    std::thread::spawn(move || {
        let trap = TrapThread::install(ThreadContext::install().unwrap()).unwrap();
        let thread = trap.context().thread();
        let mut stack = vec![0u128; 64];
        let ended = programs
            .iter()
            .map(|program| {
                let code = Page::with(program);
                // SAFETY: the thread state lives as long as its context and nobody else uses it.
                unsafe {
                    *thread = Thread {
                        entry: call_entry as *const () as u64,
                        fault_entry: fault_entry as *const () as u64,
                        slow_entry: slow_entry as *const () as u64,
                        fault_stack: stack.as_mut_ptr().add(64) as u64,
                        now_ns: 0x1_2345_6789,
                        ..Thread::default()
                    };
                    prepare(&mut *thread, code.0 as u64);
                    run_program(code.0, 0x1122);
                    let thread = (*thread).clone();
                    let mut ended = Ended {
                        by: 0,
                        code: code.0 as u64,
                        thread,
                    };
                    ended.by = ended.word(WAY_OUT);
                    ended
                }
            })
            .collect();
        drop(trap);
        ended
    })
    .join()
    .unwrap()
}

/// A page of code.
struct Page(*mut u8);

impl Page {
    fn with(code: &[u8]) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new page, filled and then made executable.
        unsafe {
            let page = libc::mmap(ptr::null_mut(), PAGE_BYTES as usize, libc::PROT_WRITE, flags, -1, 0).cast::<u8>();
            assert_ne!(page.cast(), libc::MAP_FAILED);
            page.copy_from(code.as_ptr(), code.len());
            libc::mprotect(page.cast(), PAGE_BYTES as usize, libc::PROT_READ | libc::PROT_EXEC);
            Self(page)
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the program in it has ended.
        unsafe { libc::munmap(self.0.cast(), PAGE_BYTES as usize) };
    }
}

fn nothing(_: &mut Thread, _: u64) {}

#[test]
fn an_unpatched_system_call_reaches_the_slow_entry_with_all_registers() {
    // movq xmm3, rdi; std; mov eax, 39; syscall
    let program = [0x66, 0x48, 0x0f, 0x6e, 0xdf, 0xfd, 0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    let ended = &run(&[&program], nothing)[0];
    assert_eq!(ended.by, BY_SLOW_CALL);
    let Regs { rax, rdi, rflags, .. } = ended.thread.fault;
    assert_eq!((rax, rdi, ended.rip_offset()), (39, 0x1122, program.len() as u64));
    assert_eq!(rflags & 0x400, 0x400, "the program's direction flag is noted");
    assert_eq!(ended.word(FLAGS_AT_ENTRY) & 0x400, 0, "and cleared for the kernel");
    assert_eq!(ended.word(RSP_AT_ENTRY), ended.thread.fault_stack);
    assert_eq!(
        ended.word(XMM3_AT_ENTRY),
        0x1122,
        "vector registers are live at the entry"
    );
}

#[test]
fn a_32_bit_system_call_is_a_protection_fault_at_the_instruction() {
    // mov eax, 20; int 0x80
    let ended = &run(&[&[0xb8, 20, 0, 0, 0, 0xcd, 0x80]], nothing)[0];
    assert_eq!(
        (ended.by, ended.thread.fault_signo, ended.rip_offset()),
        (BY_FAULT, libc::SIGSEGV as u32, 5)
    );
}

/// `pushfq; or dword ptr [rsp], FLAGS; popfq`
fn set_flags(flags: u64) -> Vec<u8> {
    [&[0x9c, 0x81, 0x0c, 0x24], &(flags as u32).to_le_bytes()[..], &[0x9d]].concat()
}

const TF: u64 = 1 << 8;
const ODD: u64 = 1 << 10 | 1 << 14 | 1 << 18 | 1 << 21;

#[test]
fn odd_flags_of_a_program_are_noted_and_not_set_at_an_entry() {
    // mov eax, 39; syscall; and mov rax, [rsp - 7]
    let call = [set_flags(ODD), vec![0xb8, 39, 0, 0, 0, 0x0f, 0x05]].concat();
    let unaligned = [set_flags(ODD), vec![0x48, 0x8b, 0x44, 0x24, 0xf9]].concat();
    let ended = run(&[&call, &unaligned], nothing);
    assert_eq!((ended[0].by, ended[1].by), (BY_SLOW_CALL, BY_FAULT));
    assert_eq!(ended[1].thread.fault_signo, libc::SIGBUS as u32);
    for end in &ended {
        assert_eq!(end.thread.fault.rflags & (ODD | TF), ODD);
        assert_eq!(end.word(FLAGS_AT_ENTRY) & (ODD | TF), 0);
    }
}

#[test]
fn a_program_that_traps_after_each_instruction_enters_without_that() {
    // lea rcx, [rip + 8], then END
    let step = [set_flags(TF), vec![0x90]].concat();
    let call = [vec![0x48, 0x8d, 0x0d, 17, 0, 0, 0], set_flags(TF)].concat();
    let ended = run(&[&step, &call], nothing);
    assert_eq!(
        (ended[0].by, ended[0].thread.fault_signo),
        (BY_FAULT, libc::SIGTRAP as u32)
    );
    assert_eq!(
        (ended[1].by, ended[1].rip_offset()),
        (BY_SLOW_CALL, 24),
        "where rcx points"
    );
    for end in &ended {
        assert_eq!(end.thread.fault.rflags & TF, TF);
        assert_eq!(end.word(FLAGS_AT_ENTRY) & TF, 0);
    }
}

#[test]
fn a_call_of_a_program_with_another_gs_base_is_made() {
    // lea rcx, [rip]; wrgsbase rdi
    let ended = &run(
        &[&[0x48, 0x8d, 0x0d, 0, 0, 0, 0, 0xf3, 0x48, 0x0f, 0xae, 0xdf]],
        nothing,
    )[0];
    assert_eq!((ended.by, ended.rip_offset()), (BY_SLOW_CALL, 7));
    assert_eq!(ended.thread.gs_changed, 1);
    // And where something is that is no code: mov [rsp - 128], rsp; lea rax, [rsp - 128]; wrgsbase rax.
    let own = [
        0x48, 0x8d, 0x0d, 0, 0, 0, 0, 0x48, 0x89, 0x64, 0x24, 0x80, 0x48, 0x8d, 0x44, 0x24, 0x80, 0xf3, 0x48, 0x0f,
        0xae, 0xd8,
    ];
    let ended = &run(&[&own], nothing)[0];
    assert_eq!((ended.by, ended.rip_offset()), (BY_SLOW_CALL, 7));
}

#[test]
fn an_iretq_to_nowhere_is_the_programs_fault() {
    // mov rsp, gs:[16] (fault_stack); sub rsp, 40; the words of iretq; iretq
    let program = [
        &[
            0x65, 0x48, 0x8b, 0x24, 0x25, 16, 0, 0, 0, 0x48, 0x83, 0xec, 40, 0x48, 0xb8,
        ][..],
        &(1u64 << 63).to_le_bytes(),
        &[0x48, 0x89, 0x04, 0x24],
        &[0x48, 0xc7, 0x44, 0x24, 8, 0x33, 0, 0, 0],
        &[0x48, 0xc7, 0x44, 0x24, 16, 0x02, 0x02, 0, 0],
        &[0x48, 0xc7, 0x44, 0x24, 24, 0x88, 0x77, 0, 0],
        &[0x48, 0xc7, 0x44, 0x24, 32, 0x2b, 0, 0, 0],
        &[0x48, 0xcf],
    ]
    .concat();
    let ended = &run(&[&program], |thread, code| {
        thread.kernel_text = [code, code + PAGE_BYTES]
    })[0];
    let Thread { fault, fault_signo, .. } = &ended.thread;
    assert_eq!((ended.by, *fault_signo), (BY_FAULT, libc::SIGSEGV as u32));
    assert_eq!((fault.rip, fault.rsp, fault.rdi), (1 << 63, 0x7788, 0x1122));
}

/// nop; rdtsc or rdtscp
const COUNTER_READERS: [&[u8]; 2] = [&[0x90, 0x0f, 0x31], &[0x90, 0x0f, 0x01, 0xf9]];

#[test]
fn a_program_that_reads_the_time_stamp_counter_is_sent_to_its_kernel() {
    for (end, program) in run(&COUNTER_READERS, nothing).iter().zip(COUNTER_READERS) {
        let Thread {
            fault_signo,
            fault_code,
            ..
        } = end.thread;
        assert_eq!((end.by, fault_signo, end.rip_offset()), (BY_FAULT, 0, 1));
        assert_eq!(fault_code as usize, program.len() - 1, "bytes of the instruction");
    }
}

#[test]
fn for_a_kernel_the_time_stamp_counter_is_virtual_time_in_nanoseconds() {
    let ended = run(&COUNTER_READERS, |thread, code| {
        thread.kernel_text = [code, code + PAGE_BYTES];
    });
    assert_eq!(ended[0].results()[..2], [0x2345_6789, 1]);
    assert_eq!(ended[1].results(), [0x2345_6789, 1, 0]);
}

#[test]
fn cpuid_shows_the_virtual_cpu() {
    if !capabilities().cpuid_faulting || !faulting_wanted() {
        eprintln!("SKIPPED: cpuid does not fault here; where it is found in images it is replaced");
        return;
    }
    // mov eax, 1; xor ecx, ecx; cpuid
    let ended = &run(&[&[0xb8, 1, 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2]], nothing)[0];
    let expected = cpuid::cpuid(1, 0);
    assert_eq!(
        ended.results(),
        [expected.eax, expected.edx, expected.ecx].map(u64::from)
    );
}

#[test]
fn faults_reach_the_fault_entry_with_their_signal() {
    let ended = run(
        &[
            &[0x90, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0], // nop; mov rax, [0x10]
            &[0x90, 0x0f, 0x0b],                            // nop; ud2
            &[0xcc],                                        // int3
            &[0x31, 0xc9, 0xf7, 0xf1],                      // xor ecx, ecx; div ecx
            &[0xb8, 0x10, 0, 0, 0, 0xff, 0xe0],             // mov eax, 0x10; jmp rax
            &[0xf4],                                        // hlt
            &[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xe0], // mov rax, 1 << 63; jmp rax
        ],
        nothing,
    );
    let facts: Vec<_> = ended
        .iter()
        .map(|end| {
            (
                end.by,
                end.thread.fault_signo as i32,
                end.thread.fault_trapno,
                end.thread.fault_addr,
            )
        })
        .collect();
    assert_eq!(facts[0], (BY_FAULT, libc::SIGSEGV, 14, 0x10));
    assert_eq!(
        (ended[0].rip_offset(), ended[0].thread.fault_code),
        (1, 1),
        "SEGV_MAPERR"
    );
    assert_eq!(facts[1], (BY_FAULT, libc::SIGILL, 6, ended[1].code + 1));
    assert_eq!(
        (facts[2].0, facts[2].1, ended[2].rip_offset()),
        (BY_FAULT, libc::SIGTRAP, 1)
    );
    assert_eq!(
        (facts[3].0, facts[3].1, ended[3].rip_offset()),
        (BY_FAULT, libc::SIGFPE, 2)
    );
    assert_eq!(facts[4], (BY_FAULT, libc::SIGSEGV, 14, 0x10));
    assert_eq!(ended[4].thread.fault.rip, 0x10);
    assert_eq!((facts[5].0, facts[5].1, facts[5].2), (BY_FAULT, libc::SIGSEGV, 13));
    assert_eq!((facts[6].0, facts[6].1), (BY_FAULT, libc::SIGSEGV));
}

#[test]
fn a_fault_in_an_accessor_goes_on_at_its_fixup() {
    // mov eax, 5; mov rcx, [0x10]; (skipped: ud2); end
    let program = [0xb8, 5, 0, 0, 0, 0x48, 0x8b, 0x0c, 0x25, 0x10, 0, 0, 0, 0x0f, 0x0b];
    let ended = &run(&[&program], |thread, code| {
        thread.uaccess = [code + 5, code + 13];
        thread.uaccess_fixup = code + 15;
    })[0];
    assert_eq!(ended.results()[0], 5);
}

#[test]
fn host_code_on_a_simulation_thread_keeps_its_clocks_and_calls() {
    std::thread::spawn(|| {
        let trap = TrapThread::install(ThreadContext::install().unwrap()).unwrap();
        assert_eq!(trap.facts().cpuid_faults, {
            let vendor = std::arch::x86_64::__cpuid(0x8000_0002).eax;
            vendor == u32::from_le_bytes(*b"Wind")
        });
        let (start, start_ns) = (Instant::now(), host_clock_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(start.elapsed().as_millis() >= 20);
        assert!(host_clock_ns() - start_ns >= 20_000_000);
        let mut cpu = libc::timespec {
            tv_sec: -1,
            tv_nsec: -1,
        };
        // SAFETY: clock_gettime writes to the timespec given. The vDSO leaves this clock to a system call of its own.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut cpu) };
        assert_eq!(result, 0);
        assert!(cpu.tv_sec >= 0);
        assert!(!std::fs::read("/proc/self/stat").unwrap().is_empty());
    })
    .join()
    .unwrap();
}

/// Not a test by itself: the child process of the next one.
#[test]
#[ignore = "faults on purpose; run by a_fault_of_the_host_is_reported_and_deadly"]
fn fault_in_host_code() {
    let _trap = TrapThread::install(ThreadContext::install().unwrap()).unwrap();
    // SAFETY: none: this is the fault that the other test is about.
    unsafe { ptr::without_provenance::<u64>(0x18).read_volatile() };
}

#[test]
fn a_fault_of_the_host_is_reported_and_deadly() {
    use std::os::unix::process::ExitStatusExt;
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "trap::tests::fault_in_host_code", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGSEGV), "{child:?}");
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(said.contains("windtunnel: fatal signal 11 at 0x"), "{said}");
    assert!(
        said.contains("\nhint: this is a bug; or a program") && said.contains("`windtunnel run --isolate`"),
        "{said}"
    );
    assert!(said.contains("for address 0x18\n"), "{said}");
}

#[test]
fn this_host_has_what_the_other_tests_need() {
    let found = capabilities();
    assert!(
        found.syscall_user_dispatch && found.fsgsbase && found.tsc_trapping,
        "{found:?}"
    );
    assert!(found.address_ranges.iter().all(|range| range.free), "{found:?}");
    assert!(!found.kernel_release.is_empty() && found.open_files_limit.0 > 0);
}
