//! A full house for as long as it is told: satellites that listen, clients that talk, interrupt and come back all at once, with
//! compactions. Nothing fails, memory stays where it is, no user waits for another's crowd, and a connection too many is refused.

mod args;
mod house;
mod listening;
mod talker;

pub use args::{Args, prove};
pub use house::HouseSizes;
pub use talker::TalkedSession;
