//! A program's memory with what it would write, kept apart.

use std::collections::HashMap;

use crate::sys::PAGE;

/// Address, and the bytes from there on.
pub(crate) type Write = (u64, Vec<u8>);

/// A page of a program as it is.
pub(crate) struct Page {
    /// What it holds.
    pub bytes: Box<[u8; PAGE as usize]>,
    /// Whether the program may read it.
    pub read: bool,
    /// Whether it may write it.
    pub write: bool,
    /// Whether it may run it.
    pub exec: bool,
    /// Whether others, or another address of its own, see what it writes here.
    pub shared: bool,
}

/// Where pages come from.
pub(crate) trait Pages {
    /// The page at `address`, a multiple of the page size; none where the program has nothing.
    fn page(&mut self, address: u64) -> Option<Page>;
}

/// The memory, changing.
pub(super) struct Memory<'a> {
    pages: &'a mut dyn Pages,
    known: HashMap<u64, Option<Page>>,
    /// What written bytes were before the first write.
    before: HashMap<u64, u8>,
    /// What bytes written since [`Memory::remember`] were then.
    remembered: HashMap<u64, u8>,
    /// How many of these are different now.
    different: usize,
}

impl<'a> Memory<'a> {
    pub fn new(pages: &'a mut dyn Pages) -> Self {
        Self {
            pages,
            known: HashMap::new(),
            before: HashMap::new(),
            remembered: HashMap::new(),
            different: 0,
        }
    }

    fn page(&mut self, address: u64) -> Option<&mut Page> {
        let start = address & !(PAGE - 1);
        let pages = &mut self.pages;
        self.known.entry(start).or_insert_with(|| pages.page(start)).as_mut()
    }

    fn readable(&mut self, address: u64) -> Option<u8> {
        let page = self.page(address).filter(|page| page.read)?;
        Some(page.bytes[(address % PAGE) as usize])
    }

    /// Reads up to 8 bytes; none where the program would fault.
    pub fn read(&mut self, address: u64, bytes: usize) -> Option<u64> {
        let offset = (address % PAGE) as usize;
        if offset + bytes <= PAGE as usize {
            let page = self.page(address).filter(|page| page.read)?;
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&page.bytes[offset..offset + bytes]);
            return Some(u64::from_le_bytes(value));
        }
        let mut value = 0;
        for at in 0..bytes as u64 {
            value |= u64::from(self.readable(address.checked_add(at)?)?) << (8 * at);
        }
        Some(value)
    }

    /// Writes up to 8 bytes; none where the program would fault, and where what it writes has effects that are not
    /// followed up: in memory that is also elsewhere, and in code.
    pub fn write(&mut self, address: u64, bytes: usize, value: u64) -> Option<()> {
        for at in 0..bytes as u64 {
            self.write_byte(address.checked_add(at)?, (value >> (8 * at)) as u8)?;
        }
        Some(())
    }

    fn write_byte(&mut self, address: u64, value: u8) -> Option<()> {
        let page = self.page(address).filter(|page| page.write)?;
        let byte = &mut page.bytes[(address % PAGE) as usize];
        let old = *byte;
        if old == value {
            return Some(());
        }
        if page.shared || page.exec {
            return None;
        }
        *byte = value;
        self.before.entry(address).or_insert(old);
        let then = *self.remembered.entry(address).or_insert(old);
        self.different -= usize::from(old != then);
        self.different += usize::from(value != then);
        Some(())
    }

    /// Up to 15 bytes of code at `address`, the longest instruction; fewer where it ends.
    pub fn code(&mut self, address: u64) -> Vec<u8> {
        let mut code = Vec::with_capacity(15);
        for at in 0..15 {
            let Some(address) = address.checked_add(at) else { break };
            let Some(page) = self.page(address).filter(|page| page.exec) else {
                break;
            };
            code.push(page.bytes[(address % PAGE) as usize]);
        }
        code
    }

    /// Remembers all memory as it is now.
    pub fn remember(&mut self) {
        self.remembered.clear();
        self.different = 0;
    }

    pub fn is_as_remembered(&self) -> bool {
        self.different == 0
    }

    /// Addresses of the bytes that were changed since [`Memory::remember`], ascending.
    pub fn written(&self) -> Vec<u64> {
        let mut written: Vec<u64> = self.remembered.keys().copied().collect();
        written.sort_unstable();
        written
    }

    /// What is at these addresses, which were written.
    pub fn values(&mut self, addresses: &[u64]) -> Vec<u8> {
        let byte = |&address| self.readable(address).unwrap_or_default();
        addresses.iter().map(byte).collect()
    }

    /// All that is not as it was at first: runs of bytes, ascending.
    pub fn changes(&mut self) -> Vec<Write> {
        let mut changed: Vec<(u64, u8)> = self.before.iter().map(|(&address, &old)| (address, old)).collect();
        changed.sort_unstable();
        let mut runs: Vec<Write> = Vec::new();
        for (address, old) in changed {
            let page = self.page(address).expect("it was written");
            let value = page.bytes[(address % PAGE) as usize];
            if value == old {
                continue;
            }
            match runs.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == address => bytes.push(value),
                _ => runs.push((address, vec![value])),
            }
        }
        runs
    }
}
