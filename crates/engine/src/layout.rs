//! Where each node lies in the one address space of the engine.
//!
//! All addresses are fixed by node number, so that programs see the same pointers in every run, whatever the host's
//! address randomisation does.
//!
//! ```text
//! 0x1000_0000_0000 + node * stride:
//!   +0       kernel image, moved up by node*37 % 512 pages
//!   +1 GiB   memory of the kernel, moved up by node*61 % 512 pages
//!   +4 GiB   programs, up to the end of the region
//! ```
//! The moves keep the nodes' hot lines out of the same cache sets; without them a packet costs twice as much.

use std::ops::Range;

use windtunnel_kernel::abi;
use windtunnel_process::trap::Regions;

use crate::error::EngineError;

/// Start of the first node's region.
const REGIONS_START: u64 = 0x1000_0000_0000;
/// End of the last node's region.
const REGIONS_END: u64 = 0x5000_0000_0000;
/// Region size as long as all nodes fit.
const STRIDE_MAX: u64 = 1 << abi::REGION_SHIFT;
/// Smallest usable region: the kernel's part and three program slots.
const STRIDE_MIN: u64 = 4 * PROGRAM_SLOT;
const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;
/// Offset of a node's memory in its region.
const RAM_OFFSET: u64 = GIB;
/// Offset of the first program slot, and the alignment of all of them.
const PROGRAM_SLOT: u64 = 4 * GIB;

/// Most nodes a run can have.
pub const NODES_MAX: u64 = (REGIONS_END - REGIONS_START) / STRIDE_MIN;

/// The division of the address space for a run.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    stride: u64,
    node_count: u64,
}

/// Addresses of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRegion {
    /// Where the kernel image starts.
    pub image: u64,
    /// Where the kernel's memory starts.
    pub ram: u64,
    /// Room for programs.
    pub programs: Range<u64>,
}

impl Layout {
    /// A layout for `node_count` nodes.
    ///
    /// # Errors
    /// When more than [`NODES_MAX`] nodes are asked for.
    pub fn new(node_count: usize) -> Result<Self, EngineError> {
        let node_count = node_count as u64;
        if node_count > NODES_MAX {
            return Err(EngineError::TooManyNodes {
                nodes: node_count,
                max: NODES_MAX,
            });
        }
        let share = (REGIONS_END - REGIONS_START) / node_count.max(1).next_power_of_two();
        Ok(Self {
            stride: share.min(STRIDE_MAX),
            node_count,
        })
    }

    /// Where all nodes are.
    pub fn regions(&self) -> Regions {
        Regions {
            all: REGIONS_START..REGIONS_START + self.node_count * self.stride,
            stride: self.stride,
        }
    }

    /// The region of node number `node`, whose kernel has `ram_bytes` of memory.
    ///
    /// # Errors
    /// When the memory does not fit beside a program slot.
    ///
    /// # Panics
    /// If `node` is not below the number of nodes the layout was made for.
    pub fn region(&self, node: usize, ram_bytes: u64) -> Result<NodeRegion, EngineError> {
        let node = node as u64;
        assert!(
            node < self.node_count,
            "node {node} is not in a layout of {}",
            self.node_count
        );
        let start = REGIONS_START + node * self.stride;
        let end = start + self.stride;
        let ram = start + RAM_OFFSET + (node * 61 % 512) * PAGE;
        let ram_max_bytes = end - PROGRAM_SLOT - ram;
        if ram_bytes > ram_max_bytes {
            return Err(EngineError::MemoryTooLarge {
                bytes: ram_bytes,
                max_bytes: ram_max_bytes,
            });
        }
        Ok(NodeRegion {
            image: start + (node * 37 % 512) * PAGE,
            ram,
            programs: (ram + ram_bytes).next_multiple_of(PROGRAM_SLOT)..end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_meet_and_stay_in_range() {
        for node_count in [1, 2, 3, 64, 256, 257, 1000, NODES_MAX as usize] {
            let layout = Layout::new(node_count).unwrap();
            let mut last_end = REGIONS_START;
            for node in 0..node_count {
                let region = layout.region(node, 64 << 20).unwrap();
                assert!(region.image >= last_end, "{node} of {node_count}");
                assert!(region.image + 512 * 1024 * 1024 < region.ram);
                assert!(region.ram + (64 << 20) <= region.programs.start);
                assert_eq!(region.programs.start % PROGRAM_SLOT, 0);
                assert!(region.programs.end - region.programs.start >= PROGRAM_SLOT);
                last_end = region.programs.end;
            }
            assert!(last_end <= REGIONS_END, "{node_count} nodes");
        }
    }

    #[test]
    fn addresses_are_those_documented() {
        let layout = Layout::new(256).unwrap();
        let region = layout.region(2, 64 << 20).unwrap();
        assert_eq!(region.image, 0x1000_0000_0000 + 2 * 0x40_0000_0000 + 74 * 4096);
        assert_eq!(
            region.ram,
            0x1000_0000_0000 + 2 * 0x40_0000_0000 + 0x4000_0000 + 122 * 4096
        );
        assert_eq!(region.programs, 0x1081_0000_0000..0x10c0_0000_0000);
    }

    #[test]
    fn a_small_run_has_the_addresses_of_a_large_one() {
        let few = Layout::new(3).unwrap().region(2, 64 << 20).unwrap();
        let many = Layout::new(256).unwrap().region(2, 64 << 20).unwrap();
        assert_eq!(few, many);
    }

    #[test]
    fn more_memory_moves_programs_up() {
        let layout = Layout::new(4).unwrap();
        let region = layout.region(1, 8 * GIB).unwrap();
        assert!(region.programs.start >= region.ram + 8 * GIB);
        assert!(matches!(
            layout.region(1, 300 * GIB),
            Err(EngineError::MemoryTooLarge { .. })
        ));
    }

    #[test]
    fn too_many_nodes_are_an_error() {
        assert!(matches!(
            Layout::new(NODES_MAX as usize + 1),
            Err(EngineError::TooManyNodes { .. })
        ));
    }
}
