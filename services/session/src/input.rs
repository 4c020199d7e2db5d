//! Inputs: what follows from them.

use crate::vocabulary::Input;

impl Input {
    /// Whether a response begins with it.
    pub fn wants_response(&self) -> bool {
        matches!(self, Input::Respond(_) | Input::HeardAll { respond: true, .. })
    }
}
