//! Where functions start and end: the ranges in which a linear decode may be believed.
//!
//! Three sources, most trusted first: call frame information, Go's function table, function symbols. A byte search for
//! `0f 05` without them would find dozens of constants that only look like a system call.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, LittleEndian, Pointer, UnwindSection};
use object::elf;

use super::gopclntab;
use super::layout::Layout;

/// One function, or the part of one that the compiler placed on its own (`.cold`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its first byte and the byte after its last.
    pub range: Range<u64>,
    /// An exception may continue in its middle, at addresses its language-specific table holds.
    pub landing_pads: bool,
}

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;
type Fde<'a> = gimli::FrameDescriptionEntry<Slice<'a>>;

/// All known functions that lie within one part of the code, in address order, none overlapping another.
pub(super) fn find(layout: &Layout<'_>) -> Vec<Function> {
    let mut found = keep_disjoint(layout, from_unwind_table(layout));
    let plain = |range: Range<u64>| Function {
        range,
        landing_pads: false,
    };
    for source in [gopclntab::functions(layout), from_symbols(layout)] {
        let source = keep_disjoint(layout, source.into_iter().map(plain).collect());
        merge(&mut found, source);
    }
    found
}

/// Sorts, and drops what is not code or starts inside the function before it.
fn keep_disjoint(layout: &Layout<'_>, mut functions: Vec<Function>) -> Vec<Function> {
    functions.retain(|f| {
        f.range.start < f.range.end
            && layout
                .code_around(f.range.start)
                .is_some_and(|code| f.range.end <= code.end)
    });
    // Aliases: of several with one start, the longest says where the code ends.
    functions.sort_by_key(|f| (f.range.start, u64::MAX - f.range.end));
    let mut end = 0;
    functions.retain(|f| {
        let keep = f.range.start >= end;
        end = end.max(f.range.end);
        keep
    });
    functions
}

/// Adds those of `more` that overlap nothing in `known`; both are sorted and disjoint, and so is the result.
fn merge(known: &mut Vec<Function>, more: Vec<Function>) {
    let fits = |f: &Function| {
        let next = known.partition_point(|k| k.range.end <= f.range.start);
        known.get(next).is_none_or(|k| f.range.end <= k.range.start)
    };
    let mut fitting: Vec<Function> = more.into_iter().filter(fits).collect();
    known.append(&mut fitting);
    known.sort_by_key(|f| f.range.start);
}

fn from_symbols(layout: &Layout<'_>) -> Vec<Range<u64>> {
    let mut functions = Vec::new();
    layout.for_each_function(|_, start, bytes| {
        if let Some(end) = start.checked_add(bytes) {
            functions.push(start..end);
        }
    });
    functions
}

fn from_unwind_table(layout: &Layout<'_>) -> Vec<Function> {
    if let Some(header) = layout.program_header(elf::PT_GNU_EH_FRAME) {
        return from_eh_frame_hdr(layout, header).unwrap_or_default();
    }
    let Some((addr, data)) = layout.section(".eh_frame") else {
        return Vec::new();
    };
    from_eh_frame(addr, data)
}

/// Functions listed in the sorted table of `.eh_frame_hdr`. `None` if its header is damaged; a damaged entry is left out.
fn from_eh_frame_hdr(layout: &Layout<'_>, header: Range<u64>) -> Option<Vec<Function>> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.start);
    let hdr = EhFrameHdr::new(layout.bytes(header)?, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let Pointer::Direct(frames_start) = hdr.eh_frame_ptr() else {
        return None;
    };
    let frames = EhFrame::new(layout.bytes_from(frames_start)?, LittleEndian);
    let bases = bases.set_eh_frame(frames_start);
    let table = hdr.table()?;
    let mut entries = table.iter(&bases);
    let mut functions = Vec::new();
    while let Ok(Some((_, entry))) = entries.next() {
        // The library's own conversion subtracts unchecked, and a damaged table may point below the frames.
        let Some(offset) = entry.direct().ok().and_then(|at| at.checked_sub(frames_start)) else {
            continue;
        };
        let Ok(offset) = usize::try_from(offset).map(EhFrameOffset) else {
            continue;
        };
        if let Ok(fde) = frames.fde_from_offset(&bases, offset, EhFrame::cie_from_offset) {
            functions.extend(function_of(&fde));
        }
    }
    Some(functions)
}

/// Functions of a whole `.eh_frame`, for static programs that were linked without its sorted table.
fn from_eh_frame(addr: u64, data: &[u8]) -> Vec<Function> {
    let frames = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(addr);
    let mut entries = frames.entries(&bases);
    let mut functions = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
            functions.extend(function_of(&fde));
        }
    }
    functions
}

fn function_of(fde: &Fde<'_>) -> Option<Function> {
    // The description of a signal trampoline starts a byte before its code, so that an unwinder's address minus one still
    // finds it: no place to begin decoding, and nothing there is patched anyway.
    if fde.is_signal_trampoline() {
        return None;
    }
    let start = fde.initial_address();
    let end = start.checked_add(fde.len())?;
    Some(Function {
        range: start..end,
        landing_pads: fde.lsda().is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(range: Range<u64>) -> Function {
        Function {
            range,
            landing_pads: false,
        }
    }

    #[test]
    fn a_less_trusted_source_only_fills_gaps() {
        let mut known = vec![at(10..20), at(30..40)];
        merge(
            &mut known,
            vec![at(0..10), at(15..25), at(20..30), at(35..36), at(39..50), at(50..60)],
        );
        assert_eq!(known, [at(0..10), at(10..20), at(20..30), at(30..40), at(50..60)]);
    }
}
