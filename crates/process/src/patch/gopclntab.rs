//! Function bounds of Go images, which carry no call frame information but always their own function table.
//!
//! Layout: `runtime.pcHeader` and `functab` of the Go runtime, versions 1.2 to 1.15, 1.16 to 1.17, and 1.18 on.

use std::ops::Range;

use super::layout::Layout;

/// Which of the three layouts a table has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// `functab` follows the header at once, addresses are absolute.
    Go12,
    /// The header says where `functab` is, addresses are absolute.
    Go116,
    /// Addresses are 32-bit offsets from the start of the text.
    Go118,
}

/// All functions of a Go image in address order; empty for any other file.
pub(super) fn functions(layout: &Layout<'_>) -> Vec<Range<u64>> {
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    let Some((addr, table)) = names.iter().find_map(|name| layout.section(name)) else {
        return Vec::new();
    };
    read(layout, addr, table).unwrap_or_default()
}

fn read(layout: &Layout<'_>, addr: u64, table: &[u8]) -> Option<Vec<Range<u64>>> {
    let version = match u32_at(table, 0)? {
        0xffff_fffb => Version::Go12,
        0xffff_fffa => Version::Go116,
        0xffff_fff0 | 0xffff_fff1 => Version::Go118,
        _ => return None,
    };
    if table[4..].get(..4)? != [0, 0, 1, 8] {
        // Two bytes of zero, the instruction quantum (1 on x86), the pointer size.
        return None;
    }
    let count = usize::try_from(u64_at(table, 8)?).ok()?;
    let (start, base) = match version {
        Version::Go12 => (16, 0),
        Version::Go116 => (usize::try_from(u64_at(table, 56)?).ok()?, 0),
        Version::Go118 => (
            usize::try_from(u64_at(table, 64)?).ok()?,
            text_start(layout, addr, table)?,
        ),
    };
    let (entry_bytes, address_bytes) = if version == Version::Go118 { (8, 4) } else { (16, 8) };
    // `count` entries and the end address of the last.
    let bytes = count.checked_mul(entry_bytes)?.checked_add(address_bytes)?;
    let entries = table.get(start..start.checked_add(bytes)?)?;
    let address = |index: usize| {
        let at = index * entry_bytes;
        let value = if version == Version::Go118 {
            u64::from(u32_at(entries, at)?)
        } else {
            u64_at(entries, at)?
        };
        base.checked_add(value)
    };
    (0..count)
        .map(|index| Some(address(index)?..address(index + 1)?))
        .collect()
}

/// Where the addresses of a 1.18 table count from. Position-independent images and newer linkers leave the header's
/// field zero: then a symbol, the field's relocation, or the start of `.text` says it.
fn text_start(layout: &Layout<'_>, addr: u64, table: &[u8]) -> Option<u64> {
    const FIELD: usize = 24;
    let stated = u64_at(table, FIELD)?;
    if stated != 0 {
        return Some(stated);
    }
    let mut symbol = None;
    layout.for_each_function(|name, value, _| {
        if name == b"runtime.text" {
            symbol = Some(value);
        }
    });
    let relocated = || layout.relative_addend(addr.checked_add(FIELD as u64)?);
    // Linked with C code, `.text` starts with that; its frame information gives it away.
    let section = || match layout.section(".eh_frame") {
        None => layout.section(".text").map(|(start, _)| start),
        Some(_) => None,
    };
    symbol.or_else(relocated).or_else(section)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
