//! `links.csv`: what each direction of each link did in each interval. A line per direction and interval, in the order of time and of
//! the scenario's links; units are in the names of the columns.

use crate::series::lines;

lines! {
    /// A line. Bytes are of frames from the Ethernet header on, without FCS, preamble and gap.
    pub struct LinkInterval<'a> {
        /// Virtual time at the end of the interval, nanoseconds; the interval began at the line before.
        pub time_ns: u64,
        /// Sending end, "node:interface".
        pub from: &'a str,
        /// Receiving end, "node:interface".
        pub to: &'a str,
        /// Frames that the sender handed to the link.
        pub offered_frames: u64,
        /// Their bytes.
        pub offered_bytes: u64,
        /// Frames that reached the receiver, copies included.
        pub delivered_frames: u64,
        /// Their bytes.
        pub delivered_bytes: u64,
        /// Frames lost on the wire by chance.
        pub lost_frames: u64,
        /// Frames that found the link's queue full.
        pub queue_full_frames: u64,
        /// Frames lost as the link was down, or went down.
        pub link_down_frames: u64,
        /// Frames that came when the receiving NIC's ring was full.
        pub rx_ring_full_frames: u64,
        /// Delivered bits by the length of the interval.
        pub throughput_bps: u64,
        /// Mean time that frames put on the wire in the interval waited for it, nanoseconds.
        pub mean_wait_ns: u64,
        /// The longest of these times.
        pub max_wait_ns: u64,
        /// At the end of the interval: how long a frame would wait for the wire, nanoseconds.
        pub wait_ns: u64,
        /// At the end of the interval: frames in the link's own queue; 0 where frames wait in the sender (`queue: nic`).
        pub queue_frames: u64,
        /// Their bytes.
        pub queue_bytes: u64,
    }
}
