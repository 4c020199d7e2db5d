//! A session from the store into memory.

use crate::compactor::{CompactedView, Compactor, CompactorStart, SessionStore, Standing, limits_of};
use crate::shared::Shared;
use crate::store_queue::StoreQueue;
use crate::turn_log::TurnLog;
use model::Counted;
use session::machine::{Machine, MachineLimits, Start};
use session::prompt::{SystemNotes, Wording};
use session::speech::SpeakingRate;
use settings::{NotesAs, Preset, Settings};
use std::sync::Arc;
use store::SessionRef;

pub struct Loaded {
    pub session: SessionRef,
    pub machine: Machine,
    pub queue: StoreQueue,
    pub preset: Arc<Preset>,
    /// Tokens that the newest measured turn had in its window.
    pub fill: Option<Counted>,
    pub standing: Arc<Standing>,
    pub compactor: Compactor,
    pub arm: Option<String>,
    pub turns: TurnLog,
}

pub async fn load(shared: &Shared, session: &SessionRef) -> Result<Loaded, store::Error> {
    let view = shared.store.load(session).await?;
    let measurements = shared.store.measurements(session).await?;
    let placement = view.session.placement.clone();
    let tools = shared.tools_of(&placement.preset, placement.ctx_size, session);
    let preset = tools.preset.clone();
    let standing = Standing::of(&view);
    let made = CompactedView::left_over(&view, &standing);
    let items: Vec<_> = view.head.iter().chain(&view.items).map(|version| Arc::new(version.item())).collect();
    let context = standing.context(&items, &limits_of(&preset), preset.recall > 0);
    let machine = Machine::new(Start {
        session_id: session.id().to_owned(),
        conversation_id: format!("conv_{}", session.id().trim_start_matches("sess_")),
        model: shared.presets.model().to_owned(),
        config: view.session.config,
        items: items.iter().map(|item| item.as_ref().clone()).collect(),
        context,
        limits: machine_limits(&shared.settings, &preset),
        speaking: SpeakingRate { words_per_minute: shared.settings.speech.words_per_minute },
        id_seed: random()?,
    });
    let last = measurements.last();
    let head = view.summary.map(|summary| summary.to_item);
    let queue = StoreQueue::new(shared.store.clone(), session.clone(), head);
    let arm = placement.experiment.zip(placement.arm.clone());
    let turns = last.map_or(0, |last| last.turn + 1);
    let open_turns = shared.settings.limits.responses_beside + 2;
    let turns = TurnLog::new(preset.clone(), arm, shared.gpu.clone(), turns, open_turns);
    let compactor = Compactor::start(CompactorStart {
        tools,
        kept: SessionStore { store: shared.store.clone(), session: session.clone() },
        standing: standing.clone(),
        made,
        waiting: shared.settings.limits.waiting_events,
    });
    let fill = last.map(|last| Counted::exactly(last.fill_tokens));
    let (session, standing, arm) = (session.clone(), Arc::new(standing), placement.arm);
    Ok(Loaded { session, machine, queue, preset, fill, standing, compactor, arm, turns })
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
        left_out: compaction::LEFT_OUT.to_owned(),
    }
}

fn machine_limits(settings: &Settings, preset: &Preset) -> MachineLimits {
    let limits = &settings.limits;
    MachineLimits {
        session_items: usize::try_from(limits.session_items).unwrap_or(usize::MAX),
        responses_beside: limits.responses_beside,
        outbox_steps: limits.waiting_steps,
        speculate_ms: Some(settings.conversation.speculate_ms),
        recalls: preset.recall,
    }
}

/// For ids that no other process makes.
pub fn random() -> Result<u64, store::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| store::Error::Disk {
        path: "/dev/urandom".into(),
        cause: format!("the system gives no random bytes: {error}"),
    })?;
    Ok(u64::from_le_bytes(bytes))
}
