//! Audio of a client: decoded, brought to the rate of the ears, and cut into turns.

use super::super::audio::{AudioConfig, AudioFormat};
use super::super::frames::Body;
use super::{Talk, commit_empty};
use crate::openai_realtime::Renderer;
use runtime::heavy;
use settings::SpeechSettings;
use speech::pcm::SampleBytes;
use speech::{HEARD_RATE, HeardAudio, Hearing, Resampler, TurnEvent, ending_of, g711};

pub struct Microphone {
    hearing: Hearing,
    format: AudioFormat,
    bytes: SampleBytes,
    resampler: Option<Resampler>,
}

// Milliseconds of the shortest turn by hand.
const SHORTEST_MS: u64 = 100;
// Part of an append that is decoded at once.
const PIECE_BYTES: usize = 64 << 10; // not a window: bytes of audio

impl Microphone {
    pub fn new(audio: &AudioConfig, settings: &SpeechSettings) -> Microphone {
        let mut hearing = Hearing::by_hand(speech::samples_of(settings.turn_s * 1000, HEARD_RATE));
        hearing.detect(audio.detection(settings.pause_ms));
        let resampler = Resampler::new(audio.input.rate(), HEARD_RATE);
        Microphone { hearing, format: audio.input, bytes: SampleBytes::default(), resampler }
    }

    pub fn set(&mut self, audio: &AudioConfig, settings: &SpeechSettings) {
        self.hearing.detect(audio.detection(settings.pause_ms));
        if self.format != audio.input {
            self.format = audio.input;
            (self.bytes, self.resampler) = (SampleBytes::default(), Resampler::new(audio.input.rate(), HEARD_RATE));
        }
    }

    fn hear(&mut self, piece: &[u8], events: &mut Vec<TurnEvent<HeardAudio>>) {
        let samples = match self.format {
            AudioFormat::Pcm => self.bytes.push(piece),
            AudioFormat::MuLaw => piece.iter().map(|byte| g711::mu_law_to_sample(*byte)).collect(),
            AudioFormat::ALaw => piece.iter().map(|byte| g711::a_law_to_sample(*byte)).collect(),
        };
        let samples = match &mut self.resampler {
            Some(resampler) => resampler.push(&samples),
            None => samples,
        };
        let heard = self.hearing.hear(&samples);
        // Each pause holds a copy of the turn: only the newest is kept.
        if !heard.is_empty() {
            events.pop_if(|event| matches!(event, TurnEvent::Paused { .. }));
        }
        events.extend(heard);
    }

    // Forgets what was heard. What comes next is another stream, which begins with a whole sample.
    pub fn clear(&mut self) {
        self.hearing.clear();
        (self.bytes, self.resampler) = (SampleBytes::default(), Resampler::new(self.format.rate(), HEARD_RATE));
    }

    pub fn is_speaking(&self) -> bool {
        self.hearing.is_speaking()
    }

    pub fn kept_bytes(&self) -> usize {
        self.hearing.kept_bytes()
    }

    pub fn heard_ms(&self) -> u64 {
        self.hearing.heard_ms()
    }

    pub fn judge(&mut self, text: &str) -> Vec<TurnEvent<HeardAudio>> {
        self.hearing.judge(ending_of(text))
    }
}

impl Talk {
    pub(super) async fn listen(&mut self, bytes: &[u8], renderer: &mut Renderer, frames: &mut Vec<String>) {
        if self.servers.ears.is_none() || !self.memory.has_room(bytes.len()) {
            return;
        }
        let mut events = Vec::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            heavy::run(piece.len(), || self.microphone.hear(piece, &mut events)).await;
        }
        self.follow(events, renderer, frames).await;
        if let Some(ears) = &self.servers.ears {
            let most_bytes = self.app.replies.settings.limits.item_bytes;
            self.turns.hear_on(ears, &self.microphone.hearing, renderer.audio.language().as_deref(), most_bytes);
        }
    }

    /// Does what turns that began and ended ask for.
    pub(super) async fn follow(
        &mut self,
        events: Vec<TurnEvent<HeardAudio>>,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        for event in events {
            match event {
                TurnEvent::Began { start } => {
                    self.idle_at = None;
                    let item_id = self.turns.begin(renderer.next_id("item"));
                    let audio_start_ms = speech::ms_of(start, HEARD_RATE);
                    frames.push(renderer.frame(Body::SpeechStarted { audio_start_ms, item_id: &item_id }));
                    if renderer.audio.turns.is_some_and(|turns| turns.interrupt_response) {
                        self.interrupt(renderer, frames).await;
                    }
                }
                TurnEvent::Paused { so_far } => {
                    if let Some(ears) = &self.servers.ears {
                        self.turns.look(ears.clone(), so_far, renderer.audio.language());
                    }
                }
                TurnEvent::Resumed => self.turns.look_away(),
                TurnEvent::Ended { turn } => {
                    let item_id = self.turns.open_id(renderer);
                    let audio_end_ms = turn.end_ms();
                    frames.push(renderer.frame(Body::SpeechStopped { audio_end_ms, item_id: &item_id }));
                    let respond = renderer.audio.turns.is_some_and(|turns| turns.create_response);
                    self.commit_turn(item_id, turn, respond, renderer, frames);
                }
            }
        }
        self.count_memory();
    }

    /// Ends a turn by hand.
    pub(super) fn commit(&mut self, event_id: Option<String>, renderer: &mut Renderer, frames: &mut Vec<String>) {
        let kept_ms = self.microphone.hearing.kept_ms();
        if kept_ms < SHORTEST_MS || self.servers.ears.is_none() {
            if self.servers.ears.is_some() {
                frames.push(renderer.error(&commit_empty(event_id, kept_ms)));
            }
            return;
        }
        let (item_id, turn) = (self.turns.open_id(renderer), self.microphone.hearing.take());
        self.turns.look_away();
        self.commit_turn(item_id, turn, false, renderer, frames);
    }

    fn commit_turn(
        &mut self,
        item_id: String,
        turn: HeardAudio,
        respond: bool,
        renderer: &mut Renderer,
        frames: &mut Vec<String>,
    ) {
        let previous_item_id = self.turns.last_id().or(self.last_item.as_deref()).map(str::to_owned);
        renderer.spoken.add(&item_id, self.app.replies.settings.speech.kept_items);
        let previous_item_id = previous_item_id.as_deref();
        frames.push(renderer.frame(Body::InputAudioBufferCommitted { item_id: &item_id, previous_item_id }));
        if let Some(ears) = &self.servers.ears {
            self.turns.end(ears.clone(), item_id, turn, respond, renderer.audio.language());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Settings, Sources};

    #[test]
    fn what_comes_behind_a_clear_is_not_shifted_by_half_a_sample() {
        let settings = Settings::load(&Sources::default()).unwrap().settings.speech;
        let mut audio = AudioConfig::new(true, false);
        audio.turns = None;
        let said = speech::pcm::to_bytes(&speech::vowel(audio.input.rate(), 200));
        let heard = |before: &[u8]| {
            let mut microphone = Microphone::new(&audio, &settings);
            microphone.hear(before, &mut Vec::new());
            microphone.clear();
            microphone.hear(&said, &mut Vec::new());
            microphone.hearing.take().samples
        };
        assert_eq!(heard(&[1, 2, 3]), heard(&[]));
    }
}
