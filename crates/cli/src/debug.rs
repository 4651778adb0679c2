//! What a debugger looks at: the list of loaded images and the node whose kernel or program runs.
//!
//! The engine calls [`image_loaded`] and [`set_node`] (as callbacks, in debug runs only); `assets/windtunnel-gdb.py`
//! reads the globals below by name and sets a breakpoint on the empty hook function. Their layout is a contract with
//! that script: change both.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// One loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Image {
    /// Host path of the ELF file, a C string.
    path: *const c_char,
    /// Name of the node that loaded it first.
    node: *const c_char,
    /// Run-time address minus link-time address, bytes.
    bias: u64,
}

// SAFETY: the pointers are to strings that live for good and never change.
#[allow(unsafe_code)]
unsafe impl Send for Image {}

/// The loaded images, oldest first.
static IMAGES: Mutex<Vec<Image>> = Mutex::new(Vec::new());

/// The first of the loaded images; the others follow it.
#[allow(unsafe_code)]
// SAFETY: the name is ours alone, so it replaces no symbol of another library.
#[unsafe(no_mangle)]
#[used]
static windtunnel_gdb_images: AtomicPtr<Image> = AtomicPtr::new(std::ptr::null_mut());

/// Number of loaded images.
#[allow(unsafe_code)]
// SAFETY: as above.
#[unsafe(no_mangle)]
#[used]
static windtunnel_gdb_image_count: AtomicUsize = AtomicUsize::new(0);

/// Name of the running node as a C string, or null between nodes.
#[allow(unsafe_code)]
// SAFETY: as above.
#[unsafe(no_mangle)]
#[used]
static windtunnel_gdb_current_node: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Called after the list has changed; the debugger's breakpoint goes here.
#[allow(unsafe_code)]
// SAFETY: as above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn windtunnel_gdb_image_hook() {
    // Keeps the function and its calls from being folded away.
    std::hint::black_box(());
}

/// Called once when all kernels have booted; the debugger stops here, where every image is known.
#[allow(unsafe_code)]
// SAFETY: as above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn windtunnel_gdb_booted_hook() {
    // Unlike the other hook's body, lest the linker makes one function of both.
    std::hint::black_box(1);
}

/// Says that all kernels have booted, and no event has happened yet.
pub fn all_booted() {
    windtunnel_gdb_booted_hook();
}

/// Adds an image to the debugger's list: the ELF file at host path `path`, run by `node`, at load bias `bias`.
pub fn image_loaded(path: &str, bias: u64, node: &str) {
    let (path, node) = (c_string(path), c_string(node));
    change_images(|images| images.push(Image { path, node, bias }));
}

/// Takes the image of `path` at load bias `bias` off the list, while it is still mapped: the debugger has to take its
/// breakpoints out of it.
pub fn image_gone(path: &str, bias: u64) {
    let path = c_string(path);
    change_images(|images| images.retain(|image| (image.path, image.bias) != (path, bias)));
}

/// Changes the list and shows it to the debugger.
fn change_images(change: impl FnOnce(&mut Vec<Image>)) {
    let mut images = IMAGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    change(&mut images);
    windtunnel_gdb_images.store(images.as_mut_ptr(), Ordering::Relaxed);
    windtunnel_gdb_image_count.store(images.len(), Ordering::Relaxed);
    windtunnel_gdb_image_hook();
}

/// Says whose kernel or program runs from now on; an empty name: nobody's.
pub fn set_node(node: &str) {
    let name = if node.is_empty() {
        std::ptr::null()
    } else {
        c_string(node)
    };
    windtunnel_gdb_current_node.store(name.cast_mut(), Ordering::Relaxed);
}

/// A C string that lives for good, the same for the same text. Text after a NUL is cut off.
fn c_string(text: &str) -> *const c_char {
    static NAMES: Mutex<Option<HashMap<String, &'static std::ffi::CStr>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let names = names.get_or_insert_default();
    if let Some(name) = names.get(text) {
        return name.as_ptr();
    }
    let until_nul = text.split('\0').next().unwrap_or_default();
    let name = CString::new(until_nul).expect("no NUL is left");
    let name: &'static std::ffi::CStr = Box::leak(name.into_boxed_c_str());
    names.insert(text.to_owned(), name);
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_string() {
        assert_eq!(c_string("h1"), c_string("h1"));
        assert_ne!(c_string("h1"), c_string("h2"));
        set_node("h1");
        assert_eq!(
            windtunnel_gdb_current_node.load(Ordering::Relaxed).cast_const(),
            c_string("h1")
        );
        set_node("");
        assert!(windtunnel_gdb_current_node.load(Ordering::Relaxed).is_null());
    }

    #[test]
    fn the_layout_is_what_the_script_reads() {
        use std::mem::offset_of;
        let offsets = [
            offset_of!(Image, path),
            offset_of!(Image, node),
            offset_of!(Image, bias),
        ];
        assert_eq!((offsets, size_of::<Image>()), ([0, 8, 16], 24));
    }

    #[test]
    fn images_come_and_go() {
        let count = || windtunnel_gdb_image_count.load(Ordering::Relaxed);
        image_loaded("/bin/true", 4096, "h1");
        image_loaded("/bin/true", 8192, "h2");
        assert_eq!(count(), 2);
        image_gone("/bin/true", 4096);
        assert_eq!(count(), 1);
        assert_eq!(IMAGES.lock().unwrap()[0].bias, 8192);
        assert!(!windtunnel_gdb_images.load(Ordering::Relaxed).is_null());
    }
}
