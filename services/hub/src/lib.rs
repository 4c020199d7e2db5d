//! Model files from a hub that speaks the protocol of huggingface.co. Floor 0.
//!
//! A file appears under its name when all of it is there and has the hash that the hub tells. What was fetched of it before
//! stays beside it and is gone on with. Each repository has a folder of its own, and a fetch replaces only what a fetch wrote
//! there. Knows no preset, no configuration and no screen.

mod choose;
mod client;
mod error;
mod file;
mod listing;
mod model_files;
mod name;
mod record;

pub use choose::choose;
pub use client::{HubClient, HubOptions};
pub use error::Error;
pub use file::{Fetched, Progress};
pub use listing::{Listed, Listing};
pub use model_files::ModelFiles;
pub use name::Name;
