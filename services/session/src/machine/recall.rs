//! The tool with which the model searches what is no longer in its prompt.

use super::core::{Machine, Moment};
use super::happening::{GenerationId, RecallResult};
use super::output::{Output, StoreOp};
use super::replies::{Open, Reply};
use super::storing::{Operation, Undo};
use crate::ids::Ids;
use crate::prompt::Context;
use crate::vocabulary::{Event, Item, ItemBody, ItemPlace, ItemStatus, SessionConfig, Tool, ToolChoice};
use std::sync::Arc;

pub const RECALL: &str = "recall";

/// Calls with such an id were made and answered by the service: clients never hear of them as items.
pub const RECALL_CALL_ID: &str = "recall_";

pub fn recall_tool() -> Tool {
    let description = "Searches everything that was ever said in this conversation, also what you no longer see. \
                       Use it when the user refers to something that you do not find above.";
    let parameters = r#"{"type":"object","properties":{"query":{"type":"string","description":"Words that were said then."}},"required":["query"]}"#;
    Tool {
        name: RECALL.to_owned(),
        description: Some(description.to_owned()),
        parameters: Some(parameters.into()),
        verbatim: None,
    }
}

/// Whether the tool is in the prompt. A client that has a tool of this name keeps its own.
pub fn has_recall(config: &SessionConfig, context: &Context) -> bool {
    context.recall && config.tools.iter().all(|tool| tool.name != RECALL)
}

/// A search that the model has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    pub call_id: String,
    pub arguments: String,
}

impl Recall {
    pub fn new(ids: &mut Ids, arguments: String) -> Recall {
        Recall { call_id: ids.next(RECALL_CALL_ID.trim_end_matches('_')), arguments }
    }
}

impl Machine {
    pub(super) fn is_recall(&self, reply: &Reply, name: &str) -> bool {
        let asked = reply.asked.as_ref().filter(|_| reply.recalls_left > 0);
        name == RECALL && asked.is_some_and(|asked| has_recall(&asked.config, &self.context))
    }

    pub(super) fn begin_recall(&mut self, reply: &mut Reply) {
        self.close_open(reply, ItemStatus::Completed);
        reply.open = Some(Open::Recall { arguments: String::new() });
    }

    /// The model is done, with searches: it goes on when they are answered. False: it is done indeed.
    pub(super) fn searches(&mut self, reply: &mut Reply, moment: &mut Moment) -> bool {
        if !matches!(reply.open, Some(Open::Recall { .. })) && reply.recalls.is_empty() {
            return false;
        }
        self.close_open(reply, ItemStatus::Completed);
        let is_call = |item: &Item| matches!(item.body, ItemBody::FunctionCall { .. });
        // The client answers the other calls, and then the model may search again.
        if reply.response.output.iter().any(is_call) {
            return false;
        }
        let before = match reply.reserved.take() {
            Some((reserved, _)) => self.withdraw(reply.generation, reserved).flatten(),
            None => reply.response.output.last().map(|item| item.id.clone()),
        };
        reply.behind = before;
        for recall in reply.recalls.clone() {
            let Recall { call_id, arguments } = recall;
            self.add_hidden(reply, ItemBody::FunctionCall { call_id, name: RECALL.to_owned(), arguments });
        }
        let arguments = reply.recalls.iter().map(|recall| recall.arguments.clone()).collect();
        let shown = reply.asked.as_ref().map(|asked| asked.items.clone()).unwrap_or_default();
        moment.out.push(Output::Recall { generation: reply.generation, arguments, shown });
        true
    }

    /// The reply goes on with what was found.
    pub(super) fn recalled(&mut self, generation: GenerationId, results: &[RecallResult], moment: &mut Moment) {
        let Some(index) = self.replies.iter().position(|reply| reply.generation == generation) else { return };
        let mut reply = self.replies.remove(index);
        let recalls = std::mem::take(&mut reply.recalls);
        for (index, Recall { call_id, .. }) in recalls.into_iter().enumerate() {
            let RecallResult { query, text, places } = results.get(index).cloned().unwrap_or_default();
            self.add_hidden(&mut reply, ItemBody::FunctionCallOutput { call_id, output: text });
            let response_id = reply.response.id.clone();
            self.tell(&reply, None, Event::RecallDone { response_id, query, places });
        }
        reply.recalls_left = reply.recalls_left.saturating_sub(1);
        if let Some(asked) = &mut reply.asked {
            asked.context = self.context.clone();
            asked.items = self.conversation.snapshot();
            if reply.recalls_left == 0 {
                // The tools stay in the prompt, which would be another one without them.
                let config = SessionConfig { tool_choice: ToolChoice::None, ..SessionConfig::clone(&asked.config) };
                asked.config = Arc::new(config);
            }
            moment.out.push(Output::Generate(asked.clone()));
        }
        self.replies.push(reply);
    }

    /// An item that is kept and stands in the prompt, and of which clients are not told.
    fn add_hidden(&mut self, reply: &mut Reply, body: ItemBody) {
        let item = Item::new(self.new_item_id(), body, ItemStatus::Completed);
        let place = reply.behind.clone().map_or(ItemPlace::End, ItemPlace::After);
        let after = self.conversation.insert(item.clone(), false, &place);
        reply.behind = Some(item.id.clone());
        let operation = Operation::own(Undo::Added(item.id.clone()));
        self.queue_operation(StoreOp::ItemAdded { item, after }, operation, false, Some(reply.generation));
    }
}

/// Items of calls that the service made and answered.
pub fn is_hidden(item: &Item) -> bool {
    match &item.body {
        ItemBody::FunctionCall { call_id, .. } | ItemBody::FunctionCallOutput { call_id, .. } => {
            call_id.starts_with(RECALL_CALL_ID)
        }
        ItemBody::Message { .. } => false,
    }
}
