//! A completion in a durable session: one more client of the session's task, which says what is new, asks for a response
//! and reads along.
//!
//! So what is said over HTTP is kept, seen by the session's websockets, and never two replies at once.

use super::Chat;
use super::prompt::text_of;
use super::request::ChatRequest;
use crate::backend::{Answer, Failure, FailureCode, Finish, Piece, Report, Usage, Writer, channel};
use crate::live::{Attach, Connected, End, ToWrite, Written};
use crate::manner::TokenLogprob;
use crate::realtime::{ClientEvent, ItemBody, MaxTokens, NewItem, Received, ResponseParams, Role, SessionUpdate, Tool};
use crate::server::ApiError;
use crate::turn::Replay;
use serde_json::{Map, Value, json};
use store::{Identity, new_id};

/// Asks for a session that is not there yet.
const NEW: &str = "new";

/// The messages are those that are new. A system message among them at the head is the session's instructions from now
/// on; tools and sampling hold for this response. Returns the answer and the session's id.
pub async fn answer(
    chat: &Chat,
    identity: &Identity,
    id: &str,
    request: ChatRequest,
) -> Result<(Answer, String), ApiError> {
    let said = Said::new(&request)?;
    let session = match id {
        NEW => chat.live.create(&identity.user, &request.model, None).await?,
        id => chat.store.open_session(&identity.user, id).await?,
    };
    let (connected, written) = chat.live.attach(&session, Attach { extensions: true, replay: Replay::Nothing }).await?;
    let mark = new_id("chat")?;
    let (writer, answer) = channel();
    tokio::spawn(async move {
        let (response_id, logprobs) = (None, Vec::new());
        let mut listening = Listening { connected, written, writer, mark, response_id, calls: 0, logprobs, done: None };
        listening.run(said).await;
    });
    Ok((answer, session.id().to_owned()))
}

/// What the client says, as events of the session's protocol.
struct Said {
    instructions: Option<String>,
    items: Vec<ItemBody>,
    response: ResponseParams,
}

impl Said {
    fn new(request: &ChatRequest) -> Result<Said, ApiError> {
        let mut messages = request.chat.messages.iter().peekable();
        let instructions = messages.next_if(|message| message["role"] == "system").map(text_of);
        let mut items = Vec::new();
        for message in messages {
            push_items(&mut items, message)?;
        }
        let tools = request.chat.tools.iter().map(tool).collect::<Option<Vec<_>>>();
        let tools = tools.ok_or_else(|| ApiError::bad("invalid_value", "a tool has no name").param("tools"))?;
        let effort = request.chat.options.get("reasoning_effort").and_then(Value::as_str);
        let response = ResponseParams {
            tools: (!tools.is_empty()).then_some(tools),
            tool_choice: Some(request.tool_choice.clone()),
            max_output_tokens: request.max_tokens.map(MaxTokens::Tokens),
            temperature: request.manner.sampling.temperature.map(f64::from),
            manner: request.manner.clone(),
            reasoning_effort: effort.map(str::to_owned),
            parallel_tool_calls: Some(request.parallel_tool_calls),
            ..ResponseParams::default()
        };
        Ok(Said { instructions, items, response })
    }
}

fn push_items(items: &mut Vec<ItemBody>, message: &Value) -> Result<(), ApiError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = text_of(message);
    match message["role"].as_str() {
        Some("system") => items.push(ItemBody::message(Role::System, words)),
        Some("user") => items.push(ItemBody::message(Role::User, words)),
        Some("tool") => {
            items.push(ItemBody::FunctionCallOutput { call_id: text(&message["tool_call_id"]), output: words });
        }
        Some("assistant") => {
            if !words.is_empty() {
                items.push(ItemBody::message(Role::Assistant, words));
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = call.get("function").unwrap_or(call);
                items.push(ItemBody::FunctionCall {
                    call_id: text(&call["id"]),
                    name: text(&function["name"]),
                    arguments: function["arguments"].to_string(),
                });
            }
        }
        other => {
            let message = format!("a message has the role {other:?}; use system, user, assistant or tool");
            return Err(ApiError::bad("invalid_value", message).param("messages"));
        }
    }
    Ok(())
}

fn tool(tool: &Value) -> Option<Tool> {
    let function = tool.get("function").unwrap_or(tool);
    Some(Tool {
        kind: Default::default(),
        name: function.get("name")?.as_str()?.to_owned(),
        description: function.get("description").and_then(Value::as_str).map(str::to_owned),
        parameters: function.get("parameters").filter(|parameters| parameters.is_object()).cloned(),
    })
}

/// Reads what the session says and passes on what belongs to this answer.
struct Listening {
    connected: Connected,
    written: Written,
    writer: Writer,
    /// By which our events and our response are known among those of others.
    mark: String,
    response_id: Option<String>,
    calls: usize,
    /// Of the text that comes next.
    logprobs: Vec<TokenLogprob>,
    /// The response is done; its report is still to come.
    done: Option<(Finish, Usage)>,
}

/// Whether the answer goes on.
enum Next {
    More,
    Over,
}

impl Listening {
    async fn run(&mut self, said: Said) {
        if !self.say_all(said).await {
            return self.fail(FailureCode::Unavailable, "the session is not there any more");
        }
        let mut cancelled = false;
        loop {
            let next = tokio::select! {
                next = self.written.next() => next,
                () = self.writer.cancelled(), if !cancelled => {
                    // The session says when it is over, and keeps what was sent.
                    cancelled = true;
                    let response_id = self.response_id.clone();
                    self.say(ClientEvent::ResponseCancel { response_id }).await;
                    continue;
                }
            };
            let frame = match next {
                ToWrite::Frame(frame) => frame,
                ToWrite::End(End::Draining) => return self.fail(FailureCode::Unavailable, "the service stops"),
                ToWrite::End(_) => return self.fail(FailureCode::Unavailable, "the session ended"),
            };
            let event: Value = serde_json::from_str(&frame).unwrap_or_default();
            let next = self.heard(&event);
            // What was passed on is on its way to the client, so the session may keep it.
            self.written.done(1);
            if matches!(next, Next::Over) {
                return;
            }
        }
    }

    async fn say_all(&self, said: Said) -> bool {
        let Said { instructions, items, mut response } = said;
        if let Some(instructions) = instructions {
            let update = SessionUpdate { instructions: Some(instructions), ..SessionUpdate::default() };
            if !self.say(ClientEvent::SessionUpdate(Box::new(update))).await {
                return false;
            }
        }
        for body in items {
            let item = NewItem { id: None, body };
            if !self.say(ClientEvent::ItemCreate { item, previous_item_id: None }).await {
                return false;
            }
        }
        response.metadata = Some(Map::from_iter([("client_event_id".to_owned(), json!(self.mark))]));
        self.say(ClientEvent::ResponseCreate(Box::new(response))).await
    }

    async fn say(&self, event: ClientEvent) -> bool {
        self.connected.say(Received { event_id: Some(self.mark.clone()), event }).await
    }

    fn heard(&mut self, event: &Value) -> Next {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "error" && event["error"]["event_id"] == self.mark.as_str() {
            let (code, message) = (text(&event["error"]["code"]), text(&event["error"]["message"]));
            // Too late to cancel is no trouble.
            if code == "response_cancel_not_active" {
                return self.over(Finish::Cancelled, Usage::default(), Report::default());
            }
            let code = match code.as_str() {
                "conversation_already_has_active_response" => FailureCode::Conflict,
                "store_failed" | "server_error" => FailureCode::EngineFailed,
                _ => FailureCode::InvalidRequest,
            };
            self.fail(code, &message);
            return Next::Over;
        }
        if kind == "response.created" && event["response"]["metadata"]["client_event_id"] == self.mark.as_str() {
            self.response_id = event["response"]["id"].as_str().map(str::to_owned);
            self.writer.push(Piece::Prompt { input_tokens: 0, cached_tokens: 0 });
            return Next::More;
        }
        let about = event["response_id"].as_str().or(event["response"]["id"].as_str());
        if self.response_id.is_none() || about != self.response_id.as_deref() {
            return Next::More;
        }
        match kind {
            "response.output_text.delta" => {
                let logprobs = std::mem::take(&mut self.logprobs);
                self.writer.push(Piece::Content { text: text(&event["delta"]), tokens: 0, logprobs });
            }
            "response.output_text.logprobs" => {
                let tokens = event["logprobs"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.logprobs.extend(tokens.iter().filter_map(TokenLogprob::from_value));
            }
            "response.output_item.added" if event["item"]["type"] == "function_call" => {
                self.calls += 1;
                let call_id = event["item"]["call_id"].as_str().map(str::to_owned);
                self.writer.push(Piece::CallStarted { name: text(&event["item"]["name"]), call_id });
            }
            "response.function_call_arguments.delta" => {
                self.writer.push(Piece::CallArguments { json: text(&event["delta"]), tokens: 0 });
            }
            "response.done" => return self.response_done(&event["response"]),
            "turn.report" => {
                if let Some((finish, usage)) = self.done.take() {
                    return self.over(finish, usage, report_of(event));
                }
            }
            _ => {}
        }
        Next::More
    }

    fn response_done(&mut self, response: &Value) -> Next {
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let usage = Usage {
            input_tokens: count(&response["usage"]["input_tokens"]),
            cached_tokens: count(&response["usage"]["input_token_details"]["cached_tokens"]),
            output_tokens: count(&response["usage"]["output_tokens"]),
            reasoning_tokens: 0,
        };
        let finish = match response["status"].as_str() {
            Some("completed") if self.calls > 0 => Finish::ToolCalls,
            Some("completed") => Finish::Stop,
            Some("incomplete") => Finish::Length,
            Some("cancelled") => return self.over(Finish::Cancelled, usage, Report::default()),
            _ => {
                let error = &response["status_details"]["error"];
                let code = match error["code"].as_str() {
                    Some("context_length_exceeded") => FailureCode::PromptTooLong,
                    Some("invalid_request") => FailureCode::InvalidRequest,
                    Some("busy") => FailureCode::Busy,
                    Some("model_unavailable") => FailureCode::Unavailable,
                    Some("upstream_failed") => FailureCode::UpstreamFailed,
                    Some("upstream_timeout") => FailureCode::UpstreamTimeout,
                    _ => FailureCode::EngineFailed,
                };
                self.fail(code, error["message"].as_str().unwrap_or("the response failed"));
                return Next::Over;
            }
        };
        self.done = Some((finish, usage));
        Next::More
    }

    fn over(&mut self, finish: Finish, usage: Usage, report: Report) -> Next {
        self.writer.push(Piece::Done { finish, usage, report });
        Next::Over
    }

    fn fail(&mut self, code: FailureCode, message: &str) {
        // What is done is done, whatever became of its report.
        if let Some((finish, usage)) = self.done.take() {
            self.over(finish, usage, Report::default());
        } else {
            self.writer.fail(Failure::new(code, message));
        }
    }
}

fn report_of(event: &Value) -> Report {
    let ms = |name: &str| event["ms"][name].as_f64();
    Report {
        reused_tokens: event["reused_tokens"].as_u64().unwrap_or(0),
        computed_tokens: event["computed_tokens"].as_u64().unwrap_or(0),
        reason: event["reason"].as_str().and_then(reason),
        queue_ms: ms("queue").unwrap_or(0.0),
        prefill_ms: ms("prefill").unwrap_or(0.0),
        first_token_ms: ms("first_token"),
        total_ms: ms("total").unwrap_or(0.0),
        ..Report::default()
    }
}

fn reason(word: &str) -> Option<&'static str> {
    ["cold", "new_text", "edited", "evicted", "other_model"].into_iter().find(|known| *known == word)
}
