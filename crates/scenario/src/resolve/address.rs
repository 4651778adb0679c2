//! Addresses of the whole network.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::document::NodeDoc;
use crate::error::Problem;
use crate::model::Node;
use crate::text::{Entries, Text};

/// No address may be on two interfaces.
pub(super) fn check_clashes(docs: &Entries<NodeDoc>, nodes: &[Node]) -> Result<(), Problem> {
    let mut owners: BTreeMap<IpAddr, String> = BTreeMap::new();
    for ((_, doc), node) in docs.0.iter().zip(nodes) {
        for interface in &node.interfaces {
            let name = format!("{}:{}", node.name, interface.name);
            for (net, text) in interface.addresses.iter().zip(written(doc, &interface.name)) {
                if let Some(other) = owners.insert(net.addr(), name.clone()) {
                    let message = format!("address `{}` of {name} is also that of {other}", net.addr());
                    return Err(Problem::new(text.at, message).hint("every interface needs addresses of its own"));
                }
            }
        }
    }
    Ok(())
}

/// The addresses of an interface as written, in the order of [`crate::Interface::addresses`].
pub(super) fn written(doc: &NodeDoc, interface: &str) -> Vec<Text> {
    let short = doc
        .addresses
        .0
        .iter()
        .filter(|(name, _)| name.value == interface)
        .map(|(_, words)| words);
    let long = doc.interfaces.0.iter().filter(|(name, _)| name.value == interface);
    short
        .chain(long.filter_map(|(_, doc)| doc.addresses.as_ref()))
        .flat_map(|words| words.items())
        .collect()
}
