//! Programs that clients talk to: one a port, because clients offer no other choice.

use store::SessionName;

pub struct WyomingProgram {
    /// Name in the lists of clients.
    pub name: String,
    /// Model of new sessions. Empty: the chosen preset.
    pub model: String,
    /// Door by which its sessions differ from those of other programs.
    pub door: String,
}

impl WyomingProgram {
    pub fn session_name(&self, name: String) -> SessionName {
        SessionName { door: self.door.clone(), name }
    }
}
