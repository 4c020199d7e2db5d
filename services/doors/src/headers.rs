//! Headers and habits by which stock clients mark retries and side tasks.
//!
//! A side task is a frontend's request for a title, tags or the next questions of a conversation, often while the reply is
//! spoken. No user waits for it, and it is no turn of the conversation.

use axum::http::HeaderMap;
use replies::CompletionRequest;
use runtime::ModelChoice;
use session::{MessageRole, Priority};

/// Returns the client's own count of how often it sent this request before.
pub fn retries(headers: &HeaderMap) -> u32 {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok()?.parse().ok());
    count.unwrap_or(0)
}

/// Headers that name a side task, for frontends configured to send them. Empty for a turn.
const TASK_HEADERS: [&str; 2] = ["x-openwebui-task", "x-task"];
/// Begin of a side task's only user message.
const TASK: &str = "### Task:";

pub fn is_side_task(headers: &HeaderMap, stream: bool, request: &CompletionRequest) -> bool {
    let is_named = |name: &&str| headers.get(*name).is_some_and(|task| !task.as_bytes().trim_ascii().is_empty());
    let mut said = request.prompt.messages.iter().filter(|message| message.role != MessageRole::System);
    let is_worded =
        |only: &session::Message| only.role == MessageRole::User && only.text().trim_start().starts_with(TASK);
    TASK_HEADERS.iter().any(is_named) || (!stream && said.next().is_some_and(is_worded) && said.next().is_none())
}

/// Puts a side task behind all that users wait for, in no session, and as no persona: its own words say what it is to be.
pub fn set_aside(request: &mut CompletionRequest, choice: &mut ModelChoice) {
    request.session_id = None;
    request.priority = Priority::Background;
    choice.instructions.clear();
}
