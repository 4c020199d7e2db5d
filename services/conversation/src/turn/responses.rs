//! Responses as a whole: asked for, cancelled, over.

use super::conversation::Place;
use super::input::{Context, Finish, GenerationId, Millis, Report};
use super::machine::{Machine, Moment};
use super::output::{Generate, Output, Purpose, StoreOp};
use super::replies::{Reply, empty_message};
use super::storing::{Operation, Undo};
use crate::realtime::{
    ConversationChoice, ErrorBody, ErrorCode, EventKind, InputItem, Item, ItemStatus, Response, ResponseError,
    ResponseParams, ResponseStatus, SessionConfig, SessionUpdate, StatusDetails, TurnMs, Usage,
};
use std::sync::Arc;

/// How a response ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Completed,
    MaxTokens,
    Cancelled,
    Failed(ResponseError),
}

/// A reply that is over for the clients; what it cost is still to be told.
#[derive(Clone, Debug)]
pub struct Ended {
    pub generation: GenerationId,
    pub response_id: String,
    pub ms: TurnMs,
}

impl End {
    pub fn from_backend(finish: Finish) -> End {
        match finish {
            Finish::Stop => End::Completed,
            Finish::MaxTokens => End::MaxTokens,
            Finish::Cancelled => End::Cancelled,
        }
    }
}

impl Machine {
    pub(super) fn create_response(&mut self, params: &ResponseParams, moment: &mut Moment) -> Result<(), ErrorBody> {
        let in_conversation = self.is_for_conversation(params)?;
        self.check_room(in_conversation)?;
        let (items, context) = match &params.input {
            None => (self.conversation.snapshot(), self.context.clone()),
            Some(input) => (self.resolve_input(input)?, Arc::new(Context::default())),
        };
        let config = Arc::new(self.config_of(params));
        let generation = self.next_generation();
        let mut response = Response::new(&self.ids.next("resp"), ResponseStatus::InProgress);
        response.conversation_id = in_conversation.then(|| self.conversation_id.clone());
        response.max_output_tokens = config.max_output_tokens;
        response.metadata = params.metadata.clone();

        // The backend first: nothing else needs to be fast.
        if in_conversation {
            self.stop_warming(moment);
        }
        let generate = Box::new(Generate {
            generation,
            response_id: Some(response.id.clone()),
            purpose: if in_conversation { Purpose::Reply } else { Purpose::Beside },
            items,
            context,
            max_tokens: config.max_output_tokens.limit(),
            config,
            manner: Arc::new(params.manner.clone()),
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
        self.tell(&reply, None, EventKind::ResponseCreated { response: Box::new(reply.response.clone()) });
        self.replies.push(reply);
        Ok(())
    }

    /// The answer stands behind what it answers, whatever is added before its first word.
    fn reserve_place(&mut self, reply: &mut Reply) {
        let item = empty_message(&self.new_item_id());
        let item_id = item.id.clone();
        let after = self.conversation.insert(item.clone(), false, Place::End);
        let op = StoreOp::ReplyBegun { response_id: reply.response.id.clone(), item, after };
        let undo = Undo::Begun(reply.generation, item_id.clone());
        let op = self.queue_operation(op, Operation::own(undo), false, Some(reply.generation));
        reply.reserved = Some((item_id, op));
    }

    fn is_for_conversation(&self, params: &ResponseParams) -> Result<bool, ErrorBody> {
        match &params.conversation {
            ConversationChoice::Auto => Ok(true),
            ConversationChoice::None => Ok(false),
            ConversationChoice::Named(id) if *id == self.conversation_id => Ok(true),
            ConversationChoice::Named(id) => {
                let message = format!("there is no conversation '{id}' here: use auto or none");
                Err(ErrorBody::new(ErrorCode::InvalidValue, message).param("response.conversation"))
            }
        }
    }

    fn check_room(&self, in_conversation: bool) -> Result<(), ErrorBody> {
        if in_conversation {
            return match self.replies.iter().find(|reply| reply.in_conversation) {
                None => Ok(()),
                Some(reply) => {
                    let message = format!(
                        "the conversation already has an active response ({}): wait for response.done, or cancel it",
                        reply.response.id
                    );
                    Err(ErrorBody::new(ErrorCode::ConversationAlreadyHasActiveResponse, message))
                }
            };
        }
        let beside = self.replies.iter().filter(|reply| !reply.in_conversation).count();
        if beside < self.limits.responses_beside {
            return Ok(());
        }
        let message = format!("at most {} responses may run beside the conversation", self.limits.responses_beside);
        Err(ErrorBody::new(ErrorCode::TooManyResponses, message))
    }

    fn resolve_input(&mut self, input: &[InputItem]) -> Result<Vec<Arc<Item>>, ErrorBody> {
        let mut items = Vec::with_capacity(input.len());
        for (index, item) in input.iter().enumerate() {
            items.push(match item {
                InputItem::Item(item) => Arc::new(self.complete_item(item.clone())),
                InputItem::Reference(id) => match self.conversation.announced(id) {
                    Some(item) if item.status != ItemStatus::InProgress => item.clone(),
                    _ => {
                        let message = format!("there is no item '{id}' that is complete");
                        let error = ErrorBody::new(ErrorCode::ItemReferenceInvalidItemId, message);
                        return Err(error.param(format!("response.input[{index}].id")));
                    }
                },
            });
        }
        Ok(items)
    }

    /// The session's settings with those of the response in their place.
    fn config_of(&self, params: &ResponseParams) -> SessionConfig {
        let mut config = self.config.clone();
        config.apply(&SessionUpdate {
            instructions: params.instructions.clone(),
            tools: params.tools.clone(),
            tool_choice: params.tool_choice.clone(),
            max_output_tokens: params.max_output_tokens,
            temperature: params.temperature.map(Some),
            reasoning_effort: params.reasoning_effort.clone().map(Some),
            parallel_tool_calls: params.parallel_tool_calls,
            extensions: None,
        });
        config
    }

    pub(super) fn cancel_response(&mut self, response_id: Option<&str>, moment: &mut Moment) -> Result<(), ErrorBody> {
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
            // Stock clients know this message by its first words.
            None => {
                let message = "Cancellation failed: no active response found";
                Err(ErrorBody::new(ErrorCode::ResponseCancelNotActive, message))
            }
        }
    }

    pub(super) fn cancel_all(&mut self, moment: &mut Moment) {
        for reply in std::mem::take(&mut self.replies) {
            self.end_reply(reply, End::Cancelled, moment);
        }
    }

    /// Ends a reply that the backend still makes: for the clients it is over now.
    pub(super) fn end_reply(&mut self, reply: Reply, end: End, moment: &mut Moment) {
        let generation = reply.generation;
        moment.out.push(Output::CancelGenerate { generation });
        let response_id = reply.response.id.clone();
        let ms = self.conclude(reply, end, moment.now);
        if self.ended.len() > self.limits.responses_beside {
            self.ended.pop_front(); // a backend that never answered
        }
        self.ended.push_back(Ended { generation, response_id, ms });
    }

    /// Tells how a reply ended, and keeps it.
    pub(super) fn conclude(&mut self, mut reply: Reply, end: End, now: Millis) -> TurnMs {
        let (item_status, status, details) = match end {
            End::Completed => (ItemStatus::Completed, ResponseStatus::Completed, None),
            End::MaxTokens => {
                (ItemStatus::Incomplete, ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens))
            }
            End::Cancelled => (ItemStatus::Incomplete, ResponseStatus::Cancelled, Some(StatusDetails::Cancelled)),
            End::Failed(error) => (ItemStatus::Incomplete, ResponseStatus::Failed, Some(StatusDetails::Failed(error))),
        };
        let speak_rest = matches!(status, ResponseStatus::Completed | ResponseStatus::Incomplete);
        self.close_open(&mut reply, item_status, speak_rest, now);
        if let Some((item_id, _)) = reply.reserved.take() {
            self.withdraw(reply.generation, item_id);
        }
        reply.response.status = status;
        reply.response.status_details = details.clone();
        reply.response.usage = Some(reply.usage);
        let response_id = reply.response.id.clone();
        let op = StoreOp::ResponseFinished { response_id, status, details, usage: reply.usage };
        let undo = Undo::Reply(reply.generation);
        let op = self.queue_operation(op, Operation::own(undo), false, Some(reply.generation));
        let response = Box::new(reply.response.clone());
        self.tell(&reply, Some(op), EventKind::ResponseDone { response });
        self.warming.wanted |= reply.in_conversation;
        reply.times(now)
    }

    /// The backend tells what a reply cost that ended before.
    pub(super) fn late_report(&mut self, generation: GenerationId, report: Option<Report>) {
        let Some(index) = self.ended.iter().position(|ended| ended.generation == generation) else { return };
        let Some(Ended { response_id, ms, .. }) = self.ended.remove(index) else { return };
        if let Some(report) = report {
            self.report(response_id, report, ms);
        }
    }

    pub(super) fn report(&mut self, response_id: String, report: Report, ms: TurnMs) {
        let ms = TurnMs { queue: report.queue_ms, prefill: report.prefill_ms, ..ms };
        self.send(EventKind::TurnReport {
            response_id: response_id.clone(),
            reused_tokens: report.reused_tokens,
            computed_tokens: report.computed_tokens,
            reason: report.reason.clone(),
            ms,
        });
        self.store(StoreOp::ResponseReported { response_id, report, ms }, Operation::own(Undo::Nothing));
    }

    pub(super) fn next_generation(&mut self) -> GenerationId {
        self.generation_count += 1;
        GenerationId(self.generation_count)
    }
}
