//! What the tests of ports share: a network namespace of their own, and frames.
#![allow(dead_code)]

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use windtunnel_ports::Port;

/// Moves this thread, and the programs that it starts, into a new network namespace with its loopback up. False, with the reason
/// printed, where that is not allowed.
pub fn own_network() -> bool {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        skipped(&format!(
            "a network namespace of the test's own needs CAP_SYS_ADMIN ({errno})"
        ));
        return false;
    }
    sh("ip link set lo up");
    true
}

/// Says why a test was not carried out. Not by `eprintln!`, which is shown for failed tests only.
pub fn skipped(why: &str) {
    std::io::stderr()
        .write_all(format!("skipped: {why}\n").as_bytes())
        .unwrap();
}

/// Runs a command line that must work.
pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap() + &error
}

/// Waits up to so many milliseconds for the port to have something; false if it has not.
pub fn wait(port: &dyn Port, ms: u16) -> bool {
    let mut fds = [PollFd::new(port.poll_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(ms)).unwrap() > 0
}

/// Everything that the port has now.
pub fn take(port: &mut dyn Port) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while port.receive(64, &mut |frame| frames.push(frame.to_vec())).unwrap() == 64 {}
    frames
}

/// Takes frames until one fits; panics after five seconds.
pub fn expect(port: &mut dyn Port, what: &str, mut fits: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        wait(port, 100);
        if let Some(frame) = take(port).into_iter().find(|frame| fits(frame)) {
            return frame;
        }
    }
    panic!("{what} did not arrive: {:?}", port.counters());
}

/// Sends one frame at once.
pub fn put(port: &mut dyn Port, frame: &[u8]) {
    port.send(frame).unwrap();
    port.flush().unwrap();
}

/// The Internet checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The MAC of the machine that [`answer`] is.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// What a machine with this IPv4 address answers to ARP requests and ICMP echo requests.
pub fn answer(frame: &[u8], address: [u8; 4]) -> Option<Vec<u8>> {
    let mut reply = frame.to_vec();
    reply[..6].copy_from_slice(&frame[6..12]);
    reply[6..12].copy_from_slice(&MAC);
    match frame.get(12..14)? {
        [8, 6] if frame.get(20..22)? == [0, 1] && frame.get(38..42)? == address => {
            reply[21] = 2;
            reply[32..42].copy_from_slice(&frame[22..32]);
            reply[22..28].copy_from_slice(&MAC);
            reply[28..32].copy_from_slice(&address);
        }
        [8, 0] if frame.get(30..34)? == address && frame[23] == 1 && frame[34] == 8 => {
            assert_eq!(checksum(&frame[34..]), 0, "of the echo request");
            reply[26..30].copy_from_slice(&address);
            reply[30..34].copy_from_slice(&frame[26..30]);
            (reply[34], reply[36], reply[37]) = (0, 0, 0);
            let sum = checksum(&reply[34..]);
            reply[36..38].copy_from_slice(&sum.to_be_bytes());
        }
        _ => return None,
    }
    Some(reply)
}

/// Runs a command line while the port plays the machine with this address; what it printed.
pub fn answering(port: &mut dyn Port, address: [u8; 4], line: &str) -> String {
    let netns = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    std::thread::scope(|scope| {
        let command = scope.spawn(move || {
            nix::sched::setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
            sh(line)
        });
        while !command.is_finished() {
            wait(port, 20);
            for reply in take(port).iter().filter_map(|frame| answer(frame, address)) {
                port.send(&reply).unwrap();
            }
            port.flush().unwrap();
        }
        command.join().unwrap()
    })
}

/// Damaged frames of all lengths, the same in every run.
pub fn storm() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..2000_usize).map(move |number| {
        let length = match number % 4 {
            0 => number % 64,
            1 => 14 + (next() % 100) as usize,
            _ => (next() % 1514) as usize,
        };
        let mut bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
        // Half of them look like IP at first.
        if number % 2 == 0 && length > 30 {
            bytes[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6]][number / 2 % 4]);
            bytes[14] = [0x45, 0x60, 0x4f, 0x00][number / 8 % 4];
        }
        bytes
    })
}

/// Another network namespace, which lives as long as this.
pub struct Netns {
    pub path: std::path::PathBuf,
    holder: std::process::Child,
}

/// Makes a second namespace, held by a program that sleeps.
pub fn second_network() -> Netns {
    let mut holder = Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
    let path = std::path::PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
    let ours = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while std::fs::read_link(&path).unwrap() == ours {
        assert!(
            Instant::now() < end && holder.try_wait().unwrap().is_none(),
            "unshare failed"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Netns { path, holder }
}

impl Netns {
    /// A command line, to be run in it.
    pub fn line(&self, line: &str) -> String {
        format!("nsenter --net={} {line}", self.path.display())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Passes frames between two ports, as a cable does, while `work` runs on a thread in this thread's namespace.
pub fn cable<T: Send>(
    here: &mut dyn Port,
    there: &mut dyn Port,
    mut look: impl FnMut(&[u8]),
    work: impl FnOnce() -> T + Send,
) -> T {
    let netns = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            nix::sched::setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        while !work.is_finished() {
            let fds = [here.poll_fd(), there.poll_fd()];
            let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            poll(&mut fds, PollTimeout::from(20_u8)).unwrap();
            pass(here, there, &mut look);
            pass(there, here, &mut look);
        }
        work.join().unwrap()
    })
}

fn pass(from: &mut dyn Port, to: &mut dyn Port, look: &mut impl FnMut(&[u8])) {
    let each = &mut |frame: &[u8]| {
        look(frame);
        to.send(frame).unwrap();
    };
    from.receive(256, each).unwrap();
    to.flush().unwrap();
}

/// A TCP transfer of two megabytes each way between this namespace and the other, over the two ports; kernels at both ends
/// look at every checksum. No frame may be longer than `longest`.
pub fn transfer_over(here: &mut dyn Port, there: &mut dyn Port, netns: &Netns, address: &str, longest: usize) {
    const BYTES: usize = 2 << 20;
    let server = format!(
        "import socket\ns=socket.create_server(('{address}',5001))\nprint('ready',flush=True)\nc,_=s.accept()\n\
         d=bytearray()\nwhile len(d)<{BYTES}: d+=c.recv(1<<16)\nc.sendall(bytes(d))\nc.close()"
    );
    let mut server = Command::new("nsenter")
        .arg(format!("--net={}", netns.path.display()))
        .args(["timeout", "50", "python3", "-c", &server])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let mut most = 0;
    let client = || {
        use std::io::Read;
        let mut stream = std::net::TcpStream::connect((address, 5001)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let sent: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 1000) as u8).collect();
        stream.write_all(&sent).unwrap();
        let mut received = vec![0; BYTES];
        stream.read_exact(&mut received).unwrap();
        assert!(sent == received, "what came back differs");
    };
    cable(here, there, |frame| most = most.max(frame.len()), client);
    server.wait().unwrap();
    assert!(
        most <= longest && most > longest - 100,
        "the longest frame had {most} bytes"
    );
    let statistics = sh(&netns.line("nstat -asz TcpInCsumErrors TcpRetransSegs IpInHdrErrors"));
    assert!(statistics.contains("TcpInCsumErrors                 0"), "{statistics}");
}
