//! `tcp.csv`, `mptcp.csv` and `qdiscs.csv`: what kernels knew of their connections and queues at each sample. A line per connection or
//! queueing discipline and sample, in the order of time and of the scenario's nodes; units are in the names of the columns.

use crate::series::lines;
use std::net::IpAddr;

lines! {
    /// A TCP connection, as `ss -ti` in its node shows it. A field that has no value yet is empty.
    pub struct TcpLine<'a> {
        /// Virtual time, nanoseconds: before anything of that instant has happened.
        pub time_ns: u64,
        /// The node.
        pub node: &'a str,
        /// Inode number of the network namespace in it.
        pub netns: u32,
        /// Its own address.
        pub local_address: IpAddr,
        /// Its own port.
        pub local_port: u16,
        /// The peer's address.
        pub remote_address: IpAddr,
        /// The peer's port.
        pub remote_port: u16,
        /// As RFC 9293 names it.
        pub state: &'static str,
        /// The congestion control in use.
        pub congestion_control: &'a str,
        /// Congestion window.
        pub cwnd_packets: u32,
        /// Slow start threshold, once there was a reason to set one.
        pub ssthresh_packets: Option<u32>,
        /// Smoothed round-trip time.
        pub srtt_us: u32,
        /// Its variation.
        pub rttvar_us: u32,
        /// The least round-trip time of the last while (sysctl tcp_min_rtt_wlen), once there is a sample.
        pub min_rtt_us: Option<u32>,
        /// Retransmission timeout.
        pub rto_us: u32,
        /// Segments are of this size at most, without headers.
        pub mss_bytes: u32,
        /// What is taken to be in the network: sent, neither acknowledged nor lost, or sent once more.
        pub in_flight_packets: u32,
        /// Sent and not acknowledged cumulatively.
        pub unacked_packets: u32,
        /// Of these, acknowledged selectively.
        pub sacked_packets: u32,
        /// Of these, taken to be lost.
        pub lost_packets: u32,
        /// Of these, retransmitted.
        pub retransmitted_packets: u32,
        /// All retransmissions so far.
        pub retransmits_total: u32,
        /// At this rate packets leave, if they are paced; none while there is no limit.
        pub pacing_rate_bps: Option<u64>,
        /// The last measured rate of delivery.
        pub delivery_rate_bps: u64,
        /// Sent and acknowledged so far.
        pub bytes_acked: u64,
        /// Received in order so far.
        pub bytes_received: u64,
        /// Sent so far, with retransmissions.
        pub bytes_sent: u64,
        /// Sent once more so far.
        pub bytes_retransmitted: u64,
        /// The peer's advertised window.
        pub snd_window_bytes: u32,
        /// The window that it advertised itself.
        pub rcv_window_bytes: u32,
        /// Written by the program and not acknowledged.
        pub send_queue_bytes: u32,
        /// Of these, not sent yet.
        pub not_sent_bytes: u32,
        /// Received and not read by the program.
        pub recv_queue_bytes: u32,
        /// Of the MPTCP connection that it is a subflow of, as in mptcp.csv.
        pub mptcp_token: Option<u32>,
        /// What the congestion control knows besides: a JSON object; empty with those that tell nothing.
        pub internals: String,
    }

    /// An MPTCP connection, as `ss -Mi` in its node shows it; its subflows are those of tcp.csv with its token.
    pub struct MptcpLine<'a> {
        /// Virtual time, nanoseconds: before anything of that instant has happened.
        pub time_ns: u64,
        /// The node.
        pub node: &'a str,
        /// Inode number of the network namespace in it.
        pub netns: u32,
        /// What its subflows have as `mptcp_token`.
        pub token: u32,
        /// Its own address, as programs see it.
        pub local_address: IpAddr,
        /// Its own port.
        pub local_port: u16,
        /// The peer's address.
        pub remote_address: IpAddr,
        /// The peer's port.
        pub remote_port: u16,
        /// As RFC 9293 names it.
        pub state: &'static str,
        /// Subflows now, the first one included.
        pub subflows: u8,
        /// Addresses that it announced to the peer.
        pub addresses_announced: u8,
        /// Announced addresses of the peer that it took.
        pub addresses_accepted: u8,
        /// Retransmissions of data on another subflow.
        pub retransmits_total: u32,
        /// Sent so far, with retransmissions.
        pub bytes_sent: u64,
        /// Sent once more so far.
        pub bytes_retransmitted: u64,
        /// Sent and acknowledged so far.
        pub bytes_acked: u64,
        /// Received in order so far.
        pub bytes_received: u64,
    }

    /// A queueing discipline, as `tc -s qdisc` in its node shows it. `noqueue` has no lines.
    pub struct QdiscLine<'a> {
        /// Virtual time, nanoseconds: before anything of that instant has happened.
        pub time_ns: u64,
        /// The node.
        pub node: &'a str,
        /// Inode number of the network namespace in it.
        pub netns: u32,
        /// The interface.
        pub interface: &'a str,
        /// Kind: fq_codel, tbf, ...
        pub kind: &'a str,
        /// As tc writes it: `8001:`.
        pub handle: String,
        /// As tc writes it: `root`, `ingress` or a class as `1:10`.
        pub parent: String,
        /// Waiting now.
        pub queued_packets: u32,
        /// Bytes of these.
        pub queued_bytes: u32,
        /// Sent so far.
        pub sent_packets: u64,
        /// Bytes of these.
        pub sent_bytes: u64,
        /// Dropped so far.
        pub dropped_packets: u32,
        /// How often it held packets back so far.
        pub overlimits: u32,
        /// How often the device gave a packet back so far.
        pub requeues: u32,
        /// How long the last packet waited, or what the discipline takes for that: of codel and pie.
        pub delay_us: Option<u64>,
        /// What the discipline knows besides: a JSON object; empty with those that tell nothing.
        pub internals: String,
    }
}
