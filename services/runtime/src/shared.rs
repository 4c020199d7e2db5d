//! What all sessions of a service use.

use crate::Presets;
use crate::compactor::PromptTools;
use model::{Gpu, Model};
use session::prompt::Wording;
use settings::Settings;
use std::sync::Arc;
use store::{SessionRef, Store};
use tokio::time::Instant;

pub struct Shared {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub presets: Presets,
    /// None: this machine has none.
    pub gpu: Option<Arc<Gpu>>,
    pub wording: Wording,
    /// The zero of the machines' time.
    pub started: Instant,
}

impl Shared {
    pub fn tools_of(&self, preset: &str, ctx_size: u64, session: &SessionRef) -> PromptTools {
        PromptTools {
            model: self.model.clone(),
            preset: self.presets.of_session(preset, ctx_size),
            wording: self.wording.clone(),
            past_owner: Some(session.past_owner()),
        }
    }
}
