//! Which addresses of the code something may jump to: a superset, found without trusting any decode.
//!
//! A direct branch with a 32-bit displacement ends in a known opcode and that displacement, wherever its
//! instruction starts; so looking at every byte of the code finds all of them, also those from code of unknown bounds.
//! The same holds for the address of a label (`lea`), for absolute addresses in code and data, and for
//! tables of displacements as compilers emit them for `switch`. False hits only cost a patch.
//! Short branches reach 128 bytes and are too many to guess at: see [`Targets::add_short_branches`].

use std::ops::Range;

use super::layout::{Layout, Segment};

/// Farthest distance in bytes from the start of a short branch to its target.
pub(super) const SHORT_REACH: u64 = 130;

/// Entries looked at of one table of displacements. Functions that use one get single-instruction patches only; this
/// look at the tables is for parts of them placed elsewhere.
const TABLE_ENTRIES_MAX: u64 = 512;

/// First opcode bytes of the instructions that [`Targets::scan`] looks for in code.
const STARTS_REFERENCE: [bool; 256] = {
    let mut table = [false; 256];
    table[0xe8] = true;
    table[0xe9] = true;
    table[0x0f] = true;
    table[0xc7] = true;
    table[0x8d] = true;
    table
};

/// A set of code addresses: one bit per byte of code.
pub(super) struct Targets {
    areas: Vec<Area>,
}

struct Area {
    range: Range<u64>,
    bits: Vec<u64>,
}

impl Targets {
    /// An empty set over these disjoint, sorted ranges.
    pub fn new(code: &[Range<u64>]) -> Self {
        let words = |range: &Range<u64>| (range.end - range.start).div_ceil(64) as usize;
        let area = |range: &Range<u64>| Area {
            range: range.clone(),
            bits: vec![0; words(range)],
        };
        Self {
            areas: code.iter().map(area).collect(),
        }
    }

    /// Adds all targets of branches with a long displacement, all code addresses that code and data mention.
    pub fn scan(&mut self, layout: &Layout<'_>) {
        for segment in &layout.segments {
            let Some(bytes) = layout.bytes(segment.range()) else {
                continue;
            };
            if segment.exec {
                self.add_code(layout, segment, bytes);
            }
            self.add_words(segment.vaddr, bytes);
        }
    }

    fn index(&self, addr: u64) -> Option<(usize, usize, u32)> {
        let area = self.areas.partition_point(|area| area.range.end <= addr);
        let bit = addr.checked_sub(self.areas.get(area)?.range.start)?;
        Some((area, (bit / 64) as usize, (bit % 64) as u32))
    }

    /// Adds `addr` if it is code; says whether it is.
    pub fn add(&mut self, addr: u64) -> bool {
        let Some((area, word, bit)) = self.index(addr) else {
            return false;
        };
        self.areas[area].bits[word] |= 1 << bit;
        true
    }

    /// Whether something may jump to `addr`.
    pub fn contains(&self, addr: u64) -> bool {
        self.index(addr)
            .is_some_and(|(area, word, bit)| self.areas[area].bits[word] >> bit & 1 != 0)
    }

    /// Whether something may jump to any address in `range`.
    pub fn any_in(&self, range: Range<u64>) -> bool {
        range.into_iter().any(|addr| self.contains(addr))
    }

    /// Adds the targets of all byte sequences in `bytes`, at `start`, that could be a short branch.
    pub fn add_short_branches(&mut self, bytes: &[u8], start: u64) {
        for (index, pair) in bytes.windows(2).enumerate() {
            if let 0x70..=0x7f | 0xe0..=0xe3 | 0xeb = pair[0] {
                let next = start + index as u64 + 2;
                self.add(next.wrapping_add_signed(i64::from(pair[1] as i8)));
            }
        }
    }

    fn add_code(&mut self, layout: &Layout<'_>, segment: &Segment, bytes: &[u8]) {
        let at = |index: usize| segment.vaddr + index as u64;
        for (index, window) in bytes.windows(5).enumerate() {
            // Most bytes start nothing of interest: one look at a table is faster than the cases below.
            if !STARTS_REFERENCE[usize::from(window[0])] {
                continue;
            }
            // Opcode bytes before the displacement; `call`, `jmp`, `jcc`, `xbegin`, `lea` relative to rip.
            let opcode = match (window[0], window[1]) {
                (0xe8 | 0xe9, _) => 1,
                (0x0f, 0x80..=0x8f) | (0xc7, 0xf8) => 2,
                (0x8d, modrm) if modrm & 0xc7 == 0x05 => 2,
                _ => continue,
            };
            let Some(displacement) = i32_at(bytes, index + opcode) else {
                continue;
            };
            let target = at(index + opcode + 4).wrapping_add_signed(i64::from(displacement));
            if !self.add(target) && window[0] == 0x8d {
                self.add_table(layout, target);
            }
        }
        if layout.fixed_address {
            self.add_absolute(bytes);
        }
    }

    /// Adds the 32-bit constants of position-dependent code that are code addresses.
    fn add_absolute(&mut self, bytes: &[u8]) {
        let Some(span) = self.span() else { return };
        for word in bytes.windows(4) {
            let value = u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            if span.contains(&value) {
                self.add(value);
            }
        }
    }

    /// Adds the aligned 64-bit words that are code addresses: pointers, addends of relocations, symbol values.
    fn add_words(&mut self, start: u64, bytes: &[u8]) {
        let Some(span) = self.span() else { return };
        let skip = (start.next_multiple_of(8) - start) as usize;
        for word in bytes.get(skip..).unwrap_or_default().chunks_exact(8) {
            let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if span.contains(&value) {
                self.add(value);
            }
        }
    }

    /// Adds the entries of a table of 32-bit displacements from its own start, if there is one at `table`.
    fn add_table(&mut self, layout: &Layout<'_>, table: u64) {
        let Some(bytes) = layout.bytes_from(table) else { return };
        for entry in 0..TABLE_ENTRIES_MAX {
            let Some(displacement) = i32_at(bytes, entry as usize * 4) else {
                return;
            };
            if !self.add(table.wrapping_add_signed(i64::from(displacement))) {
                return;
            }
        }
    }

    fn span(&self) -> Option<Range<u64>> {
        Some(self.areas.first()?.range.start..self.areas.last()?.range.end)
    }
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_areas_and_nothing_else() {
        let mut targets = Targets::new(&[0x1000..0x1041, 0x2000..0x2001]);
        for addr in [0x1000, 0x1040, 0x2000] {
            assert!(!targets.contains(addr));
            assert!(targets.add(addr));
            assert!(targets.contains(addr));
        }
        for addr in [0, 0xfff, 0x1041, 0x1fff, 0x2001, u64::MAX] {
            assert!(!targets.add(addr));
            assert!(!targets.contains(addr));
        }
        assert!(targets.any_in(0x103f..0x1041));
        assert!(!targets.any_in(0x103f..0x1040));
    }

    #[test]
    fn short_branches_go_both_ways() {
        let mut targets = Targets::new(&[0x1000..0x1100, 0x2000..0x2001]);
        targets.add_short_branches(&[0x90, 0xeb, 0x10, 0x74, 0xfb], 0x1010);
        assert!(targets.contains(0x1023), "jmp +0x10 from 0x1013");
        assert!(targets.contains(0x1010), "je -5 from 0x1015");
    }
}
