//! What lies at a NIC: the sending side of its link, its capture and its part of the digest.
//!
//! A port belongs to the kernel whose NIC it is, so that kernels of one window share nothing. Frames are recorded when
//! they leave the NIC and when they arrive at one.

use windtunnel_base::SimTime;
use windtunnel_kernel::Frame;
use windtunnel_links::{Delivery, Link};
use windtunnel_results::{Direction, InterfaceDigest, PcapWriter, ResultsError, frame_hash};

use crate::flows::Flows;
use crate::interrupts::Interrupts;

/// What is at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A NIC of a kernel.
    Node {
        /// Number of the kernel.
        number: u32,
        /// Number of the NIC.
        nic: u32,
    },
    /// The port to the outside of this number.
    Outside(u32),
}

/// A NIC's place in the network.
#[derive(Debug)]
pub struct Port {
    /// Direction of the link that leads away from here.
    pub link: Link,
    /// The other end.
    pub peer: Peer,
    /// Digest of all that crosses the NIC, if there is to be one.
    pub digest: Option<InterfaceDigest>,
    /// Capture of all that crosses the NIC, if wanted.
    pub capture: Option<PcapWriter>,
    /// Flows of what leaves the NIC, if wanted.
    pub flows: Option<Box<Flows>>,
    /// Frames that arrived.
    pub received_frames: u64,
    /// Their bytes, from the Ethernet header on.
    pub received_bytes: u64,
    /// Frames that found the receive ring full; they are not among those that arrived.
    pub missed_frames: u64,
    /// Frames that were on their way here when the node at one of the link's ends went down, or came after that.
    pub cut_frames: u64,
    /// What waits for the NIC's next interrupt, where these keep a distance.
    pub interrupts: Interrupts,
    /// Time for which an entry on account of a departure is scheduled already, ns; `u64::MAX`: none.
    pub tx_done_ns: u64,
    /// Carrier of the frames that are on their way from here.
    carrier: u32,
}

/// Where in a frame's tag its hash is.
const HASH_LOW: usize = 0;
const HASH_HIGH: usize = 1;

impl Port {
    /// A port at which nothing has happened.
    pub fn new(link: Link, peer: Peer, digest: bool, capture: Option<PcapWriter>) -> Self {
        Self {
            link,
            peer,
            digest: digest.then(InterfaceDigest::new),
            capture,
            flows: None,
            received_frames: 0,
            received_bytes: 0,
            missed_frames: 0,
            cut_frames: 0,
            interrupts: Interrupts::default(),
            tx_done_ns: u64::MAX,
            carrier: 0,
        }
    }

    /// Hands a frame that left the NIC at `now_ns` to the link; `deliver` gets each arrival at the other end with its
    /// time, ns. When the last bit leaves, ns.
    ///
    /// # Errors
    /// When the capture cannot be written.
    #[inline]
    pub fn transmit(
        &mut self,
        now_ns: u64,
        mut frame: Frame,
        mut deliver: impl FnMut(u64, Frame),
    ) -> Result<u64, ResultsError> {
        if let Some(digest) = &mut self.digest {
            let hash = frame_hash(frame.data());
            set_hash(&mut frame, hash);
            digest.record_hashed(now_ns, Direction::Transmit, frame.len(), hash);
        }
        if let Some(capture) = &mut self.capture {
            capture.write(now_ns, frame.data())?;
        }
        let verdict = self.link.offer(SimTime(now_ns), frame.len());
        if let Some(flows) = &mut self.flows {
            flows.note(now_ns, frame.data(), verdict.deliveries.is_empty());
        }
        if let Some((last, copies)) = verdict.deliveries.split_last() {
            self.carrier = last.carrier;
            for delivery in copies {
                deliver(delivery.at.as_ns(), self.on_arrival(frame.clone(), delivery));
            }
            deliver(last.at.as_ns(), self.on_arrival(frame, last));
        }
        Ok(verdict.departure.as_ns())
    }

    /// How long a frame that leaves at `now` would wait for the wire, ns.
    pub fn wait_ns(&self, now: SimTime) -> u64 {
        self.link.wait_ns(now)
    }

    /// The frame as it arrives.
    fn on_arrival(&self, mut frame: Frame, delivery: &Delivery) -> Frame {
        if let Some(bit) = delivery.corrupt_bit {
            frame.data_mut()[(bit / 8) as usize] ^= 1 << (bit % 8);
            frame.set_damaged();
            if self.digest.is_some() {
                let hash = frame_hash(frame.data());
                set_hash(&mut frame, hash);
            }
        }
        frame
    }

    /// Records a frame that arrives at the NIC at `now_ns`.
    ///
    /// # Errors
    /// When the capture cannot be written.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, frame: &Frame) -> Result<(), ResultsError> {
        self.received_frames += 1;
        self.received_bytes += u64::from(frame.len());
        if let Some(digest) = &mut self.digest {
            let tag = frame.tag();
            let hash = u128::from(tag[HASH_HIGH]) << 64 | u128::from(tag[HASH_LOW]);
            digest.record_hashed(now_ns, Direction::Receive, frame.len(), hash);
        }
        match &mut self.capture {
            Some(capture) => capture.write(now_ns, frame.data()),
            None => Ok(()),
        }
    }

    /// A frame that was due at `at_ns` at the other end is lost, because the link has gone down since it was sent.
    pub fn lost_on_the_way(&mut self, at_ns: u64) {
        let delivery = Delivery {
            at: SimTime(at_ns),
            corrupt_bit: None,
            carrier: self.carrier,
        };
        let arrives = self.link.arrives(&delivery);
        assert!(!arrives, "a frame was taken off a link that is up");
    }
}

fn set_hash(frame: &mut Frame, hash: u128) {
    let tag = frame.tag_mut();
    tag[HASH_LOW] = hash as u64;
    tag[HASH_HIGH] = (hash >> 64) as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_base::{Probability, Rate, Rng, SimDuration};
    use windtunnel_links::LinkParams;

    fn port(change: impl FnOnce(&mut LinkParams)) -> Port {
        let mut params = LinkParams::new(Rate::from_mbps(1000), SimDuration::from_ms(1));
        change(&mut params);
        let peer = Peer::Node { number: 1, nic: 0 };
        Port::new(Link::new(params, Rng::new(1, "test")), peer, true, None)
    }

    fn send(port: &mut Port, now_ns: u64, bytes: &[u8]) -> (u64, Vec<(u64, Frame)>) {
        let mut arrived = Vec::new();
        let departure_ns = port
            .transmit(now_ns, Frame::new(bytes), |at_ns, frame| arrived.push((at_ns, frame)))
            .unwrap();
        (departure_ns, arrived)
    }

    #[test]
    fn a_frame_leaves_after_its_serialization_and_arrives_after_the_delay() {
        let mut port = port(|_| ());
        let (departure_ns, arrived) = send(&mut port, 100, &[7; 1514]);
        assert_eq!(departure_ns, 100 + (1514 + 24) * 8);
        assert_eq!(arrived.len(), 1);
        assert_eq!(arrived[0].0, departure_ns + 1_000_000);
        assert_eq!(arrived[0].1.data(), [7; 1514]);
    }

    #[test]
    fn the_hash_at_the_receiver_is_that_of_the_bytes() {
        for corrupt in [Probability::NEVER, Probability::ALWAYS] {
            let mut sender = port(|params| params.corrupt = corrupt);
            let (_, arrived) = send(&mut sender, 5, &[1; 100]);
            let (at_ns, frame) = &arrived[0];
            assert_eq!(frame.data() == [1; 100], corrupt == Probability::NEVER);
            assert_eq!(frame.flags() != 0, corrupt == Probability::ALWAYS);
            let mut receiver = port(|_| ());
            receiver.receive(*at_ns, frame).unwrap();
            let mut expected = InterfaceDigest::new();
            expected.record(*at_ns, Direction::Receive, frame.data());
            assert_eq!(receiver.digest.unwrap().value(), expected.value());
            assert_eq!((receiver.received_frames, receiver.received_bytes), (1, 100));
        }
    }

    #[test]
    fn a_duplicate_is_a_frame_of_its_own() {
        let mut port = port(|params| params.duplicate = Probability::ALWAYS);
        let (_, mut arrived) = send(&mut port, 0, &[3; 60]);
        assert_eq!(arrived.len(), 2);
        arrived[0].1.data_mut()[0] = 9;
        assert_eq!(arrived[1].1.data(), [3; 60]);
    }

    #[test]
    fn a_lost_frame_leaves_and_does_not_arrive() {
        let mut port = port(|params| params.loss = Probability::ALWAYS);
        let (departure_ns, arrived) = send(&mut port, 0, &[3; 60]);
        assert!(departure_ns > 0 && arrived.is_empty());
        assert_eq!(
            port.digest.as_ref().unwrap().frames(),
            1,
            "it did cross the sender's interface"
        );
    }

    #[test]
    fn frames_on_the_way_count_as_dropped_when_the_link_goes_down() {
        let mut port = port(|_| ());
        let (_, arrived) = send(&mut port, 0, &[3; 60]);
        port.link.down();
        port.lost_on_the_way(arrived[0].0);
        assert_eq!(
            (port.link.counters().delivered, port.link.counters().dropped.down),
            (0, 1)
        );
    }

    #[test]
    #[should_panic(expected = "off a link that is up")]
    fn frames_are_not_taken_off_a_link_that_is_up() {
        let mut port = port(|_| ());
        let (_, arrived) = send(&mut port, 0, &[3; 60]);
        port.lost_on_the_way(arrived[0].0);
    }
}
