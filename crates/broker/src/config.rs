//! Who may have which ports: what the administrator says.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use windtunnel_ports::{PortRange, Request};

/// Ports that one client may hold unless a rule says otherwise.
const PORTS_MAX: usize = 256;

/// All rules. Whoever is in none of them may have nothing.
#[derive(Debug, Default)]
pub struct Config {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    users: Vec<u32>,
    groups: Vec<u32>,
    interfaces: Vec<String>,
    tcp: Vec<PortRange>,
    udp: Vec<PortRange>,
    ports_max: usize,
}

/// A client, as the host's kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its user.
    pub uid: u32,
    /// All its groups.
    pub gids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    allow: Vec<RuleDoc>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleDoc {
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    interfaces: Vec<String>,
    #[serde(default)]
    tcp: Vec<String>,
    #[serde(default)]
    udp: Vec<String>,
    #[serde(default = "ports_max")]
    ports_max: usize,
}

fn ports_max() -> usize {
    PORTS_MAX
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Names of users or groups with their numbers: the text of /etc/passwd or /etc/group.
struct Names<'a>(&'a str, &'static str);

impl Names<'_> {
    fn number(&self, name: &str) -> Result<u32, ConfigError> {
        let named = |line: &str| {
            let mut words = line.split(':');
            (words.next() == Some(name))
                .then(|| words.nth(1)?.parse().ok())
                .flatten()
        };
        let found = name.parse().ok().or_else(|| self.0.lines().find_map(named));
        found.ok_or_else(|| {
            ConfigError(format!(
                "there is no {} `{name}` in /etc; allowed are names that are there, and numbers in quotes",
                self.1
            ))
        })
    }
}

impl Config {
    /// Reads the text of a configuration; names are looked up in those of `passwd` and `group`.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, passwd: &str, group: &str) -> Result<Self, ConfigError> {
        let document: Document = toml::from_str(text).map_err(|error| ConfigError(error.to_string()))?;
        let (users, groups) = (Names(passwd, "user"), Names(group, "group"));
        let rule = |doc: RuleDoc| {
            if doc.users.is_empty() && doc.groups.is_empty() {
                return Err(ConfigError("a rule names neither `users` nor `groups`".into()));
            }
            let ranges = |texts: &[String]| {
                let range = |text: &String| text.parse().map_err(ConfigError);
                texts.iter().map(range).collect::<Result<Vec<_>, _>>()
            };
            Ok(Rule {
                users: doc
                    .users
                    .iter()
                    .map(|name| users.number(name))
                    .collect::<Result<_, _>>()?,
                groups: doc
                    .groups
                    .iter()
                    .map(|name| groups.number(name))
                    .collect::<Result<_, _>>()?,
                tcp: ranges(&doc.tcp)?,
                udp: ranges(&doc.udp)?,
                interfaces: doc.interfaces,
                ports_max: doc.ports_max,
            })
        };
        let rules = document.allow.into_iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Reads a file, with the names of this host.
    ///
    /// # Errors
    /// That it cannot be read, that others may write to it, or what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        use std::os::unix::fs::MetadataExt;
        let of_file = |error: &dyn fmt::Display| ConfigError(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| of_file(&error))?;
        let found = std::fs::metadata(path).map_err(|error| of_file(&error))?;
        if found.mode() & 0o022 != 0 {
            return Err(of_file(&"others than its owner may write to it: chmod go-w"));
        }
        let names = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text, &names("/etc/passwd"), &names("/etc/group")).map_err(|error| of_file(&error))
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Whether one rule lets the client have all of it.
    ///
    /// # Errors
    /// Why not, in words for the user.
    pub fn allows(&self, client: &Client, request: &Request) -> Result<(), String> {
        let of_client = |rule: &&Rule| {
            rule.users.contains(&client.uid) || rule.groups.iter().any(|group| client.gids.contains(group))
        };
        let there = |rule: &&Rule| rule.interfaces.iter().any(|interface| interface == &request.interface);
        let rules: Vec<&Rule> = self.rules.iter().filter(of_client).filter(there).collect();
        if rules.is_empty() {
            return Err(format!(
                "user {} may have no ports on {}; the administrator allows them in the broker's configuration",
                client.uid, request.interface
            ));
        }
        if rules.iter().any(|rule| rule.has(request)) {
            return Ok(());
        }
        let list = |ranges: &dyn Fn(&Rule) -> Vec<PortRange>| {
            let texts: Vec<String> = rules
                .iter()
                .flat_map(|rule| ranges(rule))
                .map(|range| range.to_string())
                .collect();
            if texts.is_empty() {
                "none".into()
            } else {
                texts.join(", ")
            }
        };
        Err(format!(
            "not all of these ports; allowed to user {} on {} are TCP {} and UDP {}, {} at a time, all by one rule",
            client.uid,
            request.interface,
            list(&|rule| rule.tcp.clone()),
            list(&|rule| rule.udp.clone()),
            rules.iter().map(|rule| rule.ports_max).max().unwrap_or(0)
        ))
    }
}

impl Rule {
    fn has(&self, request: &Request) -> bool {
        let within = |all: &[PortRange], wanted: &[PortRange]| {
            wanted.iter().all(|range| {
                all.iter()
                    .any(|allowed| allowed.first <= range.first && range.last <= allowed.last)
            })
        };
        let count: usize = request.tcp.iter().chain(&request.udp).map(|range| range.count()).sum();
        count <= self.ports_max && within(&self.tcp, &request.tcp) && within(&self.udp, &request.udp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[allow]]\nusers = ['ann', '77']\ngroups = ['lab']\ninterfaces = ['eth0']\ntcp = ['40000-40099', '8080']\nports_max = 50\n";
    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n";
    const GROUP: &str = "lab:x:2000:bob\n";

    fn request(interface: &str, first: u16, last: u16) -> Request {
        Request {
            interface: interface.into(),
            tcp: vec![PortRange { first, last }],
            udp: vec![],
        }
    }

    #[test]
    fn a_rule_is_for_its_users_interfaces_and_ports() {
        let config = Config::parse(TEXT, PASSWD, GROUP).unwrap();
        let client = |uid, gid| Client { uid, gids: vec![gid] };
        for who in [client(1000, 1), client(77, 1), client(5, 2000)] {
            assert_eq!(config.allows(&who, &request("eth0", 40_000, 40_049)), Ok(()));
        }
        for who in [client(0, 0), client(2000, 1000)] {
            let error = config.allows(&who, &request("eth0", 40_000, 40_001)).unwrap_err();
            assert!(error.contains("may have no ports on eth0"), "{error}");
        }
        let ann = client(1000, 1);
        assert!(config.allows(&ann, &request("eth1", 8080, 8080)).is_err());
        for (first, last) in [(40_000, 40_050), (40_099, 40_100), (22, 22)] {
            let error = config.allows(&ann, &request("eth0", first, last)).unwrap_err();
            assert!(
                error.contains("TCP 40000-40099, 8080 and UDP none, 50 at a time"),
                "{error}"
            );
        }
        let udp = Request {
            udp: vec![PortRange {
                first: 8080,
                last: 8080,
            }],
            ..request("eth0", 8080, 8080)
        };
        assert!(config.allows(&ann, &udp).is_err());
    }

    #[test]
    fn mistakes_are_told() {
        let text = |text: &str| Config::parse(text, PASSWD, GROUP).unwrap_err().to_string();
        assert!(text("[[allow]]\nusers = ['eve']\ninterfaces = []").contains("no user `eve`"));
        assert!(text("[[allow]]\ninterfaces = []").contains("neither `users` nor `groups`"));
        assert!(text("[[allow]]\nusers = ['ann']\ninterfaces = []\nport = 1").contains("unknown field `port`"));
        assert!(text("[[allow]]\nusers = ['ann']\ninterfaces = []\ntcp = ['9-1']").contains("9-1"));
        assert_eq!(Config::parse("", "", "").unwrap().rules(), 0);
    }
}
