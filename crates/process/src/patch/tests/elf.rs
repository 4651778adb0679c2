//! The smallest ELF files that have what patching looks at.

use std::ops::Range;

/// Address of the first byte of [`TestElf::code`]; also its offset in the file.
pub const TEXT: u64 = 0x1000;
/// Address of the first byte of [`TestElf::data`]; also its offset in the file.
pub const DATA: u64 = 0x3000;
/// Where the trampolines of every such file are: one page of data, one page kept free.
pub const TRAMPOLINES: u64 = 0x5000;

/// A file to be: a text segment and a data segment.
#[derive(Clone, Debug, Default)]
pub struct TestElf {
    /// At most two pages of machine code.
    pub code: Vec<u8>,
    /// Functions, as offsets in the code, for the symbol table. None: a file without section headers.
    pub functions: Vec<Range<usize>>,
    /// At most a page of data.
    pub data: Vec<u8>,
    /// The text segment is writable.
    pub writable_text: bool,
    /// The data is a dynamic section.
    pub dynamic: bool,
}

impl TestElf {
    /// One function.
    pub fn function(code: &[u8]) -> Self {
        Self {
            code: code.to_vec(),
            functions: std::iter::once(0..code.len()).collect(),
            ..Self::default()
        }
    }

    /// The bytes of the file.
    pub fn build(&self) -> Vec<u8> {
        assert!(self.code.len() as u64 <= DATA - TEXT && self.data.len() <= 0x1000);
        let mut file = vec![0; 64];
        self.program_headers(&mut file);
        file.resize(TEXT as usize, 0);
        file.extend(&self.code);
        file.resize(DATA as usize, 0);
        file.extend(&self.data);
        file.resize(DATA as usize + 0x1000, 0);
        let sections_at = if self.functions.is_empty() {
            0
        } else {
            self.sections(&mut file)
        };
        let section_count = if self.functions.is_empty() { 0 } else { 5 };
        let phdr_count = if self.dynamic { 3 } else { 2 };
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        put16(&mut header, &[3, 62]);
        put32(&mut header, &[1]);
        put64(&mut header, &[TEXT, 64, sections_at]);
        put32(&mut header, &[0]);
        put16(&mut header, &[64, 56, phdr_count, 64, section_count, 4]);
        file[..64].copy_from_slice(&header);
        file
    }

    fn program_headers(&self, file: &mut Vec<u8>) {
        let text_flags = if self.writable_text { 7 } else { 5 };
        let mut add = |kind: u32, flags: u32, at: u64, bytes: u64| {
            put32(file, &[kind, flags]);
            put64(file, &[at, at, at, bytes, bytes, 0x1000]);
        };
        add(1, text_flags, TEXT, self.code.len() as u64);
        add(1, 4, DATA, 0x1000);
        if self.dynamic {
            add(2, 4, DATA, self.data.len() as u64);
        }
    }

    /// Appends symbols, names and headers; the offset of the headers.
    fn sections(&self, file: &mut Vec<u8>) -> u64 {
        let symbols_at = file.len() as u64;
        file.extend([0; 24]);
        for function in &self.functions {
            put32(file, &[0]);
            file.extend([2, 0]);
            put16(file, &[1]);
            put64(file, &[TEXT + function.start as u64, function.len() as u64]);
        }
        let symbols = file.len() as u64 - symbols_at;
        let names_at = file.len() as u64;
        let names = b"\0.text\0";
        file.extend(names);
        file.resize(file.len().next_multiple_of(8), 0);
        let headers_at = file.len() as u64;
        let mut add = |name: u32, kind: u32, flags: u64, addr: u64, at: u64, bytes: u64, link: u32, entry: u64| {
            put32(file, &[name, kind]);
            put64(file, &[flags, addr, at, bytes]);
            put32(file, &[link, 1]);
            put64(file, &[8, entry]);
        };
        add(0, 0, 0, 0, 0, 0, 0, 0);
        add(1, 1, 6, TEXT, TEXT, self.code.len() as u64, 0, 0);
        add(0, 2, 0, 0, symbols_at, symbols, 3, 24);
        add(0, 3, 0, 0, names_at, names.len() as u64, 0, 0);
        add(0, 3, 0, 0, names_at, names.len() as u64, 0, 0);
        headers_at
    }
}

fn put16(to: &mut Vec<u8>, values: &[u16]) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn put32(to: &mut Vec<u8>, values: &[u32]) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn put64(to: &mut Vec<u8>, values: &[u64]) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
