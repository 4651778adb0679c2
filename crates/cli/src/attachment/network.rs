//! Networks of the host, and some that are free.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the size of its subnet, which has room for two at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpSubnet {
    /// The address itself.
    pub address: IpAddr,
    /// Bits of the subnet's prefix: 1 to 30, or to 126 of IPv6.
    pub prefix_bits: u8,
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl IpSubnet {
    /// The address with these bits, of the same version as this one.
    fn with_bits(self, bits: u128) -> IpAddr {
        match self.address {
            // The upper ones are not an address's.
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        }
    }

    /// Bits of the address that are no prefix.
    fn host_bits(self) -> u8 {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        all - self.prefix_bits
    }

    /// First address.
    pub fn network(self) -> IpAddr {
        self.with_bits(bits_of(self.address) >> self.host_bits() << self.host_bits())
    }

    /// The first address for an interface that is not this one.
    pub fn neighbour(self) -> IpAddr {
        let first = self.nth(1).address;
        if first == self.address {
            self.nth(2).address
        } else {
            first
        }
    }

    /// The `number`th address, from 0 on.
    pub fn nth(self, number: u32) -> Self {
        let address = self.with_bits(bits_of(self.network()) + u128::from(number));
        Self { address, ..self }
    }

    /// Whether an address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        let ignored = self.host_bits().max(other.host_bits());
        let prefix = |subnet: Self| bits_of(subnet.address) >> ignored;
        self.address.is_ipv4() == other.address.is_ipv4() && prefix(self) == prefix(other)
    }
}

impl fmt::Display for IpSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl FromStr for IpSubnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "an address with a prefix of 1 to 30 bits (IPv6: 126), as in 10.9.0.2/30 or fd00::2/64";
        let (address, bits) = text.split_once('/').ok_or(allowed)?;
        let address: IpAddr = address.parse().map_err(|_| allowed)?;
        let prefix_bits: u8 = bits.parse().map_err(|_| allowed)?;
        let most = if address.is_ipv4() { 30 } else { 126 };
        if !(1..=most).contains(&prefix_bits) {
            return Err(allowed.into());
        }
        let subnet = Self { address, prefix_bits };
        let last = bits_of(subnet.network()) + ((1 << subnet.host_bits()) - 1);
        // RFC 4291, 2.6.1: the first one of IPv6 is that of all routers. The last one is free.
        if address == subnet.network() || (address.is_ipv4() && bits_of(address) == last) {
            return Err(format!(
                "{address} is the first or last address of its subnet, which no interface can have; allowed: {allowed}"
            ));
        }
        Ok(subnet)
    }
}

/// Where free subnets of IPv4 are looked for: parts of the private networks (RFC 1918) that few use, and the network for benchmarks (RFC 2544).
const POOLS: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 213, 0, 0), 16),
    (Ipv4Addr::new(172, 29, 0, 0), 16),
    (Ipv4Addr::new(192, 168, 213, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 16),
];
/// Bits of the prefix of a subnet of two.
const PAIR_BITS: u8 = 30;
/// Where those of IPv6 are looked for: a unique local prefix (RFC 4193) of 48 bits, which nobody has drawn by lot.
pub const ULA: Ipv6Addr = Ipv6Addr::new(0xfd57, 0x7474, 0x756e, 0, 0, 0, 0, 0);
/// Bits of the prefix of a link (RFC 4291, 2.5.1).
pub const LINK_BITS: u8 = 64;

/// A subnet of two addresses that no route of the host leads to. `salt` makes two that look at the same time find different ones.
pub fn free_pair(salt: u32) -> Option<IpSubnet> {
    free_among(&routes(&routes_text()), salt)
}

/// The same of IPv6, for a link.
pub fn free_link(salt: u32) -> Option<IpSubnet> {
    free_link_among(&routes_v6(&routes_v6_text()), salt)
}

fn routes_text() -> String {
    std::fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default()
}

fn routes_v6_text() -> String {
    // Absent from kernels without IPv6.
    std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default()
}

fn free_among(taken: &[IpSubnet], salt: u32) -> Option<IpSubnet> {
    POOLS.iter().find_map(|&(start, bits)| {
        let count = 1 << (PAIR_BITS - bits);
        let pair = |number: u32| IpSubnet {
            address: Ipv4Addr::from_bits(start.to_bits() + 4 * ((number.wrapping_add(salt)) % count)).into(),
            prefix_bits: PAIR_BITS,
        };
        let free = |pair: &IpSubnet| !taken.iter().any(|taken| taken.overlaps(*pair));
        (0..count).map(pair).find(free)
    })
}

fn free_link_among(taken: &[IpSubnet], salt: u32) -> Option<IpSubnet> {
    let link = |number: u16| IpSubnet {
        // What is left of 128 bits counts addresses; above, 16 bits count links.
        address: Ipv6Addr::from_bits(ULA.to_bits() | u128::from(number) << (128 - LINK_BITS)).into(),
        prefix_bits: LINK_BITS,
    };
    let free = |link: &IpSubnet| !taken.iter().any(|taken| taken.overlaps(*link));
    // The lower half of the salt: numbers of processes differ there.
    (0..=u16::MAX)
        .map(|number| link(number.wrapping_add(salt as u16)))
        .find(free)
}

/// Where routes lead, but for default ones: of the text of /proc/net/route.
fn routes(text: &str) -> Vec<IpSubnet> {
    let number = |word: &str| u32::from_str_radix(word, 16).ok().map(u32::from_be);
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (to, mask) = (number(words.get(1)?)?, number(words.get(7)?)?);
        let prefix_bits = mask.count_ones() as u8;
        let address = Ipv4Addr::from_bits(to).into();
        (prefix_bits > 0).then_some(IpSubnet { address, prefix_bits })
    };
    text.lines().skip(1).filter_map(route).collect()
}

/// The same of /proc/net/ipv6_route.
fn routes_v6(text: &str) -> Vec<IpSubnet> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let to = u128::from_str_radix(words.first()?, 16).ok()?;
        let prefix_bits = u8::from_str_radix(words.get(1)?, 16).ok()?;
        let address = Ipv6Addr::from_bits(to).into();
        (prefix_bits > 0).then_some(IpSubnet { address, prefix_bits })
    };
    text.lines().filter_map(route).collect()
}

/// Whether the host has a way to everywhere by IPv4.
pub fn has_default_route() -> bool {
    let is_default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
    };
    routes_text().lines().any(is_default)
}

/// The same by IPv6.
pub fn has_default_route_v6() -> bool {
    is_default_in(&routes_v6_text())
}

fn is_default_in(text: &str) -> bool {
    /// `RTF_REJECT` (linux/route.h): it answers that there is no route. The kernel has such a default of its own.
    const REJECTS: u32 = 0x200;
    let is_default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags = words.get(8).and_then(|word| u32::from_str_radix(word, 16).ok());
        words.get(1) == Some(&"00") && flags.is_some_and(|flags| flags & REJECTS == 0)
    };
    text.lines().any(is_default)
}

/// Whether an interface that is made now can have addresses of IPv6.
pub fn has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6").is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> IpSubnet {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_a_neighbour_in_its_subnet() {
        for (text, neighbour) in [
            ("10.9.0.2/30", "10.9.0.1"),
            ("10.9.0.1/30", "10.9.0.2"),
            ("192.168.1.77/24", "192.168.1.1"),
            ("fd00::2/64", "fd00::1"),
            ("fd00::1/126", "fd00::2"),
            ("2001:db8:1:2:3:4:5:6/1", "::1"),
        ] {
            assert_eq!(subnet(text).neighbour().to_string(), neighbour);
        }
        assert_eq!(
            subnet("fd00::ffff:ffff:ffff:ffff/64").to_string(),
            "fd00::ffff:ffff:ffff:ffff/64"
        );
        for bad in [
            "",
            "10.0.0.1",
            "10.0.0.1/31",
            "10.0.0.0/24",
            "10.0.0.255/24",
            "fd00::/64",
            "fd00::1/127",
            "fd00::1/0",
            "fd00::1%1/64",
            "10.0.0.1/0",
        ] {
            assert!(bad.parse::<IpSubnet>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_subnet_is_taken_that_the_host_has_a_route_to() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth0\t0000D50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let taken = routes(text);
        assert_eq!(taken, [subnet("10.213.0.1/24").nth(0)]);
        let free = free_among(&taken, 0).unwrap();
        assert_eq!(free.network(), Ipv4Addr::new(10, 213, 1, 0));
        assert_ne!(free_among(&taken, 101), free_among(&taken, 102));
        let all_of_ten = subnet("10.0.0.1/8").nth(0);
        assert_eq!(
            free_among(&[all_of_ten], 5).unwrap().network(),
            Ipv4Addr::new(172, 29, 0, 20)
        );
        let all = subnet("128.0.0.1/1").nth(0);
        assert!(free_among(&[all_of_ten, all], 0).is_none());
    }

    #[test]
    fn no_link_is_taken_that_the_host_has_a_route_to() {
        let zeros = "0".repeat(32);
        let line = |to: &str, bits: &str, flags: &str| {
            format!("{to} {bits} {zeros} 00 {zeros} 00000100 00000001 00000000 {flags}     eth0\n")
        };
        let text = line("fd577474756e00050000000000000000", "40", "00000001")
            + &line(&zeros, "00", "00000003")
            + &line("fe800000000000000000000000000000", "40", "00000001");
        let taken = routes_v6(&text);
        assert_eq!(taken[0], subnet("fd57:7474:756e:5::1/64").nth(0));
        assert_eq!(taken.len(), 2);
        assert_eq!(free_link_among(&taken, 4).unwrap().to_string(), "fd57:7474:756e:4::/64");
        assert_eq!(free_link_among(&taken, 5).unwrap().to_string(), "fd57:7474:756e:6::/64");
        assert_eq!(
            free_link_among(&taken, 0x1_ffff).unwrap(),
            free_link_among(&taken, 0xffff).unwrap()
        );
        assert!(free_link_among(&[subnet("fd00::1/8")], 0).is_none());
        assert!(is_default_in(&text));
        assert!(!is_default_in(&line(&zeros, "00", "00200200")));
        assert!(!is_default_in(""));
    }
}
