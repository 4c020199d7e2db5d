//! Replies of a session: those in progress, and those that wait for their report.

use super::input::{GenerationId, Millis, OpId};
use super::ledger::Ledger;
use super::outbox::Undo;
use super::output::{Output, StoreOp};
use super::reply::Reply;
use crate::vocabulary::{Delta, Ending, Event, Failure, FailureCode, Finish, Item, Refusal, TurnReport};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub struct Replies {
    /// Replies in progress: at most one in the conversation, some beside it.
    pub open: Vec<Reply>,
    ended: VecDeque<Ended>,
    most_beside: usize,
}

#[derive(Clone, Debug)]
struct Ended {
    generation: GenerationId,
    response_id: String,
    times: TurnReport,
}

impl Replies {
    pub fn new(most_beside: usize) -> Replies {
        Replies { open: Vec::new(), ended: VecDeque::new(), most_beside }
    }

    pub fn active(&self) -> Option<&Reply> {
        self.open.iter().find(|reply| reply.in_conversation())
    }

    pub fn open_item(&self, item_id: &str) -> Option<&Item> {
        self.open.iter().filter_map(Reply::open_item).find(|item| item.id == item_id)
    }

    pub fn check_room(&self, in_conversation: bool) -> Result<(), Refusal> {
        let (active, limit) = (self.active(), self.most_beside);
        match active {
            Some(reply) if in_conversation => Err(Refusal::ResponseActive { response_id: reply.response.id.clone() }),
            _ if in_conversation || self.open.len() - usize::from(active.is_some()) < limit => Ok(()),
            _ => Err(Refusal::TooManyResponses { limit }),
        }
    }

    pub fn of_generation(&mut self, generation: GenerationId) -> Option<&mut Reply> {
        self.open.iter_mut().find(|reply| reply.generation == generation)
    }

    fn of_response(&mut self, response_id: &str) -> Option<&mut Reply> {
        self.open.iter_mut().find(|reply| reply.response.id == response_id)
    }

    pub fn cancel(&mut self, is_meant: impl Fn(&Reply) -> bool, ledger: &mut Ledger, now: Millis) -> bool {
        let before = self.open.len();
        while let Some(index) = self.open.iter().position(&is_meant) {
            self.end(index, Finish::Cancelled.ending(), ledger, now);
        }
        self.open.len() < before
    }

    pub fn stop_thinking(&mut self, response_id: Option<&str>, ledger: &mut Ledger) -> Result<(), Refusal> {
        let is_meant = |reply: &&mut Reply| match response_id {
            None => reply.in_conversation(),
            Some(id) => reply.response.id == id,
        };
        let reply = self.open.iter_mut().find(is_meant).ok_or(Refusal::NothingThinks)?;
        reply.stop_thinking(ledger);
        Ok(())
    }

    fn end(&mut self, index: usize, ending: Ending, ledger: &mut Ledger, now: Millis) {
        let generation = self.open[index].generation;
        ledger.outbox.at_once(Output::CancelGenerate { generation });
        let ended = self.conclude(index, ending, ledger, now);
        if self.ended.len() > self.most_beside {
            self.ended.pop_front(); // a model that never answered
        }
        self.ended.push_back(ended);
    }

    fn conclude(&mut self, index: usize, ending: Ending, ledger: &mut Ledger, now: Millis) -> Ended {
        let mut reply = self.open.remove(index);
        let times = reply.conclude(ending, ledger, now);
        Ended { generation: reply.generation, response_id: reply.response.id, times }
    }

    pub fn delta(&mut self, generation: GenerationId, delta: Delta, ledger: &mut Ledger, now: Millis) {
        let index = self.open.iter().position(|reply| reply.generation == generation);
        match (delta, index) {
            (Delta::Done { finish, usage, report }, Some(index)) => {
                let reply = &mut self.open[index];
                reply.usage = usage.unwrap_or(reply.usage);
                let is_whole = matches!(finish, Finish::Stop | Finish::ToolCalls);
                if is_whole && reply.searches(ledger) {
                    return;
                }
                let ended = self.conclude(index, finish.ending(), ledger, now);
                ended.report(report, ledger);
            }
            (Delta::Failed(failure), Some(index)) => drop(self.conclude(index, failure.ending(), ledger, now)),
            (delta, Some(index)) => self.open[index].delta(delta, ledger, now),
            // The report of a reply that ended before.
            (Delta::Done { report, .. }, None) => {
                let index = self.ended.iter().position(|ended| ended.generation == generation);
                if let Some(ended) = index.and_then(|index| self.ended.remove(index)) {
                    ended.report(report, ledger);
                }
            }
            (_, None) => {}
        }
    }

    pub fn said(&mut self, item_id: &str, bytes: usize, ledger: &mut Ledger) {
        if let Some(reply) = self.open.iter_mut().find(|reply| reply.is_saying(item_id)) {
            reply.said(bytes, ledger);
        }
    }

    /// Handles the answer to an operation that extends a message; `lost_bytes` of it are not stored.
    pub fn extended(&mut self, response_id: &str, op: OpId, lost_bytes: usize, ledger: &mut Ledger) {
        if let Some(reply) = self.of_response(response_id) {
            reply.extended(op, lost_bytes);
            // After a failure they go with the next words.
            if lost_bytes == 0 {
                reply.said(0, ledger);
            }
        }
    }

    pub fn cut_off(&mut self, response_id: &str, item_id: &str, bytes: usize) {
        if let Some(reply) = self.of_response(response_id) {
            reply.cut_off(item_id, bytes);
        }
    }

    pub fn forget_item(&mut self, response_id: &str, item_id: &str, ledger: &mut Ledger) {
        if let Some(reply) = self.of_response(response_id) {
            reply.forget_item(item_id);
        } else if let Some(response) = ledger.outbox.unsaid_end(response_id) {
            response.output.retain(|item| item.id != item_id);
        }
    }

    /// Ends a reply as failed because the store refused it: at once if it is in progress, else in its waiting end.
    pub fn fail(&mut self, response_id: &str, message: &str, ledger: &mut Ledger, now: Millis) {
        let failure = Failure::new(FailureCode::StoreFailed, format!("the reply could not be stored: {message}"));
        if let Some(index) = self.open.iter().position(|reply| reply.response.id == response_id) {
            return self.end(index, failure.ending(), ledger, now);
        }
        let Ledger { outbox, conversation, .. } = ledger;
        if let Some(response) = outbox.unsaid_end(response_id) {
            (response.status, response.details) = failure.ending();
            response.output.retain(|item| response.conversation_id.is_none() || conversation.has(&item.id));
        }
    }
}

impl Ended {
    fn report(self, report: Option<TurnReport>, ledger: &mut Ledger) {
        let Ended { response_id, times, .. } = self;
        let TurnReport { first_token_ms, first_sentence_ms, total_ms, expects_answer, .. } = times;
        if let Some(report) = report {
            let report = TurnReport { first_token_ms, first_sentence_ms, total_ms, expects_answer, ..report };
            ledger.outbox.send(Event::Reported { response_id: response_id.clone(), report: report.clone() });
            ledger.outbox.store(StoreOp::ResponseReported { response_id, report }, Undo::Nothing);
        }
    }
}
