//! Replies to clients that read along over HTTP, whatever their protocol. A request holds its whole conversation, or
//! adds what is new to a durable session.

mod carrying;
mod durable;
mod going_on;
mod keeping;
mod laying_out;
mod listening;
mod log;
mod past_owners;
mod raw;
mod retries;
mod source;
mod standing;

pub use durable::{MARK, bodies};
pub use going_on::{GoesOnFrom, StoredTurn};
pub use keeping::ConversationKeeping;
pub(crate) use listening::failure_of;
pub use past_owners::PastOwners;
pub use raw::RawRequest;
use retries::SharedReply;
pub use retries::{RecentTurns, ReplyProgress, RequestAttempt};
pub use standing::StandingPrompts;

use crate::identity::{Persons, Scope};
use crate::{BegunBySecrets, Error};
use access::Caller;
use futures_util::{StreamExt, stream};
use keeping::KeptTurn;
use laying_out::InsertedNotes;
use model::{Answer, Model, ModelRequest, PreparationShare};
use prompt::{ClientLog, Wording, next_prompt, show_speakers};
use runtime::{ModelChoice, Runtime, RuntimeParts, heavy};
use serde_json::{Map, Value};
use session::machine::OneShot;
use session::{
    Delta, Event, Failure, Finish, GenerationOptions, GenerationPurpose, ItemBody, MaxTokens, Message, NewTurn,
    Priority, Prompt, Response, ResponseStatus, ToolChoice,
};
use settings::{Preset, Questions, Settings};
use source::Source;
use standing::NewHead;
use std::sync::Arc;
use std::time::Duration;
use store::{SessionRef, Store};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub struct Completions {
    pub settings: Arc<Settings>,
    pub model: Model,
    pub store: Store,
    pub runtime: Runtime,
    pub begun: Arc<BegunBySecrets>,
    pub recent: Arc<RecentTurns>,
    pub persons: Arc<Persons>,
    pub keeping: ConversationKeeping,
    pub owners: Arc<PastOwners>,
    pub standing: Arc<StandingPrompts>,
    pub wording: Arc<Wording>,
    /// Lock of the task that drops what was computed of deleted words, so that no two do the same.
    pub dropping: Arc<tokio::sync::Mutex<()>>,
}

impl Completions {
    pub fn new(parts: RuntimeParts, runtime: Runtime) -> Completions {
        let RuntimeParts { settings, store, model, .. } = parts;
        let limits = &settings.limits;
        Completions {
            begun: Arc::new(BegunBySecrets::new(Duration::from_secs(settings.auth.client_secret_s))),
            recent: Arc::new(RecentTurns::new(Duration::from_secs(limits.retry_s), limits.retry_turns)),
            persons: Arc::new(Persons::new(settings.clone(), store.clone())),
            keeping: ConversationKeeping::new(settings.clone(), store.clone(), runtime.clone()),
            owners: Arc::new(PastOwners::new(store.clone())),
            standing: Arc::new(StandingPrompts::new(&settings.prompt)),
            wording: Arc::new(runtime::wording(&settings)),
            dropping: Arc::default(),
            settings,
            store,
            model,
            runtime,
        }
    }

    pub async fn open_session(&self, caller: &Caller, id: &str) -> Result<SessionRef, Error> {
        self.begun.open_session(&self.store, caller, id).await
    }
}

#[derive(Debug)]
pub struct CompletionRequest {
    pub prompt: Prompt,
    pub model: String,
    pub max_tokens: Option<u32>,
    pub options: GenerationOptions,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    pub priority: Priority,
    pub session_id: Option<String>,
    /// Number of replies: 1 in a session.
    pub choices: usize,
    /// `None` if the clients of this protocol do not retry by themselves.
    pub attempt: Option<RequestAttempt>,
    pub scope: Scope,
}

/// Reply under way. A client that hangs up drops it, and with it the source.
pub struct Completion {
    source: Source,
    warm: Option<Warm>,
    kept: Option<KeptTurn>,
    inserted: InsertedNotes,
    report: Option<Arc<Event>>,
    pub session_id: Option<String>,
}

impl Completions {
    /// Asks for a reply. `id` names it in the log and to the session's other clients.
    pub async fn ask(
        &self,
        caller: &Caller,
        id: &str,
        choice: &ModelChoice,
        mut request: CompletionRequest,
        preparation: Arc<PreparationShare>,
    ) -> Result<Completion, Error> {
        if let Some(session) = request.session_id.take() {
            let (source, session_id) = durable::answer(self, caller, &session, request).await?;
            return Ok(Completion::of_session(source, session_id));
        }
        let one = CompletionRequest { choices: 1, ..request };
        let mut choices = self.ask_choices(caller, id, choice, one, preparation).await?;
        choices.pop().ok_or_else(|| Error::request("invalid_value", "no reply was asked for", None))
    }

    pub async fn ask_choices(
        &self,
        caller: &Caller,
        id: &str,
        choice: &ModelChoice,
        mut request: CompletionRequest,
        preparation: Arc<PreparationShare>,
    ) -> Result<Vec<Completion>, Error> {
        if let Some(failure) = self.model.too_long(&request.prompt, &choice.preset) {
            return Err(failure.into());
        }
        let choices = request.choices;
        let kept = self.keeping.begin(choice, &request).await;
        let bytes = request.prompt.text_bytes();
        // A task beside a conversation says itself how it is to be answered.
        let before = match request.priority {
            Priority::Talk => self.before_instructions(choice),
            _ => choice.instructions.clone(),
        };
        let mut prompt = std::mem::take(&mut request.prompt);
        let is_named_here = request.scope.name.is_some();
        let mut log = heavy::run(bytes, || {
            show_speakers(&mut prompt.messages, choice.preset.speakers, is_named_here);
            ClientLog::new(prompt, &before, &self.wording)
        })
        .await;
        let known = heavy::run(bytes, || self.known_log(caller, choice, &request, &log)).await;
        let kept = match kept {
            Some((turn, before)) => {
                self.put_before(&mut log, before, &choice.preset).await;
                Some(turn)
            }
            None => None,
        };
        let owner = kept.as_ref().map(KeptTurn::owner);
        let (prompt, mut inserted) = self.insert_notes(log, known, owner, &choice.preset).await;
        request.prompt = prompt;
        // After a request in the background no user goes on talking, and of several replies the client chooses one.
        let goes_on = request.priority == Priority::Talk && choices == 1;
        let scope = request.scope.clone();
        self.owners.note(&scope);
        let prompt = inserted.without_notes.take().unwrap_or_else(|| request.prompt.clone());
        let (model, preset) = (self.model.clone(), choice.preset.clone());
        let (new_head, next_note) = (inserted.new_head.take(), inserted.next_note.take());
        let warm =
            goes_on.then(|| Warm { model, prompt, preset: preset.clone(), scope: scope.clone(), new_head, next_note });
        let max_tokens = request.max_tokens.map_or(MaxTokens::Unlimited, MaxTokens::Tokens);
        let preparation = Some(preparation);
        let mut asked = ModelRequest { preparation, ..model_request(request, preset) };
        scope.own(&mut asked);
        let (mut warm, mut kept, mut inserted) = (warm, kept.filter(|_| choices == 1), Some(inserted));
        let answers = self.model.ask_choices(asked, choices).into_iter();
        let completion = |answer| {
            let one_shot = OneShot::new(id.to_owned(), max_tokens, runtime::random()?);
            let (warm, kept, inserted) = (warm.take(), kept.take(), inserted.take().unwrap_or_default());
            Ok(Completion { warm, kept, inserted, ..Completion::of_model(answer, one_shot) })
        };
        answers.map(completion).collect()
    }

    pub async fn take_turn(
        &self,
        progress: &mut ReplyProgress,
        session: &SessionRef,
        scope: &Scope,
        turn: NewTurn,
        metadata: Map<String, Value>,
    ) -> Result<Result<(), Failure>, Error> {
        let listening = durable::listen(self, session, scope, Vec::new(), None, turn, metadata).await?;
        progress.session = Some(session.clone());
        progress.listen(listening);
        Ok(progress.begun().await)
    }

    pub async fn talk(&self, session: &SessionRef, scope: &Scope, turn: NewTurn) -> Result<Completion, Error> {
        let reply = Arc::<SharedReply>::default();
        let source = Source::Shared(reply.clone().reader());
        self.take_turn(&mut *reply.progress().await, session, scope, turn, Map::new()).await??;
        Ok(Completion::of_session(source, session.id().to_owned()))
    }

    /// Takes and answers a turn once, however often its client sends it. `first` takes the turn; if an earlier attempt
    /// took it and got no answer, `again` asks for a response and adds nothing.
    pub async fn take_turn_once<E: From<Error>>(
        &self,
        scope: &Scope,
        name: &str,
        attempt: Option<RequestAttempt>,
        first: impl AsyncFnOnce(&mut ReplyProgress) -> Result<SessionRef, E>,
        again: (NewTurn, Map<String, Value>),
    ) -> Result<(Completion, SessionRef), E> {
        let (source, session) = durable::take_turn_once(self, scope, name, attempt, first, again).await?;
        Ok((Completion::of_session(source, session.id().to_owned()), session))
    }
}

impl Completions {
    pub fn warm(&self, scope: &Scope, choice: &ModelChoice, prompt: Prompt) {
        let log = ClientLog::new(prompt, &self.before_instructions(choice), &self.wording);
        self.owners.note(scope);
        let (model, preset, scope) = (self.model.clone(), choice.preset.clone(), scope.clone());
        let prompt = log.lay_out(&self.wording).prompt;
        let warm = Warm { model, prompt, preset, scope, new_head: None, next_note: None };
        warm.begin();
    }

    fn before_instructions(&self, choice: &ModelChoice) -> String {
        self.wording.before_instructions(&choice.instructions, choice.preset.questions)
    }
}

fn model_request(request: CompletionRequest, preset: Arc<Preset>) -> ModelRequest {
    let mut asked = ModelRequest::new(request.prompt, preset);
    asked.priority = request.priority;
    if request.priority != Priority::Talk {
        asked.questions = Questions::Any;
    }
    asked.max_tokens = request.max_tokens;
    asked.options = request.options;
    asked.tool_choice = request.tool_choice;
    asked.parallel_tool_calls = request.parallel_tool_calls;
    asked
}

impl Completion {
    fn of_model(answer: Answer, one_shot: OneShot) -> Completion {
        let (source, inserted) = (Source::of_model(answer, one_shot), InsertedNotes::default());
        Completion { source, warm: None, kept: None, inserted, report: None, session_id: None }
    }

    fn of_session(source: Source, session_id: String) -> Completion {
        let inserted = InsertedNotes::default();
        Completion { source, warm: None, kept: None, inserted, report: None, session_id: Some(session_id) }
    }

    /// Returns a token that cancels the response. Its last events still come.
    pub fn canceller(&self) -> CancellationToken {
        self.source.canceller()
    }

    /// Returns the next event of the response. The caller may drop the future and call again.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Failure>> {
        if self.report.is_none() {
            let event = self.source.next().await?;
            if let Ok(event) = &event
                && let Event::ResponseDone { response } = &**event
            {
                if let Some(warm) = self.warm.take() {
                    warm.after(response);
                }
                if let Some(turn) = self.kept.take() {
                    turn.ended(response);
                }
            }
            match event {
                Ok(event) if matches!(*event, Event::Reported { .. }) => self.report = Some(event),
                event => return Some(event),
            }
        }
        if let Some(counting) = &mut self.inserted.with_note {
            let counted = tokio::time::timeout(COUNTING, counting).await;
            self.inserted.with_note = None;
            self.inserted.tokens_with_note = counted.ok().and_then(Result::ok).flatten();
        }
        self.report.take().map(|event| Ok(self.inserted.tell(event)))
    }
}

/// Time that a report waits for the count that began with the reply.
const COUNTING: Duration = Duration::from_millis(200);

/// Reply of a door, which turns events into pieces of its stream.
pub trait Render {
    fn add(&mut self, event: &Event, pieces: &mut Vec<String>) -> Result<(), Failure>;
    /// Appends the last pieces with the reply's known cost, or nothing if the response is not done.
    fn finish(&mut self, pieces: &mut Vec<String>);
    fn failed(&mut self, failure: &Failure, pieces: &mut Vec<String>);
    fn is_over(&self) -> bool;
}

/// Time that the headers of a stream wait for a refusal, so that a refusal has a status of its own. The model prepares
/// a prompt in a fraction of this.
const REFUSAL: Duration = Duration::from_millis(200);

async fn read(completion: &mut Completion, reply: &mut impl Render, pieces: &mut Vec<String>) -> Result<(), Failure> {
    while pieces.is_empty() && !reply.is_over() {
        match completion.next().await {
            Some(Ok(event)) => reply.add(&event, pieces)?,
            Some(Err(failure)) => {
                // What is done is done, whatever became of its report.
                reply.finish(pieces);
                return if reply.is_over() { Ok(()) } else { Err(failure) };
            }
            None => {
                reply.finish(pieces);
                return Ok(());
            }
        }
    }
    Ok(())
}

pub async fn whole<R: Render>(mut completion: Completion, mut reply: R) -> Result<R, Failure> {
    loop {
        let mut pieces = Vec::new();
        read(&mut completion, &mut reply, &mut pieces).await?;
        if pieces.is_empty() || reply.is_over() {
            return Ok(reply);
        }
    }
}

pub async fn streamed<R: Render>(
    mut completion: Completion,
    mut reply: R,
) -> Result<impl stream::Stream<Item = String>, Failure> {
    let mut first = Vec::new();
    if let Ok(read) = tokio::time::timeout(REFUSAL, read(&mut completion, &mut reply, &mut first)).await {
        read?;
    }
    Ok(stream::unfold((completion, reply, first), |(mut completion, mut reply, mut ready)| async move {
        if ready.is_empty()
            && let Err(failure) = read(&mut completion, &mut reply, &mut ready).await
        {
            reply.failed(&failure, &mut ready);
        }
        if ready.is_empty() {
            return None;
        }
        let piece = ready.remove(0);
        Some((piece, (completion, reply, ready)))
    }))
}

/// Adds the piece `nothing` after each `silence`: clients give up on a silent service.
pub fn kept_alive(
    pieces: impl stream::Stream<Item = String> + Send + 'static,
    silence: Duration,
    nothing: String,
) -> impl stream::Stream<Item = String> + Send {
    stream::unfold((Box::pin(pieces), nothing), move |(mut pieces, nothing)| async move {
        match tokio::time::timeout(silence, pieces.next()).await {
            Ok(piece) => Some((piece?, (pieces, nothing))),
            Err(_) => Some((nothing.clone(), (pieces, nothing))),
        }
    })
}

/// Prompts that the model reads in the silence after a reply: the conversation as the next request will have it.
struct Warm {
    model: Model,
    prompt: Prompt,
    preset: Arc<Preset>,
    scope: Scope,
    new_head: Option<(Prompt, NewHead)>,
    /// Likely begin of the next note: instructions that changed at this turn will change at the next one too.
    next_note: Option<Message>,
}

impl Warm {
    /// Reads the next prompt ahead, unless the reply holds calls: with their results the prompt continues from where
    /// the reply stopped.
    fn after(self, response: &Response) {
        let is_said = matches!(response.status, ResponseStatus::Completed | ResponseStatus::Incomplete);
        let has_calls = response.output.iter().any(|item| matches!(item.body, ItemBody::FunctionCall { .. }));
        let said: String = response.output.iter().map(|item| item.text()).collect();
        if !is_said || has_calls || said.is_empty() {
            return;
        }
        let mut warm = self;
        let read = warm.new_head.take();
        let read =
            read.map(|(prompt, new_head)| (warm.request(next_prompt(prompt, &said), Priority::Background), new_head));
        let model = warm.model.clone();
        warm.prompt = next_prompt(warm.prompt, &said);
        warm.begin();
        if let Some((asked, new_head)) = read {
            let mut answer = model.ask(asked);
            tokio::spawn(async move {
                while let Some(delta) = answer.next().await {
                    if matches!(delta, Delta::Done { finish: Finish::Warm, .. }) {
                        return new_head.stands();
                    }
                }
            });
        }
    }

    fn begin(mut self) {
        let prompt = std::mem::take(&mut self.prompt);
        let asked = self.request(prompt, Priority::Speculate);
        let next_note = self.next_note.take().map(|note| {
            let mut prompt = asked.prompt.clone();
            prompt.messages.pop();
            prompt.messages.push(note);
            ModelRequest { purpose: GenerationPurpose::WarmPartial, ..self.request(prompt, Priority::Speculate) }
        });
        tokio::spawn(async move {
            for asked in [Some(asked), next_note].into_iter().flatten() {
                let mut answer = self.model.ask(asked);
                while answer.next().await.is_some() {}
            }
        });
    }

    fn request(&self, prompt: Prompt, priority: Priority) -> ModelRequest {
        let mut asked = ModelRequest::new(prompt, self.preset.clone());
        self.scope.own(&mut asked);
        (asked.purpose, asked.placeholders, asked.priority) = (GenerationPurpose::WarmHistory, 1, priority);
        asked
    }
}
