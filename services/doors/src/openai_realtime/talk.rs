//! A connection that hears and speaks: between the session, which knows words, and a client, which sends and plays
//! audio. It belongs to the task that writes, so that every frame has its place.

mod late;
mod listening;
mod speaking;
mod stopping;
mod turns;

use super::audio::AudioConfig;
use super::parse::AudioEvent;
use super::speaking_client::SpeakingClient;
use super::{ErrorBody, Renderer};
use crate::App;
use listening::Microphone;
use runtime::{Connected, HeldShare};
use session::{Event, Heard, Input, Refusal, ResponseRequest};
use speaking::{PieceAudio, SpokenReply};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use store::SessionRef;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use turns::{HeardTurn, HeldResponse, SpokenTurns};
use voices::SpeechServers;

/// Input of a client, in its order.
pub struct ClientInput {
    pub event_id: Option<String>,
    pub input: Input,
    pub audio: Option<AudioEvent>,
    /// Room of the event in memory.
    pub _held: HeldShare,
}

/// Event that a connection that hears and speaks waits for.
pub enum Happened {
    Input(Box<ClientInput>),
    Heard(HeardTurn),
    Audio(PieceAudio),
    Idle,
}

/// Inputs of a client that the task has not taken yet.
pub const WAITING_INPUTS: usize = 16;

pub struct Talk {
    app: App,
    servers: SpeechServers,
    session: SessionRef,
    connected: Arc<Connected>,
    speaker: SpeakingClient,
    inputs: mpsc::Receiver<Box<ClientInput>>,
    microphone: Microphone,
    turns: SpokenTurns,
    // Requests of the client that wait for the words before them.
    held: VecDeque<HeldResponse>,
    // Replies that are said, the oldest first.
    replies: Vec<SpokenReply>,
    // Responses that were asked for and have not started.
    asked: VecDeque<AskedResponse>,
    // Response of the conversation that the session makes.
    active: Option<String>,
    // The last reply that was said to its end: it may still be playing.
    last: Option<SpokenReply>,
    // A turn has ended that is answered when the present reply is over, and what a user says meanwhile is known.
    owes_reply: bool,
    // True behind the first reply: from then on a silent user is spoken to.
    has_replied: bool,
    idle_at: Option<Instant>,
    begun: Instant,
    // Inputs that the session has not answered: the client's id, and what a refusal means.
    said: HashMap<String, SaidInput>,
    said_count: u64,
    // Cuts in their order: item, and the milliseconds that the client is told. `None`: it hears nothing of it.
    cuts: VecDeque<(String, Option<u64>)>,
    last_item: Option<String>,
    memory: HeldShare,
    // The service stops behind it.
    _token: TaskTrackerToken,
}

#[derive(Default)]
struct SaidInput {
    event_id: Option<String>,
    // Item that the input was about to cut.
    cuts: Option<String>,
    is_own: bool,
    // True if it asks for a response.
    asks: bool,
    // True if it is what a user spoke.
    is_turn: bool,
}

struct AskedResponse {
    // `None`: as the connection is set.
    is_audio: Option<bool>,
    in_conversation: bool,
}

impl Talk {
    pub fn new(
        app: App,
        (session, connected): (SessionRef, Arc<Connected>),
        speaker: SpeakingClient,
        inputs: mpsc::Receiver<Box<ClientInput>>,
        audio: &AudioConfig,
    ) -> Talk {
        let servers = app.speech.clone();
        let settings = app.replies.settings.clone();
        let memory = app.replies.runtime.held().share();
        Talk {
            servers,
            session,
            connected,
            inputs,
            microphone: Microphone::new(audio, &settings.speech),
            turns: SpokenTurns::new(speaker.caller.identity.user.clone(), &settings.speech),
            speaker,
            held: VecDeque::new(),
            replies: Vec::new(),
            asked: VecDeque::new(),
            active: None,
            last: None,
            owes_reply: false,
            has_replied: false,
            idle_at: None,
            begun: Instant::now(),
            said: HashMap::new(),
            said_count: 0,
            cuts: VecDeque::new(),
            last_item: None,
            memory,
            _token: app.late_turns.token(),
            app,
        }
    }

    /// Waits for the next thing that happens. `None`: the client says no more. The caller may drop the future.
    pub async fn next(&mut self) -> Option<Happened> {
        let is_due = self.idle_at;
        let idle = async {
            match is_due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let (ahead_ms, begun) = (self.app.replies.settings.speech.ahead_ms, self.begun);
        let audio = async {
            match self.replies.first_mut() {
                Some(reply) => reply.next_audio(begun, ahead_ms).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            input = self.inputs.recv() => Some(Happened::Input(input?)),
            turn = self.turns.next() => Some(Happened::Heard(turn)),
            audio = audio => Some(Happened::Audio(audio)),
            () = idle => Some(Happened::Idle),
        }
    }

    /// Does what follows from it.
    pub async fn handle(&mut self, happened: Happened, renderer: &mut Renderer, frames: &mut Vec<String>) {
        match happened {
            Happened::Input(input) => self.heard(*input, renderer, frames).await,
            Happened::Heard(turn) => self.recognised(turn, renderer, frames).await,
            Happened::Audio(audio) => {
                let now = self.now();
                if let Some(reply) = self.replies.first_mut() {
                    reply.take_audio(audio, now, renderer, frames);
                }
                self.speak_on(renderer, frames).await;
            }
            Happened::Idle => self.idle(renderer, frames).await,
        }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    async fn heard(&mut self, said: ClientInput, renderer: &mut Renderer, frames: &mut Vec<String>) {
        match (&said.audio, &said.input) {
            (Some(AudioEvent::Append(bytes)), _) => {
                return self.listen(bytes, renderer, frames).await;
            }
            (Some(AudioEvent::Commit), _) => return self.commit(said.event_id, renderer, frames),
            (Some(AudioEvent::Session(session)), _) => {
                if let Err(wrong) = renderer.audio.apply(session) {
                    let error = ErrorBody::from(wrong.under("session")).caused_by(said.event_id);
                    return frames.push(renderer.error(&error));
                }
                self.microphone.set(&renderer.audio, &self.app.replies.settings.speech);
                if renderer.audio.idle_ms().is_none() {
                    self.idle_at = None;
                }
            }
            (_, Input::DropSpeech) => {
                self.microphone.clear();
                self.turns.forget_open();
                frames.push(renderer.frame(super::frames::Body::InputAudioBufferCleared {}));
                self.say_own(Input::Hear { text: String::new() }).await;
                return self.go_on(renderer).await;
            }
            (_, Input::TruncateItem { item_id, heard: Heard::Ms(ms), .. }) => {
                let (item_id, ms) = (item_id.clone(), *ms);
                return self.truncate(item_id, ms, said, renderer, frames).await;
            }
            (_, Input::TruncateItem { item_id, .. } | Input::DeleteItem { item_id }) => {
                let item_id = item_id.clone();
                self.stop_item(&item_id, renderer, frames).await;
            }
            (_, Input::CancelResponse { response_id }) => {
                let response_id = response_id.clone();
                return self.cancel(response_id, said, renderer, frames).await;
            }
            (_, Input::Respond(_)) if !self.turns.is_empty() => {
                let most = self.app.replies.settings.speech.waiting_turns;
                if self.held.len() < most {
                    let behind = self.turns.last_id().unwrap_or_default().to_owned();
                    self.held.push_back(HeldResponse { said, behind, has_words: false });
                    return;
                }
                let message =
                    format!("at most {most} responses wait for words that were spoken (speech.waiting_turns)");
                let error = ErrorBody::new("too_many_responses", message).caused_by(said.event_id);
                return frames.push(renderer.error(&error));
            }
            _ => {}
        }
        self.pass_on(said, renderer, frames).await;
    }

    // Says an input of the client to the session.
    async fn pass_on(&mut self, said: ClientInput, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let ClientInput { event_id, input, audio, .. } = said;
        if let Input::Respond(request) = &input {
            let in_conversation = request.conversation != session::ConversationChoice::None;
            let busy = self.replies.iter().find(|reply| reply.in_conversation() && reply.is_made());
            if let Some(reply) = busy.filter(|_| in_conversation) {
                let refusal = Refusal::ResponseActive { response_id: reply.response_id().to_owned() };
                return frames.push(renderer.error(&super::error::error_body(&refusal, event_id)));
            }
            self.idle_at = None;
        }
        let is_audio = match audio {
            Some(AudioEvent::Response(is_audio)) => is_audio,
            _ => None,
        };
        self.say(SaidInput { event_id, ..SaidInput::default() }, input, is_audio).await;
    }

    // Says an input to the session. `is_audio`: the modality that a request for a response wants.
    async fn say(&mut self, said: SaidInput, input: Input, is_audio: Option<bool>) {
        self.said_count += 1;
        let said = SaidInput { asks: input.wants_response(), ..said };
        if said.asks {
            let in_conversation = match &input {
                Input::Respond(request) => request.conversation != session::ConversationChoice::None,
                _ => true,
            };
            self.asked.push_back(AskedResponse { is_audio, in_conversation });
        }
        let id = format!("said {}", self.said_count);
        self.said.insert(id.clone(), said);
        // Refusals come in the order of the inputs, so that old ones are answered long since.
        let old = self.said_count.saturating_sub(MOST_SAID);
        self.said.remove(&format!("said {old}"));
        self.connected.say(Some(id), input).await;
    }

    async fn say_own(&mut self, input: Input) {
        self.say(SaidInput { is_own: true, ..SaidInput::default() }, input, None).await;
    }

    /// Renders an event of the session, or keeps it until what is before it has been said.
    pub async fn event(&mut self, event: &Arc<Event>, renderer: &mut Renderer, frames: &mut Vec<String>) {
        match &**event {
            Event::Refused { input_id, refusal } => {
                let said = input_id.as_ref().and_then(|id| self.said.remove(id));
                let Some(SaidInput { event_id, cuts, is_own, asks, is_turn }) = said else {
                    return renderer.render(event, frames);
                };
                if asks {
                    self.asked.pop_front();
                }
                if let Some(item_id) = cuts
                    && let Some(at) = self.cuts.iter().position(|(of, _)| *of == item_id)
                {
                    self.cuts.remove(at);
                }
                // The turn is an item: another client's response was sooner.
                if is_turn && matches!(refusal, Refusal::ResponseActive { .. }) {
                    self.owes_reply = true;
                } else if !is_own {
                    renderer.render(&Event::Refused { input_id: event_id, refusal: refusal.clone() }, frames);
                }
                return;
            }
            Event::ItemTruncated { item_id, part, heard_ms, heard_chars } => {
                let at = self.cuts.iter().position(|(of, _)| of == item_id);
                let heard_ms = match at.and_then(|at| self.cuts.remove(at)) {
                    Some((_, None)) => return,
                    Some((_, Some(told))) => told,
                    None => *heard_ms,
                };
                let (item_id, part, heard_chars) = (item_id.clone(), *part, *heard_chars);
                return renderer.render(&Event::ItemTruncated { item_id, part, heard_ms, heard_chars }, frames);
            }
            Event::ItemAdded { item, .. } => {
                self.last_item = Some(item.id.clone());
                renderer.render(event, frames);
                return self.tell_transcript(&item.id, renderer, frames);
            }
            Event::ResponseStarted { response } => {
                let wanted = self.asked.pop_front().and_then(|asked| asked.is_audio);
                let is_audio = wanted.unwrap_or(renderer.audio.is_audio) && self.servers.voice.is_some();
                if response.conversation_id.is_some() {
                    self.active = Some(response.id.clone());
                    self.idle_at = None;
                    // It answers all turns that are items by now.
                    self.owes_reply &= !self.turns.has_items();
                }
                if is_audio && let Some(voice) = &self.servers.voice {
                    let settings = &self.app.replies.settings.speech;
                    renderer.spoken.add(&response.id, settings.kept_items);
                    let plays_until =
                        self.replies.iter().chain(&self.last).map(SpokenReply::plays_until).max().unwrap_or(0);
                    self.replies.push(SpokenReply::new(
                        response,
                        (voice.clone(), self.speaker.caller.identity.user.clone()),
                        &renderer.audio,
                        settings,
                        plays_until,
                    ));
                }
            }
            Event::ResponseDone { response } => {
                self.active.take_if(|active| *active == response.id);
            }
            Event::ReplyStarted { item, .. } => self.last_item = Some(item.id.clone()),
            _ => {}
        }
        // Notices of the extensions wait for nothing.
        let is_notice = matches!(
            **event,
            Event::SentenceDone { .. }
                | Event::ThinkingStopped { .. }
                | Event::RecallDone { .. }
                | Event::Reported { .. }
        );
        let mut reply =
            event.response_id().and_then(|id| self.replies.iter_mut().find(|reply| reply.response_id() == id));
        if is_notice {
            renderer.render(event, frames);
            reply = reply.filter(|_| matches!(**event, Event::SentenceDone { .. }));
            if reply.is_none() {
                return;
            }
        }
        match reply {
            Some(reply) => {
                reply.take(event.clone());
                self.speak_on(renderer, frames).await;
            }
            None => {
                renderer.render(event, frames);
                self.after_end(event, renderer, frames).await;
            }
        }
    }

    // Says what can be said now, and ends replies that are over.
    async fn speak_on(&mut self, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let most = self.app.replies.settings.speech.kept_items;
        while let Some(reply) = self.replies.first_mut() {
            if !reply.go_on(most, renderer, frames) {
                break;
            }
            let reply = self.replies.remove(0);
            self.cut_end(&reply).await;
            if reply.in_conversation() {
                self.last = Some(reply);
                self.reply_is_over(renderer).await;
            }
        }
        // A reply that was stopped goes out beside one that is still said.
        let stopped: Vec<usize> = (1..self.replies.len()).filter(|at| self.replies[*at].is_stopped()).rev().collect();
        for at in stopped {
            if self.replies[at].go_on(most, renderer, frames) {
                let reply = self.replies.remove(at);
                self.cut_end(&reply).await;
            }
        }
        self.count_memory();
    }

    async fn cut_end(&mut self, reply: &SpokenReply) {
        for (item_id, chars) in reply.unsaid_end() {
            self.cut(None, item_id, chars, None).await;
        }
    }

    async fn after_end(&mut self, event: &Event, renderer: &mut Renderer, _frames: &mut Vec<String>) {
        if let Event::ResponseDone { response } = event
            && response.conversation_id.is_some()
        {
            self.reply_is_over(renderer).await;
        }
    }

    async fn reply_is_over(&mut self, renderer: &mut Renderer) {
        self.has_replied = true;
        self.go_on(renderer).await;
    }

    // Answers the turn that waited for its reply, or waits for a user to say something.
    async fn go_on(&mut self, renderer: &mut Renderer) {
        if self.owes_reply && !self.must_wait(renderer) {
            self.owes_reply = false;
            return self.respond().await;
        }
        if !self.has_replied || self.is_replying() || !self.turns.is_empty() {
            return;
        }
        let left = self.last.as_ref().map_or(0, |last| last.plays_until().saturating_sub(self.now()));
        let idle = renderer.audio.idle_ms().filter(|_| !self.microphone.is_speaking());
        self.idle_at = idle.map(|idle| Instant::now() + std::time::Duration::from_millis(left + idle));
    }

    // Asks for the reply to what a user said.
    async fn respond(&mut self) {
        if self.is_allowed() {
            self.say_own(Input::Respond(Box::<ResponseRequest>::default())).await;
        }
    }

    // Counts a request that the connection makes by itself.
    fn is_allowed(&self) -> bool {
        let allowed = self.app.access.gate.request(&self.speaker.caller);
        if let Err(error) = &allowed {
            tracing::info!(%error, "a spoken turn is not answered");
        }
        allowed.is_ok()
    }

    fn is_replying(&self) -> bool {
        self.active.is_some() || self.is_asked() || self.replies.iter().any(SpokenReply::in_conversation)
    }

    fn is_asked(&self) -> bool {
        self.asked.iter().any(|asked| asked.in_conversation)
    }

    // True while a reply would be said over another, or over what a user says.
    fn must_wait(&self, renderer: &Renderer) -> bool {
        let interrupts = renderer.audio.turns.is_some_and(|turns| turns.interrupt_response);
        self.is_replying() || interrupts && (self.turns.is_open() || !self.turns.is_empty())
    }

    fn count_memory(&mut self) {
        let waiting: usize = self.replies.iter().map(SpokenReply::waiting_bytes).sum();
        self.memory.set((self.microphone.kept_bytes() + self.turns.kept_bytes() + waiting) as u64);
    }
}

// Inputs whose refusal is still waited for, at most.
const MOST_SAID: u64 = 256; // not a window: inputs

// Refusal of a turn that is too short to have been one.
fn commit_empty(event_id: Option<String>, kept_ms: u64) -> ErrorBody {
    let message = format!("the buffer has {kept_ms} ms of audio, and a turn has at least 100 ms");
    ErrorBody::new("input_audio_buffer_commit_empty", message).caused_by(event_id)
}

impl Talk {
    // Takes the words of a turn, or of what was said so far.
    async fn recognised(&mut self, turn: HeardTurn, renderer: &mut Renderer, frames: &mut Vec<String>) {
        if let HeardTurn::Partial { item_id, delta, .. } = &turn {
            self.tell_partial(item_id, delta, renderer, frames);
        }
        if let HeardTurn::SoFar { text } | HeardTurn::Partial { text, .. } = turn {
            let events = self.microphone.judge(&text);
            self.say_own(Input::Hear { text }).await;
            return self.follow(events, renderer, frames).await;
        }
        while let Some(turn) = self.turns.take_first() {
            self.turn_is_heard(turn, renderer, frames).await;
            if self.turns.is_empty() {
                for held in std::mem::take(&mut self.held) {
                    self.pass_on(held.said, renderer, frames).await;
                }
            }
        }
        self.count_memory();
    }
}
