//! The state of a NIC that host and kernel share.

use std::marker::PhantomData;

use crate::abi;

/// One NIC to create at boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Bytes of payload.
    pub mtu: u32,
    /// Transmit ring, frames; 0: the driver's default.
    pub ring: u32,
    /// For ethtool, Mb/s; 0: unknown.
    pub speed_mbps: u32,
}

impl NicConfig {
    /// # Panics
    /// If the name does not fit, is empty, or the ring is longer than [`abi::NIC_RING`]: the scenario checks both.
    pub(crate) fn to_abi(&self, shared: *mut abi::Nic) -> abi::NicConf {
        assert!((1..16).contains(&self.name.len()), "interface name {:?}", self.name);
        assert!(
            self.ring as usize <= abi::NIC_RING,
            "a transmit ring of {} frames",
            self.ring
        );
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        abi::NicConf {
            name,
            mac: self.mac,
            reserved: [0; 2],
            mtu: self.mtu,
            ring: self.ring,
            shared,
        }
    }

    pub(crate) fn initial_state(&self) -> abi::Nic {
        abi::Nic {
            done_known: 0,
            done_ns: [0; abi::NIC_RING],
            carrier: 1,
            speed_mbps: self.speed_mbps,
            want_done_index: abi::NONE,
        }
    }
}

/// A NIC of an instance, between entries.
#[derive(Debug)]
pub struct Nic<'a> {
    shared: *mut abi::Nic,
    _instance: PhantomData<&'a mut ()>,
}

impl Nic<'_> {
    /// # Safety
    /// `shared` outlives the borrow of the instance, whose kernel does not run during it.
    pub(crate) unsafe fn new(shared: *mut abi::Nic) -> Self {
        Self {
            shared,
            _instance: PhantomData,
        }
    }

    /// Says when the last bit of the next frame of this NIC has left; to be called once for every transmitted
    /// frame, in order. The index of that frame.
    #[inline]
    pub fn push_done(&mut self, departure_ns: u64) -> u64 {
        // SAFETY: see `new`.
        let nic = unsafe { &mut *self.shared };
        let index = nic.done_known;
        nic.done_ns[index as usize % abi::NIC_RING] = departure_ns;
        nic.done_known += 1;
        index
    }

    /// When frame `index` has left; None if that is not known yet, or was too long ago.
    #[inline]
    pub fn done_ns(&self, index: u64) -> Option<u64> {
        // SAFETY: see `new`.
        let nic = unsafe { &*self.shared };
        let known = index < nic.done_known && nic.done_known - index <= abi::NIC_RING as u64;
        known.then(|| nic.done_ns[index as usize % abi::NIC_RING])
    }

    /// Number of frames whose departure is known.
    #[inline]
    pub fn done_known(&self) -> u64 {
        // SAFETY: see `new`.
        unsafe { (*self.shared).done_known }
    }

    /// The frame whose departure the stopped queue waits for; the wish is then taken as scheduled.
    #[inline]
    pub fn take_want(&mut self) -> Option<u64> {
        // SAFETY: see `new`.
        let want = unsafe { &mut (*self.shared).want_done_index };
        let index = std::mem::replace(want, abi::NONE);
        (index != abi::NONE).then_some(index)
    }

    /// Link up or down; the kernel looks at the next entry with [`crate::Events::link`].
    pub fn set_carrier(&mut self, up: bool) {
        // SAFETY: see `new`.
        unsafe { (*self.shared).carrier = up.into() };
    }

    /// What ethtool shows, Mb/s; 0: unknown.
    pub fn set_speed_mbps(&mut self, speed_mbps: u32) {
        // SAFETY: see `new`.
        unsafe { (*self.shared).speed_mbps = speed_mbps };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_are_kept_for_the_length_of_the_ring() {
        let config = NicConfig {
            name: "eth0".into(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            ring: 0,
            speed_mbps: 0,
        };
        let mut state = config.initial_state();
        // SAFETY: the state is alive and no kernel has it.
        let mut nic = unsafe { Nic::new(&raw mut state) };
        assert_eq!(nic.take_want(), None);
        for i in 0..abi::NIC_RING as u64 + 5 {
            assert_eq!(nic.push_done(1000 + i), i);
        }
        assert_eq!(nic.done_ns(4), None);
        assert_eq!(nic.done_ns(5), Some(1005));
        assert_eq!(nic.done_ns(1028), Some(2028));
        assert_eq!(nic.done_ns(1029), None);
    }
}
