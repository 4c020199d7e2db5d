//! What a client asks for and does not get stands in the log, once.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// As many different notices as are told of.
const NOTICES: usize = 256;

/// Whether this was not told yet.
pub fn is_first(notice: String) -> bool {
    static TOLD: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.len() < NOTICES && told.insert(notice)
}
