//! Nodes: kernel, interfaces, routes, files, programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use ipnet::IpNet;
use windtunnel_base::{ByteCost, ByteSize, SimDuration, UnitError, result_files};

use super::link::Ends;
use super::{KERNELS, address, leaf, nic, process};
use crate::document::{CpuDoc, FileDoc, InterfaceDoc, NodeDefaultsDoc, NodeDoc, RootDoc, RouteDoc};
use crate::error::{Mark, Problem};
use crate::model::{Cpu, FileContent, FileSpec, Interface, Node, NodeKind, Root, Route};
use crate::text::{Entries, Flexible, ShortOr, Text};

const DEFAULT_MEMORY: ByteSize = ByteSize::from_mib(64);
/// What Linux takes for a network interface with a few addresses, its entries in /proc and /sys included (75 KiB measured).
const INTERFACE_MEMORY_BYTES: u64 = 80 << 10;
/// What a kernel needs for itself and a few programs.
const MEMORY_BESIDE_INTERFACES: ByteSize = ByteSize::from_mib(8);
const MEMORY_MIN: ByteSize = ByteSize::from_mib(16);
/// A node's RAM lies between 1 and 4 GiB of its address range.
const MEMORY_MAX: ByteSize = ByteSize::from_mib(2048);
const PAGE_BYTES: u64 = 4096;

/// What programs may have, and files take, in a node that does not say: the same on every host, since both show inside.
const DEFAULT_PROGRAM_MEMORY: ByteSize = ByteSize::from_mib(16 << 10);
const DEFAULT_DISK: ByteSize = ByteSize::from_mib(16 << 10);
const LIMIT_MIN: ByteSize = ByteSize::from_mib(1);
/// More than there are addresses.
const LIMIT_MAX: ByteSize = ByteSize::from_mib(1 << 20);

/// Most that one thing may cost: more would be a mistake, and nothing overflows below it.
const EVENT_COST_MAX: SimDuration = SimDuration::from_s(1);
const BYTE_COST_MAX: ByteCost = ByteCost::from_ps(1_000_000);

/// Ethernet's usual one.
const DEFAULT_MTU: u64 = 1500;
/// RFC 8200, section 5.
pub(super) const IPV6_MTU_MIN: u64 = 1280;
/// From Linux's least for IPv4 to what switches call jumbo frames.
const MTU_RANGE: std::ops::RangeInclusive<u64> = 68..=9216;

/// Longest label of a host name (RFC 1035); Linux takes 64 bytes.
const NAME_MAX: usize = 63;

const KINDS: [NodeKind; 3] = [NodeKind::Host, NodeKind::Router, NodeKind::Switch];

/// Keeps a switch from speaking itself: it has no addresses.
const SILENCE: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
];

/// What makes a router.
const FORWARDING: &[(&str, &str)] = &[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")];

/// What is the same for all nodes.
pub(super) struct Settings<'a> {
    pub defaults: Option<&'a NodeDefaultsDoc>,
    pub capture_all: bool,
    pub folder: &'a Path,
    pub ends: &'a Ends,
}

/// All nodes in the order of the file.
pub(super) fn all(docs: &Entries<NodeDoc>, settings: &Settings<'_>) -> Result<Vec<Node>, Problem> {
    docs.0
        .iter()
        .enumerate()
        .map(|(index, (name, doc))| one(index, name, doc, settings))
        .collect()
}

fn one(index: usize, name: &Text, doc: &NodeDoc, settings: &Settings<'_>) -> Result<Node, Problem> {
    let kind = match &doc.kind {
        Some(kind) => KINDS[leaf::one_of(kind, "a kind of node", &["host", "router", "switch"])?],
        None => NodeKind::Host,
    };
    if kind == NodeKind::Switch {
        check_switch(name, doc, &settings.ends.by_node[index])?;
    }
    let defaults = settings.defaults;
    let kernel = doc.kernel.as_ref().or(defaults.and_then(|node| node.kernel.as_ref()));
    let kernel = match kernel {
        Some(kernel) => KERNELS[leaf::one_of(kernel, "a kernel series this version has", KERNELS)?],
        None => KERNELS[0],
    };
    let interfaces = interfaces(index, name, doc, settings)?;
    let memory_text = doc.memory.as_ref().or(defaults.and_then(|node| node.memory.as_ref()));
    let memory_bytes = amount(
        memory_text,
        "an amount of memory for a node",
        DEFAULT_MEMORY,
        MEMORY_MIN..=MEMORY_MAX,
    )?
    .next_multiple_of(PAGE_BYTES);
    check_room(
        memory_bytes,
        interfaces.len(),
        memory_text.map_or(name.at, |text| text.at),
        &name.value,
    )?;
    let root = root(
        doc.root.as_ref().or(defaults.and_then(|node| node.root.as_ref())),
        settings.folder,
    )?;
    let processes = doc.processes.iter().map(|process| process::one(process, name, &root));
    Ok(Node {
        name: name.value.clone(),
        kind,
        position: doc.position,
        kernel: kernel.to_owned(),
        memory_bytes,
        program_memory_bytes: amount(
            doc.program_memory
                .as_ref()
                .or(defaults.and_then(|node| node.program_memory.as_ref())),
            "an amount of memory for a node's programs",
            DEFAULT_PROGRAM_MEMORY,
            LIMIT_MIN..=LIMIT_MAX,
        )?,
        disk_bytes: amount(
            doc.disk.as_ref().or(defaults.and_then(|node| node.disk.as_ref())),
            "an amount of space for a node's files",
            DEFAULT_DISK,
            LIMIT_MIN..=LIMIT_MAX,
        )?,
        cpu: cpu(&[defaults.and_then(|node| node.cpu.as_ref()), doc.cpu.as_ref()])?,
        routes: doc
            .routes
            .iter()
            .map(|route| self::route(route, name, &interfaces))
            .collect::<Result<_, _>>()?,
        interfaces,
        sysctls: sysctls(kind, defaults.map(|node| &node.sysctls), &doc.sysctls)?,
        files: doc
            .files
            .0
            .iter()
            .map(|(path, file)| self::file(path, file, settings.folder))
            .collect::<Result<_, _>>()?,
        setup: doc.setup.iter().map(process::command).collect::<Result<_, _>>()?,
        processes: processes.collect::<Result<_, _>>()?,
        root,
    })
}

/// A switch has no addresses and no routes.
fn check_switch(name: &Text, doc: &NodeDoc, interfaces: &[String]) -> Result<(), Problem> {
    if interfaces.iter().any(|interface| interface == NodeKind::BRIDGE) {
        let message = format!("the switch `{}` has an interface `{}`", name.value, NodeKind::BRIDGE);
        return Err(
            Problem::new(name.at, message).hint("this is the name of its bridge: give its interface another one")
        );
    }
    let short = doc.addresses.0.first().map(|(name, _)| name);
    let mut long = doc
        .interfaces
        .0
        .iter()
        .filter(|(_, interface)| interface.addresses.is_some());
    if let Some(name) = short.or(long.next().map(|(name, _)| name)) {
        return Err(Problem::new(name.at, "a switch has no addresses").hint("`kind: router` forwards between networks"));
    }
    match doc.routes.first() {
        Some(route) => {
            Err(Problem::new(route.at, "a switch has no routes").hint("`kind: router` forwards between networks"))
        }
        None => Ok(()),
    }
}

/// Whether a node may be called so.
pub(super) fn check_name(name: &Text) -> Result<(), Problem> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_well = name.value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if result_files::ALL.contains(&name.value.as_str()) {
        let message = format!(
            "`{}` cannot be the name of a node: the results have a file of that name",
            name.value
        );
        return Err(Problem::new(name.at, message));
    }
    if starts_well && name.value.len() <= NAME_MAX && name.value.chars().all(usable) {
        return Ok(());
    }
    Err(
        Problem::new(name.at, format!("`{}` cannot be the name of a node", name.value))
            .allowed("1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit"),
    )
}

/// Bytes; `what` with its article.
pub(super) fn amount(
    text: Option<&Text>,
    what: &str,
    default: ByteSize,
    range: std::ops::RangeInclusive<ByteSize>,
) -> Result<u64, Problem> {
    let Some(text) = text else {
        return Ok(default.as_bytes());
    };
    let size: ByteSize = leaf::quantity(text)?;
    if !range.contains(&size) {
        return Err(
            Problem::new(text.at, format!("`{}` is not {what}", text.value)).allowed(format!(
                "{} to {}",
                range.start(),
                range.end()
            )),
        );
    }
    Ok(size.as_bytes())
}

/// Whether a kernel with that much memory has room for its interfaces, and for the rest of its work.
fn check_room(memory_bytes: u64, interfaces: usize, at: Mark, node: &str) -> Result<(), Problem> {
    let taken = INTERFACE_MEMORY_BYTES * interfaces as u64;
    let needed = taken + MEMORY_BESIDE_INTERFACES.as_bytes();
    if memory_bytes >= needed {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!(
        "node `{node}` has {interfaces} interfaces, which take about {} MiB of its kernel's memory of {} MiB",
        mib(taken),
        mib(memory_bytes)
    );
    let enough = needed.next_power_of_two();
    Err(Problem::new(at, message).hint(match enough <= MEMORY_MAX.as_bytes() {
        true => format!("give it `memory: {}MiB`", mib(enough)),
        false => "give it fewer links".to_owned(),
    }))
}

/// Memory for a node with that many interfaces; none: the default is enough. At most what a node may have.
pub(crate) fn memory_for_interfaces(interfaces: usize) -> Option<ByteSize> {
    let needed = INTERFACE_MEMORY_BYTES * interfaces as u64 + MEMORY_BESIDE_INTERFACES.as_bytes();
    let enough = needed.next_power_of_two().min(MEMORY_MAX.as_bytes());
    (needed > DEFAULT_MEMORY.as_bytes()).then_some(ByteSize(enough))
}

/// Later layers win, value by value; `instant` takes back what was given before.
fn cpu(layers: &[Option<&Flexible<CpuDoc>>]) -> Result<Cpu, Problem> {
    let mut cpu = Cpu::default();
    for layer in layers.iter().flatten() {
        let costs = match &layer.shape {
            ShortOr::Long(costs) => costs,
            ShortOr::Short(word) if word == "instant" => {
                cpu = Cpu::default();
                continue;
            }
            ShortOr::Short(word) => {
                return Err(Problem::new(layer.at, format!("`{word}` is not a model of a CPU"))
                    .allowed("`instant`, or costs as in {syscall: 300ns, copy: 0.1ns/B}"));
            }
        };
        if let Some(text) = &costs.syscall {
            cpu.syscall = at_most(text, EVENT_COST_MAX, "a cost of a system call")?;
        }
        if let Some(text) = &costs.copy {
            cpu.copy = at_most(text, BYTE_COST_MAX, "a cost of a byte")?;
        }
    }
    Ok(cpu)
}

/// Paths count from `folder`. Whether there is something is for those to see who open it.
fn root(doc: Option<&Flexible<RootDoc>>, folder: &Path) -> Result<Root, Problem> {
    let Some(doc) = doc else {
        return Ok(Root::Host);
    };
    let (path, name) = match &doc.shape {
        ShortOr::Short(word) if word == "host" => return Ok(Root::Host),
        ShortOr::Short(path) => (path, None),
        ShortOr::Long(RootDoc { image, name }) => (&image.value, name.as_ref()),
    };
    let usable = |text: &str| !text.is_empty() && !text.contains('\0');
    if !usable(path) || name.is_some_and(|name| !usable(&name.value)) {
        return Err(Problem::new(doc.at, "the root of a node needs a path").allowed(
            "`host`, a folder, a file (the tar of a root, a `docker save`, an OCI image layout), or \
             {image: web.tar, name: \"web:1\"}",
        ));
    }
    Ok(Root::Path {
        path: folder.join(path),
        name: name.map(|name| name.value.clone()),
    })
}

/// A quantity that is not more than `max`; `what` with its article.
fn at_most<T>(text: &Text, max: T, what: &str) -> Result<T, Problem>
where
    T: FromStr<Err = UnitError> + PartialOrd + Display,
{
    let value: T = leaf::quantity(text)?;
    if value > max {
        return Err(Problem::new(text.at, format!("`{}` is not {what}", text.value)).allowed(format!("at most {max}")));
    }
    Ok(value)
}

fn interfaces(node: usize, name: &Text, doc: &NodeDoc, settings: &Settings<'_>) -> Result<Vec<Interface>, Problem> {
    let known = &settings.ends.by_node[node];
    let named = doc
        .addresses
        .0
        .iter()
        .map(|(name, _)| name)
        .chain(doc.interfaces.0.iter().map(|(name, _)| name));
    for interface in named {
        if !known.contains(&interface.value) {
            let problem = Problem::new(
                interface.at,
                format!("no link ends at {}:{}", name.value, interface.value),
            );
            let problem = problem.known(&interface.value, known.iter().map(String::as_str));
            return Err(match interface.value.as_str() {
                "lo" => problem.hint("add addresses of lo by a setup command: `ip address add 10.9.9.9/32 dev lo`"),
                _ => problem,
            });
        }
    }
    known
        .iter()
        .enumerate()
        .map(|(index, iface)| interface((node, index), iface, doc, settings))
        .collect()
}

fn interface(at: (usize, usize), name: &str, doc: &NodeDoc, settings: &Settings<'_>) -> Result<Interface, Problem> {
    let none = InterfaceDoc::default();
    let own = doc
        .interfaces
        .0
        .iter()
        .find(|(known, _)| known.value == name)
        .map_or(&none, |(_, doc)| doc);
    let mac = match &own.mac {
        Some(mac) => leaf::mac(mac)?,
        None => default_mac(at),
    };
    let mtu = own
        .mtu
        .as_ref()
        .or(settings.defaults.and_then(|node| node.mtu.as_ref()));
    let mtu = mtu
        .map(|mtu| leaf::number(mtu, "an MTU", MTU_RANGE))
        .transpose()?
        .unwrap_or(DEFAULT_MTU);
    let written = address::written(doc, name);
    let addresses: Vec<IpNet> = written.iter().map(leaf::interface_address).collect::<Result<_, _>>()?;
    if let Some((_, text)) = addresses
        .iter()
        .zip(&written)
        .find(|(net, _)| mtu < IPV6_MTU_MIN && net.addr().is_ipv6())
    {
        let message = format!("`{}` on an interface with an MTU of {mtu} bytes", text.value);
        return Err(Problem::new(text.at, message).allowed("IPv6 needs 1280 bytes (RFC 8200)"));
    }
    let capture = own.capture.unwrap_or(settings.capture_all);
    Ok(Interface {
        name: name.to_owned(),
        mac,
        mtu: mtu as u32,
        addresses,
        capture,
        nic: nic::nic(own, settings.defaults.and_then(|node| node.model.as_ref()))?,
    })
}

/// Locally administered: 02:00, then node and interface number.
fn default_mac((node, interface): (usize, usize)) -> [u8; 6] {
    let [node_high, node_low] = (node as u16).to_be_bytes();
    let [high, low] = (interface as u16).to_be_bytes();
    [2, 0, node_high, node_low, high, low]
}

fn sysctls(
    kind: NodeKind,
    defaults: Option<&Entries<Text>>,
    own: &Entries<Text>,
) -> Result<BTreeMap<String, String>, Problem> {
    let of_kind = match kind {
        NodeKind::Host => &[],
        NodeKind::Router => FORWARDING,
        NodeKind::Switch => SILENCE,
    };
    let mut all: BTreeMap<String, String> = of_kind
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    for (name, value) in defaults.into_iter().flat_map(|entries| &entries.0).chain(&own.0) {
        let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        let whole =
            name.value.contains(['.', '/']) && !name.value.contains("..") && !name.value.starts_with(['/', '.']);
        if !whole || !name.value.chars().all(usable) {
            let problem = Problem::new(name.at, format!("`{}` cannot be the name of a sysctl", name.value))
                .allowed("a name as in net.ipv4.ip_forward");
            return Err(match name.value.strip_prefix("/proc/sys/") {
                Some(rest) => problem.hint(format!("write `{}`", rest.replace('/', "."))),
                None => problem,
            });
        }
        all.insert(name.value.clone(), value.value.clone());
    }
    Ok(all)
}

fn file(path: &Text, doc: &FileDoc, folder: &Path) -> Result<FileSpec, Problem> {
    let clean = path.value.strip_prefix('/').is_some_and(|rest| {
        rest.split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
    });
    if !clean {
        return Err(
            Problem::new(path.at, format!("`{}` is not the path of a file", path.value))
                .allowed("an absolute path without `.`, `..` and doubled slashes"),
        );
    }
    let content = match (&doc.content, &doc.source) {
        (Some(text), None) => FileContent::Text(text.value.clone()),
        (None, Some(source)) => FileContent::Source(folder.join(&source.value)),
        _ => {
            return Err(Problem::new(
                path.at,
                format!("file `{}` needs `content` or `source`, one of them", path.value),
            ));
        }
    };
    let mode = match &doc.mode {
        Some(text) => mode(text)?,
        None => 0o644,
    };
    Ok(FileSpec {
        path: path.value.clone(),
        content,
        mode,
    })
}

fn mode(text: &Text) -> Result<u32, Problem> {
    let digits = text.value.strip_prefix("0o").unwrap_or(&text.value);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| {
            Problem::new(text.at, format!("`{}` is not a file mode", text.value))
                .allowed("permission bits in octal, as in 644 or 755")
        })
}

fn route(doc: &Flexible<RouteDoc>, node: &Text, interfaces: &[Interface]) -> Result<Route, Problem> {
    let doc = match &doc.shape {
        ShortOr::Long(long) => long.clone(),
        ShortOr::Short(line) => short_route(&Text {
            value: line.clone(),
            at: doc.at,
        })?,
    };
    let via = doc.via.as_ref().map(next_hop).transpose()?;
    let to = destination(&doc.to, via)?;
    if let Some(text) = doc
        .via
        .as_ref()
        .filter(|_| via.is_some_and(|via| via.is_ipv4() != to.addr().is_ipv4()))
    {
        return Err(Problem::new(
            text.at,
            format!("`{}` is not of the same IP version as `{}`", text.value, doc.to.value),
        ));
    }
    if let Some(dev) = doc
        .dev
        .as_ref()
        .filter(|dev| interfaces.iter().all(|iface| iface.name != dev.value))
    {
        return Err(
            Problem::new(dev.at, format!("`{}` has no interface `{}`", node.value, dev.value))
                .known(&dev.value, interfaces.iter().map(|iface| iface.name.as_str())),
        );
    }
    if via.is_none() && doc.dev.is_none() {
        return Err(
            Problem::new(doc.to.at, format!("the route to `{}` leads nowhere", doc.to.value))
                .allowed("`via` with an address, `dev` with an interface, or both"),
        );
    }
    let metric = doc
        .metric
        .as_ref()
        .map(|text| leaf::number(text, "a metric", 0..=u32::MAX.into()))
        .transpose()?;
    Ok(Route {
        to,
        via,
        also_via: Vec::new(),
        dev: doc.dev.map(|dev| dev.value),
        metric: metric.map(|metric| metric as u32),
    })
}

/// `default via 10.0.0.1 dev eth0 metric 5`
fn short_route(line: &Text) -> Result<RouteDoc, Problem> {
    let problem = || {
        Problem::new(line.at, format!("`{}` is not a route", line.value))
            .allowed("a destination, then `via`, `dev` or `metric` with a value, as in `default via 10.0.0.1`")
    };
    let mut words = line.value.split_whitespace().map(|word| Text {
        value: word.to_owned(),
        at: line.at,
    });
    let mut route = RouteDoc {
        to: words.next().ok_or_else(problem)?,
        via: None,
        dev: None,
        metric: None,
    };
    while let Some(key) = words.next() {
        let slot = match key.value.as_str() {
            "via" => &mut route.via,
            "dev" => &mut route.dev,
            "metric" => &mut route.metric,
            _ => return Err(problem()),
        };
        if slot.is_some() {
            return Err(Problem::new(
                line.at,
                format!("`{}` is there twice in a route", key.value),
            ));
        }
        *slot = Some(words.next().ok_or_else(problem)?);
    }
    Ok(route)
}

fn next_hop(text: &Text) -> Result<IpAddr, Problem> {
    text.value.parse().map_err(|_| {
        Problem::new(text.at, format!("`{}` is not the address of a next hop", text.value))
            .allowed("an IPv4 or IPv6 address without prefix length")
    })
}

fn destination(text: &Text, via: Option<IpAddr>) -> Result<IpNet, Problem> {
    if text.value == "default" {
        let any = if via.is_some_and(|via| via.is_ipv6()) {
            "::/0"
        } else {
            "0.0.0.0/0"
        };
        return Ok(any.parse().expect("a network"));
    }
    let net = text
        .value
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.value.parse::<IpAddr>().ok().map(IpNet::from));
    let problem = || {
        Problem::new(text.at, format!("`{}` is not a destination", text.value))
            .allowed("a network as in 10.0.0.0/8 or fd00::/64, an address, or `default`")
    };
    let net = net.ok_or_else(problem)?;
    if net.trunc() != net {
        return Err(problem().hint(format!("write `{}`", net.trunc())));
    }
    Ok(net)
}
