//! Images of root file systems: tars of a root, `docker save` archives and OCI image layouts, unpacked once into a cache.
//!
//! No file of an image ever gets its name on the host: contents lie in the cache under numbers, and an index has names,
//! owners, modes, dates and links as the layers say. So an ordinary user can unpack what belongs to others, nothing in an
//! archive can lead out of the cache, and an image is the same whoever unpacked it, and where.

#![forbid(unsafe_code)]

mod archive;
mod cache;
mod compression;
mod config;
mod debian;
mod digest;
mod error;
mod layers;
mod oci;
mod open;
mod tree;

pub use cache::{Cache, Cached, Pruned};
pub use config::Config;
pub use debian::{Built, EPOCH_S, Package, Recipe, build as build_debian};
pub use error::ImageError;
pub use open::{Image, Unpacker, check};
pub use tree::{About, Data, Entry, Kind};
