//! While the user speaks, and in the silence: when the prompt that will be needed is warmed, and when the reply is begun.

use super::happening::{GenerationId, Millis};

#[derive(Clone, Debug, Default)]
pub struct Warming {
    /// What the user is saying: the transcript so far.
    pub buffer: String,
    /// What the next prompt will contain has changed since it was last warmed.
    wanted: bool,
    /// When that was first seen.
    since: Option<Millis>,
    /// It has changed since a reply was last begun early.
    is_news: bool,
    /// Since when it has not changed.
    still_since: Option<Millis>,
    pub running: Option<GenerationId>,
    /// When the last one was asked for.
    asked_at: Option<Millis>,
}

impl Warming {
    pub fn hear(&mut self, text: String) {
        if self.buffer != text {
            self.buffer = text;
            self.changed();
        }
    }

    /// What the next prompt will contain has changed.
    pub fn changed(&mut self) {
        (self.wanted, self.is_news, self.still_since) = (true, true, None);
    }

    pub fn look(&mut self, now: Millis) {
        self.since = self.since.or(Some(now)).filter(|_| self.wanted);
        self.still_since = self.still_since.or(Some(now)).filter(|_| self.is_news);
    }

    /// When the reply to what the user has said so far is begun, if it stands still for so long.
    pub fn early_due(&self, after_ms: u64) -> Option<Millis> {
        let since = self.still_since.filter(|_| !self.buffer.trim().is_empty());
        since.map(|since| since.saturating_add(after_ms))
    }

    /// The prompt is warmed with it.
    pub fn begun_early(&mut self, generation: GenerationId, now: Millis) {
        (self.is_news, self.still_since) = (false, None);
        self.begun(generation, now);
    }

    /// The first words of the user are warmed at once; for anything else there is time, and most likely the client goes on.
    pub fn due(&self, pause_ms: u64) -> Option<Millis> {
        let from = if self.buffer.is_empty() { self.asked_at.max(self.since) } else { self.asked_at };
        self.wanted.then(|| from.map_or(0, |from| from.saturating_add(pause_ms)))
    }

    pub fn begun(&mut self, generation: GenerationId, now: Millis) {
        (self.wanted, self.since, self.running, self.asked_at) = (false, None, Some(generation), Some(now));
    }
}
