//! While the user speaks, and in the silence: the prompt that will be needed is warmed.

use super::core::{Machine, Moment};
use super::happening::{GenerationId, Millis};
use super::output::{Generate, GenerationPurpose, Output};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Warming {
    /// What the next prompt will contain has changed since it was last warmed.
    pub wanted: bool,
    /// When that was first seen.
    since: Option<Millis>,
    pub running: Option<GenerationId>,
    /// When the last one was asked for.
    asked_at: Option<Millis>,
}

impl Machine {
    pub(super) fn update_buffer(&mut self, text: String) {
        if self.buffer != text {
            self.buffer = text;
            self.warming.wanted = true;
        }
    }

    /// Asks for a speculation if one is wanted, allowed and due; it takes the place of the one that is running.
    pub(super) fn warm(&mut self, moment: &mut Moment) {
        if !self.warming.wanted {
            self.warming.since = None;
        } else if self.warming.since.is_none() {
            self.warming.since = Some(moment.now);
        }
        if self.warming_deadline().is_none_or(|due| due > moment.now) {
            return;
        }
        self.stop_warming(moment);
        let generation = self.next_generation();
        let purpose = match self.buffer.is_empty() {
            true => GenerationPurpose::WarmHistory,
            false => GenerationPurpose::WarmPartial(self.buffer.clone()),
        };
        moment.out.push(Output::Generate(Box::new(Generate {
            generation,
            response_id: None,
            purpose,
            items: self.conversation.snapshot(),
            context: self.context.clone(),
            config: Arc::new(self.config.clone()),
            options: Arc::default(),
            max_tokens: Some(0),
        })));
        let asked_at = Some(moment.now);
        self.warming = Warming { wanted: false, since: None, running: Some(generation), asked_at };
    }

    /// While a reply is being made the past still changes, so there is nothing to warm. The first words of the user are
    /// warmed at once; for anything else there is time, and most likely the client goes on.
    pub(super) fn warming_deadline(&self) -> Option<Millis> {
        let pause_ms = self.limits.speculate_ms?;
        let free = self.warming.wanted && !self.is_replying() && !self.clients.is_empty() && !self.draining;
        let from =
            if self.buffer.is_empty() { self.warming.asked_at.max(self.warming.since) } else { self.warming.asked_at };
        free.then(|| from.map_or(0, |from| from.saturating_add(pause_ms)))
    }

    pub(super) fn stop_warming(&mut self, moment: &mut Moment) {
        if let Some(generation) = self.warming.running.take() {
            moment.out.push(Output::CancelGenerate { generation });
        }
    }
}
