//! One descriptor to wait on for a port that has several, or loses one: an epoll set.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

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

    /// Also waits for room to write, or no longer does.
    pub fn writable_too(&self, fd: impl AsFd, key: u64, too: bool) -> Result<(), Errno> {
        let flags = if too {
            EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
        } else {
            EpollFlags::EPOLLIN
        };
        self.0.modify(fd, &mut EpollEvent::new(flags, key))
    }

    /// The keys of what is ready now.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [EpollEvent::empty(); 4];
        let count = self.0.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        events.into_iter().take(count).map(|event| event.data())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
