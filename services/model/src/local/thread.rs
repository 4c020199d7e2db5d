//! The loop of the engine's thread.

use super::busy::Busy;
use super::early::{BegunReply, WantedReply};
use super::replies::{Replies, failure_of};
use super::sleep::cannot_open;
use super::{Command, EngineConfig, Resume, Shared, Submit, busy, fail_all, stopped, warm_all};
use crate::preparation::give_memory_back;
use crate::prepare::{Prepared, fresh_seed};
use crate::request::seed_of_choice;
use crate::resume::not_kept;
use crate::status::ModelLoad;
use engine::memory::MemoryKind;
use engine::{Engine, EngineRequest, OwnerId, RequestId};
use session::{GenerationPurpose, PastStays, Priority};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use text::ReplyParser;
use tokio::sync::oneshot;

/// Pause between two sequences that go to disk in a silence.
const NEXT_SAVE: Duration = Duration::from_millis(100);
/// Time until threads that prepared something when the model fell asleep have ended: their memory goes back then.
const LATE_MEMORY: Duration = Duration::from_secs(5);
/// Pause of the engine while first words reach a user: a step takes all processors, which would delay them.
const TELLING: Duration = Duration::from_millis(3);
/// Time without work until a debug build checks the engine's invariants.
const IDLE_CHECK: Duration = Duration::from_millis(20);
/// Idle time before grammars compile. The first turn usually follows the wake-up at once.
const GRAMMARS_AFTER: Duration = Duration::from_millis(500);

pub(super) fn spawn(
    engine: Engine,
    config: EngineConfig,
    shared: Arc<Shared>,
    inbox: Receiver<Command>,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("engine".into());
    let serve = move || {
        let done = supervise(engine, &config, &shared, &inbox);
        // Later commands are refused.
        drop(inbox);
        done.map(|done| done.send(()));
    };
    thread.spawn(serve).map(|_| ())
}

enum Ended {
    Stopped(Option<oneshot::Sender<()>>),
    Lost(String),
    Asleep,
}

/// Runs the loop until the service stops. `Some`: the caller waits for that.
fn supervise(
    mut engine: Engine,
    config: &EngineConfig,
    shared: &Shared,
    inbox: &Receiver<Command>,
) -> Option<oneshot::Sender<()>> {
    let mut first = None;
    loop {
        let serving = AssertUnwindSafe(|| Serving::new(engine, config, shared).serve(inbox, first.take()));
        let trouble = match catch_unwind(serving) {
            Ok(Ended::Stopped(done)) => {
                note_trouble(shared, "the service stops");
                // Commands behind the stop.
                while let Ok(command) = inbox.try_recv() {
                    match command {
                        Command::Stop { done } => drop(done.send(())),
                        command => command.refuse(stopped()),
                    }
                }
                return done;
            }
            Ok(Ended::Asleep) => {
                shared.fall_asleep();
                tracing::info!("the model sleeps; the next sound wakes it");
                let mut waked = inbox.recv_timeout(LATE_MEMORY);
                if let Err(RecvTimeoutError::Timeout) = waked {
                    give_memory_back();
                    waked = inbox.recv().map_err(RecvTimeoutError::from);
                }
                let began = Instant::now();
                match waked {
                    Err(_) => return None,
                    Ok(Command::Stop { done }) => return Some(done),
                    Ok(command) => first = Some(command),
                }
                engine = match config.open() {
                    Ok((engine, preparer)) => {
                        shared.set_preparer(preparer);
                        tracing::info!(ms = began.elapsed().as_millis() as u64, "the model is awake");
                        engine
                    }
                    Err(error) => {
                        tracing::error!(%error, "the model cannot be waked");
                        if let Some(command) = first.take() {
                            command.refuse(cannot_open());
                        }
                        shared.cannot_wake();
                        match reopen(config, shared, inbox) {
                            Ok(engine) => engine,
                            Err(done) => return done,
                        }
                    }
                };
                continue;
            }
            Ok(Ended::Lost(why)) => {
                tracing::error!(why, "what computes was lost; the model is opened again");
                "the GPU was lost and is opened again"
            }
            // The open replies were dropped with the engine, and the writer of each reports so to its reader.
            Err(panic) => {
                let why = panic_message(&*panic);
                tracing::error!(why, "the engine failed; the model is opened again");
                "the engine failed and is started again"
            }
        };
        note_trouble(shared, trouble);
        engine = match reopen(config, shared, inbox) {
            Ok(engine) => engine,
            Err(done) => return done,
        };
    }
}

/// Opens the model until that succeeds; after `reopen_tries` failures it reports that only a new process can help.
/// Requests fail at once in the meantime. `Err`: the service stops.
fn reopen(
    config: &EngineConfig,
    shared: &Shared,
    inbox: &Receiver<Command>,
) -> Result<Engine, Option<oneshot::Sender<()>>> {
    let mut tries = 0u32;
    loop {
        tries = tries.saturating_add(1);
        match config.open() {
            Ok((engine, preparer)) => {
                shared.set_preparer(preparer);
                let mut status = shared.status.lock();
                (status.ready, status.trouble) = (true, None);
                status.restarts += 1;
                return Ok(engine);
            }
            Err(error) => {
                tracing::error!(%error, "the model cannot be opened again; the next try follows");
                note_trouble(shared, &format!("the model cannot be opened: {error}"));
                // A file that is missing may come back, and a new process would not help.
                if tries == config.engine.reopen_tries && config.is_on_device {
                    tracing::error!(tries, "the model cannot be opened in this process any more");
                    shared.device_lost.cancel();
                }
            }
        }
        let until = Instant::now() + Duration::from_secs(config.engine.reopen_s);
        loop {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Command::Stop { done }) => return Err(Some(done)),
                Ok(command) => {
                    command.refuse(cannot_open());
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(None),
            }
        }
    }
}

struct Serving<'a> {
    engine: Engine,
    replies: Replies,
    config: &'a EngineConfig,
    shared: &'a Shared,
    has_grammars: bool,
    /// True once a thread prepares grammars. It takes a processor for a second, which no first turn after a start
    /// should share.
    warms_grammars: bool,
    unsaved: bool,
    unprepared: bool,
    is_saving: bool,
    /// Last time that a sequence went to the disk, or none had to.
    saved_at: Instant,
    to_read: Vec<fn(&mut Engine)>,
    unchecked: bool,
    active_at: Instant,
    tells_until: Instant,
    busy: Busy,
}

impl<'a> Serving<'a> {
    fn new(engine: Engine, config: &'a EngineConfig, shared: &'a Shared) -> Serving<'a> {
        Serving {
            engine,
            replies: Replies::default(),
            config,
            shared,
            has_grammars: false,
            warms_grammars: false,
            unsaved: false,
            unprepared: true,
            is_saving: false,
            saved_at: Instant::now(),
            to_read: Vec::new(),
            unchecked: false,
            active_at: Instant::now(),
            tells_until: Instant::now(),
            busy: Busy::new(Instant::now()),
        }
    }

    fn serve(mut self, inbox: &Receiver<Command>, first: Option<Command>) -> Ended {
        let mut events = Vec::new();
        self.to_read.push(Engine::read_heads);
        if first.is_none() {
            // The newest conversation is the most likely to continue, and its client has yet to connect.
            self.to_read.push(Engine::read_newest);
        }
        if let Some(ended) = first.and_then(|command| self.take(command)) {
            return ended;
        }
        loop {
            self.tell_status();
            if let Some(ended) = self.listen(inbox) {
                self.stop();
                return ended;
            }
            self.active_at = Instant::now();
            self.tell_status();
            self.stop_cancelled();
            let began = Instant::now();
            let users_wait = self.replies.count(Priority::Talk) > 0;
            for id in self.replies.thinking_to_end(began) {
                self.engine.stop_thinking(id);
            }
            let more = self.engine.step(&mut events);
            let ended = Instant::now();
            self.engine.took(ended - began);
            if users_wait {
                self.busy.waited(began, ended);
            }
            let nothing = events.is_empty();
            for event in events.drain(..) {
                self.replies.event(event, &self.engine, began, ended);
            }
            if let Some(why) = self.engine.failure() {
                return Ended::Lost(why);
            }
            for id in self.replies.marks() {
                self.engine.mark(id);
            }
            for id in self.replies.early_enough() {
                self.hold(id);
            }
            self.forget_early_beyond();
            if !more && nothing && !self.replies.is_empty() {
                tracing::error!("the engine has nothing to do, but replies are open; they are given up");
                self.replies.give_up();
            }
            (self.unsaved, self.unprepared, self.is_saving) = (true, true, false);
            self.unchecked = cfg!(debug_assertions);
            // A summary is made while its conversation is silent.
            let is_silence = !self.replies.is_empty() && self.replies.count(Priority::Talk) == 0;
            let memory = &self.config.memory;
            let pause_s = if is_silence { memory.disk_idle_s.min(memory.disk_busy_s) } else { memory.disk_busy_s };
            if self.saves() && self.saved_at.elapsed() >= Duration::from_secs(pause_s) {
                self.save_one();
            }
        }
    }

    /// Stops the replies that their readers cancelled; one that may resume is kept, and replaces the kept ones of its
    /// owner.
    fn stop_cancelled(&mut self) {
        for id in self.replies.cancelled() {
            if !self.hold(id) {
                self.engine.cancel(id);
            }
        }
        self.forget_early_beyond();
    }

    fn hold(&mut self, id: RequestId) -> bool {
        let Some(keep) = self.replies.keeps(id, self.config.resume) else { return false };
        let Some(report) = self.engine.hold(id) else { return false };
        if let Some(owner) = self.replies.replaced_by(id) {
            self.release(owner);
        }
        self.replies.hold(id, &report, &self.engine, keep);
        true
    }

    /// Releases the kept replies of this owner: their sequences become ordinary cached ones.
    fn release(&mut self, owner: OwnerId) {
        let ids = self.replies.release(|kept, _| kept == Some(owner));
        self.give_to_past(ids);
    }

    fn release_what_is_old(&mut self) {
        let now = Instant::now();
        let ids = self.replies.release(|_, until| *until <= now);
        self.give_to_past(ids);
    }

    fn forget_early_beyond(&mut self) {
        let ids = self.replies.release_beyond(self.config.engine.early_replies);
        self.give_to_past(ids);
    }

    fn give_to_past(&mut self, ids: Vec<RequestId>) {
        for id in ids {
            self.engine.release(id);
            self.unsaved = true;
        }
    }

    fn saves(&self) -> bool {
        self.config.memory.disk_path.is_some()
    }

    /// Saves one sequence at a time: a user may speak any moment.
    fn save_one(&mut self) {
        self.unsaved = self.engine.save_one() || self.engine.is_saving();
        self.saved_at = Instant::now();
        self.tell_notes();
    }

    fn listen(&mut self, inbox: &Receiver<Command>) -> Option<Ended> {
        loop {
            if self.engine.failure().is_some() {
                // The next step fails every open reply.
                return None;
            }
            self.release_what_is_old();
            let is_busy = !self.replies.is_empty();
            let idle = Duration::from_secs(self.config.memory.disk_idle_s);
            let wait = match () {
                () if is_busy => Some(self.telling()),
                () if !self.to_read.is_empty() || self.unprepared => Some(Duration::ZERO),
                () if self.unchecked => Some(IDLE_CHECK),
                () if self.unsaved && self.saves() && self.is_saving => Some(NEXT_SAVE.min(idle)),
                () if self.unsaved && self.saves() => Some(idle),
                () if !self.warms_grammars => Some(GRAMMARS_AFTER),
                () => self.awake_for(),
            };
            let kept = self.replies.kept_until().map(|until| until.saturating_duration_since(Instant::now()));
            let heard = match wait.into_iter().chain(kept).min() {
                Some(wait) => inbox.recv_timeout(wait),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            let command = match heard {
                Ok(command) => command,
                Err(RecvTimeoutError::Timeout) if is_busy => return None,
                Err(RecvTimeoutError::Timeout) if kept.is_some_and(|kept| wait.is_none_or(|wait| kept < wait)) => {
                    continue;
                }
                Err(RecvTimeoutError::Timeout) if self.awake_for() == Some(Duration::ZERO) => {
                    return Some(Ended::Asleep);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.use_the_silence();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Some(Ended::Stopped(None)),
            };
            if let Some(ended) = self.take(command) {
                return Some(ended);
            }
        }
    }

    /// Returns the time that first words still need. There is no pause if other users wait, or if a GPU leaves the
    /// processors free.
    fn telling(&mut self) -> Duration {
        let now = Instant::now();
        if self.replies.begin_to_speak() {
            self.tells_until = now + TELLING;
        }
        let waits = !self.config.is_on_device && self.replies.count(Priority::Talk) == 1;
        if waits { self.tells_until.saturating_duration_since(now) } else { Duration::ZERO }
    }

    fn take(&mut self, command: Command) -> Option<Ended> {
        self.active_at = Instant::now();
        match command {
            Command::Submit(submit) => self.submit(*submit),
            Command::Resume(resume) => self.resume(*resume),
            Command::Forget { owner, stays, done } => {
                match stays {
                    PastStays::Nothing => {
                        self.release(owner);
                        self.engine.forget(owner);
                    }
                    PastStays::Replies => self.engine.forget_cached(owner),
                    PastStays::Memory => self.engine.forget_saved(owner),
                }
                self.tell_notes();
                self.engine.when_forgotten(move || _ = done.send(()));
            }
            Command::Wake(only) => drop(only),
            Command::Stop { done } => return Some(Ended::Stopped(Some(done))),
            #[cfg(test)]
            Command::Panic => panic!("as a test wanted"),
        }
        None
    }

    fn awake_for(&self) -> Option<Duration> {
        let idle_s = Some(self.config.memory.idle_s).filter(|idle_s| *idle_s > 0)?;
        let idle = Duration::from_secs(idle_s).saturating_sub(self.active_at.elapsed());
        let kept = self.replies.kept_until().map(|until| until.saturating_duration_since(Instant::now()));
        Some(kept.map_or(idle, |kept| kept.max(idle)))
    }

    fn use_the_silence(&mut self) {
        if let Some(read) = self.to_read.pop() {
            read(&mut self.engine);
            self.tell_notes();
        } else if self.unprepared {
            self.unprepared = self.engine.prepare_one();
        } else if std::mem::take(&mut self.unchecked) {
            self.check();
        } else if self.unsaved && self.saves() {
            self.save_one();
            self.is_saving = true;
            self.tell_status();
        } else if !std::mem::replace(&mut self.warms_grammars, true) {
            self.shared.warm_grammars();
        }
    }

    fn submit(&mut self, submit: Submit) {
        // Its client may have closed the same request a moment ago.
        self.stop_cancelled();
        let wanted = submit.wanted();
        let Some(submit) = self.go_on(submit, wanted.as_ref()) else { return };
        let Submit { prepared, purpose, priority, speculation, writers, asked, keep_as, place } = submit;
        if place.is_lost() {
            return fail_all(&writers, &busy());
        }
        drop(place);
        let is_early = purpose == GenerationPurpose::EarlyReply;
        let is_too_busy = || self.busy.share(Instant::now()) > self.config.engine.early_busy;
        if is_early && (wanted.is_none() || is_too_busy()) {
            return warm_all(&writers);
        }
        let Prepared { request, tools, thinks, first_word_ms, is_raw } = prepared;
        if request.grammar.is_some() && !self.has_grammars {
            if let Some(preparer) = self.shared.preparer()
                && let Ok(grammars) = preparer.grammars()
            {
                self.engine.set_grammars(grammars.clone());
            }
            self.has_grammars = true;
        }
        let (input_tokens, owner) = (request.tokens.len() as u64, request.owner);
        if is_early || keep_as.is_some() {
            self.release_early(owner);
        }
        if let Some(owner) = owner.filter(|_| keep_as.is_some()) {
            // Another turn: the reply that was stopped before it will not resume.
            self.release(owner);
        }
        let mut wanted = wanted;
        let mut choice_of = None;
        for (choice, writer) in writers.into_iter().enumerate() {
            if writer.is_cancelled() {
                writer.cancelled_before_begin();
                continue;
            }
            let mut request = EngineRequest { choice_of, ..request.clone() };
            request.sampling.seed = seed_of_choice(request.sampling.seed, choice);
            if choice > 0 {
                request.seed = fresh_seed();
            }
            match self.engine.submit(request) {
                Ok(id) => {
                    choice_of.get_or_insert(id);
                    let parser = (!is_raw).then(|| ReplyParser::new(thinks, &tools));
                    self.replies.open(id, owner, priority, writer, asked, input_tokens, first_word_ms, parser);
                    let keep = Duration::from_secs(speculation.keep_s);
                    let begun = wanted.take().map(|wanted| BegunReply::new(wanted, speculation.tokens, keep));
                    self.replies.keep_as(id, keep_as, begun, is_early);
                }
                // Without room for it now, its request comes later.
                Err(_) if is_early => warm_all(&[writer]),
                Err(error) => writer.fail(failure_of(&error)),
            }
        }
    }

    /// Continues an early reply with its request. `Some` returns the request if there is none.
    fn go_on(&mut self, mut submit: Submit, wanted: Option<&WantedReply>) -> Option<Submit> {
        let wanted = wanted.filter(|_| submit.purpose == GenerationPurpose::Reply);
        let Some(begun) = wanted.and_then(|wanted| self.replies.take_begun(wanted)) else { return Some(submit) };
        if !begun.has_ended() && !self.engine.ask_for(begun.id) {
            return Some(submit); // it was lost
        }
        let writer = submit.writers.pop()?;
        let owner = submit.prepared.request.owner;
        self.release_early(owner);
        if let Some(owner) = owner {
            self.release(owner);
        }
        let since = (submit.asked, submit.prepared.first_word_ms);
        self.replies.go_on(begun, writer, since, submit.keep_as, &self.engine);
        None
    }

    fn release_early(&mut self, owner: Option<OwnerId>) {
        let Some(owner) = owner else { return };
        for id in self.replies.release_early(owner) {
            self.engine.hold(id);
            self.engine.release(id);
        }
    }

    fn resume(&mut self, resume: Resume) {
        // It may have been cancelled a moment ago.
        self.stop_cancelled();
        let Resume { resumed, writer, asked } = resume;
        let kept = self.replies.take_kept(resumed.key);
        match kept.filter(|(id, _)| self.engine.resume(*id)) {
            Some(kept) => self.replies.resume(kept, &resumed, writer, asked),
            None => writer.fail(not_kept()),
        }
    }

    fn stop(mut self) {
        self.replies.fail_all(stopped());
        self.engine.save_all();
        self.tell_notes();
    }

    /// Checks the invariants. A violation is a bug: the panic starts the engine again and gives the reason.
    fn check(&mut self) {
        if let Err(why) = self.engine.check_invariants() {
            panic!("what the engine remembers does not agree: {why}");
        }
        self.shared.status.lock().checks += 1;
    }

    fn tell_notes(&mut self) {
        for note in self.engine.take_notes() {
            tracing::warn!("{note}");
        }
    }

    fn tell_status(&self) {
        let mut status = self.shared.status.lock();
        status.load = ModelLoad::of(|priority| self.replies.count(priority));
        status.memory_bytes.clear();
        let kinds = MemoryKind::ALL.iter().map(|kind| (kind.name(), self.engine.memory_bytes(*kind) as u64));
        status.memory_bytes.extend(kinds);
        (status.in_memory, status.on_disk) = (self.engine.kept_in_memory(), self.engine.kept_on_disk());
    }
}

impl Submit {
    fn wanted(&self) -> Option<WantedReply> {
        let may = match self.purpose {
            GenerationPurpose::Reply => self.priority == Priority::Talk && self.writers.len() == 1,
            GenerationPurpose::EarlyReply => true,
            GenerationPurpose::WarmPartial | GenerationPurpose::WarmHistory => false,
        };
        let Prepared { request, tools, thinks, .. } = &self.prepared;
        (may && !self.prepared.is_raw && self.speculation.tokens > 0).then(|| WantedReply::new(request, *thinks, tools))
    }
}

fn note_trouble(shared: &Shared, trouble: &str) {
    let mut status = shared.status.lock();
    (status.ready, status.trouble) = (false, Some(trouble.to_owned()));
    status.load = Default::default();
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("an unknown panic")
}
