//! The run's end of a node: its process 1, which is this program started again, and the socket to it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use crate::PlatformError;
use crate::init::{INIT_VERB, ROOTLESS};
use crate::protocol::{self, NodeSpec, Order, Report, send};

/// The node lives as long as this.
pub(crate) struct Process1 {
    pub name: String,
    pub stream: UnixStream,
    child: Child,
}

impl Process1 {
    /// Starts it and gives it its orders. It goes on by itself; see [`Self::wait_until_made`].
    pub fn start(spec: NodeSpec) -> Result<Self, PlatformError> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| PlatformError::host("make a socket", error))?;
        let child = Command::new("/proc/self/exe")
            .arg(INIT_VERB)
            .args(spec.rootless.then_some(ROOTLESS))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| PlatformError::host("start process 1 of a node", error))?;
        let this = Self {
            name: spec.name.clone(),
            stream: ours,
            child,
        };
        // What went wrong over there, if anything, is in its report.
        let _ = this.order(&Order::Make(Box::new(spec)));
        Ok(this)
    }

    /// Waits until the node is there; the folders it cannot write to, and the TAPs of its interfaces.
    pub fn wait_until_made(&self, interfaces: usize) -> Result<(Vec<String>, Vec<OwnedFd>), PlatformError> {
        let refused = |what: &str, reason: String| PlatformError::Node {
            node: self.name.clone(),
            what: what.to_owned(),
            reason,
        };
        let gone = |error: io::Error| refused("make it", format!("its process 1 is gone: {error}"));
        let read_only = match protocol::receive_line(&self.stream).map_err(gone)? {
            Report::Ready { read_only } => read_only,
            Report::Refused { what, reason } => return Err(refused(&what, reason)),
            other => return Err(gone(io::Error::other(format!("{other:?}")))),
        };
        let taps = protocol::receive_fds(&self.stream, interfaces).map_err(gone)?;
        self.stream
            .set_nonblocking(true)
            .map_err(|error| PlatformError::host("set up a socket", error))?;
        Ok((read_only, taps))
    }

    pub fn order(&self, order: &Order) -> Result<(), PlatformError> {
        send(&mut &self.stream, order).map_err(|error| PlatformError::Node {
            node: self.name.clone(),
            what: "reach its process 1".into(),
            reason: error.to_string(),
        })
    }
}

impl Drop for Process1 {
    fn drop(&mut self) {
        // Process 1 ends when the socket closes; the kernel ends the rest of the node with it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}
