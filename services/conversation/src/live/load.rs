//! A session from the store into memory.

use super::actor::Compacting;
use super::compaction::{Kitchen, Made, Shelf, Standing, limits_of};
use super::keeper::{Keeper, KeeperStart};
use super::records::{config_of, item_of};
use super::registry::Shared;
use crate::backend::Counted;
use crate::realtime::Item;
use crate::sentences::SentenceLimits;
use crate::speech::SpeakingRate;
use crate::turn::{self, Machine, SystemNotes, TurnLimits, Wording};
use settings::{NotesAs, Preset, Settings};
use std::sync::Arc;
use store::SessionRef;

pub struct Loaded {
    pub machine: Machine,
    pub keeper: Keeper,
    pub preset: Arc<Preset>,
    /// Tokens that the newest measured turn had in its window.
    pub fill: Option<Counted>,
    /// Whose what is computed is.
    pub past_owner: u64,
    pub compacting: Compacting,
    pub arm: Option<String>,
}

pub async fn load(shared: &Shared, session: &SessionRef) -> Result<Loaded, store::Error> {
    let view = shared.store.load(session).await?;
    let measurements = shared.store.measurements(session).await?;
    let preset = shared.presets.of_session(&view.session.preset, view.session.ctx_size);
    let standing = Standing::of(&view);
    let made = Made::left_over(&view, &standing);
    let items: Vec<_> = view.head.iter().chain(&view.items).filter_map(item_of).map(Arc::new).collect();
    let context = standing.context(&items, &limits_of(&preset), preset.recall > 0);
    let kitchen = Kitchen {
        backend: shared.backend.clone(),
        preset: preset.clone(),
        wording: shared.wording.clone(),
        past_owner: Some(session.past_owner()),
    };
    let shelf = Shelf { store: shared.store.clone(), session: session.clone() };
    let machine = Machine::new(turn::Start {
        session_id: session.id().to_owned(),
        conversation_id: format!("conv_{}", session.id().trim_start_matches("sess_")),
        model: shared.presets.model().to_owned(),
        config: config_of(&view.session),
        items: items.iter().map(|item| Item::clone(item)).collect(),
        context,
        limits: turn_limits(&shared.settings, &preset),
        sentences: SentenceLimits {
            first_clause_chars: shared.settings.speech.first_clause_chars,
            max_sentence_chars: shared.settings.speech.max_sentence_chars,
        },
        speaking: SpeakingRate { words_per_minute: shared.settings.speech.words_per_minute },
        id_seed: random()?,
    });
    let last = measurements.last();
    let keeper = Keeper::new(KeeperStart {
        store: shared.store.clone(),
        session: session.clone(),
        preset: preset.clone(),
        head: view.summary.map(|summary| summary.to_item),
        turns: last.map_or(0, |last| last.turn + 1),
        responses: shared.settings.limits.responses_beside + 2,
        arm: view.session.experiment.clone().zip(view.session.arm.clone()),
        gpu: shared.gpu.clone(),
    });
    let fill = last.map(|last| Counted::exactly(last.fill_tokens));
    let compacting = Compacting::new(kitchen, shelf, standing, made);
    let (past_owner, arm) = (session.past_owner(), view.session.arm);
    Ok(Loaded { machine, keeper, preset, fill, past_owner, arm, compacting })
}

pub fn wording(settings: &Settings) -> Wording {
    let conversation = &settings.conversation;
    Wording {
        system_notes: match conversation.notes_as {
            NotesAs::System => SystemNotes::AsSystem,
            NotesAs::User => {
                SystemNotes::AsUser { before: conversation.note_before.clone(), after: conversation.note_after.clone() }
            }
        },
        opening: conversation.opening.clone(),
    }
}

fn turn_limits(settings: &Settings, preset: &Preset) -> TurnLimits {
    let limits = &settings.limits;
    TurnLimits {
        session_items: usize::try_from(limits.session_items).unwrap_or(usize::MAX),
        responses_beside: limits.responses_beside,
        outbox_steps: limits.waiting_steps,
        speculate_ms: Some(settings.conversation.speculate_ms),
        recalls: preset.recall,
    }
}

fn random() -> Result<u64, store::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| store::Error::Disk {
        path: "/dev/urandom".into(),
        cause: format!("the system gives no random bytes: {error}"),
    })?;
    Ok(u64::from_le_bytes(bytes))
}
