//! Names for code addresses of an image, for reports.

use std::path::Path;

use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// Function symbols of an image, sorted by address.
#[derive(Debug)]
pub struct Symbols {
    /// Address relative to the base, size in bytes (0: unknown), name.
    functions: Vec<(u64, u64, Box<str>)>,
}

impl Symbols {
    /// The symbols of the file kept aside for debuggers, `<image>.debug`; None if there is no usable one.
    pub fn beside(image: &Path) -> Option<Self> {
        let mut name = image.as_os_str().to_owned();
        name.push(".debug");
        Self::of(&std::fs::read(name).ok()?)
    }

    /// The function symbols of an ELF file; None without any.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let mut functions: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?.into())))
            .collect();
        functions.sort_unstable();
        functions.dedup();
        (!functions.is_empty()).then_some(Self { functions })
    }

    /// `function+0xoffset` for an address relative to the base; None when no function is there.
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|(start, _, _)| *start <= address);
        let (start, size, name) = self.functions.get(after.checked_sub(1)?)?;
        let offset = address - start;
        // Hand-written assembly often has no size: take it up to the next symbol, within reason.
        let within = if *size == 0 { offset < 4096 } else { offset < *size };
        within.then(|| format!("{name}+{offset:#x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_offsets_and_end_with_their_function() {
        let symbols = Symbols {
            functions: vec![(0x10, 0x20, "tcp_v4_rcv".into()), (0x40, 0, "entry".into())],
        };
        assert_eq!(symbols.name(0x0f), None);
        assert_eq!(symbols.name(0x10).as_deref(), Some("tcp_v4_rcv+0x0"));
        assert_eq!(symbols.name(0x2f).as_deref(), Some("tcp_v4_rcv+0x1f"));
        assert_eq!(symbols.name(0x30), None, "the gap between two functions");
        assert_eq!(symbols.name(0x44).as_deref(), Some("entry+0x4"));
        assert_eq!(symbols.name(0x4000), None);
    }
}
