//! Turns that were said and whose words are not there yet. They become items in the order in which they ended.

use super::super::frames::{Body, TranscriptionError, TranscriptionUsage};
use super::super::render::{SpokenEnd, shown_item, shown_response};
use super::{SaidInput, Talk};
use crate::openai_realtime::Renderer;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use session::{
    Input, Item, ItemBody, ItemPlace, ItemStatus, MaxTokens, NewItem, Response, ResponseStatus, Role, Usage,
};
use speech::HeardAudio;
use std::collections::VecDeque;
use std::sync::Arc;
use voices::{Ears, Error, HeardWords};

type Recognised = Result<HeardWords, Error>;

pub struct SpokenTurns {
    // Item of the turn that is being said.
    open: Option<String>,
    ended: VecDeque<EndedTurn>,
    // Answers of the ears: the number of the request, and the words.
    asked: FuturesUnordered<BoxFuture<'static, (u64, Option<Recognised>)>>,
    asked_count: u64,
    look: Option<Look>,
    // User whose turn at the ears these take.
    user: String,
    most: usize,
    // Transcripts that are told when their items have been added.
    untold: VecDeque<(String, HeardWords, f64)>,
}

// Request about the words so far. Voice since then makes it void.
struct Look {
    request: u64,
    bytes: usize,
    answer: Option<Recognised>,
    cancel: AbortHandle,
}

pub struct EndedTurn {
    pub item_id: String,
    pub seconds: f64,
    pub respond: bool,
    request: u64,
    cancel: AbortHandle,
    bytes: usize,
    heard: Option<Recognised>,
}

pub enum HeardTurn {
    // Words so far of a turn that may go on.
    SoFar { text: String },
    // A turn that has ended may be told.
    Ended,
}

impl SpokenTurns {
    pub fn new(user: String, most: usize) -> SpokenTurns {
        SpokenTurns {
            open: None,
            ended: VecDeque::new(),
            asked: FuturesUnordered::new(),
            asked_count: 0,
            look: None,
            user,
            most,
            untold: VecDeque::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    pub fn kept_bytes(&self) -> usize {
        self.ended.iter().map(|turn| turn.bytes).chain(self.look.iter().map(|look| look.bytes)).sum()
    }

    pub fn begin(&mut self, item_id: String) -> String {
        self.look_away();
        self.open.insert(item_id).clone()
    }

    pub fn forget_open(&mut self) {
        self.open = None;
        self.look_away();
    }

    /// Item of the turn that ends now.
    pub fn open_id(&mut self, renderer: &mut Renderer) -> String {
        self.open.take().unwrap_or_else(|| renderer.next_id("item"))
    }

    pub fn last_id(&self) -> Option<&str> {
        self.ended.back().map(|turn| turn.item_id.as_str())
    }

    /// Asks for the words so far.
    pub fn look(&mut self, ears: Arc<Ears>, so_far: HeardAudio, language: Option<String>) {
        self.look_away();
        let bytes = so_far.samples.len() * 2;
        let (request, cancel) = self.ask(ears, so_far, language);
        self.look = Some(Look { request, bytes, answer: None, cancel });
    }

    pub fn look_away(&mut self) {
        if let Some(look) = self.look.take() {
            look.cancel.abort();
        }
    }

    /// Ends a turn. Where its words were asked for in the silence before, nothing else has been said since.
    pub fn end(&mut self, ears: Arc<Ears>, item_id: String, turn: HeardAudio, respond: bool, language: Option<String>) {
        let (seconds, bytes) = (turn.ms() as f64 / 1000.0, turn.samples.len() * 2);
        let (request, cancel, heard) = match self.look.take() {
            Some(Look { request, answer, cancel, .. }) if !matches!(answer, Some(Err(_))) => (request, cancel, answer),
            _ => {
                let (request, cancel) = self.ask(ears, turn, language);
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
                oldest.heard = Some(Err(full()));
                oldest.cancel.abort();
            }
        }
        self.ended.push_back(EndedTurn { item_id, seconds, respond, request, cancel, bytes, heard });
    }

    fn ask(&mut self, ears: Arc<Ears>, audio: HeardAudio, language: Option<String>) -> (u64, AbortHandle) {
        self.asked_count += 1;
        let request = self.asked_count;
        let (cancel, registration) = AbortHandle::new_pair();
        let user = self.user.clone();
        let hear = async move { ears.hear(&user, &audio.samples, language.as_deref()).await };
        let hear = Abortable::new(hear, registration);
        self.asked.push(async move { (request, hear.await.ok()) }.boxed());
        (request, cancel)
    }

    /// Waits for words.
    pub async fn next(&mut self) -> HeardTurn {
        if self.ended.front().is_some_and(|turn| turn.heard.is_some()) {
            return HeardTurn::Ended;
        }
        loop {
            let (request, heard) = match self.asked.next().await {
                Some((request, Some(heard))) => (request, heard),
                // It was cancelled.
                Some((_, None)) => continue,
                None => std::future::pending().await,
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

    /// Takes the oldest turn if its words are there.
    pub fn take_first(&mut self) -> Option<(EndedTurn, Recognised)> {
        self.ended.front().filter(|turn| turn.heard.is_some())?;
        let mut turn = self.ended.pop_front()?;
        let heard = turn.heard.take()?;
        Some((turn, heard))
    }
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
        let EndedTurn { item_id, seconds, respond, .. } = turn;
        let most = self.app.replies.settings.limits.item_bytes;
        let too_long = || Error::Nonsense {
            server: "the ears".into(),
            what: "more words than an item may have (limits.item_bytes)".into(),
        };
        let heard = heard.and_then(|heard| if heard.text.len() <= most { Ok(heard) } else { Err(too_long()) });
        match heard {
            Ok(transcript) if !transcript.text.is_empty() => {
                let text = Some(transcript.text.clone());
                // No client is told the transcript of a turn that the session refused.
                if self.turns.untold.len() >= self.turns.most {
                    self.turns.untold.pop_front();
                }
                self.turns.untold.push_back((item_id.clone(), transcript, seconds));
                let is_answered = respond && !self.is_replying();
                self.owes_reply = respond && !is_answered;
                let respond = is_answered && self.is_allowed();
                let mut input = Input::HeardAll { text, item_id: Some(item_id), speaker: None, respond };
                if let Err(error) = self.speaker.name(&self.app, &mut input).await {
                    tracing::warn!(%error, "the speaker of a turn is not known");
                }
                self.say(SaidInput::default(), input, None).await;
            }
            Ok(transcript) => {
                self.empty_item(&item_id, renderer, frames);
                self.tell_completed(&item_id, &transcript, seconds, renderer, frames);
                frames.push(renderer.frame(Body::ItemDeleted { item_id: &item_id }));
                self.say_own(Input::Hear { text: String::new() }).await;
                self.refuse_held(SpokenEnd::Cancelled { reason: "client_cancelled" }, renderer, frames);
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
                let failed = SpokenEnd::Failed { code: error.code(), message: &message };
                self.refuse_held(failed, renderer, frames);
            }
        }
    }

    // Ends the responses that were to answer words that are none.
    fn refuse_held(&mut self, ended: SpokenEnd<'_>, renderer: &mut Renderer, frames: &mut Vec<String>) {
        for held in std::mem::take(&mut self.held) {
            let Input::Respond(request) = held.input else { continue };
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

    pub(super) fn tell_transcript(&mut self, item_id: &str, renderer: &mut Renderer, frames: &mut Vec<String>) {
        if let Some(at) = self.turns.untold.iter().position(|(of, ..)| of == item_id)
            && let Some((item_id, transcript, seconds)) = self.turns.untold.remove(at)
        {
            self.tell_completed(&item_id, &transcript, seconds, renderer, frames);
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
        let mut turns = SpokenTurns::new("ann".to_owned(), 8);
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
