//! Work ahead of a request: the next prompt warms, and a reply to the words so far begins early.

use super::Machine;
use crate::context::Context;
use crate::machine::input::{GenerationId, Millis};
use crate::machine::output::{Generate, Output};
use crate::vocabulary::{GenerationPurpose, Item, Role};
use std::sync::Arc;

impl Machine {
    /// Returns the time at which the machine needs a `Tick`. A reply in progress still changes the past, so there is
    /// nothing to warm.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.warm_due().into_iter().chain(self.early_due()).min()
    }

    fn is_free(&self) -> bool {
        let is_wanted = self.ledger.outbox.has_clients() || self.warming.outlives_clients();
        is_wanted && !self.is_replying() && !self.draining
    }

    fn warm_due(&self) -> Option<Millis> {
        self.warming.due(self.limits.speculate_ms.filter(|_| self.is_free())?)
    }

    /// Returns the time for an early reply, once its prompt is warm: during a long prefill, other sessions talk.
    fn early_due(&self) -> Option<Millis> {
        let is_warm = self.warming.running.is_none() && self.warm_due().is_none();
        self.warming.early_due(self.limits.early_ms.filter(|_| self.is_free() && is_warm)?)
    }

    /// Builds the request that warms the next turn's prompt with another context, before that context is used.
    pub fn ahead(&self, items: Vec<Arc<Item>>, context: Context) -> Generate {
        Generate {
            generation: GenerationId(0),
            response_id: None,
            purpose: GenerationPurpose::WarmHistory,
            is_beside: false,
            partial: None,
            items,
            context: Arc::new(context),
            config: self.next_config.clone(),
            options: Arc::default(),
            max_tokens: Some(0),
        }
    }

    /// Starts a speculation if one is wanted, allowed and due; it replaces the running one.
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
        let partial = Some(self.warming.buffer.clone()).filter(|words| !words.is_empty());
        let purpose = match partial {
            None => GenerationPurpose::WarmHistory,
            Some(_) => GenerationPurpose::WarmPartial,
        };
        let context = self.ledger.conversation.context().clone();
        let ahead = self.ahead(self.items(), Context::default());
        let generate = Generate { generation, purpose, partial, context, ..ahead };
        self.ledger.outbox.at_once(Output::Generate(Box::new(generate)));
        self.warming.begun(generation, self.now);
    }

    /// Starts a reply to the user's words so far. The model holds it back until the final words arrive.
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
