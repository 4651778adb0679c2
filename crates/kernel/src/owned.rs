//! Memory shared with a kernel.

/// A heap allocation that a kernel holds a pointer to. Unlike a `Box` it claims no uniqueness: every access goes
/// through the raw pointer and says why it may.
#[derive(Debug)]
pub(crate) struct Owned<T>(*mut T);

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }

    /// Valid until drop.
    #[inline]
    pub fn ptr(&self) -> *mut T {
        self.0
    }

    /// Takes the value out; the kernel must have no pointer to it any more.
    pub fn into_inner(self) -> T {
        let raw = self.0;
        std::mem::forget(self);
        // SAFETY: the pointer came from Box::into_raw in `new` and was not freed, as drop is skipped.
        *unsafe { Box::from_raw(raw) }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::into_raw in `new`.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
