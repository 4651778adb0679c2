//! Names of nodes and interfaces inside the engine: small integers in the order of the scenario.

use std::fmt;

/// A node, by its position in the scenario: 0, 1, 2, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A network interface of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId {
    /// The node it belongs to.
    pub node: NodeId,
    /// Its position among the node's interfaces: 0, 1, 2, ... (not Linux's ifindex).
    pub index: u32,
}

impl NodeId {
    /// The position as an index into a list of nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for IfaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, interface {}", self.node, self.index)
    }
}
