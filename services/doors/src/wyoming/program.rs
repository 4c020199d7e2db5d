//! What can be talked to: one program a port, because clients offer no other.

use super::render::info;
use store::SessionName;

pub struct WyomingProgram {
    /// As clients list it.
    pub name: String,
    /// The model that its new sessions ask for. Empty: the chosen preset.
    pub model: String,
    /// By which its sessions are told from those of other programs.
    pub door: String,
    /// What a client is told of it, ready to be written.
    pub info: String,
}

impl WyomingProgram {
    pub fn new(name: &str, model: &str, door: &str, shown_model: &str, controls: bool) -> WyomingProgram {
        WyomingProgram {
            name: name.to_owned(),
            model: model.to_owned(),
            door: door.to_owned(),
            info: info(name, shown_model, controls),
        }
    }

    pub fn session_name(&self, name: String) -> SessionName {
        SessionName { door: self.door.clone(), name }
    }
}
