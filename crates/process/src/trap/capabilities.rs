//! What this host can and cannot do, for `windtunnel doctor`.

use std::ffi::CStr;
use std::io;
use std::ops::Range;

use super::{ARCH_CPUID, PR_SYS_DISPATCH_OFF, PR_SYS_DISPATCH_ON, dispatch, host_text};

/// Bit of AT_HWCAP2: the FSGSBASE instructions may be used.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// An address range a run needs, and whether nothing of the host is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// What it is for.
    pub purpose: &'static str,
    /// Host virtual addresses.
    pub range: Range<u64>,
    /// Nothing is mapped there, and no limit is in the way.
    pub free: bool,
}

/// The findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Release of the host kernel, such as "6.1.0-18-amd64".
    pub kernel_release: String,
    /// System calls can be intercepted (Syscall User Dispatch). Required.
    pub syscall_user_dispatch: bool,
    /// FS and GS can be set without a system call. Required.
    pub fsgsbase: bool,
    /// `cpuid` can be made to trap. Without, it is masked where it is found in images, and in code made later.
    pub cpuid_faulting: bool,
    /// `rdtsc` can be made to trap. Required.
    pub tsc_trapping: bool,
    /// Memory that was written can become executable. Required: nothing else would run what a program compiles itself.
    pub executable_memory: bool,
    /// vm.max_map_count: memory areas per process; None if /proc does not tell.
    pub max_map_count: Option<u64>,
    /// RLIMIT_AS, bytes; None: unlimited.
    pub address_space_limit: Option<u64>,
    /// RLIMIT_DATA as far as it can be raised, bytes; None: unlimited.
    pub data_limit: Option<u64>,
    /// Whether `/proc/self/pagemap` tells what of a program was written; fork needs it.
    pub page_map: bool,
    /// Whether RLIMIT_STACK is unlimited: Linux then maps files from a third of the address space upwards.
    pub stack_unlimited: bool,
    /// RLIMIT_NOFILE, soft and hard.
    pub open_files_limit: (u64, u64),
    /// The ranges of the fixed address map.
    pub address_ranges: Vec<AddressRange>,
}

/// Tries everything on the calling thread, which must not be a simulation thread. Nothing stays changed.
pub fn capabilities() -> Capabilities {
    // SAFETY: getauxval only reads the auxiliary vector.
    let fsgsbase = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0;
    let syscall_user_dispatch = dispatch(PR_SYS_DISPATCH_ON, host_text()).is_ok();
    let _ = dispatch(PR_SYS_DISPATCH_OFF, 0..0);
    // SAFETY: both calls ask for what is the case already, and fail where the other choice does not exist.
    let (cpuid_faulting, tsc_trapping) = unsafe {
        (
            libc::syscall(libc::SYS_arch_prctl, ARCH_CPUID, 1) == 0,
            libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_ENABLE) == 0,
        )
    };
    let (address_space, open_files) = (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_NOFILE));
    let low_start = lowest_address().max(0x1_0000);
    Capabilities {
        kernel_release: kernel_release(),
        syscall_user_dispatch,
        fsgsbase,
        cpuid_faulting,
        tsc_trapping,
        executable_memory: can_execute_written(),
        max_map_count: proc_number("/proc/sys/vm/max_map_count"),
        address_space_limit: (address_space.0 != libc::RLIM_INFINITY).then_some(address_space.0),
        data_limit: Some(limit(libc::RLIMIT_DATA).1).filter(|&bytes| bytes != libc::RLIM_INFINITY),
        page_map: std::fs::File::open("/proc/self/pagemap").is_ok(),
        stack_unlimited: limit(libc::RLIMIT_STACK).0 == libc::RLIM_INFINITY,
        open_files_limit: open_files,
        address_ranges: vec![
            address_range("programs at fixed low addresses", low_start..0x10_0000_0000),
            address_range("nodes", 0x1000_0000_0000..0x5000_0000_0000),
        ],
    }
}

fn address_range(purpose: &'static str, range: Range<u64>) -> AddressRange {
    AddressRange {
        purpose,
        free: is_free(&range).is_ok(),
        range,
    }
}

/// Maps the whole range without access and unmaps it again.
fn is_free(range: &Range<u64>) -> io::Result<()> {
    let bytes = (range.end - range.start) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE touches no existing mapping; what was mapped here is unmapped unused.
    unsafe {
        let got = libc::mmap(range.start as *mut _, bytes, libc::PROT_NONE, flags, -1, 0);
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(got, bytes);
        match got as u64 == range.start {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        }
    }
}

/// Makes a page executable that could be written before. PR_SET_MDWE, seccomp filters and security modules refuse that.
fn can_execute_written() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the page is a new one wherever there is room, and unmapped unused.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return true; // for another reason, which others tell
        }
        let can = libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) == 0;
        libc::munmap(page, 4096);
        can
    }
}

/// vm.mmap_min_addr: ordinary users can't map below it.
fn lowest_address() -> u64 {
    proc_number("/proc/sys/vm/mmap_min_addr")
        .unwrap_or(0x1_0000)
        .next_multiple_of(4096)
}

fn proc_number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Soft and hard limit.
fn limit(resource: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: getrlimit writes to the struct given; where it fails the limits stay "none".
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

fn kernel_release() -> String {
    // SAFETY: all zeros is a valid utsname, which uname fills with NUL-terminated texts.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    }
}
