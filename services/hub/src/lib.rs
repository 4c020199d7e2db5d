//! Model files from and for a hub that speaks the protocol of huggingface.co. Floor 0.
//!
//! A file appears under its name when it is complete and has the hash that the hub tells. Its earlier part stays beside
//! it, and the next fetch resumes there. Each repository has a folder of its own, and a fetch replaces only files that
//! a fetch wrote there. Knows no preset, no configuration and no screen.

mod choose;
mod client;
mod error;
mod file;
mod listing;
mod model_files;
mod name;
mod publish;
mod record;
mod shared;

pub use choose::choose;
pub use client::{HubClient, HubOptions};
pub use error::Error;
pub use file::{Fetched, Progress};
pub use listing::{Listed, Listing};
pub use model_files::ModelFiles;
pub use name::Name;
pub use publish::{Content, Publication, Published, PublishedFile, SendProgress, Sent, Upload, sha256_of};
pub use shared::{FetchStage, SharedFetch, ended};
