//! A port on the host's own address by the broker (`windtunnel broker`): what both sides of its socket say, and what it holds for a client.
//!
//! ```text
//!  client --request--> broker        one connection (Unix, SOCK_SEQPACKET) for each port
//!         <--answer---               granted, or refused in words
//!         <--frames-->               each with a header for offloads (`struct virtio_net_hdr`) before it
//! ```
//!
//! The packet socket itself is never passed on: whoever has one can send anything from anybody, bind it to another interface, and make that promiscuous,
//! filter or not. So frames pass the broker in both directions, superframes in one message.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use windtunnel_netlink::PortRange;

use super::held::Held;
use super::owned::Owned;
use super::{RANGES_MAX, check_ranges};
use crate::interface::HostInterface;
use crate::link::check_name;
use crate::offload::VNET_BYTES;
use crate::packet::{Setup, packet_socket};
use crate::{FRAME_BYTES_MAX, PortError};

/// Where the broker listens unless told otherwise.
pub const BROKER_SOCKET: &str = "/run/windtunnel/broker.sock";
/// Longest message that holds a frame, bytes.
pub const MESSAGE_BYTES_MAX: usize = VNET_BYTES + FRAME_BYTES_MAX;
/// Longest request or answer, bytes.
pub const WORDS_BYTES_MAX: usize = 4096;
/// What a request begins with: the protocol and its version.
const MAGIC: [u8; 5] = *b"WTBR\x01";
const GRANTED: u8 = 1;
const REFUSED: u8 = 2;
const ADDRESSES_MAX: usize = 64;

/// What a client asks the broker for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the interface.
    pub interface: String,
    /// Ports of TCP.
    pub tcp: Vec<PortRange>,
    /// Ports of UDP.
    pub udp: Vec<PortRange>,
}

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ports are the client's while it is connected.
    Granted(Owned),
    /// Why not, in words for the user, and what to do.
    Refused(String),
}

/// Bytes that are taken one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (part, rest) = self.0.split_at_checked(bytes).ok_or("it is too short")?;
        self.0 = rest;
        Ok(part)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn half(&mut self) -> Result<u16, String> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn ranges(&mut self) -> Result<Vec<PortRange>, String> {
        let count = usize::from(self.byte()?);
        if count > RANGES_MAX {
            return Err(format!("it has {count} ranges of ports"));
        }
        let mut range = |_| {
            let (first, last) = (self.half()?, self.half()?);
            Ok(PortRange { first, last })
        };
        (0..count).map(&mut range).collect()
    }

    fn end(self) -> Result<(), String> {
        self.0.is_empty().then_some(()).ok_or_else(|| "it is too long".into())
    }
}

fn put_ranges(bytes: &mut Vec<u8>, ranges: &[PortRange]) {
    bytes.push(ranges.len() as u8);
    for range in ranges {
        bytes.extend(range.first.to_be_bytes());
        bytes.extend(range.last.to_be_bytes());
    }
}

impl Request {
    /// The message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.interface.len() as u8);
        bytes.extend(self.interface.as_bytes());
        put_ranges(&mut bytes, &self.tcp);
        put_ranges(&mut bytes, &self.udp);
        bytes
    }

    /// Reads a message of anybody.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err("it is not a request, or one of another version".into());
        }
        let length = usize::from(reader.byte()?);
        let interface = std::str::from_utf8(reader.take(length)?).map_err(|_| "the interface's name is not UTF-8")?;
        check_name("broker", interface).map_err(|error| error.to_string())?;
        let (tcp, udp) = (reader.ranges()?, reader.ranges()?);
        reader.end()?;
        check_ranges("broker", &tcp, &udp).map_err(|error| error.to_string())?;
        Ok(Self {
            interface: interface.into(),
            tcp,
            udp,
        })
    }
}

impl Answer {
    /// The message.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Granted(owned) => {
                let mut bytes = vec![GRANTED];
                bytes.extend(owned.mac);
                let addresses = &owned.addresses[..owned.addresses.len().min(ADDRESSES_MAX)];
                bytes.push(addresses.len() as u8);
                for address in addresses {
                    match address {
                        IpAddr::V4(v4) => bytes.extend(v4.to_ipv6_mapped().octets()),
                        IpAddr::V6(v6) => bytes.extend(v6.octets()),
                    }
                }
                put_ranges(&mut bytes, &owned.tcp);
                put_ranges(&mut bytes, &owned.udp);
                bytes
            }
            Self::Refused(words) => {
                let mut end = words.len().min(WORDS_BYTES_MAX - 1);
                while !words.is_char_boundary(end) {
                    end -= 1;
                }
                [&[REFUSED], &words.as_bytes()[..end]].concat()
            }
        }
    }

    /// Reads a message of the broker.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > WORDS_BYTES_MAX {
            return Err("it is too long".into());
        }
        let mut reader = Reader(bytes);
        match reader.byte()? {
            GRANTED => {
                let mac = reader.take(6)?.try_into().expect("six were taken");
                let count = usize::from(reader.byte()?);
                if count > ADDRESSES_MAX {
                    return Err(format!("it has {count} addresses"));
                }
                let mut address = |_| {
                    let bytes: [u8; 16] = reader.take(16)?.try_into().expect("sixteen were taken");
                    let v6 = Ipv6Addr::from(bytes);
                    Ok(v6
                        .to_ipv4_mapped()
                        .map_or(IpAddr::V6(v6), |v4: Ipv4Addr| IpAddr::V4(v4)))
                };
                let addresses = (0..count).map(&mut address).collect::<Result<Vec<_>, String>>()?;
                let (tcp, udp) = (reader.ranges()?, reader.ranges()?);
                reader.end()?;
                Ok(Self::Granted(Owned {
                    mac,
                    addresses,
                    tcp,
                    udp,
                }))
            }
            REFUSED => match std::str::from_utf8(reader.0) {
                Ok(words) => Ok(Self::Refused(words.into())),
                Err(_) => Err("its words are not UTF-8".into()),
            },
            other => Err(format!("an answer of kind {other}")),
        }
    }
}

/// What the broker holds for a client; all of it goes with this.
#[derive(Debug)]
pub struct Lent {
    owned: Owned,
    socket: std::os::fd::OwnedFd,
    _held: Held,
}

impl Lent {
    /// Takes what was asked for, in the network namespace of this thread.
    ///
    /// # Errors
    /// As opening a port of kind `raw`; `client` is what messages call it.
    pub fn open(client: &str, request: &Request) -> Result<Self, PortError> {
        let (owned, held) = super::take(client, &request.interface, &request.tcp, &request.udp)?;
        let filter = owned.filter();
        let setup = Setup {
            mtu: None,
            promiscuous: false,
            filter: Some(&filter),
        };
        let (socket, _) = packet_socket(client, &request.interface, &setup)?;
        Ok(Self {
            owned,
            socket,
            _held: held,
        })
    }

    /// What is the client's.
    pub fn owned(&self) -> &Owned {
        &self.owned
    }

    /// Readable when something came for the client.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the client may send this message.
    pub fn allows(&self, message: &[u8]) -> bool {
        self.owned.allows_message(message)
    }
}

impl HostInterface {
    /// What is owned of it, with these ports.
    pub(crate) fn owned(&self, tcp: &[PortRange], udp: &[PortRange]) -> Owned {
        Owned {
            mac: self.mac,
            addresses: self.addresses.iter().map(|subnet| subnet.address).collect(),
            tcp: tcp.to_vec(),
            udp: udp.to_vec(),
        }
    }
}

/// What a client hears when there is no broker.
pub(crate) fn absent(port: &str, path: &std::path::Path, error: io::Error) -> PortError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it does not run: systemctl start windtunnel-broker, or as root `windtunnel broker`"
        }
        _ => "`windtunnel broker --help` says who may use it",
    };
    PortError::Host {
        port: port.into(),
        doing: format!("connecting to the broker at {}", path.display()),
        source: error,
        hint: Some(hint.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ranges(list: &[(u16, u16)]) -> Vec<PortRange> {
        list.iter().map(|&(first, last)| PortRange { first, last }).collect()
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let request = Request {
            interface: "eth0".into(),
            tcp: ranges(&[(80, 80), (40_000, 40_099)]),
            udp: vec![],
        };
        assert_eq!(Request::parse(&request.to_bytes()), Ok(request.clone()));
        for end in 0..request.to_bytes().len() {
            assert!(Request::parse(&request.to_bytes()[..end]).is_err(), "cut at {end}");
        }
        assert!(Request::parse(&[&request.to_bytes()[..], &[0]].concat()).is_err());
        let granted = Answer::Granted(Owned {
            mac: [2, 0, 0, 0, 0, 1],
            addresses: vec!["192.0.2.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            tcp: request.tcp,
            udp: ranges(&[(1, 1)]),
        });
        assert_eq!(Answer::parse(&granted.to_bytes()), Ok(granted));
        let refused = Answer::Refused("ä".repeat(4000));
        assert!(refused.to_bytes().len() <= WORDS_BYTES_MAX);
        assert!(matches!(Answer::parse(&refused.to_bytes()), Ok(Answer::Refused(words)) if words.starts_with('ä')));
    }

    #[test]
    fn an_answer_that_no_broker_gives_is_refused() {
        let text = |bytes: &[u8]| Answer::parse(bytes).unwrap_err();
        assert_eq!(
            text(&[&[REFUSED][..], &[b'x'; WORDS_BYTES_MAX]].concat()),
            "it is too long"
        );
        assert_eq!(text(&[REFUSED, 0xff]), "its words are not UTF-8");
        let addresses = [&[GRANTED, 2, 0, 0, 0, 0, 1, 65][..], &[7; 65 * 16], &[0, 0]].concat();
        assert_eq!(text(&addresses), "it has 65 addresses");
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        let text = |interface: &str, list: &[(u16, u16)]| {
            let request = Request {
                interface: interface.into(),
                tcp: ranges(list),
                udp: vec![],
            };
            Request::parse(&request.to_bytes()).unwrap_err()
        };
        assert!(text("../eth0", &[(1, 1)]).contains("cannot be the name of an interface"));
        assert!(text("eth0", &[]).contains("owns 0 ports"));
        assert!(text("eth0", &[(1, 9000)]).contains("9000 ports"));
        assert!(text("eth0", &[(0, 1)]).contains("no range"));
        assert!(text("eth0", &[(9, 1)]).contains("no range"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in vec(any::<u8>(), 0..300), good in any::<bool>()) {
            let bytes = if good { [&MAGIC[..], &bytes].concat() } else { bytes };
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.to_bytes(), bytes.clone());
            }
            let _ = Answer::parse(&bytes);
        }
    }
}
