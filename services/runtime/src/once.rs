//! Notices that the log has once, however often clients give cause.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// As many different notices as are remembered: what they name comes from clients.
const NOTICES: usize = 256;

static NOTED: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// Whether this notice is new. When there is no more room none is.
pub fn first_time(notice: String) -> bool {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.len() < NOTICES && noted.insert(notice)
}
