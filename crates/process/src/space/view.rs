//! A space as others see it through `/proc/PID`: its mappings, and its contents whichever program runs.

use rustix::io::Errno;
use windtunnel_kernel::abi;

use super::{Kind, Role, Spaces, Tree, Vma, Work};
use crate::sys::{Copy, HELD};

impl Spaces {
    /// Copies `len` bytes at `address` of a space, wherever it is kept now, to or from kernel memory at `buffer`: bytes
    /// done before the first bad address.
    pub(crate) fn copy(&mut self, id: u64, direction: Copy, address: u64, buffer: u64, len: u64) -> Result<u64, Errno> {
        let mut done = 0;
        while done < len {
            let space = self.spaces.get(&id).ok_or(Errno::SRCH)?;
            let Some(at) = address.checked_add(done) else { break };
            let Some((start, vma)) = space.tree.find_visible(at).map(|(start, vma)| (start, vma.clone())) else {
                break;
            };
            let step = (vma.end - at).min(len - done);
            let copied = self.copy_piece(id, direction, (start, &vma), at, buffer + done, step);
            done += copied;
            if copied < step {
                break;
            }
        }
        Ok(done)
    }

    /// As [`Spaces::copy`], within one mapping.
    fn copy_piece(
        &mut self,
        id: u64,
        direction: Copy,
        (start, vma): (u64, &Vma),
        at: u64,
        buffer: u64,
        len: u64,
    ) -> u64 {
        let present = self.in_place(id).unwrap_or(id);
        let frozen = |key| {
            self.families
                .get(&key)
                .is_some_and(|family| family.frozen.contains_key(&start))
        };
        let space = &self.spaces[&id];
        let shared = present == id || space.family.is_some_and(frozen);
        if shared || !space.takes_turns(at) {
            let holder = if space.takes_turns(at) { present } else { id };
            let copied = self
                .work(holder)
                .map(|work| work.at(at, |room, place| room.copy(direction, place, buffer, len)));
            return copied.unwrap_or(0);
        }
        match &vma.kind {
            // Elsewhere, what can be mapped anew is nowhere.
            Kind::File(file) if vma.is_remakeable() && direction == Copy::Out => {
                let offset = file.offset + (at - start);
                file.content.read(&self.shared.fds, buffer, len, offset).unwrap_or(0)
            }
            _ if vma.is_private() => {
                let Some(parked) = space.places.find(at) else { return 0 };
                if direction == Copy::In {
                    // Which pages of it are written has to be looked up again.
                    self.spaces.get_mut(&id).expect("seen above").stores.remove(&start);
                }
                self.room.copy(direction, parked, buffer, len)
            }
            _ => 0,
        }
    }
}

impl Work<'_> {
    /// The first mapping that ends above `address`, as Linux would hold it; false: there is none.
    pub(crate) fn map_above(&self, address: u64, out: &mut abi::Map) -> bool {
        let Some((start, end, vma)) = run_above(&self.space.tree, address) else {
            return false;
        };
        *out = abi::Map {
            start,
            end,
            prot: u32::from(vma.prot & !HELD),
            ..abi::Map::default()
        };
        match &vma.kind {
            Kind::Anonymous(Role::Heap) => out.flags = abi::MAP_HEAP,
            Kind::Anonymous(Role::Stack) => out.flags = abi::MAP_STACK,
            Kind::Anonymous(Role::Mapped | Role::Reserved) | Kind::Gap { .. } | Kind::Trampolines { .. } => {}
            Kind::File(file) => {
                out.flags = abi::MAP_FILE | if file.shared { abi::MAP_SHARED } else { 0 };
                out.offset = file.offset;
                if let Some(shown) = file.content.shown() {
                    (out.ino, out.dev_major, out.dev_minor) = (shown.ino, shown.dev_major, shown.dev_minor);
                    let len = shown.path.len().min(out.path.len());
                    out.path[..len].copy_from_slice(&shown.path[..len]);
                    out.path_len = len as u32;
                }
            }
        }
        true
    }
}

/// Start, end and first part of the run of like mappings that ends above `address`.
fn run_above(tree: &Tree, address: u64) -> Option<(u64, u64, &Vma)> {
    let mut mappings = tree.overlapping(address..u64::MAX).filter(|(_, vma)| vma.visible());
    let (start, first) = mappings.next()?;
    let (mut last_start, mut last) = (start, first);
    for (next_start, next) in mappings {
        if next_start != last.end || !last.shows_as(last_start, next) {
            break;
        }
        (last_start, last) = (next_start, next);
    }
    Some((start, last.end, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anonymous(end: u64, prot: u8, role: Role) -> Vma {
        Vma {
            end,
            prot,
            kind: Kind::Anonymous(role),
        }
    }

    #[test]
    fn like_neighbours_show_as_one() {
        let mut tree = Tree::default();
        tree.insert(0x1000, anonymous(0x2000, 3, Role::Mapped));
        tree.insert(0x2000, anonymous(0x3000, 3, Role::Mapped));
        tree.insert(0x3000, anonymous(0x4000, 3, Role::Heap));
        tree.insert(0x4000, anonymous(0x5000, 1, Role::Heap));
        tree.insert(
            0x5000,
            Vma {
                end: 0x6000,
                prot: 0,
                kind: Kind::Gap { image: 0x1000 },
            },
        );
        let run = |address| run_above(&tree, address).map(|(start, end, _)| (start, end));
        assert_eq!(run(0), Some((0x1000, 0x3000)));
        assert_eq!(run(0x3000), Some((0x3000, 0x4000)));
        assert_eq!(run(0x4000), Some((0x4000, 0x5000)));
        assert_eq!(run(0x5000), None, "a gap is not there for anybody");
    }
}
