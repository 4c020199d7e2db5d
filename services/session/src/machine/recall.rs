//! The tool with which the model searches what is no longer in its prompt.

use crate::ids::is_hidden_id;
use crate::prompt::Context;
use crate::vocabulary::{Item, SessionConfig, Tool};

pub const RECALL: &str = "recall";

/// The beginning of the ids of calls that the service makes and answers.
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

/// Tells whether the service made the item by itself: a call with its answer, or a note of the past.
pub fn is_hidden(item: &Item) -> bool {
    is_hidden_id(&item.id)
}
