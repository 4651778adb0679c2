//! What a direction of a link is like, and changes to it while a run goes on.

use std::fmt;
use std::str::FromStr;

use windtunnel_base::{ByteSize, Probability, Rate, SimDuration, UnitError};

use crate::serializer::{serialization_time, wire_bytes};

/// Where frames wait for their turn on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueLimit {
    /// In the sending node: its NIC's ring and its qdisc. The link accepts whatever the NIC hands over, and the NIC
    /// hears of a departure when the last bit has left.
    #[default]
    Nic,
    /// In the link: at most this many frames wait, besides the one on the wire; more are dropped.
    Packets(u32),
    /// In the link: waiting frames hold at most this many bytes, besides the one on the wire; more are dropped.
    /// Bytes are those of the frames, from the Ethernet header to the payload's end.
    Bytes(ByteSize),
}

impl FromStr for QueueLimit {
    type Err = UnitError;
    /// Reads `nic`, `100p` (frames) or a size, `64kB`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "nic" {
            return Ok(Self::Nic);
        }
        if let Some(frames) = text.strip_suffix('p').and_then(|count| count.parse().ok()) {
            return Ok(Self::Packets(frames));
        }
        text.parse().map(Self::Bytes).map_err(|error: UnitError| UnitError {
            problem: error.problem.replacen("a size", "a queue limit", 1),
            allowed: "`nic` (the sender's own queue), packets as in `100p`, or bytes as in `64kB`".into(),
            hint: match text.parse::<u32>() {
                Ok(count) => Some(format!("write `{count}p` for packets or `{count}kB` for bytes")),
                Err(_) => error.hint,
            },
            ..error
        })
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nic => f.write_str("nic"),
            Self::Packets(frames) => write!(f, "{frames}p"),
            Self::Bytes(size) => size.fmt(f),
        }
    }
}

/// One direction of a link. All effects but rate and delay are off in [`LinkParams::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkParams {
    /// Bits per second on the wire, with preamble, FCS and gap between frames.
    pub rate: Rate,
    /// Time from the last bit's departure to its arrival.
    pub delay: SimDuration,
    /// Each frame's delay is uniform from `delay - jitter` to `delay + jitter`; never below zero.
    pub jitter: SimDuration,
    /// Whether a frame may overtake one before it. If not, it arrives no earlier than that one.
    pub reorder: bool,
    /// Chance that a frame is lost on the wire.
    pub loss: Probability,
    /// Chance that a frame arrives twice, at the same instant.
    pub duplicate: Probability,
    /// Chance that one random bit of a frame arrives flipped.
    pub corrupt: Probability,
    /// Where frames wait.
    pub queue: QueueLimit,
    /// Whether there is a carrier.
    pub up: bool,
}

impl LinkParams {
    /// A link that only serializes and delays: no jitter, loss, duplication or corruption; the sender's queue; up.
    pub const fn new(rate: Rate, delay: SimDuration) -> Self {
        Self {
            rate,
            delay,
            jitter: SimDuration::ZERO,
            reorder: false,
            loss: Probability::NEVER,
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            queue: QueueLimit::Nic,
            up: true,
        }
    }

    /// The least time from an offer to a delivery: the shortest frame's serialization plus the shortest delay.
    /// Nothing sent at `t` arrives before `t + lookahead()`.
    pub fn lookahead(&self) -> SimDuration {
        serialization_time(wire_bytes(0), self.rate) + self.delay.saturating_sub(self.jitter)
    }

    /// Takes over every value that `change` has.
    pub fn apply(&mut self, change: &LinkChange) {
        let LinkChange {
            rate,
            delay,
            jitter,
            reorder,
            loss,
            duplicate,
            corrupt,
            queue,
            up,
        } = *change;
        self.rate = rate.unwrap_or(self.rate);
        self.delay = delay.unwrap_or(self.delay);
        self.jitter = jitter.unwrap_or(self.jitter);
        self.reorder = reorder.unwrap_or(self.reorder);
        self.loss = loss.unwrap_or(self.loss);
        self.duplicate = duplicate.unwrap_or(self.duplicate);
        self.corrupt = corrupt.unwrap_or(self.corrupt);
        self.queue = queue.unwrap_or(self.queue);
        self.up = up.unwrap_or(self.up);
    }
}

/// New values for some of a direction's parameters; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkChange {
    /// See [`LinkParams::rate`].
    pub rate: Option<Rate>,
    /// See [`LinkParams::delay`].
    pub delay: Option<SimDuration>,
    /// See [`LinkParams::jitter`].
    pub jitter: Option<SimDuration>,
    /// See [`LinkParams::reorder`].
    pub reorder: Option<bool>,
    /// See [`LinkParams::loss`].
    pub loss: Option<Probability>,
    /// See [`LinkParams::duplicate`].
    pub duplicate: Option<Probability>,
    /// See [`LinkParams::corrupt`].
    pub corrupt: Option<Probability>,
    /// See [`LinkParams::queue`].
    pub queue: Option<QueueLimit>,
    /// See [`LinkParams::up`].
    pub up: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_limits_read_and_print() {
        for (text, limit) in [
            ("nic", QueueLimit::Nic),
            ("100p", QueueLimit::Packets(100)),
            ("64kB", QueueLimit::Bytes(ByteSize(64_000))),
            ("64KiB", QueueLimit::Bytes(ByteSize(65_536))),
        ] {
            assert_eq!(text.parse(), Ok(limit));
            assert_eq!(limit.to_string(), text);
        }
        assert_eq!(
            "100".parse::<QueueLimit>().unwrap_err().to_string(),
            "`100` is not a queue limit: the unit is missing; allowed: `nic` (the sender's own queue), packets as in \
             `100p`, or bytes as in `64kB`; hint: write `100p` for packets or `100kB` for bytes"
        );
    }

    #[test]
    fn lookahead_is_the_shortest_frame_and_the_shortest_delay() {
        let mut params = LinkParams::new(Rate::from_mbps(1000), SimDuration::from_ms(1));
        // 84 bytes of wire time at 1 Gb/s are 672 ns.
        assert_eq!(params.lookahead(), SimDuration(1_000_672));
        params.jitter = SimDuration::from_us(300);
        assert_eq!(params.lookahead(), SimDuration(700_672));
        params.jitter = SimDuration::from_ms(9);
        assert_eq!(params.lookahead(), SimDuration(672));
    }

    #[test]
    fn a_partial_change_keeps_the_rest() {
        let mut params = LinkParams::new(Rate::from_mbps(10), SimDuration::from_ms(5));
        params.apply(&LinkChange {
            loss: Some(Probability::from_ppb(7)),
            ..LinkChange::default()
        });
        let expected = LinkParams {
            loss: Probability::from_ppb(7),
            ..LinkParams::new(Rate::from_mbps(10), SimDuration::from_ms(5))
        };
        assert_eq!(params, expected);
    }
}
