//! The signal handlers.
//!
//! They run with the *program's* FS base, at any instruction of it. So nothing here, or called from here, may use
//! thread-local storage (that includes `errno` and so most of libc), allocate, panic, or format; integer
//! arithmetic wraps on purpose; memory is reached by raw pointers, system calls by [`system_call`].
//!
//! No handler switches stacks or jumps: it changes the registers it returns to. The vector registers are left as the
//! kernel restores them from the signal frame, so a program's are still live at the entry it is sent to.
//!
//! Nothing that a program may have in its registers is relied on. GS is the program's as long as it runs: the thread is
//! known by the stack of the handler. The flags that Linux lets through to handlers are cleared by [`handler_entry`].

use std::arch::asm;
use std::io;
use std::mem::{MaybeUninit, offset_of, zeroed};
use std::ops::Range;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use windtunnel_kernel::{abi, note_kernel_fault, read_comm};

use super::cpuid::cpuid;
use super::wild;
use super::{ALTSTACK_BYTES, host_text};

/// Signals of faults, all handled alike.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
/// `si_code` of a SIGSYS from Syscall User Dispatch.
const SYS_USER_DISPATCH: i32 = 2;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// x86 trap number of a general protection fault; what `cpuid` and `rdtsc` raise.
const TRAP_GP: u64 = 13;
const SI_KERNEL: i32 = 0x80;
/// x86 trap numbers of a single step and of a page fault, and the bit of the latter's error code for a fetch of code.
const TRAP_DB: u64 = 1;
const TRAP_PF: u64 = 14;
const ERROR_FETCH: u64 = 1 << 4;
/// A page is there, but must not be accessed like that.
const ERROR_PRESENT: u64 = 1;
/// `si_code` of a SIGSEGV where nothing is mapped.
const SEGV_MAPERR: i32 = 1;
/// Trap, direction, nested task, alignment check and identification: what code must not find set at an entry.
pub(super) const FLAGS_CLEARED: u64 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18 | 1 << 21;
/// Nested task and identification, which Linux does not take from a signal frame: they stay what they are in the handler.
pub(super) const FLAGS_NOT_IN_FRAMES: u64 = 1 << 14 | 1 << 21;
/// Flags of ordinary code: interrupts on, and the bit that is always set.
pub(super) const FLAGS_PLAIN: u64 = 0x202;
/// Selectors of 64-bit programs, as they are in `REG_CSGSFS`, and the bits of those that are not restored.
const SELECTORS: u64 = 0x2b << 48 | 0x33;
const SELECTORS_KEPT: u64 = 0xffff_ffff_0000;
/// `jmp *%gs:0`: how trampolines enter the kernel (`patch`).
const ENTER: u64 = 0x0000_0000_2524_ff65;
/// `iretq`, as the low bits of a word of code.
const IRETQ: u64 = 0xcf48;
/// What `iretq` takes from the stack, bytes.
const IRETQ_FRAME_BYTES: u64 = 5 * 8;
/// The vDSO's code is within this distance of its start, bytes.
const VDSO_BYTES: u64 = 16 * 1024;

static HOST_TEXT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static VDSO: AtomicU64 = AtomicU64::new(u64::MAX);

/// The actions before ours, in the order of FAULTS, then SIGSYS; written once, before the first handler can run.
static mut BEFORE: MaybeUninit<[libc::sigaction; 6]> = MaybeUninit::uninit();

/// The threads that run programs: where their stacks for handlers begin, 0 where there is none, and their boundary state.
static THREADS: [(AtomicU64, AtomicU64); 256] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; 256];

/// Makes a thread known by the stack that its handlers run on; false if there are too many.
pub(super) fn enlist(stack: u64, thread: *mut abi::Thread) -> bool {
    THREADS.iter().any(|(slot, state)| {
        let free = slot.compare_exchange(0, stack, Relaxed, Relaxed).is_ok();
        if free {
            state.store(thread as u64, Relaxed);
        }
        free
    })
}

/// Forgets it.
pub(super) fn delist(stack: u64) {
    for (slot, state) in &THREADS {
        if slot.load(Relaxed) == stack {
            state.store(0, Relaxed);
            slot.store(0, Relaxed);
        }
    }
}

/// A signal handler of that name, which runs `$inner` with the flags of ordinary code. Linux clears the direction and trap
/// flags, but lets a program's alignment check and nested task through: a handler that is compiled code makes unaligned
/// accesses. They are back when it returns, by the frame or, where Linux does not look there, by the last lines.
macro_rules! handler_entry {
    ($name:ident, $inner:ident) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
            std::arch::naked_asm!(
                "push rdx",
                "pushfq",
                "test dword ptr [rsp], {odd}",
                "jz 2f",
                "push {plain}",
                "popfq",
                "2:",
                "add rsp, 8",
                "call {inner}",
                "pop rdx",
                "mov eax, [rdx + {flags}]",
                "and eax, {not_in_frames}",
                "jz 3f",
                "or eax, {plain}",
                "push rax",
                "popfq",
                "3:",
                "ret",
                odd = const $crate::trap::handler::FLAGS_CLEARED,
                plain = const $crate::trap::handler::FLAGS_PLAIN,
                not_in_frames = const $crate::trap::handler::FLAGS_NOT_IN_FRAMES,
                flags = const $crate::trap::handler::FLAGS_AT,
                inner = sym $inner,
            )
        }
    };
}
pub(super) use handler_entry;

/// What may have been the cause where the engine seems to be to blame.
const FATAL_HINT: &[u8] =
    b"hint: this is a bug; or a program has written through a stray pointer to memory that is not its own: \
    `windtunnel run --isolate` stops and reports that where it is another node's\n";

/// Where the flags are in what the third argument of a handler points to.
pub(super) const FLAGS_AT: usize = offset_of!(libc::ucontext_t, uc_mcontext) + 8 * libc::REG_EFL as usize;

handler_entry!(sigsys_entry, on_sigsys);
handler_entry!(fault_entry, on_fault);

/// Installs the handlers, for the whole process, once. They pass on what does not come from a simulation thread.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().expect("no panic while installing");
    if *installed {
        return Ok(());
    }
    let text = host_text();
    HOST_TEXT[0].store(text.start, Relaxed);
    HOST_TEXT[1].store(text.end, Relaxed);
    // SAFETY: getauxval only reads the auxiliary vector.
    VDSO.store(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }, Relaxed);
    for (index, signo) in FAULTS.into_iter().chain([libc::SIGSYS]).enumerate() {
        let handler = if signo == libc::SIGSYS {
            sigsys_entry as *const ()
        } else {
            fault_entry as *const ()
        };
        // SAFETY: all zeros is a valid sigaction; the handlers are written for SA_SIGINFO and live as long as the
        // process. BEFORE is written under the lock and read only by handlers.
        let result = unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signo, &action, (&raw mut BEFORE).cast::<libc::sigaction>().add(index))
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *installed = true;
    Ok(())
}

/// The host's monotonic clock, ns, by a true system call. On a simulation thread the C library's way through the
/// vDSO works too, but takes two signals.
pub fn host_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, ns, in the same way.
pub fn host_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes to the timespec given.
    unsafe {
        system_call(
            libc::SYS_clock_gettime,
            [clock as u64, (&raw mut now) as u64, 0, 0, 0, 0],
        )
    };
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// A system call from host text that touches no `errno`.
///
/// # Safety
/// As for the call itself.
pub(super) unsafe fn system_call(nr: libc::c_long, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let result;
    // SAFETY: promised by the caller; rcx and r11 are what a system call destroys.
    unsafe {
        asm!("syscall", inlateout("rax") nr => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// What GS points to: the thread's boundary state, or whatever a program has put there.
fn gs_base() -> u64 {
    let base: u64;
    // SAFETY: reads a register; a simulation thread exists only where FSGSBASE does, and handlers only after one.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// A word of memory that may not be there.
fn word_at(address: u64) -> Option<u64> {
    let mut word = 0u64;
    let (to, from) = ([(&raw mut word) as u64, 8], [address, 8]);
    // SAFETY: writes to the local word at most; a bad address is an error.
    let read = unsafe {
        let pid = system_call(libc::SYS_getpid, [0; 6]) as u64;
        let (to, from) = ((&raw const to) as u64, (&raw const from) as u64);
        system_call(libc::SYS_process_vm_readv, [pid, to, 1, from, 1, 0])
    };
    (read == 8).then_some(word)
}

/// The registers in a signal frame.
#[derive(Clone, Copy)]
pub(super) struct Frame(pub(super) *mut libc::ucontext_t);

impl Frame {
    fn get(self, register: i32) -> u64 {
        // SAFETY: the frame of the running handler; the registers are libc's constants, all within the array.
        unsafe {
            *(&raw const (*self.0).uc_mcontext.gregs)
                .cast::<u64>()
                .add(register as usize)
        }
    }

    fn set(self, register: i32, value: u64) {
        // SAFETY: as above.
        unsafe {
            *(&raw mut (*self.0).uc_mcontext.gregs)
                .cast::<u64>()
                .add(register as usize) = value
        }
    }

    pub(super) fn regs(self) -> abi::Regs {
        abi::Regs {
            r15: self.get(libc::REG_R15),
            r14: self.get(libc::REG_R14),
            r13: self.get(libc::REG_R13),
            r12: self.get(libc::REG_R12),
            rbp: self.get(libc::REG_RBP),
            rbx: self.get(libc::REG_RBX),
            r11: self.get(libc::REG_R11),
            r10: self.get(libc::REG_R10),
            r9: self.get(libc::REG_R9),
            r8: self.get(libc::REG_R8),
            rax: self.get(libc::REG_RAX),
            rcx: self.get(libc::REG_RCX),
            rdx: self.get(libc::REG_RDX),
            rsi: self.get(libc::REG_RSI),
            rdi: self.get(libc::REG_RDI),
            rip: self.get(libc::REG_RIP),
            rflags: self.get(libc::REG_EFL),
            rsp: self.get(libc::REG_RSP),
        }
    }

    /// The boundary state of the thread that was interrupted, null if it runs no programs. It is known by the stack that
    /// Linux notes in the frame: GS may be a program's.
    pub(super) fn thread(self) -> *mut abi::Thread {
        let stack = self.stack().start;
        let known = THREADS.iter().find(|(slot, _)| slot.load(Relaxed) == stack);
        match known {
            Some((_, state)) if stack != 0 => state.load(Relaxed) as *mut abi::Thread,
            _ => ptr::null_mut(),
        }
    }

    /// The stack for handlers.
    fn stack(self) -> Range<u64> {
        // SAFETY: the frame of the running handler.
        let start = unsafe { (*self.0).uc_stack.ss_sp } as u64;
        start..start.wrapping_add(ALTSTACK_BYTES as u64)
    }

    fn skip(self, bytes: u64) {
        self.set(libc::REG_RIP, self.get(libc::REG_RIP).wrapping_add(bytes));
    }

    fn go_to(self, rip: u64) {
        self.set(libc::REG_RIP, rip);
        self.set(libc::REG_EFL, self.get(libc::REG_EFL) & !FLAGS_CLEARED);
        // A far jump may have led to 32-bit code.
        self.set(
            libc::REG_CSGSFS,
            self.get(libc::REG_CSGSFS) & SELECTORS_KEPT | SELECTORS,
        );
    }
}

/// What a handler tells the kernel about a program's fault.
#[derive(Clone, Copy, Default)]
pub(super) struct Fault {
    pub(super) signo: i32,
    pub(super) code: i32,
    pub(super) address: u64,
    pub(super) trap: u64,
    pub(super) error: u64,
}

/// What a program gets for an address that is none, or an instruction that it may not use.
const PROTECTION_FAULT: Fault = Fault {
    signo: libc::SIGSEGV,
    code: SI_KERNEL,
    address: 0,
    trap: TRAP_GP,
    error: 0,
};

/// Sends the program's thread to an entry of its kernel with all its registers noted.
///
/// # Safety
/// `thread` is this thread's state, and a program was running.
pub(super) unsafe fn enter_kernel(thread: *mut abi::Thread, frame: Frame, entry: u64, fault: &Fault) {
    // SAFETY: promised by the caller.
    unsafe { enter_kernel_with(&frame.regs(), thread, frame, entry, fault) }
}

/// The same with other registers than those that the signal found.
///
/// # Safety
/// As above.
unsafe fn enter_kernel_with(regs: &abi::Regs, thread: *mut abi::Thread, frame: Frame, entry: u64, fault: &Fault) {
    // SAFETY: promised by the caller; kernel and host code that use the fields are not running. The kernel's way of using
    // GS is that of all host code, so it may be set to what it is for that.
    unsafe {
        if gs_base() != thread as u64 {
            asm!("wrgsbase {}", in(reg) thread, options(nostack, preserves_flags));
            (*thread).gs_changed = 1;
        }
        (*thread).fault = *regs;
        (*thread).fault_signo = fault.signo as u32;
        (*thread).fault_code = fault.code;
        (*thread).fault_addr = fault.address;
        (*thread).fault_trapno = fault.trap as u32;
        (*thread).fault_err = fault.error as u32;
        frame.set(libc::REG_RSP, (*thread).fault_stack);
    }
    frame.go_to(entry);
}

pub(super) fn within(range: Range<u64>, address: u64) -> bool {
    address.wrapping_sub(range.start) < range.end.wrapping_sub(range.start)
}

fn in_vdso(address: u64) -> bool {
    let vdso = VDSO.load(Relaxed);
    vdso != 0 && within(vdso..vdso.wrapping_add(VDSO_BYTES), address)
}

pub(super) fn in_host(address: u64) -> bool {
    within(HOST_TEXT[0].load(Relaxed)..HOST_TEXT[1].load(Relaxed), address) || in_vdso(address)
}

/// `siginfo_t` of a SIGSYS.
#[repr(C)]
struct SigsysInfo {
    signo: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: u64,
    nr: i32,
    arch: u32,
}

/// A system call from outside host text.
unsafe extern "C" fn on_sigsys(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = Frame(context.cast());
    let (thread, info) = (frame.thread(), info.cast::<SigsysInfo>());
    // SAFETY: the kernel passes valid information to a SA_SIGINFO handler; `thread`, if not null, is this thread's state.
    unsafe {
        if thread.is_null() || (*info).code != SYS_USER_DISPATCH {
            return give_up(signo, 5, frame, (*info).address, true);
        }
        if (*thread).in_user == 0 {
            if !in_vdso(frame.get(libc::REG_RIP)) {
                return give_up(signo, 5, frame, (*info).address, true);
            }
            // The vDSO falls back to system calls for clocks it does not know: they are the host's own.
            let registers = [
                libc::REG_RDI,
                libc::REG_RSI,
                libc::REG_RDX,
                libc::REG_R10,
                libc::REG_R8,
                libc::REG_R9,
            ];
            let result = system_call(
                frame.get(libc::REG_RAX) as i64,
                registers.map(|register| frame.get(register)),
            );
            frame.set(libc::REG_RAX, result as u64);
            return;
        }
        if (*info).arch != AUDIT_ARCH_X86_64 {
            // `int 0x80`: a kernel without 32-bit programs answers with a protection fault at the instruction.
            frame.skip(2u64.wrapping_neg());
            let fault = Fault {
                error: 0x402,
                ..PROTECTION_FAULT
            };
            return enter_kernel(thread, frame, (*thread).fault_entry, &fault);
        }
        enter_kernel(thread, frame, (*thread).slow_entry, &Fault::default());
    }
}

/// A fault anywhere.
unsafe extern "C" fn on_fault(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let frame = Frame(context.cast());
    let (thread, rip) = (frame.thread(), frame.get(libc::REG_RIP));
    // SAFETY: the kernel passes valid information to a SA_SIGINFO handler; `thread`, if not null, is this thread's state.
    unsafe {
        let (code, address) = ((*info).si_code, (*info).si_addr() as u64);
        let before = FAULTS.iter().position(|&fault| fault == signo).unwrap_or(0);
        // Codes up to 0 are other processes' kill() and the like.
        let sent = code <= 0;
        if thread.is_null() || sent {
            if !sent && answer_instruction(thread, frame, rip) {
                return;
            }
            return give_up(signo, before, frame, address, sent);
        }
        if within((*thread).uaccess[0]..(*thread).uaccess[1], rip) {
            return frame.go_to((*thread).uaccess_fixup);
        }
        if answer_instruction(thread, frame, rip) {
            return;
        }
        // Wherever a program has jumped to; but not a handler's own fault.
        if (*thread).in_user != 0 && !within(frame.stack(), frame.get(libc::REG_RSP)) {
            let (trap, error) = (frame.get(libc::REG_TRAPNO), frame.get(libc::REG_ERR));
            let fault = Fault {
                signo,
                code,
                address,
                trap,
                error,
            };
            return program_fault(thread, frame, &fault);
        }
        let in_kernel = within((*thread).kernel_text[0]..(*thread).kernel_text[1], rip);
        // Code that is not the host's while a kernel runs is the kernel's, or where it jumped to by mistake.
        if (in_kernel || !in_host(rip))
            && let Some(way_out) = note_kernel_fault(thread, &frame.regs(), signo as u32, code, address)
        {
            return frame.go_to(way_out);
        }
        give_up(signo, before, frame, address, false);
    }
}

/// A fault while a program runs, or on the way to or from it.
///
/// # Safety
/// `thread` is this thread's state, and a program was running.
unsafe fn program_fault(thread: *mut abi::Thread, frame: Frame, fault: &Fault) {
    let regs = frame.regs();
    // SAFETY: promised by the caller.
    unsafe {
        if on_the_way_in(thread, &regs, fault) {
            let call = abi::Regs { rip: regs.rcx, ..regs };
            return enter_kernel_with(&call, thread, frame, (*thread).slow_entry, &Fault::default());
        }
        if let Some(back) = not_gone_out(thread, &regs) {
            return enter_kernel_with(&back, thread, frame, (*thread).fault_entry, &PROTECTION_FAULT);
        }
        let fault = match fault.trap == TRAP_PF && wild::is_elsewhere(&*thread, fault.address) {
            true => &elsewhere(&*thread, &regs, fault),
            false => fault,
        };
        enter_kernel_with(&regs, thread, frame, (*thread).fault_entry, fault);
    }
}

/// A program's access to what is another node's: noted, and to the program as if nothing were mapped there.
fn elsewhere(thread: &abi::Thread, regs: &abi::Regs, fault: &Fault) -> Fault {
    // SAFETY: the program's kernel is the one this thread was in last.
    let comm = unsafe { read_comm(thread) };
    wild::note(thread, &comm, regs, fault);
    Fault {
        code: SEGV_MAPERR,
        error: fault.error & !ERROR_PRESENT,
        ..*fault
    }
}

/// Whether a trampoline was about to enter the kernel, with all registers as at its `jmp *%gs:0`: the call can be made as
/// an unpatched one is. Either the program traps after each instruction, which the kernel must not, or GS is its own.
///
/// # Safety
/// As above.
unsafe fn on_the_way_in(thread: *mut abi::Thread, regs: &abi::Regs, fault: &Fault) -> bool {
    // SAFETY: promised by the caller.
    let entry = unsafe { (*thread).entry };
    let gs = gs_base();
    if fault.trap == TRAP_DB {
        return regs.rip == entry;
    }
    if gs == thread as u64 {
        return false;
    }
    // What the program has there need not be code.
    let jumped = fault.trap == TRAP_PF && fault.error & ERROR_FETCH != 0;
    match jumped {
        true => word_at(gs) == Some(regs.rip),
        false => word_at(regs.rip) == Some(ENTER),
    }
}

/// The registers that the kernel's `iretq` was to load for the program, if it could not: an address is non-canonical.
///
/// # Safety
/// As above.
unsafe fn not_gone_out(thread: *mut abi::Thread, regs: &abi::Regs) -> Option<abi::Regs> {
    // SAFETY: promised by the caller. The words are the end of the kernel stack of the running task.
    unsafe {
        let at_return = within((*thread).kernel_text[0]..(*thread).kernel_text[1], regs.rip)
            && regs.rsp == (*thread).fault_stack.wrapping_sub(IRETQ_FRAME_BYTES)
            && word_at(regs.rip)? & 0xffff == IRETQ;
        let [rip, _, rflags, rsp] = *(at_return.then_some(regs.rsp)? as *const [u64; 4]);
        Some(abi::Regs {
            rip,
            rflags,
            rsp,
            ..*regs
        })
    }
}

/// Answers `cpuid`, `rdtsc` and `rdtscp` in place; true if it was one of them.
///
/// # Safety
/// `frame` is that of a fault at `rip`; `thread` is null or this thread's state.
unsafe fn answer_instruction(thread: *mut abi::Thread, frame: Frame, rip: u64) -> bool {
    if frame.get(libc::REG_TRAPNO) != TRAP_GP {
        return false;
    }
    // A protection fault is raised by an instruction that was fetched; a byte is read only where the ones before it
    // say that it belongs to the same instruction. A jump to a non-canonical address raises one as well, but there is
    // nothing to read there, and no address of ours is that high.
    let byte = |offset: u64| -> u8 {
        // SAFETY: see above.
        unsafe { ptr::read_volatile(rip.wrapping_add(offset) as *const u8) }
    };
    if rip >> 47 != 0 || byte(0) != 0x0f {
        return false;
    }
    match byte(1) {
        0xa2 => {
            let leaf = cpuid(frame.get(libc::REG_RAX) as u32, frame.get(libc::REG_RCX) as u32);
            frame.set(libc::REG_RAX, leaf.eax.into());
            frame.set(libc::REG_RBX, leaf.ebx.into());
            frame.set(libc::REG_RCX, leaf.ecx.into());
            frame.set(libc::REG_RDX, leaf.edx.into());
            frame.skip(2);
        }
        0x31 => {
            // SAFETY: promised by the caller.
            unsafe { answer_counter(thread, frame, rip, 2) }
        }
        0x01 if byte(2) == 0xf9 => {
            // SAFETY: promised by the caller.
            unsafe { answer_counter(thread, frame, rip, 3) }
        }
        _ => return false,
    }
    true
}

/// The time stamp counter, read by an instruction of that many bytes: a program is sent to its kernel, which counts it
/// as a call to poll the clock; for a kernel it is virtual nanoseconds; and the true one for host code, whose clock is
/// computed from it.
///
/// # Safety
/// `frame` is that of the instruction at `rip`; `thread` is null or this thread's state.
unsafe fn answer_counter(thread: *mut abi::Thread, frame: Frame, rip: u64, bytes: i32) {
    let count = if thread.is_null() || in_host(rip) {
        true_counter()
    } else {
        // SAFETY: not null, hence this thread's state; in a program no kernel or host code runs.
        unsafe {
            if (*thread).in_user != 0 && !within((*thread).kernel_text[0]..(*thread).kernel_text[1], rip) {
                let read = Fault {
                    signo: 0,
                    code: bytes,
                    address: 0,
                    trap: 0,
                    error: 0,
                };
                return enter_kernel(thread, frame, (*thread).fault_entry, &read);
            }
            (*thread).now_ns
        }
    };
    frame.set(libc::REG_RAX, count & 0xffff_ffff);
    frame.set(libc::REG_RDX, count >> 32);
    if bytes == 3 {
        frame.set(libc::REG_RCX, 0);
    }
    frame.skip(bytes as u64);
}

fn true_counter() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: rdtsc is let through for just this instruction, then trapped as before.
    unsafe {
        system_call(
            libc::SYS_prctl,
            [libc::PR_SET_TSC as u64, libc::PR_TSC_ENABLE as u64, 0, 0, 0, 0],
        );
        asm!("rdtsc", out("rax") low, out("rdx") high, options(nomem, nostack, preserves_flags));
        system_call(
            libc::SYS_prctl,
            [libc::PR_SET_TSC as u64, libc::PR_TSC_SIGSEGV as u64, 0, 0, 0, 0],
        );
    }
    high << 32 | low
}

/// A fault of the host: says so on stderr, restores the action before ours and lets the signal come again, so that it
/// dumps core with the registers of the fault. `raise` where returning would not raise it again.
///
/// # Safety
/// Called by a handler for `signo`, whose place in BEFORE is `before`.
unsafe fn give_up(signo: i32, before: usize, frame: Frame, address: u64, raise: bool) {
    let mut line = Line {
        bytes: [0; 160],
        len: 0,
    };
    line.text(b"windtunnel: fatal signal ");
    line.number(signo as u64, 10);
    line.text(b" at 0x");
    line.number(frame.get(libc::REG_RIP), 16);
    line.text(b" (0x");
    line.number(frame.get(libc::REG_RIP).wrapping_sub(HOST_TEXT[0].load(Relaxed)), 16);
    line.text(b" in the program file) for address 0x");
    line.number(address, 16);
    line.text(b"\n");
    // SAFETY: raw calls with live memory. BEFORE was written before a handler could run. libc's sigaction reaches
    // thread-local storage only to set errno, and it can't fail with an action it gave out itself.
    unsafe {
        system_call(
            libc::SYS_write,
            [2, line.bytes.as_ptr() as u64, line.len as u64, 0, 0, 0],
        );
        let (hint, len) = (FATAL_HINT.as_ptr() as u64, FATAL_HINT.len() as u64);
        // What another process sent is no fault.
        if !raise {
            system_call(libc::SYS_write, [2, hint, len, 0, 0, 0]);
        }
        libc::sigaction(
            signo,
            (&raw const BEFORE).cast::<libc::sigaction>().add(before),
            ptr::null_mut(),
        );
        if raise {
            let pid = system_call(libc::SYS_getpid, [0; 6]) as u64;
            let tid = system_call(libc::SYS_gettid, [0; 6]) as u64;
            system_call(libc::SYS_tgkill, [pid, tid, signo as u64, 0, 0, 0]);
        }
    }
}

/// One line of text, built without formatting machinery.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    fn text(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = byte;
                self.len = self.len.wrapping_add(1);
            }
        }
    }

    fn number(&mut self, value: u64, base: u64) {
        let digit = value % base;
        if value >= base {
            self.number(value / base, base);
        }
        self.text(&[if digit < 10 { b'0' } else { b'a' - 10 }.wrapping_add(digit as u8)]);
    }
}
