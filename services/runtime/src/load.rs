use crate::Error;
use crate::compactor::{CompactedView, Compactor, ShownPast};
use crate::connections::Connections;
use crate::generations::Generations;
use crate::memories::SessionMemories;
use crate::shared::Shared;
use crate::store_queue::StoreQueue;
use crate::task::{Life, SessionTask, SessionWindow};
use crate::turn_log::TurnLog;
use crate::turn_traces::TurnTraces;
use futures_util::stream::FuturesUnordered;
use model::Counted;
use prompt::Wording;
use session::machine::{Machine, MachineLimits, Start};
use session::sentences::SentenceLimits;
use settings::{NotesAs, Preset, Settings};
use std::borrow::Cow;
use std::sync::Arc;
use store::SessionRef;
use tokio::sync::Notify;

/// Prefixes of a session's id, and of its conversation's, which Realtime's events name.
const OF_SESSION: &str = "sess_";
const OF_CONVERSATION: &str = "conv_";

fn conversation_id(session_id: &str) -> String {
    format!("{OF_CONVERSATION}{}", session_id.strip_prefix(OF_SESSION).unwrap_or(session_id))
}

/// Returns the id of the session that a client names by its own id or by that of its conversation.
pub fn session_id(named: &str) -> Cow<'_, str> {
    match named.strip_prefix(OF_CONVERSATION) {
        Some(letters) => format!("{OF_SESSION}{letters}").into(),
        None => named.into(),
    }
}

pub async fn load(shared: Arc<Shared>, session: &SessionRef, written: Arc<Notify>) -> Result<Box<SessionTask>, Error> {
    let bytes = shared.store.text_bytes(session).await?;
    let held = shared.held.taken(usize::try_from(bytes).unwrap_or(usize::MAX)).ok_or(Error::NoRoom)?;
    let view = shared.store.load(session).await?;
    let last_turn = shared.store.turns_page(session, None, 1).await?.pop();
    let placement = view.session.placement.clone();
    let preset = shared.presets.of_session(&placement.preset, placement.ctx_size);
    // Watched before the facts are read, so that no change is missed.
    let memories = SessionMemories::new(&shared, session, view.session.is_remembered);
    let told = shared.facts_of(session, &view.session, &preset).await;
    let tools = shared.tools_of(&view.session, session, told);
    let shown_past = ShownPast::of(&view);
    let made = CompactedView::left_over(&view, &shown_past);
    let items: Vec<_> = view.head.iter().chain(&view.items).map(|version| Arc::new(version.item())).collect();
    let context = tools.context(&shown_past, &items);
    let machine = Machine::new(Start {
        session_id: session.id().to_owned(),
        conversation_id: conversation_id(session.id()),
        model: shared.presets.model.clone(),
        config: view.session.config,
        items: items.iter().map(|item| item.as_ref().clone()).collect(),
        leading: view.head.len(),
        context,
        limits: machine_limits(&shared.settings, &tools.preset),
        words_per_minute: shared.settings.speech.words_per_minute,
        backchannels: shared.settings.conversation.backchannels.clone(),
        id_seed: random()?,
    });
    let fill = last_turn.as_ref().map(|last| Counted::exactly(last.fill_tokens));
    let arm = placement.experiment.zip(placement.arm.clone());
    let open_turns = shared.settings.limits.responses_beside + 2;
    let turns = last_turn.map_or(0, |last| last.turn + 1);
    let turns = TurnLog::new(tools.preset.clone(), arm, shared.gpu.clone(), turns, open_turns);
    let traces = TurnTraces::new(session.id(), &tools.preset.name, open_turns);
    let queue = StoreQueue::new(shared.store.clone(), session.clone());
    let waiting = shared.settings.limits.waiting_events;
    let compactor = Compactor::start(tools.clone(), shown_past.clone(), made, waiting);
    let speech = &shared.settings.speech;
    let sentences =
        SentenceLimits { first_clause_chars: speech.first_clause_chars, max_sentence_chars: speech.max_sentence_chars };
    let logs_text = shared.settings.logging.user_text;
    let generations = Generations::new(tools.clone(), sentences, logs_text, placement.arm.clone());
    let shown_past = Arc::new(shown_past);
    Ok(Box::new(SessionTask {
        machine,
        queue,
        connections: Connections::new(written),
        generations,
        turns,
        traces,
        window: SessionWindow { tools, shown_past, fill, arm: placement.arm, epoch: 0, told: None, wanted: None },
        compactor,
        to_compactor: Vec::new(),
        recalls: FuturesUnordered::new(),
        looking: None,
        memories,
        held,
        life: Life::begin(),
        shared,
    }))
}

pub fn wording(settings: &Settings) -> Wording {
    let conversation = &settings.conversation;
    Wording {
        note: match conversation.notes_as {
            NotesAs::System => None,
            NotesAs::User => Some([conversation.note_before.clone(), conversation.note_after.clone()]),
        },
        opening: conversation.opening.clone(),
        left_out: compaction::LEFT_OUT.to_owned(),
        no_question: conversation.no_question.clone(),
        tool_order: conversation.tool_order,
    }
}

fn machine_limits(settings: &Settings, preset: &Preset) -> MachineLimits {
    let limits = &settings.limits;
    MachineLimits {
        session_items: usize::try_from(limits.session_items).unwrap_or(usize::MAX),
        told_items: limits.told_items,
        session_bytes: limits.session_bytes,
        responses_beside: limits.responses_beside,
        outbox_steps: limits.waiting_steps,
        speculate_ms: Some(settings.conversation.speculate_ms),
        early_ms: (preset.speculation.tokens > 0).then_some(preset.speculation.after_ms),
        recalls: preset.recall_tool_calls(),
        resume_ms: settings.conversation.resume_s.saturating_mul(1000),
    }
}

/// Returns a random seed, so that no other process makes the same ids.
pub fn random() -> Result<u64, store::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| store::Error::Disk {
        path: "/dev/urandom".into(),
        cause: format!("the system gave no random bytes: {error}"),
    })?;
    Ok(u64::from_le_bytes(bytes))
}
