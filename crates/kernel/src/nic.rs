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
    /// What kind of NIC it is.
    pub model: NicModel,
}

/// What tells kinds of NICs apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicModel {
    /// Name of the driver, for ethtool; empty: our own. At most 15 bytes.
    pub driver: String,
    /// Interrupts at first, and the length of the receive ring.
    pub moderation: Moderation,
    /// Least bytes of memory that a received frame counts as; 0: what it takes.
    pub rx_buffer: u32,
    /// Longest frame for which `rx_buffer` does not hold, bytes.
    pub rx_copybreak: u32,
    /// What it can do: `NIC_*` of [`abi`].
    pub offloads: u32,
    /// What of that is on at first, `NIC_GSO` and `NIC_GRO` besides.
    pub enabled: u32,
    /// Longest packet that it cuts, bytes; 0: Linux's default.
    pub tso_max_size: u32,
    /// Whether its driver limits the bytes under way (BQL).
    pub bql: bool,
}

impl Default for NicModel {
    /// One that can do everything, and interrupts for each frame.
    fn default() -> Self {
        let offloads = abi::NIC_SG
            | abi::NIC_TX_CSUM
            | abi::NIC_RX_CSUM
            | abi::NIC_TSO
            | abi::NIC_TSO_ECN
            | abi::NIC_TSO_MANGLEID
            | abi::NIC_USO
            | abi::NIC_FRAGLIST;
        Self {
            driver: String::new(),
            moderation: Moderation::default(),
            rx_buffer: 0,
            rx_copybreak: 0,
            offloads,
            enabled: offloads | abi::NIC_GSO | abi::NIC_GRO,
            tso_max_size: 0,
            bql: true,
        }
    }
}

/// How interrupts keep a distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Least time between two of them, ns; 0: there is one for each cause. At most [`abi::NIC_GAP_MAX`].
    pub gap_ns: u64,
    /// So many waiting frames are not kept waiting; 0: any number is.
    pub frames: u32,
    /// Frames that may wait; 0: any number. At most [`abi::NIC_RX_RING_MAX`].
    pub ring: u32,
}

impl NicConfig {
    /// # Panics
    /// If a name does not fit, that of the interface is empty, or a ring or gap is longer than the driver's: the scenario checks
    /// all of them.
    pub(crate) fn to_abi(&self, shared: *mut abi::Nic) -> abi::NicConf {
        assert!((1..16).contains(&self.name.len()), "interface name {:?}", self.name);
        assert!(
            self.ring as usize <= abi::NIC_RING,
            "a transmit ring of {} frames",
            self.ring
        );
        let NicModel { driver, moderation, .. } = &self.model;
        assert!(driver.len() < 16, "driver name {driver:?}");
        assert!(
            moderation.gap_ns <= abi::NIC_GAP_MAX && moderation.ring <= abi::NIC_RX_RING_MAX,
            "{moderation:?}"
        );
        abi::NicConf {
            name: short_text(&self.name),
            mac: self.mac,
            reserved: [0; 2],
            mtu: self.mtu,
            ring: self.ring,
            shared,
            driver: short_text(driver),
            irq_gap_ns: moderation.gap_ns,
            irq_frames: moderation.frames,
            rx_ring: moderation.ring,
            rx_buffer: self.model.rx_buffer,
            rx_copybreak: self.model.rx_copybreak,
            offloads: self.model.offloads,
            enabled: self.model.enabled,
            tso_max_size: self.model.tso_max_size,
            no_bql: (!self.model.bql).into(),
        }
    }

    pub(crate) fn initial_state(&self) -> abi::Nic {
        abi::Nic {
            done_known: 0,
            done_ns: [0; abi::NIC_RING],
            carrier: 1,
            speed_mbps: self.speed_mbps,
            want_done_index: abi::NONE,
            // The driver fills these in.
            irq_gap_ns: 0,
            irq_frames: 0,
            rx_ring: 0,
            rx_missed: 0,
        }
    }
}

/// At most 15 bytes, and NUL.
fn short_text(text: &str) -> [std::ffi::c_char; 16] {
    let mut field = [0; 16];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    field
}

/// A NIC of an instance, between entries.
#[derive(Debug)]
pub struct Nic<'a> {
    shared: *mut abi::Nic,
    /// Virtual time at which the kernel's own begins, ns.
    origin_ns: u64,
    _instance: PhantomData<&'a mut ()>,
}

impl Nic<'_> {
    /// # Safety
    /// `shared` outlives the borrow of the instance, whose kernel does not run during it.
    pub(crate) unsafe fn new(shared: *mut abi::Nic, origin_ns: u64) -> Self {
        Self {
            shared,
            origin_ns,
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
        nic.done_ns[index as usize % abi::NIC_RING] = departure_ns - self.origin_ns;
        nic.done_known += 1;
        index
    }

    /// When frame `index` has left; None if that is not known yet, or was too long ago.
    #[inline]
    pub fn done_ns(&self, index: u64) -> Option<u64> {
        // SAFETY: see `new`.
        let nic = unsafe { &*self.shared };
        let known = index < nic.done_known && nic.done_known - index <= abi::NIC_RING as u64;
        known.then(|| nic.done_ns[index as usize % abi::NIC_RING] + self.origin_ns)
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

    /// The terms of its interrupts as they are now.
    #[inline]
    pub fn moderation(&self) -> Moderation {
        // SAFETY: see `new`.
        let nic = unsafe { &*self.shared };
        Moderation {
            gap_ns: nic.irq_gap_ns,
            frames: nic.irq_frames,
            ring: nic.rx_ring,
        }
    }

    /// A frame was lost because too many waited.
    pub fn count_missed(&mut self) {
        // SAFETY: see `new`.
        unsafe { (*self.shared).rx_missed += 1 };
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
            model: NicModel::default(),
        };
        let mut state = config.initial_state();
        // SAFETY: the state is alive and no kernel has it.
        let mut nic = unsafe { Nic::new(&raw mut state, 500) };
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
