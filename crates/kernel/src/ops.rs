//! The host's side of `struct wt_host_ops`: C functions that turn a call out into a call of [`Host`].

use std::any::Any;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use crate::abi::{self, HostPtr};
use crate::frame::Frame;
use crate::host::{FileName, Host, Verdict};
use crate::instance::Transmitted;
use crate::thread::{leave_kernel, room};

/// What `wt_boot.host` points to. Nobody but a call out touches it while a kernel runs.
pub(crate) struct HostContext<H> {
    pub host: H,
    pub entry: *mut abi::Entry,
    /// Frames that did not fit into one `wt_entry.tx`, in order.
    pub flushed: Vec<Transmitted>,
    /// A panic of the host's own code, on its way around the kernel's frames.
    pub unwinding: Option<Box<dyn Any + Send>>,
}

/// Calls `operation`. If it panics the instance is left for good and the panic goes on in `Instance::enter`: it
/// must not unwind through the kernel.
///
/// # Safety
/// `context` is the `host` pointer given at boot, for this `H`. The caller's frame and those up to the kernel have no
/// destructors to run.
unsafe fn call<H: Host, R>(context: HostPtr, operation: impl FnOnce(&mut HostContext<H>) -> R) -> R {
    let context = context.cast::<HostContext<H>>();
    // SAFETY: the context lives as long as the instance, and this call out is its only user: see HostContext.
    let result = catch_unwind(AssertUnwindSafe(|| operation(unsafe { &mut *context })));
    match result {
        Ok(value) => value,
        Err(payload) => {
            // SAFETY: as above; the closure's borrow has ended. Nothing here or above needs dropping, and a kernel is
            // running on this thread, because it called.
            unsafe {
                (*context).unwinding = Some(payload);
                leave_kernel()
            }
        }
    }
}

/// Bytes the kernel passes in; empty for a null pointer.
///
/// # Safety
/// `text` points to `len` bytes that stay as they are during the call out.
unsafe fn bytes<'a>(text: *const c_char, len: u64) -> &'a [u8] {
    match text.is_null() {
        true => &[],
        // SAFETY: promised by the caller.
        false => unsafe { slice::from_raw_parts(text.cast(), len as usize) },
    }
}

/// The table for hosts of type `H`.
pub(crate) struct Ops<H>(std::marker::PhantomData<H>);

impl<H: Host> Ops<H> {
    pub const TABLE: &'static abi::HostOps = &abi::HostOps {
        version: abi::ABI_VERSION,
        size: size_of::<abi::HostOps>() as u32,
        console: console::<H>,
        panic: panic::<H>,
        frame_alloc: frame_alloc::<H>,
        tx_flush: tx_flush::<H>,
        as_create: as_create::<H>,
        as_fork: as_fork::<H>,
        as_destroy: as_destroy::<H>,
        as_activate: as_activate::<H>,
        exec_map: exec_map::<H>,
        mem_call: mem_call::<H>,
        fs_lookup: fs_lookup::<H>,
        fs_readdir: fs_readdir::<H>,
        fs_readlink: fs_readlink::<H>,
        fs_open: fs_open::<H>,
        fs_create: fs_create::<H>,
        fs_read: fs_read::<H>,
        fs_write: fs_write::<H>,
        fs_truncate: fs_truncate::<H>,
        fs_size: fs_size::<H>,
        fs_release: fs_release::<H>,
        proc_event: proc_event::<H>,
        unsupported: unsupported::<H>,
        as_read: as_read::<H>,
        as_write: as_write::<H>,
        as_map: as_map::<H>,
        fs_name: fs_name::<H>,
        fs_seek: fs_seek::<H>,
        fs_punch: fs_punch::<H>,
        fs_storage: fs_storage::<H>,
        as_key: as_key::<H>,
        fs_writers: fs_writers::<H>,
        instruction: instruction::<H>,
        look: look::<H>,
    };
}

unsafe extern "C" fn console<H: Host>(host: HostPtr, text: *const c_char, len: u64) {
    // SAFETY: called by the kernel as the header says: its own host pointer, and `len` bytes of text.
    unsafe { call::<H, _>(host, |context| context.host.console(bytes(text, len))) }
}

/// Notes where the kernel was, which only the first instructions can tell, and goes on in [`panic_at`].
#[unsafe(naked)]
unsafe extern "C" fn panic<H: Host>(host: HostPtr, text: *const c_char, len: u64) {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {panic_at}", panic_at = sym panic_at::<H>)
}

unsafe extern "C" fn panic_at<H: Host>(host: HostPtr, text: *const c_char, len: u64, rsp: *const u64, rbp: u64) -> ! {
    // SAFETY: as for `console`; rsp points to the return address of the call to `panic`. Nothing here needs dropping
    // when the instance is left, and a kernel is running on this thread, because it called.
    unsafe {
        let crash = &raw mut (*room()).crash;
        (*crash).regs = abi::Regs {
            rip: *rsp,
            rsp: rsp as u64 + 8,
            rbp,
            ..abi::Regs::default()
        };
        (*crash).signo = 0;
        (*crash).address = 0;
        (&mut *crash).set_message(bytes(text, len));
        call::<H, _>(host, |context| context.host.panic(bytes(text, len)));
        leave_kernel()
    }
}

unsafe extern "C" fn frame_alloc<H: Host>(host: HostPtr, len: u32) -> *mut abi::Frame {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |_| Frame::with_room(len).into_raw()) }
}

unsafe extern "C" fn tx_flush<H: Host>(host: HostPtr) {
    // SAFETY: the kernel passes its own host pointer, and waits: the entry is ours to read and reset.
    unsafe {
        call::<H, _>(host, |context| {
            let entry = context.entry;
            for index in 0..(*entry).tx_count as usize {
                context.flushed.push(Transmitted::from_raw((*entry).tx[index]));
            }
            (*entry).tx_count = 0;
        });
    }
}

unsafe extern "C" fn as_create<H: Host>(host: HostPtr) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.as_create()) }
}

unsafe extern "C" fn as_fork<H: Host>(host: HostPtr, space: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.as_fork(space)) }
}

unsafe extern "C" fn as_destroy<H: Host>(host: HostPtr, space: u64) {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.as_destroy(space)) }
}

unsafe extern "C" fn as_activate<H: Host>(host: HostPtr, space: u64) {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.as_activate(space)) }
}

unsafe extern "C" fn exec_map<H: Host>(host: HostPtr, space: u64, exec: *mut abi::Exec) -> i64 {
    // SAFETY: the kernel passes its own host pointer and a live `struct wt_exec` of its own.
    unsafe { call::<H, _>(host, |context| context.host.exec_map(space, &mut *exec)) }
}

unsafe extern "C" fn mem_call<H: Host>(host: HostPtr, space: u64, nr: u32, args: *const u64, file: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer and six arguments.
    unsafe {
        call::<H, _>(host, |context| {
            context.host.mem_call(space, nr, &*args.cast::<[u64; 6]>(), file)
        })
    }
}

unsafe extern "C" fn fs_lookup<H: Host>(
    host: HostPtr,
    dir: u64,
    name: *const c_char,
    len: u32,
    out: *mut abi::FsAttr,
) -> i64 {
    // SAFETY: the kernel passes its own host pointer, `len` bytes of name and its own result.
    unsafe {
        call::<H, _>(host, |context| {
            context.host.fs_lookup(dir, bytes(name, len.into()), &mut *out)
        })
    }
}

unsafe extern "C" fn fs_readdir<H: Host>(host: HostPtr, dir: u64, index: u64, out: *mut abi::FsDirent) -> i64 {
    // SAFETY: the kernel passes its own host pointer and its own result.
    unsafe { call::<H, _>(host, |context| context.host.fs_readdir(dir, index, &mut *out)) }
}

unsafe extern "C" fn fs_readlink<H: Host>(host: HostPtr, id: u64, buf: *mut c_char, len: u32) -> i64 {
    // SAFETY: the kernel passes its own host pointer and a buffer of its own of `len` bytes, of which any content is
    // fine to replace.
    unsafe {
        call::<H, _>(host, |context| {
            context
                .host
                .fs_readlink(id, slice::from_raw_parts_mut(buf.cast(), len as usize))
        })
    }
}

unsafe extern "C" fn fs_open<H: Host>(host: HostPtr, id: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_open(id)) }
}

unsafe extern "C" fn fs_create<H: Host>(host: HostPtr, from: u64, size: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_create(from, size)) }
}

unsafe extern "C" fn fs_read<H: Host>(host: HostPtr, file: u64, buf: *mut c_void, len: u64, offset: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer; the buffer is the host's to check.
    unsafe { call::<H, _>(host, |context| context.host.fs_read(file, buf.cast(), len, offset)) }
}

unsafe extern "C" fn fs_write<H: Host>(host: HostPtr, file: u64, buf: *const c_void, len: u64, offset: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer; the buffer is the host's to check.
    unsafe { call::<H, _>(host, |context| context.host.fs_write(file, buf.cast(), len, offset)) }
}

unsafe extern "C" fn fs_truncate<H: Host>(host: HostPtr, file: u64, size: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_truncate(file, size)) }
}

unsafe extern "C" fn fs_size<H: Host>(host: HostPtr, file: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_size(file)) }
}

unsafe extern "C" fn fs_release<H: Host>(host: HostPtr, file: u64) {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_release(file)) }
}

unsafe extern "C" fn proc_event<H: Host>(host: HostPtr, event: u32, key: u64, a: u64, b: u64) {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.proc_event(event, key, a, b)) }
}

unsafe extern "C" fn unsupported<H: Host>(host: HostPtr, nr: u32, arg0: u64, comm: *const c_char) {
    // SAFETY: the kernel passes its own host pointer and a NUL-terminated name.
    unsafe {
        call::<H, _>(host, |context| {
            context.host.unsupported(nr, arg0, CStr::from_ptr(comm).to_bytes())
        })
    }
}

unsafe extern "C" fn as_read<H: Host>(host: HostPtr, space: u64, address: u64, buf: *mut c_void, len: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer; the host copies with a system call.
    unsafe { call::<H, _>(host, |context| context.host.as_read(space, address, buf.cast(), len)) }
}

unsafe extern "C" fn as_write<H: Host>(host: HostPtr, space: u64, address: u64, buf: *const c_void, len: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer; the host copies with a system call.
    unsafe { call::<H, _>(host, |context| context.host.as_write(space, address, buf.cast(), len)) }
}

unsafe extern "C" fn as_map<H: Host>(host: HostPtr, space: u64, address: u64, out: *mut abi::Map) -> i64 {
    // SAFETY: the kernel passes its own host pointer and its own result.
    unsafe { call::<H, _>(host, |context| context.host.as_map(space, address, &mut *out)) }
}

unsafe extern "C" fn fs_name<H: Host>(host: HostPtr, file: u64, name: *const abi::FileName) {
    // SAFETY: the kernel passes its own host pointer, and a name of its own that stays as it is during the call out.
    unsafe {
        call::<H, _>(host, |context| {
            let name = &*name;
            let name = FileName {
                ino: name.ino,
                dev_major: name.dev_major,
                dev_minor: name.dev_minor,
                path: bytes(name.path, name.path_len),
            };
            context.host.fs_name(file, &name);
        });
    }
}

unsafe extern "C" fn fs_seek<H: Host>(host: HostPtr, file: u64, offset: u64, whence: u32) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_seek(file, offset, whence)) }
}

unsafe extern "C" fn fs_punch<H: Host>(host: HostPtr, file: u64, offset: u64, len: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_punch(file, offset, len)) }
}

unsafe extern "C" fn fs_storage<H: Host>(host: HostPtr, file: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_storage(file)) }
}

unsafe extern "C" fn as_key<H: Host>(
    host: HostPtr,
    space: u64,
    address: u64,
    write: u32,
    out: *mut abi::MemKey,
) -> i64 {
    // SAFETY: the kernel passes its own host pointer and its own result.
    unsafe {
        call::<H, _>(host, |context| {
            context.host.as_key(space, address, write != 0, &mut *out)
        })
    }
}

unsafe extern "C" fn fs_writers<H: Host>(host: HostPtr, file: u64) -> i64 {
    // SAFETY: the kernel passes its own host pointer.
    unsafe { call::<H, _>(host, |context| context.host.fs_writers(file)) }
}

unsafe extern "C" fn instruction<H: Host>(host: HostPtr, space: u64, regs: *mut abi::Regs) -> i64 {
    // SAFETY: the kernel passes its own host pointer and its own registers.
    unsafe { call::<H, _>(host, |context| context.host.instruction(space, &mut *regs)) }
}

unsafe extern "C" fn look<H: Host>(host: HostPtr, space: u64, look: *mut abi::Look) -> i64 {
    // SAFETY: the kernel passes its own host pointer and a description of its own. It writes to the entry only while it
    // runs, which it does not during the call.
    let verdict = unsafe {
        call::<H, _>(host, |context| {
            let calls = (*context.entry).syscalls;
            context.host.look(space, &mut *look, calls)
        })
    };
    match verdict {
        Verdict::Runs => abi::LOOK_RUNS,
        Verdict::Spins => abi::LOOK_SPINS,
        Verdict::Sleeps => abi::LOOK_SLEEPS,
        Verdict::Stops => abi::LOOK_STOPS,
        Verdict::Dies => abi::LOOK_DIES,
    }
}
