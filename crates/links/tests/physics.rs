//! Tables of what links do to frames, to be read as physics: times in nanoseconds.

use std::fmt::Write;

use windtunnel_base::{ByteSize, Probability, Rate, Rng, SimDuration, SimTime};
use windtunnel_links::{Counters, Delivery, Link, LinkChange, LinkParams, QueueLimit};

fn params(mbps: u64, delay_us: u64) -> LinkParams {
    LinkParams::new(Rate::from_mbps(mbps), SimDuration::from_us(delay_us))
}

fn link(params: LinkParams) -> Link {
    Link::new(params, Rng::new(1, "test"))
}

/// Offers frames of the given (time, bytes) and prints a line for each.
fn table(link: &mut Link, offers: impl IntoIterator<Item = (u64, u32)>) -> String {
    let mut out = String::new();
    for (now, len) in offers {
        let verdict = link.offer(SimTime(now), len);
        write!(out, "{now} {len}B departs {}", verdict.departure.as_ns()).unwrap();
        if let Some(cause) = verdict.dropped {
            write!(out, " dropped {cause:?}").unwrap();
        }
        for delivery in &verdict.deliveries {
            write!(out, " arrives {}", delivery.at.as_ns()).unwrap();
            if let Some(bit) = delivery.corrupt_bit {
                write!(out, " bit {bit}").unwrap();
            }
        }
        out.push('\n');
    }
    out
}

#[test]
fn gigabit_back_to_back() {
    // 1514 bytes cost 1538 byte times of 8 ns; a 42-byte ARP frame costs the minimum, 84.
    let mut link = link(params(1000, 5000));
    assert_eq!(
        table(&mut link, [(0, 1514), (0, 1514), (0, 42), (100_000, 98)]),
        "0 1514B departs 12304 arrives 5012304\n\
         0 1514B departs 24608 arrives 5024608\n\
         0 42B departs 25280 arrives 5025280\n\
         100000 98B departs 100976 arrives 5100976\n"
    );
}

#[test]
fn a_rate_that_does_not_divide_keeps_its_remainder() {
    // 84 bytes at 7 Mb/s take 96,000 ns; at 7,000,003 bit/s a bit less than that, rounded up each time, never summed.
    let mut link = link(LinkParams::new(Rate(7_000_003), SimDuration::ZERO));
    assert_eq!(
        table(&mut link, [(0, 60), (0, 60), (0, 61), (0, 61), (400_000, 61)]),
        "0 60B departs 96000 arrives 96000\n\
         0 60B departs 192000 arrives 192000\n\
         0 61B departs 289143 arrives 289143\n\
         0 61B departs 386286 arrives 386286\n\
         400000 61B departs 497143 arrives 497143\n"
    );
}

#[test]
fn tcp_fills_a_gigabit_with_941_megabit() {
    // Full-size segments carry 1448 bytes in frames of 1514.
    let mut link = link(params(1000, 1000));
    let last = (0..100_000)
        .map(|_| link.offer(SimTime::ZERO, 1514).departure)
        .last()
        .unwrap();
    assert_eq!(
        1448 * 8 * 100_000 * 1_000_000_000 / u128::from(last.as_ns()),
        941_482_444
    );
}

#[test]
fn a_queue_of_two_packets_drops_the_tail() {
    let mut link = link(LinkParams {
        queue: QueueLimit::Packets(2),
        ..params(10, 0)
    });
    // 1000 bytes take 819.2 us. One on the wire, two waiting; the next place is free when the second starts.
    assert_eq!(
        table(
            &mut link,
            [
                (0, 1000),
                (0, 1000),
                (0, 1000),
                (0, 1000),
                (819_199, 1000),
                (819_200, 1000)
            ]
        ),
        "0 1000B departs 0 arrives 819200\n\
         0 1000B departs 0 arrives 1638400\n\
         0 1000B departs 0 arrives 2457600\n\
         0 1000B departs 0 dropped Queue\n\
         819199 1000B departs 819199 dropped Queue\n\
         819200 1000B departs 819200 arrives 3276800\n"
    );
}

#[test]
fn a_queue_of_bytes_takes_a_small_frame_where_a_large_one_does_not_fit() {
    let mut link = link(LinkParams {
        queue: QueueLimit::Bytes(ByteSize(1500)),
        ..params(10, 0)
    });
    assert_eq!(
        table(&mut link, [(0, 1000), (0, 1000), (0, 501), (0, 500)]),
        "0 1000B departs 0 arrives 819200\n\
         0 1000B departs 0 arrives 1638400\n\
         0 501B departs 0 dropped Queue\n\
         0 500B departs 0 arrives 2057600\n"
    );
}

#[test]
fn jitter_without_reordering_holds_frames_back() {
    let jitter = SimDuration::from_us(900);
    let mut ordered = link(LinkParams {
        jitter,
        ..params(1000, 1000)
    });
    let mut free = link(LinkParams {
        jitter,
        reorder: true,
        ..params(1000, 1000)
    });
    let mut latest = SimTime::ZERO;
    let (mut held, mut early, mut late) = (0, SimTime::MAX, SimTime::ZERO);
    for i in 0..1000u64 {
        let now = SimTime(i * 10_000);
        let one = ordered.offer(now, 1000).deliveries[0].at;
        let other = free.offer(now, 1000).deliveries[0].at;
        // The same draw, but never before the frame ahead of it.
        assert_eq!(one, other.max(latest));
        latest = one;
        held += u32::from(one != other);
        let delay = SimTime::ZERO + (other - now);
        (early, late) = (early.min(delay), late.max(delay));
    }
    assert!(held > 500, "{held}");
    assert_eq!(ordered.counters().reordered, 0);
    assert_eq!(free.counters().reordered, held.into());
    // 8.192 us on the wire, then 0.1 to 1.9 ms.
    assert!((108_192..130_000).contains(&early.as_ns()) && (1_880_000..=1_908_192).contains(&late.as_ns()));
}

#[test]
fn a_shorter_delay_does_not_reorder_either() {
    let mut link = link(params(1000, 1000));
    let first = link.offer(SimTime(0), 60).deliveries[0].at;
    link.set(&LinkChange {
        delay: Some(SimDuration::ZERO),
        ..LinkChange::default()
    });
    assert_eq!(link.offer(SimTime(10_000), 60).deliveries[0].at, first);
    assert_eq!(link.offer(SimTime(2_000_000), 60).deliveries[0].at, SimTime(2_000_672));
}

#[test]
fn a_change_of_rate_reaches_the_next_frame() {
    let mut link = link(params(100, 0));
    let before = table(&mut link, [(0, 1226)]);
    link.set(&LinkChange {
        rate: Some(Rate::from_mbps(10)),
        ..LinkChange::default()
    });
    let after = table(&mut link, [(0, 1226)]);
    assert_eq!(before, "0 1226B departs 100000 arrives 100000\n");
    assert_eq!(after, "0 1226B departs 1100000 arrives 1100000\n");
}

#[test]
fn going_down_loses_what_is_on_the_way() {
    let mut link = link(params(1000, 1000));
    let early = link.offer(SimTime(0), 60).deliveries[0];
    let late = link.offer(SimTime(900_000), 60).deliveries[0];
    assert!(link.arrives(&early));
    link.down();
    assert!(!link.arrives(&late));
    assert_eq!(
        table(&mut link, [(1_500_000, 60)]),
        "1500000 60B departs 1500000 dropped Down\n"
    );
    link.up();
    let after = link.offer(SimTime(1_600_000), 60).deliveries[0];
    assert!(!link.arrives(&Delivery { at: after.at, ..late }));
    assert!(link.arrives(&after));
    let counters = link.counters();
    assert_eq!((counters.frames, counters.dropped.down), (4, 3));
}

#[test]
fn corruption_names_a_bit_of_the_frame() {
    let mut link = link(LinkParams {
        corrupt: Probability::ALWAYS,
        ..params(1000, 0)
    });
    let mut seen = [false; 480];
    for i in 0..20_000 {
        let bit = link.offer(SimTime(i * 1_000), 60).deliveries[0].corrupt_bit.unwrap();
        seen[bit as usize] = true;
    }
    assert!(seen.iter().all(|&bit| bit));
    assert_eq!(link.counters().corrupted, 20_000);
}

#[test]
fn a_duplicate_arrives_with_its_original() {
    let mut link = link(LinkParams {
        duplicate: Probability::ALWAYS,
        ..params(1000, 10)
    });
    assert_eq!(
        table(&mut link, [(0, 60)]),
        "0 60B departs 672 arrives 10672 arrives 10672\n"
    );
    assert_eq!((link.counters().delivered, link.counters().duplicated), (2, 1));
}

/// Which of 10,000 frames an effect strikes.
fn struck(params: LinkParams) -> [Vec<u64>; 4] {
    let mut link = link(params);
    let mut hits: [Vec<u64>; 4] = Default::default();
    for i in 0..10_000u64 {
        let now = SimTime(i * 1_000_000);
        let verdict = link.offer(now, 1000);
        if verdict.dropped.is_some() {
            hits[0].push(i);
            continue;
        }
        let first = verdict.deliveries[0];
        hits[1].push((first.at - now).as_ns());
        hits[2].extend(first.corrupt_bit.map(|_| i));
        hits[3].extend((verdict.deliveries.len() == 2).then_some(i));
    }
    hits
}

#[test]
fn effects_do_not_shift_each_other() {
    let percent = Probability::from_ppb(10_000_000);
    let plain = params(1000, 5000);
    let jitter = SimDuration::from_us(1000);
    let all = struck(LinkParams {
        loss: percent,
        jitter,
        reorder: true,
        corrupt: percent,
        duplicate: percent,
        ..plain
    });
    assert_eq!(struck(LinkParams { loss: percent, ..plain })[0], all[0]);
    // A lost frame would have been corrupted or duplicated: it is missing, the others stay as they were.
    let survivors = |hits: &[u64]| hits.iter().copied().filter(|i| !all[0].contains(i)).collect::<Vec<_>>();
    assert_eq!(
        survivors(
            &struck(LinkParams {
                corrupt: percent,
                ..plain
            })[2]
        ),
        all[2]
    );
    assert_eq!(
        survivors(
            &struck(LinkParams {
                duplicate: percent,
                ..plain
            })[3]
        ),
        all[3]
    );
    let delays = struck(LinkParams {
        jitter,
        reorder: true,
        ..plain
    });
    let kept: Vec<u64> = (0..10_000)
        .filter(|i| !all[0].contains(i))
        .map(|i| delays[1][i as usize])
        .collect();
    assert_eq!(kept, all[1]);
    assert!(
        (60..140).contains(&all[0].len()) && (60..140).contains(&all[2].len()) && (60..140).contains(&all[3].len())
    );
}

#[test]
fn nothing_is_counted_twice_or_forgotten() {
    let mut link = link(LinkParams {
        loss: Probability::from_ppb(100_000_000),
        duplicate: Probability::from_ppb(100_000_000),
        queue: QueueLimit::Packets(5),
        ..params(10, 100)
    });
    let mut arrived = 0;
    let mut pending = Vec::new();
    for i in 0..5_000u64 {
        let now = SimTime(i * 50_000);
        pending.retain(|delivery: &Delivery| {
            let due = delivery.at <= now;
            arrived += u64::from(due && link.arrives(delivery));
            !due
        });
        match i % 500 {
            100 => link.down(),
            150 => link.up(),
            _ => {}
        }
        pending.extend(link.offer(now, 64).deliveries);
    }
    arrived += pending.iter().filter(|delivery| link.arrives(delivery)).count() as u64;
    let Counters {
        frames,
        delivered,
        dropped,
        duplicated,
        ..
    } = *link.counters();
    assert_eq!(delivered, arrived);
    assert_eq!(delivered + dropped.total(), frames + duplicated);
    assert!(dropped.loss > 0 && dropped.queue > 0 && dropped.down >= 500 && duplicated > 0);
}

#[test]
#[should_panic(expected = "a frame was offered at 0.000000004s, after one at 0.000000005s")]
fn offers_do_not_go_back_in_time() {
    let mut link = link(params(1000, 0));
    link.offer(SimTime(5), 60);
    link.offer(SimTime(4), 60);
}
