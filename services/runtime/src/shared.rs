use crate::Presets;
use crate::encoding::Encoding;
use crate::fact_block::{BlockFacts, FactBlock};
use crate::held::HeldText;
use crate::prompts::{SessionTools, limits_of};
use model::{Gpu, Model};
use prompt::Wording;
use session::Event;
use settings::Settings;
use std::sync::Arc;
use store::{SessionRecord, SessionRef, Store, past_reused_by};
use tokio::sync::broadcast;
use tokio::time::Instant;

/// Event about a fact, for the clients of the session in which it was said.
pub struct FactNews {
    pub session: SessionRef,
    pub event: Event,
}

#[derive(Clone)]
pub struct Shared {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub presets: Presets,
    pub gpu: Option<Arc<Gpu>>,
    pub wording: Arc<Wording>,
    pub held: HeldText,
    pub encoding: Arc<Encoding>,
    pub news: broadcast::Sender<Arc<FactNews>>,
    /// Zero of the machines' time.
    pub started: Instant,
}

impl Shared {
    pub fn tools_of(&self, record: &SessionRecord, session: &SessionRef, told: BlockFacts) -> Arc<SessionTools> {
        let preset = self.presets.of_session(&record.placement.preset, record.placement.ctx_size);
        let is_private = !record.person.is_empty() && !record.is_remembered;
        Arc::new(SessionTools {
            session: session.clone(),
            person: record.is_remembered.then(|| record.person.clone()),
            reused_by: past_reused_by(session.user(), &record.person, is_private),
            facts: FactBlock::new(told),
            store: self.store.clone(),
            encoding: self.encoding.clone(),
            model: self.model.clone(),
            limits: limits_of(&preset),
            preset,
            wording: self.wording.clone(),
        })
    }
}
