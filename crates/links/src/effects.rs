//! What chance does to a frame. Each effect draws from a stream of its own, and draws for every frame that is offered
//! to the link, so that switching one effect on, or a drop, shifts no other effect's fate.

use windtunnel_base::{Probability, Rng, SimDuration};

use crate::params::LinkParams;

/// The random streams of a direction, split off in this order.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    loss: Rng,
    jitter: Rng,
    corrupt: Rng,
    duplicate: Rng,
}

/// What is in store for one frame.
pub(crate) struct Fate {
    pub lost: bool,
    /// Delay of this frame, jitter included.
    pub delay: SimDuration,
    pub corrupt_bit: Option<u64>,
    pub duplicated: bool,
}

impl Effects {
    pub fn new(mut rng: Rng) -> Self {
        Self {
            loss: rng.split(),
            jitter: rng.split(),
            corrupt: rng.split(),
            duplicate: rng.split(),
        }
    }

    pub fn draw(&mut self, params: &LinkParams, len_bytes: u32) -> Fate {
        let bits = u64::from(len_bytes) * 8;
        let corrupt = happens(&mut self.corrupt, params.corrupt) && bits > 0;
        Fate {
            lost: happens(&mut self.loss, params.loss),
            delay: jittered(&mut self.jitter, params.delay, params.jitter),
            corrupt_bit: corrupt.then(|| self.corrupt.below(bits)),
            duplicated: happens(&mut self.duplicate, params.duplicate),
        }
    }
}

fn happens(rng: &mut Rng, probability: Probability) -> bool {
    probability > Probability::NEVER && rng.chance(probability.as_ppb())
}

/// Uniform over the whole nanoseconds from `delay - jitter` to `delay + jitter`, negative ones counted as zero.
fn jittered(rng: &mut Rng, delay: SimDuration, jitter: SimDuration) -> SimDuration {
    if jitter == SimDuration::ZERO {
        return delay;
    }
    let spread = SimDuration(rng.below((jitter * 2).as_ns() + 1));
    (delay + spread).saturating_sub(jitter)
}
