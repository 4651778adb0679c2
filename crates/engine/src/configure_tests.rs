//! The configuration against a made-up kernel that keeps a list of the calls.

use std::collections::VecDeque;

use super::*;
use windtunnel_scenario::{Cpu, Interface, Nic, NodeKind, Root, Route};

/// Answers every call; netlink requests with acknowledgements, or as `refuse` says.
#[derive(Default)]
struct FakeKernel {
    calls: Vec<(i64, Vec<String>)>,
    answers: VecDeque<Vec<u8>>,
    /// Netlink message type to refuse with EINVAL and an explanation.
    refuse_type: Option<u16>,
    /// Call to refuse with EACCES.
    refuse_call: Option<i64>,
}

fn readable(argument: &Argument) -> String {
    match argument {
        Argument::Value(value) => value.to_string(),
        Argument::Bytes(bytes) => String::from_utf8_lossy(bytes).trim_end_matches(['\0', '\n']).to_owned(),
    }
}

impl FakeKernel {
    fn answer(&mut self, request: &[u8]) {
        let kind = u16::from_le_bytes([request[4], request[5]]);
        let mut answer = Vec::new();
        match kind {
            18 => {
                answer.extend(32u32.to_le_bytes());
                answer.extend([16, 0, 0, 0]);
                answer.extend(&request[8..12]);
                answer.extend([0; 4]);
                let index = if request[36] == b'l' { 1u32 } else { 2 };
                answer.extend([0, 0, 1, 0]);
                answer.extend(index.to_le_bytes());
                answer.extend([0; 8]);
            }
            _ => {
                let errno = if self.refuse_type == Some(kind) { -22i32 } else { 0 };
                let text = if errno == 0 {
                    &b""[..]
                } else {
                    b"\x0c\x00\x01\x00no good\0"
                };
                answer.extend((36 + text.len() as u32).to_le_bytes());
                answer.extend([2, 0]);
                answer.extend(if errno == 0 { 0x100u16 } else { 0x300 }.to_le_bytes());
                answer.extend(&request[8..12]);
                answer.extend([0; 4]);
                answer.extend(errno.to_le_bytes());
                answer.extend(&request[..16]);
                answer.extend(text);
            }
        }
        self.answers.push_back(answer);
    }
}

impl Calls for FakeKernel {
    fn call(&mut self, nr: i64, mut args: Vec<Argument>) -> Result<(i64, Vec<Argument>), EngineError> {
        self.calls.push((nr, args.iter().map(readable).collect()));
        if self.refuse_call == Some(nr) {
            return Ok((-i64::from(libc::EACCES), args));
        }
        let result = match (nr, &mut args[..]) {
            (libc::SYS_sendto, [_, Argument::Bytes(request), ..]) => {
                let request = request.clone();
                self.answer(&request);
                request.len() as i64
            }
            (libc::SYS_recvfrom, [_, Argument::Bytes(room), ..]) => {
                let answer = self.answers.pop_front().expect("an answer is there");
                room[..answer.len()].copy_from_slice(&answer);
                answer.len() as i64
            }
            (libc::SYS_socket, _) => 7,
            (libc::SYS_open, _) => 8,
            _ => 0,
        };
        Ok((result, args))
    }
}

fn router() -> Node {
    Node {
        name: "r1".into(),
        kind: NodeKind::Router,
        position: None,
        kernel: "6.12".into(),
        memory_bytes: 64 << 20,
        program_memory_bytes: 1 << 30,
        disk_bytes: 1 << 30,
        cpu: Cpu::default(),
        root: Root::Host,
        interfaces: vec![Interface {
            name: "eth0".into(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            addresses: vec!["10.0.0.1/24".parse().unwrap(), "fd00::1/64".parse().unwrap()],
            capture: false,
            nic: Nic::default(),
        }],
        routes: vec![Route {
            to: "0.0.0.0/0".parse().unwrap(),
            via: Some("10.0.0.9".parse().unwrap()),
            also_via: vec![],
            dev: Some("eth0".into()),
            metric: None,
        }],
        sysctls: [("net.ipv4.ip_forward".to_owned(), "1".to_owned())].into(),
        files: vec![],
        setup: vec![],
        processes: vec![],
    }
}

#[test]
fn a_node_is_configured_in_order() {
    let mut kernel = FakeKernel::default();
    configure(&mut kernel, &router()).unwrap();
    let at = |nr: i64, word: &str| {
        kernel
            .calls
            .iter()
            .position(|(call, args)| *call == nr && args.iter().any(|arg| arg == word))
            .unwrap()
    };
    assert!(at(libc::SYS_mount, "/proc") < at(libc::SYS_open, "/proc/sys/net/ipv4/ip_forward"));
    assert!(at(libc::SYS_mkdir, "/dev/pts") < at(libc::SYS_mount, "/dev/pts"));
    assert!(at(libc::SYS_sethostname, "r1") < at(libc::SYS_open, "/proc/sys/net/ipv4/ip_forward"));
    // lo found and up; eth0 found and up, two addresses, a route: seven requests, the last five after the sysctl.
    let sent: Vec<usize> = (0..kernel.calls.len())
        .filter(|&index| kernel.calls[index].0 == libc::SYS_sendto)
        .collect();
    let sysctl = at(libc::SYS_open, "/proc/sys/net/ipv4/ip_forward");
    assert_eq!(sent.len(), 7);
    assert!(sent[1] < sysctl && sysctl < sent[2]);
    let [.., closed, opened] = &kernel.calls[..] else {
        panic!()
    };
    assert_eq!(closed, &(libc::SYS_close, vec!["7".to_owned()]));
    let null = ["/dev/null", &libc::O_CLOEXEC.to_string(), "0"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(opened, &(libc::SYS_open, null));
}

#[test]
fn a_refused_route_is_told_with_the_kernels_words() {
    let mut kernel = FakeKernel {
        refuse_type: Some(24),
        ..FakeKernel::default()
    };
    let error = configure(&mut kernel, &router()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node r1: cannot add route 0.0.0.0/0 via 10.0.0.9 dev eth0: Invalid argument (no good)"
    );
}

#[test]
fn a_refused_sysctl_is_told_and_its_file_closed() {
    let mut kernel = FakeKernel {
        refuse_call: Some(libc::SYS_write),
        ..FakeKernel::default()
    };
    let error = configure(&mut kernel, &router()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node r1: cannot set sysctl net.ipv4.ip_forward to \"1\": Permission denied"
    );
    assert_eq!(kernel.calls.last().unwrap(), &(libc::SYS_close, vec!["8".to_owned()]));
}

#[test]
fn sysctl_names_become_paths() {
    assert_eq!(sysctl_path("net.ipv4.ip_forward"), "/proc/sys/net/ipv4/ip_forward");
    assert_eq!(
        sysctl_path("net.ipv4.conf.eth0/5.rp_filter"),
        "/proc/sys/net/ipv4/conf/eth0.5/rp_filter"
    );
    assert_eq!(
        sysctl_path("net/ipv4/conf/eth0.5/rp_filter"),
        "/proc/sys/net/ipv4/conf/eth0.5/rp_filter"
    );
}
