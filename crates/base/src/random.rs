//! Seeded random streams: every user of randomness has its own, named by a label, so that a new user shifts no other.
//!
//! The derivation is fixed for good, as results depend on it:
//! `stream(seed, label) = SHA-256("windtunnel-stream-v1" || 0x00 || seed as 8 bytes little-endian || label as UTF-8)`.
//! The 32 bytes seed a xoshiro256++ generator ([`Rng`]). It is for models, not for secrets.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};

const STREAM_TAG: &[u8] = b"windtunnel-stream-v1\0";

/// The 32-byte start value of the stream called `label` in a run with `seed`.
pub fn stream(seed: u64, label: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(STREAM_TAG);
    hash.update(seed.to_le_bytes());
    hash.update(label.as_bytes());
    hash.finalize().into()
}

/// A deterministic generator of random numbers (xoshiro256++).
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of a stream made by [`stream`].
    pub fn from_stream(stream: [u8; 32]) -> Self {
        Self(Xoshiro256PlusPlus::from_seed(stream))
    }

    /// Short for `Rng::from_stream(stream(seed, label))`.
    pub fn new(seed: u64, label: &str) -> Self {
        Self::from_stream(stream(seed, label))
    }

    /// A new generator seeded with the next four numbers of this one: its draws no longer touch this one's.
    pub fn split(&mut self) -> Self {
        let mut seed = [0; 32];
        for part in seed.chunks_exact_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        Self::from_stream(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `n` - 1, each equally likely. Panics when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "below(0): no number is below zero");
        // Lemire's method: the high half of a 128-bit product, redrawn in the few cases that would favour some values.
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// True with a probability of `ppb` parts per billion. Always one draw or more, also for 0.
    pub fn chance(&mut self, ppb: u32) -> bool {
        self.below(1_000_000_000) < u64::from(ppb)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    // The expected values come from Python's hashlib: sha256(b"windtunnel-stream-v1\0" + struct.pack("<Q", 1) + b"link/0").
    #[test]
    fn the_derivation_is_fixed_for_good() {
        assert_eq!(
            hex(&stream(1, "link/0")),
            "82f2ee1da9394afeaf736e327ea9408adf3542cbc66a1eefe86f53f47e0f9cfd"
        );
        assert_eq!(
            hex(&stream(0, "")),
            "9e25470cff5386b8ca1d920013e401920f0cf59349f85e54551f9f1aebcd5c25"
        );
    }

    #[test]
    fn the_generator_is_fixed_for_good() {
        let mut rng = Rng::new(1, "link/0");
        assert_eq!(
            [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            [
                10_543_871_046_353_479_078,
                15_874_882_668_482_690_700,
                15_898_202_066_746_903_433
            ]
        );
    }

    #[test]
    fn streams_differ_by_seed_and_label() {
        let first = Rng::new(1, "a").next_u64();
        assert_ne!(first, Rng::new(2, "a").next_u64());
        assert_ne!(first, Rng::new(1, "b").next_u64());
    }

    #[test]
    fn below_reaches_every_value_evenly() {
        let mut rng = Rng::new(1, "below");
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        // 10,000 expected each, standard deviation 95.
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn chance_is_exact_at_both_ends_and_close_between() {
        let mut rng = Rng::new(1, "chance");
        assert!((0..10_000).all(|_| !rng.chance(0)));
        assert!((0..10_000).all(|_| rng.chance(1_000_000_000)));
        let hits = (0..1_000_000).filter(|_| rng.chance(10_000_000)).count();
        // 10,000 expected, standard deviation 100.
        assert!((9_500..10_500).contains(&hits), "{hits}");
    }

    #[test]
    fn a_split_stream_is_independent_of_later_draws() {
        let mut one = Rng::new(1, "split");
        let mut two = one.clone();
        let mut child = one.split();
        let mut same = two.split();
        one.next_u64();
        assert_eq!(child.next_u64(), same.next_u64());
    }
}
