//! The messages of nf_tables that keep the host's stack away from ports that are not its own (`linux/netfilter/nf_tables.h`).
//!
//! The table belongs to the socket that sends them (`NFT_TABLE_F_OWNER`, from Linux 5.12): nobody else can change it, and the kernel
//! removes it when that socket is closed, also when the process is killed. Its chain is at the hook `input`, so what is routed on to others passes, and
//! packet sockets have seen a frame before.

use crate::{HEADER_BYTES, PortRange};
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
/// `NFPROTO_INET`: IPv4 and IPv6.
const FAMILY_INET: u8 = 1;
const FAMILY_NONE: u8 = 0;
/// `NFT_TABLE_F_OWNER`.
const TABLE_OWNED: u32 = 2;
/// `NF_INET_LOCAL_IN`.
const HOOK_INPUT: u32 = 1;
/// As iptables' table `raw`: before all filters.
const PRIORITY: i32 = -300;
const NESTED: u16 = 0x8000;
const CHAIN: &str = "input";
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const REGISTER: u32 = 1;
const META_IIF: u32 = 4;
const META_L4PROTO: u32 = 16;
const CMP_EQ: u32 = 0;
const CMP_LTE: u32 = 3;
const CMP_GTE: u32 = 5;
/// `NFT_PAYLOAD_TRANSPORT_HEADER`.
const PAYLOAD_TRANSPORT: u32 = 2;

/// What the host's stack must not see: segments and datagrams for these ports that arrive at one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shield<'a> {
    /// Name of the table; no other of the namespace may have it.
    pub table: &'a str,
    /// Number of the interface.
    pub index: u32,
    /// Ports of TCP.
    pub tcp: &'a [PortRange],
    /// Ports of UDP.
    pub udp: &'a [PortRange],
}

impl Shield<'_> {
    /// The messages that make it, to be sent together to a socket of NETLINK_NETFILTER, and the sequence number of the last of them, which is the only one to be
    /// acknowledged: an answer with another number is the refusal of that one.
    pub fn to_bytes(&self) -> (Vec<u8>, u32) {
        let rules: Vec<(u8, PortRange)> = (self.tcp.iter().map(|range| (PROTOCOL_TCP, *range)))
            .chain(self.udp.iter().map(|range| (PROTOCOL_UDP, *range)))
            .collect();
        let mut batch = Batch::default();
        batch.add(BATCH_BEGIN, 0, FAMILY_NONE, &[]);
        let table = [text(1, self.table), number(2, TABLE_OWNED)].concat();
        batch.add(NEW_TABLE, NLM_F_CREATE | NLM_F_EXCL, FAMILY_INET, &table);
        let acknowledged = |is_last| if is_last { NLM_F_ACK } else { 0 };
        let chain_flags = NLM_F_CREATE | acknowledged(rules.is_empty());
        batch.add(NEW_CHAIN, chain_flags, FAMILY_INET, &self.chain());
        for (at, (protocol, range)) in rules.iter().enumerate() {
            let flags = NLM_F_CREATE | NLM_F_APPEND | acknowledged(at + 1 == rules.len());
            batch.add(NEW_RULE, flags, FAMILY_INET, &self.rule(*protocol, *range));
        }
        let last = batch.sequence;
        batch.add(BATCH_END, 0, FAMILY_NONE, &[]);
        (batch.bytes, last)
    }

    fn chain(&self) -> Vec<u8> {
        let hook = [number(1, HOOK_INPUT), number(2, PRIORITY as u32)].concat();
        [text(1, self.table), text(3, CHAIN), nested(4, &hook), text(7, "filter")].concat()
    }

    fn rule(&self, protocol: u8, range: PortRange) -> Vec<u8> {
        let verdict = nested(2, &nested(2, &number(1, 0)));
        let port = [
            number(1, REGISTER),
            number(2, PAYLOAD_TRANSPORT),
            number(3, 2),
            number(4, 2),
        ];
        let expressions = [
            expression("meta", &meta(META_IIF)),
            // The interface's number is in the host's order, as registers are.
            expression("cmp", &compare(CMP_EQ, &self.index.to_ne_bytes())),
            expression("meta", &meta(META_L4PROTO)),
            expression("cmp", &compare(CMP_EQ, &[protocol])),
            expression("payload", &port.concat()),
            expression("cmp", &compare(CMP_GTE, &range.first.to_be_bytes())),
            expression("cmp", &compare(CMP_LTE, &range.last.to_be_bytes())),
            expression("immediate", &[number(1, 0), verdict].concat()),
        ];
        [text(1, self.table), text(2, CHAIN), nested(4, &expressions.concat())].concat()
    }
}

fn meta(key: u32) -> Vec<u8> {
    [number(1, REGISTER), number(2, key)].concat()
}

fn compare(how: u32, value: &[u8]) -> Vec<u8> {
    let value = attribute(1, value);
    [number(1, REGISTER), number(2, how), nested(3, &value)].concat()
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, data)].concat())
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, attributes)
}

/// Numbers of nf_tables are in the order of the network.
fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Messages that are carried out together or not at all.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Number of the last message.
    sequence: u32,
}

impl Batch {
    /// Adds `struct nlmsghdr`, `struct nfgenmsg` and attributes.
    fn add(&mut self, kind: u16, flags: u16, family: u8, attributes: &[u8]) {
        self.sequence += 1;
        let length = (HEADER_BYTES + 4 + attributes.len()) as u32;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        // The subsystem, for the ends of a batch; of no meaning in others.
        self.bytes.extend(SUBSYSTEM.to_be_bytes());
        self.bytes.extend(attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_whole_messages_of_which_the_last_rule_is_acknowledged() {
        let ranges = [PortRange {
            first: 40_000,
            last: 40_099,
        }];
        let shield = Shield {
            table: "t",
            index: 7,
            tcp: &ranges,
            udp: &[],
        };
        let (bytes, last) = shield.to_bytes();
        let mut at = 0;
        let mut seen = Vec::new();
        while at < bytes.len() {
            let word = |from: usize| u32::from_ne_bytes(bytes[at + from..at + from + 4].try_into().unwrap());
            let half = |from: usize| u16::from_ne_bytes(bytes[at + from..at + from + 2].try_into().unwrap());
            assert_eq!(word(0) % 4, 0);
            seen.push((half(4), half(6) & NLM_F_ACK != 0, word(8)));
            at += word(0) as usize;
        }
        assert_eq!(at, bytes.len());
        assert_eq!(
            seen,
            [
                (0x10, false, 1),
                (0xa00, false, 2),
                (0xa03, false, 3),
                (0xa06, true, 4),
                (0x11, false, 5)
            ]
        );
        assert_eq!(last, 4);
        // 40000 to 40099 in the order of the network, and "drop".
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(has(&[0x9c, 0x40]) && has(&[0x9c, 0xa3]) && has(b"immediate\0"));
    }
}
