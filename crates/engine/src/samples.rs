//! What kernels tell of their connections and queues, put into lines of results. Layouts are those of Linux's user interface
//! (include/uapi/linux: tcp.h, inet_diag.h, mptcp.h, pkt_sched.h), whose structures only ever grow at their ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};
use windtunnel_kernel::abi::{Endpoints, MptcpSample, QdiscSample, TcpSample};
use windtunnel_results::{MptcpLine, QdiscLine, TcpLine};

/// Linux's value for "none yet" of a slow start threshold (TCP_INFINITE_SSTHRESH).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// Of a value that is 1 in these formats: bbr's gains, dctcp's alpha.
const BBR_UNIT: f64 = 256.0;
const DCTCP_UNIT: f64 = 1024.0;
const BITS: u64 = 8;

/// INET_DIAG_*: what the internals of a congestion control are.
const VEGAS_INFO: u16 = 3;
const DCTCP_INFO: u16 = 9;
const BBR_INFO: u16 = 16;

const PARENT_ROOT: u32 = 0xffff_ffff;
const PARENT_INGRESS: u32 = 0xffff_fff1;

/// A structure of the kernel's, as far as this kernel has it: what lies beyond its end is 0.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8], len: u32) -> Self {
        Self(&bytes[..bytes.len().min(len as usize)])
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let field = self.0.get(at..at + N);
        field.map_or([0; N], |bytes| bytes.try_into().expect("as many bytes as asked for"))
    }

    fn u8(&self, at: usize) -> u8 {
        u8::from_le_bytes(self.bytes(at))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
}

/// The order of lines: by namespace, own and other end.
pub fn order(ends: &Endpoints) -> impl Ord + use<> {
    let Endpoints {
        netns,
        family,
        local,
        local_port,
        remote,
        remote_port,
        token,
        ..
    } = *ends;
    (netns, family, local, local_port, remote, remote_port, token)
}

/// The text in a field that ends with NUL.
fn text(bytes: &[u8]) -> &str {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).unwrap_or("?")
}

fn address(family: u8, bytes: [u8; 16]) -> IpAddr {
    match family {
        4 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        _ => IpAddr::V6(Ipv6Addr::from(bytes)),
    }
}

/// TCP_* of Linux (include/net/tcp_states.h) as RFC 9293 names them.
fn state(number: u8) -> &'static str {
    match number {
        1 => "ESTABLISHED",
        2 => "SYN-SENT",
        3 | 12 => "SYN-RECEIVED",
        4 => "FIN-WAIT-1",
        5 => "FIN-WAIT-2",
        6 => "TIME-WAIT",
        8 => "CLOSE-WAIT",
        9 => "LAST-ACK",
        10 => "LISTEN",
        11 => "CLOSING",
        _ => "CLOSED",
    }
}

/// A JSON object as a field; empty where there is none.
fn object(value: Option<Value>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// What a congestion control tells of itself.
fn congestion_internals(sample: &TcpSample) -> Option<Value> {
    let info = Fields::new(&sample.cc_info, sample.cc_len.into());
    match sample.cc_kind {
        _ if sample.cc_len == 0 => None,
        VEGAS_INFO => Some(json!({
            "enabled": info.u32(0) != 0,
            "rtt_count": info.u32(4),
            "rtt_us": info.u32(8),
            "min_rtt_us": (info.u32(12) != INFINITE_SSTHRESH).then(|| info.u32(12)),
        })),
        DCTCP_INFO => Some(json!({
            "enabled": info.u16(0) != 0,
            "ce_state": info.u16(2),
            "alpha": f64::from(info.u32(4)) / DCTCP_UNIT,
            "marked_bytes": info.u32(8),
            "acked_bytes": info.u32(12),
        })),
        BBR_INFO => Some(json!({
            "bandwidth_bps": (u64::from(info.u32(0)) | u64::from(info.u32(4)) << 32).saturating_mul(BITS),
            "min_rtt_us": (info.u32(8) != u32::MAX).then(|| info.u32(8)),
            "pacing_gain": f64::from(info.u32(12)) / BBR_UNIT,
            "cwnd_gain": f64::from(info.u32(16)) / BBR_UNIT,
        })),
        _ => None,
    }
}

/// The line of a TCP connection.
pub fn tcp_line<'a>(time_ns: u64, node: &'a str, sample: &'a TcpSample) -> TcpLine<'a> {
    let info = Fields::new(&sample.info, sample.info_len);
    let ends = &sample.ends;
    let (unacked, sacked, lost, retransmitted) = (info.u32(24), info.u32(28), info.u32(32), info.u32(36));
    TcpLine {
        time_ns,
        node,
        netns: ends.netns,
        local_address: address(ends.family, ends.local),
        local_port: ends.local_port,
        remote_address: address(ends.family, ends.remote),
        remote_port: ends.remote_port,
        state: state(ends.state),
        congestion_control: text(&sample.cc_name),
        cwnd_packets: info.u32(80),
        ssthresh_packets: (info.u32(76) < INFINITE_SSTHRESH).then(|| info.u32(76)),
        srtt_us: info.u32(68),
        rttvar_us: info.u32(72),
        min_rtt_us: (info.u32(148) != u32::MAX).then(|| info.u32(148)),
        rto_us: info.u32(8),
        mss_bytes: info.u32(16),
        // tcp_packets_in_flight() of include/net/tcp.h.
        in_flight_packets: (unacked + retransmitted).saturating_sub(sacked + lost),
        unacked_packets: unacked,
        sacked_packets: sacked,
        lost_packets: lost,
        retransmitted_packets: retransmitted,
        retransmits_total: info.u32(100),
        pacing_rate_bps: (info.u64(104) != u64::MAX).then(|| info.u64(104).saturating_mul(BITS)),
        delivery_rate_bps: info.u64(160).saturating_mul(BITS),
        bytes_acked: info.u64(120),
        bytes_received: info.u64(128),
        bytes_sent: info.u64(200),
        bytes_retransmitted: info.u64(208),
        snd_window_bytes: info.u32(228),
        rcv_window_bytes: info.u32(232),
        send_queue_bytes: sample.send_queue,
        not_sent_bytes: info.u32(144),
        recv_queue_bytes: sample.recv_queue,
        mptcp_token: (ends.token != 0).then_some(ends.token),
        internals: object(congestion_internals(sample)),
    }
}

/// The line of an MPTCP connection.
pub fn mptcp_line<'a>(time_ns: u64, node: &'a str, sample: &MptcpSample) -> MptcpLine<'a> {
    let info = Fields::new(&sample.info, sample.info_len);
    let ends = &sample.ends;
    MptcpLine {
        time_ns,
        node,
        netns: ends.netns,
        token: ends.token,
        local_address: address(ends.family, ends.local),
        local_port: ends.local_port,
        remote_address: address(ends.family, ends.remote),
        remote_port: ends.remote_port,
        state: state(ends.state),
        subflows: info.u8(80),
        addresses_announced: info.u8(1),
        addresses_accepted: info.u8(2),
        retransmits_total: info.u32(44),
        bytes_sent: info.u64(56),
        bytes_retransmitted: info.u64(48),
        bytes_acked: info.u64(72),
        bytes_received: info.u64(64),
    }
}

/// A handle, or a class, as tc writes it.
fn handle(number: u32) -> String {
    let (major, minor) = (number >> 16, number & 0xffff);
    match number {
        PARENT_ROOT => "root".to_owned(),
        PARENT_INGRESS => "ingress".to_owned(),
        _ if minor == 0 => format!("{major:x}:"),
        _ => format!("{major:x}:{minor:x}"),
    }
}

/// What a queueing discipline tells of itself, and the delay in that, us.
fn queue_internals(sample: &QdiscSample) -> (Option<u64>, Option<Value>) {
    let stats = Fields::new(&sample.xstats, sample.xstats_len);
    if sample.xstats_len == 0 {
        return (None, None);
    }
    match text(&sample.kind) {
        "codel" => {
            let told = json!({
                "max_packet_bytes": stats.u32(0),
                "count": stats.u32(4),
                "dropped_full_packets": stats.u32(20),
                "ecn_marked_packets": stats.u32(24),
                "dropping": stats.u32(28) != 0,
                "ce_marked_packets": stats.u32(32),
            });
            (Some(stats.u32(12).into()), Some(told))
        }
        // The first word says of what kind the rest is: 0 for the whole discipline.
        "fq_codel" => {
            let told = json!({
                "max_packet_bytes": stats.u32(4),
                "dropped_full_packets": stats.u32(8),
                "ecn_marked_packets": stats.u32(12),
                "new_flows_total": stats.u32(16),
                "new_flows": stats.u32(20),
                "old_flows": stats.u32(24),
                "ce_marked_packets": stats.u32(28),
                "memory_bytes": stats.u32(32),
                "dropped_memory_packets": stats.u32(36),
            });
            (None, Some(told))
        }
        "pie" => {
            let told = json!({
                "dropped_early_packets": stats.u32(24),
                "dropped_full_packets": stats.u32(28),
                "max_queue_packets": stats.u32(32),
                "ecn_marked_packets": stats.u32(36),
            });
            (Some(stats.u32(8).into()), Some(told))
        }
        "fq_pie" => {
            let told = json!({
                "dropped_early_packets": stats.u32(4),
                "dropped_full_packets": stats.u32(8),
                "dropped_memory_packets": stats.u32(12),
                "ecn_marked_packets": stats.u32(16),
            });
            (None, Some(told))
        }
        "red" => {
            let told = json!({
                "dropped_early_packets": stats.u32(0),
                "dropped_full_packets": stats.u32(4),
                "marked_packets": stats.u32(12),
            });
            (None, Some(told))
        }
        "fq" => {
            let told = json!({
                "throttled_total": stats.u64(24),
                "dropped_flow_full_packets": stats.u64(32),
                "flows": stats.u32(64),
                "inactive_flows": stats.u32(68),
                "throttled_flows": stats.u32(72),
            });
            (None, Some(told))
        }
        _ => (None, None),
    }
}

/// The line of a queueing discipline.
pub fn qdisc_line<'a>(time_ns: u64, node: &'a str, sample: &'a QdiscSample) -> QdiscLine<'a> {
    let (delay_us, internals) = queue_internals(sample);
    QdiscLine {
        time_ns,
        node,
        netns: sample.netns,
        interface: text(&sample.device),
        kind: text(&sample.kind),
        handle: handle(sample.handle),
        parent: handle(sample.parent),
        queued_packets: sample.queued,
        queued_bytes: sample.backlog,
        sent_packets: sample.packets,
        sent_bytes: sample.bytes,
        dropped_packets: sample.drops,
        overlimits: sample.overlimits,
        requeues: sample.requeues,
        delay_us,
        internals: object(internals),
    }
}
