//! The turn machine and the phases of a compaction, explored: every order in which clients, the model, the store, the
//! compactor and a crash can follow one another, up to a number of steps. States that are the same are looked at once.

mod args;
mod compactor;
mod kept;
mod listener;
mod scene;
mod script;
mod search;
mod world;

pub use args::{Args, prove};
pub use scene::{Broken, Scene};
pub use search::{Explored, explore};
pub use world::World;
