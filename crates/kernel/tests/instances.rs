//! The loader, entries and the ways a kernel can end, with an image that is not Linux but keeps to the boundary.

mod common;

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Notes, config, image, try_image};
use windtunnel_kernel::{
    Argument, Crash, CrashKind, Descriptor, Events, Frame, Instance, KernelError, Received, Request, SpawnSpec,
    ThreadContext, abi,
};

/// A booted instance; the caller has the thread's context.
fn booted() -> Instance<Notes> {
    Instance::boot(&image(), &config("quiet"), Notes::default()).unwrap()
}

fn frame(command: u8, len: usize) -> Frame {
    let mut bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
    bytes[0] = command;
    Frame::new(&bytes)
}

fn command(instance: &mut Instance<Notes>, now_ns: u64, command: u8) -> Result<(), Box<Crash>> {
    instance.enter(now_ns, &mut [Received::new(0, frame(command, 60))], Events::default())
}

#[test]
fn an_image_boots_relocated_with_zeroed_bss_and_its_memory() {
    let _context = ThreadContext::install().unwrap();
    let config = config("quiet");
    let instance = Instance::boot(&image(), &config, Notes::default()).unwrap();
    // The texts are found through pointers in data: every one was relocated.
    assert_eq!(instance.host().console, ["one", "two"]);
    assert_eq!(instance.release(), "6.12.0-fake");
    assert_eq!(instance.banner(), "Not Linux version 6.12.0-fake");
    assert_eq!(instance.next_timer(), Some(1_767_225_600));
    assert_eq!(instance.base(), config.base);
    let mut last = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(
        &std::fs::File::from(instance.ram().0.try_clone_to_owned().unwrap()),
        &mut last,
        config.ram_bytes - 8,
    )
    .unwrap();
    assert_eq!(
        u64::from_le_bytes(last),
        42,
        "what the kernel wrote to its memory is in the memfd"
    );
}

#[test]
fn a_sample_makes_room_for_all_records() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = Instance::boot(&image(), &config("quiet"), Notes::default()).unwrap();
    let mut records: Vec<windtunnel_kernel::abi::TcpSample> = Vec::new();
    for _ in 0..2 {
        instance.sample(&mut records).unwrap();
        let ports: Vec<u16> = records.iter().map(|record| record.ends.local_port).collect();
        assert_eq!(ports, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn rela_relocations_do_as_well_as_relr() {
    let _context = ThreadContext::install().unwrap();
    let image = try_image(&["-Wl,-z,nopack-relative-relocs"]).unwrap();
    let instance = Instance::boot(&image, &config("quiet"), Notes::default()).unwrap();
    assert_eq!(instance.host().console, ["one", "two"]);
}

#[test]
fn instances_of_one_image_share_nothing_writable() {
    let _context = ThreadContext::install().unwrap();
    let image = image();
    let mut instances: Vec<_> = (0..3)
        .map(|_| Instance::boot(&image, &config("quiet"), Notes::default()).unwrap())
        .collect();
    instances[1]
        .enter(
            5,
            &mut [],
            Events {
                tx_done: true,
                link: false,
            },
        )
        .unwrap();
    assert_eq!(instances[1].host().console, ["one", "two", "done"]);
    assert_eq!(instances.iter().map(|i| i.syscalls()).collect::<Vec<_>>(), [0, 1, 0]);
    let base = instances[0].base();
    drop(instances);
    let again = windtunnel_kernel::BootConfig {
        base,
        ..config("quiet")
    };
    Instance::boot(&image, &again, Notes::default()).expect("the addresses are free again");
}

#[test]
fn frames_come_back_byte_for_byte_and_in_order() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    let lengths = [60, 1514, 2048, 2049, 65_550];
    let mut rx: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(i, &len)| Received::new(i as u32 % 2, frame(b'e', len)))
        .collect();
    instance.enter(1, &mut rx, Events::default()).unwrap();
    assert_eq!(instance.drain_tx().len(), lengths.len());
    assert_eq!(instance.drain_tx().len(), 0, "a drain that is dropped has drained");

    instance.enter(2, &mut rx, Events::default()).unwrap();
    let sent: Vec<_> = instance.drain_tx().collect();
    for (i, (tx, rx)) in sent.iter().zip(&rx).enumerate() {
        assert_eq!(tx.frame.data(), rx.frame().data());
        assert_eq!((tx.nic, tx.irq), (i as u32 % 2, true));
    }
    assert_eq!(instance.next_timer(), None);
}

#[test]
fn more_frames_than_an_entry_holds_are_flushed_in_order() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    for round in 0..3 {
        command(&mut instance, round, b'm').unwrap();
        let numbers: Vec<_> = instance
            .drain_tx()
            .map(|tx| u16::from_le_bytes([tx.frame.data()[0], tx.frame.data()[1]]))
            .collect();
        assert_eq!(numbers, (0..2500).collect::<Vec<u16>>());
    }
}

#[test]
fn requests_run_in_order_and_own_their_memory() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    let text = |text: &str| CString::new(text).unwrap();
    let spawn = SpawnSpec {
        key: 9,
        path: text("/bin/ping"),
        argv: vec![text("ping"), text("10.0.0.2")],
        envp: vec![],
        cwd: text("/"),
        descriptors: [Descriptor::Null; 3],
        tty: false,
        uid: 1000,
        gid: 1000,
    };
    let write = Request::Syscall {
        nr: 5,
        args: vec![Argument::Value(1), Argument::Bytes(b"xyz".to_vec())],
    };
    assert_eq!(instance.submit(vec![Request::Spawn(spawn), write]), 0..2);
    assert!(instance.pop_completed().is_none());
    instance.enter(1, &mut [], Events::default()).unwrap();
    let (first, second) = (instance.pop_completed().unwrap(), instance.pop_completed().unwrap());
    assert!(instance.pop_completed().is_none());
    assert_eq!((first.id, first.result), (0, 1100));
    assert_eq!(instance.host().events, [(abi::PROC_STARTED, 9, 1100, 8)]);
    assert_eq!((second.id, second.result), (1, -5));
    let Request::Syscall { args, .. } = second.request else {
        panic!("another kind of request came back")
    };
    assert_eq!(args[1], Argument::Bytes(b"kyz".to_vec()));
}

#[test]
fn a_stopped_queue_tells_its_wish_once() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    command(&mut instance, 1, b'w').unwrap();
    assert_eq!(instance.nic(0).take_want(), Some(3));
    assert_eq!(instance.nic(0).take_want(), None);
    assert_eq!(instance.nic(1).take_want(), None);
}

#[test]
fn a_panic_ends_the_entry_with_a_report_and_only_that_instance() {
    let _context = ThreadContext::install().unwrap();
    let (mut instance, mut other) = (booted(), booted());
    let crash = command(&mut instance, 77, b'p').unwrap_err();
    assert_eq!(crash.kind, CrashKind::Panic);
    assert_eq!(
        (crash.message.as_str(), crash.comm.as_str()),
        ("Oops: made up", "fake-program")
    );
    assert_eq!((crash.pid, crash.now_ns), (7, 77));
    let first = crash.backtrace.first().unwrap();
    assert!(
        first.certain && first.name.as_ref().unwrap().starts_with("enter+"),
        "{crash}"
    );
    assert_eq!(instance.host().panics, ["Oops: made up"]);
    // x87 works: the stack that the kernel left behind is gone.
    assert_eq!(std::hint::black_box(2.0f64).sqrt(), std::f64::consts::SQRT_2);

    let again = command(&mut instance, 78, b'e').unwrap_err();
    assert_eq!(again.kind, CrashKind::CrashedBefore);
    command(&mut other, 78, b'e').unwrap();
    assert_eq!(other.drain_tx().len(), 1);
}

#[test]
fn a_panic_of_the_host_goes_around_the_kernel() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    let unwound = catch_unwind(AssertUnwindSafe(|| command(&mut instance, 1, b'h'))).unwrap_err();
    assert_eq!(unwound.downcast_ref::<&str>(), Some(&"no address spaces here"));
    assert!(!instance.host().console.contains(&"still here".to_owned()));
    assert_eq!(
        command(&mut instance, 2, b'e').unwrap_err().kind,
        CrashKind::CrashedBefore
    );
}

#[test]
fn a_boot_that_fails_says_how() {
    let _context = ThreadContext::install().unwrap();
    let image = image();
    let failed = |cmdline| match Instance::boot(&image, &config(cmdline), Notes::default()) {
        Ok(_) => panic!("it booted"),
        Err(error) => error,
    };
    assert!(matches!(failed("Enomem"), KernelError::Boot { errno: libc::ENOMEM }));
    let KernelError::Crash(crash) = failed("Panic") else {
        panic!("another error")
    };
    assert_eq!(crash.message, "cannot mount root");
}

#[test]
fn taken_addresses_are_an_error_with_a_hint() {
    let _context = ThreadContext::install().unwrap();
    let (image, config) = (image(), config("quiet"));
    let _first = Instance::boot(&image, &config, Notes::default()).unwrap();
    let Err(error) = Instance::boot(&image, &config, Notes::default()) else {
        panic!("it booted")
    };
    let text = error.to_string();
    assert!(text.starts_with("cannot map the kernel image at 0x"), "{text}");
    assert!(text.contains("\nhint: `windtunnel doctor`"), "{text}");
}

#[test]
#[should_panic(expected = "time goes back: 10 ns to 9 ns")]
fn time_never_goes_back() {
    let _context = ThreadContext::install().unwrap();
    let mut instance = booted();
    instance.enter(10, &mut [], Events::default()).unwrap();
    let _ = instance.enter(9, &mut [], Events::default());
}

#[test]
#[should_panic(expected = "on a thread without a context")]
fn a_thread_without_context_cannot_enter() {
    let _ = Instance::boot(&image(), &config("quiet"), Notes::default());
}

#[test]
fn images_that_need_more_than_relocation_are_refused() {
    let text = |more: &[&str]| try_image(more).unwrap_err().to_string();
    let hidden = text(&["-DEXPORT="]);
    assert!(hidden.contains("does not export `wt_kernel`"), "{hidden}");
    let libc = text(&["-Wl,--no-as-needed", "-lc"]);
    assert!(libc.contains("it needs other shared objects"), "{libc}");
}
