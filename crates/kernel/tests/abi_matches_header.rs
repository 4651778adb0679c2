//! The bindings against the header itself: a C program that includes it prints every size, offset and constant.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use windtunnel_kernel::abi;

/// What one side says about one name: `struct.field offset size`, `struct size`, or `CONSTANT value`.
type Facts = Vec<String>;

fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Lists structs once, for both sides: the Rust facts are computed, the C statements are generated.
macro_rules! layouts {
    ($facts:ident, $c:ident: $($rust:ident = $tag:ident { $($field:ident),* })*) => {$(
        let tag = concat!("wt_", stringify!($tag));
        $facts.push(format!("{tag} {}", size_of::<abi::$rust>()));
        writeln!($c, r#"printf("{tag} %zu\n", sizeof(struct {tag}));"#).unwrap();
        $(
            let field = stringify!($field);
            let size = field_size(|value: &abi::$rust| &value.$field);
            $facts.push(format!("{tag}.{field} {} {size}", offset_of!(abi::$rust, $field)));
            writeln!(
                $c,
                r#"printf("{tag}.{field} %zu %zu\n", offsetof(struct {tag}, {field}), sizeof(((struct {tag} *)0)->{field}));"#
            ).unwrap();
        )*
    )*};
}

macro_rules! constants {
    ($facts:ident, $c:ident: $($name:ident)*) => {$(
        let name = concat!("WT_", stringify!($name));
        $facts.push(format!("{name} {}", abi::$name as u64));
        writeln!($c, r#"printf("{name} %llu\n", (unsigned long long){name});"#).unwrap();
    )*};
}

/// The Rust side's facts and the body of the C program that prints the header's.
fn facts() -> (Facts, String) {
    let mut facts = Facts::new();
    let mut c = String::new();
    layouts! { facts, c:
        Frame = frame { len, cap, flags, reserved, tag }
        FramePool = frame_pool { count, reserved, slot }
        Tx = tx { frame, nic, flags }
        Rx = rx { frame, nic, reserved }
        Nic = nic { done_known, done_ns, carrier, speed_mbps, want_done_index, irq_gap_ns, irq_frames, rx_ring, rx_missed }
        Entry = entry {
            now_ns, next_timer_ns, events, rx_count, rx, pool, thread, ctl_head, syscalls, tx_count, ctl_done, tx
        }
        Ctl = ctl { next, kind, done, result, nr, arg, spawn }
        Spawn = spawn { key, path, argv, envp, cwd, file, uid, gid, fd, flags }
        Regs = regs {
            r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, rip, rflags, rsp
        }
        Thread = thread {
            entry, fault_entry, fault_stack, slow_entry, fault, fault_signo, fault_code, fault_addr, fault_trapno,
            fault_err, kernel_text, uaccess, uaccess_fixup, in_user, now_ns, host_fs, active_as, pid,
            clock_entry, clock_ip, reserved, gs_changed, reserved_too, comm
        }
        FsAttr = fs_attr { id, size, mtime_ns, ino, mode, uid, gid, rdev_major, rdev_minor, nlink }
        FsDirent = fs_dirent { ino, mode, name_len, name }
        Exec = exec {
            file, interp, stack_size, entry, stack_top, stack_base, at_entry, at_phdr, at_phnum, at_base, code, data,
            brk, low, reserved
        }
        MemKey = mem_key { content, page }
        Look = look { regs, fs, again, row, cycle, sleep_ns }
        HostOps = host_ops {
            version, size, console, panic, frame_alloc, tx_flush, as_create, as_fork, as_destroy, as_activate,
            exec_map, mem_call, fs_lookup, fs_readdir, fs_readlink, fs_open, fs_create, fs_read, fs_write,
            fs_truncate, fs_size, fs_release, proc_event, unsupported, as_read, as_write, as_map, fs_name,
            fs_seek, fs_punch, fs_storage,
            as_key, fs_writers, instruction, look
        }
        FileName = file_name { ino, dev_major, dev_minor, path, path_len }
        Map = map {
            start, end, offset, ino, dev_major, dev_minor, prot, flags, path_len, reserved, path
        }
        NicConf = nic_conf {
            name, mac, reserved, mtu, ring, shared, driver, irq_gap_ns, irq_frames, rx_ring, rx_buffer, rx_copybreak,
            offloads, enabled, tso_max_size, no_bql
        }
        Cpu = cpu { syscall_ns, copy_ps }
        Boot = boot {
            version, size, ops, host, entry, ram, ram_size, seed, epoch_s, cmdline, xsave_mask, xsave_size,
            quantum_calls, quantum_ns, nic_count, reserved, nics, cpu
        }
        Sample = sample { kind, capacity, records, count, reserved }
        Endpoints = endpoints { local, remote, local_port, remote_port, family, state, reserved, netns, token }
        TcpSample = tcp_sample {
            ends, recv_queue, send_queue, info_len, cc_len, cc_kind, cc_name, cc_info, info
        }
        MptcpSample = mptcp_sample { ends, info_len, reserved, info }
        QdiscSample = qdisc_sample {
            device, kind, netns, handle, parent, xstats_len, bytes, packets, queued, backlog, drops, requeues,
            overlimits, reserved, xstats
        }
        Kernel = kernel { version, size, boot, enter, release, banner, current_comm, sample }
    }
    constants! { facts, c:
        ABI_VERSION UPTIME_S FRAME_DAMAGED FRAME_SMALL TX_IRQ NIC_RING NIC_GAP_MAX NIC_RX_RING_MAX NIC_SG NIC_TX_CSUM
        NIC_RX_CSUM NIC_TSO NIC_TSO_ECN NIC_TSO_MANGLEID NIC_USO NIC_FRAGLIST NIC_GSO NIC_GRO TX_MAX EV_CTL EV_TX_DONE EV_LINK CTL_SYSCALL CTL_SPAWN
        SPAWN_TTY PROC_STARTED PROC_FAILED PROC_EXITED PROC_FAULT PROC_FORKED PROC_EXECED PROC_GONE FILE_RAM MAP_SHARED MAP_FILE MAP_HEAP MAP_STACK
        FAULT_LOOK LOOK_RUNS LOOK_SPINS LOOK_SLEEPS LOOK_STOPS LOOK_DIES
        SAMPLE_TCP SAMPLE_MPTCP SAMPLE_QDISC
    }
    (facts, c)
}

fn run_c(body: &str) -> Facts {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    let text = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <windtunnel/boundary.h>\nint main(void) {{\n{body}return 0; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/include");
    let compiled = Command::new("cc")
        .args(["-I", include, "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&program).output().unwrap();
    assert!(printed.status.success());
    String::from_utf8(printed.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_field_and_constant_is_where_the_header_says() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no `cc` on this machine; the bindings were NOT compared with the boundary header");
        return;
    }
    let (rust, body) = facts();
    assert_eq!(rust, run_c(&body));
}

/// A field the header has and the list above lacks would go unseen: count them.
#[test]
fn no_field_of_the_header_is_missing_from_the_bindings() {
    let header = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../kernel/include/windtunnel/boundary.h"
    ));
    let mut code = String::new();
    let mut rest = header;
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        rest = &rest[start + rest[start..].find("*/").unwrap() + 2..];
    }
    code.push_str(rest);

    let (rust, _) = facts();
    let mut structs = 0;
    for part in code.split("\nstruct ").skip(1) {
        let Some((tag, body)) = part.split_once(" {\n") else {
            continue;
        };
        let body = &body[..body.find("\n};").unwrap()];
        let fields: usize = body
            .split(';')
            .filter(|declaration| !declaration.trim().is_empty() && declaration.trim() != "wt_u8 data[]")
            // `wt_u64 a, b` declares two; commas inside parentheses are parameters.
            .map(|declaration| match declaration.contains('(') {
                true => 1,
                false => declaration.split(',').count(),
            })
            .sum();
        let bound = rust.iter().filter(|fact| fact.starts_with(&format!("{tag}."))).count();
        assert_eq!(bound, fields, "fields of struct {tag}");
        structs += 1;
    }
    assert_eq!(
        structs,
        rust.iter()
            .filter(|fact| fact.starts_with("wt_") && !fact.contains('.'))
            .count()
    );
}
