//! A fault in kernel code ends the entry with a report, by way of the signal handlers; other instances go on.

#[path = "../../kernel/tests/common/mod.rs"]
mod common;

use common::{Notes, config, image};
use windtunnel_kernel::{CrashKind, Events, Frame, Instance, Received, ThreadContext};
use windtunnel_process::trap::TrapThread;

fn enter(instance: &mut Instance<Notes>, now_ns: u64, command: u8) -> Result<(), Box<windtunnel_kernel::Crash>> {
    instance.enter(
        now_ns,
        &mut [Received::new(0, Frame::new(&[command; 60]))],
        Events::default(),
    )
}

#[test]
fn a_fault_in_a_kernel_is_a_crash_of_that_instance() {
    let image = image();
    let _trap = TrapThread::install(ThreadContext::install().unwrap()).unwrap();
    let boot = || Instance::boot(&image, &config("quiet"), Notes::default()).unwrap();
    let (mut faulty, mut other) = (boot(), boot());
    for _ in 0..2 {
        enter(&mut other, 1, b'e').unwrap();
        assert_eq!(other.drain_tx().len(), 1);
    }

    let crash = enter(&mut faulty, 5, b'f').unwrap_err();
    assert_eq!(
        crash.kind,
        CrashKind::Fault {
            signo: libc::SIGSEGV as u32,
            code: 1,
            address: 0x18
        }
    );
    assert_eq!((crash.comm.as_str(), crash.pid, crash.now_ns), ("fake-program", 7, 5));
    let first = crash.backtrace.first().and_then(|frame| frame.name.as_deref());
    assert!(first.is_some_and(|name| name.starts_with("fault+")), "{crash}");
    assert!(!faulty.host().console.contains(&"still here".to_owned()));

    assert_eq!(enter(&mut faulty, 6, b'e').unwrap_err().kind, CrashKind::CrashedBefore);
    enter(&mut other, 6, b'e').unwrap();
    // A second crash on the same thread finds everything in place.
    let mut third = boot();
    assert!(matches!(
        enter(&mut third, 1, b'f').unwrap_err().kind,
        CrashKind::Fault { .. }
    ));
    // So does a kernel that jumps to nowhere.
    let mut fourth = boot();
    let lost = enter(&mut fourth, 1, b'j').unwrap_err();
    assert_eq!(lost.regs.rip, 0x20, "{lost}");
}
