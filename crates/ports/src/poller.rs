//! One descriptor to wait on for a port that has several, or loses one: an epoll set.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// An epoll set; itself readable while something in it is ready.
#[derive(Debug)]
pub(crate) struct Poller(Epoll);

impl Poller {
    pub fn new() -> Result<Self, Errno> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(Self)
    }

    /// Waits for `fd` to become readable too.
    pub fn add(&self, fd: impl AsFd, key: u64) -> Result<(), Errno> {
        self.0.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key))
    }

    /// Waits no more for `fd`: one that is broken would be ready for ever.
    pub fn remove(&self, fd: impl AsFd) {
        // It fails only if `fd` was not there.
        let _ = self.0.delete(fd);
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
