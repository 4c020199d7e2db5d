//! Words are put into the real service by every door and deleted in every way, with kills at random moments. After the next
//! start no file and no search holds a deleted word, and every other word is still there.

mod args;
mod canary;
mod files;
mod house;
mod plant;
mod ways;

pub use args::{Args, prove};
