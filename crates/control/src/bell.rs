//! A bell for the simulation thread while it sleeps: whoever has something for it rings.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of those who ring.
#[derive(Clone, Debug)]
pub struct Ringer {
    awaited: Arc<AtomicBool>,
    stream: Arc<UnixStream>,
}

/// The end of the one who sleeps.
#[derive(Debug)]
pub struct Bell {
    awaited: Arc<AtomicBool>,
    stream: UnixStream,
}

/// Both ends of a bell.
///
/// # Errors
/// When the host gives no socket.
pub fn bell() -> io::Result<(Ringer, Bell)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let awaited = Arc::new(AtomicBool::new(false));
    let ringer = Ringer {
        awaited: awaited.clone(),
        stream: Arc::new(near),
    };
    Ok((ringer, Bell { awaited, stream: far }))
}

impl Ringer {
    /// Wakes the other end, if it listens. To be called after what it shall see has been left for it.
    pub fn ring(&self) {
        if self.awaited.swap(false, Ordering::SeqCst) {
            // A full socket has woken it already.
            let _ = (&*self.stream).write(&[0]);
        }
    }
}

impl Bell {
    /// Listens from now on: what was left before has to be looked for after this.
    pub fn listen(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }

    /// Listens no more, and forgets what rang.
    pub fn rest(&self) {
        self.awaited.store(false, Ordering::SeqCst);
        let mut bytes = [0; 16];
        while (&self.stream).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn rings(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn it_rings_once_and_for_those_only_who_listen() {
        let (ringer, bell) = bell().unwrap();
        ringer.ring();
        assert!(!rings(&bell));
        bell.listen();
        assert!(!rings(&bell));
        ringer.ring();
        ringer.clone().ring();
        assert!(rings(&bell));
        bell.rest();
        assert!(!rings(&bell));
    }
}
