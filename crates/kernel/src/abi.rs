//! Bindings of `kernel/include/windtunnel/boundary.h`, written by hand and checked in.
//!
//! The header is the contract: units, directions and rules stand there, field by field, and are not repeated here.
//! Names are the header's without the `wt_` prefix. `tests/abi_matches_header.rs` compiles the header and
//! compares every size and offset with the ones below; the assertions at the end hold in every build.

use core::ffi::{c_char, c_void};
use core::mem::{offset_of, size_of};

/// `WT_ABI_VERSION`
pub const ABI_VERSION: u32 = 9;
/// `WT_UPTIME_S`
pub const UPTIME_S: u64 = 1;
/// `WT_FRAME_DAMAGED`: a link changed bits of the frame.
pub const FRAME_DAMAGED: u32 = 0x1;
/// `WT_FRAME_SMALL`: data capacity of a pool buffer, bytes.
pub const FRAME_SMALL: u32 = 2048;
/// Slots of a [`FramePool`].
pub const FRAME_POOL_SLOTS: usize = 1024;
/// `WT_TX_IRQ`: the kernel wants an entry when this frame has left.
pub const TX_IRQ: u32 = 0x1;
/// `WT_NIC_RING`: capacity of [`Nic::done_ns`], frames.
pub const NIC_RING: usize = 1024;
/// `WT_NIC_GAP_MAX`: longest gap between interrupts, ns.
pub const NIC_GAP_MAX: u64 = 100_000_000;
/// `WT_NIC_RX_RING_MAX`: longest receive ring, frames.
pub const NIC_RX_RING_MAX: u32 = 8192;
/// `WT_NIC_SG`: packets may be in pieces.
pub const NIC_SG: u32 = 0x1;
/// `WT_NIC_TX_CSUM`
pub const NIC_TX_CSUM: u32 = 0x2;
/// `WT_NIC_RX_CSUM`
pub const NIC_RX_CSUM: u32 = 0x4;
/// `WT_NIC_TSO`: for IPv4 and IPv6.
pub const NIC_TSO: u32 = 0x8;
/// `WT_NIC_TSO_ECN`
pub const NIC_TSO_ECN: u32 = 0x10;
/// `WT_NIC_TSO_MANGLEID`
pub const NIC_TSO_MANGLEID: u32 = 0x20;
/// `WT_NIC_USO`: UDP segmentation.
pub const NIC_USO: u32 = 0x40;
/// `WT_NIC_FRAGLIST`
pub const NIC_FRAGLIST: u32 = 0x80;
/// `WT_NIC_GSO`: in software.
pub const NIC_GSO: u32 = 0x100;
/// `WT_NIC_GRO`: in software.
pub const NIC_GRO: u32 = 0x200;
/// `WT_TX_MAX`: capacity of [`Entry::tx`], frames.
pub const TX_MAX: usize = 1024;
/// `WT_EV_CTL`: [`Entry::ctl_head`] holds requests.
pub const EV_CTL: u32 = 0x1;
/// `WT_EV_TX_DONE`: a frame with [`TX_IRQ`], or a wanted index, is done.
pub const EV_TX_DONE: u32 = 0x2;
/// `WT_EV_LINK`: a carrier changed.
pub const EV_LINK: u32 = 0x4;
/// `WT_CTL_SYSCALL`
pub const CTL_SYSCALL: u32 = 1;
/// `WT_CTL_SPAWN`
pub const CTL_SPAWN: u32 = 2;
/// `WT_SPAWN_TTY`
pub const SPAWN_TTY: u32 = 1;
/// `WT_PROC_STARTED`: a = pid.
pub const PROC_STARTED: u32 = 1;
/// `WT_PROC_FAILED`: a = pid, b = errno.
pub const PROC_FAILED: u32 = 2;
/// `WT_PROC_EXITED`: a = pid, b = wait status.
pub const PROC_EXITED: u32 = 3;
/// `WT_PROC_FAULT`: a = pid, b = signal.
pub const PROC_FAULT: u32 = 4;
/// `WT_PROC_FORKED`: a = pid and parent's pid (upper half), key and b = name.
pub const PROC_FORKED: u32 = 5;
/// `WT_PROC_EXECED`: a = pid, key and b = name.
pub const PROC_EXECED: u32 = 6;
/// `WT_PROC_GONE`: a = pid and wait status (upper half), key and b = user and system CPU time, ns.
pub const PROC_GONE: u32 = 7;
/// In `mem_call`: the instance's own memory as a file.
pub const FILE_RAM: u64 = u64::MAX;
/// `WT_MAP_SHARED`: others see what is written.
pub const MAP_SHARED: u32 = 0x1;
/// `WT_MAP_FILE`: of a file, shared memory included.
pub const MAP_FILE: u32 = 0x2;
/// `WT_MAP_HEAP`: below the program break.
pub const MAP_HEAP: u32 = 0x4;
/// `WT_MAP_STACK`: made at exec.
pub const MAP_STACK: u32 = 0x8;
/// `WT_FAULT_LOOK`: in `Thread::fault_code`, the host interrupted the program.
pub const FAULT_LOOK: i32 = 64;
/// `WT_LOOK_RUNS`: the program goes on as if nothing had been.
pub const LOOK_RUNS: i64 = 0;
/// `WT_LOOK_SPINS`: it waits in a loop that cannot end by itself.
pub const LOOK_SPINS: i64 = 1;
/// `WT_LOOK_SLEEPS`: it makes way for `Look::sleep_ns`, or until it gets a signal.
pub const LOOK_SLEEPS: i64 = 2;
/// `WT_LOOK_STOPS`: it sleeps `Look::sleep_ns` whatever signals come.
pub const LOOK_STOPS: i64 = 3;
/// `WT_LOOK_DIES`: it gets SIGKILL.
pub const LOOK_DIES: i64 = 4;
/// `WT_SLOT_SHIFT`: programs get their addresses in slots of `1 << SLOT_SHIFT` bytes.
pub const SLOT_SHIFT: u32 = 30;
/// `WT_REGION_SHIFT`: a node lies in one aligned block of `1 << REGION_SHIFT` bytes.
pub const REGION_SHIFT: u32 = 38;
/// `WT_LOW_END`: programs linked to fixed addresses have those below.
pub const LOW_END: u64 = 1 << 36;
/// The header's "none" for times and indices (`~0`).
pub const NONE: u64 = u64::MAX;

/// `struct wt_frame`; `data` follows at offset 64.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Frame {
    pub len: u32,
    pub cap: u32,
    pub flags: u32,
    pub reserved: u32,
    pub tag: [u64; 6],
    pub data: [u8; 0],
}

/// `struct wt_frame_pool`
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct FramePool {
    pub count: u32,
    pub reserved: u32,
    pub slot: [*mut Frame; FRAME_POOL_SLOTS],
}

/// `struct wt_tx`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Tx {
    pub frame: *mut Frame,
    pub nic: u32,
    pub flags: u32,
}

/// `struct wt_rx`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Rx {
    pub frame: *mut Frame,
    pub nic: u32,
    pub reserved: u32,
}

/// `struct wt_nic`
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Nic {
    pub done_known: u64,
    pub done_ns: [u64; NIC_RING],
    pub carrier: u32,
    pub speed_mbps: u32,
    pub want_done_index: u64,
    pub irq_gap_ns: u64,
    pub irq_frames: u32,
    pub rx_ring: u32,
    pub rx_missed: u64,
}

/// `struct wt_entry`
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Entry {
    pub now_ns: u64,
    pub next_timer_ns: u64,
    pub events: u32,
    pub rx_count: u32,
    pub rx: *mut Rx,
    pub pool: *mut FramePool,
    pub thread: *mut Thread,
    pub ctl_head: *mut Ctl,
    pub syscalls: u64,
    pub tx_count: u32,
    pub ctl_done: u32,
    pub tx: [Tx; TX_MAX],
}

/// `struct wt_ctl`
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Ctl {
    pub next: *mut Ctl,
    pub kind: u32,
    pub done: u32,
    pub result: i64,
    pub nr: u64,
    pub arg: [u64; 6],
    pub spawn: *const Spawn,
}

/// `struct wt_spawn`
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Spawn {
    pub key: u64,
    pub path: *const c_char,
    pub argv: *const *const c_char,
    pub envp: *const *const c_char,
    pub cwd: *const c_char,
    pub file: [u64; 3],
    pub uid: u32,
    pub gid: u32,
    pub fd: [i32; 3],
    pub flags: u32,
}

/// `struct wt_regs`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Regs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
}

/// `struct wt_thread`
#[repr(C)]
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Thread {
    pub entry: u64,
    pub fault_entry: u64,
    pub fault_stack: u64,
    pub slow_entry: u64,
    pub fault: Regs,
    pub fault_signo: u32,
    pub fault_code: i32,
    pub fault_addr: u64,
    pub fault_trapno: u32,
    pub fault_err: u32,
    pub kernel_text: [u64; 2],
    pub uaccess: [u64; 2],
    pub uaccess_fixup: u64,
    pub in_user: u64,
    pub now_ns: u64,
    pub host_fs: u64,
    pub active_as: u64,
    pub pid: u64,
    pub clock_entry: u64,
    pub clock_ip: u64,
    pub reserved: [u64; 2],
    pub gs_changed: u64,
    pub reserved_too: [u64; 3],
    pub comm: u64,
}

/// `struct wt_fs_attr`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FsAttr {
    pub id: u64,
    pub size: u64,
    pub mtime_ns: u64,
    pub ino: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub nlink: u32,
}

/// `struct wt_fs_dirent`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FsDirent {
    pub ino: u64,
    pub mode: u32,
    pub name_len: u32,
    pub name: [u8; 256],
}

impl Default for FsDirent {
    fn default() -> Self {
        Self {
            ino: 0,
            mode: 0,
            name_len: 0,
            name: [0; 256],
        }
    }
}

/// `struct wt_exec`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Exec {
    pub file: u64,
    pub interp: u64,
    pub stack_size: u64,
    pub entry: u64,
    pub stack_top: u64,
    pub stack_base: u64,
    pub at_entry: u64,
    pub at_phdr: u64,
    pub at_phnum: u64,
    pub at_base: u64,
    pub code: [u64; 2],
    pub data: [u64; 2],
    pub brk: u64,
    pub low: u32,
    pub reserved: u32,
}

/// `struct wt_file_name`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FileName {
    pub ino: u64,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub path: *const c_char,
    pub path_len: u64,
}

/// `struct wt_map`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Map {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub ino: u64,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub prot: u32,
    pub flags: u32,
    pub path_len: u32,
    pub reserved: u32,
    pub path: [u8; 4096],
}

impl Default for Map {
    fn default() -> Self {
        Self {
            start: 0,
            end: 0,
            offset: 0,
            ino: 0,
            dev_major: 0,
            dev_minor: 0,
            prot: 0,
            flags: 0,
            path_len: 0,
            reserved: 0,
            path: [0; 4096],
        }
    }
}

/// `struct wt_mem_key`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MemKey {
    pub content: u64,
    pub page: u64,
}

/// `struct wt_look`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Look {
    pub regs: Regs,
    pub fs: u64,
    pub again: u64,
    pub row: u64,
    pub cycle: u64,
    pub sleep_ns: u64,
}

/// The `host` argument of every call out.
pub type HostPtr = *mut c_void;

/// `struct wt_host_ops`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct HostOps {
    pub version: u32,
    pub size: u32,
    pub console: unsafe extern "C" fn(HostPtr, *const c_char, u64),
    pub panic: unsafe extern "C" fn(HostPtr, *const c_char, u64),
    pub frame_alloc: unsafe extern "C" fn(HostPtr, u32) -> *mut Frame,
    pub tx_flush: unsafe extern "C" fn(HostPtr),
    pub as_create: unsafe extern "C" fn(HostPtr) -> i64,
    pub as_fork: unsafe extern "C" fn(HostPtr, u64) -> i64,
    pub as_destroy: unsafe extern "C" fn(HostPtr, u64),
    pub as_activate: unsafe extern "C" fn(HostPtr, u64),
    pub exec_map: unsafe extern "C" fn(HostPtr, u64, *mut Exec) -> i64,
    pub mem_call: unsafe extern "C" fn(HostPtr, u64, u32, *const u64, u64) -> i64,
    pub fs_lookup: unsafe extern "C" fn(HostPtr, u64, *const c_char, u32, *mut FsAttr) -> i64,
    pub fs_readdir: unsafe extern "C" fn(HostPtr, u64, u64, *mut FsDirent) -> i64,
    pub fs_readlink: unsafe extern "C" fn(HostPtr, u64, *mut c_char, u32) -> i64,
    pub fs_open: unsafe extern "C" fn(HostPtr, u64) -> i64,
    pub fs_create: unsafe extern "C" fn(HostPtr, u64, u64) -> i64,
    pub fs_read: unsafe extern "C" fn(HostPtr, u64, *mut c_void, u64, u64) -> i64,
    pub fs_write: unsafe extern "C" fn(HostPtr, u64, *const c_void, u64, u64) -> i64,
    pub fs_truncate: unsafe extern "C" fn(HostPtr, u64, u64) -> i64,
    pub fs_size: unsafe extern "C" fn(HostPtr, u64) -> i64,
    pub fs_release: unsafe extern "C" fn(HostPtr, u64),
    pub proc_event: unsafe extern "C" fn(HostPtr, u32, u64, u64, u64),
    pub unsupported: unsafe extern "C" fn(HostPtr, u32, u64, *const c_char),
    pub as_read: unsafe extern "C" fn(HostPtr, u64, u64, *mut c_void, u64) -> i64,
    pub as_write: unsafe extern "C" fn(HostPtr, u64, u64, *const c_void, u64) -> i64,
    pub as_map: unsafe extern "C" fn(HostPtr, u64, u64, *mut Map) -> i64,
    pub fs_name: unsafe extern "C" fn(HostPtr, u64, *const FileName),
    pub fs_seek: unsafe extern "C" fn(HostPtr, u64, u64, u32) -> i64,
    pub fs_punch: unsafe extern "C" fn(HostPtr, u64, u64, u64) -> i64,
    pub fs_storage: unsafe extern "C" fn(HostPtr, u64) -> i64,
    pub as_key: unsafe extern "C" fn(HostPtr, u64, u64, u32, *mut MemKey) -> i64,
    pub fs_writers: unsafe extern "C" fn(HostPtr, u64) -> i64,
    pub instruction: unsafe extern "C" fn(HostPtr, u64, *mut Regs) -> i64,
    pub look: unsafe extern "C" fn(HostPtr, u64, *mut Look) -> i64,
}

/// Of `instruction`: the program goes on with the registers as they are.
pub const INSTRUCTION_DONE: i64 = 1;

/// `WT_PUT_RANDOM`: register as in machine code; 2, 4 or 8 bytes.
pub const fn put_random(register: u8, bytes: u8) -> i64 {
    (bytes as i64) << 8 | register as i64
}

/// `struct wt_nic_conf`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct NicConf {
    pub name: [c_char; 16],
    pub mac: [u8; 6],
    pub reserved: [u8; 2],
    pub mtu: u32,
    pub ring: u32,
    pub shared: *mut Nic,
    pub driver: [c_char; 16],
    pub irq_gap_ns: u64,
    pub irq_frames: u32,
    pub rx_ring: u32,
    pub rx_buffer: u32,
    pub rx_copybreak: u32,
    pub offloads: u32,
    pub enabled: u32,
    pub tso_max_size: u32,
    pub no_bql: u32,
}

/// `struct wt_cpu`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Cpu {
    pub syscall_ns: u64,
    pub copy_ps: u64,
}

/// `struct wt_boot`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Boot {
    pub version: u32,
    pub size: u32,
    pub ops: *const HostOps,
    pub host: HostPtr,
    pub entry: *mut Entry,
    pub ram: *mut c_void,
    pub ram_size: u64,
    pub seed: [u8; 32],
    pub epoch_s: u64,
    pub cmdline: *const c_char,
    pub xsave_mask: u64,
    pub xsave_size: u64,
    pub quantum_calls: u32,
    pub quantum_ns: u32,
    pub nic_count: u32,
    pub reserved: u32,
    pub nics: *const NicConf,
    pub cpu: Cpu,
}

/// In [`Sample::kind`]: records are [`TcpSample`].
pub const SAMPLE_TCP: u32 = 1;
/// In [`Sample::kind`]: records are [`MptcpSample`].
pub const SAMPLE_MPTCP: u32 = 2;
/// In [`Sample::kind`]: records are [`QdiscSample`].
pub const SAMPLE_QDISC: u32 = 3;

/// `struct wt_sample`: what the kernel is asked to tell, and where.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Sample {
    pub kind: u32,
    pub capacity: u32,
    pub records: *mut c_void,
    pub count: u32,
    pub reserved: u32,
}

/// `struct wt_endpoints`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct Endpoints {
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
    pub family: u8,
    pub state: u8,
    pub reserved: [u8; 2],
    pub netns: u32,
    pub token: u32,
}

/// `struct wt_tcp_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct TcpSample {
    pub ends: Endpoints,
    pub recv_queue: u32,
    pub send_queue: u32,
    pub info_len: u32,
    pub cc_len: u16,
    pub cc_kind: u16,
    pub cc_name: [u8; 16],
    pub cc_info: [u8; 32],
    pub info: [u8; 320],
}

/// `struct wt_mptcp_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MptcpSample {
    pub ends: Endpoints,
    pub info_len: u32,
    pub reserved: u32,
    pub info: [u8; 160],
}

/// `struct wt_qdisc_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct QdiscSample {
    pub device: [u8; 16],
    pub kind: [u8; 16],
    pub netns: u32,
    pub handle: u32,
    pub parent: u32,
    pub xstats_len: u32,
    pub bytes: u64,
    pub packets: u64,
    pub queued: u32,
    pub backlog: u32,
    pub drops: u32,
    pub requeues: u32,
    pub overlimits: u32,
    pub reserved: u32,
    pub xstats: [u8; 128],
}

/// `struct wt_kernel`, the one export of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Kernel {
    pub version: u32,
    pub size: u32,
    pub boot: unsafe extern "C" fn(*const Boot) -> i64,
    pub enter: unsafe extern "C" fn(*mut Entry),
    pub release: *const c_char,
    pub banner: *const c_char,
    pub current_comm: unsafe extern "C" fn() -> *const c_char,
    pub sample: unsafe extern "C" fn(*mut Sample) -> i64,
}

// The header's own assertions, repeated for this side.
const _: () = {
    assert!(size_of::<Frame>() == 64 && offset_of!(Frame, data) == 64);
    assert!(size_of::<FramePool>() == 8 + 8 * 1024);
    assert!(size_of::<Tx>() == 16);
    assert!(size_of::<Rx>() == 16);
    assert!(size_of::<Nic>() == 8 + 8 * 1024 + 16 + 24);
    assert!(offset_of!(Entry, rx) == 24);
    assert!(offset_of!(Entry, tx) == 72);
    assert!(size_of::<Entry>() == 72 + 16 * TX_MAX);
    assert!(size_of::<Ctl>() == 88);
    assert!(size_of::<Spawn>() == 88);
    assert!(size_of::<Regs>() == 144);
    assert!(offset_of!(Thread, fault) == 32);
    assert!(offset_of!(Thread, kernel_text) == 200);
    assert!(offset_of!(Thread, in_user) == 240);
    assert!(size_of::<Thread>() == 352);
    assert!(size_of::<FsAttr>() == 56);
    assert!(size_of::<FsDirent>() == 272);
    assert!(size_of::<Exec>() == 128);
    assert!(size_of::<FileName>() == 32);
    assert!(size_of::<Map>() == 56 + 4096);
    assert!(size_of::<HostOps>() == 8 + 33 * 8);
    assert!(size_of::<Look>() == 184);
    assert!(size_of::<MemKey>() == 16);
    assert!(size_of::<NicConf>() == 96);
    assert!(size_of::<Cpu>() == 16);
    assert!(size_of::<Boot>() == 152);
    assert!(size_of::<Sample>() == 24);
    assert!(size_of::<Endpoints>() == 48);
    assert!(size_of::<TcpSample>() == 432);
    assert!(size_of::<MptcpSample>() == 216);
    assert!(size_of::<QdiscSample>() == 216);
    assert!(size_of::<Kernel>() == 56);
};
