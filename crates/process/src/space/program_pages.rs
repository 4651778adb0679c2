//! The pages of a program as [`crate::spin`] wants them.

use super::{Kind, Spaces};
use crate::spin::{Page, Pages};
use crate::sys::{Copy, EXEC, PAGE, READ, WRITE};

/// The memory of one program.
pub(crate) struct ProgramPages<'a> {
    spaces: &'a mut Spaces,
    id: u64,
}

impl<'a> ProgramPages<'a> {
    pub(crate) fn new(spaces: &'a mut Spaces, id: u64) -> Self {
        Self { spaces, id }
    }
}

impl Pages for ProgramPages<'_> {
    fn page(&mut self, address: u64) -> Option<Page> {
        let space = self.spaces.spaces.get(&self.id)?;
        let (_, vma) = space.tree.find_visible(address)?;
        let may = |right| vma.prot & right != 0;
        let (read, write, exec) = (may(READ), may(WRITE), may(EXEC));
        let shared = matches!(&vma.kind, Kind::File(file) if file.shared);
        let mut bytes = Box::new([0; PAGE as usize]);
        let buffer = bytes.as_mut_ptr() as u64;
        // Beyond the end of a file there is nothing.
        let copied = self.spaces.copy(self.id, Copy::Out, address, buffer, PAGE);
        (copied == Ok(PAGE)).then_some(Page {
            bytes,
            read,
            write,
            exec,
            shared,
        })
    }
}
