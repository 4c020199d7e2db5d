//! A response that stands in no durable session: its prompt is what the client sent, and what it goes on from.

use super::input::check_results;
use super::parse::ResponsesRequest;
use crate::ApiError;
use prompt::PLACEHOLDER;
use replies::CompletionRequest;
use session::{Message, MessageRole, Prompt, TemplateOptions};

/// A whole conversation.
pub fn check_input(messages: &[Message]) -> Result<(), ApiError> {
    if messages.is_empty() {
        let message = "input is empty: say something";
        return Err(ApiError::bad("missing_required_parameter", message).param("input"));
    }
    Ok(check_results(messages)?)
}

pub fn completion_request(request: ResponsesRequest) -> Result<CompletionRequest, ApiError> {
    check_input(&request.input)?;
    Ok(CompletionRequest {
        prompt: prompt(&request, request.input.clone()),
        model: request.model,
        max_tokens: request.max_output_tokens,
        options: request.options,
        tool_choice: request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        priority: request.priority,
        session_id: None,
        choices: 1,
        attempt: None,
        scope: request.scope,
    })
}

/// The prompt of what will be said next.
pub fn prompt_ahead(request: &ResponsesRequest) -> Prompt {
    let mut messages = request.input.clone();
    messages.push(Message::new(MessageRole::User, PLACEHOLDER));
    prompt(request, messages)
}

fn prompt(request: &ResponsesRequest, mut messages: Vec<Message>) -> Prompt {
    let instructions = request.instructions.clone().filter(|text| !text.is_empty());
    messages.splice(0..0, instructions.map(|text| Message::new(MessageRole::System, text)));
    let reasoning_effort = request.reasoning_effort.clone();
    let options = TemplateOptions { reasoning_effort, ..TemplateOptions::default() };
    Prompt { messages, tools: request.tools.clone(), options }
}
