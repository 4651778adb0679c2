//! One direction of a link.

use smallvec::{SmallVec, smallvec};
use windtunnel_base::{Rng, SimTime};

use crate::counters::Counters;
use crate::effects::Effects;
use crate::params::{LinkChange, LinkParams, QueueLimit};
use crate::queue::Queue;
use crate::serializer::{Serializer, wire_bytes};

/// An arrival at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When the last bit arrives.
    pub at: SimTime,
    /// The bit that arrives flipped: byte `bit / 8` of the frame, value `1 << (bit % 8)`.
    pub corrupt_bit: Option<u64>,
    /// Which carrier it travels on: see [`Link::arrives`].
    pub carrier: u32,
}

/// What waits in a direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Frames in the link's own queue; none where frames wait in the sender.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long a frame that is offered now would wait for the wire, ns.
    pub wait_ns: u64,
}

/// Why a frame does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// Lost on the wire by chance.
    Loss,
    /// The link's queue was full.
    Queue,
    /// The link was down.
    Down,
}

/// What becomes of an offered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When the sender is rid of the frame: its last bit has left or, with a queue of the link, it was taken
    /// or dropped at once.
    pub departure: SimTime,
    /// Arrivals: none, one, or two of a duplicated frame (at the same instant, both corrupted or neither).
    pub deliveries: SmallVec<[Delivery; 2]>,
    /// Set if and only if there are no deliveries.
    pub dropped: Option<DropCause>,
}

/// One direction of a link. See the crate's documentation for the order of effects and what is not modelled.
///
/// # Going down
/// As with a pulled cable, all that is on the way is lost: frames waiting in the link's queue, being serialized or
/// propagating. Their deliveries were handed out before, so at the time of an arrival ask [`Link::arrives`].
/// Frames offered while down are dropped at once. After coming up, the wire is free and the queue empty.
#[derive(Clone, Debug)]
pub struct Link {
    params: LinkParams,
    effects: Effects,
    wire: Serializer,
    queue: Queue,
    counters: Counters,
    /// Time of the last offer: offers must come in order.
    last_offer: SimTime,
    /// Latest arrival handed out on this carrier.
    last_arrival: SimTime,
    /// How often the link went down.
    carrier: u32,
    /// Longest wait for the wire since [`Link::take_longest_wait_ns`], ns.
    longest_wait_ns: u64,
}

impl Link {
    /// A direction like `params`; `rng` decides its random effects and must be its own.
    pub fn new(params: LinkParams, rng: Rng) -> Self {
        Self {
            params,
            effects: Effects::new(rng),
            wire: Serializer::default(),
            queue: Queue::default(),
            counters: Counters::default(),
            last_offer: SimTime::ZERO,
            last_arrival: SimTime::ZERO,
            carrier: 0,
            longest_wait_ns: 0,
        }
    }

    /// How long a frame that is offered at `now` would wait for the wire, ns.
    pub fn wait_ns(&self, now: SimTime) -> u64 {
        self.wire.free_at().as_ns().saturating_sub(now.as_ns())
    }

    /// Offers a frame of `len_bytes` (Ethernet header to end of payload, no FCS). Offers must not go back in time.
    pub fn offer(&mut self, now: SimTime, len_bytes: u32) -> Verdict {
        assert!(
            now >= self.last_offer,
            "a frame was offered at {now}, after one at {}",
            self.last_offer
        );
        self.last_offer = now;
        self.counters.frames += 1;
        self.counters.bytes += u64::from(len_bytes);
        // Drawn for every frame, dropped or not: see effects.rs.
        let fate = self.effects.draw(&self.params, len_bytes);
        if !self.params.up {
            self.counters.dropped.down += 1;
            return Verdict::dropped(now, DropCause::Down);
        }
        let limit = self.params.queue;
        let own_queue = limit != QueueLimit::Nic;
        if own_queue && !self.queue.admits(now, self.wire.free_at(), len_bytes, limit) {
            self.counters.dropped.queue += 1;
            return Verdict::dropped(now, DropCause::Queue);
        }
        let slot = self.wire.take(now, wire_bytes(len_bytes), self.params.rate);
        if own_queue {
            self.queue.push(slot.start, len_bytes);
        }
        let waited_ns = slot.start.as_ns() - now.as_ns();
        self.counters.sent += 1;
        self.counters.waited_ns += waited_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(waited_ns);
        let departure = if own_queue { now } else { slot.end };
        if fate.lost {
            self.counters.dropped.loss += 1;
            return Verdict::dropped(departure, DropCause::Loss);
        }
        let at = self.arrival(slot.end + fate.delay);
        let delivery = Delivery {
            at,
            corrupt_bit: fate.corrupt_bit,
            carrier: self.carrier,
        };
        let mut deliveries = smallvec![delivery];
        if fate.duplicated {
            deliveries.push(delivery);
        }
        self.counters.delivered += 1 + u64::from(fate.duplicated);
        self.counters.duplicated += u64::from(fate.duplicated);
        self.counters.corrupted += u64::from(fate.corrupt_bit.is_some());
        Verdict {
            departure,
            deliveries,
            dropped: None,
        }
    }

    /// The arrival time of a frame due at `at`: no earlier than the one before it unless reordering is on.
    fn arrival(&mut self, at: SimTime) -> SimTime {
        if at >= self.last_arrival {
            self.last_arrival = at;
            return at;
        }
        if self.params.reorder {
            self.counters.reordered += 1;
            return at;
        }
        self.last_arrival
    }

    /// To be asked when the time of `delivery` has come: whether the frame arrives. If the link has gone down since it
    /// was offered it does not, and is counted as dropped instead of delivered; so ask once per delivery.
    pub fn arrives(&mut self, delivery: &Delivery) -> bool {
        let arrives = delivery.carrier == self.carrier;
        if !arrives {
            self.counters.delivered -= 1;
            self.counters.dropped.down += 1;
        }
        arrives
    }

    /// Takes over every value that `change` has, for frames offered from now on.
    pub fn set(&mut self, change: &LinkChange) {
        let was = self.params;
        self.params.apply(change);
        if was.rate != self.params.rate {
            self.wire.round_up();
        }
        if was.queue != self.params.queue && self.params.queue == QueueLimit::Nic {
            self.queue.clear();
        }
        if was.up && !self.params.up {
            self.cut();
        }
    }

    /// All that is on the way is lost, as when going down, but the cable stays: the device at one end has gone off.
    pub fn cut(&mut self) {
        self.carrier += 1;
        self.wire = Serializer::default();
        self.queue.clear();
        self.last_arrival = SimTime::ZERO;
    }

    /// Plugs the cable in.
    pub fn up(&mut self) {
        self.set(&LinkChange {
            up: Some(true),
            ..LinkChange::default()
        });
    }

    /// Pulls the cable out: see "Going down" above.
    pub fn down(&mut self) {
        self.set(&LinkChange {
            up: Some(false),
            ..LinkChange::default()
        });
    }

    /// Whether there is a carrier.
    pub fn is_up(&self) -> bool {
        self.params.up
    }

    /// Its values now.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// What waits at `now`, which must not be before the last offer.
    pub fn backlog(&mut self, now: SimTime) -> Backlog {
        let (frames, bytes) = self.queue.length(now);
        Backlog {
            frames,
            bytes,
            wait_ns: self.wire.free_at().as_ns().saturating_sub(now.as_ns()),
        }
    }

    /// The longest that a frame offered since the last call waited for the wire, ns.
    pub fn take_longest_wait_ns(&mut self) -> u64 {
        std::mem::take(&mut self.longest_wait_ns)
    }

    /// Its counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Verdict {
    fn dropped(departure: SimTime, cause: DropCause) -> Self {
        Self {
            departure,
            deliveries: SmallVec::new(),
            dropped: Some(cause),
        }
    }
}
