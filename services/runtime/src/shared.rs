//! What all sessions of a service use.

use crate::Presets;
use crate::prompts::{SessionTools, limits_of};
use model::{Gpu, Model};
use session::prompt::Wording;
use settings::{KeptConversations, Settings};
use std::sync::Arc;
use store::{SessionRecord, SessionRef, Store};
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
    /// Whether conversations of this person, or in this room, outlive themselves. Of a program that talks for many with one key
    /// no rule says whose words it brings: what one of them says is not told to another.
    pub fn remembers(&self, person: &str, room: &str) -> bool {
        match self.settings.remember.conversations {
            KeptConversations::Named => !person.is_empty() || !room.is_empty(),
            KeptConversations::All => true,
            KeptConversations::None => false,
        }
    }

    pub fn tools_of(&self, record: &SessionRecord, session: &SessionRef) -> Arc<SessionTools> {
        let preset = self.presets.of_session(&record.placement.preset, record.placement.ctx_size);
        Arc::new(SessionTools {
            session: session.clone(),
            person: record.is_remembered.then(|| record.person.clone()),
            begins_with_facts: !record.config.remembered.is_empty(),
            store: self.store.clone(),
            model: self.model.clone(),
            limits: limits_of(&preset),
            preset,
            wording: self.wording.clone(),
        })
    }
}
