//! What the digest costs per frame, in nanoseconds: `cargo run --release -p windtunnel-results --example digest_cost`.

use std::hint::black_box;
use std::time::Instant;
use windtunnel_results::{Direction, InterfaceDigest, frame_hash};

const ROUNDS: u64 = 2_000_000;

fn per_call_ns(mut call: impl FnMut(u64)) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..ROUNDS / 5).for_each(&mut call);
        start.elapsed().as_nanos() as f64 / (ROUNDS / 5) as f64
    });
    best.fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut digest = InterfaceDigest::new();
    for len in [60usize, 1500, 9000] {
        let frame = vec![0x5a; len];
        let hash = per_call_ns(|_| {
            black_box(frame_hash(black_box(&frame)));
        });
        let record = per_call_ns(|time_ns| digest.record(time_ns, Direction::Transmit, black_box(&frame)));
        let reused = per_call_ns(|time_ns| digest.record_hashed(time_ns, Direction::Receive, len as u32, 7));
        println!("{len:5} B: hash {hash:6.1} ns, record {record:6.1} ns, record with known hash {reused:5.1} ns");
    }
    black_box(digest.value());
}
