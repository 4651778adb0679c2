//! The links: frames from one TAP to another, as the link models say, at the time of the wall clock.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use windtunnel_base::{Rng, SimTime};
use windtunnel_links::{Delivery, Link, LinkChange, QueueLimit};
use windtunnel_results::{DeliveryLateness, DirectionSummary, LinkSummary, PcapWriter, ResultsError};
use windtunnel_scenario::{LinkSpec, Scenario};

use crate::PlatformError;
use crate::sys;

/// Longest frame: the largest MTU of a TAP, an Ethernet header and a VLAN tag.
const FRAME_BYTES_MAX: usize = 65_535 + 18;
/// Most frames taken from an interface before others have their turn.
const TURN_FRAMES: usize = 64;

/// One end of a link, and the direction that leaves from it.
struct Port {
    tap: OwnedFd,
    link: Link,
    peer: usize,
    capture: Option<PcapWriter>,
    /// The wire is busy: frames wait in the interface until then, ns.
    busy_until_ns: Option<u64>,
    last_offer_ns: u64,
    received: DirectionSummary,
    refused_frames: u64,
}

pub(crate) struct Wire {
    ports: Vec<Port>,
    /// Two ports each, `a` first.
    links: Vec<LinkSpec>,
    names: Vec<(String, String)>,
    on_the_way: BTreeMap<(u64, u64), (usize, Delivery, Vec<u8>)>,
    sequence: u64,
    buffer: Vec<u8>,
    pub frames: u64,
    lateness: Histogram,
}

impl Wire {
    /// `taps` by node and interface.
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        taps: Vec<Vec<OwnedFd>>,
        mut capture: impl FnMut(usize, usize) -> Result<Option<PcapWriter>, ResultsError>,
    ) -> Result<Self, PlatformError> {
        let mut taps: Vec<Vec<Option<OwnedFd>>> = taps
            .into_iter()
            .map(|node| node.into_iter().map(Some).collect())
            .collect();
        let mut ports = Vec::new();
        for link in &scenario.links {
            for (from, to, params) in [(link.a, link.b, link.a_to_b), (link.b, link.a, link.b_to_a)] {
                let (node, index) = (from.node.index(), from.index as usize);
                let tap = taps[node][index].take().expect("an interface is one end of one link");
                if !params.up {
                    sys::set_carrier(&tap, false).map_err(|errno| PlatformError::host("pull a cable out", errno))?;
                }
                let label = format!("link/{}/{}", scenario.iface_name(from), scenario.iface_name(to));
                ports.push(Port {
                    tap,
                    link: Link::new(params, Rng::new(seed, &label)),
                    peer: ports.len() ^ 1,
                    capture: capture(node, index)?,
                    busy_until_ns: None,
                    last_offer_ns: 0,
                    received: DirectionSummary::default(),
                    refused_frames: 0,
                });
            }
        }
        let ends = |link: &LinkSpec| (scenario.iface_name(link.a), scenario.iface_name(link.b));
        Ok(Self {
            ports,
            names: scenario.links.iter().map(ends).collect(),
            links: scenario.links.clone(),
            on_the_way: BTreeMap::new(),
            sequence: 0,
            buffer: vec![0; FRAME_BYTES_MAX],
            frames: 0,
            lateness: Histogram::default(),
        })
    }

    /// The interfaces that may be read now, with their numbers.
    pub fn readable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let free = self
            .ports
            .iter()
            .enumerate()
            .filter(|(_, port)| port.busy_until_ns.is_none());
        free.map(|(number, port)| (number, port.tap.as_fd()))
    }

    /// When something is due, ns.
    pub fn next_ns(&self) -> u64 {
        let arrival = self
            .on_the_way
            .first_key_value()
            .map_or(u64::MAX, |((at_ns, _), _)| *at_ns);
        self.ports
            .iter()
            .filter_map(|port| port.busy_until_ns)
            .fold(arrival, u64::min)
    }

    pub fn is_empty(&self) -> bool {
        self.on_the_way.is_empty()
    }

    /// Takes the frames that an interface has. Where frames wait in the sender, one is taken when the one before it has left: it is
    /// offered as of that moment, however late this is, so that the rate is the link's.
    pub fn read(&mut self, number: usize, now_ns: u64) -> Result<(), PlatformError> {
        let resumed = self.ports[number].busy_until_ns.take();
        let mut offer_ns = resumed.unwrap_or(now_ns);
        for _ in 0..TURN_FRAMES {
            let port = &mut self.ports[number];
            let length = match nix::unistd::read(&port.tap, &mut self.buffer) {
                Ok(0) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EIO) => return Ok(()),
                Ok(length) => length,
                Err(errno) => return Err(PlatformError::host("read frames from a TAP interface", errno)),
            };
            offer_ns = offer_ns.max(port.last_offer_ns);
            port.last_offer_ns = offer_ns;
            let frame = &self.buffer[..length];
            if let Some(capture) = &mut port.capture {
                capture.write(offer_ns, frame)?;
            }
            self.frames += 1;
            let verdict = port.link.offer(SimTime(offer_ns), length as u32);
            for delivery in verdict.deliveries {
                self.sequence += 1;
                let key = (delivery.at.as_ns(), self.sequence);
                self.on_the_way.insert(key, (number, delivery, frame.to_vec()));
            }
            if port.link.params().queue == QueueLimit::Nic {
                offer_ns = verdict.departure.as_ns();
                if offer_ns > now_ns {
                    port.busy_until_ns = Some(offer_ns);
                    return Ok(());
                }
            }
        }
        // There may be more: nothing is lost by asking again at once, as of the same moment.
        if self.ports[number].link.params().queue == QueueLimit::Nic {
            self.ports[number].busy_until_ns = Some(offer_ns);
        }
        Ok(())
    }

    /// Does what is due: frames that arrive, interfaces whose wire is free again. `clock` tells the time, ns.
    pub fn due(&mut self, clock: impl Fn() -> u64) -> Result<(), PlatformError> {
        let now_ns = clock();
        while let Some(entry) = self.on_the_way.first_entry() {
            let due_ns = entry.key().0;
            if due_ns > now_ns {
                break;
            }
            let (from, delivery, frame) = entry.remove();
            self.deliver(from, &delivery, frame, clock().max(due_ns))?;
        }
        for number in 0..self.ports.len() {
            if self.ports[number]
                .busy_until_ns
                .is_some_and(|until_ns| until_ns <= now_ns)
            {
                self.read(number, now_ns)?;
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        from: usize,
        delivery: &Delivery,
        mut frame: Vec<u8>,
        now_ns: u64,
    ) -> Result<(), PlatformError> {
        if !self.ports[from].link.arrives(delivery) {
            return Ok(());
        }
        if let Some(bit) = delivery.corrupt_bit {
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        self.lateness.add(now_ns - delivery.at.as_ns());
        let peer = self.ports[from].peer;
        let port = &mut self.ports[peer];
        match nix::unistd::write(&port.tap, &frame) {
            Ok(_) => {
                port.received.delivered_frames += 1;
                port.received.delivered_bytes += frame.len() as u64;
                if let Some(capture) = &mut port.capture {
                    capture.write(now_ns, &frame)?;
                }
            }
            // Down by the node's own will, malformed, or no memory: it is lost, and counted.
            Err(_) => port.refused_frames += 1,
        }
        Ok(())
    }

    /// Changes a link; the ends of it by name.
    pub fn change(
        &mut self,
        link: usize,
        a_to_b: &LinkChange,
        b_to_a: &LinkChange,
    ) -> Result<(&str, &str), PlatformError> {
        let numbers = [link * 2, link * 2 + 1];
        let changes = [a_to_b, b_to_a];
        for (number, change) in numbers.into_iter().zip(changes) {
            self.ports[number].link.set(change);
            if !self.ports[number].link.is_up() {
                self.ports[number].busy_until_ns = None;
            }
        }
        let up = numbers.iter().all(|&number| self.ports[number].link.is_up());
        for number in numbers {
            sys::set_carrier(&self.ports[number].tap, up)
                .map_err(|errno| PlatformError::host("change the carrier of a TAP interface", errno))?;
        }
        let (a, b) = &self.names[link];
        Ok((a, b))
    }

    /// What all links counted; `queue_drops`: by node and interface.
    pub fn summaries(&self, queue_drops: &[Vec<u64>]) -> Vec<LinkSummary> {
        let lost_before = |end: windtunnel_base::IfaceId| {
            let node = queue_drops.get(end.node.index());
            node.and_then(|node| node.get(end.index as usize)).copied().unwrap_or(0)
        };
        let links = self.links.iter().zip(&self.names).enumerate();
        let summary = |(number, (link, (a, b))): (usize, (&LinkSpec, &(String, String)))| LinkSummary {
            a: a.clone(),
            b: b.clone(),
            a_to_b: self.direction(number * 2, lost_before(link.a)),
            b_to_a: self.direction(number * 2 + 1, lost_before(link.b)),
        };
        links.map(summary).collect()
    }

    fn direction(&self, number: usize, queue_drops: u64) -> DirectionSummary {
        let sender = &self.ports[number];
        let receiver = &self.ports[sender.peer];
        let counters = sender.link.counters();
        let causes = [
            ("loss", counters.dropped.loss),
            ("queue_full", counters.dropped.queue),
            ("link_down", counters.dropped.down),
            ("refused_by_host", receiver.refused_frames),
            ("tap_queue_full", queue_drops),
        ];
        DirectionSummary {
            // What found no room in the interface was never offered to the model: the sender handed it over all the same.
            frames: counters.frames + queue_drops,
            bytes: counters.bytes,
            duplicated_frames: counters.duplicated,
            corrupted_frames: counters.corrupted,
            drops: causes
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(cause, count)| (cause.into(), count))
                .collect(),
            ..receiver.received.clone()
        }
    }

    /// Hands the rest of the captures to the host.
    pub fn flush(&mut self) -> Result<(), ResultsError> {
        self.ports
            .iter_mut()
            .filter_map(|port| port.capture.as_mut())
            .try_for_each(PcapWriter::flush)
    }

    pub fn lateness(&self) -> DeliveryLateness {
        self.lateness.summary()
    }
}

/// Times in buckets whose width is a sixteenth of their value or less.
#[derive(Default)]
struct Histogram {
    buckets: BTreeMap<u64, u64>,
    count: u64,
    max_ns: u64,
}

impl Histogram {
    fn add(&mut self, ns: u64) {
        let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(4);
        *self.buckets.entry(ns >> shift << shift).or_default() += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The least time that so many of 100 do not pass, to a sixteenth; ns.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        bucket.map_or(0, |(at_ns, _)| *at_ns)
    }

    fn summary(&self) -> DeliveryLateness {
        DeliveryLateness {
            deliveries: self.count,
            p50_ns: self.percentile(50),
            p99_ns: self.percentile(99),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.add(us * 1000));
        let summary = histogram.summary();
        assert!((460_000..=500_000).contains(&summary.p50_ns), "{summary:?}");
        assert!((920_000..=990_000).contains(&summary.p99_ns), "{summary:?}");
        assert_eq!((summary.deliveries, summary.max_ns), (1000, 1_000_000));
        assert_eq!(Histogram::default().summary(), DeliveryLateness::default());
    }
}
