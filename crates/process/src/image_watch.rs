//! What a debugger hears of the images of programs: which file is mapped where, as long as it is.
//!
//! Text is mapped from patched copies, so nothing but this tells a debugger whose symbols belong there. Only runs under
//! a debugger have an [`ImageWatch`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use crate::space::{Kind, Tree, node_of};
use crate::sys::EXEC;

/// An image that was mapped, or is about to be unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEvent<'a> {
    /// A host file with its symbols.
    pub path: &'a str,
    /// Run-time address minus link-time address, bytes.
    pub bias: u64,
    /// Number of the node as in [`crate::NodeConfig`].
    pub node: u32,
    /// False: it goes.
    pub mapped: bool,
}

/// Hears of images, on the simulation thread, while they are mapped.
pub type ImageHook = Box<dyn Fn(ImageEvent<'_>) + Send>;

/// File and load bias.
type Images = BTreeSet<(String, u64)>;

/// Tells a hook of every image once, however many programs share it.
pub(crate) struct ImageWatch {
    state: Mutex<State>,
}

struct State {
    hook: ImageHook,
    /// Images by address space.
    spaces: BTreeMap<u64, Images>,
    /// Those the hook has heard of, and for whose node.
    told: BTreeMap<(String, u64), u32>,
    /// The space whose images are in the low range; those of others are parked elsewhere.
    low_holder: Option<u64>,
}

impl fmt::Debug for ImageWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageWatch").finish_non_exhaustive()
    }
}

impl ImageWatch {
    pub(crate) fn new(hook: ImageHook) -> Self {
        Self {
            state: Mutex::new(State {
                hook,
                spaces: BTreeMap::new(),
                told: BTreeMap::new(),
                low_holder: None,
            }),
        }
    }

    /// The mappings of `space` are these now.
    pub(crate) fn mapped(&self, space: u64, tree: &Tree) {
        self.change(|state| {
            state.spaces.insert(space, images_of(tree));
        });
    }

    /// All of `space` is about to be unmapped.
    pub(crate) fn unmapping(&self, space: u64) {
        self.change(|state| {
            state.spaces.remove(&space);
            state.low_holder = state.low_holder.filter(|&holder| holder != space);
        });
    }

    /// The low range is about to be emptied (none), or `space` has just got it.
    pub(crate) fn low_range(&self, space: Option<u64>) {
        self.change(|state| state.low_holder = space);
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().expect("no panic while telling of images");
        how(&mut state);
        state.tell();
    }
}

impl State {
    /// Tells of all differences: first of what goes, since something else may be mapped there now.
    fn tell(&mut self) {
        let Self {
            hook,
            spaces,
            told,
            low_holder,
        } = self;
        let mut now: BTreeMap<&(String, u64), u32> = BTreeMap::new();
        for (space, images) in &*spaces {
            for image in images.iter().filter(|image| image.1 > 0 || *low_holder == Some(*space)) {
                now.entry(image).or_insert(node_of(*space));
            }
        }
        told.retain(|image, &mut node| {
            let stays = now.contains_key(image);
            if !stays {
                hook(event(image, node, false));
            }
            stays
        });
        for (image, node) in now {
            if !told.contains_key(image) {
                told.insert(image.clone(), node);
                hook(event(image, node, true));
            }
        }
    }
}

fn event((path, bias): &(String, u64), node: u32, mapped: bool) -> ImageEvent<'_> {
    ImageEvent {
        path,
        bias: *bias,
        node,
        mapped,
    }
}

/// Files and load biases of the images in `tree`; the bias is 0 for programs linked to fixed (low) addresses only.
fn images_of(tree: &Tree) -> Images {
    let text = tree.iter().filter(|(_, vma)| vma.prot & EXEC != 0);
    text.filter_map(|(start, vma)| {
        let Kind::File(file) = &vma.kind else { return None };
        let image = file.patched.as_ref()?;
        let bias = image.bias(start, file.offset)?;
        // What was made in the run is no file of the host, but its patched copy has the same symbols.
        let path = if file.content.is_host_file() {
            file.content.name.clone()
        } else {
            format!("/proc/{}/fd/{}", std::process::id(), image.fd().as_raw_fd())
        };
        Some((path, bias))
    })
    .collect()
}
