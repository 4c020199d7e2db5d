//! Notices that the log has once, however often clients cause them.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Limit of the notices that are remembered, because clients choose their words.
const NOTICES: usize = 256;

static NOTED: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// Returns true for a new notice. When the list is full, none is new.
pub fn first_time(notice: String) -> bool {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.len() < NOTICES && noted.insert(notice)
}
