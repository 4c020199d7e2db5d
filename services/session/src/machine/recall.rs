//! The tool with which the model searches the past that its prompt lacks.

use crate::context::Context;
use crate::ids::is_hidden_id;
use crate::vocabulary::{Item, SessionConfig, Tool};

pub const RECALL: &str = "recall";

/// Prefix of the ids of calls that the service makes and answers.
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

/// True if the prompt offers the tool. A client that has a tool of this name keeps its own.
pub fn has_recall(config: &SessionConfig, context: &Context) -> bool {
    context.recall && config.tools.iter().all(|tool| tool.name != RECALL)
}

pub fn is_hidden(item: &Item) -> bool {
    is_hidden_id(&item.id)
}
