//! The memory calls, with Linux's checks in Linux's order (mm/mmap.c, mm/mprotect.c, mm/madvise.c of 6.12).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{FileMap, GUARD, Kind, LOW_END, Role, TASK_SIZE, Vma, Work, low, map_backing};
use crate::files::{Content, FdBudget, Shown};
use crate::patched::PatchedImage;
use crate::sys::{EXEC, HELD, PAGE, READ, WRITE};

/// Kept free after an ELF file for its trampolines, bytes; more than a file of the size of node needs.
const TRAMPOLINE_ROOM: u64 = 256 << 10;

/// What is noted of a mapping for which there is no place.
const NO_ADDRESSES: &str = "ENOMEM: not that many addresses are left of the node's room for programs";

const PROT_MASK: u64 = 7;
const PROT_SEM: u64 = 8;

/// Rounds up to whole pages; what does not fit 64 bits becomes 0, as in Linux.
pub(super) fn page_align(len: u64) -> u64 {
    len.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

impl Work<'_> {
    /// Carries out system call `nr`.
    pub(super) fn call(&mut self, nr: u32, args: &[u64; 6], content: Option<Arc<Content>>) -> Result<u64, Errno> {
        let [a, b, c, d, e, _] = *args;
        match i64::from(nr) {
            libc::SYS_mmap => self.mmap(args, content),
            libc::SYS_mprotect => self.mprotect(a, b, c).map(|()| 0),
            libc::SYS_munmap => self.munmap(a, b).map(|()| 0),
            libc::SYS_brk => Ok(self.brk(a)),
            libc::SYS_mremap => self.mremap(a, b, c, d, e),
            libc::SYS_madvise => self.madvise(a, b, c as i32).map(|()| 0),
            libc::SYS_msync => self.msync(a, b, c as i32).map(|()| 0),
            libc::SYS_mincore => self.mincore(a, b, c).map(|()| 0),
            libc::SYS_mlock | libc::SYS_munlock => self.mlock(a, b).map(|()| 0),
            libc::SYS_mlock2 if c & !1 != 0 => Err(Errno::INVAL),
            libc::SYS_mlock2 => self.mlock(a, b).map(|()| 0),
            libc::SYS_mlockall if a == 0 || a & !7 != 0 || a == 4 => Err(Errno::INVAL),
            libc::SYS_mlockall | libc::SYS_munlockall => Ok(0),
            _ => Err(Errno::NOSYS),
        }
    }

    fn mmap(&mut self, args: &[u64; 6], content: Option<Arc<Content>>) -> Result<u64, Errno> {
        let [address, len, prot, flags, may, offset] = *args;
        let flag = |bits: i32| flags & bits as u64 != 0;
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let content = if flag(libc::MAP_ANONYMOUS) {
            None
        } else {
            Some(content.ok_or(Errno::BADF)?)
        };
        if flag(libc::MAP_HUGETLB) {
            self.note(
                libc::SYS_mmap,
                "MAP_HUGETLB is refused with ENOMEM: there are no huge pages",
            );
            return Err(if content.is_some() { Errno::INVAL } else { Errno::NOMEM });
        }
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let len = page_align(len);
        if len == 0 || len > TASK_SIZE {
            return Err(Errno::NOMEM);
        }
        let fixed = flag(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
        if fixed {
            self.check_fixed(address, len, flag(libc::MAP_FIXED_NOREPLACE))?;
        }
        let prot = (prot & PROT_MASK) as u8;
        let kind = map_kind(content, flags, prot, may as u8, offset, len, &self.shared.fds)?;
        if let Kind::File(file) = &kind
            && flag(libc::MAP_ANONYMOUS)
            && !flag(libc::MAP_NORESERVE)
        {
            self.commit.share(&file.content, len);
        }
        let prot = self.held(prot, &kind);
        if fixed {
            self.map_with_text(
                address,
                Vma {
                    end: address + len,
                    prot,
                    kind,
                },
            )?;
            return Ok(address);
        }
        let room = match &kind {
            Kind::File(file) if !file.shared && offset == 0 && file.content.is_elf(&self.shared.fds) => TRAMPOLINE_ROOM,
            _ => 0,
        };
        let start = self.choose(address, len, room, flag(libc::MAP_32BIT))?;
        if room > 0 && self.space.tree.is_empty(start + len..start + len + room) {
            self.space.tree.insert(
                start + len,
                Vma {
                    end: start + len + room,
                    prot: 0,
                    kind: Kind::Gap { image: start },
                },
            );
        }
        self.map_with_text(
            start,
            Vma {
                end: start + len,
                prot,
                kind,
            },
        )?;
        Ok(start)
    }

    fn check_fixed(&mut self, address: u64, len: u64, no_replace: bool) -> Result<(), Errno> {
        if address > TASK_SIZE - len {
            return Err(Errno::NOMEM);
        }
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        if address < low::LOW_START {
            return Err(Errno::PERM);
        }
        let range = address..address + len;
        if !self.owns(&range) {
            // Elsewhere other programs, or the engine, may be: occupied, as far as this one can tell.
            self.note(
                libc::SYS_mmap,
                "MAP_FIXED outside the program's own addresses is refused",
            );
            return Err(if no_replace { Errno::EXIST } else { Errno::NOMEM });
        }
        if no_replace && !self.space.tree.is_free(range) {
            return Err(Errno::EXIST);
        }
        Ok(())
    }

    /// A place for a mapping without a fixed address: the hint if that is free, else the lowest that fits.
    fn choose(&mut self, hint: u64, len: u64, room: u64, low_2g: bool) -> Result<u64, Errno> {
        let hint = page_align(hint);
        if hint >= low::LOW_START && hint.checked_add(len + room).is_some() {
            let range = hint..hint + len + room;
            let heap = self.space.heap.start..self.space.heap.limit + GUARD;
            let near_heap = range.start < heap.end && heap.start < range.end;
            let inside = hint < LOW_END || self.space.areas.iter().any(|a| a.start <= hint && range.end <= a.end);
            if inside && !near_heap && self.owns(&range) && self.space.tree.is_empty(range) {
                return Ok(hint);
            }
        }
        if !low_2g {
            let found = self.find_place(len + room, PAGE);
            if found.is_err() {
                self.note(libc::SYS_mmap, NO_ADDRESSES);
            }
            return found;
        }
        let window = 0x4000_0000..0x8000_0000;
        let found = self
            .space
            .low
            .as_ref()
            .and_then(|_| self.space.tree.first_hole(window, len + room, PAGE));
        if found.is_none() {
            self.note(
                libc::SYS_mmap,
                "MAP_32BIT is refused with ENOMEM, but for programs linked to fixed addresses",
            );
        }
        found.ok_or(Errno::NOMEM)
    }

    /// Maps `vma`; executable parts of an ELF file come from its patched copy, with the trampolines after the image.
    fn map_with_text(&mut self, start: u64, mut vma: Vma) -> Result<(), Errno> {
        let end = vma.end;
        let Kind::File(file) = &mut vma.kind else {
            return self.map(start, vma);
        };
        if file.shared || file.touched || vma.prot & EXEC == 0 || !file.content.is_elf(&self.shared.fds) {
            return self.map(start, vma);
        }
        // What is no program, or cannot be analysed, is mapped as it is.
        if let Ok(image) = file.content.image(&self.shared.fds, &self.shared.images)
            && let Some(base) = image.bias(start, file.offset)
        {
            // Place the text first: it may replace what stood where the trampolines go.
            file.patched = Some(image.clone());
            self.map(start, vma.clone())?;
            if self.map_trampolines(&image, base, start..end) {
                return Ok(());
            }
            let Kind::File(file) = &mut vma.kind else {
                unreachable!("seen above")
            };
            file.patched = None;
            image.unpatched.store(true, Ordering::Relaxed);
        }
        self.map(start, vma)
    }

    /// Maps the trampolines of an image loaded at `base`, if their place is free; `text` is what needs them.
    pub(crate) fn map_trampolines(&mut self, image: &Arc<PatchedImage>, base: u64, text: std::ops::Range<u64>) -> bool {
        if image.trampolines_len == 0 {
            return true;
        }
        let Some(start) = base.checked_add(image.trampolines_vaddr) else {
            return false;
        };
        let range = start..start + image.trampolines_len;
        if !self.owns(&range) || range.start < text.end {
            return false;
        }
        if let Some((_, vma)) = self.space.tree.find(start)
            && matches!(vma.kind, Kind::Trampolines { image, .. } if image == base)
        {
            return true;
        }
        if self
            .space
            .tree
            .overlapping(range.clone())
            .any(|(_, vma)| !matches!(vma.kind, Kind::Gap { .. }))
        {
            return false;
        }
        self.space.tree.remove(range.clone());
        let vma = Vma {
            end: range.end,
            prot: READ | EXEC,
            kind: Kind::Trampolines {
                image: base,
                code: image.clone(),
            },
        };
        let mapped = self
            .at(start, |room, at| map_backing(self.shared, room, at, start, &vma))
            .is_ok();
        if mapped {
            self.space.tree.insert(start, vma);
        }
        mapped
    }

    fn munmap(&mut self, address: u64, len: u64) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE) || len > TASK_SIZE || address > TASK_SIZE - len || page_align(len) == 0 {
            return Err(Errno::INVAL);
        }
        self.unmap(address..address + page_align(len));
        Ok(())
    }

    fn mprotect(&mut self, address: u64, len: u64, prot: u64) -> Result<(), Errno> {
        let grows_down = prot & libc::PROT_GROWSDOWN as u64 != 0;
        let grows_up = prot & libc::PROT_GROWSUP as u64 != 0;
        let prot = prot & !((libc::PROT_GROWSDOWN | libc::PROT_GROWSUP) as u64);
        if grows_down && grows_up || !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        if len == 0 {
            return Ok(());
        }
        let end = address
            .checked_add(page_align(len))
            .filter(|&end| end > address)
            .ok_or(Errno::NOMEM)?;
        if prot & !(PROT_MASK | PROT_SEM) != 0 || grows_up {
            return Err(Errno::INVAL);
        }
        let prot = (prot & PROT_MASK) as u8;
        let (first, vma) = self.space.tree.find_visible(address).ok_or(Errno::NOMEM)?;
        if grows_down && !matches!(vma.kind, Kind::Anonymous(Role::Stack)) {
            return Err(Errno::INVAL);
        }
        // As in Linux, what lies before a hole is changed all the same.
        let mut at = if grows_down { first } else { address };
        while at < end {
            let (_, vma) = self.space.tree.find_visible(at).ok_or(Errno::NOMEM)?;
            let next = vma.end.min(end);
            self.protect_piece(at, next, prot)?;
            at = next;
        }
        Ok(())
    }

    /// Changes `start..end`, which lies in one mapping.
    fn protect_piece(&mut self, start: u64, end: u64, prot: u8) -> Result<(), Errno> {
        let (_, vma) = self.space.tree.find_visible(start).expect("seen by the caller");
        if let Kind::File(file) = &vma.kind {
            if prot & !file.may != 0 {
                return Err(Errno::ACCESS);
            }
            let fresh = !file.shared && !file.touched && file.patched.is_none();
            if prot & EXEC != 0 && vma.prot & EXEC == 0 && fresh && file.content.is_elf(&self.shared.fds) {
                let (_, mut piece) = self.space.tree.remove(start..end).pop().expect("within one mapping");
                piece.prot = prot;
                if let Kind::File(file) = &mut piece.kind {
                    file.touched = prot & WRITE != 0;
                }
                return self.map_with_text(start, piece);
            }
        }
        let prot = match vma.prot & EXEC {
            0 => self.held(prot, &vma.kind),
            // As it was: a part that nobody looked at stays so.
            _ if prot & EXEC != 0 => prot | vma.prot & HELD,
            _ => prot,
        };
        self.at(start, |room, at| room.protect(at, end - start, prot))?;
        let (_, mut piece) = self.space.tree.remove(start..end).pop().expect("within one mapping");
        piece.prot = prot;
        if let Kind::File(file) = &mut piece.kind {
            file.touched |= prot & WRITE != 0;
        }
        self.space.tree.insert(start, piece);
        Ok(())
    }

    /// Moves the program break; the new one, or the old if that cannot be.
    fn brk(&mut self, wanted: u64) -> u64 {
        let heap = self.space.heap;
        if wanted < heap.start || wanted > heap.limit {
            return heap.end;
        }
        let (old, new) = (page_align(heap.end), page_align(wanted));
        if new < old {
            self.unmap(new..old);
        } else if new > old {
            if !self.space.tree.is_empty(old..new) {
                return heap.end;
            }
            if !self.lengthen_heap(old, new) {
                let grown = Vma {
                    end: new,
                    prot: READ | WRITE,
                    kind: Kind::Anonymous(Role::Heap),
                };
                if self.map(old, grown).is_err() {
                    return heap.end;
                }
            }
        }
        self.space.heap.end = wanted;
        wanted
    }

    /// Makes the heap's last mapping longer, lest the tree grows with every `brk`; whether it could. The host's grows
    /// with it and is not joined by a second one, for what takes turns at its place must be of one piece in the host.
    fn lengthen_heap(&mut self, old: u64, new: u64) -> bool {
        let Some((start, vma)) = self.space.tree.find(old - 1) else {
            return false;
        };
        if start < LOW_END || vma.prot != READ | WRITE || !matches!(vma.kind, Kind::Anonymous(Role::Heap)) {
            return false;
        }
        if self.room.grow(start, old - start, new - start).is_err() {
            return false;
        }
        let (_, mut vma) = self.space.tree.remove(start..old).pop().expect("found above");
        vma.end = new;
        self.space.tree.insert(start, vma);
        true
    }

    fn madvise(&mut self, address: u64, len: u64, advice: i32) -> Result<(), Errno> {
        if !matches!(advice, 0..=4 | 8..=25 | 100 | 101) {
            return Err(Errno::INVAL);
        }
        if !address.is_multiple_of(PAGE) || (len != 0 && page_align(len) == 0) {
            return Err(Errno::INVAL);
        }
        let end = address.checked_add(page_align(len)).ok_or(Errno::INVAL)?;
        if end == address {
            return Ok(());
        }
        if matches!(advice, libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE) {
            return Err(Errno::PERM);
        }
        let pieces: Vec<(u64, Vma)> = self
            .space
            .tree
            .overlapping(address..end)
            .filter(|(_, v)| v.visible())
            .map(|(s, v)| (s, v.clone()))
            .collect();
        let mut at = address;
        let mut hole = false;
        for (start, vma) in pieces {
            hole |= start > at;
            let piece = start.max(address)..vma.end.min(end);
            self.advise_piece(piece.start, piece.end - piece.start, &vma, advice)?;
            at = vma.end;
        }
        if hole || at < end { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Advice that changes contents takes effect; the rest is only checked.
    fn advise_piece(&mut self, start: u64, len: u64, vma: &Vma, advice: i32) -> Result<(), Errno> {
        let shared = matches!(&vma.kind, Kind::File(file) if file.shared);
        let private_memory = matches!(vma.kind, Kind::Anonymous(_));
        let pass = match advice {
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => libc::MADV_DONTNEED,
            // When the host frees such pages would depend on its load: it does so now.
            libc::MADV_FREE if private_memory => libc::MADV_DONTNEED,
            libc::MADV_FREE | libc::MADV_WIPEONFORK if !private_memory => return Err(Errno::INVAL),
            libc::MADV_REMOVE if private_memory => return Err(Errno::INVAL),
            libc::MADV_REMOVE if !shared || vma.prot & WRITE == 0 => return Err(Errno::ACCESS),
            libc::MADV_REMOVE | libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => advice,
            _ => return Ok(()),
        };
        self.at(start, |room, at| room.advise(at, len, pass))
    }

    fn msync(&mut self, address: u64, len: u64, flags: i32) -> Result<(), Errno> {
        let all = libc::MS_ASYNC | libc::MS_INVALIDATE | libc::MS_SYNC;
        if flags & !all != 0
            || !address.is_multiple_of(PAGE)
            || flags & (all ^ libc::MS_INVALIDATE) == libc::MS_ASYNC | libc::MS_SYNC
        {
            return Err(Errno::INVAL);
        }
        let end = address.checked_add(page_align(len)).ok_or(Errno::NOMEM)?;
        self.check_mapped(address, end)
    }

    /// Says of every mapped page that it is in memory: which are is the host's affair.
    fn mincore(&mut self, address: u64, len: u64, vector: u64) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let end = address
            .checked_add(len)
            .filter(|&end| end <= TASK_SIZE)
            .ok_or(Errno::NOMEM)?;
        let end = page_align(end);
        self.check_mapped(address, end)?;
        self.shared.write_ones(vector, (end - address) / PAGE)
    }

    fn mlock(&mut self, address: u64, len: u64) -> Result<(), Errno> {
        let len = page_align(len.wrapping_add(address % PAGE));
        let start = address - address % PAGE;
        let end = start.checked_add(len).ok_or(Errno::INVAL)?;
        self.check_mapped(start, end)
    }

    fn check_mapped(&self, start: u64, end: u64) -> Result<(), Errno> {
        if self.space.tree.mapped_until(start..end) >= end {
            Ok(())
        } else {
            Err(Errno::NOMEM)
        }
    }
}

/// The kind of a new mapping, and the checks of its flags.
fn map_kind(
    content: Option<Arc<Content>>,
    flags: u64,
    prot: u8,
    may: u8,
    offset: u64,
    len: u64,
    fds: &FdBudget,
) -> Result<Kind, Errno> {
    const KNOWN: i32 = libc::MAP_TYPE
        | libc::MAP_FIXED
        | libc::MAP_ANONYMOUS
        | libc::MAP_DENYWRITE
        | libc::MAP_EXECUTABLE
        | libc::MAP_GROWSDOWN
        | libc::MAP_LOCKED
        | libc::MAP_NORESERVE
        | libc::MAP_POPULATE
        | libc::MAP_NONBLOCK
        | libc::MAP_STACK
        | libc::MAP_HUGETLB
        | libc::MAP_32BIT
        | libc::MAP_FIXED_NOREPLACE;
    let kind = flags as i32 & libc::MAP_TYPE;
    let shared = matches!(kind, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if !shared && kind != libc::MAP_PRIVATE {
        return Err(Errno::INVAL);
    }
    let Some(content) = content else {
        return match kind {
            libc::MAP_PRIVATE if flags & libc::MAP_NORESERVE as u64 != 0 => Ok(Kind::Anonymous(Role::Reserved)),
            libc::MAP_PRIVATE => Ok(Kind::Anonymous(Role::Mapped)),
            libc::MAP_SHARED if flags & libc::MAP_GROWSDOWN as u64 == 0 => {
                // A memory file, so that growing and doubling it with mremap is as for any file.
                let content = Content::memory_file("(shared memory)", len, fds)?;
                content.show_as(Shown {
                    ino: 1,
                    dev_major: 0,
                    dev_minor: 1,
                    path: (*b"/dev/zero (deleted)").into(),
                });
                Ok(Kind::File(FileMap {
                    content,
                    offset: 0,
                    shared: true,
                    may: READ | WRITE | EXEC,
                    touched: true,
                    patched: None,
                }))
            }
            _ => Err(Errno::INVAL),
        };
    };
    if kind == libc::MAP_SHARED_VALIDATE && flags & !(KNOWN as u64) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let never = if shared && !content.writable { WRITE } else { 0 };
    let may = may & (READ | WRITE | EXEC) & !never;
    if prot & !may != 0 {
        return Err(Errno::ACCESS);
    }
    if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::OVERFLOW);
    }
    Ok(Kind::File(FileMap {
        content,
        offset,
        shared,
        may,
        touched: prot & WRITE != 0,
        patched: None,
    }))
}
