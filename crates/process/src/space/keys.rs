//! What of a space's memory others share: where futexes of several programs meet, and who may write to a file's contents.

use std::sync::Arc;

use rustix::io::Errno;
use windtunnel_kernel::abi::MemKey;

use super::{Kind, Spaces};
use crate::files::Content;
use crate::sys::{PAGE, READ, WRITE};

impl Spaces {
    /// What `address` of space `id` is, after `get_futex_key` (kernel/futex/core.c of Linux 6.12): a page of a file is
    /// that page for everybody who maps it, but a private mapping's only until it may have been written to.
    pub(crate) fn key(&self, id: u64, address: u64, write: bool) -> Result<MemKey, Errno> {
        let tree = &self.spaces.get(&id).ok_or(Errno::FAULT)?.tree;
        let (start, vma) = tree.find_visible(address).ok_or(Errno::FAULT)?;
        if vma.prot & if write { WRITE } else { READ } == 0 {
            return Err(Errno::FAULT);
        }
        Ok(match &vma.kind {
            Kind::File(file) if file.shared || !file.touched => MemKey {
                content: file.content.id,
                page: (file.offset + (address - start)) / PAGE,
            },
            _ => MemKey {
                content: 0,
                page: address / PAGE,
            },
        })
    }

    /// How many shared mappings of `content` are writable or may become so.
    pub(crate) fn writers(&self, content: &Arc<Content>) -> u64 {
        let mappings = self.spaces.values().flat_map(|space| space.tree.iter());
        let writes = |kind: &Kind| matches!(kind, Kind::File(file) if file.shared && file.may & WRITE != 0 && Arc::ptr_eq(&file.content, content));
        mappings.filter(|(_, vma)| writes(&vma.kind)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;

    const SHARED: u64 = libc::MAP_SHARED as u64;
    const PRIVATE: u64 = libc::MAP_PRIVATE as u64;
    const RW: u64 = (READ | WRITE) as u64;

    /// Maps two pages of `content` from its page 1 on; `may` as a kernel passes it.
    fn map(fixture: &mut Fixture, id: u64, content: &Arc<Content>, prot: u64, flags: u64, may: u64) -> u64 {
        let args = [0, 2 * PAGE, prot, flags, may, PAGE];
        let nr = libc::SYS_mmap as u32;
        fixture.spaces.mem_call(id, nr, &args, Some(content.clone())).unwrap()
    }

    #[test]
    fn spaces_meet_in_the_page_of_a_file_wherever_they_have_it() {
        let mut fixture = Fixture::new();
        let (a, b) = (fixture.spaces.create().unwrap(), fixture.spaces.create().unwrap());
        let content = Content::memory_file("/x", 4 * PAGE, &fixture.spaces.shared.fds).unwrap();
        let at_a = map(&mut fixture, a, &content, RW, SHARED, RW);
        let at_b = map(&mut fixture, b, &content, u64::from(READ), SHARED, RW);
        let key = fixture.spaces.key(a, at_a + PAGE + 8, true).unwrap();
        assert_eq!((key.content, key.page), (content.id, 2));
        assert_eq!(fixture.spaces.key(b, at_b + PAGE, false), Ok(key));
        assert_eq!(fixture.spaces.key(b, at_b + PAGE, true), Err(Errno::FAULT));
        assert_ne!(fixture.spaces.key(b, at_b, false), Ok(key));
        assert_eq!(fixture.spaces.key(b, at_b + 2 * PAGE, false), Err(Errno::FAULT));
    }

    #[test]
    fn private_memory_is_nobody_elses() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let content = Content::memory_file("/x", 0, &fixture.spaces.shared.fds).unwrap();
        let written = map(&mut fixture, id, &content, RW, PRIVATE, 7);
        assert_eq!(fixture.spaces.key(id, written, true).unwrap().content, 0);
        let read = map(&mut fixture, id, &content, u64::from(READ), PRIVATE, 7);
        assert_eq!(fixture.spaces.key(id, read, false).unwrap().content, content.id);
    }

    #[test]
    fn writers_are_those_that_may_write_even_if_they_do_not_now() {
        let mut fixture = Fixture::new();
        let id = fixture.spaces.create().unwrap();
        let content = Content::memory_file("/x", 0, &fixture.spaces.shared.fds).unwrap();
        map(&mut fixture, id, &content, RW, PRIVATE, 7);
        let reader = map(&mut fixture, id, &content, u64::from(READ), SHARED, u64::from(READ));
        assert_eq!(fixture.spaces.writers(&content), 0);
        let raise = [reader, PAGE, RW, 0, 0, 0];
        assert_eq!(fixture.call(id, libc::SYS_mprotect, raise), Err(Errno::ACCESS));
        let writer = map(&mut fixture, id, &content, RW, SHARED, RW);
        fixture
            .call(id, libc::SYS_mprotect, [writer, 2 * PAGE, u64::from(READ), 0, 0, 0])
            .unwrap();
        assert_eq!(fixture.spaces.writers(&content), 1);
        fixture
            .call(id, libc::SYS_munmap, [writer, 2 * PAGE, 0, 0, 0, 0])
            .unwrap();
        assert_eq!(fixture.spaces.writers(&content), 0);
    }
}
