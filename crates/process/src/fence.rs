//! `--isolate`: while a program runs, nobody else's memory can be accessed.
//!
//! All nodes share one address space, so a stray pointer of a program can lead into another node. With a fence, what a node
//! may write, its kernel's data, its RAM and its programs' memory, is *open* or *closed*. A node is opened when its kernel is
//! entered. The others that are open are closed only when a program of it is about to run, which its kernel tells
//! ([`windtunnel_kernel::Host::as_activate`]): nodes without programs stay open among each other, and cost little. What
//! reaches into the memory of a node at another time opens it ([`crate::sys::Room`]).
//!
//! Low addresses are no node's: what another program has there is parked before one runs that has nothing there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use windtunnel_kernel::Shutter;

use crate::host_failure;
use crate::space::SLOT;
use crate::sys::{OpenNodes, Room};

/// Whose memory an address is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel of a node.
    Kernel(u32),
    /// A node's program, by the path of its file where that is known.
    Program(u32, Option<String>),
}

impl Owner {
    /// Number of the node.
    pub fn node(&self) -> u32 {
        match self {
            Self::Kernel(node) | Self::Program(node, _) => *node,
        }
    }
}

/// The memory of all nodes, open or closed.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    nodes: Mutex<BTreeMap<u32, Member>>,
    /// Nodes that may be open, some perhaps twice.
    open: OpenNodes,
}

/// A node.
#[derive(Debug)]
struct Member {
    programs: Arc<Room>,
    /// Its kernel's memory, once that has booted.
    kernel: Option<Shutter>,
    kernel_closed: bool,
    /// Files of the programs, by their slot.
    names: BTreeMap<u64, String>,
}

impl Fence {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u32, Member>> {
        self.nodes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn open_nodes(&self) -> MutexGuard<'_, Vec<u32>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Claims addresses for the programs of `node`.
    pub(crate) fn claim(&self, node: u32, range: Range<u64>) -> Result<Arc<Room>, Errno> {
        let room = Arc::new(Room::claim_with_shutter(range, Some((node, self.open.clone())))?);
        let member = Member {
            programs: room.clone(),
            kernel: None,
            kernel_closed: false,
            names: BTreeMap::new(),
        };
        self.nodes().insert(node, member);
        self.open_nodes().push(node);
        Ok(room)
    }

    /// Adds the memory of the kernel of `node`, which is open.
    pub(crate) fn add_kernel(&self, node: u32, kernel: Shutter) {
        if let Some(member) = self.nodes().get_mut(&node) {
            member.kernel = Some(kernel);
        }
    }

    /// The program in the slots from `slot` on is the file at `path` now.
    pub(crate) fn note_program(&self, node: u32, slot: u64, path: &str) {
        if let Some(member) = self.nodes().get_mut(&node) {
            member.names.insert(slot, path.to_owned());
        }
    }

    /// A node is no more: its memory is nobody's, and is given back.
    pub(crate) fn leave(&self, node: u32) {
        self.nodes().remove(&node);
        self.open_nodes().retain(|&open| open != node);
    }

    /// Opens a node.
    pub(crate) fn open(&self, node: u32) -> Result<(), Errno> {
        match self.nodes().get_mut(&node) {
            Some(member) => member.open(node, &self.open),
            None => Ok(()),
        }
    }

    /// Closes all nodes but one, a program of which is about to run.
    pub(crate) fn close_others(&self, node: u32) -> Result<(), Errno> {
        if *self.open_nodes() == [node] {
            return Ok(());
        }
        let mut nodes = self.nodes();
        let open = std::mem::replace(&mut *self.open_nodes(), vec![node]);
        for other in open.into_iter().filter(|&other| other != node) {
            if let Some(member) = nodes.get_mut(&other) {
                member.close()?;
            }
        }
        Ok(())
    }

    /// Whether no node is open but one.
    pub(crate) fn is_closed_but(&self, node: u32) -> bool {
        self.open_nodes().iter().all(|&open| open == node)
    }

    /// Opens all nodes, for the end of a run.
    pub(crate) fn open_all(&self) -> Result<(), Errno> {
        let mut nodes = self.nodes();
        let mut members = nodes.iter_mut();
        members.try_for_each(|(node, member)| member.open(*node, &self.open))
    }

    /// Whose memory `address` is of, if it is what is closed while others run, or would be; `first_slot` of a slot tells
    /// where the program begins that has it.
    pub(crate) fn owner(&self, address: u64, first_slot: impl Fn(u64) -> Option<u64>) -> Option<Owner> {
        let nodes = self.nodes();
        let is_its = |member: &Member| member.kernel.as_ref().is_some_and(|kernel| kernel.contains(address));
        if let Some((&node, _)) = nodes.iter().find(|(_, member)| is_its(member)) {
            return Some(Owner::Kernel(node));
        }
        let (&node, member) = nodes
            .iter()
            .find(|(_, member)| member.programs.can_be_written(address))?;
        let first = first_slot(address - address % SLOT);
        let name = first.and_then(|first| member.names.get(&first).cloned());
        Some(Owner::Program(node, name))
    }
}

impl Member {
    fn open(&mut self, node: u32, open: &OpenNodes) -> Result<(), Errno> {
        self.programs.open();
        if !std::mem::replace(&mut self.kernel_closed, false) {
            return Ok(());
        }
        open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(node);
        self.kernel.as_ref().map_or(Ok(()), |kernel| host(kernel.open()))
    }

    fn close(&mut self) -> Result<(), Errno> {
        self.programs.close()?;
        if std::mem::replace(&mut self.kernel_closed, true) {
            return Ok(());
        }
        self.kernel.as_ref().map_or(Ok(()), |kernel| host(kernel.close()))
    }
}

/// Notes a failure of the host's.
fn host(result: std::io::Result<()>) -> Result<(), Errno> {
    result.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        host_failure::note("change access to the memory of a kernel".into(), errno);
        errno
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Backing, PAGE, READ, WRITE, peek};

    /// Beside what other tests use.
    const START: u64 = 0x5300_0000_0000;
    const NODE: u64 = 4 * SLOT;

    fn fence(nodes: u32) -> (Fence, Vec<Arc<Room>>) {
        let fence = Fence::default();
        let claim = |node| {
            let start = START + u64::from(node) * NODE;
            let room = fence.claim(node, start..start + NODE).unwrap();
            // Three mappings: to write, to read, and to write again, with a hole.
            for (page, prot) in [(0, READ | WRITE), (1, READ), (3, READ | WRITE)] {
                room.map(start + page * PAGE, PAGE, prot, &Backing::Anonymous, false)
                    .unwrap();
            }
            room.zero(start + 8, 8);
            room
        };
        let rooms = (0..nodes).map(claim).collect();
        (fence, rooms)
    }

    fn readable(room: &Room) -> [bool; 4] {
        let start = room.range().start;
        [0, 1, 2, 3].map(|page| peek(start + page * PAGE).is_some())
    }

    /// One test: addresses are claimed once.
    #[test]
    fn one_node_is_open_while_its_programs_run() {
        const OPEN: [bool; 4] = [true, true, false, true];
        const CLOSED: [bool; 4] = [false, true, false, false];
        let (fence, rooms) = fence(3);
        assert!(!fence.is_closed_but(1));
        fence.close_others(1).unwrap();
        assert!(fence.is_closed_but(1));
        assert_eq!(
            [0, 1, 2].map(|node: usize| readable(&rooms[node])),
            [CLOSED, OPEN, CLOSED]
        );
        fence.open(2).unwrap();
        assert!(!fence.is_closed_but(1));
        assert_eq!(
            [0, 1, 2].map(|node: usize| readable(&rooms[node])),
            [CLOSED, OPEN, OPEN]
        );
        fence.close_others(2).unwrap();
        assert_eq!(
            [0, 1, 2].map(|node: usize| readable(&rooms[node])),
            [CLOSED, CLOSED, OPEN]
        );
        // What reaches into a closed node opens it, and it is closed again the next time.
        let start = rooms[0].range().start;
        rooms[0]
            .map(start + 8 * PAGE, PAGE, READ | WRITE, &Backing::Anonymous, false)
            .unwrap();
        assert_eq!(readable(&rooms[0]), OPEN);
        assert!(!fence.is_closed_but(2));
        fence.close_others(2).unwrap();
        assert_eq!(readable(&rooms[0]), CLOSED);
        assert_eq!(peek(start + 8 * PAGE), None);
        fence.open_all().unwrap();
        for room in &rooms {
            assert_eq!(readable(room), OPEN);
        }
        owners(&fence, start);
    }

    fn owners(fence: &Fence, start: u64) {
        fence.note_program(0, start, "/bin/x");
        let owner = |address| fence.owner(address, Some);
        assert_eq!(owner(start), Some(Owner::Program(0, Some("/bin/x".into()))));
        assert_eq!(owner(start + PAGE), None, "it cannot be written");
        assert_eq!(owner(start + 2 * PAGE), None, "nothing is there");
        let other = owner(start + NODE);
        assert_eq!(other, Some(Owner::Program(1, None)));
        assert_eq!(other.map(|owner| owner.node()), Some(1));
    }

    #[test]
    fn what_moves_between_rooms_takes_its_access_along() {
        let fence = Fence::default();
        let start = START - 2 * NODE;
        let home = fence.claim(7, start..start + NODE).unwrap();
        let low = Room::claim_with_shutter(start + NODE..start + 2 * NODE, None).unwrap();
        let (from, to) = (low.range().start, start + 5 * PAGE);
        low.map(from, 2 * PAGE, READ | WRITE, &Backing::Anonymous, false)
            .unwrap();
        low.protect(from + PAGE, PAGE, READ).unwrap();
        low.move_to(from, PAGE, &home, to).unwrap();
        low.move_to(from + PAGE, PAGE, &home, to + PAGE).unwrap();
        fence.close_others(8).unwrap();
        assert_eq!([to, to + PAGE].map(|at| peek(at).is_some()), [false, true]);
        home.grow(to + PAGE, PAGE, 2 * PAGE).unwrap();
        home.protect(to + 2 * PAGE, PAGE, READ | WRITE).unwrap();
        fence.close_others(8).unwrap();
        assert_eq!(
            [0, 1, 2].map(|page| peek(to + page * PAGE).is_some()),
            [false, true, false]
        );
        home.unmap(to, 3 * PAGE);
        fence.close_others(8).unwrap();
        fence.open(7).unwrap();
    }
}
