//! Kills the real service at random moments of what it does, and starts it again: nothing that was acknowledged or heard is
//! lost, nothing is half done, and the store is whole. Between a kill and a start the end of the store's log may be torn or
//! zeroed, as a power cut leaves it; while the service runs, writes and flushes may fail and the clock may jump.

mod args;
mod files;
mod house;
mod known;
mod pulse;
mod shim;
mod talk;

pub use args::{Args, prove};
pub use house::House;
pub use shim::{Faults, Shim};
