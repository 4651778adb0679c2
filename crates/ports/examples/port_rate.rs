//! What a frame costs: CPU time for sending and receiving it, through pairs of ports on one thread that does both in turn:
//! `cargo run --release -p windtunnel-ports --example port_rate`. With CAP_NET_ADMIN also a pair on a veth, in a network of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};
use windtunnel_ports::{Port, PortError, PortSpec, StreamAddress, open};

const TIME: Duration = Duration::from_secs(1);
/// Frames sent before it is looked whether they have arrived.
const BURST: usize = 64;

fn udp(local: u16, peer: u16, key: Option<&std::path::Path>) -> PortSpec {
    PortSpec::Udp {
        local: ([127, 0, 0, 1], local).into(),
        peer: ([127, 0, 0, 1], peer).into(),
        key_file: key.map(Into::into),
    }
}

fn vxlan(local: [u8; 4], peer: [u8; 4]) -> PortSpec {
    PortSpec::Vxlan {
        vni: 1,
        local: local.into(),
        peer: peer.into(),
        port: Some(47_890),
        mtu: None,
    }
}

fn stream(listen: bool) -> PortSpec {
    let name = format!("@port-rate-{}", std::process::id());
    PortSpec::Stream {
        at: StreamAddress::Unix(name.into()),
        listen,
    }
}

fn interface(name: &str) -> PortSpec {
    PortSpec::Interface {
        name: name.into(),
        mtu: None,
    }
}

/// Sends frames of so many bytes through the pair for a while; nanoseconds of CPU time per frame that arrived.
fn cost_ns(one: &mut dyn Port, other: &mut dyn Port, bytes: usize) -> Result<f64, PortError> {
    let mut frame = vec![0; bytes];
    frame[..6].fill(0xff);
    // Until they know each other.
    let start = Instant::now();
    while start.elapsed() < TIME / 4 {
        one.receive(BURST, &mut |_| ())?;
        other.receive(BURST, &mut |_| ())?;
    }
    let (before, cpu) = (other.counters().frames_in, cpu_time());
    let start = Instant::now();
    while start.elapsed() < TIME {
        for _ in 0..BURST {
            one.send(&frame)?;
        }
        one.flush()?;
        while other.receive(BURST, &mut |_| ())? == BURST {}
        one.receive(BURST, &mut |_| ())?;
    }
    let frames = (other.counters().frames_in - before) as f64;
    Ok((cpu_time() - cpu).as_nanos() as f64 / frames)
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = std::env::temp_dir().join(format!("port-rate-{}.key", std::process::id()));
    std::fs::write(&key, "5a".repeat(32))?;
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut pairs = vec![
        ("stream", stream(true), stream(false)),
        ("udp", udp(47_001, 47_002, None), udp(47_002, 47_001, None)),
        (
            "udp, sealed",
            udp(47_003, 47_004, Some(&key)),
            udp(47_004, 47_003, Some(&key)),
        ),
        (
            "vxlan",
            vxlan([127, 0, 0, 1], [127, 0, 0, 2]),
            vxlan([127, 0, 0, 2], [127, 0, 0, 1]),
        ),
    ];
    let line = "ip link set lo up && ip link add rate0 type veth peer name rate1 && ip link set rate0 up && ip link set rate1 up";
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() && Command::new("sh").args(["-c", line]).status()?.success() {
        pairs.push(("interface (veth)", interface("rate0"), interface("rate1")));
    }
    println!("{:<18} {:>12} {:>12}", "kind", "60 B, ns", "1514 B, ns");
    for (kind, one, other) in &pairs {
        let (mut one, mut other) = (open(one, "one")?, open(other, "other")?);
        let small = cost_ns(&mut *one, &mut *other, 60)?;
        let large = cost_ns(&mut *one, &mut *other, 1514)?;
        println!("{kind:<18} {small:>12.0} {large:>12.0}");
    }
    std::fs::remove_file(&key)?;
    Ok(())
}
