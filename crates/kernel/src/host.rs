//! What a library kernel asks of its host: the safe mirror of `struct wt_host_ops` in the boundary header.
//!
//! Every operation runs on the host's stack while the kernel waits for it; none may enter an instance.
//! Results below zero are negated Linux errno values, as in the boundary header.

use crate::abi;

/// What `/proc/PID/maps` shows of mappings of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// Inode number, as of stat(2).
    pub ino: u64,
    /// Device, as of stat(2).
    pub dev_major: u32,
    /// Device, as of stat(2).
    pub dev_minor: u32,
    /// Absolute path in the node.
    pub path: &'a [u8],
}

/// What is to become of a program that was interrupted because it runs on and on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as if nothing had been.
    Runs,
    /// It waits in a loop that cannot end by itself, and sleeps a little at the registers that [`abi::Look`] has now.
    Spins,
    /// It makes way for [`abi::Look::sleep_ns`], or until it gets a signal.
    Sleeps,
    /// It sleeps [`abi::Look::sleep_ns`] whatever signals come: the run ends.
    Stops,
    /// It gets SIGKILL.
    Dies,
}

/// Services of the host for one kernel instance.
///
/// Pointers named `user_*` are addresses a program passed: they may be bad, and must be touched by system calls
/// (`pread`, `pwrite`) that answer `EFAULT`, never by a plain load or store.
pub trait Host {
    /// Kernel log text.
    fn console(&mut self, text: &[u8]);
    /// A panic or oops, before the instance is left for good.
    fn panic(&mut self, text: &[u8]);

    /// A new, empty address space; its id, above zero.
    fn as_create(&mut self) -> i64;
    /// A private copy of an address space, for fork; the two take turns at their addresses.
    fn as_fork(&mut self, space: u64) -> i64;
    /// Drops an address space and all that is mapped in it.
    fn as_destroy(&mut self, space: u64);
    /// Brings what `space` has at addresses that others use, too, in place.
    fn as_activate(&mut self, space: u64);
    /// Replaces all of `space` by the images and the stack described by `exec`.
    fn exec_map(&mut self, space: u64, exec: &mut abi::Exec) -> i64;
    /// A memory-mapping system call of a program; `file` is the handle behind a file mapping, or 0.
    fn mem_call(&mut self, space: u64, nr: u32, args: &[u64; 6], file: u64) -> i64;
    /// What memory `address` means, if the program may read it (`write`: write it).
    fn as_key(&mut self, space: u64, address: u64, write: bool, out: &mut abi::MemKey) -> i64;
    /// Carries out what stood at `regs.rip` before it was patched; 0: the program's own fault. See `boundary.h`.
    fn instruction(&mut self, space: u64, regs: &mut abi::Regs) -> i64;

    /// Looks `name` up in the lower directory `dir`.
    fn fs_lookup(&mut self, dir: u64, name: &[u8], out: &mut abi::FsAttr) -> i64;
    /// Entry number `index` of the lower directory `dir`, sorted by name: 1 found, 0 end.
    fn fs_readdir(&mut self, dir: u64, index: u64, out: &mut abi::FsDirent) -> i64;
    /// Target of the lower symbolic link `id`; its length.
    fn fs_readlink(&mut self, id: u64, buf: &mut [u8]) -> i64;
    /// A handle for the contents of the lower file `id`.
    fn fs_open(&mut self, id: u64) -> i64;
    /// New contents: empty, or a writable copy of the first `size` bytes of `from`.
    fn fs_create(&mut self, from: u64, size: u64) -> i64;
    /// Reads up to `len` bytes at `offset` into program or kernel memory.
    fn fs_read(&mut self, file: u64, user_buf: *mut u8, len: u64, offset: u64) -> i64;
    /// Writes `len` bytes at `offset` from program or kernel memory.
    fn fs_write(&mut self, file: u64, user_buf: *const u8, len: u64, offset: u64) -> i64;
    /// Sets the size of contents.
    fn fs_truncate(&mut self, file: u64, size: u64) -> i64;
    /// Size of contents in bytes.
    fn fs_size(&mut self, file: u64) -> i64;
    /// How many shared mappings of contents are writable or may become so.
    fn fs_writers(&mut self, file: u64) -> i64;
    /// Gives a handle back.
    fn fs_release(&mut self, file: u64);

    /// A step in the life of a spawned program; see `enum wt_proc_event`.
    fn proc_event(&mut self, event: u32, key: u64, a: u64, b: u64);
    /// A system call that is refused or partial.
    fn unsupported(&mut self, nr: u32, arg0: u64, comm: &[u8]);

    /// Judges the running program of `space`, which was interrupted ([`abi::FAULT_LOOK`]), or has just slept because it
    /// spins. With [`Verdict::Spins`] its memory is as it is at the registers in `look`.
    /// `calls` is the running count of system calls by the node's programs.
    fn look(&mut self, space: u64, look: &mut abi::Look, calls: u64) -> Verdict;

    /// Copies `len` bytes at `address` of `space`, whichever program runs, to kernel memory at `buffer`: bytes done
    /// before the first bad address.
    fn as_read(&mut self, space: u64, address: u64, buffer: *mut u8, len: u64) -> i64;
    /// As [`Host::as_read`], the other way round.
    fn as_write(&mut self, space: u64, address: u64, buffer: *const u8, len: u64) -> i64;
    /// The first mapping of `space` that ends above `address`: 1 found, 0 none.
    fn as_map(&mut self, space: u64, address: u64, out: &mut abi::Map) -> i64;
    /// What `as_map` says of mappings of `file` from now on.
    fn fs_name(&mut self, file: u64, name: &FileName<'_>);

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE` in contents of the node's own.
    fn fs_seek(&mut self, file: u64, offset: u64, whence: u32) -> i64;
    /// Makes `len` bytes at `offset` zero and gives their memory back.
    fn fs_punch(&mut self, file: u64, offset: u64, len: u64) -> i64;
    /// Bytes of memory that contents take.
    fn fs_storage(&mut self, file: u64) -> i64;
}
