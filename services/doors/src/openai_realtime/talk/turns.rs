//! Turns that were said and whose words are not there yet. They become items in the order in which they ended.

use super::super::frames::{Body, TranscriptionError, TranscriptionUsage};
use super::super::render::{SpokenEnd, shown_item, shown_response};
use super::{ClientInput, SaidInput, Talk};
use crate::App;
use crate::openai_realtime::Renderer;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use session::{
    Input, Item, ItemBody, ItemPlace, ItemStatus, MaxTokens, NewItem, Response, ResponseStatus, Role, Usage,
};
use settings::SpeechSettings;
use speech::{HEARD_RATE, HeardAudio, Hearing};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{ItemAudio, SessionRef};
use voices::{Ears, Error, HeardWords, LiveHearing, PartialWords};

type Recognised = Result<HeardWords, Error>;

pub struct SpokenTurns {
    // Item of the turn that is being said.
    open: Option<String>,
    ended: VecDeque<EndedTurn>,
    // Answers of the ears: the number of the request, and the words.
    asked: FuturesUnordered<BoxFuture<'static, (u64, Option<Recognised>)>>,
    asked_count: u64,
    look: Option<Look>,
    live: Option<LiveTurn>,
    // Begin of the last turn that the ears were asked to hear live.
    live_asked: Option<u64>,
    // User whose turn at the ears these take.
    user: String,
    most: usize,
    // Transcripts that are told when their items have been added.
    untold: VecDeque<UntoldTurn>,
    keeps_audio: bool,
}

pub struct UntoldTurn {
    pub item_id: String,
    pub words: HeardWords,
    seconds: f64,
    pub audio: Option<Vec<i16>>,
}

// Request about the words so far. Voice since then makes it void.
struct Look {
    request: u64,
    bytes: usize,
    answer: Option<Recognised>,
    cancel: AbortHandle,
}

// Turn that the ears hear while it is said.
struct LiveTurn {
    listening: LiveHearing,
    words: PartialWords,
    start: u64,
    // Place behind the audio that the ears have.
    until: u64,
    // Words that were told.
    told: String,
    // True if a pause asks what the words so far look like.
    is_due: bool,
}

pub struct EndedTurn {
    pub item_id: String,
    pub seconds: f64,
    pub respond: bool,
    request: u64,
    cancel: AbortHandle,
    bytes: usize,
    heard: Option<Recognised>,
    // Audio that is kept beside the item.
    audio: Option<Vec<i16>>,
}

impl EndedTurn {
    pub fn heard(self, words: HeardWords) -> UntoldTurn {
        let EndedTurn { item_id, seconds, audio, .. } = self;
        UntoldTurn { item_id, words, seconds, audio }
    }
}

// Request of a client for a response to words that are not there yet.
pub struct HeldResponse {
    pub said: ClientInput,
    // Last turn that it waits for.
    pub behind: String,
    // True if one of the turns had words.
    pub has_words: bool,
}

pub enum HeardTurn {
    // Words so far of a turn that may go on.
    SoFar { text: String },
    // More words of a turn that is being said, and all so far.
    Partial { item_id: String, delta: String, text: String },
    // A turn that has ended may be told.
    Ended,
}

impl SpokenTurns {
    pub fn new(user: String, settings: &SpeechSettings) -> SpokenTurns {
        SpokenTurns {
            open: None,
            ended: VecDeque::new(),
            asked: FuturesUnordered::new(),
            asked_count: 0,
            look: None,
            live: None,
            live_asked: None,
            user,
            most: settings.waiting_turns,
            untold: VecDeque::new(),
            keeps_audio: settings.keep_audio,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    pub fn kept_bytes(&self) -> usize {
        let live = self.live.iter().filter(|live| live.listening.is_behind());
        let live = live.map(|live| (live.until - live.start) as usize * 2);
        let looks = self.look.iter().map(|look| look.bytes);
        let untold = self.untold.iter().filter_map(|turn| turn.audio.as_ref().map(|audio| audio.len() * 2));
        self.ended.iter().map(|turn| turn.bytes).chain(untold).chain(looks).chain(live).sum()
    }

    pub fn begin(&mut self, item_id: String) -> String {
        self.look_away();
        self.live = None;
        self.open.insert(item_id).clone()
    }

    pub fn forget_open(&mut self) {
        (self.open, self.live) = (None, None);
        self.look_away();
    }

    /// Item of the turn that ends now.
    pub fn open_id(&mut self, renderer: &mut Renderer) -> String {
        self.open.take().unwrap_or_else(|| renderer.next_id("item"))
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn has_items(&self) -> bool {
        self.untold.is_empty()
    }

    pub fn last_id(&self) -> Option<&str> {
        self.ended.back().map(|turn| turn.item_id.as_str())
    }

    /// Lets ears that tell words while they hear have the turn so far.
    pub fn hear_on(&mut self, ears: &Arc<Ears>, hearing: &Hearing, language: Option<&str>, most_bytes: usize) {
        let Some(start) = hearing.began() else { return };
        if self.live_asked != Some(start) {
            self.live_asked = Some(start);
            self.live = ears.listen(language, most_bytes).map(|listening| {
                let words = listening.words();
                LiveTurn { listening, words, start, until: start, told: String::new(), is_due: false }
            });
        }
        if let Some(live) = &mut self.live {
            let more = hearing.since(live.until);
            live.until = more.end();
            if !live.listening.hear(more.samples) {
                self.live = None;
            }
        }
    }

    /// Asks for the words so far, where the ears have not told them unasked.
    pub fn look(&mut self, ears: Arc<Ears>, so_far: HeardAudio, language: Option<String>) {
        self.look_away();
        if let Some(live) = self.live.as_mut().filter(|live| !live.told.is_empty()) {
            live.is_due = true;
            return;
        }
        let bytes = so_far.samples.len() * 2;
        let (request, cancel) = self.ask(ears, so_far, language);
        self.look = Some(Look { request, bytes, answer: None, cancel });
    }

    pub fn look_away(&mut self) {
        if let Some(look) = self.look.take() {
            look.cancel.abort();
        }
        if let Some(live) = &mut self.live {
            live.is_due = false;
        }
    }

    /// Ends a turn. Where its words were asked for in the silence before, nothing else has been said since.
    pub fn end(&mut self, ears: Arc<Ears>, item_id: String, turn: HeardAudio, respond: bool, language: Option<String>) {
        let (seconds, bytes) = (turn.ms() as f64 / 1000.0, turn.samples.len() * 2);
        let audio = self.keeps_audio.then(|| turn.samples.clone());
        let bytes = if self.keeps_audio { bytes * 2 } else { bytes };
        let live = self.live.take().filter(|live| live.start == turn.start);
        let (request, cancel, heard) = match self.look.take() {
            Some(Look { request, answer, cancel, .. }) if !matches!(answer, Some(Err(_))) => (request, cancel, answer),
            _ => {
                let (request, cancel) = match live {
                    Some(live) => self.finish(live, ears, turn, language),
                    None => self.ask(ears, turn, language),
                };
                (request, cancel, None)
            }
        };
        // A client that says more than is heard loses the oldest that has no words yet, with its audio.
        if self.ended.len() >= self.most {
            let full = || Error::Refused {
                server: "this service".into(),
                message: "too many turns wait (speech.waiting_turns)".into(),
            };
            if let Some(oldest) = self.ended.iter_mut().find(|turn| turn.heard.is_none()) {
                (oldest.heard, oldest.audio) = (Some(Err(full())), None);
                oldest.cancel.abort();
            }
        }
        self.ended.push_back(EndedTurn { item_id, seconds, respond, request, cancel, bytes, heard, audio });
    }

    fn ask(&mut self, ears: Arc<Ears>, audio: HeardAudio, language: Option<String>) -> (u64, AbortHandle) {
        let user = self.user.clone();
        self.wait_for(async move { ears.hear(&user, &audio.samples, language.as_deref()).await })
    }

    // Gives the ears the rest of a turn that they have heard so far. Ears that broke off hear all of it again.
    fn finish(
        &mut self,
        live: LiveTurn,
        ears: Arc<Ears>,
        turn: HeardAudio,
        language: Option<String>,
    ) -> (u64, AbortHandle) {
        let LiveTurn { listening, until, words, .. } = live;
        drop(words);
        let sent = usize::try_from(until.saturating_sub(turn.start)).unwrap_or(usize::MAX);
        let rest = turn.samples.get(sent..).unwrap_or_default().to_vec();
        let (user, is_whole) = (self.user.clone(), listening.hear(rest));
        let listening = is_whole.then_some(listening);
        self.wait_for(async move {
            if let Some(listening) = listening {
                let heard = listening.finish().await;
                if matches!(heard, Ok(_) | Err(Error::Silent { .. })) {
                    return heard;
                }
            }
            ears.hear(&user, &turn.samples, language.as_deref()).await
        })
    }

    fn wait_for(&mut self, heard: impl Future<Output = Recognised> + Send + 'static) -> (u64, AbortHandle) {
        self.asked_count += 1;
        let request = self.asked_count;
        let (cancel, registration) = AbortHandle::new_pair();
        let heard = Abortable::new(heard, registration);
        self.asked.push(async move { (request, heard.await.ok()) }.boxed());
        (request, cancel)
    }

    /// Waits for words.
    pub async fn next(&mut self) -> HeardTurn {
        if self.ended.front().is_some_and(|turn| turn.heard.is_some()) {
            return HeardTurn::Ended;
        }
        if let Some(live) = self.live.as_mut().filter(|live| live.is_due) {
            live.is_due = false;
            return HeardTurn::SoFar { text: live.told.trim().to_owned() };
        }
        loop {
            let answered = async {
                match self.asked.next().await {
                    Some(answered) => answered,
                    None => std::future::pending().await,
                }
            };
            let more = async {
                match &mut self.live {
                    Some(live) => live.words.next().await,
                    None => std::future::pending().await,
                }
            };
            let (request, heard) = tokio::select! {
                // `None`: it was cancelled.
                (request, heard) = answered => match heard {
                    Some(heard) => (request, heard),
                    None => continue,
                },
                words = more => match self.more_words(words) {
                    Some(partial) => return partial,
                    None => continue,
                },
            };
            if let Some(turn) = self.ended.iter_mut().find(|turn| turn.request == request) {
                turn.heard.get_or_insert(heard);
                return HeardTurn::Ended;
            }
            if let Some(look) = self.look.as_mut().filter(|look| look.request == request) {
                let text = heard.as_ref().map(|heard| heard.text.clone()).unwrap_or_default();
                look.answer = Some(heard);
                return HeardTurn::SoFar { text };
            }
        }
    }

    fn more_words(&mut self, words: String) -> Option<HeardTurn> {
        let (live, item_id) = (self.live.as_mut()?, self.open.clone()?);
        let delta = words.strip_prefix(&live.told)?.to_owned();
        live.told = words;
        let text = live.told.trim().to_owned();
        Some(HeardTurn::Partial { item_id, delta, text })
    }

    pub fn is_told(&self) -> bool {
        self.ended.is_empty() && self.untold.is_empty()
    }

    pub fn take_untold(&mut self) -> Option<UntoldTurn> {
        self.untold.pop_front()
    }

    pub fn tell_later(&mut self, turn: UntoldTurn) {
        // No client is told the transcript of a turn that the session refused.
        if self.untold.len() >= self.most {
            self.untold.pop_front();
        }
        self.untold.push_back(turn);
    }

    /// Takes the oldest turn if its words are there.
    pub fn take_first(&mut self) -> Option<(EndedTurn, Recognised)> {
        self.ended.front().filter(|turn| turn.heard.is_some())?;
        let mut turn = self.ended.pop_front()?;
        let heard = turn.heard.take()?;
        Some((turn, heard))
    }
}

// Returns false if nothing was said: recognisers write '...' for a noise.
pub fn has_words(heard: &HeardWords) -> bool {
    heard.text.contains(char::is_alphanumeric)
}

pub async fn keep_audio(app: &App, session: &SessionRef, item_id: &str, samples: &[i16]) {
    let Some(room) = app.replies.runtime.held().taken(samples.len() * 2) else {
        return tracing::warn!("the audio of a turn is not kept: there is no room in memory (memory.text_bytes)");
    };
    let audio = ItemAudio { rate: HEARD_RATE, samples: speech::pcm::to_bytes(samples) };
    let most_bytes = app.replies.settings.speech.kept_audio_bytes as u64;
    if let Err(error) = app.replies.store.keep_audio(session, item_id, audio, most_bytes).await {
        tracing::warn!(%error, "the audio of a turn is not kept");
    }
    drop(room);
}

const CONTENT_INDEX: usize = 0;

// Words that stand for a user's silence.
const SILENCE: &str = "[Note of the system, not said by the user: The user has said nothing for a while.]";

impl Talk {
    /// Makes an item of what was said, or tells why there is none.
    pub(super) async fn turn_is_heard(
        &mut self,
        (turn, heard): (EndedTurn, Recognised),
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        let EndedTurn { item_id, seconds, respond, audio, .. } = turn;
        let most = self.app.replies.settings.limits.item_bytes;
        let too_long = || Error::Nonsense {
            server: "the ears".into(),
            what: "more words than an item may have (limits.item_bytes)".into(),
        };
        let heard = heard.and_then(|heard| if heard.text.len() <= most { Ok(heard) } else { Err(too_long()) });
        match heard {
            Ok(transcript) if has_words(&transcript) => {
                let text = Some(transcript.text.clone());
                self.turns.tell_later(UntoldTurn { item_id: item_id.clone(), words: transcript, seconds, audio });
                self.held.iter_mut().for_each(|held| held.has_words = true);
                let is_due = respond || self.owes_reply;
                self.owes_reply = is_due && self.must_wait(renderer);
                let respond = is_due && !self.owes_reply && self.is_allowed();
                let mut input = Input::HeardAll { text, item_id: Some(item_id), speaker: None, respond };
                if let Err(error) = self.speaker.name(&self.app, &mut input).await {
                    tracing::warn!(%error, "the speaker of a turn is not known");
                }
                self.say(SaidInput { is_turn: true, ..SaidInput::default() }, input, None).await;
            }
            Ok(transcript) => {
                let transcript = HeardWords { text: String::new(), ..transcript };
                self.empty_item(&item_id, renderer, frames);
                self.tell_completed(&item_id, &transcript, seconds, renderer, frames);
                frames.push(renderer.frame(Body::ItemDeleted { item_id: &item_id }));
                self.say_own(Input::Hear { text: String::new() }).await;
                let ended = SpokenEnd::Cancelled { reason: "client_cancelled" };
                self.nothing_was_said(&item_id, ended, renderer, frames).await;
            }
            Err(error) => {
                tracing::warn!(%error, "a turn has no words");
                let message = error.to_string();
                self.empty_item(&item_id, renderer, frames);
                let failed =
                    TranscriptionError { kind: "server_error", code: error.code(), message: &message, param: None };
                let (item_id, content_index) = (item_id.as_str(), CONTENT_INDEX);
                frames.push(renderer.frame(Body::TranscriptionFailed { item_id, content_index, error: failed }));
                frames.push(renderer.frame(Body::ItemDeleted { item_id }));
                let ended = SpokenEnd::Failed { code: error.code(), message: &message };
                self.nothing_was_said(item_id, ended, renderer, frames).await;
            }
        }
    }

    // Goes on after a turn that becomes no item.
    async fn nothing_was_said(
        &mut self,
        item_id: &str,
        ended: SpokenEnd<'_>,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        let is_unfounded = |held: &HeldResponse| held.behind == item_id && !held.has_words;
        let (unfounded, held) = std::mem::take(&mut self.held).into_iter().partition(is_unfounded);
        self.held = held;
        self.end_held(unfounded, ended, renderer, frames);
        self.go_on(renderer).await;
    }

    // Ends responses that were to answer words that are none.
    pub(super) fn end_held(
        &mut self,
        held: VecDeque<HeldResponse>,
        ended: SpokenEnd<'_>,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        for held in held {
            let Input::Respond(request) = held.said.input else { continue };
            let response = Response {
                id: renderer.next_id("resp"),
                status: ResponseStatus::InProgress,
                details: None,
                output: Vec::new(),
                conversation_id: None,
                max_output_tokens: MaxTokens::Unlimited,
                usage: None,
                metadata: request.metadata,
            };
            let created = |spoken: &_| Body::ResponseCreated { response: shown_response(&response, spoken, None) };
            frames.push(renderer.shown(created));
            let response = Response { usage: Some(Usage::default()), ..response.clone() };
            let done = |spoken: &_| Body::ResponseDone { response: shown_response(&response, spoken, Some(ended)) };
            frames.push(renderer.shown(done));
        }
    }

    // Shows the item of a turn that becomes none.
    fn empty_item(&mut self, item_id: &str, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let item = Item::new(item_id, ItemBody::message(Role::User, ""), ItemStatus::Completed);
        let previous_item_id = self.last_item.as_deref();
        frames.push(
            renderer.shown(|spoken| Body::ItemAdded { previous_item_id, item: shown_item(&item, spoken, false) }),
        );
        frames
            .push(renderer.shown(|spoken| Body::ItemDone { previous_item_id, item: shown_item(&item, spoken, false) }));
    }

    // Tells the words of an item that is there, and keeps its audio.
    pub(super) fn tell_transcript(&mut self, item_id: &str, renderer: &mut Renderer, frames: &mut Vec<String>) {
        if let Some(at) = self.turns.untold.iter().position(|turn| turn.item_id == item_id)
            && let Some(UntoldTurn { item_id, words, seconds, audio }) = self.turns.untold.remove(at)
        {
            self.tell_completed(&item_id, &words, seconds, renderer, frames);
            if let Some(samples) = audio {
                let (app, session) = (self.app.clone(), self.session.clone());
                tokio::spawn(async move { keep_audio(&app, &session, &item_id, &samples).await });
            }
        }
    }

    pub(super) fn tell_partial(&self, item_id: &str, delta: &str, renderer: &mut Renderer, frames: &mut Vec<String>) {
        if renderer.audio.transcription.is_some() && !delta.is_empty() {
            frames.push(renderer.frame(Body::TranscriptionDelta { item_id, content_index: CONTENT_INDEX, delta }));
        }
    }

    fn tell_completed(
        &self,
        item_id: &str,
        transcript: &HeardWords,
        seconds: f64,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        if renderer.audio.transcription.is_none() {
            return;
        }
        let usage = match transcript.tokens {
            Some((input_tokens, output_tokens)) => {
                let total_tokens = input_tokens + output_tokens;
                TranscriptionUsage::Tokens { input_tokens, output_tokens, total_tokens }
            }
            None => TranscriptionUsage::Duration { seconds },
        };
        let (content_index, transcript) = (CONTENT_INDEX, transcript.text.as_str());
        frames.push(renderer.frame(Body::TranscriptionCompleted { item_id, content_index, transcript, usage }));
    }

    /// Speaks again, because the user has said nothing for a while.
    pub(super) async fn idle(&mut self, renderer: &mut Renderer, frames: &mut Vec<String>) {
        self.idle_at = None;
        let item_id = renderer.next_id("item");
        renderer.spoken.add(&item_id, self.app.replies.settings.speech.kept_items);
        let audio_end_ms = self.microphone.heard_ms();
        let audio_start_ms = audio_end_ms.saturating_sub(renderer.audio.idle_ms().unwrap_or(0));
        let previous_item_id = self.last_item.clone();
        let previous_item_id = previous_item_id.as_deref();
        frames.push(renderer.frame(Body::TimeoutTriggered { audio_start_ms, audio_end_ms, item_id: &item_id }));
        frames.push(renderer.frame(Body::InputAudioBufferCommitted { item_id: &item_id, previous_item_id }));
        let item = NewItem { id: Some(item_id), body: ItemBody::message(Role::System, SILENCE) };
        self.say_own(Input::AddItem { item, place: ItemPlace::End }).await;
        self.respond().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::tests::speech::{Fault, ScriptedSpeech};
    use settings::{Settings, Sources, SpeechServer};
    use voices::SpeechServers;

    #[tokio::test]
    async fn turns_beyond_those_that_wait_leave_no_audio() {
        let server = ScriptedSpeech::start().await;
        server.set_fault(Fault::Hangs);
        let mut settings = Settings::load(&Sources::default()).unwrap().settings.speech;
        settings.stt = Some(SpeechServer::Wyoming(server.address.to_string()));
        let ears = SpeechServers::new(&settings, |_| None).unwrap().ears.unwrap();
        let mut turns = SpokenTurns::new("ann".to_owned(), &settings);
        for count in 0..100 {
            let audio = HeardAudio { samples: vec![0; 1600], start: 0 };
            turns.end(ears.clone(), format!("item_{count}"), audio, false, None);
            while turns.next().now_or_never().is_some() {
                assert!(turns.take_first().is_some_and(|(_, heard)| heard.is_err()));
            }
        }
        assert_eq!((turns.ended.len(), turns.asked.len(), turns.kept_bytes()), (8, 8, 8 * 3200));
    }
}
