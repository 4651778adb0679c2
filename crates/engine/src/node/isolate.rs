//! A node whose programs are kept from the memory of other nodes (`--isolate`).

use std::collections::BTreeMap;
use std::sync::Arc;

use windtunnel_base::SimTime;
use windtunnel_kernel::forget_active;
use windtunnel_process::trap::{Wild, take_wild};
use windtunnel_process::{Owner, backtrace, take_host_failure};

use super::Node;
use crate::error::EngineError;
use crate::shared::Shared;

/// Bits of the error code of an x86 page fault (Intel SDM vol. 3, 4.7).
const ERROR_WRITE: u32 = 1 << 1;
const ERROR_FETCH: u32 = 1 << 4;
/// Programs of a node whose accesses to others' memory are told one by one; those of the rest are counted.
const FULL_REPORTS: usize = 20;

/// What isolation needs to know of a node.
pub(super) struct Isolation {
    files: Arc<windtunnel_process::Shared>,
    /// System calls at the last entry.
    syscalls: u64,
    /// What was told of each program thread.
    told: BTreeMap<u64, String>,
}

impl Isolation {
    /// Nothing has happened yet; none where nodes are not isolated.
    pub(super) fn new(files: &Arc<windtunnel_process::Shared>) -> Option<Box<Self>> {
        let isolation = || Self {
            files: files.clone(),
            syscalls: 0,
            told: BTreeMap::new(),
        };
        files.isolates().then(|| Box::new(isolation()))
    }
}

impl Node {
    /// Before an entry: the node's memory has to be accessible. Its kernel tells when a program is about to run, and others'
    /// is not from then on.
    pub(super) fn open_memory(&mut self) -> Result<(), EngineError> {
        let Some(isolation) = &mut self.isolation else {
            return Ok(());
        };
        forget_active();
        isolation.syscalls = self.machine.kernel().syscalls();
        let opened = isolation.files.open_node(self.number);
        opened.map_err(|errno| match take_host_failure() {
            Some(failure) => failure.into(),
            None => EngineError::Internal(format!("access to the memory of node {}: {errno}", self.name())),
        })
    }

    /// After an entry: tells what programs did to others' memory, or tried to.
    pub(super) fn look_for_wild(&mut self) -> Result<(), EngineError> {
        let Some(isolation) = &mut self.isolation else {
            return Ok(());
        };
        if self.machine.kernel().syscalls() != isolation.syscalls && !isolation.files.is_closed_but(self.number) {
            // Whoever relies on isolation must not be without it unawares.
            let problem = format!(
                "a program of node {} ran while others' memory was accessible",
                self.name()
            );
            return Err(EngineError::Internal(problem));
        }
        for wild in take_wild() {
            isolation.tell(&self.shared, self.number, self.now_ns, &wild);
        }
        Ok(())
    }

    /// Whose memory an address is of that the kernel must not have used.
    #[cold]
    pub(super) fn elsewhere(&self, address: u64) -> Option<String> {
        let owner = self.isolation.as_ref()?.files.owner(address)?;
        let described = describe(&owner, &self.shared);
        (owner.node() != self.number)
            .then(|| format!("{address:#x} is memory of {described}, which was not accessible then"))
    }
}

impl Isolation {
    #[cold]
    fn tell(&mut self, shared: &Shared, node: u32, now_ns: u64, wild: &Wild) {
        // Nobody's memory: as on a machine of its own, a fault and nothing else.
        let Some(owner) = self.files.owner(wild.address) else {
            return;
        };
        let told = self.told.len();
        let text = self.told.entry(wild.pid).or_insert_with(|| match told {
            0..FULL_REPORTS => {
                let place = backtrace(&self.files, &wild.regs).into_iter().next();
                let place = place.map_or_else(String::new, |frame| format!(" in {frame}"));
                format!(
                    "(pid {}) {} {:#x}, memory of {}, at {}{place}: it got SIGSEGV; hint: without isolation nobody notices, so \
                     look for a stray pointer there",
                    wild.pid,
                    deed(wild.error),
                    wild.address,
                    describe(&owner, shared),
                    SimTime(now_ns),
                )
            }
            _ => "used memory of other nodes, too".to_owned(),
        });
        shared.warn_times(now_ns, "wild_access", node, &wild.comm, text, wild.count);
    }
}

/// What a page fault says that was done.
fn deed(error: u32) -> &'static str {
    match error {
        error if error & ERROR_FETCH != 0 => "jumped to",
        error if error & ERROR_WRITE != 0 => "wrote to",
        _ => "read",
    }
}

fn describe(owner: &Owner, shared: &Shared) -> String {
    let node = &shared.nodes[owner.node() as usize];
    match owner {
        Owner::Kernel(_) => format!("the kernel of node {node}"),
        Owner::Program(_, Some(path)) => format!("program {path} of node {node}"),
        Owner::Program(_, None) => format!("a program of node {node}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_done_and_whose_it_was() {
        assert_eq!([4, 6, 0x14].map(deed), ["read", "wrote to", "jumped to"]);
        let shared = Shared::new(Arc::default(), 1, vec!["a".into(), "b".into()]);
        assert_eq!(describe(&Owner::Kernel(1), &shared), "the kernel of node b");
        let program = |path: Option<&str>| describe(&Owner::Program(0, path.map(Into::into)), &shared);
        assert_eq!(program(Some("/bin/x")), "program /bin/x of node a");
        assert_eq!(program(None), "a program of node a");
    }
}
