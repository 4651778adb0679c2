//! Call-site patching: lets a program's system calls jump to the entry code instead of trapping.
//!
//! [`analyse`] reads an x86-64 ELF file and says which bytes of its text to replace, and what machine code, the
//! trampolines, to map behind its image. It is a pure function of the file's bytes: same file, same result.
//!
//! Patching is only speed. Every site left alone, for whatever reason, traps through Syscall User Dispatch and does the
//! same, so all doubts are settled by leaving the site. A site is patched only if:
//!
//! - it is a `syscall` *instruction*: found by linear decode of a function whose bounds the file states (call frame
//!   information, Go's function table, symbols), all of which must make sense; or, outside all functions, is
//!   `mov $nr,%eax; syscall` and decodes from many places agree on it;
//! - its bytes are in one executable, unwritable segment that the loader does not relocate;
//! - nothing can jump into what is replaced, other than to its start. Known targets are a superset of: direct branches
//!   from anywhere in the code, addresses of labels, all code addresses in data, tables of displacements.
//!   Functions with an indirect jump (whose table might have been missed) or with exception landing pads have just
//!   one instruction replaced, never two: nobody jumps into the middle of an instruction;
//! - it is not `rt_sigreturn`: debuggers and unwinders find signal frames by its bytes.
//!
//! Reads of the time stamp counter are patched in the same way, where a function's bounds are known, and trap elsewhere.
//! Instructions that show the host's processor are replaced by others of the same length, which fault: [`instructions`]
//! has the table. That is more than speed, so those that may be one but are not surely are counted.
//!
//! What is not seen: code that computes addresses in its own text by other means, code that reads its own bytes,
//! branches with a short displacement from one function into the middle of another that is not next to it within reach.

#![deny(unsafe_code)]

mod code;
mod functions;
mod gopclntab;
mod instructions;
mod layout;
mod made;
mod rules;
mod targets;
#[cfg(test)]
mod tests;
mod trampoline;
mod unbounded;
mod vsyscall;

use std::ops::Range;

use memchr::{memchr_iter, memmem};
use serde::{Deserialize, Serialize};

use code::{Body, Kind};
use functions::Function;
pub use instructions::Seeing;
use layout::{Layout, PAGE_BYTES};
pub(crate) use made::{Replacement, in_made_code};
use rules::{Plan, Rule, Sites};
use targets::{SHORT_REACH, Targets};
use trampoline::Trampolines;
use unbounded::{Pair, Verdict};

/// What a trampoline does, and what it leaves to the entry code.
///
/// ```text
///         <relocated instructions that stood before the call>   R1, R3, R3b
///         lea   resume(%rip),%rcx
///         jmp   *%gs:0
///
///         syscall                                                R3b, R2: never reached from above
/// resume: <relocated instructions that stood after the call>     R2
///         jmp   <after the replaced bytes>                       R3b, R2
/// ```
///
/// For a read of the time stamp counter:
///
/// ```text
///         <relocated instructions that stood before it>
///         lea   resume(%rip),%rax
///         jmp   *%gs:clock_entry
/// resume: mov   $0,%ecx                                          rdtscp
///         <relocated instructions that stood after it>
///         jmp   <after the replaced bytes>
/// ```
pub const ABI: &str = "\
At the jump through %gs:0: rax = system call number; rdi, rsi, rdx, r10, r8, r9 = arguments; rcx = address to resume at; \
r11 = scratch; rsp, flags and all other registers as at a `syscall` instruction there. \
The two bytes before the address in rcx are always a `syscall` instruction: with R1 and R3 the original one, with R3b and R2 a copy in \
the trampoline. So `rip = rcx - 2` with rax = number restarts the call, through SIGSYS, as it does on bare Linux. \
Trampolines read and write no memory but what the moved instructions do, and use no stack. \
They may be mapped anywhere as long as their distance to the image is as the file's addresses say.";

/// The result of [`analyse`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patched {
    /// Bytes to replace: offset in the file and new bytes, ascending, disjoint, all in executable segments.
    pub text: Vec<(u64, Vec<u8>)>,
    /// Machine code to map at `trampoline_vaddr`, readable and executable; empty if nothing was patched.
    pub trampolines: Vec<u8>,
    /// Where the trampolines belong, in the file's own virtual addresses (add the load bias): page aligned, one
    /// unmapped page above the end of the image.
    pub trampoline_vaddr: u64,
    /// Where instructions that show the processor stood, as offsets of their first bytes in the file, ascending.
    pub seeing: Vec<(u64, Seeing)>,
    /// Those bytes, by offset, ascending.
    pub replaced: Vec<(u64, Vec<u8>)>,
    /// How many sites were patched, and how.
    pub stats: Stats,
}

impl Patched {
    /// Whether all that is to be replaced lies within a file of so many bytes.
    pub(crate) fn fits(&self, file_bytes: u64) -> bool {
        let mut changes = self.text.iter().chain(&self.replaced);
        let within = |(offset, bytes): &(u64, Vec<u8>)| {
            let end = offset.checked_add(bytes.len() as u64);
            end.is_some_and(|end| end <= file_bytes)
        };
        changes.all(within)
    }
}

/// Counts of system call sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// All `syscall` instructions found.
    pub sites: u32,
    /// Patched by replacing the `mov` of the number.
    pub r1: u32,
    /// Patched by moving instructions before the call.
    pub r3: u32,
    /// Patched by moving instructions before the call, and the call.
    pub r3b: u32,
    /// Patched by moving the call and instructions after it.
    pub r2: u32,
    /// Left to Syscall User Dispatch.
    pub left: u32,
    /// Reads of the time stamp counter, in functions of known bounds.
    pub counters: u32,
    /// Those of them that are patched.
    pub counters_patched: u32,
    /// Places that may hold an instruction that shows the processor, and were left alone.
    pub unsure: u32,
}

impl Stats {
    /// Sites patched by any rule.
    pub fn patched(&self) -> u32 {
        self.r1 + self.r3 + self.r3b + self.r2
    }

    fn count(&mut self, kind: Kind, rule: Option<Rule>) {
        if kind == Kind::Counter {
            self.counters += 1;
            self.counters_patched += u32::from(rule.is_some());
            return;
        }
        self.sites += 1;
        *match rule {
            Some(Rule::R1) => &mut self.r1,
            Some(Rule::R3) => &mut self.r3,
            Some(Rule::R3b) => &mut self.r3b,
            Some(Rule::R2) => &mut self.r2,
            None => &mut self.left,
        } += 1;
    }
}

/// Why a file cannot be analysed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It does not start with the ELF magic bytes.
    #[error("not an ELF file")]
    NotElf,
    /// Its class or byte order is another, or its header is cut short.
    #[error("not a complete 64-bit little-endian ELF file")]
    NotElf64,
    /// It is for another processor.
    #[error("ELF machine {found} is not x86-64 (62)")]
    Machine {
        /// `e_machine`.
        found: u16,
    },
    /// It is no program and no shared library.
    #[error("ELF type {found} is neither a program (2, 3) nor a shared library (3)")]
    Kind {
        /// `e_type`.
        found: u16,
    },
    /// A table contradicts the file or the address space.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

/// Finds the system call sites of an x86-64 ELF program or shared library and decides how to patch each.
///
/// # Errors
/// If `file` is not such a file. A file in which nothing can be patched is no error: the result is then empty.
pub fn analyse(file: &[u8]) -> Result<Patched, PatchError> {
    let layout = Layout::parse(file)?;
    let mut patcher = Patcher::new(&layout);
    if !layout.text_relocations {
        patcher.run();
        patcher.move_vsyscalls();
    }
    patcher.count_unpatchable();
    Ok(patcher.finish())
}

/// First byte of all instructions that are looked for, their prefixes aside.
const ESCAPE: u8 = 0x0f;

struct Patcher<'a> {
    layout: &'a Layout<'a>,
    trampolines: Trampolines,
    trampoline_vaddr: u64,
    text: Vec<(u64, Vec<u8>)>,
    seeing: Vec<(u64, Seeing)>,
    replaced: Vec<(u64, Vec<u8>)>,
    stats: Stats,
}

impl<'a> Patcher<'a> {
    fn new(layout: &'a Layout<'a>) -> Self {
        // One page is kept free: an overrun of the image's last array faults there, as it would without us.
        let trampoline_vaddr = layout.image_end + PAGE_BYTES;
        Self {
            layout,
            trampolines: Trampolines::new(trampoline_vaddr),
            trampoline_vaddr,
            text: Vec::new(),
            seeing: Vec::new(),
            replaced: Vec::new(),
            stats: Stats::default(),
        }
    }

    fn run(&mut self) {
        let candidates = candidates(self.layout);
        if candidates.is_empty() {
            return;
        }
        let functions = functions::find(self.layout);
        let (with_sites, mut unbounded) = assign(&candidates, &functions);
        let decode = |index: usize| {
            let range = functions[index].range.clone();
            let body = self
                .layout
                .bytes(range.clone())
                .and_then(|bytes| code::decode(bytes, range.start));
            (index, body)
        };
        let bodies: Vec<(usize, Option<Body>)> = with_sites.into_iter().map(decode).collect();
        unbounded.extend(within_undecoded(&candidates, &bodies, &functions));
        for insn in bodies
            .iter()
            .filter_map(|(_, body)| body.as_ref())
            .flat_map(|body| &body.insns)
        {
            if let Kind::Seeing(seeing) = insn.kind {
                self.replace(insn.addr, seeing);
            }
        }
        self.patch_unbounded_seeing(&unbounded);
        self.patch_sites(&functions, &bodies, unbounded);
    }

    /// Patches what is carried out in trampolines.
    fn patch_sites(&mut self, functions: &[Function], bodies: &[(usize, Option<Body>)], unbounded: Vec<u64>) {
        let pairs: Vec<Pair> = unbounded
            .into_iter()
            .filter_map(|addr| unbounded::pair_at(self.layout, addr))
            .collect();
        let with_site =
            |(index, body): &'_ (usize, Option<Body>)| body.as_ref().is_some_and(Body::has_site).then_some(*index);
        if pairs.is_empty() && !bodies.iter().any(|entry| with_site(entry).is_some()) {
            return;
        }
        let mut targets = Targets::new(&self.layout.code);
        let mut jumps = Jumps {
            layout: self.layout,
            functions,
            seen: vec![false; functions.len()],
        };
        for (index, body) in bodies {
            if let Some(body) = body {
                jumps.add(*index, body, &mut targets);
            }
        }
        for index in bodies.iter().filter_map(with_site) {
            jumps.add_around(index, &mut targets);
        }
        targets.scan(self.layout);
        for (index, body) in bodies {
            if let Some(body) = body {
                self.patch_function(body, functions[*index].landing_pads, &targets);
            }
        }
        for pair in &pairs {
            self.patch_pair(pair, &targets);
        }
    }

    /// Replaces those instructions of the table, at `addrs` in code of unknown bounds, that surely are some.
    fn patch_unbounded_seeing(&mut self, addrs: &[u64]) {
        for &addr in addrs {
            let Some(code) = self.layout.code_around(addr) else {
                continue;
            };
            let bytes = self.layout.bytes(code.clone()).unwrap_or_default();
            let at = (addr - code.start) as usize;
            if !instructions::may_start(&bytes[at..], &bytes[..at]) {
                continue;
            }
            match unbounded::seeing_at(bytes, at) {
                Verdict::Sure(start, seeing) => self.replace(code.start + start as u64, seeing),
                Verdict::Unsure => self.stats.unsure += 1,
                Verdict::Other => {}
            }
        }
    }

    /// Replaces an instruction that shows the processor.
    fn replace(&mut self, addr: u64, seeing: Seeing) {
        let opcode = addr + u64::from(seeing.prefixes);
        let end = self.layout.code_around(addr).map_or(addr, |code| code.end);
        let bytes = self.layout.bytes(opcode..end.min(opcode + 3)).unwrap_or_default();
        if let (Some(offset), Some(bytes)) = (self.layout.offset(addr..end), seeing.replacement(bytes)) {
            self.replaced.push((offset + u64::from(seeing.prefixes), bytes));
            if seeing.is_answered() {
                self.seeing.push((offset, seeing));
            }
        }
    }

    /// Changes the addresses of vsyscalls that code loads: the host's page would answer with the host's time.
    fn move_vsyscalls(&mut self) {
        for range in &self.layout.code {
            let bytes = self.layout.bytes(range.clone()).unwrap_or_default();
            for at in memmem::find_iter(bytes, &vsyscall::PAGE_BYTES) {
                if let (Some(at), Some(offset)) = (vsyscall::moved_byte(bytes, at), self.layout.offset(range.clone())) {
                    self.replaced.push((offset + at as u64, vec![vsyscall::MOVED]));
                }
            }
        }
    }

    /// Counts what looks like such an instruction in text that may change.
    fn count_unpatchable(&mut self) {
        let unpatchable = |segment: &&layout::Segment| segment.exec && (segment.write || self.layout.text_relocations);
        for segment in self.layout.segments.iter().filter(unpatchable) {
            let bytes = self.layout.bytes(segment.range()).unwrap_or_default();
            let seen = memchr_iter(ESCAPE, bytes).filter(|&at| instructions::may_start(&bytes[at..], &bytes[..at]));
            self.stats.unsure += seen.count() as u32;
        }
    }

    fn patch_function(&mut self, body: &Body, landing_pads: bool, targets: &Targets) {
        let sites = Sites {
            insns: &body.insns,
            targets,
            unknown_jumps: body.indirect_jump || landing_pads,
        };
        let mut floor = 0;
        for index in sites.indices() {
            let plan = sites.plan(index, floor);
            let rule = plan.and_then(|plan| self.apply(&plan));
            if let (Some(plan), Some(_)) = (plan, rule) {
                floor = plan.range().end;
            }
            self.stats.count(body.insns[index].kind, rule);
        }
    }

    /// Patches a site outside all functions: its `mov` or nothing.
    fn patch_pair(&mut self, pair: &Pair, targets: &Targets) {
        let sites = Sites {
            insns: pair,
            targets,
            unknown_jumps: true,
        };
        let rule = sites.plan(1, 0).and_then(|plan| self.apply(&plan));
        self.stats.count(Kind::Syscall, rule);
    }

    /// Carries a plan out; the rule if that was possible.
    fn apply(&mut self, plan: &Plan<'_>) -> Option<Rule> {
        let offset = self.layout.offset(plan.range())?;
        let bytes = self.trampolines.add(self.layout, plan)?;
        self.text.push((offset, bytes));
        Some(plan.rule)
    }

    fn finish(mut self) -> Patched {
        self.text.sort_unstable_by_key(|(offset, _)| *offset);
        self.seeing.sort_unstable_by_key(|(offset, _)| *offset);
        self.replaced.sort_unstable_by_key(|(offset, _)| *offset);
        Patched {
            text: self.text,
            trampolines: self.trampolines.into_bytes(),
            trampoline_vaddr: self.trampoline_vaddr,
            seeing: self.seeing,
            replaced: self.replaced,
            stats: self.stats,
        }
    }
}

/// Addresses in the code where the opcode of an instruction that is looked for may stand, ascending; most are none.
fn candidates(layout: &Layout<'_>) -> Vec<u64> {
    let of_range = |range: &Range<u64>| {
        let bytes = layout.bytes(range.clone()).unwrap_or_default();
        let may_start = |at: &usize| {
            let (before, bytes) = bytes.split_at(*at);
            let site = matches!(bytes, [_, 0x05 | 0x31, ..] | [_, 0x01, 0xf9, ..]);
            site || instructions::may_start(bytes, before)
        };
        memchr_iter(ESCAPE, bytes)
            .filter(may_start)
            .map(|at| range.start + at as u64)
            .collect::<Vec<_>>()
    };
    layout.code.iter().flat_map(of_range).collect()
}

/// Those of `candidates` that are in functions which do not decode.
fn within_undecoded(candidates: &[u64], bodies: &[(usize, Option<Body>)], functions: &[Function]) -> Vec<u64> {
    let undecoded = bodies.iter().filter(|(_, body)| body.is_none());
    let within = |(index, _): &(usize, Option<Body>)| {
        let range = &functions[*index].range;
        let first = candidates.partition_point(|&addr| addr < range.start);
        let last = candidates.partition_point(|&addr| addr < range.end);
        candidates[first..last].to_vec()
    };
    undecoded.flat_map(within).collect()
}

/// Splits candidates into the functions that hold some, by index, and those outside all functions, by address.
fn assign(candidates: &[u64], functions: &[Function]) -> (Vec<usize>, Vec<u64>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for &addr in candidates {
        let index = functions.partition_point(|f| f.range.end <= addr);
        if functions.get(index).is_some_and(|f| f.range.contains(&addr)) {
            if inside.last() != Some(&index) {
                inside.push(index);
            }
        } else {
            outside.push(addr);
        }
    }
    (inside, outside)
}

/// Collects what functions and their neighbours jump to.
struct Jumps<'a> {
    layout: &'a Layout<'a>,
    functions: &'a [Function],
    /// Functions whose jumps are among the targets already.
    seen: Vec<bool>,
}

impl Jumps<'_> {
    /// Adds the jumps of function `index`.
    fn add(&mut self, index: usize, body: &Body, targets: &mut Targets) {
        self.seen[index] = true;
        body.targets.iter().for_each(|&target| {
            targets.add(target);
        });
    }

    /// Adds the short jumps of all code within their reach of function `index`.
    fn add_around(&mut self, index: usize, targets: &mut Targets) {
        self.add_before(index, targets);
        self.add_after(index, targets);
    }

    fn add_before(&mut self, index: usize, targets: &mut Targets) {
        let start = self.functions[index].range.start;
        let low = self
            .layout
            .code_around(start)
            .map_or(start, |code| code.start.max(start.saturating_sub(SHORT_REACH)));
        let mut gap_end = start;
        for neighbour in (0..index).rev() {
            let range = self.functions[neighbour].range.clone();
            if range.end <= low {
                break;
            }
            self.add_gap(range.end..gap_end, targets);
            self.add_neighbour(neighbour, range.start.max(low)..range.end, targets);
            gap_end = range.start;
        }
        self.add_gap(low..gap_end, targets);
    }

    fn add_after(&mut self, index: usize, targets: &mut Targets) {
        let end = self.functions[index].range.end;
        let high = self
            .layout
            .code_around(end - 1)
            .map_or(end, |code| code.end.min(end + SHORT_REACH));
        let mut gap_start = end;
        for neighbour in index + 1..self.functions.len() {
            let range = self.functions[neighbour].range.clone();
            if range.start >= high {
                break;
            }
            self.add_gap(gap_start..range.start, targets);
            self.add_neighbour(neighbour, range.start..range.end.min(high), targets);
            gap_start = range.end;
        }
        self.add_gap(gap_start..high, targets);
    }

    /// Adds the jumps of a function nearby; if it does not decode, whatever looks like one in its part `near`.
    fn add_neighbour(&mut self, index: usize, near: Range<u64>, targets: &mut Targets) {
        if self.seen[index] {
            return;
        }
        let range = self.functions[index].range.clone();
        match self
            .layout
            .bytes(range.clone())
            .and_then(|bytes| code::decode(bytes, range.start))
        {
            Some(body) => self.add(index, &body, targets),
            None => self.add_gap(near, targets),
        }
    }

    /// Adds whatever looks like a short jump in code of unknown bounds.
    fn add_gap(&self, range: Range<u64>, targets: &mut Targets) {
        if range.start < range.end {
            let bytes = self.layout.bytes(range.clone()).unwrap_or_default();
            targets.add_short_branches(bytes, range.start);
        }
    }
}
