//! What is computed before it is asked for: the prompt that will be needed, and the reply to what the user seems to have said.

use super::Machine;
use crate::machine::happening::{GenerationId, Millis};
use crate::machine::output::{Generate, GenerationPurpose, Output};
use crate::prompt::Context;
use crate::vocabulary::{Item, Role};
use std::sync::Arc;

impl Machine {
    /// When `Tick` is wanted, if nothing else happens before. While a reply is being made the past still changes, so there
    /// is nothing to warm.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.warm_due().into_iter().chain(self.early_due()).min()
    }

    fn is_free(&self) -> bool {
        !self.is_replying() && self.ledger.outbox.has_clients() && !self.draining
    }

    fn warm_due(&self) -> Option<Millis> {
        self.warming.due(self.limits.speculate_ms.filter(|_| self.is_free())?)
    }

    /// A reply is begun when its prompt is warm: where a prompt takes long, others talk.
    fn early_due(&self) -> Option<Millis> {
        let is_warm = self.warming.running.is_none() && self.warm_due().is_none();
        self.warming.early_due(self.limits.early_ms.filter(|_| self.is_free() && is_warm)?)
    }

    /// The prompt of the next turn with another view of the past, to be warmed before it is used.
    pub fn ahead(&self, items: Vec<Arc<Item>>, context: Context) -> Generate {
        Generate {
            generation: GenerationId(0),
            response_id: None,
            purpose: GenerationPurpose::WarmHistory,
            items,
            context: Arc::new(context),
            config: self.next_config.clone(),
            options: Arc::default(),
            max_tokens: Some(0),
        }
    }

    /// Asks for a speculation if one is wanted, allowed and due; it takes the place of the one that is running.
    pub(super) fn warm(&mut self) {
        self.warming.look(self.now);
        if self.early_due().is_some_and(|due| due <= self.now) {
            return self.begin_early();
        }
        if self.warm_due().is_none_or(|due| due > self.now) {
            return;
        }
        self.stop_warming();
        let generation = self.next_generation();
        let purpose = match self.warming.buffer.is_empty() {
            true => GenerationPurpose::WarmHistory,
            false => GenerationPurpose::WarmPartial(self.warming.buffer.clone()),
        };
        let context = self.ledger.conversation.context().clone();
        let ahead = self.ahead(self.items(), Context::default());
        let generate = Generate { generation, purpose, context, ..ahead };
        self.ledger.outbox.at_once(Output::Generate(Box::new(generate)));
        self.warming.begun(generation, self.now);
    }

    /// Asks for the reply to what the user has said so far, which the model holds back until the final words are known.
    fn begin_early(&mut self) {
        self.stop_warming();
        let generation = self.next_generation();
        let mut items = self.items();
        items.push(Arc::new(Item::message("", Role::User, &self.warming.buffer)));
        let purpose = GenerationPurpose::EarlyReply;
        let (context, max_tokens) =
            (self.ledger.conversation.context().clone(), self.next_config.max_output_tokens.limit());
        let generate = Generate { generation, purpose, context, max_tokens, ..self.ahead(items, Context::default()) };
        self.ledger.outbox.at_once(Output::Generate(Box::new(generate)));
        self.warming.begun_early(generation, self.now);
    }

    pub(super) fn stop_warming(&mut self) {
        if let Some(generation) = self.warming.running.take() {
            self.ledger.outbox.at_once(Output::CancelGenerate { generation });
        }
    }
}
