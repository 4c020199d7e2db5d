//! Timing of speculations: when the next prompt warms, and when an early reply begins.

use super::input::{GenerationId, Millis};

#[derive(Clone, Debug, Default)]
pub struct Warming {
    pub buffer: String,
    wanted: bool,
    since: Option<Millis>,
    is_news: bool,
    still_since: Option<Millis>,
    pub running: Option<GenerationId>,
    asked_at: Option<Millis>,
    // True behind a reply until the next prompt is warm. A client that reads one reply, as over HTTP, leaves with it and comes
    // back with the next turn.
    outlives_clients: bool,
}

impl Warming {
    pub fn hear(&mut self, text: String) {
        if self.buffer != text {
            self.buffer = text;
            self.changed();
        }
    }

    pub fn changed(&mut self) {
        (self.wanted, self.is_news, self.still_since) = (true, true, None);
        self.outlives_clients = false;
    }

    pub fn reply_ended(&mut self, has_clients: bool) {
        self.changed();
        self.outlives_clients = has_clients;
    }

    pub fn outlives_clients(&self) -> bool {
        self.outlives_clients && (self.wanted || self.running.is_some())
    }

    pub fn look(&mut self, now: Millis) {
        self.since = self.since.or(Some(now)).filter(|_| self.wanted);
        self.still_since = self.still_since.or(Some(now)).filter(|_| self.is_news);
    }

    /// Returns the time of the early reply: `after_ms` behind the last change of the transcript.
    pub fn early_due(&self, after_ms: u64) -> Option<Millis> {
        let since = self.still_since.filter(|_| !self.buffer.trim().is_empty());
        since.map(|since| since.saturating_add(after_ms))
    }

    pub fn begun_early(&mut self, generation: GenerationId, now: Millis) {
        (self.is_news, self.still_since) = (false, None);
        self.begun(generation, now);
    }

    /// Returns the time of the next warm-up. The user's first words warm at once; anything else can wait, because the
    /// client will probably send more.
    pub fn due(&self, pause_ms: u64) -> Option<Millis> {
        let from = if self.buffer.is_empty() { self.asked_at.max(self.since) } else { self.asked_at };
        self.wanted.then(|| from.map_or(0, |from| from.saturating_add(pause_ms)))
    }

    pub fn begun(&mut self, generation: GenerationId, now: Millis) {
        (self.wanted, self.since, self.running, self.asked_at) = (false, None, Some(generation), Some(now));
    }
}
