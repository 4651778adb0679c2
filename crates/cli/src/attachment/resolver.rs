//! Where the node's programs ask for names: the host's resolvers, as far as they can be reached from the node.

use std::net::IpAddr;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The resolvers behind systemd-resolved, which itself listens on the loopback.
const BEHIND_RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// The node's resolv.conf, and what has to be said of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolver {
    /// All of the file.
    pub text: String,
    /// None: it is the host's.
    pub note: Option<String>,
}

/// As `given`, or else as the host has it. `stand_in` reaches a resolver on the host's loopback, where the mode has such an address.
pub fn resolver(given: &[IpAddr], stand_in: Option<IpAddr>) -> Resolver {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    if !given.is_empty() {
        let text = given.iter().map(|address| format!("nameserver {address}\n")).collect();
        return Resolver { text, note: None };
    }
    of_host(&read(RESOLV_CONF), &read(BEHIND_RESOLVED), stand_in)
}

fn of_host(text: &str, behind: &str, stand_in: Option<IpAddr>) -> Resolver {
    let servers = servers(text);
    let Some(loopback) = servers.first().filter(|_| servers.iter().all(is_of_loopback)) else {
        return Resolver {
            text: text.into(),
            note: None,
        };
    };
    let kept = |line: &&str| !line.trim_start().starts_with("nameserver");
    let others: String = text.lines().filter(kept).map(|line| format!("{line}\n")).collect();
    if let Some(stand_in) = stand_in {
        return Resolver {
            text: format!("{others}nameserver {stand_in}\n"),
            note: None,
        };
    }
    let reachable: Vec<IpAddr> = self::servers(behind)
        .into_iter()
        .filter(|address| !is_of_loopback(address))
        .collect();
    if !reachable.is_empty() {
        let lines: String = reachable
            .iter()
            .map(|address| format!("nameserver {address}\n"))
            .collect();
        let names: Vec<String> = reachable.iter().map(IpAddr::to_string).collect();
        return Resolver {
            text: others + &lines,
            note: Some(format!(
                "names: the host's resolver {loopback} is on its loopback, so those behind it are asked: {}",
                names.join(", ")
            )),
        };
    }
    Resolver {
        text: others,
        note: Some(format!(
            "names cannot be looked up: the host's resolver {loopback} is on its loopback, which the node does not reach; \
             give one with --resolver ADDRESS"
        )),
    }
}

fn servers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = (words.next() == Some("nameserver")).then(|| words.next())??;
        address.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

fn is_of_loopback(address: &IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_on_the_loopback_is_gone_around_or_told_of() {
        let plain = "search example.org\nnameserver 192.0.2.53\n";
        let found = of_host(plain, "", None);
        assert_eq!((found.text.as_str(), found.note), (plain, None));
        let stub = "nameserver 127.0.0.53\noptions edns0\n";
        let found = of_host(stub, plain, None);
        assert_eq!(found.text, "options edns0\nnameserver 192.0.2.53\n");
        assert!(found.note.unwrap().contains("127.0.0.53"));
        let found = of_host(stub, plain, Some(IpAddr::from([10, 0, 0, 3])));
        assert_eq!(found.text, "options edns0\nnameserver 10.0.0.3\n");
        let found = of_host(stub, stub, None);
        assert_eq!(found.text, "options edns0\n");
        assert!(found.note.unwrap().contains("--resolver"));
        assert_eq!(of_host("", "", None).note, None);
    }
}
