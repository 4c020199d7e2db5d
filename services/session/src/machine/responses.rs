//! Responses as a whole: asked for, cancelled, over.

use super::core::{Machine, Moment};
use super::happening::{GenerationId, Millis};
use super::output::{Generate, GenerationPurpose, Output, StoreOp};
use super::replies::{Reply, ReplyTimes, empty_message};
use super::storing::{Operation, Undo};
use crate::prompt::Context;
use crate::vocabulary::{
    ConversationChoice, Event, Failure, Finish, InputItem, Item, ItemPlace, ItemStatus, Refusal, Response,
    ResponseRequest, ResponseStatus, StatusDetails, TurnReport, Usage,
};
use std::sync::Arc;

/// How a response ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Completed,
    MaxTokens,
    Cancelled,
    Failed(Failure),
}

/// A reply that is over for the clients; what it cost is still to be told.
#[derive(Clone, Debug)]
pub struct Ended {
    pub generation: GenerationId,
    pub response_id: String,
    pub times: ReplyTimes,
}

impl End {
    pub fn of(finish: Finish) -> End {
        match finish {
            Finish::Stop | Finish::ToolCalls | Finish::Warm => End::Completed,
            Finish::Length => End::MaxTokens,
            Finish::Cancelled => End::Cancelled,
        }
    }
}

impl Machine {
    pub(super) fn create_response(&mut self, request: &ResponseRequest, moment: &mut Moment) -> Result<(), Refusal> {
        let in_conversation = self.is_for_conversation(request)?;
        self.check_room(in_conversation)?;
        let (items, context) = match &request.input {
            None => (self.conversation.snapshot(), self.context.clone()),
            Some(input) => (self.resolve_input(input)?, Arc::new(Context::default())),
        };
        let mut config = self.config.clone();
        config.apply(&request.config);
        let config = Arc::new(config);
        let generation = self.next_generation();
        let response = Response {
            id: self.ids.next("resp"),
            status: ResponseStatus::InProgress,
            details: None,
            output: Vec::new(),
            conversation_id: in_conversation.then(|| self.conversation_id.clone()),
            max_output_tokens: config.max_output_tokens,
            usage: None,
            metadata: request.metadata.clone(),
        };

        // The model first: nothing else needs to be fast.
        if in_conversation {
            self.stop_warming(moment);
        }
        let generate = Box::new(Generate {
            generation,
            response_id: Some(response.id.clone()),
            purpose: if in_conversation { GenerationPurpose::Reply } else { GenerationPurpose::BesideConversation },
            items,
            context,
            max_tokens: config.max_output_tokens.limit(),
            config,
            options: Arc::new(request.options.clone()),
        });
        let asked = in_conversation.then(|| generate.clone());
        moment.out.push(Output::Generate(generate));

        let op = StoreOp::ResponseStarted {
            response_id: response.id.clone(),
            in_conversation,
            metadata: response.metadata.clone(),
        };
        self.queue_operation(op, Operation::own(Undo::Reply(generation)), false, Some(generation));
        let mut reply = Reply {
            generation,
            in_conversation,
            response,
            usage: Usage::default(),
            created_at: moment.now,
            first_token_at: None,
            first_sentence_at: None,
            reserved: None,
            open: None,
            outputs: 0,
            sent: 0,
            stored: 0,
            storing: None,
            asked,
            recalls_left: self.limits.recalls,
            recalls: Vec::new(),
            behind: None,
        };
        if in_conversation {
            self.reserve_place(&mut reply);
        }
        self.tell(&reply, None, Event::ResponseStarted { response: Box::new(reply.response.clone()) });
        self.replies.push(reply);
        Ok(())
    }

    /// The answer stands behind what it answers, whatever is added before its first word.
    fn reserve_place(&mut self, reply: &mut Reply) {
        let item = empty_message(&self.new_item_id());
        let item_id = item.id.clone();
        let after = self.conversation.insert(item.clone(), false, &ItemPlace::End);
        let op = StoreOp::ReplyBegun { response_id: reply.response.id.clone(), item, after };
        let undo = Undo::Begun(reply.generation, item_id.clone());
        let op = self.queue_operation(op, Operation::own(undo), false, Some(reply.generation));
        reply.reserved = Some((item_id, op));
    }

    fn is_for_conversation(&self, request: &ResponseRequest) -> Result<bool, Refusal> {
        match &request.conversation {
            ConversationChoice::Auto => Ok(true),
            ConversationChoice::None => Ok(false),
            ConversationChoice::Named(id) if *id == self.conversation_id => Ok(true),
            ConversationChoice::Named(id) => Err(Refusal::NoSuchConversation { conversation_id: id.clone() }),
        }
    }

    fn check_room(&self, in_conversation: bool) -> Result<(), Refusal> {
        if in_conversation {
            return match self.replies.iter().find(|reply| reply.in_conversation) {
                None => Ok(()),
                Some(reply) => Err(Refusal::ResponseActive { response_id: reply.response.id.clone() }),
            };
        }
        let beside = self.replies.iter().filter(|reply| !reply.in_conversation).count();
        let limit = self.limits.responses_beside;
        if beside < limit { Ok(()) } else { Err(Refusal::TooManyResponses { limit }) }
    }

    fn resolve_input(&mut self, input: &[InputItem]) -> Result<Vec<Arc<Item>>, Refusal> {
        let mut items = Vec::with_capacity(input.len());
        for (index, item) in input.iter().enumerate() {
            items.push(match item {
                InputItem::Item(item) => Arc::new(self.complete_item(item.clone())),
                InputItem::Reference(id) => match self.conversation.announced(id) {
                    Some(item) if item.status != ItemStatus::InProgress => item.clone(),
                    _ => return Err(Refusal::NoSuchReference { item_id: id.clone(), index }),
                },
            });
        }
        Ok(items)
    }

    pub(super) fn cancel_response(&mut self, response_id: Option<&str>, moment: &mut Moment) -> Result<(), Refusal> {
        let index = self.replies.iter().position(|reply| match response_id {
            None => reply.in_conversation,
            Some(id) => reply.response.id == id,
        });
        match index {
            Some(index) => {
                let reply = self.replies.remove(index);
                self.end_reply(reply, End::Cancelled, moment);
                Ok(())
            }
            None => Err(Refusal::NoActiveResponse),
        }
    }

    pub(super) fn cancel_all(&mut self, moment: &mut Moment) {
        for reply in std::mem::take(&mut self.replies) {
            self.end_reply(reply, End::Cancelled, moment);
        }
    }

    /// Ends a reply that the model still makes: for the clients it is over now.
    pub(super) fn end_reply(&mut self, reply: Reply, end: End, moment: &mut Moment) {
        let generation = reply.generation;
        moment.out.push(Output::CancelGenerate { generation });
        let response_id = reply.response.id.clone();
        let times = self.conclude(reply, end, moment.now);
        if self.ended.len() > self.limits.responses_beside {
            self.ended.pop_front(); // a model that never answered
        }
        self.ended.push_back(Ended { generation, response_id, times });
    }

    /// Tells how a reply ended, and keeps it.
    pub(super) fn conclude(&mut self, mut reply: Reply, end: End, now: Millis) -> ReplyTimes {
        let (item_status, status, details) = match end {
            End::Completed => (ItemStatus::Completed, ResponseStatus::Completed, None),
            End::MaxTokens => {
                (ItemStatus::Incomplete, ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens))
            }
            End::Cancelled => (ItemStatus::Incomplete, ResponseStatus::Cancelled, Some(StatusDetails::Cancelled)),
            End::Failed(failure) => {
                (ItemStatus::Incomplete, ResponseStatus::Failed, Some(StatusDetails::Failed(failure)))
            }
        };
        self.close_open(&mut reply, item_status);
        if let Some((item_id, _)) = reply.reserved.take() {
            self.withdraw(reply.generation, item_id);
        }
        reply.response.status = status;
        reply.response.details = details.clone();
        reply.response.usage = Some(reply.usage);
        let response_id = reply.response.id.clone();
        let op = StoreOp::ResponseFinished { response_id, status, details, usage: reply.usage };
        let undo = Undo::Reply(reply.generation);
        let op = self.queue_operation(op, Operation::own(undo), false, Some(reply.generation));
        let response = Box::new(reply.response.clone());
        self.tell(&reply, Some(op), Event::ResponseDone { response });
        self.warming.wanted |= reply.in_conversation;
        reply.times(now)
    }

    /// The model tells what a reply cost that ended before.
    pub(super) fn late_report(&mut self, generation: GenerationId, report: Option<TurnReport>) {
        let Some(index) = self.ended.iter().position(|ended| ended.generation == generation) else { return };
        let Some(Ended { response_id, times, .. }) = self.ended.remove(index) else { return };
        if let Some(report) = report {
            self.report(response_id, report, times);
        }
    }

    /// What the model measured, with the times as the clients saw them.
    pub(super) fn report(&mut self, response_id: String, report: TurnReport, times: ReplyTimes) {
        let ReplyTimes { first_token_ms, first_sentence_ms, total_ms } = times;
        let report = TurnReport { first_token_ms, first_sentence_ms, total_ms, ..report };
        self.send(Event::Reported { response_id: response_id.clone(), report: report.clone() });
        self.store(StoreOp::ResponseReported { response_id, report }, Operation::own(Undo::Nothing));
    }

    pub(super) fn next_generation(&mut self) -> GenerationId {
        self.generation_count += 1;
        GenerationId(self.generation_count)
    }
}
