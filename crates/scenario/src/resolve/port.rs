//! Ports: link ends outside the run.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use windtunnel_ports::{BROKER_SOCKET, PortRange, PortSpec, StreamAddress, Subnet};

use super::{leaf, node};
use crate::document::{Document, PortDoc, RawDoc, UdpDoc, VxlanDoc};
use crate::error::{Mark, Problem};
use crate::text::{Text, Words};

/// What a port can be, for errors.
const KINDS: &str = "one of `tap`, `interface`, `raw`, `udp`, `vxlan` and `stream`";
/// Linux: IFNAMSIZ less the final NUL.
const INTERFACE_NAME_MAX: usize = 15;
/// What a TAP of Linux takes.
const MTUS: std::ops::RangeInclusive<u64> = 68..=65_521;
/// Largest number of a VXLAN.
const VNI_MAX: u64 = (1 << 24) - 1;

/// All ports with their names, in the order of the file.
pub(super) fn all(document: &Document, folder: &Path) -> Result<Vec<(Text, PortSpec)>, Problem> {
    let nodes = &document.nodes.value.0;
    let one = |(name, doc): &(Text, PortDoc)| {
        node::check_name(name)?;
        if nodes.iter().any(|(node, _)| node.value == name.value) {
            return Err(
                Problem::new(name.at, format!("`{}` is the name of a node and of a port", name.value))
                    .hint("give the port a name of its own: nodes and ports share theirs"),
            );
        }
        Ok((name.clone(), spec(name, doc, folder)?))
    };
    document.ports.0.iter().map(one).collect()
}

fn spec(name: &Text, doc: &PortDoc, folder: &Path) -> Result<PortSpec, Problem> {
    let kinds = [
        doc.tap.as_ref().map(|text| text.at),
        doc.interface.as_ref().map(|text| text.at),
        doc.raw.as_ref().map(|raw| raw.interface.at),
        doc.udp.as_ref().map(|udp| udp.local.at),
        doc.vxlan.as_ref().map(|vxlan| vxlan.vni.at),
        doc.stream.as_ref().map(|text| text.at),
    ];
    let mut given = kinds.into_iter().flatten();
    let says = |what: &str| Problem::new(name.at, format!("port `{}` {what}", name.value)).allowed(KINDS);
    if given.next().is_none() {
        return Err(says("does not say what it is").hint("for a TAP interface of the host write `{tap: auto}`"));
    }
    if given.next().is_some() {
        return Err(says("is of two kinds").hint("make two ports of it, each with a link of its own"));
    }
    check_extras(name, doc)?;
    if let Some(tap) = &doc.tap {
        return Ok(PortSpec::Tap {
            name: (tap.value != "auto").then(|| interface(tap)).transpose()?,
            addresses: addresses(doc)?,
            mtu: mtu(doc)?,
            netns: doc.netns.as_ref().map(|path| joined(path, folder)),
        });
    }
    if let Some(text) = &doc.interface {
        return Ok(PortSpec::Interface {
            name: interface(text)?,
            mtu: mtu(doc)?,
        });
    }
    if let Some(raw) = &doc.raw {
        return raw_spec(raw, folder);
    }
    if let Some(udp) = &doc.udp {
        return udp_spec(udp, folder);
    }
    if let Some(vxlan) = &doc.vxlan {
        return vxlan_spec(vxlan, mtu(doc)?);
    }
    let at = doc.stream.as_ref().expect("one of the kinds is there");
    Ok(PortSpec::Stream {
        at: stream(at, folder)?,
        listen: doc.listen.unwrap_or(false),
    })
}

/// What belongs to one kind only is told where it stands at another.
fn check_extras(name: &Text, doc: &PortDoc) -> Result<(), Problem> {
    let of_tap = doc.tap.is_some();
    let wrong = [
        ("address", doc.address.is_some() && !of_tap, "tap"),
        ("netns", doc.netns.is_some() && !of_tap, "tap"),
        (
            "mtu",
            doc.mtu.is_some() && !of_tap && doc.interface.is_none() && doc.vxlan.is_none(),
            "tap`, `interface` and `vxlan",
        ),
        ("listen", doc.listen.is_some() && doc.stream.is_none(), "stream"),
    ];
    match wrong.into_iter().find(|(_, wrong, _)| *wrong) {
        Some((key, _, of)) => Err(Problem::new(
            name.at,
            format!("port `{}` has `{key}`, which belongs to `{of}` only", name.value),
        )),
        None => Ok(()),
    }
}

fn interface(text: &Text) -> Result<String, Problem> {
    let usable = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
    let value = &text.value;
    let fits = !value.is_empty() && value.len() <= INTERFACE_NAME_MAX && value.chars().all(usable);
    if !fits || [".", "..", "all", "default", "lo"].contains(&value.as_str()) {
        return Err(Problem::new(
            text.at,
            format!("`{value}` cannot be the name of an interface of the host"),
        )
        .allowed("1 to 15 characters, neither space, `/`, `:` nor `%`, and none of `lo`, `all`, `default`"));
    }
    Ok(value.clone())
}

fn addresses(doc: &PortDoc) -> Result<Vec<Subnet>, Problem> {
    let items = doc.address.as_ref().map(|words| words.items()).unwrap_or_default();
    let subnet = |text: &Text| {
        let net = leaf::interface_address(text)?;
        Ok(Subnet {
            address: net.addr(),
            prefix_bits: net.prefix_len(),
        })
    };
    items.iter().map(subnet).collect()
}

fn mtu(doc: &PortDoc) -> Result<Option<u32>, Problem> {
    let mtu = doc.mtu.as_ref().map(|text| leaf::number(text, "an MTU", MTUS));
    Ok(mtu.transpose()?.map(|mtu| mtu as u32))
}

fn raw_spec(doc: &RawDoc, folder: &Path) -> Result<PortSpec, Problem> {
    let spec = PortSpec::Raw {
        interface: interface(&doc.interface)?,
        tcp: port_ranges(doc.tcp.as_ref())?,
        udp: port_ranges(doc.udp.as_ref())?,
        broker: doc.broker.as_ref().map(|path| match path.value.as_str() {
            "auto" => PathBuf::from(BROKER_SOCKET),
            _ => joined(path, folder),
        }),
    };
    if let PortSpec::Raw { tcp, udp, .. } = &spec
        && tcp.is_empty()
        && udp.is_empty()
    {
        return Err(Problem::new(
            doc.interface.at,
            "a port of kind `raw` owns no port of TCP or UDP".to_owned(),
        )
        .hint("say which: `{raw: {interface: eth0, tcp: [40000-40099], udp: [40000-40099]}}`"));
    }
    Ok(spec)
}

fn port_ranges(words: Option<&Words>) -> Result<Vec<PortRange>, Problem> {
    let items = words.map(Words::items).unwrap_or_default();
    let range = |text: &Text| {
        text.value
            .parse()
            .map_err(|what: String| Problem::new(text.at, what).allowed("1 to 65535, as in 8080 or 40000-40099"))
    };
    items.iter().map(range).collect()
}

fn udp_spec(doc: &UdpDoc, folder: &Path) -> Result<PortSpec, Problem> {
    let (local, peer) = (socket(&doc.local)?, socket(&doc.peer)?);
    same_family(doc.peer.at, local.ip(), peer.ip())?;
    Ok(PortSpec::Udp {
        local,
        peer,
        key_file: doc.key.as_ref().map(|path| joined(path, folder)),
    })
}

fn vxlan_spec(doc: &VxlanDoc, mtu: Option<u32>) -> Result<PortSpec, Problem> {
    let (local, peer) = (address(&doc.local)?, address(&doc.peer)?);
    same_family(doc.peer.at, local, peer)?;
    let port = doc
        .port
        .as_ref()
        .map(|text| leaf::number(text, "a UDP port", 1..=65_535));
    Ok(PortSpec::Vxlan {
        vni: leaf::number(&doc.vni, "the number of a VXLAN", 0..=VNI_MAX)? as u32,
        local,
        peer,
        port: port.transpose()?.map(|port| port as u16),
        mtu,
    })
}

fn same_family(at: Mark, local: IpAddr, peer: IpAddr) -> Result<(), Problem> {
    if local.is_ipv4() == peer.is_ipv4() {
        return Ok(());
    }
    Err(Problem::new(
        at,
        format!("`local` {local} and `peer` {peer} are of different versions of IP"),
    ))
}

fn socket(text: &Text) -> Result<SocketAddr, Problem> {
    text.value.parse().map_err(|_| {
        Problem::new(text.at, format!("`{}` is not an address with a port", text.value))
            .allowed("as in \"127.0.0.1:7000\" or \"[::1]:7000\"")
    })
}

fn address(text: &Text) -> Result<IpAddr, Problem> {
    text.value.parse().map_err(|_| {
        Problem::new(text.at, format!("`{}` is not an address", text.value)).allowed("as in 192.0.2.1 or 2001:db8::1")
    })
}

fn stream(text: &Text, folder: &Path) -> Result<StreamAddress, Problem> {
    match text.value.strip_prefix("tcp:") {
        Some(rest) => socket(&Text {
            value: rest.to_owned(),
            at: text.at,
        })
        .map(StreamAddress::Tcp),
        None if text.value.starts_with('@') => Ok(StreamAddress::Unix(PathBuf::from(&text.value))),
        None => Ok(StreamAddress::Unix(joined(text, folder))),
    }
}

/// Relative paths count from the scenario file's folder.
fn joined(text: &Text, folder: &Path) -> PathBuf {
    folder.join(&text.value)
}
