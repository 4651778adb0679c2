//! Exec: mapping a program, its interpreter and its stack into an emptied address space.

use std::sync::Arc;

use rustix::io::Errno;
use windtunnel_kernel::abi;

use crate::Shared;
use crate::elf::Segment;
use crate::files::Content;
use crate::patched::{ImageError, PatchedImage};
use crate::space::{FileMap, LOW_END, Role, Spaces, Work};
use crate::sys::{EXEC, PAGE, READ, WRITE};

/// Why a program could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} {what}")]
pub struct ExecError {
    /// The program or its interpreter, by its path in the node.
    pub file: String,
    /// The rest of the sentence.
    pub what: String,
    /// What the program that called exec sees.
    pub errno: Errno,
}

/// A program or interpreter about to be mapped.
struct Loadable {
    content: Arc<Content>,
    image: Arc<PatchedImage>,
}

impl Loadable {
    fn new(shared: &Shared, content: &Arc<Content>) -> Result<Self, ExecError> {
        let image = content.image(&shared.fds, &shared.images).map_err(|error| ExecError {
            file: content.name.clone(),
            errno: error.errno(),
            what: match error {
                ImageError::Elf(error) => error.to_string(),
                ImageError::Io(errno) => format!("cannot be read: {errno}"),
            },
        })?;
        Ok(Self {
            content: content.clone(),
            image,
        })
    }

    /// Memory that the program may write to from its start on, bytes.
    fn writable_bytes(&self) -> u64 {
        let segments = self.image.elf.segments.iter();
        segments
            .filter(|segment| segment.prot & WRITE != 0)
            .map(|segment| segment.memory_size.next_multiple_of(PAGE))
            .sum()
    }

    fn error(&self, what: &str, errno: Errno) -> ExecError {
        ExecError {
            file: self.content.name.clone(),
            what: what.into(),
            errno,
        }
    }
}

/// Replaces all of space `id` by `file` (and `interp`, where the program has one), and fills the rest of `exec`.
pub(crate) fn exec_map(
    spaces: &mut Spaces,
    shared: &Shared,
    id: u64,
    exec: &mut abi::Exec,
    file: &Arc<Content>,
    interp: Option<&Arc<Content>>,
) -> Result<(), ExecError> {
    // All that can be known to fail does so before the old images go.
    let program = Loadable::new(shared, file)?;
    let interp = interp.map(|content| Loadable::new(shared, content)).transpose()?;
    let span = program.image.elf.span();
    if program.image.elf.fixed && span.end + program.image.trampolines_len > LOW_END {
        let what = format!(
            "is linked to addresses up to {:#x}; only those below {LOW_END:#x} can be given",
            span.end
        );
        return Err(program.error(&what, Errno::NOMEM));
    }
    if let Some(interp) = interp.as_ref().filter(|interp| interp.image.elf.fixed) {
        return Err(interp.error(
            "is linked to fixed addresses, which an interpreter must not be",
            Errno::NOEXEC,
        ));
    }
    let loaded = [Some(&program), interp.as_ref()];
    let writable: u64 = loaded.iter().flatten().map(|image| image.writable_bytes()).sum();
    spaces
        .check_memory(writable)
        .map_err(|errno| program.error("does not fit the program memory of its node", errno))?;
    let mut work = spaces
        .work(id)
        .ok_or_else(|| program.error("has no address space", Errno::NOMEM))?;
    let no_room = |errno| program.error("does not fit the address space of its node", errno);
    let low = if program.image.elf.fixed {
        span.start..span.end + past_image(&program.image)
    } else {
        0..0
    };
    let stack = work.begin(exec.stack_size, low).map_err(no_room)?;
    let prot = READ | WRITE | if program.image.elf.executable_stack { EXEC } else { 0 };
    work.map_anonymous(stack.clone(), prot, Role::Stack).map_err(no_room)?;

    let base = if program.image.elf.fixed {
        0
    } else {
        work.image_place(program.image.elf.align).wrapping_sub(span.start)
    };
    let image_end = load(&mut work, &program, base).map_err(no_room)?;
    exec.brk = work.begin_heap((!program.image.elf.fixed).then_some(image_end + PAGE));
    exec.stack_top = stack.end;
    exec.stack_base = stack.start;
    // Whose program is about to run has to be known as well where nodes are isolated.
    exec.low = u32::from(program.image.elf.fixed || shared.isolates());
    work.note_program(&file.name);
    describe(&program, base, exec);
    exec.entry = exec.at_entry;
    exec.at_base = 0;
    if let Some(interp) = &interp {
        let span = interp.image.elf.span();
        let elf = &interp.image.elf;
        let extra = past_image(&interp.image);
        let place = work
            .mapping_place(span.end - span.start, extra, elf.align)
            .map_err(no_room)?;
        let base = place.wrapping_sub(span.start);
        load(&mut work, interp, base).map_err(no_room)?;
        exec.at_base = base;
        exec.entry = at(base, elf.entry);
    }
    work.finish().map_err(no_room)?;
    spaces.settle(id);
    Ok(())
}

/// Bytes from the end of the image to the end of its trampolines.
fn past_image(image: &PatchedImage) -> u64 {
    match image.trampolines_len {
        0 => 0,
        len => image.trampolines_vaddr + len - image.elf.span().end,
    }
}

/// Where an address of an image is that is loaded at `base`. The base of one linked to high addresses is below zero, and
/// entry and headers may be anywhere.
fn at(base: u64, vaddr: u64) -> u64 {
    base.wrapping_add(vaddr)
}

/// What the kernel tells the program about itself.
fn describe(program: &Loadable, base: u64, exec: &mut abi::Exec) {
    let elf = &program.image.elf;
    exec.at_entry = at(base, elf.entry);
    exec.at_phdr = if elf.headers_vaddr == 0 {
        0
    } else {
        at(base, elf.headers_vaddr)
    };
    exec.at_phnum = elf.header_count;
    let range = |wanted: u8, end: fn(&Segment) -> u64| {
        let found = || elf.segments.iter().filter(|segment| segment.prot & wanted != 0);
        let start = found().map(|segment| segment.vaddr).min().unwrap_or(elf.span().start);
        [start, found().map(end).max().unwrap_or(start)].map(|vaddr| at(base, vaddr))
    };
    exec.code = range(EXEC, |segment| segment.vaddr + segment.file_size);
    exec.data = range(WRITE, |segment| segment.vaddr + segment.file_size);
}

/// Maps all segments of an image at `base`; the first free address after it and its trampolines.
fn load(work: &mut Work, program: &Loadable, base: u64) -> Result<u64, Errno> {
    let image = &program.image;
    let span = image.elf.span();
    let whole = at(base, span.start)..at(base, span.end + past_image(image));
    if !work.may_map(&whole) {
        return Err(Errno::NOMEM);
    }
    for segment in &image.elf.segments {
        load_segment(work, program, base, segment)?;
    }
    let text = at(base, span.start)..at(base, span.end);
    if !work.map_trampolines(image, base, text) {
        return Err(Errno::NOMEM);
    }
    Ok(whole.end)
}

/// Maps one segment: its part of the file, zeros up to the page's end, and private memory for the rest.
fn load_segment(work: &mut Work, program: &Loadable, base: u64, segment: &Segment) -> Result<(), Errno> {
    let start = at(base, segment.vaddr - segment.vaddr % PAGE);
    let file_end = at(base, segment.vaddr + segment.file_size);
    let end = at(base, segment.vaddr + segment.memory_size).next_multiple_of(PAGE);
    let mut mapped = start;
    if segment.file_size > 0 {
        mapped = file_end.next_multiple_of(PAGE);
        let file = FileMap {
            content: program.content.clone(),
            offset: segment.offset - segment.offset % PAGE,
            shared: false,
            may: READ | WRITE | EXEC,
            touched: segment.prot & WRITE != 0,
            patched: Some(program.image.clone()),
        };
        work.map_image(start..mapped, segment.prot, file)?;
        // Up to the page's end and not only the segment's: the interpreter's first allocations use the rest.
        if segment.prot & WRITE != 0 && segment.memory_size > segment.file_size && mapped > file_end {
            work.zero(file_end, mapped - file_end);
        }
    }
    if end > mapped {
        work.map_anonymous(mapped..end, segment.prot, Role::Mapped)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "image/tests.rs"]
mod tests;
