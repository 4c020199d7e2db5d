//! The targets of `proof hostile`, led by coverage: `HOSTILE_TARGET` names the one to try.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proof::hostile::{HostileTarget, TARGETS};
use std::sync::LazyLock;

static CHOSEN: LazyLock<&HostileTarget> = LazyLock::new(|| {
    let name = std::env::var("HOSTILE_TARGET").expect("HOSTILE_TARGET names a target");
    TARGETS.iter().find(|target| target.name == name).expect("HOSTILE_TARGET is the name of a target")
});

fuzz_target!(|data: &[u8]| {
    if let Err(why) = (CHOSEN.take)(data) {
        panic!("{why}");
    }
});
