//! A node's side of the calls its kernel makes: programs' memory and files go to the process host, the rest is noted
//! for the node to look at when the entry is over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use windtunnel_base::{ByteSize, SimTime};
use windtunnel_kernel::{FileName, Host, Verdict, abi, program_fault, program_name};
use windtunnel_process::{LimitMet, ProcessHost, table};
use windtunnel_results::{KernelLog, ResultsError};

use crate::faults::{fault_report, signal_name};
use crate::shared::Shared;

/// Kernel log kept for reports, lines.
const TAIL_LINES: usize = 20;
const ENOMEM: i64 = 12;
const ENOSPC: i64 = 28;
/// What a run says that the host was too small for.
const HOST_MEMORY: &str = "the host's memory, or that of the run's cgroup, is used up, so results depend on this host; give \
                           nodes less `program_memory` and `disk`, or the run more memory";
/// Faults of a node's programs that are reported in full; the rest is counted.
const FULL_REPORTS: u32 = 20;

/// A step in the life of a spawned program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessNews {
    /// What: `abi::PROC_*`.
    pub event: u32,
    /// The node's name for the program; 0: a program's own child.
    pub key: u64,
    /// Process id.
    pub pid: u64,
    /// Error number, wait status or signal, by event.
    pub value: u64,
}

/// Services of one node for its kernel.
#[derive(Debug)]
pub struct NodeHost {
    /// Memory and files of its programs.
    pub programs: ProcessHost,
    /// Virtual time of the entry, ns.
    pub now_ns: u64,
    pub(crate) number: u32,
    pub(crate) shared: Arc<Shared>,
    log: KernelLog,
    tail: LogTail,
    news: Vec<ProcessNews>,
    error: Option<ResultsError>,
    /// Memory calls that were refused or changed, by number and how, with the virtual time of the first, ns.
    notes: BTreeMap<(u32, &'static str), u64>,
    /// Faults of programs so far.
    faults: u32,
}

impl NodeHost {
    /// Host of node `number`, at time 0.
    pub fn new(number: u32, shared: Arc<Shared>, programs: ProcessHost, log: KernelLog) -> Self {
        Self {
            programs,
            now_ns: 0,
            number,
            shared,
            log,
            tail: LogTail::default(),
            news: Vec::new(),
            error: None,
            notes: BTreeMap::new(),
            faults: 0,
        }
    }

    /// Reports that process `pid` gets signal `signo` for a fault, while its memory is still there.
    fn program_fault(&mut self, pid: u64, signo: u64) {
        if signo == libc::SIGKILL as u64 {
            let name = program_name().unwrap_or_default();
            let text = format!(
                "`{name}` (pid {pid}) was ended by SIGKILL at {}: {HOST_MEMORY}",
                SimTime(self.now_ns)
            );
            return self.shared.warn(self.now_ns, "host_memory", Some(self.number), &text);
        }
        self.faults += 1;
        let text = match program_fault() {
            Some(fault) if self.faults <= FULL_REPORTS => {
                fault_report(&fault, pid, self.now_ns, &self.programs.backtrace(&fault.regs))
            }
            _ => format!("more programs were ended by {}", signal_name(signo as u32)),
        };
        self.shared.warn(self.now_ns, "program_fault", Some(self.number), &text);
    }

    /// Says so if a call was refused for one of the node's limits; passes its result on.
    #[inline]
    fn limited(&mut self, result: i64) -> i64 {
        if matches!(-result, ENOSPC | ENOMEM) {
            self.warn_of_limit();
        }
        result
    }

    fn warn_of_limit(&mut self) {
        if let Some(met) = self.programs.take_limit_met() {
            let (code, text) = limit_warning(&met);
            let program = program_name().unwrap_or_else(|| "a program".to_owned());
            self.shared
                .warn_of(self.now_ns, code, Some(self.number), Some(&program), &text);
        }
    }

    /// The log of the node's next kernel.
    ///
    /// # Errors
    /// When the end of this one cannot be written.
    pub fn next_log(&mut self) -> Result<KernelLog, ResultsError> {
        self.log.continued()
    }

    /// The last lines of the kernel log.
    pub fn log_tail(&self) -> String {
        self.tail.text()
    }

    /// What happened to programs since the last call, oldest first.
    #[inline]
    pub fn take_news(&mut self, into: &mut Vec<ProcessNews>) {
        into.append(&mut self.news);
    }

    /// Memory calls refused or changed: number and note, with the virtual time of the first, ns.
    pub fn take_notes(&mut self) -> BTreeMap<(u32, &'static str), u64> {
        std::mem::take(&mut self.notes)
    }

    /// The first failure to write the kernel log since the last call.
    #[inline]
    pub fn take_error(&mut self) -> Option<ResultsError> {
        self.error.take()
    }
}

/// The last lines of a text.
#[derive(Debug, Default)]
struct LogTail {
    lines: VecDeque<String>,
    /// Whether the last line still goes on.
    open: bool,
}

impl LogTail {
    fn append(&mut self, text: &[u8]) {
        for piece in String::from_utf8_lossy(text).split_inclusive('\n') {
            let line = piece.trim_end_matches('\n');
            match self.lines.back_mut() {
                Some(last) if self.open => last.push_str(line),
                _ => self.lines.push_back(line.to_owned()),
            }
            self.open = !piece.ends_with('\n');
            if self.lines.len() > TAIL_LINES {
                self.lines.pop_front();
            }
        }
    }

    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Host for NodeHost {
    fn console(&mut self, text: &[u8]) {
        self.shared.beat();
        self.tail.append(text);
        if let Err(error) = self.log.append(self.now_ns, text) {
            self.error.get_or_insert(error);
        }
    }

    fn panic(&mut self, text: &[u8]) {
        self.console(text);
        self.console(b"\n");
    }

    fn as_create(&mut self) -> i64 {
        self.shared.beat();
        self.programs.as_create()
    }

    fn as_fork(&mut self, space: u64) -> i64 {
        self.shared.beat();
        let result = self.programs.as_fork(space);
        self.limited(result)
    }

    fn as_destroy(&mut self, space: u64) {
        self.shared.beat();
        self.programs.as_destroy(space);
    }

    fn as_activate(&mut self, space: u64) {
        self.shared.beat();
        self.programs.as_activate(space);
    }

    fn exec_map(&mut self, space: u64, exec: &mut abi::Exec) -> i64 {
        self.shared.beat();
        let result = self.programs.exec_map(space, exec);
        self.limited(result)
    }

    fn mem_call(&mut self, space: u64, nr: u32, args: &[u64; 6], file: u64) -> i64 {
        self.shared.beat();
        let result = self.programs.mem_call(space, nr, args, file);
        if self.programs.has_notes() {
            for note in self.programs.take_notes() {
                self.notes.entry(note).or_insert(self.now_ns);
            }
        }
        if i64::from(nr) == libc::SYS_brk {
            // Its answer is never an error.
            self.warn_of_limit();
            return result;
        }
        self.limited(result)
    }

    fn as_key(&mut self, space: u64, address: u64, write: bool, out: &mut abi::MemKey) -> i64 {
        self.shared.beat();
        self.programs.as_key(space, address, write, out)
    }

    fn instruction(&mut self, space: u64, regs: &mut abi::Regs) -> i64 {
        self.shared.beat();
        self.programs.instruction(space, regs)
    }

    fn fs_lookup(&mut self, dir: u64, name: &[u8], out: &mut abi::FsAttr) -> i64 {
        self.shared.beat();
        self.programs.fs_lookup(dir, name, out)
    }

    fn fs_readdir(&mut self, dir: u64, index: u64, out: &mut abi::FsDirent) -> i64 {
        self.shared.beat();
        self.programs.fs_readdir(dir, index, out)
    }

    fn fs_readlink(&mut self, id: u64, buf: &mut [u8]) -> i64 {
        self.shared.beat();
        self.programs.fs_readlink(id, buf)
    }

    fn fs_open(&mut self, id: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_open(id)
    }

    fn fs_create(&mut self, from: u64, size: u64) -> i64 {
        self.shared.beat();
        let result = self.programs.fs_create(from, size);
        self.limited(result)
    }

    fn fs_read(&mut self, file: u64, user_buf: *mut u8, len: u64, offset: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_read(file, user_buf, len, offset)
    }

    fn fs_write(&mut self, file: u64, user_buf: *const u8, len: u64, offset: u64) -> i64 {
        self.shared.beat();
        let result = self.programs.fs_write(file, user_buf, len, offset);
        self.limited(result)
    }

    fn fs_truncate(&mut self, file: u64, size: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_truncate(file, size)
    }

    fn fs_size(&mut self, file: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_size(file)
    }

    fn fs_writers(&mut self, file: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_writers(file)
    }

    fn fs_release(&mut self, file: u64) {
        self.programs.fs_release(file);
    }

    fn fs_seek(&mut self, file: u64, offset: u64, whence: u32) -> i64 {
        self.shared.beat();
        self.programs.fs_seek(file, offset, whence)
    }

    fn fs_punch(&mut self, file: u64, offset: u64, len: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_punch(file, offset, len)
    }

    fn fs_storage(&mut self, file: u64) -> i64 {
        self.shared.beat();
        self.programs.fs_storage(file)
    }

    fn proc_event(&mut self, event: u32, key: u64, a: u64, b: u64) {
        self.shared.beat();
        if event == abi::PROC_FAULT {
            return self.program_fault(a, b);
        }
        self.news.push(ProcessNews {
            event,
            key,
            pid: a,
            value: b,
        });
    }

    fn look(&mut self, space: u64, look: &mut abi::Look, calls: u64) -> Verdict {
        self.judge(space, look, calls)
    }

    fn as_read(&mut self, space: u64, address: u64, buffer: *mut u8, len: u64) -> i64 {
        self.shared.beat();
        self.programs.as_read(space, address, buffer, len)
    }

    fn as_write(&mut self, space: u64, address: u64, buffer: *const u8, len: u64) -> i64 {
        self.shared.beat();
        self.programs.as_write(space, address, buffer, len)
    }

    fn as_map(&mut self, space: u64, address: u64, out: &mut abi::Map) -> i64 {
        self.shared.beat();
        self.programs.as_map(space, address, out)
    }

    fn fs_name(&mut self, file: u64, name: &FileName<'_>) {
        self.programs.fs_name(file, name);
    }

    fn unsupported(&mut self, nr: u32, _arg0: u64, comm: &[u8]) {
        self.shared.beat();
        let comm = String::from_utf8_lossy(comm);
        let comm = comm.trim_end_matches('\0');
        let (code, text) = match table::find(nr) {
            Some(call) if call.status == table::Status::Absent => return,
            Some(call) => (code_of(call.status), format!("called {}: {}", call.name, call.note)),
            None => ("unsupported_call", format!("made system call {nr}, which is not there")),
        };
        self.shared
            .warn_of(self.now_ns, code, Some(self.number), Some(comm), &text);
    }
}

/// Code and text of the warning that a program met a limit; the text goes on after its name.
fn limit_warning(met: &LimitMet) -> (&'static str, String) {
    match met {
        LimitMet::Memory(limit) => (
            "program_memory_full",
            format!(
                "got ENOMEM: the node's programs have all of its `program_memory`, {}; give it more if they need it",
                ByteSize(*limit)
            ),
        ),
        LimitMet::HostMemory => (
            "host_memory",
            format!("got ENOSPC, for files of its node take most of the memory: {HOST_MEMORY}"),
        ),
        LimitMet::Disk(limit) => (
            "disk_full",
            format!(
                "got ENOSPC: files written in the node take all of its `disk`, {}; give it more if they need it",
                ByteSize(*limit)
            ),
        ),
        LimitMet::Output(limit, name) => (
            "output_full",
            format!(
                "got ENOSPC: {name} has reached the run's `output_limit`, {}; raise it if all of that is wanted",
                ByteSize(*limit)
            ),
        ),
    }
}

/// The warning's code for a call of this status.
pub fn code_of(status: table::Status) -> &'static str {
    match status {
        table::Status::Refused | table::Status::Absent => "unsupported_call",
        table::Status::Partial | table::Status::Full => "partial_call",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_lines_whole() {
        let mut tail = LogTail::default();
        for number in 0..100 {
            tail.append(format!("line {number}").as_bytes());
            tail.append(b"!\n");
        }
        tail.append(b"Kernel pa");
        tail.append(b"nic");
        let text = tail.text();
        assert_eq!(text.lines().count(), TAIL_LINES);
        assert!(
            text.starts_with("line 81!\n") && text.ends_with("line 99!\nKernel panic"),
            "{text}"
        );
    }
}
