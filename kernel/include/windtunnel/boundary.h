/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The boundary between the engine (host) and a library kernel (instance).
 *
 * This is the only header both sides share. It is plain C without Linux or libc types, so that the
 * kernel, the engine's checked-in bindings (crates/kernel/src/abi.rs) and a test program can read it.
 * Every field names its unit and its direction:
 *   [h>k]  written by the host, read by the kernel
 *   [k>h]  written by the kernel, read by the host
 * Sizes and offsets are asserted on both sides (kernel: the _Static_asserts below; host: the bindings).
 *
 * Rules
 *  - One host thread at a time is inside an instance. Time does not move while it is there.
 *  - wt_enter() runs the kernel, and the programs on it, until all is idle, then returns. With costs in struct wt_cpu
 *    it also returns where the CPU is busy until a later time: entries before that take interrupts only.
 *  - The hot path has no call out: time is read from, and timers and frames are written to, struct wt_entry.
 *  - A call out (struct wt_host_ops) runs on the host's stack, below the frame of wt_enter(), with the
 *    host's FS base. It must not enter any instance. Results < 0 are Linux errno values negated.
 *  - Pointers a program passes are plain addresses in the one shared address space. Host operations that
 *    touch program memory must expect it to be bad: the host makes the access with a system call
 *    (pread, process_vm_readv) or checks it against the address space first.
 */
#ifndef WINDTUNNEL_BOUNDARY_H
#define WINDTUNNEL_BOUNDARY_H

#define WT_ABI_VERSION 9

/* How long a node has been up at virtual time 0, s, on the clocks of programs that count from the boot. */
#define WT_UPTIME_S 1

typedef unsigned char wt_u8;
typedef unsigned short wt_u16;
typedef unsigned int wt_u32;
typedef int wt_s32;
typedef unsigned long long wt_u64;
typedef long long wt_s64;

/* ------------------------------------------------------------------ frames */

/* Frame buffers belong to the host. A transmit takes one from the pool of the thread; a receive gives it back
 * after the kernel has copied the bytes. Bytes start at data, an Ethernet header without FCS. */
struct wt_frame {
	wt_u32 len;      /* bytes of data in use */
	wt_u32 cap;      /* bytes of data available [h>k] */
	wt_u32 flags;    /* WT_FRAME_* */
	wt_u32 reserved; /* host's own use */
	wt_u64 tag[6];   /* host's own use */
	wt_u8 data[];    /* at offset 64 */
};

#define WT_FRAME_DAMAGED 0x1u /* [h>k] a link changed bits: the NIC must not vouch for checksums */

#define WT_FRAME_SMALL 2048u  /* data capacity of the pool's buffers, bytes */

/* Per host thread: buffers of WT_FRAME_SMALL ready to take. The kernel pops; the host refills between entries. */
struct wt_frame_pool {
	wt_u32 count;            /* buffers in slot[0..count) */
	wt_u32 reserved;
	struct wt_frame *slot[1024];
};

/* One frame that left a NIC during this entry, in order. */
struct wt_tx {
	struct wt_frame *frame;
	wt_u32 nic;              /* index as given at boot */
	wt_u32 flags;            /* WT_TX_* */
};
#define WT_TX_IRQ 0x1u           /* the kernel wants an entry when this frame has left the wire's sender */

struct wt_rx {
	struct wt_frame *frame;  /* goes back to the host when wt_enter returns */
	wt_u32 nic;
	wt_u32 reserved;
};

/* Shared state of one NIC; one per NIC, allocated by the host, alive as long as the instance. */
#define WT_NIC_RING 1024u        /* capacity of done_ns; the driver's ring is at most this long */
struct wt_nic {
	/* [h>k] frames whose departure time is known: done_ns[i % WT_NIC_RING] for i < done_known is the
	 * virtual time at which the last bit of frame i left. Grows by one for every wt_tx of this NIC. */
	wt_u64 done_known;
	wt_u64 done_ns[WT_NIC_RING];
	wt_u32 carrier;          /* [h>k] 1: link up; the kernel looks when WT_EV_LINK is set */
	wt_u32 speed_mbps;       /* [h>k] for ethtool; 0 unknown */
	/* [k>h] the queue is stopped (ring full or BQL): enter the kernel when frame number want_done_index
	 * (counting as done_known does) is done. ~0: no wish. The host resets it to ~0 when it schedules. */
	wt_u64 want_done_index;
	/* [k>h] least time between two interrupts, ns; 0: there is one for each cause. What arrives or leaves before it is
	 * over waits for the next one. The kernel may change these three at any entry. */
	wt_u64 irq_gap_ns;
	wt_u32 irq_frames;       /* [k>h] so many waiting frames are not kept waiting; 0: any number is */
	wt_u32 rx_ring;          /* [k>h] frames that may wait for an interrupt; 0: any number */
	wt_u64 rx_missed;        /* [h>k] frames lost because so many waited */
};

/* ------------------------------------------------------------------- entry */

/* Argument and result of wt_enter(); one per instance, allocated by the host. */
#define WT_TX_MAX 1024u
struct wt_entry {
	wt_u64 now_ns;           /* [h>k] virtual time since the start of the run; never smaller than before */
	wt_u64 next_timer_ns;    /* [k>h] absolute time of the next timer, or when work that takes time is done; ~0: none */
	wt_u32 events;           /* [h>k] WT_EV_* besides rx and a due timer; the kernel clears it */
	wt_u32 rx_count;         /* [h>k] frames arriving now */
	struct wt_rx *rx;        /* [h>k] */
	struct wt_frame_pool *pool; /* [h>k] of the host thread that enters */
	struct wt_thread *thread;   /* [h>k] of the host thread that enters */
	struct wt_ctl *ctl_head; /* [h>k] requests to run in process 1, in order; the kernel takes all when WT_EV_CTL */
	wt_u64 syscalls;         /* [k>h] running count of system calls by programs */
	wt_u32 tx_count;         /* [k>h] frames in tx[]; the host resets it to 0 */
	wt_u32 ctl_done;         /* [k>h] running count of finished requests */
	struct wt_tx tx[WT_TX_MAX];
};

#define WT_EV_CTL 0x1u           /* ctl_head holds requests */
#define WT_EV_TX_DONE 0x2u       /* some frame with WT_TX_IRQ, or a wanted index, is done */
#define WT_EV_LINK 0x4u          /* a carrier changed */

/* A request carried out by process 1 of the instance, in process context, in order. */
struct wt_ctl {
	struct wt_ctl *next;     /* [h>k] */
	wt_u32 kind;             /* [h>k] WT_CTL_* */
	wt_u32 done;             /* [k>h] 1 when result is valid */
	wt_s64 result;           /* [k>h] system call: its return value; spawn: pid or -errno of the fork */
	wt_u64 nr;               /* [h>k] system call number (x86-64) */
	wt_u64 arg[6];           /* [h>k] system call arguments; pointers into host memory are fine */
	const struct wt_spawn *spawn; /* [h>k] for WT_CTL_SPAWN; read before done is set */
};
#define WT_CTL_SYSCALL 1u        /* must not block */
#define WT_CTL_SPAWN 2u          /* start a program as a child of process 1 */

struct wt_spawn {
	wt_u64 key;              /* [h>k] the host's name for it, given back in proc_event */
	const char *path;        /* [h>k] absolute path inside the node */
	const char *const *argv; /* [h>k] NULL-terminated */
	const char *const *envp; /* [h>k] NULL-terminated */
	const char *cwd;         /* [h>k] absolute */
	wt_u64 file[3];          /* [h>k] host file handles for fds 0, 1, 2; 0: /dev/null */
	wt_u32 uid, gid;         /* [h>k] */
	wt_s32 fd[3];            /* [h>k] descriptors of process 1 to become fds 0, 1, 2 instead of file[]; -1: none */
	wt_u32 flags;            /* [h>k] WT_SPAWN_* */
};
#define WT_SPAWN_TTY 0x1u        /* fd 0 is a terminal, and becomes the controlling one of the program's session */

/* ------------------------------------------------- registers and host thread */

/* Registers of a program at a fault, as the host's signal handler found them. */
struct wt_regs {
	wt_u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8;
	wt_u64 rax, rcx, rdx, rsi, rdi;
	wt_u64 rip, rflags, rsp;
};

/* Per host thread; GS base points here. A patched call site does `jmp *%gs:0`. */
struct wt_thread {
	wt_u64 entry;            /* [k>h] system call entry: rax = number, rcx = return address, r11 = scratch,
	                          * all else as at a `syscall` instruction; offset 0 */
	wt_u64 fault_entry;      /* [k>h] fault entry: the host's signal handler fills fault*, sets rip to this and
	                          * rsp to fault_stack, and returns from the signal */
	wt_u64 fault_stack;      /* [k>h] kernel stack of the running program thread, 16-byte aligned */
	wt_u64 slow_entry;       /* [k>h] as fault_entry, for a system call that reached SIGSYS: fault.regs holds all
	                          * registers with rip after the `syscall` and rax = number */
	struct wt_regs fault;    /* [h>k] */
	wt_u32 fault_signo;      /* [h>k] Linux signal number; 0: an rdtsc or rdtscp to be carried out, or a look */
	wt_s32 fault_code;       /* [h>k] si_code; bytes of that instruction; WT_FAULT_LOOK */
	wt_u64 fault_addr;       /* [h>k] si_addr */
	wt_u32 fault_trapno;     /* [h>k] x86 trap number and error code for the program's sigcontext */
	wt_u32 fault_err;
	wt_u64 kernel_text[2];   /* [k>h] start, end of the running instance's code */
	wt_u64 uaccess[2];       /* [k>h] start, end of its program-memory accessors */
	wt_u64 uaccess_fixup;    /* [k>h] where to go on (same registers) when one of them faults */
	wt_u64 in_user;          /* [k>h] 1 while a program runs, 0 in kernel or host code */
	wt_u64 now_ns;           /* [k>h] virtual time of this entry, for rdtsc */
	wt_u64 host_fs;          /* [k>h] FS base at wt_enter */
	wt_u64 active_as;        /* [k>h] address space of the last as_activate, if it is still alive; else 0 */
	wt_u64 pid;              /* [k>h] pid of the running program thread, for reports */
	wt_u64 clock_entry;      /* [k>h] where a patched rdtsc or rdtscp enters: rax = return address, rdx = scratch, all
	                          * else the program's, and kept; comes back with the counter in edx:eax */
	wt_u64 clock_ip;         /* the kernel's: that address, in the last instructions before it goes there */
	wt_u64 reserved[2];
	wt_u64 gs_changed;       /* [h>k] 1: the program had another GS base, which the host took back; the kernel reports
	                          * it and clears this */
	wt_u64 reserved_too[3];
	wt_u64 comm;             /* [k>h] address of that thread's name, 16 bytes with NUL; 0 none yet */
};

/* In fault_code: the host interrupted the program, which has run for long, to have a look at it (see `look` below). */
#define WT_FAULT_LOOK 64

/* A program that runs on and on, and what is to become of it. */
struct wt_look {
	struct wt_regs regs;     /* [k>h] of the program; [h>k] where it goes on after WT_LOOK_SPINS */
	wt_u64 fs;               /* [k>h] its FS base */
	wt_u64 again;            /* [k>h] 1: it has just slept after WT_LOOK_SPINS, and has not run since */
	wt_u64 row;              /* [k>h] how many such sleeps there were in a row, up to this instant */
	wt_u64 cycle;            /* host's own use, kept as long as it is again and again; 0 at first */
	wt_u64 sleep_ns;         /* [h>k] after WT_LOOK_SLEEPS and WT_LOOK_STOPS */
};

/* What `look` answers. */
#define WT_LOOK_RUNS 0           /* it goes on as if nothing had been */
#define WT_LOOK_SPINS 1          /* it waits in a loop that cannot end by itself: sleeps a little, then `look` again */
#define WT_LOOK_SLEEPS 2         /* makes way for sleep_ns, or until it gets a signal */
#define WT_LOOK_STOPS 3          /* sleeps sleep_ns whatever signals come: the run ends */
#define WT_LOOK_DIES 4           /* gets SIGKILL */

/* ------------------------------------------------------------ file service */

/* Nodes of the read-only tree under a node's own writable layer are named by a host id (root: 1); file contents by
 * a handle. Both are never 0. Names are bytes without '/' and NUL. */
struct wt_fs_attr {
	wt_u64 id;               /* host id */
	wt_u64 size;             /* bytes */
	wt_u64 mtime_ns;         /* wall clock */
	wt_u64 ino;              /* stable inode number within the tree: equal for hard links */
	wt_u32 mode;             /* S_IF* and permission bits */
	wt_u32 uid, gid;
	wt_u32 rdev_major, rdev_minor;
	wt_u32 nlink;
};

struct wt_fs_dirent {
	wt_u64 ino;
	wt_u32 mode;             /* S_IF* bits */
	wt_u32 name_len;         /* bytes */
	char name[256];
};

/* ------------------------------------------------------- programs and memory */

/* What addresses are whose. A node lies in one aligned block of 1 << WT_REGION_SHIFT bytes. Each of its programs has
 * aligned slots of 1 << WT_SLOT_SHIFT bytes there, one from exec on, more as its mappings need them, and keeps them; one
 * linked to fixed addresses has those below WT_LOW_END, too. The kernel learns a program's slots from what exec_map and
 * mem_call answer. The last page of a run of slots is never mapped: who goes upwards from an address of his own reaches
 * no slot of another. */
#define WT_SLOT_SHIFT 30u
#define WT_REGION_SHIFT 38u
#define WT_LOW_END (1ULL << 36)

/* In mem_call: the instance's own memory as a file, offset 0 its first byte; how kernel pages (packet rings) are mapped. */
#define WT_FILE_RAM (~0ULL)

/* exec: both sides fill it. The host maps the images and the stack; the kernel then writes argc/argv/envp/auxv. */
struct wt_exec {
	wt_u64 file;             /* [k>h] handle of the program's file */
	wt_u64 interp;           /* [k>h] handle of its ELF interpreter, 0: none */
	wt_u64 stack_size;       /* [k>h] bytes, RLIMIT_STACK or the default */
	wt_u64 entry;            /* [h>k] first rip (the interpreter's if any) */
	wt_u64 stack_top;        /* [h>k] first address above the stack */
	wt_u64 stack_base;       /* [h>k] lowest mapped address of the stack */
	wt_u64 at_entry;         /* [h>k] AT_ENTRY */
	wt_u64 at_phdr;          /* [h>k] AT_PHDR */
	wt_u64 at_phnum;         /* [h>k] AT_PHNUM */
	wt_u64 at_base;          /* [h>k] AT_BASE; 0 without an interpreter */
	wt_u64 code[2];          /* [h>k] start and end, for /proc */
	wt_u64 data[2];
	wt_u64 brk;              /* [h>k] initial program break */
	wt_u32 low;              /* [h>k] 1: occupies the low range, needs as_activate before it runs */
	wt_u32 reserved;
};

/* What /proc/PID/maps shows of mappings of a file. */
struct wt_file_name {
	wt_u64 ino;              /* [k>h] inode number and device, as of stat(2) */
	wt_u32 dev_major, dev_minor; /* [k>h] */
	const char *path;        /* [k>h] absolute */
	wt_u64 path_len;         /* [k>h] bytes */
};

/* A mapping of a program, as /proc/PID/maps shows it. */
struct wt_map {
	wt_u64 start, end;       /* [h>k] addresses, whole pages */
	wt_u64 offset;           /* [h>k] of start in the file, bytes */
	wt_u64 ino;              /* [h>k] as given by fs_name; 0: no file */
	wt_u32 dev_major, dev_minor; /* [h>k] */
	wt_u32 prot;             /* [h>k] PROT_* */
	wt_u32 flags;            /* [h>k] WT_MAP_* */
	wt_u32 path_len;         /* [h>k] bytes of path */
	wt_u32 reserved;
	char path[4096];         /* [h>k] not NUL-terminated */
};
#define WT_MAP_SHARED 0x1u       /* MAP_SHARED */
#define WT_MAP_FILE 0x2u         /* of a file, shared memory included */
#define WT_MAP_HEAP 0x4u         /* below the program break */
#define WT_MAP_STACK 0x8u        /* made at exec */

/* What a word of program memory is, for those who have to meet there: the futexes of shared memory. */
struct wt_mem_key {
	wt_u64 content;          /* [h>k] number of the shared contents, never used twice in a run; 0: private memory */
	wt_u64 page;             /* [h>k] page in the contents, or of the address */
};

enum wt_proc_event {
	WT_PROC_STARTED = 1,     /* a spawn reached its program: a = pid */
	WT_PROC_FAILED = 2,      /* exec failed: a = pid, b = errno */
	WT_PROC_EXITED = 3,      /* a spawned program ended and was reaped: a = pid, b = wait status */
	WT_PROC_FAULT = 4,       /* any program got a fatal signal from a fault: a = pid, b = signal; regs in thread->fault */
	/* of every process but process 1 and the kernel's own; its name (comm) is the 16 bytes of key and b */
	WT_PROC_FORKED = 5,      /* it was made: a = pid | parent's pid << 32 */
	WT_PROC_EXECED = 6,      /* it began another program: a = pid */
	WT_PROC_GONE = 7,        /* it ended: a = pid | wait status << 32, key = user, b = system CPU time, ns */
};

/* Calls out of the kernel. `host` is wt_boot.host. */
struct wt_host_ops {
	wt_u32 version;          /* WT_ABI_VERSION */
	wt_u32 size;             /* sizeof(struct wt_host_ops) */
	/* kernel log text, not NUL-terminated */
	void (*console)(void *host, const char *text, wt_u64 len);
	/* a panic or oops; does not return: wt_enter or wt_boot ends in the host instead */
	void (*panic)(void *host, const char *text, wt_u64 len);
	/* a larger frame than the pool's, or the pool is empty; never NULL. cap >= len */
	struct wt_frame *(*frame_alloc)(void *host, wt_u32 len);
	/* tx[] is full: take what is there and set tx_count to 0 */
	void (*tx_flush)(void *host);
	/* address spaces: one per mm. create gives an id > 0 or -errno */
	wt_s64 (*as_create)(void *host);
	/* a private copy of as (fork), which must be in place and stays so: the two take turns from now on */
	wt_s64 (*as_fork)(void *host, wt_u64 as);
	void (*as_destroy)(void *host, wt_u64 as);
	/* bring as to its addresses, which it shares with others: before the memory of one that forked, was forked, or
	 * is low (see wt_exec.low) is used */
	void (*as_activate)(void *host, wt_u64 as);
	/* replace all of as by the images of x */
	wt_s64 (*exec_map)(void *host, wt_u64 as, struct wt_exec *x);
	/* mmap, munmap, mprotect, mremap, brk, madvise, msync, mincore, mlock family: nr is the x86-64 number.
	 * file: for a file mapping the handle of its contents, WT_FILE_RAM for the instance's memory, else 0; then mmap's
	 * fifth argument is not a descriptor but the PROT_* bits that the mapping may ever have */
	wt_s64 (*mem_call)(void *host, wt_u64 as, wt_u32 nr, const wt_u64 *arg, wt_u64 file);
	/* lower tree */
	wt_s64 (*fs_lookup)(void *host, wt_u64 dir, const char *name, wt_u32 len, struct wt_fs_attr *out);
	/* entry number index in sorted order without . and ..: 1 found, 0 end */
	wt_s64 (*fs_readdir)(void *host, wt_u64 dir, wt_u64 index, struct wt_fs_dirent *out);
	wt_s64 (*fs_readlink)(void *host, wt_u64 id, char *buf, wt_u32 len);
	/* file contents: a handle for a lower file (read-only) */
	wt_s64 (*fs_open)(void *host, wt_u64 id);
	/* new empty contents; or, from != 0, a writable copy of handle from's first `size` bytes */
	wt_s64 (*fs_create)(void *host, wt_u64 from, wt_u64 size);
	wt_s64 (*fs_read)(void *host, wt_u64 file, void *buf, wt_u64 len, wt_u64 offset);
	wt_s64 (*fs_write)(void *host, wt_u64 file, const void *buf, wt_u64 len, wt_u64 offset);
	wt_s64 (*fs_truncate)(void *host, wt_u64 file, wt_u64 size);
	wt_s64 (*fs_size)(void *host, wt_u64 file);
	void (*fs_release)(void *host, wt_u64 file);
	/* enum wt_proc_event about spawn `key` (0: a program's own child) */
	void (*proc_event)(void *host, wt_u32 event, wt_u64 key, wt_u64 a, wt_u64 b);
	/* a call that is refused or partial (see `windtunnel syscalls`); comm is the program's name */
	void (*unsupported)(void *host, wt_u32 nr, wt_u64 arg0, const char *comm);
	/* copy len bytes at addr of as, whichever program runs, to or from kernel memory: bytes done before the first bad
	 * address */
	wt_s64 (*as_read)(void *host, wt_u64 as, wt_u64 addr, void *buf, wt_u64 len);
	wt_s64 (*as_write)(void *host, wt_u64 as, wt_u64 addr, const void *buf, wt_u64 len);
	/* the first mapping of as that ends above addr: 1 found, 0 none */
	wt_s64 (*as_map)(void *host, wt_u64 as, wt_u64 addr, struct wt_map *out);
	/* what as_map says of mappings of file from now on */
	void (*fs_name)(void *host, wt_u64 file, const struct wt_file_name *name);
	/* lseek(2) with SEEK_DATA (3) or SEEK_HOLE (4) in contents of the node's own: the offset found */
	wt_s64 (*fs_seek)(void *host, wt_u64 file, wt_u64 offset, wt_u32 whence);
	/* make len bytes at offset zero and give their memory back; the size stays */
	wt_s64 (*fs_punch)(void *host, wt_u64 file, wt_u64 offset, wt_u64 len);
	/* bytes of memory that contents take, holes excepted */
	wt_s64 (*fs_storage)(void *host, wt_u64 file);
	/* what is at an address of as: 0, or -EFAULT if the program may not read (write: write) it */
	wt_s64 (*as_key)(void *host, wt_u64 as, wt_u64 address, wt_u32 write, struct wt_mem_key *out);
	/* how many shared mappings of these contents there are that are writable or may become so */
	wt_s64 (*fs_writers)(void *host, wt_u64 file);
	/* the running program, as, faulted at regs->rip. 0: the fault is its own. 1: go on with regs; the host carried out an
	 * instruction that stood there before it was patched, or made the code there executable. Else WT_PUT_RANDOM of the
	 * register and bytes: as 1, once random bytes are in that register */
	wt_s64 (*instruction)(void *host, wt_u64 as, struct wt_regs *regs);
	/* the running program of as after WT_FAULT_LOOK: WT_LOOK_*. With WT_LOOK_SPINS its memory is as at look->regs */
	wt_s64 (*look)(void *host, wt_u64 as, struct wt_look *look);
};
/* A register is numbered as in machine code (rax 0, rcx 1, ... r15 15); bytes are 2, 4 or 8. */
#define WT_PUT_RANDOM(reg, bytes) ((bytes) << 8 | (reg))
#define WT_RANDOM_REG(put) ((put) & 15)
#define WT_RANDOM_BYTES(put) ((put) >> 8)

/* -------------------------------------------------------------------- boot */

struct wt_nic_conf {
	char name[16];
	wt_u8 mac[6];
	wt_u8 reserved[2];
	wt_u32 mtu;              /* bytes of payload */
	wt_u32 ring;             /* transmit ring, frames; 0: default 256; <= WT_NIC_RING */
	struct wt_nic *shared;
	char driver[16];         /* name for ethtool -i; empty: our own */
	wt_u64 irq_gap_ns;       /* first value of wt_nic.irq_gap_ns; <= WT_NIC_GAP_MAX */
	wt_u32 irq_frames;       /* and of the others there */
	wt_u32 rx_ring;
	wt_u32 rx_buffer;        /* least bytes of memory that a received frame counts as; 0: what it takes */
	wt_u32 rx_copybreak;     /* except where it has at most so many bytes */
	wt_u32 offloads;         /* WT_NIC_*: what it can do */
	wt_u32 enabled;          /* of these, what is on at first */
	wt_u32 tso_max_size;     /* longest packet to be cut, bytes; 0: Linux's default */
	wt_u32 no_bql;           /* 1: the driver does not tell the stack of bytes under way */
};

#define WT_NIC_GAP_MAX 100000000ULL /* ns */
#define WT_NIC_RX_RING_MAX 8192u

#define WT_NIC_SG 0x1u
#define WT_NIC_TX_CSUM 0x2u
#define WT_NIC_RX_CSUM 0x4u
#define WT_NIC_TSO 0x8u             /* for IPv4 and IPv6 */
#define WT_NIC_TSO_ECN 0x10u
#define WT_NIC_TSO_MANGLEID 0x20u
#define WT_NIC_USO 0x40u
#define WT_NIC_FRAGLIST 0x80u
#define WT_NIC_GSO 0x100u           /* in software: any NIC can */
#define WT_NIC_GRO 0x200u           /* in software: any NIC can */

/* What work costs on the one CPU of a node. All zero: it takes no time. */
struct wt_cpu {
	wt_u64 syscall_ns;       /* [h>k] each system call of a program */
	wt_u64 copy_ps;          /* [h>k] each byte copied between a program and its kernel, picoseconds */
};

struct wt_boot {
	wt_u32 version;          /* WT_ABI_VERSION */
	wt_u32 size;             /* sizeof(struct wt_boot) */
	const struct wt_host_ops *ops;
	void *host;
	struct wt_entry *entry;
	void *ram;               /* page aligned, zeroed */
	wt_u64 ram_size;         /* bytes */
	wt_u8 seed[32];          /* of this node's random numbers */
	wt_u64 epoch_s;          /* CLOCK_REALTIME at virtual time 0, seconds */
	const char *cmdline;
	wt_u64 xsave_mask;       /* vector state to keep per program thread, XCR0 bits; 0: FXSAVE only */
	wt_u64 xsave_size;       /* bytes of an XSAVEC area with that mask */
	wt_u32 quantum_calls;    /* system calls at one instant before a thread must let time pass; 0: no limit */
	wt_u32 quantum_ns;       /* how long it then sleeps */
	wt_u32 nic_count;
	wt_u32 reserved;
	const struct wt_nic_conf *nics;
	struct wt_cpu cpu;
};

/* ----------------------------------------------------------------- samples */

/* What a kernel knows of its connections and queues. Taking a sample changes nothing: neither time nor random numbers,
 * memory or statistics of the instance are others afterwards. */
struct wt_sample {
	wt_u32 kind;             /* [h>k] WT_SAMPLE_* */
	wt_u32 capacity;         /* [h>k] of records, in records */
	void *records;           /* [h>k] of the kind's type, filled by the kernel */
	wt_u32 count;            /* [k>h] how many there are; those from capacity on were left out */
	wt_u32 reserved;
};
#define WT_SAMPLE_TCP 1u         /* struct wt_tcp_sample: connections; neither listeners nor those in TIME-WAIT */
#define WT_SAMPLE_MPTCP 2u       /* struct wt_mptcp_sample: connections that have not fallen back to plain TCP */
#define WT_SAMPLE_QDISC 3u       /* struct wt_qdisc_sample: queueing disciplines that tc(8) shows, noqueue excepted */

struct wt_endpoints {
	wt_u8 local[16];         /* [k>h] address in the order of bytes on the wire; of family 4 the first four count */
	wt_u8 remote[16];        /* [k>h] */
	wt_u16 local_port;       /* [k>h] in the order of the host */
	wt_u16 remote_port;      /* [k>h] */
	wt_u8 family;            /* [k>h] 4 or 6 */
	wt_u8 state;             /* [k>h] TCP_* of Linux */
	wt_u8 reserved[2];
	wt_u32 netns;            /* [k>h] inode number of the network namespace */
	wt_u32 token;            /* [k>h] of the MPTCP connection it is, or belongs to; 0: none */
};

struct wt_tcp_sample {
	struct wt_endpoints ends;
	wt_u32 recv_queue;       /* [k>h] bytes not read yet */
	wt_u32 send_queue;       /* [k>h] bytes not acknowledged yet */
	wt_u32 info_len;         /* [k>h] bytes of info in use */
	wt_u16 cc_len;           /* [k>h] bytes of cc_info in use */
	wt_u16 cc_kind;          /* [k>h] INET_DIAG_* that says what cc_info is */
	char cc_name[16];        /* [k>h] congestion control, ends with NUL */
	wt_u8 cc_info[32];       /* [k>h] union tcp_cc_info */
	wt_u8 info[320];         /* [k>h] struct tcp_info */
};

struct wt_mptcp_sample {
	struct wt_endpoints ends;
	wt_u32 info_len;         /* [k>h] bytes of info in use */
	wt_u32 reserved;
	wt_u8 info[160];         /* [k>h] struct mptcp_info */
};

struct wt_qdisc_sample {
	char device[16];         /* [k>h] ends with NUL */
	char kind[16];           /* [k>h] ends with NUL */
	wt_u32 netns;            /* [k>h] inode number of the network namespace */
	wt_u32 handle;           /* [k>h] major number in the upper 16 bits */
	wt_u32 parent;           /* [k>h] TC_H_ROOT, TC_H_INGRESS or a class */
	wt_u32 xstats_len;       /* [k>h] bytes of xstats in use */
	wt_u64 bytes;            /* [k>h] sent, since it was made */
	wt_u64 packets;          /* [k>h] */
	wt_u32 queued;           /* [k>h] packets waiting now */
	wt_u32 backlog;          /* [k>h] their bytes */
	wt_u32 drops;            /* [k>h] packets, since it was made */
	wt_u32 requeues;         /* [k>h] */
	wt_u32 overlimits;       /* [k>h] */
	wt_u32 reserved;
	wt_u8 xstats[128];       /* [k>h] struct tc_KIND_xstats of codel, fq_codel, pie, fq_pie, red and fq */
};

/* ----------------------------------------------------------------- exports */

/* The shared object exports one symbol, `wt_kernel`. */
struct wt_kernel {
	wt_u32 version;          /* WT_ABI_VERSION */
	wt_u32 size;
	/* start_kernel to process 1 waiting for requests; call once. 0 or -errno */
	wt_s64 (*boot)(const struct wt_boot *boot);
	/* run all that entry asks for, until idle */
	void (*enter)(struct wt_entry *entry);
	const char *release;     /* "6.12.117" */
	const char *banner;
	/* for debuggers and reports: pointer to the running task's comm, 16 bytes */
	const char *(*current_comm)(void);
	/* between entries: what the kernel knows. 0, or -EINVAL for a kind it does not know */
	wt_s64 (*sample)(struct wt_sample *sample);
};

#define WT_OFFSET(type, field, at) _Static_assert(__builtin_offsetof(struct type, field) == (at), #type "." #field)
#define WT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
WT_SIZE(wt_frame, 64);
WT_SIZE(wt_tx, 16);
WT_SIZE(wt_rx, 16);
WT_SIZE(wt_nic, 8 + 8 * 1024 + 16 + 24);
WT_OFFSET(wt_entry, rx, 24);
WT_OFFSET(wt_entry, tx, 72);
WT_SIZE(wt_ctl, 88);
WT_SIZE(wt_spawn, 88);
WT_SIZE(wt_regs, 144);
WT_OFFSET(wt_thread, fault, 32);
WT_OFFSET(wt_thread, kernel_text, 200);
WT_OFFSET(wt_thread, in_user, 240);
WT_OFFSET(wt_thread, clock_entry, 280);
WT_OFFSET(wt_thread, clock_ip, 288);
WT_SIZE(wt_thread, 352);
WT_SIZE(wt_fs_attr, 56);
WT_SIZE(wt_fs_dirent, 272);
WT_SIZE(wt_exec, 128);
WT_SIZE(wt_file_name, 32);
WT_SIZE(wt_map, 56 + 4096);
WT_SIZE(wt_look, 184);
WT_SIZE(wt_host_ops, 8 + 33 * 8);
WT_SIZE(wt_mem_key, 16);
WT_SIZE(wt_nic_conf, 96);
WT_SIZE(wt_cpu, 16);
WT_SIZE(wt_boot, 152);
WT_SIZE(wt_sample, 24);
WT_SIZE(wt_endpoints, 48);
WT_SIZE(wt_tcp_sample, 432);
WT_SIZE(wt_mptcp_sample, 216);
WT_SIZE(wt_qdisc_sample, 216);
WT_SIZE(wt_kernel, 56);

#endif
