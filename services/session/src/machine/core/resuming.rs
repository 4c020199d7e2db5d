use super::Machine;
use crate::machine::held::HeldReply;
use crate::machine::input::{GenerationId, OpId};
use crate::machine::outbox::Undo;
use crate::machine::output::{Output, StoreOp};
use crate::machine::reply::Reply;
use crate::vocabulary::{
    Delta, Failure, FailureCode, Item, ItemStatus, MaxTokens, NewItem, Refusal, Response, ResponseRequest,
    ResponseStatus, ResumeRequest, Role,
};
use std::sync::Arc;

impl Machine {
    /// Remembers the conversation's reply, if `is_meant` matches it, before it is cancelled.
    pub(super) fn hold(&mut self, is_meant: impl Fn(&Reply) -> bool) {
        let Some(reply) = self.replies.active().filter(|reply| is_meant(reply)) else { return };
        let until = self.now.saturating_add(self.limits.resume_ms);
        // The reply was about to resume, and the model had not stopped yet.
        if let Some(held) = self.held.as_mut().filter(|held| held.wanted == Some(reply.generation)) {
            (held.wanted, held.until, held.goes_on) = (None, until, false);
            return;
        }
        self.held = reply.hold().filter(|_| self.limits.resume_ms > 0).map(|held| held.until(until));
    }

    /// Remembers the item before a client cuts or deletes it. A complete reply may resume too if it is the last one.
    pub(super) fn hold_what_is_cut(&mut self, item_id: &str) {
        let is_said = |item: &Arc<Item>| item.role() == Some(Role::Assistant);
        let is_known = self.ledger.conversation.announced(item_id).is_some_and(is_said);
        if self.is_replying() || !is_known || self.held.as_ref().is_some_and(|held| held.is_about(item_id)) {
            return;
        }
        let is_reply = |item: &&Arc<Item>| item.id == item_id && item.status == ItemStatus::Completed;
        let last = self.ledger.conversation.last_announced().filter(is_reply).filter(|_| self.limits.resume_ms > 0);
        let until = self.now.saturating_add(self.limits.resume_ms);
        self.held = last.map(|item| HeldReply::cut_short(Item::clone(item)).until(until));
    }

    pub(super) fn hold_deleted(&mut self, item_id: &str) {
        match self.held.as_mut().filter(|held| held.is_about(item_id)) {
            Some(held) => held.delete(),
            None => self.let_go(),
        }
    }

    pub(super) fn held_hears(&mut self, item: &NewItem) {
        let outlives = self.held.as_mut().is_some_and(|held| held.outlives(item, &self.backchannels));
        if !outlives {
            self.let_go();
        }
    }

    pub(super) fn let_go(&mut self) {
        self.held.take_if(|held| held.wanted.is_none());
    }

    pub(super) fn held_says(&mut self, generation: GenerationId, delta: &Delta) {
        let Some(held) = self.held.as_mut().filter(|held| held.generation == generation) else { return };
        if !held.hear(delta) {
            return;
        }
        let Some(wanted) = held.wanted else {
            self.held.take_if(|held| held.is_lost());
            return;
        };
        let Some((held, reply)) = self.held.take().zip(self.replies.of_generation(wanted)) else { return };
        if held.is_lost() {
            let message = "what was computed of the reply is not there any more; ask for a new one";
            let failed = Delta::Failed(Failure::new(FailureCode::EngineFailed, message));
            return self.replies.delta(wanted, failed, &mut self.ledger, self.now);
        }
        // The conversation may have covered the item since.
        let heard = reply.open_item().map(Item::text).unwrap_or_default();
        self.ledger.outbox.at_once(Output::Resume(Box::new(held.resume(wanted, &heard))));
    }

    /// True for a plain request after no interruption: it means that the stopped reply resumes.
    pub(super) fn is_resume(&self, request: &ResponseRequest) -> bool {
        *request == ResponseRequest::default() && self.held.as_ref().is_some_and(|held| held.goes_on)
    }

    pub(super) fn resume(&mut self, asked: &ResumeRequest) -> Result<(), Refusal> {
        self.replies.check_room(true)?;
        // No client heard an item that the store has not begun.
        let is_begun = |item: &Item| !self.ledger.outbox.begins(&item.id);
        let can = |held: &&HeldReply| self.now <= held.until && held.item.as_ref().is_none_or(is_begun);
        let heard = self.held.as_ref().filter(can);
        let heard = heard.and_then(|held| held.heard(asked, self.words_per_minute, &self.ledger.conversation));
        let held = self.held.take_if(|_| heard.is_some());
        let (Some(heard), Some(mut held)) = (heard, held) else { return Err(Refusal::NothingToResume) };
        self.stop_warming();
        let generation = self.next_generation();
        let response = self.new_response(true, held.max_output_tokens);
        let response_id = response.id.clone();
        let begun = StoreOp::ResponseStarted {
            response_id: response.id.clone(),
            in_conversation: true,
            metadata: None,
            of_request: None,
        };
        self.ledger.outbox.store(begun, Undo::Reply { response_id: response.id.clone() });
        let mut generate = held.asked.take();
        if let Some(generate) = &mut generate {
            (generate.generation, generate.response_id) = (generation, Some(response_id));
        }
        let mut reply = Reply::new(generation, response, generate.clone(), held.recalls_left);
        match held.item_from(&heard) {
            Some(item) => reply.resume(item, &mut self.ledger, self.now),
            None => reply.start(&mut self.ledger, self.now),
        }
        self.replies.open.push(reply);
        if held.has_stopped() {
            self.ledger.outbox.at_once(Output::Resume(Box::new(held.resume(generation, &heard))));
        } else {
            (held.wanted, held.asked) = (Some(generation), generate);
            self.held = Some(held);
        }
        Ok(())
    }

    pub(super) fn new_response(&mut self, in_conversation: bool, max_output_tokens: MaxTokens) -> Response {
        Response {
            id: self.ledger.ids.next("resp"),
            status: ResponseStatus::InProgress,
            details: None,
            output: Vec::new(),
            conversation_id: in_conversation.then(|| self.conversation_id.clone()),
            max_output_tokens,
            usage: None,
            metadata: None,
        }
    }

    pub(super) fn was_not_resumed(&mut self, op: OpId, response_id: &str, item: Arc<Item>, why: &str) {
        self.ledger.outbox.forget_item(op, &item.id);
        self.replies.forget_item(response_id, &item.id, &mut self.ledger);
        self.ledger.restore_text(op, item);
        self.replies.fail(response_id, why, &mut self.ledger, self.now);
    }
}
