//! Sessions in memory, and their way there and out.

use crate::clock::wall_ms;
use crate::command::Command;
use crate::connections::{Connection, ConnectionTrace, Interest};
use crate::encoding::Encoding;
use crate::held::HeldText;
use crate::load::{load, wording};
use crate::outgoing::{Outgoing, OutgoingLimits, Written, outgoing};
use crate::placement::{MANY_USERS, draw, place, placement, running};
use crate::shared::Shared;
use crate::task::refuse;
use crate::{Error, ModelChoice, Presets};
use model::{Gpu, Model};
use parking_lot::Mutex;
use session::machine::{ConnId, Replay};
use session::{ConfigUpdate, Input, SessionConfig};
use settings::Settings;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{ContextStamp, ExperimentCounts, Placement, SessionName, SessionRecord, SessionRef, Store, new_id};
use telemetry::TraceParent;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument;

/// News of facts that wait for a session's task. It misses the oldest of more.
const WAITING_NEWS: usize = 64;

#[derive(Clone)]
pub struct Runtime {
    pub(super) shared: Arc<Shared>,
    live: Arc<LiveSessions>,
}

#[derive(Clone)]
pub struct RuntimeParts {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub presets: Presets,
}

struct LiveSessions {
    sessions: Mutex<HashMap<SessionRef, Entry>>,
    left: Notify,
    next_id: AtomicU64,
}

#[derive(Clone)]
struct Entry {
    id: u64,
    commands: mpsc::Sender<Box<Command>>,
    departures: mpsc::UnboundedSender<ConnId>,
    written: Arc<Notify>,
    connections: Arc<AtomicU64>,
    used_at: Instant,
    seen: Option<ContextStamp>,
}

#[derive(Clone, Copy, Default)]
pub struct NewSession<'a> {
    pub user: &'a str,
    /// Person whose words the session holds. Empty: the home's guest.
    pub person: &'a str,
    pub room: &'a str,
    /// True if the session leaves no facts and no other conversation finds its words.
    pub is_private: bool,
    /// True if the words are the household's where no rule names a person or a room.
    pub is_of_household: bool,
    pub model: &'a str,
    pub update: Option<&'a ConfigUpdate>,
}

pub struct Attach {
    pub replay: Replay,
    pub interest: Interest,
    pub person: Option<String>,
    pub trace_parent: Option<TraceParent>,
}

/// Connection's end of a session. Dropping it leaves the session.
pub struct Connected {
    pub conn: ConnId,
    pub outgoing: Outgoing,
    commands: mpsc::Sender<Box<Command>>,
    _departure: Departure,
}

/// Notice of a dropped connection. The channel needs no bound: there is one for each connection.
struct Departure {
    conn: ConnId,
    departures: mpsc::UnboundedSender<ConnId>,
    connections: Arc<AtomicU64>,
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        let _ = self.departures.send(self.conn);
    }
}

impl Runtime {
    pub(super) fn with(&self, shared: Shared) -> Runtime {
        Runtime { shared: Arc::new(shared), live: self.live.clone() }
    }

    pub fn new(parts: RuntimeParts) -> Runtime {
        let RuntimeParts { settings, store, model, presets } = parts;
        let (wording, gpu, started) = (Arc::new(wording(&settings)), Gpu::find().map(Arc::new), Instant::now());
        let held = HeldText::new(model::text_bytes(&settings), settings.limits.connections);
        let encoding = Arc::new(Encoding::new(settings.remember.encoder_folder(&settings.model.models_dir)));
        let (news, _) = broadcast::channel(WAITING_NEWS);
        let shared = Shared { settings, store, model, presets, gpu, wording, held, encoding, news, started };
        let live = LiveSessions { sessions: Mutex::default(), left: Notify::new(), next_id: AtomicU64::new(1) };
        Runtime { shared: Arc::new(shared), live: Arc::new(live) }
    }

    pub fn presets(&self) -> &Presets {
        &self.shared.presets
    }

    pub fn held(&self) -> &HeldText {
        &self.shared.held
    }

    pub(super) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(super) fn commands(&self, session: &SessionRef) -> Option<mpsc::Sender<Box<Command>>> {
        self.live.sessions.lock().get(session).map(|entry| entry.commands.clone())
    }

    pub fn is_in_memory(&self, session: &SessionRef) -> bool {
        self.live.sessions.lock().contains_key(session)
    }

    pub(super) fn in_memory(&self) -> Vec<(SessionRef, Option<ContextStamp>)> {
        self.live.sessions.lock().iter().map(|(session, entry)| (session.clone(), entry.seen)).collect()
    }

    pub(super) fn see(&self, session: &SessionRef, stamp: ContextStamp) {
        if let Some(entry) = self.live.sessions.lock().get_mut(session) {
            entry.seen = Some(stamp);
        }
    }

    pub fn count(&self) -> usize {
        self.live.sessions.lock().len()
    }

    pub async fn create(&self, new: NewSession<'_>) -> Result<SessionRef, Error> {
        let record = self.new_session(new).await?;
        Ok(self.shared.store.create_session(record).await?)
    }

    pub async fn named(&self, new: NewSession<'_>, name: SessionName) -> Result<SessionRef, Error> {
        if let Some(session) = self.shared.store.session_named(new.user, &name).await? {
            return Ok(session);
        }
        let record = SessionRecord { title: name.name.clone(), ..self.new_session(new).await? };
        Ok(self.shared.store.create_named_session(record, name).await?)
    }

    pub async fn new_session(&self, new: NewSession<'_>) -> Result<SessionRecord, Error> {
        let id = new_id("sess")?;
        let now_ms = wall_ms();
        let choice = self.shared.presets.choose(new.user, new.model)?;
        let Shared { settings, presets, store, .. } = &*self.shared;
        let counts = match running(settings, &choice, now_ms) {
            Some(experiment) => store.experiment_counts(&experiment.name, new.user, MANY_USERS).await?,
            None => ExperimentCounts::default(),
        };
        let placement = place(settings, presets, new.user, counts, &choice, now_ms)?;
        let is_named = !new.person.is_empty() || !new.room.is_empty();
        let is_remembered = !new.is_private && settings.remember.conversations.remembers(is_named, new.is_of_household);
        let (mut config, mut told_facts) = (self.first_config(&choice), None);
        if let Some(update) = new.update {
            config.apply(update);
        }
        if is_remembered {
            let preset = self.shared.presets.of_session(&placement.preset, placement.ctx_size);
            told_facts = Some(self.shared.first_facts(new.user, new.person, &preset).await.ids);
        }
        Ok(SessionRecord {
            id,
            user: new.user.to_owned(),
            person: new.person.to_owned(),
            room: new.room.to_owned(),
            is_remembered,
            is_of_household: is_remembered && !settings.remember.conversations.keeps(is_named),
            told_facts,
            placement,
            title: String::new(),
            config,
            metadata: None,
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
        })
    }

    pub fn first_config(&self, choice: &ModelChoice) -> SessionConfig {
        if choice.instructions.is_empty() {
            return SessionConfig::new(self.shared.settings.conversation.instructions.clone());
        }
        SessionConfig { persona: choice.instructions.clone(), ..SessionConfig::new("") }
    }

    pub async fn attach(&self, session: &SessionRef, attach: Attach) -> Result<(Connected, Written), Error> {
        let limits = &self.shared.settings.limits;
        let limits = OutgoingLimits { events: limits.outgoing_events, bytes: limits.outgoing_bytes };
        loop {
            let entry = self.entry(session).await?;
            let conn = ConnId(self.live.next_id.fetch_add(1, Ordering::Relaxed));
            let (session_end, socket_end) = outgoing(limits, self.shared.held.share(), entry.written.clone());
            let connected = entry.connected(conn, session_end.clone());
            let (answer, attached) = oneshot::channel();
            let (interest, person) = (attach.interest.clone(), attach.person.clone());
            let trace = ConnectionTrace { own: attach.trace_parent, next: None };
            let connection = Connection { outgoing: session_end, interest, person, trace, mark: 0 };
            let command = Command::Attach { conn, connection, replay: attach.replay.clone(), answer };
            if entry.commands.send(Box::new(command)).await.is_ok()
                && let Ok(attached) = attached.await
            {
                attached?;
                return Ok((connected, socket_end));
            }
            // It was just leaving memory.
            self.live.forget(session, entry.id);
        }
    }

    /// Gives a session another preset, or the arm that the experiment draws for it, at the operator's wish. Its
    /// connections close, and clients that come back find the new preset.
    pub async fn move_session(&self, session: &SessionRef, preset: Option<&str>) -> Result<Placement, Error> {
        let Shared { presets, settings, .. } = &*self.shared;
        let now_ms = wall_ms();
        let running = settings.experiment.as_ref().filter(|experiment| experiment.runs_at(now_ms));
        let placement = match (preset, running) {
            (Some(preset), _) => placement(presets.named(preset)?, None),
            (None, Some(experiment)) => {
                let store = &self.shared.store;
                let counts = store.experiment_counts(&experiment.name, session.user(), MANY_USERS).await?;
                draw(experiment, presets, session.user(), counts, now_ms)?
            }
            (None, None) => return Err(Error::NoExperiment),
        };
        self.shared.store.set_placement(session, &placement, now_ms).await?;
        let by = Instant::now() + Duration::from_secs(settings.shutdown.drain_s);
        self.end(session, Command::Drain { by }).await;
        Ok(placement)
    }

    pub async fn deleted(&self, session: &SessionRef) {
        self.end(session, Command::Deleted).await;
    }

    async fn end(&self, session: &SessionRef, command: Command) {
        if let Some(commands) = self.commands(session) {
            let _ = commands.send(Box::new(command)).await;
            commands.closed().await;
        }
    }

    pub async fn drain(&self, by: Instant) {
        let mut told = HashSet::new();
        loop {
            let left = self.live.left.notified();
            let entries: Vec<Entry> = self.live.sessions.lock().values().cloned().collect();
            if entries.is_empty() {
                return;
            }
            for entry in entries.iter().filter(|entry| told.insert(entry.id)) {
                let _ = entry.commands.send(Box::new(Command::Drain { by })).await;
            }
            left.await;
        }
    }

    async fn entry(&self, session: &SessionRef) -> Result<Entry, Error> {
        loop {
            let idlest = {
                let mut sessions = self.live.sessions.lock();
                if let Some(entry) = sessions.get_mut(session) {
                    entry.used_at = Instant::now();
                    return Ok(entry.clone());
                }
                let limits = &self.shared.settings.limits;
                let is_ours = |other: &SessionRef| other.user() == session.user();
                let has_most = sessions.keys().filter(|other| is_ours(other)).count() >= limits.live_sessions_per_user;
                if !has_most && sessions.len() < limits.live_sessions {
                    let entry = self.start(session);
                    sessions.insert(session.clone(), entry.clone());
                    return Ok(entry);
                }
                let refused = match has_most {
                    true => Error::TooManySessionsOfUser { limit: limits.live_sessions_per_user },
                    false => Error::TooManySessions { limit: limits.live_sessions },
                };
                idlest(&sessions, |other| !has_most || is_ours(other)).ok_or(refused)?
            };
            // A session without a connection makes room.
            if !idlest.leaves().await {
                return Err(Error::TooManySessions { limit: self.shared.settings.limits.live_sessions });
            }
            tokio::task::yield_now().await;
        }
    }

    fn start(&self, session: &SessionRef) -> Entry {
        let (shared, live) = (self.shared.clone(), self.live.clone());
        let id = self.live.next_id.fetch_add(1, Ordering::Relaxed);
        let (commands, mut waiting) = mpsc::channel(shared.settings.limits.waiting_events);
        let (departures, mut departed) = mpsc::unbounded_channel();
        let written = Arc::new(Notify::new());
        let entry = Entry {
            id,
            commands,
            departures,
            written: written.clone(),
            connections: Arc::default(),
            used_at: Instant::now(),
            seen: None,
        };
        let span = tracing::info_span!("session", session = %session.id());
        let session = session.clone();
        let task = async move {
            let loaded = loop {
                // In a box, so that a session has no room for it for as long as it lives.
                match Box::pin(load(shared.clone(), &session, written.clone())).await {
                    // A session without a connection makes room.
                    Err(Error::NoRoom) if live.one_leaves(&session).await => {}
                    loaded => break loaded,
                }
            };
            match loaded {
                Ok(task) => {
                    let was_large = task.run(&mut waiting, &mut departed).await;
                    waiting.close();
                    if was_large {
                        tokio::task::spawn_blocking(model::give_memory_back);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the session could not be loaded");
                    refuse(&mut waiting, &error);
                }
            }
            // A client that asks for it from here on starts it anew; one that asked too late hears nothing and asks again.
            live.forget(&session, id);
        };
        tokio::spawn(task.instrument(span));
        entry
    }
}

const LEAVING: Duration = Duration::from_secs(5);

fn idlest(sessions: &HashMap<SessionRef, Entry>, may_leave: impl Fn(&SessionRef) -> bool) -> Option<Entry> {
    let unused = |entry: &Entry| entry.connections.load(Ordering::Relaxed) == 0;
    let idle = sessions.iter().filter(|(session, entry)| may_leave(session) && unused(entry));
    idle.map(|(_, entry)| entry).min_by_key(|entry| entry.used_at).cloned()
}

impl Entry {
    async fn leaves(&self) -> bool {
        let _ = self.commands.send(Box::new(Command::Leave)).await;
        tokio::time::timeout(LEAVING, self.commands.closed()).await.is_ok()
    }

    fn connected(&self, conn: ConnId, outgoing: Outgoing) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let departure = Departure { conn, departures: self.departures.clone(), connections: self.connections.clone() };
        Connected { conn, outgoing, commands: self.commands.clone(), _departure: departure }
    }
}

impl Connected {
    /// Sends an input, and waits while the session has much to do. False: the session has left memory.
    pub async fn say(&self, input_id: Option<String>, input: Input) -> bool {
        self.commands.send(Box::new(Command::Said { conn: self.conn, input_id, input })).await.is_ok()
    }

    /// Gives the next response that this connection asks for its place in the client's trace.
    pub async fn trace_next(&self, trace_parent: TraceParent) -> bool {
        self.commands.send(Box::new(Command::Trace { conn: self.conn, trace_parent })).await.is_ok()
    }

    pub async fn mark(&self, mark: u64, bytes: usize) -> bool {
        self.commands.send(Box::new(Command::Mark { conn: self.conn, mark, bytes })).await.is_ok()
    }
}

impl LiveSessions {
    /// Makes room: a session without a connection leaves memory. False if there is none, or it stays.
    async fn one_leaves(&self, session: &SessionRef) -> bool {
        let idlest = idlest(&self.sessions.lock(), |other| other != session);
        match idlest {
            Some(idlest) => idlest.leaves().await,
            None => false,
        }
    }

    fn forget(&self, session: &SessionRef, id: u64) {
        let mut sessions = self.sessions.lock();
        if sessions.get(session).is_some_and(|entry| entry.id == id) {
            sessions.remove(session);
        }
        drop(sessions);
        self.left.notify_waiters();
    }
}
