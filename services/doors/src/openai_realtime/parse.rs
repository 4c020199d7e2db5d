//! What a client may say, to what a session takes. `parse` never fails otherwise than with an error event's body.

use super::fields::Fields;
use super::{ErrorBody, ErrorCode};
use crate::json::{json_text, tool_choice_of};
use serde_json::{Map, Value};
use session::{
    ConfigUpdate, ConversationChoice, GenerationOptions, Heard, Input, InputItem, ItemBody, ItemPlace, JsonText,
    MaxTokens, NewItem, ResponseRequest, Role, Tool, ToolChoice,
};
use settings::Settings;

/// How large the parts of an event may be; the values come from the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Text of one item, of instructions, of a partial transcript, of metadata, of one tool.
    pub item_bytes: usize,
    pub tools: usize,
    /// Length of an id that a client chooses.
    pub id_chars: usize,
}

pub fn event_limits(settings: &Settings) -> Limits {
    let limits = &settings.limits;
    Limits { item_bytes: limits.item_bytes, tools: limits.tools, id_chars: limits.id_chars }
}

/// A client's event with the id that the client gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub event_id: Option<String>,
    pub input: Input,
    /// Whether only a connection that opted in to the extensions may say this.
    pub is_extension: bool,
    /// The extensions that the connection opts in to from now on.
    pub extensions: Option<Vec<String>>,
}

/// Reads one text message of the websocket.
pub fn parse(message: &str, limits: &Limits) -> Result<Received, ErrorBody> {
    let map: Map<String, Value> = serde_json::from_str(message).map_err(|cause| {
        ErrorBody::new(ErrorCode::InvalidJson, format!("the message is not a JSON object: {cause}"))
    })?;
    let fields = Fields::new(&map);
    // An id that is not text cannot be echoed; the event itself may still be fine.
    let event_id = match fields.value("event_id").and_then(Value::as_str) {
        Some(id) if id.chars().count() > limits.id_chars => {
            return Err(fields.too_large("event_id", limits.id_chars, "characters"));
        }
        id => id.map(str::to_owned),
    };
    let read = || -> Read<(Input, Option<Vec<String>>)> {
        let input = input(&fields, limits)?;
        let session = if matches!(input, Input::Configure(_)) { fields.object("session")? } else { None };
        Ok((input, session.map(|session| extensions(&session)).transpose()?.flatten()))
    };
    match read() {
        Ok((input, extensions)) => {
            let is_extension = matches!(
                input,
                Input::Hear { .. } | Input::HeardAll { .. } | Input::TruncateItem { heard: Heard::Chars(_), .. }
            );
            Ok(Received { event_id, input, is_extension, extensions })
        }
        Err(error) => Err(error.caused_by(event_id)),
    }
}

type Read<T> = Result<T, ErrorBody>;

fn input(fields: &Fields, limits: &Limits) -> Read<Input> {
    let kind = fields.required_text("type")?;
    Ok(match kind {
        "session.update" => Input::Configure(Box::new(session(&fields.required_object("session")?, limits)?)),
        "conversation.item.create" => Input::AddItem {
            item: item(&fields.required_object("item")?, limits)?,
            place: match fields.text("previous_item_id")? {
                None => ItemPlace::End,
                Some("root") => ItemPlace::Head,
                Some(id) => ItemPlace::After(id.to_owned()),
            },
        },
        "conversation.item.retrieve" => Input::ReadItem { item_id: fields.required_text("item_id")?.to_owned() },
        "conversation.item.delete" => Input::DeleteItem { item_id: fields.required_text("item_id")?.to_owned() },
        "conversation.item.truncate" => truncate(fields)?,
        "response.create" => {
            let params = fields.object("response")?.map(|params| response(&params, limits)).transpose()?;
            Input::Respond(Box::new(params.unwrap_or_default()))
        }
        "response.cancel" => Input::CancelResponse { response_id: fields.text("response_id")?.map(str::to_owned) },
        "input_audio_buffer.clear" => Input::DropSpeech,
        "input_text_buffer.update" => {
            Input::Hear { text: bounded(fields, "text", fields.required_text("text")?, limits)? }
        }
        "input_text_buffer.commit" => Input::HeardAll {
            text: fields.text("text")?.map(|text| bounded(fields, "text", text, limits)).transpose()?,
            item_id: id(fields, "item_id", limits)?,
            respond: fields.flag("create_response")?.unwrap_or(true),
        },
        "input_text_buffer.clear" => Input::Hear { text: String::new() },
        kind if kind.starts_with("input_audio_buffer.") || kind.starts_with("output_audio_buffer.") => {
            return Err(ErrorBody::new(
                ErrorCode::AudioNotSupported,
                "this server takes no audio: send what the user said as text with conversation.item.create and \
                 response.create, or with the extension events input_text_buffer.update and input_text_buffer.commit",
            )
            .param("type"));
        }
        kind => {
            let kind: String = kind.chars().take(limits.id_chars).collect();
            return Err(fields.invalid("type", format!("there is no event '{kind}'")));
        }
    })
}

fn truncate(fields: &Fields) -> Read<Input> {
    let text_end = fields.count("text_end")?.map(|end| Heard::Chars(usize::try_from(end).unwrap_or(usize::MAX)));
    let heard = match (text_end, fields.count("audio_end_ms")?) {
        (Some(heard), _) => heard,
        (None, Some(ms)) => Heard::Ms(ms),
        (None, None) => return Err(fields.missing("audio_end_ms")),
    };
    let content_index = fields.count("content_index")?.unwrap_or(0);
    Ok(Input::TruncateItem {
        item_id: fields.required_text("item_id")?.to_owned(),
        part: usize::try_from(content_index).unwrap_or(usize::MAX),
        heard,
    })
}

/// A session as `session.update` has it, from a request that is no websocket's.
pub fn session_update(session: &Value, limits: &Limits) -> Result<ConfigUpdate, ErrorBody> {
    let map = Map::from_iter([("session".to_owned(), session.clone())]);
    match Fields::new(&map).object("session")? {
        Some(fields) => self::session(&fields, limits),
        None => Ok(ConfigUpdate::default()),
    }
}

fn extensions(session: &Fields) -> Read<Option<Vec<String>>> {
    let Some(names) = session.list("extensions")? else { return Ok(None) };
    let texts = names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>();
    texts.map(Some).ok_or_else(|| session.invalid("extensions", "a list of names"))
}

fn session(fields: &Fields, limits: &Limits) -> Read<ConfigUpdate> {
    if let Some(kind) = fields.text("type")?
        && kind != "realtime"
    {
        return Err(fields.invalid("type", "only sessions of type 'realtime'"));
    }
    fields.list("output_modalities")?;
    let temperature = match temperature(fields)? {
        None if fields.is_null("temperature") => Some(None),
        given => given.map(Some),
    };
    let reasoning_effort = match reasoning_effort(fields)? {
        None if fields.is_null("reasoning") => Some(None),
        given => given.map(Some),
    };
    Ok(ConfigUpdate {
        instructions: instructions(fields, limits)?,
        tools: tools(fields, limits)?,
        tool_choice: tool_choice(fields)?,
        max_output_tokens: max_output_tokens(fields)?,
        temperature,
        reasoning_effort,
        parallel_tool_calls: fields.flag("parallel_tool_calls")?,
    })
}

fn response(fields: &Fields, limits: &Limits) -> Read<ResponseRequest> {
    fields.list("output_modalities")?;
    let conversation = match fields.text("conversation")? {
        None | Some("auto") => ConversationChoice::Auto,
        Some("none") => ConversationChoice::None,
        Some(name) => ConversationChoice::Named(name.to_owned()),
    };
    let input = match fields.objects("input")? {
        None => None,
        Some(items) => Some(items.iter().map(|fields| input_item(fields, limits)).collect::<Read<Vec<_>>>()?),
    };
    Ok(ResponseRequest {
        conversation,
        input,
        config: ConfigUpdate {
            instructions: instructions(fields, limits)?,
            tools: tools(fields, limits)?,
            tool_choice: tool_choice(fields)?,
            max_output_tokens: max_output_tokens(fields)?,
            temperature: temperature(fields)?.map(Some),
            reasoning_effort: reasoning_effort(fields)?.map(Some),
            parallel_tool_calls: fields.flag("parallel_tool_calls")?,
        },
        options: GenerationOptions::default(),
        metadata: metadata(fields, limits)?,
    })
}

fn input_item(fields: &Fields, limits: &Limits) -> Read<InputItem> {
    if fields.text("type")? == Some("item_reference") {
        return Ok(InputItem::Reference(fields.required_text("id")?.to_owned()));
    }
    Ok(InputItem::Item(item(fields, limits)?))
}

fn item(fields: &Fields, limits: &Limits) -> Read<NewItem> {
    let body = match fields.required_text("type")? {
        "message" => message(fields)?,
        "function_call" => ItemBody::FunctionCall {
            call_id: id(fields, "call_id", limits)?.unwrap_or_default(),
            name: fields.required_text("name")?.to_owned(),
            arguments: fields.text("arguments")?.unwrap_or("{}").to_owned(),
        },
        "function_call_output" => ItemBody::FunctionCallOutput {
            call_id: id(fields, "call_id", limits)?.ok_or_else(|| fields.missing("call_id"))?,
            // A tool that returned nothing leaves the field out; one that returned an object may not have written it out.
            output: match fields.value("output") {
                None => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            },
        },
        _ => return Err(fields.invalid("type", "message, function_call or function_call_output")),
    };
    if body.text_bytes() > limits.item_bytes {
        let error =
            ErrorBody::new(ErrorCode::ValueTooLarge, format!("an item is larger than {} bytes", limits.item_bytes));
        return Err(error.param(fields.path("content")));
    }
    Ok(NewItem { id: id(fields, "id", limits)?, body })
}

fn message(fields: &Fields) -> Read<ItemBody> {
    let role = match fields.required_text("role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" | "developer" => Role::System,
        _ => return Err(fields.invalid("role", "user, assistant or system")),
    };
    // Not in the protocol, but a plain string can mean only one thing.
    if let Some(text) = fields.value("content").and_then(Value::as_str) {
        return Ok(ItemBody::message(role, text));
    }
    let parts = fields.objects("content")?.ok_or_else(|| fields.missing("content"))?;
    let part = |part: &Fields| {
        let text = match part.text("type")?.unwrap_or("text") {
            "input_text" | "output_text" | "text" => part.required_text("text")?,
            "input_audio" | "output_audio" | "audio" => part.text("transcript")?.ok_or_else(|| {
                let message = "this server takes no audio: send the part's transcript, or a text part";
                ErrorBody::new(ErrorCode::AudioNotSupported, message).param(part.path("transcript"))
            })?,
            kind => {
                let message = format!("content of type '{kind}' is not supported: send text");
                return Err(ErrorBody::new(ErrorCode::ContentNotSupported, message).param(part.path("type")));
            }
        };
        Ok(text.to_owned())
    };
    Ok(ItemBody::Message { role, parts: parts.iter().map(part).collect::<Read<_>>()? })
}

fn instructions(fields: &Fields, limits: &Limits) -> Read<Option<String>> {
    fields.text("instructions")?.map(|text| bounded(fields, "instructions", text, limits)).transpose()
}

fn tools(fields: &Fields, limits: &Limits) -> Read<Option<Vec<Tool>>> {
    let Some(list) = fields.objects("tools")? else { return Ok(None) };
    if list.len() > limits.tools {
        return Err(fields.too_large("tools", limits.tools, "tools"));
    }
    let tool = |tool: &Fields| {
        if tool.text("type")?.is_some_and(|kind| kind != "function") {
            return Err(tool.invalid("type", "only tools of type 'function'"));
        }
        // Chat completions wrap the same fields once more.
        let inner = tool.object("function")?.unwrap_or_else(|| tool.clone());
        let parameters = inner.object("parameters")?.map(|schema| Value::Object(schema.map.clone()));
        let tool = Tool {
            name: inner.required_text("name")?.to_owned(),
            description: inner.text("description")?.map(str::to_owned),
            parameters: parameters.as_ref().map(json_text),
            verbatim: None,
        };
        let parameters_bytes = tool.parameters.as_ref().map_or(0, |parameters| parameters.0.len());
        let bytes = tool.name.len() + tool.description.as_ref().map_or(0, String::len) + parameters_bytes;
        if bytes > limits.item_bytes {
            Err(inner.too_large("parameters", limits.item_bytes, "bytes"))
        } else {
            Ok(tool)
        }
    };
    list.iter().map(tool).collect::<Read<Vec<_>>>().map(Some)
}

fn tool_choice(fields: &Fields) -> Read<Option<ToolChoice>> {
    let Some(value) = fields.value("tool_choice") else { return Ok(None) };
    let choice = tool_choice_of(value);
    choice.map(Some).ok_or_else(|| fields.invalid("tool_choice", "auto, none, required or a function's name"))
}

fn max_output_tokens(fields: &Fields) -> Read<Option<MaxTokens>> {
    let Some(value) = fields.value("max_output_tokens") else { return Ok(None) };
    let tokens = || value.as_u64().filter(|&tokens| tokens > 0).map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    let max_tokens =
        if value.as_str() == Some("inf") { Some(MaxTokens::Unlimited) } else { tokens().map(MaxTokens::Tokens) };
    max_tokens.map(Some).ok_or_else(|| fields.invalid("max_output_tokens", "at least 1, or \"inf\""))
}

fn temperature(fields: &Fields) -> Read<Option<f64>> {
    match fields.number("temperature")? {
        Some(value) if !(0.0..=2.0).contains(&value) => Err(fields.invalid("temperature", "between 0 and 2")),
        value => Ok(value),
    }
}

fn reasoning_effort(fields: &Fields) -> Read<Option<String>> {
    let Some(reasoning) = fields.object("reasoning")? else { return Ok(None) };
    let levels = ["none", "minimal", "low", "medium", "high", "xhigh"];
    match reasoning.text("effort")? {
        Some(effort) if !levels.contains(&effort) => Err(reasoning.invalid("effort", levels.join(", "))),
        effort => Ok(effort.map(str::to_owned)),
    }
}

fn metadata(fields: &Fields, limits: &Limits) -> Read<Option<JsonText>> {
    let Some(metadata) = fields.object("metadata")? else { return Ok(None) };
    let mut bytes = 0;
    for key in metadata.map.keys() {
        bytes += key.len() + metadata.text(key)?.map_or(0, str::len);
    }
    if bytes > limits.item_bytes {
        return Err(fields.too_large("metadata", limits.item_bytes, "bytes"));
    }
    Ok(Some(json_text(&Value::Object(metadata.map.clone()))))
}

fn bounded(fields: &Fields, key: &str, text: &str, limits: &Limits) -> Read<String> {
    if text.len() > limits.item_bytes {
        Err(fields.too_large(key, limits.item_bytes, "bytes"))
    } else {
        Ok(text.to_owned())
    }
}

/// An id that the client chooses. "root" is a place, not a name.
fn id(fields: &Fields, key: &str, limits: &Limits) -> Read<Option<String>> {
    match fields.text(key)? {
        None | Some("") => Ok(None),
        Some("root") => Err(fields.invalid(key, "'root' is the head of the conversation")),
        Some(id) if id.chars().count() > limits.id_chars => Err(fields.too_large(key, limits.id_chars, "characters")),
        Some(id) => Ok(Some(id.to_owned())),
    }
}
