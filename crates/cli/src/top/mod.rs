//! The terminal view of a live run: [`model`] is what is known, [`view`] how it looks, [`screen`] the terminal and its keys,
//! [`watcher`] the connection to the run.

pub mod model;
pub mod screen;
pub mod view;
pub mod watcher;
