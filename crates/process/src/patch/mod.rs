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
//! What is not seen: code that computes addresses in its own text by other means, code that reads its own bytes,
//! branches with a short displacement from one function into the middle of another that is not next to it within reach.

#![deny(unsafe_code)]

mod code;
mod functions;
mod gopclntab;
mod layout;
mod rules;
mod targets;
#[cfg(test)]
mod tests;
mod trampoline;
mod unbounded;

use std::ops::Range;

use memchr::memmem;

use code::Body;
use functions::Function;
use layout::{Layout, PAGE_BYTES};
use rules::{Plan, Rule, Sites};
use targets::{SHORT_REACH, Targets};
use trampoline::Trampolines;
use unbounded::Pair;

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
pub const ABI: &str = "\
At the jump through %gs:0: rax = system call number; rdi, rsi, rdx, r10, r8, r9 = arguments; rcx = address to resume at; \
r11 = scratch; rsp, flags and all other registers as at a `syscall` instruction there. \
The two bytes before the address in rcx are always a `syscall` instruction: with R1 and R3 the original one, with R3b and R2 a copy in \
the trampoline. So `rip = rcx - 2` with rax = number restarts the call, through SIGSYS, as it does on bare Linux. \
Trampolines read and write no memory but what the moved instructions do, and use no stack. \
They may be mapped anywhere as long as their distance to the image is as the file's addresses say.";

/// The result of [`analyse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// Bytes to replace: offset in the file and new bytes, ascending, disjoint, all in executable segments.
    pub text: Vec<(u64, Vec<u8>)>,
    /// Machine code to map at `trampoline_vaddr`, readable and executable; empty if nothing was patched.
    pub trampolines: Vec<u8>,
    /// Where the trampolines belong, in the file's own virtual addresses (add the load bias): page aligned, one
    /// unmapped page above the end of the image.
    pub trampoline_vaddr: u64,
    /// How many sites were patched, and how.
    pub stats: Stats,
}

/// Counts of system call sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

impl Stats {
    /// Sites patched by any rule.
    pub fn patched(&self) -> u32 {
        self.r1 + self.r3 + self.r3b + self.r2
    }

    fn count(&mut self, rule: Option<Rule>) {
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
    }
    Ok(patcher.finish())
}

/// Bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

struct Patcher<'a> {
    layout: &'a Layout<'a>,
    trampolines: Trampolines,
    trampoline_vaddr: u64,
    text: Vec<(u64, Vec<u8>)>,
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
            stats: Stats::default(),
        }
    }

    fn run(&mut self) {
        let candidates = candidates(self.layout);
        if candidates.is_empty() {
            return;
        }
        let functions = functions::find(self.layout);
        let mut targets = Targets::new(&self.layout.code);
        let (with_sites, mut unbounded) = assign(&candidates, &functions);
        let mut bodies = Bodies {
            layout: self.layout,
            functions: &functions,
            seen: vec![false; functions.len()],
        };
        let bodies: Vec<(usize, Option<Body>)> = with_sites
            .into_iter()
            .map(|index| (index, bodies.decode(index, &mut targets)))
            .collect();
        let undecoded = |addr: &u64| {
            let within =
                |(index, body): &(usize, Option<Body>)| body.is_none() && functions[*index].range.contains(addr);
            bodies.iter().any(within)
        };
        unbounded.extend(candidates.iter().copied().filter(undecoded));
        let pairs: Vec<Pair> = unbounded
            .into_iter()
            .filter_map(|addr| unbounded::pair_at(self.layout, addr))
            .collect();
        let has_site = |(_, body): &(usize, Option<Body>)| body.as_ref().is_some_and(Body::has_site);
        if pairs.is_empty() && !bodies.iter().any(has_site) {
            return;
        }
        targets.scan(self.layout);
        for (index, body) in &bodies {
            if let Some(body) = body {
                self.patch_function(body, functions[*index].landing_pads, &targets);
            }
        }
        for pair in &pairs {
            self.patch_pair(pair, &targets);
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
            self.stats.count(rule);
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
        self.stats.count(rule);
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
        Patched {
            text: self.text,
            trampolines: self.trampolines.into_bytes(),
            trampoline_vaddr: self.trampoline_vaddr,
            stats: self.stats,
        }
    }
}

/// Addresses in the code where the bytes of a `syscall` stand, ascending; most are no instructions.
fn candidates(layout: &Layout<'_>) -> Vec<u64> {
    let finder = memmem::Finder::new(&SYSCALL);
    let of_range = |range: &Range<u64>| {
        let bytes = layout.bytes(range.clone()).unwrap_or_default();
        finder
            .find_iter(bytes)
            .map(|at| range.start + at as u64)
            .collect::<Vec<_>>()
    };
    layout.code.iter().flat_map(of_range).collect()
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

/// Decodes functions, adding what they and their neighbours jump to.
struct Bodies<'a> {
    layout: &'a Layout<'a>,
    functions: &'a [Function],
    /// Functions whose jumps are among the targets already.
    seen: Vec<bool>,
}

impl Bodies<'_> {
    /// The body of function `index`, after adding its own jumps and the short ones of all code within their reach.
    fn decode(&mut self, index: usize, targets: &mut Targets) -> Option<Body> {
        let range = self.functions[index].range.clone();
        let body = code::decode(self.layout.bytes(range.clone())?, range.start)?;
        body.targets.iter().for_each(|&target| {
            targets.add(target);
        });
        self.seen[index] = true;
        self.add_before(index, targets);
        self.add_after(index, targets);
        Some(body)
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
            Some(body) => {
                self.seen[index] = true;
                body.targets.iter().for_each(|&target| {
                    targets.add(target);
                });
            }
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
