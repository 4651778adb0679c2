//! The host's limit on the number of mappings of a process, `vm.max_map_count`.
//!
//! What programs are told must not depend on it, and a half-made change of the memory map cannot be undone without
//! further mappings. So some are kept in reserve: whoever meets the limit first gives them back and tries once more, and
//! the run ends with an error as soon as the kernel that runs now returns. Until then programs get no more mappings: what
//! is left is for moving the memory of those that run next.
//!
//! Making the reserve costs two milliseconds, a twentieth of the shortest runs. So it is made when programs have changed the
//! memory map often enough to matter, long before the limit, which one change brings nearer by two mappings at most.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::PAGE;

/// Mappings in reserve: more than one entry of a kernel needs.
const RESERVED: u64 = 1024;
/// How close to the limit the number of mappings must be for it to be the reason, mappings.
const NEAR: u64 = 16;
/// Changes of the memory map before the reserve is made; less than a fifth of Linux's limit may be used by then.
const CHANGES: u64 = 4096;
/// Limits below that are so low that the reserve is made at once, mappings.
const LOW_LIMIT: u64 = 1 << 15;
/// Linux's own limit, where /proc does not tell (include/linux/mm.h).
const DEFAULT_LIMIT: u64 = 65_530;

/// The host's limit on mappings, which this process has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host allows a process {limit} memory mappings at a time (vm.max_map_count), and the programs need more")]
pub struct MapLimit {
    /// `vm.max_map_count`.
    pub limit: u64,
}

/// Where the reserve is, while it is there.
static RESERVE: Mutex<Option<u64>> = Mutex::new(None);
/// The limit was reached, and nobody was told yet.
static REACHED: AtomicBool = AtomicBool::new(false);

/// Changes of the memory map so far.
static CHANGED: AtomicU64 = AtomicU64::new(0);

/// Before the first change of the memory map: makes the reserve where the limit is low.
pub(crate) fn prepare_reserve() {
    if limit() < LOW_LIMIT {
        make_reserve();
    }
}

/// Before each change of the memory map: makes the reserve when it is time.
pub(super) fn count_change() {
    if CHANGED.fetch_add(1, Ordering::Relaxed) == CHANGES {
        make_reserve();
    }
}

/// Makes the reserve, once per process; without room for it there is none, and the first program meets the limit.
#[cold]
fn make_reserve() {
    let mut reserve = RESERVE.lock().expect("no panic while making the reserve");
    if reserve.is_some() {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let len = (RESERVED * PAGE) as usize;
    // SAFETY: a new mapping, at a place the host chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return;
    }
    let start = at as u64;
    *reserve = Some(start);
    // Neighbours alike would be one mapping.
    for page in (0..RESERVED).step_by(2) {
        // SAFETY: a page of the mapping made above, which nobody looks at.
        unsafe {
            libc::mprotect(
                (start + page * PAGE) as *mut libc::c_void,
                PAGE as usize,
                libc::PROT_READ,
            )
        };
    }
}

/// After the host said ENOMEM: whether the limit was the reason, and trying again makes sense.
pub(super) fn use_reserve() -> bool {
    let mut reserve = RESERVE.lock().expect("no panic while making the reserve");
    let Some(start) = reserve.filter(|_| count() + NEAR >= limit()) else {
        return false;
    };
    *reserve = None;
    // SAFETY: the mapping made by `make_reserve`, which nobody uses.
    unsafe { libc::munmap(start as *mut libc::c_void, (RESERVED * PAGE) as usize) };
    REACHED.store(true, Ordering::Relaxed);
    true
}

/// Whether the limit was reached, and nobody was told yet: the run is at its end.
pub(crate) fn at_limit() -> bool {
    REACHED.load(Ordering::Relaxed)
}

/// The limit, if it was reached since the last call.
pub fn take_map_limit() -> Option<MapLimit> {
    let reached = REACHED.load(Ordering::Relaxed) && REACHED.swap(false, Ordering::Relaxed);
    reached.then(|| MapLimit { limit: limit() })
}

/// Mappings of this process.
fn count() -> u64 {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps.iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn limit() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, READ, Room, WRITE};
    use super::*;

    /// Fills the process with mappings: in one of its own, started by the test below.
    #[test]
    #[ignore = "run by the_limit_is_met_with_a_reserve in a process of its own"]
    fn meet_the_limit() {
        prepare_reserve();
        assert_eq!((count() < RESERVED, take_map_limit()), (limit() >= LOW_LIMIT, None));
        let start = 0x54fb_0000_0000;
        let room = Room::claim(start..start + 4 * limit() * PAGE).unwrap();
        let map = |page: u64| room.map(start + 2 * page * PAGE, PAGE, READ | WRITE, &Backing::Anonymous, false);
        let made = (0..)
            .take_while(|&page| map(page).is_ok() && !REACHED.load(Ordering::Relaxed))
            .count() as u64;
        assert!(made > limit() / 2 && made < limit() - RESERVED);
        assert!(at_limit());
        assert_eq!(take_map_limit(), Some(MapLimit { limit: limit() }));
        assert!(!at_limit());
        let more = (made + 2..).take_while(|&page| map(page).is_ok()).count() as u64;
        assert!(more > RESERVED / 2, "{more} of the reserve");
        assert_eq!(take_map_limit(), None, "told once");
    }

    #[test]
    fn the_limit_is_met_with_a_reserve() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["meet_the_limit", "--ignored", "--test-threads=1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
    }
}
