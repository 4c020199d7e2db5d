//! What all sessions of a service use.

use crate::Presets;
use crate::prompts::{SessionTools, limits_of};
use model::{Gpu, Model};
use session::prompt::Wording;
use settings::Settings;
use std::sync::Arc;
use store::{Placement, SessionRef, Store};
use tokio::time::Instant;

pub struct Shared {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub presets: Presets,
    /// None: this machine has none.
    pub gpu: Option<Arc<Gpu>>,
    pub wording: Arc<Wording>,
    /// The zero of the machines' time.
    pub started: Instant,
}

impl Shared {
    pub fn tools_of(&self, placement: &Placement, session: &SessionRef) -> Arc<SessionTools> {
        let preset = self.presets.of_session(&placement.preset, placement.ctx_size);
        Arc::new(SessionTools {
            session: session.clone(),
            store: self.store.clone(),
            model: self.model.clone(),
            limits: limits_of(&preset),
            preset,
            wording: self.wording.clone(),
        })
    }
}
