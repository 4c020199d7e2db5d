//! Side tasks: a frontend asks the model for a title, tags or the next questions, beside the conversation and often while the
//! reply is spoken. No user waits for them, and they are no turns of a conversation.

use axum::http::HeaderMap;
use replies::CompletionRequest;
use runtime::ModelChoice;
use session::{MessageRole, Priority};

/// Headers that name the task, where a frontend is told to write it. Empty for a turn.
const HEADERS: [&str; 2] = ["x-openwebui-task", "x-task"];
/// How the user's only message begins otherwise.
const TASK: &str = "### Task:";

pub fn is_side_task(headers: &HeaderMap, stream: bool, request: &CompletionRequest) -> bool {
    let is_named = |name: &&str| headers.get(*name).is_some_and(|task| !task.as_bytes().trim_ascii().is_empty());
    let mut said = request.prompt.messages.iter().filter(|message| message.role != MessageRole::System);
    let is_worded =
        |only: &session::Message| only.role == MessageRole::User && only.text().trim_start().starts_with(TASK);
    HEADERS.iter().any(is_named) || (!stream && said.next().is_some_and(is_worded) && said.next().is_none())
}

/// It is answered behind all that users wait for, in no session, and not as a persona: its own words say what it is to be.
pub fn set_aside(request: &mut CompletionRequest, choice: &mut ModelChoice) {
    request.session_id = None;
    request.priority = Priority::Background;
    choice.instructions.clear();
}
