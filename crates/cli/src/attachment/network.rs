//! IPv4 networks of the host, and one that is free.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An address and the size of its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Subnet {
    /// The address itself.
    pub address: Ipv4Addr,
    /// Bits of the subnet's prefix, 1 to 30.
    pub prefix_bits: u8,
}

impl Ipv4Subnet {
    fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix_bits))
    }

    /// First address.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.mask())
    }

    /// The first address for an interface that is not this one.
    pub fn neighbour(self) -> Ipv4Addr {
        let first = self.network().to_bits() + 1;
        let other = if first == self.address.to_bits() {
            first + 1
        } else {
            first
        };
        Ipv4Addr::from_bits(other)
    }

    /// The `number`th address, from 0 on.
    pub fn nth(self, number: u32) -> Self {
        let address = Ipv4Addr::from_bits(self.network().to_bits() + number);
        Self { address, ..self }
    }

    /// Whether an address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        self.address.to_bits() & mask == other.address.to_bits() & mask
    }
}

impl fmt::Display for Ipv4Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl FromStr for Ipv4Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "an IPv4 address with a prefix of 1 to 30 bits, as in 10.9.0.2/30";
        let (address, bits) = text.split_once('/').ok_or(allowed)?;
        let address: Ipv4Addr = address.parse().map_err(|_| allowed)?;
        let prefix_bits: u8 = bits.parse().map_err(|_| allowed)?;
        if !(1..=30).contains(&prefix_bits) {
            return Err(allowed.into());
        }
        let subnet = Self { address, prefix_bits };
        let last = subnet.network().to_bits() | !subnet.mask();
        if address == subnet.network() || address.to_bits() == last {
            return Err(format!(
                "{address} is the first or last address of its subnet, which no interface can have; allowed: {allowed}"
            ));
        }
        Ok(subnet)
    }
}

/// Where free subnets are looked for: parts of the private networks (RFC 1918) that few use, and the network for benchmarks (RFC 2544).
const POOLS: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 213, 0, 0), 16),
    (Ipv4Addr::new(172, 29, 0, 0), 16),
    (Ipv4Addr::new(192, 168, 213, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 16),
];
/// Bits of the prefix of a subnet of two.
const PAIR_BITS: u8 = 30;

/// A subnet of two addresses that no route of the host leads to. `salt` makes two that look at the same time find different ones.
pub fn free_pair(salt: u32) -> Option<Ipv4Subnet> {
    let taken = routes(&std::fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default());
    free_among(&taken, salt)
}

fn free_among(taken: &[Ipv4Subnet], salt: u32) -> Option<Ipv4Subnet> {
    POOLS.iter().find_map(|&(start, bits)| {
        let count = 1 << (PAIR_BITS - bits);
        let pair = |number: u32| Ipv4Subnet {
            address: Ipv4Addr::from_bits(start.to_bits() + 4 * ((number.wrapping_add(salt)) % count)),
            prefix_bits: PAIR_BITS,
        };
        let free = |pair: &Ipv4Subnet| !taken.iter().any(|taken| taken.overlaps(*pair));
        (0..count).map(pair).find(free)
    })
}

/// Where routes lead, but for default ones: of the text of /proc/net/route.
fn routes(text: &str) -> Vec<Ipv4Subnet> {
    let number = |word: &str| u32::from_str_radix(word, 16).ok().map(u32::from_be);
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (to, mask) = (number(words.get(1)?)?, number(words.get(7)?)?);
        let prefix_bits = mask.count_ones() as u8;
        let address = Ipv4Addr::from_bits(to);
        (prefix_bits > 0).then_some(Ipv4Subnet { address, prefix_bits })
    };
    text.lines().skip(1).filter_map(route).collect()
}

/// Whether the host has a way to everywhere.
pub fn has_default_route() -> bool {
    let text = std::fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let is_default = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
    };
    text.lines().any(is_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Ipv4Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_a_neighbour_in_its_subnet() {
        for (text, neighbour) in [
            ("10.9.0.2/30", [10, 9, 0, 1]),
            ("10.9.0.1/30", [10, 9, 0, 2]),
            ("192.168.1.77/24", [192, 168, 1, 1]),
        ] {
            assert_eq!(subnet(text).neighbour(), Ipv4Addr::from(neighbour));
        }
        for bad in [
            "",
            "10.0.0.1",
            "10.0.0.1/31",
            "10.0.0.0/24",
            "10.0.0.255/24",
            "fd00::1/64",
            "10.0.0.1/0",
        ] {
            assert!(bad.parse::<Ipv4Subnet>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_subnet_is_taken_that_the_host_has_a_route_to() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth0\t0000D50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let taken = routes(text);
        assert_eq!(
            taken,
            [Ipv4Subnet {
                address: Ipv4Addr::new(10, 213, 0, 0),
                prefix_bits: 24
            }]
        );
        let free = free_among(&taken, 0).unwrap();
        assert_eq!(free.network(), Ipv4Addr::new(10, 213, 1, 0));
        assert_ne!(free_among(&taken, 101), free_among(&taken, 102));
        let all_of_ten = Ipv4Subnet {
            address: Ipv4Addr::new(10, 0, 0, 0),
            prefix_bits: 8,
        };
        assert_eq!(
            free_among(&[all_of_ten], 5).unwrap().network(),
            Ipv4Addr::new(172, 29, 0, 20)
        );
        let all = Ipv4Subnet {
            address: Ipv4Addr::new(128, 0, 0, 0),
            prefix_bits: 1,
        };
        assert!(free_among(&[all_of_ten, all], 0).is_none());
    }
}
