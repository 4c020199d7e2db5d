//! A reply as it is said: its text goes to the voice sentence by sentence, and every event of it waits for what is said
//! before it.

use super::super::audio::{AudioConfig, AudioFormat};
use super::super::frames::{Body, ContentPart};
use super::super::render::{SpokenEnd, shown_item, shown_response};
use crate::openai_realtime::Renderer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use session::{Event, Item, ItemBody, Placed, Response, ResponseStatus};
use settings::SpeechSettings;
use speech::{Playback, Resampler, SpokenText};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use voices::{Error, SaidPiece, Saying, VOICE_RATE, Voice, WantedVoice};

pub struct SpokenReply {
    response_id: String,
    in_conversation: bool,
    voice: Arc<Voice>,
    // Whose turn at the voice it takes.
    user: String,
    speaker: WantedVoice,
    output: AudioFormat,
    chars_per_second: f64,
    // Text that comes from the session.
    incoming: Incoming,
    queue: VecDeque<Queued>,
    current: Option<CurrentPiece>,
    items: Vec<SpokenMessage>,
    resampler: Option<Resampler>,
    // Time at which the client has played what came before.
    not_before: u64,
    stopped: Option<SpokenStop>,
    failed: Option<Error>,
    is_made: bool,
    unsaid: Vec<HeardPart>,
}

// An item, and the characters of it that a client has heard at most.
pub type HeardPart = (String, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpokenStop {
    TurnDetected,
    ClientCancelled,
}

#[derive(Default)]
struct Incoming {
    text: Vec<char>,
    // Character at which the next piece begins.
    piece_at: usize,
}

enum Queued {
    Event(Arc<Event>),
    Piece { text_start: usize, text: String },
}

struct CurrentPiece {
    saying: Saying,
    // Its text, until the client is told.
    untold: Option<String>,
}

// A message that is said.
struct SpokenMessage {
    item_id: String,
    output_index: usize,
    spoken: SpokenText,
    playback: Playback,
    // Text that the client has been told.
    transcript: String,
    // Characters that an earlier response said.
    before: usize,
}

pub enum PieceAudio {
    Said(SaidPiece),
    End,
    Failed(Error),
}

const CONTENT_INDEX: usize = 0;
// Letters of a usual word with the space behind it.
const LETTERS_PER_WORD: f64 = 6.0;

impl SpokenReply {
    pub fn new(
        response: &Response,
        (voice, user): (Arc<Voice>, String),
        audio: &AudioConfig,
        settings: &SpeechSettings,
        plays_until: u64,
    ) -> SpokenReply {
        let resampler = (audio.output.rate() != VOICE_RATE).then(|| Resampler::new(VOICE_RATE, audio.output.rate()));
        SpokenReply {
            response_id: response.id.clone(),
            in_conversation: response.conversation_id.is_some(),
            voice,
            user,
            speaker: audio.speaker(settings.language.as_deref()),
            output: audio.output,
            chars_per_second: f64::from(settings.words_per_minute) * LETTERS_PER_WORD / 60.0,
            incoming: Incoming::default(),
            queue: VecDeque::new(),
            current: None,
            items: Vec::new(),
            resampler: resampler.flatten(),
            not_before: plays_until,
            stopped: None,
            failed: None,
            is_made: false,
            unsaid: Vec::new(),
        }
    }

    pub fn response_id(&self) -> &str {
        &self.response_id
    }

    pub fn in_conversation(&self) -> bool {
        self.in_conversation
    }

    /// True if the session has made all of it.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub fn says(&self, item_id: &str) -> bool {
        self.items.iter().any(|item| item.item_id == item_id)
    }

    pub fn waiting_bytes(&self) -> usize {
        let text = |queued: &Queued| match queued {
            Queued::Piece { text, .. } => text.len(),
            Queued::Event(event) => event.weight_bytes(),
        };
        self.queue.iter().map(text).sum::<usize>() + self.incoming.text.len() * size_of::<char>()
    }

    pub fn plays_until(&self) -> u64 {
        self.items.iter().map(|item| item.playback.ends_at()).max().unwrap_or(0)
    }

    /// Returns the characters that were heard of an item of which the client plays no more than so much, and the time, which its
    /// audio bounds.
    pub fn heard(&mut self, item_id: &str, ms: u64, now: u64) -> Option<(usize, u64)> {
        let item = self.items.iter_mut().find(|item| item.item_id == item_id)?;
        item.playback.stop(now);
        let ms = ms.min(item.spoken.ms());
        Some((item.heard_chars(ms), ms))
    }

    /// Stops what the client still plays.
    pub fn cut_by_clock(&mut self, now: u64) -> Vec<HeardPart> {
        let playing = self.items.iter_mut().filter(|item| item.playback.ends_at() > now);
        playing.map(|item| item.stop_playing(now)).collect()
    }

    /// Takes an event of its response, behind all that is not said yet.
    pub fn take(&mut self, event: Arc<Event>) {
        match &*event {
            Event::TextDelta { text, .. } => return self.incoming.text.extend(text.chars()),
            Event::SentenceDone { sentence, .. } => return self.piece(sentence.text_end),
            Event::ReplyStarted { item, .. } => {
                // The words of a reply that goes on were said before.
                let text: Vec<char> = item.text().chars().collect();
                self.incoming = Incoming { piece_at: text.len(), text };
            }
            Event::TextDone { .. } => self.piece(usize::MAX),
            Event::ResponseDone { response } => {
                self.is_made = true;
                if response.status == ResponseStatus::Cancelled && self.stopped.is_none() {
                    self.unsaid = self.stop(SpokenStop::ClientCancelled, 0);
                }
            }
            _ => {}
        }
        self.queue.push_back(Queued::Event(event));
    }

    fn piece(&mut self, text_end: usize) {
        let (from, until) = (self.incoming.piece_at, text_end.min(self.incoming.text.len()));
        if from < until && self.stopped.is_none() {
            let text = self.incoming.text[from..until].iter().collect();
            self.queue.push_back(Queued::Piece { text_start: from, text });
            self.incoming.piece_at = until;
        }
    }

    /// Stops saying it, and returns what was not heard to its end.
    pub fn stop(&mut self, why: SpokenStop, now: u64) -> Vec<HeardPart> {
        if self.stopped.is_some() {
            return Vec::new();
        }
        (self.stopped, self.current) = (Some(why), None);
        self.queue.retain(|queued| matches!(queued, Queued::Event(_)));
        let last = self.items.len().saturating_sub(1);
        let mut cuts = Vec::new();
        for (at, item) in self.items.iter_mut().enumerate() {
            let is_playing = item.playback.ends_at() > now;
            let part = item.stop_playing(now);
            match why {
                SpokenStop::TurnDetected if at == last || is_playing => cuts.push(part),
                // It may be played to its end.
                SpokenStop::ClientCancelled if at == last => {
                    cuts.push((item.item_id.clone(), item.heard_chars(item.spoken.ms())));
                }
                _ => {}
            }
        }
        let untold = self.queue.iter().filter_map(|queued| match queued {
            Queued::Event(event) => match &**event {
                Event::ReplyStarted { item, .. } if matches!(item.body, ItemBody::Message { .. }) => {
                    Some((item.id.clone(), item.text().chars().count()))
                }
                _ => None,
            },
            Queued::Piece { .. } => None,
        });
        cuts.extend(untold);
        cuts
    }

    /// Returns the cuts of a reply that was stopped in the session.
    pub fn unsaid_end(&self) -> Vec<HeardPart> {
        self.unsaid.clone()
    }

    /// Waits for the next audio, when the client has nearly played what it has.
    pub async fn next_audio(&mut self, begun: Instant, ahead_ms: u64) -> PieceAudio {
        let plays_until = self.plays_until();
        let Some(current) = &mut self.current else { return std::future::pending().await };
        sleep_until(begun + Duration::from_millis(plays_until.saturating_sub(ahead_ms))).await;
        match current.saying.next().await {
            Some(Ok(piece)) => PieceAudio::Said(piece),
            Some(Err(error)) => PieceAudio::Failed(error),
            None => PieceAudio::End,
        }
    }

    pub fn take_audio(&mut self, audio: PieceAudio, now: u64, renderer: &mut Renderer, frames: &mut Vec<String>) {
        if let Some(untold) = self.current.as_mut().and_then(|current| current.untold.take()) {
            let start_ms = self.items.last().map(|item| item.spoken.ms());
            self.tell(&untold, start_ms, renderer, frames);
        }
        match audio {
            PieceAudio::Said(SaidPiece { samples, words }) => {
                if let Some(item) = self.items.last_mut() {
                    words.iter().for_each(|word| item.spoken.mark(word));
                }
                self.send(&samples, false, now, renderer, frames);
            }
            PieceAudio::End => {
                self.send(&[], true, now, renderer, frames);
                self.current = None;
            }
            PieceAudio::Failed(error) => {
                tracing::warn!(%error, "a reply cannot be spoken to its end");
                (self.failed, self.current) = (Some(error), None);
            }
        }
    }

    fn send(&mut self, samples: &[i16], is_end: bool, now: u64, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let before = self.items.iter().rev().skip(1).map(|item| item.playback.ends_at());
        let not_before = before.fold(self.not_before, u64::max);
        let Some(item) = self.items.last_mut() else { return };
        item.spoken.push(samples);
        if is_end {
            item.spoken.end();
        }
        let encoded = match &mut self.resampler {
            None => self.output.encode(samples),
            Some(resampler) => {
                let mut out = resampler.push(samples);
                out.extend(if is_end { resampler.finish() } else { Vec::new() });
                self.output.encode(&out)
            }
        };
        item.playback.sent(now, not_before, item.spoken.ms());
        if !encoded.is_empty() {
            let (response_id, item_id, output_index) =
                (self.response_id.as_str(), item.item_id.as_str(), item.output_index);
            let (content_index, delta) = (CONTENT_INDEX, STANDARD.encode(&encoded));
            frames.push(renderer.frame(Body::AudioDelta {
                response_id,
                item_id,
                output_index,
                content_index,
                delta: &delta,
            }));
        }
    }

    // `start_ms`: the place of the text in the audio. `None`: it has none.
    fn tell(&mut self, text: &str, start_ms: Option<u64>, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let Some(item) = self.items.last_mut().filter(|_| !text.is_empty()) else { return };
        item.transcript.push_str(text);
        let (response_id, item_id, output_index) =
            (self.response_id.as_str(), item.item_id.as_str(), item.output_index);
        let (content_index, delta) = (CONTENT_INDEX, text);
        frames.push(renderer.frame(Body::AudioTranscriptDelta {
            response_id,
            item_id,
            output_index,
            content_index,
            delta,
            start_time: start_ms.map(|ms| ms as f64 / 1000.0),
        }));
    }

    /// Goes on until something must be waited for. True: the response is over.
    pub fn go_on(&mut self, most_items: usize, renderer: &mut Renderer, frames: &mut Vec<String>) -> bool {
        while self.current.is_none() {
            match self.queue.pop_front() {
                None => return false,
                Some(Queued::Piece { text_start, text }) => self.begin_piece(text_start, text, renderer, frames),
                Some(Queued::Event(event)) => {
                    self.render(&event, most_items, renderer, frames);
                    if matches!(*event, Event::ResponseDone { .. }) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn begin_piece(&mut self, text_start: usize, text: String, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let Some(item) = self.items.last_mut() else { return };
        item.spoken.begin(text_start, &text);
        if self.failed.is_some() || !text.chars().any(char::is_alphanumeric) {
            item.spoken.end();
            return self.tell(&text, None, renderer, frames);
        }
        let saying = self.voice.say(&self.user, text.trim().to_owned(), self.speaker.clone());
        self.current = Some(CurrentPiece { saying, untold: Some(text) });
    }

    fn render(&mut self, event: &Event, most_items: usize, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let response_id = self.response_id.as_str();
        match event {
            Event::ReplyStarted { output_index, item, place, .. } if matches!(item.body, ItemBody::Message { .. }) => {
                renderer.spoken.add(&item.id, most_items);
                let output_index = *output_index;
                let view = |spoken: &_| shown_item(item, spoken, true);
                let added = |spoken: &_| Body::OutputItemAdded { response_id, output_index, item: view(spoken) };
                frames.push(renderer.shown(added));
                if let Some(Placed { previous_item_id }) = place {
                    let previous_item_id = previous_item_id.as_deref();
                    frames.push(renderer.shown(|spoken| Body::ItemAdded { previous_item_id, item: view(spoken) }));
                }
                let (content_index, part, item_id) = (CONTENT_INDEX, ContentPart::Audio { transcript: "" }, &item.id);
                let added = Body::ContentPartAdded { response_id, item_id, output_index, content_index, part };
                frames.push(renderer.frame(added));
                self.items.push(SpokenMessage {
                    item_id: item.id.clone(),
                    output_index,
                    spoken: SpokenText::new(VOICE_RATE, self.chars_per_second),
                    playback: Playback::default(),
                    transcript: item.text(),
                    before: item.text().chars().count(),
                });
            }
            Event::TextDone { item_id, output_index, text, .. } => {
                let told = self.items.last().map_or(0, |item| item.transcript.len());
                if self.stopped.is_none()
                    && let Some(rest) = text.get(told..).filter(|rest| !rest.is_empty())
                {
                    self.tell(rest, None, renderer, frames);
                }
                let response_id = self.response_id.as_str();
                let (output_index, content_index) = (*output_index, CONTENT_INDEX);
                let transcript = self.items.last().map_or("", |item| item.transcript.as_str());
                frames.push(renderer.frame(Body::AudioDone { response_id, item_id, output_index, content_index }));
                let done = Body::AudioTranscriptDone { response_id, item_id, output_index, content_index, transcript };
                frames.push(renderer.frame(done));
                let part = ContentPart::Audio { transcript };
                let done = Body::ContentPartDone { response_id, item_id, output_index, content_index, part };
                frames.push(renderer.frame(done));
            }
            Event::ReplyDone { output_index, item, place, .. } if matches!(item.body, ItemBody::Message { .. }) => {
                let (item, output_index) = (self.told(item), *output_index);
                let view = |spoken: &_| shown_item(&item, spoken, true);
                let done = |spoken: &_| Body::OutputItemDone { response_id, output_index, item: view(spoken) };
                frames.push(renderer.shown(done));
                if let Some(Placed { previous_item_id }) = place {
                    let previous_item_id = previous_item_id.as_deref();
                    frames.push(renderer.shown(|spoken| Body::ItemDone { previous_item_id, item: view(spoken) }));
                }
            }
            Event::ResponseDone { response } => {
                let output = response.output.iter().map(|item| self.told(item)).collect();
                let response = Response { output, ..Response::clone(response) };
                let message = self.failed.as_ref().map(Error::to_string).unwrap_or_default();
                let ended = match (self.stopped, &self.failed) {
                    (Some(SpokenStop::TurnDetected), _) => Some(SpokenEnd::Cancelled { reason: "turn_detected" }),
                    (Some(SpokenStop::ClientCancelled), _) => Some(SpokenEnd::Cancelled { reason: "client_cancelled" }),
                    (None, Some(error)) => Some(SpokenEnd::Failed { code: error.code(), message: &message }),
                    (None, None) => None,
                };
                let done = |spoken: &_| Body::ResponseDone { response: shown_response(&response, spoken, ended) };
                frames.push(renderer.shown(done));
            }
            event => renderer.render(event, frames),
        }
    }

    // Returns an item with the words that the client was told.
    fn told(&self, item: &Item) -> Item {
        let mut told = item.clone();
        let said = self.items.iter().find(|said| said.item_id == item.id).filter(|_| self.stopped.is_some());
        if let (Some(said), ItemBody::Message { parts, .. }) = (said, &mut told.body) {
            parts.truncate(1);
            if let Some(text) = parts.first_mut() {
                text.clone_from(&said.transcript);
            }
        }
        told
    }
}

impl SpokenMessage {
    fn heard_chars(&self, ms: u64) -> usize {
        self.spoken.heard_chars(ms).max(self.before)
    }

    fn stop_playing(&mut self, now: u64) -> HeardPart {
        self.playback.stop(now);
        (self.item_id.clone(), self.heard_chars(self.playback.played_ms(now)))
    }
}
