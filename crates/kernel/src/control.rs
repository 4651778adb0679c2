//! Requests that process 1 of an instance carries out: system calls, and programs to start.

use std::collections::VecDeque;
use std::ffi::{CString, c_char};
use std::ops::Range;
use std::ptr;

use crate::abi;
use crate::owned::Owned;

/// An argument of a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number, or an address that stays valid until the request is done.
    Value(u64),
    /// A buffer the kernel may read and write; its address becomes the argument, and it comes back with the result.
    Bytes(Vec<u8>),
}

/// What one of a program's descriptors 0, 1 and 2 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// `/dev/null`.
    Null,
    /// A file of the host, by its handle.
    File(u64),
    /// A descriptor of process 1.
    OfInit(i32),
}

/// A program to start as a child of process 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnSpec {
    /// The caller's name for it, given back in `Host::proc_event`.
    pub key: u64,
    /// Absolute path inside the node.
    pub path: CString,
    /// Arguments, the program's name first.
    pub argv: Vec<CString>,
    /// Environment, `NAME=value` each.
    pub envp: Vec<CString>,
    /// Working directory, absolute.
    pub cwd: CString,
    /// Its descriptors 0, 1 and 2.
    pub descriptors: [Descriptor; 3],
    /// Whether descriptor 0 is a terminal that becomes the controlling one.
    pub tty: bool,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Descriptor {
    fn file(self) -> u64 {
        match self {
            Self::File(handle) => handle,
            Self::Null | Self::OfInit(_) => 0,
        }
    }

    fn fd(self) -> i32 {
        match self {
            Self::OfInit(fd) => fd,
            Self::Null | Self::File(_) => -1,
        }
    }
}

/// Something to do inside an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A system call by its x86-64 number, with up to six arguments. It must not block.
    Syscall {
        /// x86-64 number.
        nr: u64,
        /// Up to six; the others are 0.
        args: Vec<Argument>,
    },
    /// A program start. How the exec went is told by `Host::proc_event`.
    Spawn(SpawnSpec),
}

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// As `submit` gave it.
    pub id: u64,
    /// The system call's return value, or the pid of the new process; negated errno values below zero.
    pub result: i64,
    /// The request with its buffers.
    pub request: Request,
}

/// A request on its way, with all memory it points to.
#[derive(Debug)]
struct Pending {
    ctl: abi::Ctl,
    spawn: Option<abi::Spawn>,
    /// What `spawn` points to: NULL-terminated, pointing into `request` in turn.
    _argv: Vec<*const c_char>,
    _envp: Vec<*const c_char>,
    request: Request,
    id: u64,
}

/// The queue of one instance, oldest first: the kernel finishes them in order.
#[derive(Debug, Default)]
pub(crate) struct Control {
    queue: VecDeque<Owned<Pending>>,
    next_id: u64,
    /// First request the kernel has not been told of.
    untold: Option<*mut abi::Ctl>,
    /// Last request in the queue that the kernel has not been told of.
    last_untold: Option<*mut abi::Ctl>,
}

impl Control {
    pub fn submit(&mut self, requests: Vec<Request>) -> Range<u64> {
        let first = self.next_id;
        for request in requests {
            let pending = Pending::new(self.next_id, request);
            // SAFETY: the allocation is live and nobody else knows it yet.
            let ctl = unsafe { &raw mut (*pending.ptr()).ctl };
            match self.last_untold {
                // SAFETY: the request before is in the queue, hence live, and the kernel does not know it yet.
                Some(last) => unsafe { (*last).next = ctl },
                None => self.untold = Some(ctl),
            }
            self.last_untold = Some(ctl);
            self.queue.push_back(pending);
            self.next_id += 1;
        }
        first..self.next_id
    }

    /// The chain of requests to hand to the kernel with this entry.
    #[inline]
    pub fn take_untold(&mut self) -> Option<*mut abi::Ctl> {
        self.last_untold = None;
        self.untold.take()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next finished request.
    pub fn pop_completed(&mut self) -> Option<Completed> {
        let front = self.queue.front()?.ptr();
        // SAFETY: the allocation is live; the kernel is not running and set `done` when it was finished with it.
        if unsafe { (*front).ctl.done } == 0 {
            return None;
        }
        let pending = self.queue.pop_front()?.into_inner();
        Some(Completed {
            id: pending.id,
            result: pending.ctl.result,
            request: pending.request,
        })
    }
}

impl Pending {
    /// # Panics
    /// If a system call has more than six arguments.
    fn new(id: u64, mut request: Request) -> Owned<Self> {
        let mut ctl = abi::Ctl {
            next: ptr::null_mut(),
            kind: abi::CTL_SPAWN,
            done: 0,
            result: 0,
            nr: 0,
            arg: [0; 6],
            spawn: ptr::null(),
        };
        let (mut argv, mut envp) = (Vec::new(), Vec::new());
        let mut spawn = None;
        match &mut request {
            Request::Syscall { nr, args } => {
                assert!(args.len() <= 6, "a system call with {} arguments", args.len());
                ctl.kind = abi::CTL_SYSCALL;
                ctl.nr = *nr;
                for (slot, arg) in ctl.arg.iter_mut().zip(args) {
                    *slot = match arg {
                        Argument::Value(value) => *value,
                        Argument::Bytes(bytes) => bytes.as_mut_ptr().expose_provenance() as u64,
                    };
                }
            }
            Request::Spawn(spec) => {
                argv = terminated(&spec.argv);
                envp = terminated(&spec.envp);
                spawn = Some(abi::Spawn {
                    key: spec.key,
                    path: spec.path.as_ptr(),
                    argv: argv.as_ptr(),
                    envp: envp.as_ptr(),
                    cwd: spec.cwd.as_ptr(),
                    file: spec.descriptors.map(Descriptor::file),
                    uid: spec.uid,
                    gid: spec.gid,
                    fd: spec.descriptors.map(Descriptor::fd),
                    flags: if spec.tty { abi::SPAWN_TTY } else { 0 },
                });
            }
        }
        // Moving vectors and C strings leaves what they point to in place.
        let pending = Owned::new(Self {
            ctl,
            spawn,
            _argv: argv,
            _envp: envp,
            request,
            id,
        });
        // SAFETY: the allocation is live and nobody else knows it yet.
        unsafe {
            if let Some(spawn) = &(*pending.ptr()).spawn {
                (*pending.ptr()).ctl.spawn = spawn;
            }
        }
        pending
    }
}

fn terminated(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn getpid() -> Request {
        Request::Syscall { nr: 39, args: vec![] }
    }

    #[test]
    fn requests_are_chained_once_and_complete_in_order() {
        let mut control = Control::default();
        assert_eq!(control.submit(vec![getpid(), getpid()]), 0..2);
        assert_eq!(control.submit(vec![getpid()]), 2..3);
        let head = control.take_untold().unwrap();
        assert_eq!(control.take_untold(), None);
        let mut chain = vec![];
        let mut at = head;
        while !at.is_null() {
            chain.push(at);
            // SAFETY: the requests live in the queue.
            at = unsafe { (*at).next };
        }
        assert_eq!(chain.len(), 3);

        assert_eq!(control.pop_completed(), None);
        for (number, &ctl) in chain.iter().enumerate().take(2) {
            // SAFETY: as above; this is what a kernel does.
            unsafe {
                (*ctl).result = number as i64 + 10;
                (*ctl).done = 1;
            }
        }
        let done: Vec<_> = std::iter::from_fn(|| control.pop_completed())
            .map(|c| (c.id, c.result))
            .collect();
        assert_eq!(done, [(0, 10), (1, 11)]);
        assert!(!control.is_empty());
        assert_eq!(control.submit(vec![getpid()]), 3..4);
        assert!(control.take_untold().is_some_and(|next| next != chain[2]));
    }

    #[test]
    fn a_buffer_is_the_argument_and_comes_back_with_what_the_kernel_wrote() {
        let mut control = Control::default();
        control.submit(vec![Request::Syscall {
            nr: 0,
            args: vec![Argument::Value(3), Argument::Bytes(vec![0; 4]), Argument::Value(4)],
        }]);
        let ctl = control.take_untold().unwrap();
        // SAFETY: the request lives in the queue and its second argument is a buffer of four bytes.
        unsafe {
            assert_eq!(((*ctl).nr, (*ctl).arg[0], (*ctl).arg[2], (*ctl).arg[5]), (0, 3, 4, 0));
            ptr::with_exposed_provenance_mut::<[u8; 4]>((*ctl).arg[1] as usize).write([1, 2, 3, 4]);
            (*ctl).done = 1;
        }
        let Request::Syscall { args, .. } = control.pop_completed().unwrap().request else {
            panic!("another kind of request came back");
        };
        assert_eq!(args[1], Argument::Bytes(vec![1, 2, 3, 4]));
    }
}
