//! What a host thread needs to be inside kernels: `struct wt_thread` behind GS, the frame pool, and the one
//! place where control enters an instance and, after a crash, comes back from the middle of it.

use std::arch::{asm, naked_asm};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr;

use crate::abi;
use crate::frame;

const ARCH_SET_GS: libc::c_long = 0x1001;
const ARCH_GET_GS: libc::c_long = 0x1004;
/// Bit of AT_HWCAP2: the FSGSBASE instructions may be used.
const HWCAP2_FSGSBASE: u64 = 1 << 1;
/// Longest crash message kept, bytes.
const MESSAGE_BYTES: usize = 512;

/// Why a thread cannot enter kernels.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The host does not let programs set FS and GS themselves.
    #[error(
        "this host does not offer the FSGSBASE instructions\nhint: it needs Linux 5.9 or newer on a processor from 2012 \
         or later, booted without `nofsgsbase`"
    )]
    NoFsgsbase,
    /// The thread has a context already, or something else uses GS.
    #[error("the GS base of this thread is in use")]
    GsInUse,
    /// The host refused a call.
    #[error("cannot set the GS base: {0}")]
    Refused(io::Error),
}

/// How an instance ended in the middle of an entry, as recorded on the way out. Plain memory: it is written by a
/// signal handler that must not allocate.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct CrashRecord {
    /// Registers in the kernel, or zero but for rbp and rsp after a panic.
    pub regs: abi::Regs,
    /// Linux signal of a fault in kernel code; 0: the kernel called `panic`, or a host operation did.
    pub signo: u32,
    pub code: i32,
    /// The address that faulted.
    pub address: u64,
    pub message_len: usize,
    pub message: [u8; MESSAGE_BYTES],
}

impl CrashRecord {
    const EMPTY: Self = Self {
        regs: abi::Regs {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            rip: 0,
            rflags: 0,
            rsp: 0,
        },
        signo: 0,
        code: 0,
        address: 0,
        message_len: 0,
        message: [0; MESSAGE_BYTES],
    };

    /// Keeps the start of `text`.
    pub fn set_message(&mut self, text: &[u8]) {
        self.message_len = text.len().min(MESSAGE_BYTES);
        self.message[..self.message_len].copy_from_slice(&text[..self.message_len]);
    }
}

/// Everything a host thread has for kernels. GS points at its start.
#[repr(C)]
pub(crate) struct Room {
    pub thread: abi::Thread,
    /// Stack pointer of `call_kernel` while a kernel runs; 0 otherwise.
    inside: u64,
    /// FS base of this thread as host code wants it.
    host_fs: u64,
    pub crash: CrashRecord,
    /// See [`keep_name`].
    name: [u8; 16],
    pub pool: abi::FramePool,
}

thread_local! {
    static ROOM: Cell<*mut Room> = const { Cell::new(ptr::null_mut()) };
}

/// The room of the calling thread; null when it has no context.
#[inline]
pub(crate) fn room() -> *mut Room {
    ROOM.get()
}

/// The right to enter kernels on this thread, as long as it lives. One per thread, not to be moved to another.
#[derive(Debug)]
pub struct ThreadContext {
    room: *mut Room,
    _not_send: PhantomData<*mut ()>,
}

impl ThreadContext {
    /// Gives the calling thread its context and points GS at it.
    pub fn install() -> Result<Self, ThreadError> {
        // SAFETY: getauxval only reads the auxiliary vector.
        if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE == 0 {
            return Err(ThreadError::NoFsgsbase);
        }
        let mut gs = 0u64;
        // SAFETY: ARCH_GET_GS writes one word to the address given.
        let got = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_GS, &raw mut gs) };
        if got != 0 {
            return Err(ThreadError::Refused(io::Error::last_os_error()));
        }
        if gs != 0 {
            return Err(ThreadError::GsInUse);
        }
        let room = Box::into_raw(Box::new(Room {
            thread: abi::Thread::default(),
            inside: 0,
            host_fs: fs_base(),
            crash: CrashRecord::EMPTY,
            name: [0; 16],
            pool: abi::FramePool {
                count: 0,
                reserved: 0,
                slot: [ptr::null_mut(); abi::FRAME_POOL_SLOTS],
            },
        }));
        // SAFETY: the room lives until `drop`, which resets GS; host code does not use GS otherwise.
        if unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, room) } != 0 {
            let error = io::Error::last_os_error();
            // SAFETY: the room came from a Box above and nobody else has it.
            drop(unsafe { Box::from_raw(room) });
            return Err(ThreadError::Refused(error));
        }
        ROOM.set(room);
        // SAFETY: the pool is part of the room, which lives until `drop` unbinds it.
        unsafe { frame::bind(&raw mut (*room).pool) };
        Ok(Self {
            room,
            _not_send: PhantomData,
        })
    }

    /// The boundary's view of this thread, for the signal handlers. Valid as long as the context.
    pub fn thread(&self) -> *mut abi::Thread {
        // SAFETY: the room lives as long as self.
        unsafe { &raw mut (*self.room).thread }
    }
}

impl Drop for ThreadContext {
    fn drop(&mut self) {
        ROOM.set(ptr::null_mut());
        // SAFETY: no kernel runs here (that borrows nothing, but is below this frame on the stack, where no drop
        // happens), GS is reset before the room goes, and the pool's buffers are nobody else's.
        unsafe {
            frame::bind(ptr::null_mut());
            libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, 0);
            frame::drain(&raw mut (*self.room).pool);
            drop(Box::from_raw(self.room));
        }
    }
}

/// The FS base of the calling thread.
fn fs_base() -> u64 {
    let base;
    // SAFETY: the caller made sure of FSGSBASE; the instruction only reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// What `call_kernel` ends with.
#[repr(C)]
pub(crate) struct Called {
    /// Result of the function, when it returned.
    pub value: i64,
    /// 1: it did not return, the instance crashed.
    pub crashed: u64,
}

/// Calls `function(argument)` in an instance. All ways out of a kernel lead here: its return, and
/// [`leave_kernel`] from wherever it crashed.
///
/// # Safety
/// The thread has a room, no kernel runs on it, and `function` is an entry of a kernel that may be entered now.
/// After a crash, Rust frames between this one and the crash are gone without their destructors: there must be
/// none but those of call outs, which see to it themselves.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_kernel(function: *const (), argument: *const ()) -> Called {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 24", // two control words, and the stack aligned to 16 for the call
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov gs:[{inside}], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor edx, edx",
        "2:",
        "mov qword ptr gs:[{inside}], 0",
        "lea rsp, [rbp - 40]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        // leave_kernel comes here with nothing but GS in place.
        ".globl windtunnel_leave_kernel",
        ".hidden windtunnel_leave_kernel",
        "windtunnel_leave_kernel:",
        "mov rsp, gs:[{inside}]",
        "test rsp, rsp",
        "jz 3f",
        "cld",
        "mov rax, gs:[{host_fs}]",
        "wrfsbase rax",
        "fninit",
        "fldcw [rsp + 4]",
        "ldmxcsr [rsp]",
        "mov qword ptr gs:[{in_user}], 0",
        "lea rbp, [rsp + 64]",
        "xor eax, eax",
        "mov edx, 1",
        "jmp 2b",
        "3:",
        "ud2", // nobody is in a kernel: there is nowhere to go
        inside = const offset_of!(Room, inside),
        host_fs = const offset_of!(Room, host_fs),
        in_user = const offset_of!(Room, thread) + offset_of!(abi::Thread, in_user),
    )
}

unsafe extern "C" {
    /// Leaves the instance that runs on this thread for good: `call_kernel` ends with `crashed` set. May be
    /// jumped to from any stack and with any FS base.
    #[link_name = "windtunnel_leave_kernel"]
    pub(crate) fn leave_kernel() -> !;
}

/// What a signal handler does about a fault in kernel code: notes it, and says where to go on.
///
/// The handler sets rip to the result, clears the direction and alignment flags, and returns from the signal. Safe
/// to call with the program's FS base: no thread-local storage, no allocation. None when no kernel runs on
/// the thread, which makes it a fault of the host.
///
/// # Safety
/// `thread` is what GS points to on this thread, set by [`ThreadContext::install`].
pub unsafe fn note_kernel_fault(
    thread: *mut abi::Thread,
    regs: &abi::Regs,
    signo: u32,
    code: i32,
    address: u64,
) -> Option<u64> {
    let room = thread.cast::<Room>();
    // SAFETY: the thread is the first field of a live room; the code that used it is interrupted for good.
    unsafe {
        if (*room).inside == 0 {
            return None;
        }
        let crash = &raw mut (*room).crash;
        (*crash).regs = *regs;
        (*crash).signo = signo;
        (*crash).code = code;
        (*crash).address = address;
        (*crash).message_len = 0;
    }
    Some(leave_kernel as *const () as u64)
}

/// A program's fault that its kernel is about to end it for.
#[derive(Clone, Debug)]
pub struct ProgramFault {
    /// The program's registers.
    pub regs: abi::Regs,
    /// Linux signal number.
    pub signo: u32,
    /// The address it was about.
    pub address: u64,
    /// x86 error code: of a page fault, bit 1 is set for a write and bit 4 for a fetch of code.
    pub error: u32,
    /// Name of the thread.
    pub comm: String,
}

/// The fault behind a `PROC_FAULT` event, to be called while the kernel on this thread reports it; none without a kernel.
pub fn program_fault() -> Option<ProgramFault> {
    let room = room();
    // SAFETY: a room lives as long as this thread points to it. While a kernel waits for a call out, nobody changes what
    // it told about the running thread, and `comm` points to 16 bytes of its memory.
    unsafe {
        if room.is_null() || (*room).inside == 0 {
            return None;
        }
        let thread = &(*room).thread;
        Some(ProgramFault {
            regs: thread.fault,
            signo: thread.fault_signo,
            address: thread.fault_addr,
            error: thread.fault_err,
            comm: comm_text(&read_comm(thread)),
        })
    }
}

/// The name alone, as [`running_program`]; none also where no program has run yet.
pub fn program_name() -> Option<String> {
    running_program().map(|(_, name)| name).filter(|name| !name.is_empty())
}

/// Pid and name of the program thread that runs, to be called while its kernel waits for a call out; none without a
/// kernel.
pub fn running_program() -> Option<(u64, String)> {
    let room = room();
    // SAFETY: as in `program_fault`.
    unsafe {
        if room.is_null() || (*room).inside == 0 {
            return None;
        }
        let thread = &(*room).thread;
        Some((thread.pid, comm_text(&read_comm(thread))))
    }
}

/// Forgets on this thread whose memory was brought in place last, to be called between entries: before a program runs in
/// the next one, its kernel calls [`crate::Host::as_activate`] if it takes it for one that shares addresses
/// (`abi::Exec::low`).
pub fn forget_active() {
    let room = room();
    // SAFETY: a room lives as long as this thread points to it. Inside a kernel the word is the kernel's.
    unsafe {
        if !room.is_null() && (*room).inside == 0 {
            (*room).thread.active_as = 0;
        }
    }
}

/// Keeps the name of the program that ran last on this thread readable if it lies in one of `ranges`, which is readable
/// yet. It is still the name for reports until another program runs.
pub(crate) fn keep_name(ranges: &[Range<u64>]) {
    let room = room();
    // SAFETY: a room lives as long as this thread points to it; while a kernel waits for a call out nobody changes it. The
    // kernel gives the address of 16 bytes, in memory of an instance that is there.
    unsafe {
        if !room.is_null() && ranges.iter().any(|range| range.contains(&(*room).thread.comm)) {
            (*room).name = read_comm(&(*room).thread);
            (*room).thread.comm = (&raw const (*room).name) as u64;
        }
    }
}

/// The name of the program thread that runs, with NULs at its end.
///
/// # Safety
/// `thread` is that of a room, and the instance it last was in still exists.
pub unsafe fn read_comm(thread: &abi::Thread) -> [u8; 16] {
    match thread.comm {
        0 => [0; 16],
        // SAFETY: promised by the caller; the kernel gives the address of 16 bytes.
        at => unsafe { (at as *const [u8; 16]).read_volatile() },
    }
}

/// A thread's name as text.
pub fn comm_text(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn returns(argument: u64) -> i64 {
        argument as i64 * 2
    }

    /// Spoils all that a kernel may have changed when it crashes, then leaves.
    #[unsafe(naked)]
    extern "C" fn spoils_and_leaves() {
        naked_asm!(
            "xor ebx, ebx",
            "xor ebp, ebp",
            "xor r12d, r12d",
            "xor r13d, r13d",
            "xor r14d, r14d",
            "xor r15d, r15d",
            "mov dword ptr [rsp - 8], 0x3f80", // another rounding mode
            "ldmxcsr [rsp - 8]",
            "wrfsbase rbx",
            "std",
            "mov rsp, 64",
            "jmp {leave}",
            leave = sym leave_kernel,
        )
    }

    #[test]
    fn a_crash_comes_back_with_the_hosts_state() {
        std::thread::spawn(|| {
            let context = ThreadContext::install().unwrap();
            assert!(matches!(ThreadContext::install(), Err(ThreadError::GsInUse)));
            let control_before = rounding();
            // SAFETY: the functions are no kernels, but keep to what kernels may do.
            let (returned, left) = unsafe {
                (
                    call_kernel(returns as *const (), ptr::without_provenance(21)),
                    call_kernel(spoils_and_leaves as *const (), ptr::null()),
                )
            };
            assert_eq!((returned.value, returned.crashed), (42, 0));
            assert_eq!((left.value, left.crashed), (0, 1));
            assert_eq!(rounding(), control_before);
            // Thread-local storage works, so FS is the host's; and the room says that nobody is inside.
            assert_eq!(room().cast(), context.thread());
            // SAFETY: the context is alive.
            assert_eq!(unsafe { (*room()).inside }, 0);
            drop(context);
            assert!(room().is_null());
            ThreadContext::install().unwrap();
        })
        .join()
        .unwrap();
    }

    fn rounding() -> u32 {
        let mut control = 0u32;
        // SAFETY: stores the control register to a local.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack)) };
        control
    }
}
