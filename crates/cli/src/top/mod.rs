//! The terminal view of a live run: [`model`] is what is known, [`view`] how it looks, [`screen`] the terminal and its keys.

pub mod model;
pub mod screen;
pub mod view;
