//! Reuse must not change the answers.

mod choices;
mod cut;
mod device;
mod disk;
mod drafts;
mod early;
mod heads;
mod memory;
mod pace;
mod pairs;
mod random;
mod resume;
mod reuse;
mod scored;
mod support;
mod thinking;
mod users;
