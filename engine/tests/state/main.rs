//! Reuse must not change the answers.

mod arms;
mod cut;
mod device;
#[allow(dead_code)]
#[path = "../../gpu/tests/support/devices.rs"]
mod devices;
mod disk;
mod drafts;
mod early;
mod heads;
mod memory;
mod pace;
mod random;
mod resume;
mod reuse;
mod support;
mod thinking;
