//! System calls that the host answers, or that are refused: the table behind `windtunnel syscalls`.
//!
//! Every call that is not here is Linux's own, in the library kernel.

/// How far a call does what Linux does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All of it.
    Full,
    /// Some of it; the note says what differs.
    Partial,
    /// None of it; the note says what the program sees.
    Refused,
    /// None of it, as on a real Linux that lacks the hardware; programs that ask are prepared, and not warned of.
    Absent,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// Number on x86-64.
    pub nr: u32,
    /// Name as in the manual.
    pub name: &'static str,
    /// How far it is answered.
    pub status: Status,
    /// What differs; empty for a full one.
    pub note: &'static str,
}

use Status::{Absent, Full, Partial, Refused};

const fn row(nr: u32, name: &'static str, status: Status, note: &'static str) -> HostCall {
    HostCall { nr, name, status, note }
}

/// The table, by number. Error numbers are those of the port's system call table (`kernel/arch/wt/kernel/syscall.c`).
pub const HOST_CALLS: &[HostCall] = &[
    row(
        9,
        "mmap",
        Partial,
        "hints count only where free in the program's own addresses; MAP_FIXED elsewhere: ENOMEM; MAP_HUGETLB: ENOMEM; \
         MAP_32BIT only for programs linked to fixed addresses; MAP_GROWSDOWN does not grow; code written where some ran before \
         is not looked at for instructions that show the processor",
    ),
    row(10, "mprotect", Full, ""),
    row(11, "munmap", Full, ""),
    row(12, "brk", Partial, "at most 240 MiB"),
    row(
        25,
        "mremap",
        Partial,
        "MREMAP_FIXED outside the program's own addresses: ENOMEM",
    ),
    row(
        26,
        "msync",
        Partial,
        "checked, without effect: shared mappings are always coherent",
    ),
    row(27, "mincore", Partial, "every mapped page counts as in memory"),
    row(
        28,
        "madvise",
        Partial,
        "MADV_FREE frees at once; advice on paging, huge pages, merging, dumps and fork is checked, without effect",
    ),
    row(
        30,
        "shmat",
        Partial,
        "an address that is not among the program's own: EINVAL; there are no SHM_HUGETLB segments",
    ),
    row(
        46,
        "sendmsg",
        Partial,
        "MSG_ZEROCOPY fails: program pages cannot be lent to the kernel; so in sendto and sendmmsg",
    ),
    row(
        56,
        "clone",
        Partial,
        "as fork where the memory is copied; full for threads and vfork",
    ),
    row(
        57,
        "fork",
        Partial,
        "ENOMEM when the node's addresses are used up: every forked process takes as many as it has private memory",
    ),
    row(
        59,
        "execve",
        Partial,
        "x86-64 ELF and scripts; programs linked to fixed addresses must end below 64 GiB",
    ),
    row(
        101,
        "ptrace",
        Refused,
        "ENOSYS: programs cannot trace one another; use `windtunnel gdb`",
    ),
    row(149, "mlock", Partial, "checked, without effect: no RLIMIT_MEMLOCK"),
    row(150, "munlock", Partial, "checked, without effect"),
    row(151, "mlockall", Partial, "checked, without effect"),
    row(152, "munlockall", Partial, "checked, without effect"),
    row(154, "modify_ldt", Refused, "ENOSYS: segments are the engine's"),
    row(
        157,
        "prctl",
        Partial,
        "PR_SET_TSC and PR_SET_SYSCALL_USER_DISPATCH: EINVAL",
    ),
    row(
        158,
        "arch_prctl",
        Partial,
        "ARCH_SET_FS and ARCH_GET_FS; ARCH_SET_GS: EPERM, GS is the engine's, and what wrgsbase or mov put there is lost at \
         the next call or fault",
    ),
    row(
        160,
        "setrlimit",
        Partial,
        "RLIMIT_STACK counts from the next exec on; RLIMIT_MEMLOCK and RLIMIT_CPU have no effect; so in prlimit64",
    ),
    row(163, "acct", Refused, "ENOSYS: there is no process accounting"),
    row(167, "swapon", Refused, "ENOSYS: a node has no disks"),
    row(168, "swapoff", Refused, "ENOSYS: a node has no disks"),
    row(169, "reboot", Refused, "EPERM: end the node's programs instead"),
    row(172, "iopl", Refused, "ENOSYS: there are no ports"),
    row(173, "ioperm", Refused, "ENOSYS: there are no ports"),
    row(175, "init_module", Refused, "ENOSYS: everything is built in"),
    row(176, "delete_module", Refused, "ENOSYS: everything is built in"),
    row(179, "quotactl", Refused, "ENOSYS: there are no quotas"),
    row(
        206,
        "io_setup",
        Refused,
        "ENOSYS: no asynchronous I/O; libraries fall back to threads",
    ),
    row(207, "io_destroy", Refused, "ENOSYS"),
    row(208, "io_getevents", Refused, "ENOSYS"),
    row(209, "io_submit", Refused, "ENOSYS"),
    row(210, "io_cancel", Refused, "ENOSYS"),
    row(216, "remap_file_pages", Refused, "ENOSYS: map the parts one by one"),
    row(237, "mbind", Absent, "ENOSYS: a node has one memory"),
    row(238, "set_mempolicy", Absent, "ENOSYS: a node has one memory"),
    row(239, "get_mempolicy", Absent, "ENOSYS: a node has one memory"),
    row(246, "kexec_load", Refused, "ENOSYS: the scenario chooses the kernel"),
    row(251, "ioprio_set", Refused, "ENOSYS: a node has no disks"),
    row(252, "ioprio_get", Refused, "ENOSYS: a node has no disks"),
    row(256, "migrate_pages", Absent, "ENOSYS: a node has one memory"),
    row(
        278,
        "vmsplice",
        Refused,
        "fails: program pages cannot be lent to a pipe; write to it",
    ),
    row(279, "move_pages", Absent, "ENOSYS: a node has one memory"),
    row(
        298,
        "perf_event_open",
        Refused,
        "ENOSYS: there are no performance counters",
    ),
    row(
        310,
        "process_vm_readv",
        Refused,
        "ENOSYS: programs cannot read one another's memory",
    ),
    row(
        311,
        "process_vm_writev",
        Refused,
        "ENOSYS: programs cannot write one another's memory",
    ),
    row(313, "finit_module", Refused, "ENOSYS: everything is built in"),
    row(319, "memfd_create", Partial, "MFD_HUGETLB: EINVAL"),
    row(
        320,
        "kexec_file_load",
        Refused,
        "ENOSYS: the scenario chooses the kernel",
    ),
    row(323, "userfaultfd", Refused, "ENOSYS"),
    row(325, "mlock2", Partial, "checked, without effect"),
    row(329, "pkey_mprotect", Absent, "ENOSYS: there are no protection keys"),
    row(330, "pkey_alloc", Absent, "ENOSYS: there are no protection keys"),
    row(331, "pkey_free", Absent, "ENOSYS: there are no protection keys"),
    row(
        425,
        "io_uring_setup",
        Refused,
        "ENOSYS: libraries fall back to other calls",
    ),
    row(426, "io_uring_enter", Refused, "ENOSYS"),
    row(427, "io_uring_register", Refused, "ENOSYS"),
    row(435, "clone3", Partial, "as clone"),
    row(440, "process_madvise", Refused, "ENOSYS"),
    row(443, "quotactl_fd", Refused, "ENOSYS: there are no quotas"),
    row(447, "memfd_secret", Refused, "ENOSYS"),
    row(453, "map_shadow_stack", Refused, "ENOSYS: there are no shadow stacks"),
    row(462, "mseal", Refused, "ENOSYS"),
];

/// The row of call `nr`; none for Linux's own.
pub fn find(nr: u32) -> Option<&'static HostCall> {
    HOST_CALLS
        .binary_search_by_key(&nr, |row| row.nr)
        .ok()
        .map(|at| &HOST_CALLS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_explain_themselves() {
        assert!(HOST_CALLS.windows(2).all(|pair| pair[0].nr < pair[1].nr));
        for row in HOST_CALLS {
            assert_eq!(row.note.is_empty(), row.status == Full, "{}", row.name);
        }
        assert_eq!(find(331).unwrap().name, "pkey_free");
        assert_eq!(find(39), None);
    }

    #[test]
    fn numbers_are_those_of_the_host() {
        for (nr, name) in [
            (libc::SYS_mmap, "mmap"),
            (libc::SYS_mlock2, "mlock2"),
            (libc::SYS_perf_event_open, "perf_event_open"),
            (libc::SYS_vmsplice, "vmsplice"),
            (libc::SYS_userfaultfd, "userfaultfd"),
            (libc::SYS_process_vm_readv, "process_vm_readv"),
            (libc::SYS_modify_ldt, "modify_ldt"),
            (libc::SYS_io_uring_setup, "io_uring_setup"),
            (libc::SYS_pkey_mprotect, "pkey_mprotect"),
            (libc::SYS_remap_file_pages, "remap_file_pages"),
            (libc::SYS_finit_module, "finit_module"),
            (libc::SYS_io_cancel, "io_cancel"),
            (libc::SYS_memfd_secret, "memfd_secret"),
        ] {
            assert_eq!(find(nr as u32).unwrap().name, name);
        }
    }
}
