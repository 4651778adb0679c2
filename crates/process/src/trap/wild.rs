//! Accesses of programs to the memory of other nodes: noted by the fault handler, told to the engine after the entry.
//!
//! Handlers run on the simulation thread, so notes are taken while nobody makes any. The rules of [`super::handler`] hold for
//! what it calls here.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use windtunnel_kernel::{abi, comm_text};

use super::handler::Fault;

/// Threads of programs of which accesses in one entry are told one by one.
const NOTES: usize = 32;
/// Registers in `abi::Regs`.
const REGS: usize = size_of::<abi::Regs>() / 8;

/// Start and end of all nodes' addresses, and bytes of each node's; the last is 0 while nobody wants to know.
static REGIONS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// There is a note.
static NOTED: AtomicBool = AtomicBool::new(false);
static TABLE: [Note; NOTES] = [const { Note::new() }; NOTES];

/// What one thread of a program did; `count` is 0 where there is no note.
struct Note {
    count: AtomicU64,
    pid: AtomicU64,
    comm: [AtomicU64; 2],
    address: AtomicU64,
    error: AtomicU64,
    regs: [AtomicU64; REGS],
}

impl Note {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            pid: AtomicU64::new(0),
            comm: [const { AtomicU64::new(0) }; 2],
            address: AtomicU64::new(0),
            error: AtomicU64::new(0),
            regs: [const { AtomicU64::new(0) }; REGS],
        }
    }
}

/// Where the nodes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Addresses of all nodes.
    pub all: Range<u64>,
    /// Bytes of address space of each.
    pub stride: u64,
}

/// A program's access to the memory of another node, which was a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wild {
    /// Thread id of the program in its node.
    pub pid: u64,
    /// Name of the thread.
    pub comm: String,
    /// The first address.
    pub address: u64,
    /// Error code of the page fault there (Intel SDM vol. 3, 4.7).
    pub error: u32,
    /// Registers at that time.
    pub regs: abi::Regs,
    /// How often it accessed others' memory.
    pub count: u64,
}

/// Has accesses of programs to regions of other nodes noted from now on; none: no longer.
pub fn watch_regions(regions: Option<&Regions>) {
    let (all, stride) = regions.map_or((0..0, 0), |regions| (regions.all.clone(), regions.stride));
    for (word, value) in REGIONS.iter().zip([all.start, all.end, stride]) {
        word.store(value, Relaxed);
    }
}

/// Whether an address belongs to another node than that whose program runs.
pub(super) fn is_elsewhere(thread: &abi::Thread, address: u64) -> bool {
    let [start, end, stride] = [0, 1, 2].map(|index: usize| REGIONS.get(index).map_or(0, |word| word.load(Relaxed)));
    let number = |address: u64| address.wrapping_sub(start).checked_div(stride);
    stride != 0 && start <= address && address < end && number(address) != number(thread.kernel_text[0])
}

/// Notes what a program did; not if very many threads did so in one entry.
pub(super) fn note(thread: &abi::Thread, comm: &[u8; 16], regs: &abi::Regs, fault: &Fault) {
    NOTED.store(true, Relaxed);
    for note in &TABLE {
        let count = note.count.load(Relaxed);
        if count != 0 && note.pid.load(Relaxed) != thread.pid {
            continue;
        }
        note.count.store(count.wrapping_add(1), Relaxed);
        if count == 0 {
            note.pid.store(thread.pid, Relaxed);
            note.address.store(fault.address, Relaxed);
            note.error.store(fault.error, Relaxed);
            let comm = u128::from_le_bytes(*comm);
            let comm = [comm as u64, (comm >> 64) as u64];
            note.comm
                .iter()
                .zip(comm)
                .for_each(|(word, value)| word.store(value, Relaxed));
            let words = words_of(regs);
            note.regs
                .iter()
                .zip(words)
                .for_each(|(word, value)| word.store(value, Relaxed));
        }
        return;
    }
}

/// What programs of the node that was entered last did since the last call, in order of the first time.
#[inline]
pub fn take_wild() -> Vec<Wild> {
    // As long as there is nothing, this is all it costs.
    match NOTED.load(Relaxed) {
        true => take(),
        false => Vec::new(),
    }
}

#[cold]
fn take() -> Vec<Wild> {
    NOTED.store(false, Relaxed);
    let used = TABLE.iter().filter(|note| note.count.load(Relaxed) != 0);
    used.map(|note| {
        let [low, high] = [0, 1].map(|index: usize| u128::from(note.comm[index].load(Relaxed)));
        Wild {
            pid: note.pid.load(Relaxed),
            comm: comm_text(&(high << 64 | low).to_le_bytes()),
            address: note.address.load(Relaxed),
            error: note.error.load(Relaxed) as u32,
            regs: regs_of(&std::array::from_fn(|index| note.regs[index].load(Relaxed))),
            count: note.count.swap(0, Relaxed),
        }
    })
    .collect()
}

fn words_of(regs: &abi::Regs) -> [u64; REGS] {
    // SAFETY: registers are 64-bit words and nothing else.
    unsafe { std::mem::transmute_copy(regs) }
}

fn regs_of(words: &[u64; REGS]) -> abi::Regs {
    // SAFETY: as above.
    unsafe { std::mem::transmute_copy(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: there is one table.
    #[test]
    fn accesses_are_counted_by_thread_until_they_are_taken() {
        let mut thread = abi::Thread {
            kernel_text: [0x1000_0000_5000, 0x1000_0000_9000],
            pid: 7,
            ..abi::Thread::default()
        };
        assert!(!is_elsewhere(&thread, 0x1040_0000_0000), "nobody wants to know");
        let regions = Regions {
            all: 0x1000_0000_0000..0x5000_0000_0000,
            stride: 0x40_0000_0000,
        };
        watch_regions(Some(&regions));
        let elsewhere = [
            0x0fff_ffff_ffff,
            0x1000_0000_0000,
            0x103f_ffff_ffff,
            0x1040_0000_0000,
            0x4fff_ffff_ffff,
            0x5000_0000_0000,
        ];
        assert_eq!(
            elsewhere.map(|address| is_elsewhere(&thread, address)),
            [false, false, false, true, true, false]
        );
        watch_regions(None);
        assert_eq!(take_wild(), []);
        let fault = |address, error| Fault {
            address,
            error,
            ..Fault::default()
        };
        let regs = abi::Regs {
            rip: 5,
            rsp: 9,
            ..abi::Regs::default()
        };
        note(
            &thread,
            b"stray\0\0\0\0\0\0\0\0\0\0\0",
            &regs,
            &fault(0x1040_0000_0008, 6),
        );
        note(
            &thread,
            b"stray\0\0\0\0\0\0\0\0\0\0\0",
            &regs,
            &fault(0x1040_0000_0010, 4),
        );
        for pid in 8..100 {
            thread.pid = pid;
            note(&thread, b"sixteen letters.", &regs, &fault(pid, 4));
        }
        let taken = take_wild();
        assert_eq!(taken.len(), NOTES);
        assert_eq!(
            taken[0],
            Wild {
                pid: 7,
                comm: "stray".into(),
                address: 0x1040_0000_0008,
                error: 6,
                regs,
                count: 2,
            }
        );
        assert_eq!((taken[1].pid, taken[1].comm.as_str()), (8, "sixteen letters."));
        assert_eq!(take_wild(), []);
    }
}
