//! The report about a program that dies of a fault.

use std::fmt::Write;

use windtunnel_base::SimTime;
use windtunnel_kernel::{ProgramFault, abi};
use windtunnel_process::Frame;

/// Bits of the error code of an x86 page fault (Intel SDM vol. 3, 4.7).
const ERROR_WRITE: u32 = 1 << 1;
const ERROR_FETCH: u32 = 1 << 4;

/// Who, when, by what, registers and call chain; the first line says the most important.
pub fn fault_report(fault: &ProgramFault, pid: u64, now_ns: u64, frames: &[Frame]) -> String {
    let mut text = format!(
        "`{}` (pid {pid}) was ended by {} at {}: {}",
        fault.comm,
        signal_name(fault.signo),
        SimTime(now_ns),
        cause(fault),
    );
    if let Some(first) = frames.first() {
        // Writing to a string does not fail.
        let _ = write!(text, " in {first}");
    }
    for line in registers(&fault.regs) {
        let _ = write!(text, "\n  {line}");
    }
    for (number, frame) in frames.iter().enumerate() {
        let _ = write!(text, "\n  #{number} {frame}");
    }
    text
}

/// Of a program that is ended because it computed for too long: what happened in one line, and all there is to know.
pub fn too_long_report(
    comm: &str,
    pid: u64,
    now_ns: u64,
    after_s: u64,
    regs: &abi::Regs,
    frames: &[Frame],
) -> (String, String) {
    let mut head = format!(
        "`{comm}` (pid {pid}) was ended at {}: it computed for {after_s} s of CPU time without a system call",
        SimTime(now_ns),
    );
    if let Some(first) = frames.first() {
        // Writing to a string does not fail.
        let _ = write!(head, " in {first}");
    }
    let mut text = head.clone();
    for line in registers(regs) {
        let _ = write!(text, "\n  {line}");
    }
    for (number, frame) in frames.iter().enumerate() {
        let _ = write!(text, "\n  #{number} {frame}");
    }
    text.push_str("\n  hint: with `preempt: auto` in the scenario's `run` it would go on, by the host's clock");
    (head, text)
}

/// "SIGSEGV" and the like.
pub fn signal_name(signo: u32) -> String {
    match signo as i32 {
        libc::SIGSEGV => "SIGSEGV".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGILL => "SIGILL".into(),
        libc::SIGTRAP => "SIGTRAP".into(),
        other => format!("signal {other}"),
    }
}

fn cause(fault: &ProgramFault) -> String {
    match fault.signo as i32 {
        libc::SIGSEGV | libc::SIGBUS if fault.address == 0 && fault.error == 0 && fault.regs.rip != 0 => {
            "an access it must not make".into()
        }
        libc::SIGSEGV | libc::SIGBUS => {
            let what = match fault.error {
                error if error & ERROR_FETCH != 0 => "a jump to",
                error if error & ERROR_WRITE != 0 => "a write to",
                _ => "a read of",
            };
            format!("{what} {:#x}", fault.address)
        }
        libc::SIGFPE => "a division or other arithmetic that has no result".into(),
        libc::SIGILL => "an instruction that does not exist".into(),
        _ => "a trap".into(),
    }
}

fn registers(regs: &abi::Regs) -> Vec<String> {
    let rows = [
        [
            ("rip", regs.rip),
            ("rsp", regs.rsp),
            ("rbp", regs.rbp),
            ("rfl", regs.rflags),
        ],
        [
            ("rax", regs.rax),
            ("rbx", regs.rbx),
            ("rcx", regs.rcx),
            ("rdx", regs.rdx),
        ],
        [("rsi", regs.rsi), ("rdi", regs.rdi), ("r8 ", regs.r8), ("r9 ", regs.r9)],
        [
            ("r10", regs.r10),
            ("r11", regs.r11),
            ("r12", regs.r12),
            ("r13", regs.r13),
        ],
    ];
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| row.map(|(name, value)| format!("{name} {value:016x}")).join("  "))
        .collect();
    lines.push(format!("r14 {:016x}  r15 {:016x}", regs.r14, regs.r15));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_it_all() {
        let fault = ProgramFault {
            regs: abi::Regs::default(),
            signo: libc::SIGSEGV as u32,
            address: 8,
            error: 6,
            comm: "prog".into(),
        };
        let frame = Frame {
            address: 0x1000,
            file: Some(("/opt/prog".into(), 0x10)),
            symbol: Some("main+0x4".into()),
        };
        let text = fault_report(&fault, 7, 1_500_000_000, &[frame]);
        assert_eq!(
            text.lines().next(),
            Some("`prog` (pid 7) was ended by SIGSEGV at 1.500000000s: a write to 0x8 in main+0x4 (/opt/prog+0x10)")
        );
        assert!(text.contains("\n  rip 0000000000000000  rsp "), "{text}");
        assert!(text.ends_with("\n  #0 main+0x4 (/opt/prog+0x10)"), "{text}");
    }
}
