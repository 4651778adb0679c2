//! Programs of a node as the host sees them: their memory, their images and the contents of their files.
//!
//! Everything else about a program (its task, descriptors, signals, credentials) is the library kernel's. The kernel
//! asks for what is here through [`windtunnel_kernel::host::Host`]; [`ProcessHost`] answers for one node.

#![deny(unsafe_code)]

mod backtrace;
mod elf;
mod fence;
mod files;
mod host_failure;
mod image;
mod image_watch;
mod kept;
pub mod patch;
mod patched;
mod space;
mod spin;
#[allow(unsafe_code)]
mod sys;
pub mod table;
#[allow(unsafe_code)]
pub mod trap;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use windtunnel_kernel::{FileName, Shutter, abi};

pub use backtrace::{Frame, backtrace};
pub use elf::{Elf, ElfError, Segment};
pub use fence::Owner;
pub use files::{
    FileLimits, HOST_FOLDERS, InputRecord, LimitMet, NodeFile, NodeFileError, Root, Seen, SeenFile, WriteError,
};
pub use host_failure::{HostFailure, take_host_failure};
pub use image::ExecError;
pub use image_watch::{ImageEvent, ImageHook};
pub use kept::keep_analyses_in;
pub use patched::ImageRecord;
pub use spin::BUDGET_MAX;
pub use sys::{MapLimit, take_map_limit};

use fence::Fence;
use files::{FdBudget, FileService, FileUse, LowerTree, OwnFiles, Shown};
use image_watch::ImageWatch;
use patched::ImageCache;
use space::{Low, Spaces};

/// Length of the file of ones, bytes.
const ONES: usize = 1 << 16;

/// What the nodes of a run share: the files beneath their own, patched images, and the low range of addresses.
#[derive(Debug)]
pub struct Shared {
    roots: Vec<Arc<LowerTree>>,
    own_files: OwnFiles,
    fds: FdBudget,
    images: ImageCache,
    low: Mutex<Low>,
    /// Slots that programs have: their first slot by the start of each.
    owners: Mutex<BTreeMap<u64, u64>>,
    /// What files take, by node.
    files: Mutex<BTreeMap<u32, Arc<FileUse>>>,
    /// Only under a debugger.
    image_watch: Option<ImageWatch>,
    /// Bytes of value 1, to be read into program memory.
    ones: OwnedFd,
    pages: sys::PageScan,
    /// Only where nodes are isolated from each other.
    fence: Option<Fence>,
}

/// Why a node's programs cannot be hosted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The root of the host's files.
    #[error("cannot open the root of the nodes' files, {path}: {errno}")]
    Root {
        /// As given.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// Memory files.
    #[error("cannot make a memory file: {errno}")]
    MemoryFile {
        /// Why.
        errno: Errno,
    },
    /// The addresses for programs.
    #[error("cannot have the addresses {:#x} to {:#x} for programs: {errno}", .range.start, .range.end)]
    Addresses {
        /// As given.
        range: Range<u64>,
        /// `EEXIST`: something is there already.
        errno: Errno,
    },
    /// A file of the scenario.
    #[error(transparent)]
    File(#[from] NodeFileError),
}

impl Shared {
    /// What the nodes of a run share, where all see of `root`, the host's, what is the same on every host with the same packages.
    /// Raises the limit on open files.
    ///
    /// # Errors
    /// When `root` cannot be opened, or memory files cannot be made.
    pub fn new(root: &Path) -> Result<Arc<Self>, ProcessError> {
        Self::with_roots(&[Root::Host(root.into())], None, false)
    }

    /// As [`Shared::new`], where nodes choose among `roots`. Under a debugger, `hook` is told of every image. With `isolate`,
    /// programs cannot reach the memory of other nodes while they run.
    ///
    /// # Errors
    /// As there.
    pub fn with_roots(roots: &[Root], hook: Option<ImageHook>, isolate: bool) -> Result<Arc<Self>, ProcessError> {
        let open = |(number, root): (usize, &Root)| {
            LowerTree::open_root(root, number as u32).map_err(|errno| ProcessError::Root {
                path: root.to_string(),
                errno,
            })
        };
        let roots = roots.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        sys::prepare_reserve();
        let memory = |errno| ProcessError::MemoryFile { errno };
        let fds = FdBudget::from_process_limit().map_err(memory)?;
        let ones = memfd_create("windtunnel-ones", MemfdFlags::CLOEXEC).map_err(memory)?;
        rustix::io::pwrite(&ones, &vec![1; ONES], 0).map_err(memory)?;
        Ok(Arc::new(Self {
            roots,
            own_files: OwnFiles::default(),
            fds,
            images: ImageCache::default(),
            low: Mutex::default(),
            owners: Mutex::default(),
            files: Mutex::default(),
            image_watch: hook.map(ImageWatch::new),
            ones,
            pages: sys::PageScan::new(),
            fence: isolate.then(Fence::default),
        }))
    }

    /// Whether nodes are isolated from each other.
    #[inline]
    pub fn isolates(&self) -> bool {
        self.fence.is_some()
    }

    /// Makes the memory of a node accessible, whose kernel is about to be entered. Only where nodes are isolated.
    ///
    /// # Errors
    /// When the host refuses; it is noted as a [`HostFailure`], too.
    pub fn open_node(&self, node: u32) -> Result<(), Errno> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.open(node))
    }

    /// Whether the memory of all nodes but that one is inaccessible. Only where nodes are isolated.
    pub fn is_closed_but(&self, node: u32) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.is_closed_but(node))
    }

    /// Makes the memory of all nodes accessible.
    ///
    /// # Errors
    /// As [`Shared::open_node`].
    pub fn open_all(&self) -> Result<(), Errno> {
        self.fence.as_ref().map_or(Ok(()), Fence::open_all)
    }

    /// Whose memory is at `address`; none where there is none that anybody may write, or nodes are not isolated.
    pub fn owner(&self, address: u64) -> Option<Owner> {
        let first_slot = |slot| {
            let owners = self.owners.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            owners.get(&slot).copied()
        };
        self.fence.as_ref()?.owner(address, first_slot)
    }

    /// Every program and library that was started or mapped executable so far, sorted.
    pub fn images(&self) -> Vec<ImageRecord> {
        self.images.records()
    }

    /// Paths of the host's files and directories of which the run may have seen more than one state, in order. Looks at
    /// all opened files that are not copied; for the end of a run.
    pub fn changed_files(&self) -> Vec<String> {
        let changed: BTreeSet<String> = self.roots.iter().flat_map(LowerTree::changed).collect();
        changed.into_iter().collect()
    }

    /// What nodes have looked up in root number `root`: of a directory of the host every name, and what was there.
    pub fn seen(&self, root: usize) -> Vec<Seen> {
        self.roots[root].seen()
    }

    /// The program, or family of forked ones, that has most of the host's memory: its first slot, and bytes. May be
    /// called from any thread.
    pub fn biggest_program(&self) -> Option<(u64, u64)> {
        let owners = self
            .owners
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone();
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for (slot, first) in owners {
            *sizes.entry(first).or_default() += self.pages.resident(slot..slot + space::SLOT).unwrap_or(0);
        }
        sizes.into_iter().max_by_key(|&(_, bytes)| bytes)
    }

    /// Gives files of nodes where they take that many bytes or more no further memory, from now on; none: lets them have
    /// it. May be called from any thread.
    pub fn refuse_files(&self, least_bytes: Option<u64>) {
        let files = self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for taken in files.values() {
            let refuse = least_bytes.is_some_and(|least| taken.bytes.load(Ordering::Relaxed) >= least);
            taken.refuse.store(refuse, Ordering::Relaxed);
        }
    }

    /// A node has gone down, and its [`ProcessHost`] and kernel with it: forgets what was shared with them, so that there can be
    /// another in its place.
    pub fn forget_node(&self, node: u32) {
        if let Some(fence) = &self.fence {
            fence.leave(node);
        }
        let mut files = self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        files.remove(&node);
    }

    /// What the files of a node take.
    fn file_use(&self, node: u32) -> Arc<FileUse> {
        let mut files = self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        files.entry(node).or_default().clone()
    }

    /// Notes that the program whose first slot is `first` has these slots, or nobody if there is none.
    fn note_owner(&self, slots: &Range<u64>, first: Option<u64>) {
        let mut owners = self.owners.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for slot in slots.clone().step_by(space::SLOT as usize) {
            match first {
                Some(first) => owners.insert(slot, first),
                None => owners.remove(&slot),
            };
        }
    }

    /// Programs and libraries with instructions that may show the host's processor, which could not be patched, and how many;
    /// sorted by path.
    pub fn unmasked_images(&self) -> Vec<(String, u32)> {
        self.images.unsure()
    }

    /// Every other file of the host that was opened so far, sorted; not those of images, which have a hash of their own. Reads
    /// them all.
    pub fn opened_files(&self) -> Vec<InputRecord> {
        let mut known: BTreeSet<String> = self.images().into_iter().map(|image| image.path).collect();
        let mut records = Vec::new();
        for root in &self.roots {
            records.extend(root.opened_files(&known, &self.fds));
            known.extend(records.iter().map(|record: &InputRecord| record.path.clone()));
        }
        records.sort();
        records
    }

    /// Every directory of the host that was listed so far, sorted; the hash is of names and types.
    pub fn listed_directories(&self) -> Vec<InputRecord> {
        let listed: BTreeSet<InputRecord> = self.roots.iter().flat_map(|root| root.listed_directories()).collect();
        listed.into_iter().collect()
    }

    /// Sets `count` bytes of program memory to 1.
    fn write_ones(&self, address: u64, count: u64) -> Result<(), Errno> {
        use std::os::fd::AsFd;
        let mut done = 0;
        while done < count {
            let step = (count - done).min(ONES as u64);
            let wrote = sys::read_to(self.ones.as_fd(), address.wrapping_add(done), step, 0)?;
            if wrote < step {
                return Err(Errno::FAULT);
            }
            done += wrote;
        }
        Ok(())
    }
}

/// A node, as far as its programs' memory and files are concerned.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of the node, unlike any other's.
    pub node: u32,
    /// Address spaces that it had in earlier lives, [`ProcessHost::spaces_made`] in all: no number is used twice.
    pub spaces_made: u64,
    /// Addresses for programs: whole slots of 1 GiB.
    pub programs: Range<u64>,
    /// Which of the roots of [`Shared::with_roots`] it sees as `/`.
    pub root: usize,
    /// Files over those of the root, among them `/etc/hostname` and the like.
    pub files: Vec<NodeFile>,
    /// Modification time of those, wall clock nanoseconds.
    pub files_mtime_ns: u64,
    /// What files may take.
    pub file_limits: FileLimits,
    /// Most memory that all programs may have together, bytes; see [`LimitMet::Memory`].
    pub memory_limit_bytes: u64,
}

/// The memory and file part of [`windtunnel_kernel::host::Host`] for one node; methods of the same names do the same.
#[derive(Debug)]
pub struct ProcessHost {
    shared: Arc<Shared>,
    spaces: Spaces,
    files: FileService,
    exec_errors: Vec<ExecError>,
    /// Handle of the instance's memory; 0: not told yet.
    ram: u64,
}

/// A result as the kernel wants it.
fn answer(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

impl ProcessHost {
    /// A host for the programs of a node.
    ///
    /// # Errors
    /// When its addresses are taken, or one of its files cannot be.
    pub fn new(shared: Arc<Shared>, config: &NodeConfig) -> Result<Self, ProcessError> {
        let spaces = Spaces::new(
            shared.clone(),
            (config.node, config.spaces_made),
            config.programs.clone(),
            config.memory_limit_bytes,
        )
        .map_err(|errno| ProcessError::Addresses {
            range: config.programs.clone(),
            errno,
        })?;
        let files = FileService::new(
            shared.clone(),
            config.root,
            &config.files,
            config.files_mtime_ns,
            config.file_limits,
            shared.file_use(config.node),
        )?;
        Ok(Self {
            shared,
            spaces,
            files,
            exec_errors: Vec::new(),
            ram: 0,
        })
    }

    /// How many address spaces the node has had, those of earlier lives included.
    pub fn spaces_made(&self) -> u64 {
        self.spaces.made()
    }

    /// Whether the scenario names its root, which is then shown as it is.
    pub fn root_is_pinned(&self) -> bool {
        self.files.root_is_pinned()
    }

    /// A handle for an open file of the engine's: a result to be written (`name` is for messages), or input to be read.
    ///
    /// # Errors
    /// When the host cannot say how the file is open.
    pub fn adopt(&mut self, fd: OwnedFd, name: &str) -> Result<u64, Errno> {
        self.files.adopt(fd, name)
    }

    /// Tells which memory is the instance's own, so that the kernel can map parts of it into programs.
    ///
    /// # Errors
    /// When the host cannot say how the file is open.
    pub fn set_ram(&mut self, fd: OwnedFd) -> Result<(), Errno> {
        self.ram = self.files.adopt(fd, "node memory")?;
        Ok(())
    }

    /// Tells what the instance's kernel writes, which is inaccessible while programs of other nodes run if nodes are isolated.
    pub fn set_shutter(&mut self, shutter: Shutter) {
        if let Some(fence) = &self.shared.fence {
            fence.add_kernel(self.spaces.node(), shutter);
        }
    }

    /// The first failed write to an adopted file since the last call. The run must end with it.
    pub fn take_write_error(&mut self) -> Option<WriteError> {
        self.files.take_write_error()
    }

    /// The limit that programs met last, if any since the last call. To be asked where a call answered ENOSPC or ENOMEM.
    pub fn take_limit_met(&mut self) -> Option<LimitMet> {
        self.files.take_limit_met().or_else(|| self.spaces.take_limit_met())
    }

    /// Why programs could not be started since the last call, in more words than an error number.
    pub fn take_exec_errors(&mut self) -> Vec<ExecError> {
        std::mem::take(&mut self.exec_errors)
    }

    /// Whether there are any that [`Self::take_notes`] would give.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.spaces.has_notes()
    }

    /// Memory calls refused or changed since the last call: number and note.
    pub fn take_notes(&mut self) -> Vec<(u32, &'static str)> {
        self.spaces.take_notes()
    }

    /// See [`windtunnel_kernel::host::Host::as_create`].
    pub fn as_create(&mut self) -> i64 {
        let created = self.spaces.create();
        if let Err(errno) = created {
            let file = "a further program".to_owned();
            let what = "does not fit the address range of its node, which its other programs use up".to_owned();
            self.exec_errors.push(ExecError { file, what, errno });
        }
        answer(created)
    }

    /// See [`windtunnel_kernel::host::Host::as_fork`].
    pub fn as_fork(&mut self, space: u64) -> i64 {
        if sys::at_limit() {
            return answer(Err(Errno::NOMEM));
        }
        answer(self.spaces.fork(space))
    }

    /// See [`windtunnel_kernel::host::Host::as_destroy`].
    pub fn as_destroy(&mut self, space: u64) {
        self.spaces.destroy(space);
    }

    /// See [`windtunnel_kernel::host::Host::as_activate`].
    pub fn as_activate(&mut self, space: u64) {
        self.spaces.activate(space);
        if let Some(fence) = &self.shared.fence {
            // That it cannot is noted, and ends the run.
            let _ = fence.close_others(self.spaces.node());
        }
    }

    /// See [`windtunnel_kernel::host::Host::exec_map`].
    pub fn exec_map(&mut self, space: u64, exec: &mut abi::Exec) -> i64 {
        let contents = || -> Result<_, Errno> {
            let interp = if exec.interp == 0 {
                None
            } else {
                Some(self.files.content(exec.interp)?.clone())
            };
            Ok((self.files.content(exec.file)?.clone(), interp))
        };
        let (file, interp) = match contents() {
            Ok(contents) => contents,
            Err(errno) => return answer(Err(errno)),
        };
        match image::exec_map(&mut self.spaces, &self.shared, space, exec, &file, interp.as_ref()) {
            Ok(()) => 0,
            Err(error) => {
                let errno = error.errno;
                self.exec_errors.push(error);
                answer(Err(errno))
            }
        }
    }

    /// See [`windtunnel_kernel::host::Host::mem_call`].
    pub fn mem_call(&mut self, space: u64, nr: u32, args: &[u64; 6], file: u64) -> i64 {
        if sys::at_limit() {
            return answer(Err(Errno::NOMEM));
        }
        let content = match if file == abi::FILE_RAM && self.ram != 0 {
            self.ram
        } else {
            file
        } {
            0 => None,
            abi::FILE_RAM if self.ram == 0 => return answer(Err(Errno::NODEV)),
            file => match self.files.content(file) {
                Ok(content) => Some(content.clone()),
                Err(errno) => return answer(Err(errno)),
            },
        };
        answer(self.spaces.mem_call(space, nr, args, content))
    }

    /// The call chain of the program that runs now, given its registers; innermost first.
    pub fn backtrace(&self, regs: &abi::Regs) -> Vec<Frame> {
        backtrace(&self.shared, regs)
    }

    /// Looks whether the running program of `space`, with the registers in `look`, waits in a loop that cannot end by
    /// itself, for `budget` instructions ([`BUDGET_MAX`] is enough for all that count). If so, brings it to a place of
    /// the loop that depends on the loop and on `choice` only: the registers are in `look` then, and the length of a
    /// round.
    pub fn settle_spin(&mut self, space: u64, look: &mut abi::Look, budget: u64, choice: u64) -> bool {
        let mut pages = space::ProgramPages::new(&mut self.spaces, space);
        let Some(spin) = spin::find(&mut pages, &look.regs, look.fs, budget, choice) else {
            return false;
        };
        for (address, bytes) in &spin.writes {
            let done = self.as_write(space, *address, bytes.as_ptr(), bytes.len() as u64);
            assert_eq!(done, bytes.len() as i64, "memory at {address:#x} was writable");
        }
        (look.regs, look.cycle) = (spin.regs, spin.cycle);
        true
    }

    /// See [`windtunnel_kernel::host::Host::as_read`].
    pub fn as_read(&mut self, space: u64, address: u64, buffer: *mut u8, len: u64) -> i64 {
        answer(self.spaces.copy(space, sys::Copy::Out, address, buffer as u64, len))
    }

    /// See [`windtunnel_kernel::host::Host::as_write`].
    pub fn as_write(&mut self, space: u64, address: u64, buffer: *const u8, len: u64) -> i64 {
        answer(self.spaces.copy(space, sys::Copy::In, address, buffer as u64, len))
    }

    /// See [`windtunnel_kernel::host::Host::as_map`].
    pub fn as_map(&mut self, space: u64, address: u64, out: &mut abi::Map) -> i64 {
        answer(self.spaces.map_above(space, address, out))
    }

    /// See [`windtunnel_kernel::host::Host::fs_name`].
    pub fn fs_name(&mut self, file: u64, name: &FileName<'_>) {
        let shown = Shown {
            ino: name.ino,
            dev_major: name.dev_major,
            dev_minor: name.dev_minor,
            path: name.path.into(),
        };
        self.files.show_as(file, shown);
    }

    /// See [`windtunnel_kernel::host::Host::as_key`].
    pub fn as_key(&self, space: u64, address: u64, write: bool, out: &mut abi::MemKey) -> i64 {
        answer(self.spaces.key(space, address, write).map(|key| {
            *out = key;
            0
        }))
    }

    /// See [`windtunnel_kernel::host::Host::instruction`].
    pub fn instruction(&mut self, space: u64, regs: &mut abi::Regs) -> i64 {
        self.spaces.instruction(space, regs)
    }

    /// See [`windtunnel_kernel::host::Host::fs_lookup`].
    pub fn fs_lookup(&mut self, dir: u64, name: &[u8], out: &mut abi::FsAttr) -> i64 {
        answer(self.files.lookup(dir, name, out))
    }

    /// See [`windtunnel_kernel::host::Host::fs_readdir`].
    pub fn fs_readdir(&mut self, dir: u64, index: u64, out: &mut abi::FsDirent) -> i64 {
        answer(self.files.readdir(dir, index, out))
    }

    /// See [`windtunnel_kernel::host::Host::fs_readlink`].
    pub fn fs_readlink(&mut self, id: u64, buf: &mut [u8]) -> i64 {
        answer(self.files.readlink(id, buf))
    }

    /// See [`windtunnel_kernel::host::Host::fs_open`].
    pub fn fs_open(&mut self, id: u64) -> i64 {
        answer(self.files.open(id))
    }

    /// See [`windtunnel_kernel::host::Host::fs_create`].
    pub fn fs_create(&mut self, from: u64, size: u64) -> i64 {
        answer(self.files.create(from, size))
    }

    /// See [`windtunnel_kernel::host::Host::fs_read`].
    pub fn fs_read(&mut self, file: u64, user_buf: *mut u8, len: u64, offset: u64) -> i64 {
        answer(self.files.read(file, user_buf as u64, len, offset))
    }

    /// See [`windtunnel_kernel::host::Host::fs_write`].
    pub fn fs_write(&mut self, file: u64, user_buf: *const u8, len: u64, offset: u64) -> i64 {
        answer(self.files.write(file, user_buf as u64, len, offset))
    }

    /// See [`windtunnel_kernel::host::Host::fs_truncate`].
    pub fn fs_truncate(&mut self, file: u64, size: u64) -> i64 {
        answer(self.files.truncate(file, size))
    }

    /// See [`windtunnel_kernel::host::Host::fs_size`].
    pub fn fs_size(&mut self, file: u64) -> i64 {
        answer(self.files.size(file))
    }

    /// See [`windtunnel_kernel::host::Host::fs_seek`].
    pub fn fs_seek(&mut self, file: u64, offset: u64, whence: u32) -> i64 {
        answer(self.files.seek(file, offset, whence))
    }

    /// See [`windtunnel_kernel::host::Host::fs_punch`].
    pub fn fs_punch(&mut self, file: u64, offset: u64, len: u64) -> i64 {
        answer(self.files.punch(file, offset, len))
    }

    /// See [`windtunnel_kernel::host::Host::fs_storage`].
    pub fn fs_storage(&mut self, file: u64) -> i64 {
        answer(self.files.storage(file))
    }

    /// See [`windtunnel_kernel::host::Host::fs_writers`].
    pub fn fs_writers(&self, file: u64) -> i64 {
        answer(self.files.content(file).map(|content| self.spaces.writers(content)))
    }

    /// See [`windtunnel_kernel::host::Host::fs_release`].
    pub fn fs_release(&mut self, file: u64) {
        self.files.release(file);
    }
}
