//! The engine in this process: one thread owns it, takes commands between two steps, and starts it again after a
//! failure.

mod busy;
mod early;
mod places;
mod replies;
mod sleep;
#[cfg(test)]
mod tests;
mod thread;

use crate::answer::{Answer, Writer, channel_for};
use crate::device::Finder;
use crate::engine_options::{drafts, native_ctx, open_options, sentence_limits};
use crate::error::Error;
use crate::handle::Answerer;
use crate::measure::Measured;
use crate::opened::OpenedPreset;
use crate::own_heads::OwnHeads;
use crate::plan::Plan;
use crate::preparation::{PreparationMemory, give_memory_back};
use crate::prepare::{Prepared, Preparer, too_long};
use crate::request::{ModelRequest, ReplyKey, thinking_of};
use crate::resume::ResumedReply;
use crate::status::ModelStatus;
use background::heavy;
use engine::open::{ModelOptions, OpenedModel};
use engine::{Cpu, DiskLimits, DraftLimits, Engine, EngineLimits, Executor, OwnerId};
use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use places::{Places, Slot};
use session::sentences::SentenceLimits;
use session::{Failure, FailureCode, Finish, GenerationPurpose, PastStays, Priority, Prompt, TurnReport, Usage};
use settings::{EngineSettings, MemorySettings, Preset, Settings, SpeculationSettings};
use sleep::{OnlyWake, Preparing, Wakes};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SendError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

pub(crate) struct Local {
    commands: SyncSender<Command>,
    sentences: SentenceLimits,
    shared: Arc<Shared>,
    preparation: PreparationMemory,
    places: Places,
}

struct Shared {
    status: Mutex<ModelStatus>,
    preparer: watch::Sender<Preparing>,
    wakes: Wakes,
    /// Cancelled when this process cannot open its GPU any more.
    device_lost: CancellationToken,
}

enum Command {
    Submit(Box<Submit>),
    Resume(Box<Resume>),
    Forget {
        owner: OwnerId,
        stays: PastStays,
        done: oneshot::Sender<()>,
    },
    Wake(OnlyWake),
    Stop {
        done: oneshot::Sender<()>,
    },
    #[cfg(test)]
    Panic,
}

struct Submit {
    prepared: Prepared,
    purpose: GenerationPurpose,
    priority: Priority,
    speculation: SpeculationSettings,
    writers: Vec<Writer>,
    asked: Instant,
    keep_as: Option<ReplyKey>,
    place: Slot,
}

struct Resume {
    resumed: ResumedReply,
    writer: Writer,
    asked: Instant,
}

struct EngineConfig {
    file: PathBuf,
    options: ModelOptions,
    finder: Finder,
    limits: EngineLimits,
    native_ctx: u32,
    is_on_device: bool,
    engine: EngineSettings,
    memory: MemorySettings,
    drafts: DraftLimits,
    own_heads: Arc<OwnHeads>,
    /// Time for which a stopped reply is kept. Zero keeps none.
    resume: Duration,
}

impl Local {
    pub fn start(
        settings: &Settings,
        finder: &Finder,
        opened: OpenedPreset,
        plan: &Plan,
        preparation: &PreparationMemory,
    ) -> Result<Local, Error> {
        let OpenedPreset { model, file, preset } = opened;
        let precision = model.network.precision;
        let config = EngineConfig {
            options: ModelOptions { yarn: preset.rope.yarn, ..open_options(settings, precision) },
            finder: match &model.executor {
                Some((_, memory)) => finder.again(memory),
                None => Finder::host(settings),
            },
            limits: plan.limits(settings, precision),
            native_ctx: native_ctx(&model.network, &file)?,
            is_on_device: model.executor.is_some(),
            engine: settings.engine.clone(),
            memory: settings.memory.clone(),
            drafts: drafts(settings),
            own_heads: Arc::new(OwnHeads::of(settings)),
            resume: Duration::from_secs(settings.conversation.resume_s),
            file,
        };
        let name = if preset.model.is_empty() { model.network.model.name.clone() } else { preset.model };
        let (engine, preparer) = config.build(model);
        let status = ModelStatus { ready: true, model: name, ..ModelStatus::default() };
        let shared = Arc::new(Shared {
            status: Mutex::new(status),
            preparer: watch::Sender::new(Preparing::Awake(Arc::new(preparer))),
            wakes: Wakes::default(),
            device_lost: CancellationToken::new(),
        });
        // A place for each request that may wait, whatever its priority.
        let most_waiting = 3 * settings.engine.max_waiting;
        let (commands, inbox) = sync_channel(most_waiting);
        thread::spawn(engine, config, shared.clone(), inbox).map_err(Error::Thread)?;
        let (sentences, places) = (sentence_limits(settings), Places::new(settings.engine.max_waiting));
        Ok(Local { commands, sentences, shared, preparation: preparation.clone(), places })
    }

    fn ask_for(&self, mut request: ModelRequest, writers: Vec<Writer>) {
        let asked = Instant::now();
        if self.shared.preparer().is_some_and(|preparer| preparer.cannot_fit(&request.prompt, &request.preset)) {
            return refuse_long(&writers, &request);
        }
        let Some(place) = self.places.take(request.user, request.priority) else {
            return fail_all(&writers, &busy());
        };
        let (commands, shared, preparation) = (self.commands.clone(), self.shared.clone(), self.preparation.clone());
        tokio::spawn(async move {
            let preparer = tokio::select! {
                preparer = shared.awake(&commands) => preparer,
                () = place.lost() => Err(busy()),
            };
            let preparer = match preparer {
                Ok(preparer) => preparer,
                Err(failure) => return fail_all(&writers, &failure),
            };
            if preparer.cannot_fit(&request.prompt, &request.preset) {
                return refuse_long(&writers, &request);
            }
            let share = match request.preparation.take() {
                Some(share) => Ok(share),
                None => tokio::select! {
                    share = preparation.share_for(request.prompt_bytes()) => share.map(Arc::new),
                    () = place.lost() => Err(busy()),
                },
            };
            let share = match share {
                Ok(share) => share,
                Err(failure) => return fail_all(&writers, &failure),
            };
            let bytes = request.prompt_bytes();
            let work = move || {
                prepare_and_submit(&preparer, &commands, request, writers, asked, place);
                drop(share);
            };
            if let Err(error) = beside(bytes, work).await {
                tracing::error!(%error, "a prompt could not be prepared");
            }
        });
    }

    /// Sends a command, waiting for room in the queue. True if the engine's thread has done it.
    fn tell(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) -> impl Future<Output = bool> {
        let (done, is_done) = oneshot::channel();
        let (commands, command) = (self.commands.clone(), command(done));
        async move {
            let sent = spawn_blocking(move || commands.send(command).is_ok()).await;
            sent.unwrap_or(false) && is_done.await.is_ok()
        }
    }
}

impl Answerer for Local {
    fn ask(&self, request: ModelRequest) -> Answer {
        let (writer, answer) = channel_for(&request, self.sentences);
        self.ask_for(request, vec![writer]);
        answer
    }

    fn resume(&self, resumed: ResumedReply) -> Answer {
        let asked = Instant::now();
        let (going_on, answer) = resumed.begin();
        let Some((writer, resumed)) = going_on else { return answer };
        let resume = Box::new(Resume { resumed, writer, asked });
        let (command, failure) = match self.commands.try_send(Command::Resume(resume)) {
            Ok(()) => return answer,
            Err(TrySendError::Full(command)) => (command, busy()),
            Err(TrySendError::Disconnected(command)) => (command, stopped()),
        };
        command.refuse(failure);
        answer
    }

    fn ask_choices(&self, request: ModelRequest, choices: usize) -> Vec<Answer> {
        let choice = |_| channel_for(&request, self.sentences);
        let (writers, answers): (Vec<Writer>, Vec<Answer>) = (0..choices).map(choice).unzip();
        self.ask_for(request, writers);
        answers
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        Box::pin(async move {
            let preparer = self.shared.awake(&self.commands).await?;
            let bytes = prompt.text_bytes();
            let share = self.preparation.share_for(bytes).await?;
            let (prompt, thinking) = (prompt.clone(), thinking_of(&prompt.options, preset));
            let measured = beside(bytes, move || preparer.measure(&prompt, thinking)).await;
            drop(share);
            measured.unwrap_or_else(|_| Err(broke()))
        })
    }

    fn forget(&self, past_owner: u64, stays: PastStays) -> BoxFuture<'_, Result<(), Failure>> {
        let told = self.tell(move |done| Command::Forget { owner: OwnerId(past_owner), stays, done });
        told.map(|is_done| if is_done { Ok(()) } else { Err(stopped()) }).boxed()
    }

    fn too_long(&self, prompt: &Prompt, preset: &Preset) -> Option<Failure> {
        let preparer = self.shared.preparer()?;
        preparer.cannot_fit(prompt, preset).then(|| far_too_long(preset))
    }

    fn status(&self) -> ModelStatus {
        self.shared.status.lock().clone()
    }

    fn device_lost(&self) -> BoxFuture<'_, ()> {
        self.shared.device_lost.cancelled().boxed()
    }

    fn wake(&self) {
        self.shared.wake(&self.commands);
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.tell(|done| Command::Stop { done }).map(drop).boxed()
    }

    #[cfg(test)]
    fn panic(&self) {
        self.commands.send(Command::Panic).unwrap();
    }
}

impl EngineConfig {
    fn open(&self) -> Result<(Engine, Preparer), Error> {
        let options = ModelOptions { gpu: self.finder.find()?, ..self.options.clone() };
        Ok(engine::open::open(&self.file, &options, &mut |_, _| ()).map(|opened| self.build(opened))?)
    }

    fn build(&self, opened: OpenedModel) -> (Engine, Preparer) {
        if let Some(keeping) = opened.keeping {
            // The start does not wait for the write; the log only gets a failure.
            let tell = move || {
                if let Err(what) = keeping.wait() {
                    tracing::warn!("{what}");
                }
            };
            let _ = std::thread::Builder::new().name("packed-waiter".to_owned()).spawn(tell);
        }
        let preparer = Preparer {
            tokenizer: opened.tokenizer.clone(),
            template: opened.template,
            precision: opened.network.precision,
            native_ctx: self.native_ctx,
            longest_token_bytes: opened.tokenizer.longest_token_bytes(),
            shares_users: self.memory.shared_between_users,
            own_heads: self.own_heads.clone(),
            stop_tokens: opened.network.model.stop_tokens.clone(),
            grammars: Default::default(),
        };
        let (executor, limits) = match opened.executor {
            None => (Executor::on_cpu(Cpu::new(self.engine.threads).pinned(self.engine.pin_threads)), self.limits),
            // The free memory may be less than before.
            Some((executor, memory)) => {
                let memory_bytes = self.limits.memory_bytes.min(memory.left_bytes);
                (executor, EngineLimits { memory_bytes, ..self.limits })
            }
        };
        let mut engine = Engine::new(executor, opened.network, opened.tokenizer, limits);
        engine.use_drafts(self.drafts);
        if self.engine.step_ms > 0 {
            engine.keep_pace(Duration::from_millis(self.engine.step_ms));
        }
        if let Some(folder) = self.memory.disk_path.clone() {
            if let Err(error) = engine::forget_unowned_files(&folder) {
                let folder = folder.display();
                tracing::warn!(%error, "words that an earlier release computed without an owner are still in {folder}");
            }
            let (max_bytes, min_tokens) = (self.memory.disk_bytes, self.memory.disk_min_tokens);
            engine.use_disk(DiskLimits { folder, max_bytes, min_tokens, heads: self.memory.heads });
        }
        (engine, preparer)
    }
}

impl Shared {
    /// Prepares grammars on a thread of its own, because that may take a second.
    fn warm_grammars(&self) {
        let Some(preparer) = self.preparer() else { return };
        let preparing = self.preparer.subscribe();
        let warm = move || {
            if let Err(error) = preparer.grammars() {
                tracing::warn!(%error, "replies of this model cannot be held to a form");
            }
            drop(preparer);
            // The model fell asleep meanwhile.
            if matches!(*preparing.borrow(), Preparing::Asleep) {
                give_memory_back();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("grammars".into()).spawn(warm) {
            tracing::warn!(%error, "no thread to prepare grammars; the first request with one waits for them");
        }
    }
}

/// Runs work on a prompt beside the workers: small work at once, large work in turn and behind all others.
async fn beside<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    match bytes < heavy::SMALL_BYTES {
        true => spawn_blocking(work).await,
        false => Ok(heavy::run(bytes, work).await),
    }
}

fn prepare_and_submit(
    preparer: &Preparer,
    commands: &SyncSender<Command>,
    request: ModelRequest,
    writers: Vec<Writer>,
    asked: Instant,
    place: Slot,
) {
    if place.is_lost() {
        return fail_all(&writers, &busy());
    }
    if writers.iter().all(Writer::is_cancelled) {
        return writers.iter().for_each(Writer::cancelled_before_begin);
    }
    let prepared = match preparer.prepare(&request) {
        Ok(prepared) => prepared,
        // A reply that cannot begin early fails when it is requested.
        Err(_) if request.purpose == GenerationPurpose::EarlyReply => return warm_all(&writers),
        Err(failure) => return fail_all(&writers, &failure),
    };
    let ModelRequest { purpose, priority, keep_as, .. } = request;
    let speculation = request.preset.speculation;
    let submit = Box::new(Submit { prepared, purpose, priority, speculation, writers, asked, keep_as, place });
    // It has a place. The thread takes other commands between two steps.
    if let Err(SendError(command)) = commands.send(Command::Submit(submit)) {
        command.refuse(stopped());
    }
}

impl Command {
    fn refuse(self, failure: Failure) {
        match self {
            Command::Submit(submit) => fail_all(&submit.writers, &failure),
            Command::Resume(resume) => resume.writer.fail(failure),
            // A waiting caller sees that the command was dropped.
            _ => {}
        }
    }
}

fn refuse_long(writers: &[Writer], request: &ModelRequest) {
    match request.purpose {
        GenerationPurpose::Reply => fail_all(writers, &far_too_long(&request.preset)),
        _ => warm_all(writers),
    }
}

fn far_too_long(preset: &Preset) -> Failure {
    too_long("far more", preset)
}

fn warm_all(writers: &[Writer]) {
    writers.iter().for_each(|writer| writer.done(Finish::Warm, Usage::default(), TurnReport::default()));
}

fn fail_all(writers: &[Writer], failure: &Failure) {
    writers.iter().for_each(|writer| writer.fail(failure.clone()));
}

fn busy() -> Failure {
    Failure::new(FailureCode::Busy, "too many requests wait already; try again in a moment")
}

fn stopped() -> Failure {
    Failure::new(FailureCode::Unavailable, "the service stops; connect again in a moment")
}

fn broke() -> Failure {
    Failure::new(FailureCode::EngineFailed, "the prompt could not be prepared because of a fault in the service")
}
