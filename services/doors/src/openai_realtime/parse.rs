//! Events of clients to inputs of a session. `parse` fails with the body of an error event.

use super::ErrorBody;
use super::audio::{audio_fields, wants_audio};
use super::events::{
    ClientEvent, InputFields, NewCall, NewCallOutput, NewContent, NewItemFields, NewMessage, NewPart, NewRole, NewTool,
    Reasoning, ResponseFields, SessionFields,
};
use crate::json::{check_entries, json_text};
use crate::tools::{check_parameters, tool_choice_of};
use crate::unread::note;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fields::{FieldError, KnownFields, Read, read};
use replies::identity::WRONG_SPEAKER;
use runtime::first_time;
use serde_json::{Map, Value, json};
use session::{
    ConfigUpdate, ConversationChoice, GenerationOptions, Heard, Input, InputItem, ItemBody, ItemPlace, JsonText,
    MaxTokens, NamedSpeaker, NewItem, ResponseRequest, ResumeRequest, Role, Tool,
};
use settings::{Settings, person_name};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use telemetry::{TRACEPARENT, TraceParent};

/// Limits of an event's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one item, of instructions, of a partial transcript, of metadata, of one tool.
    pub item_bytes: usize,
    pub tools: usize,
    /// Entries of one event.
    pub entries: usize,
    pub id_chars: usize,
}

pub fn event_limits(settings: &Settings) -> Limits {
    let limits = &settings.limits;
    Limits {
        item_bytes: limits.item_bytes,
        tools: limits.tools,
        entries: limits.request_items,
        id_chars: limits.id_chars,
    }
}

/// A client's event with the id that the client gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub event_id: Option<String>,
    pub input: Input,
    /// True if the event is for connections that opted in to the extensions.
    pub is_extension: bool,
    /// The extensions that the connection opts in to from now on.
    pub extensions: Option<Vec<String>>,
    /// Place in its client's trace of the next response.
    pub trace_parent: Option<TraceParent>,
    /// Fields that are not read.
    pub unread: Vec<String>,
    /// Part of the event that is for ears and voice. An event of audio alone has an input that means nothing.
    pub audio: Option<AudioEvent>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AudioEvent {
    Append(Vec<u8>),
    Commit,
    /// Settings as the client wrote them.
    Session(Value),
    /// True if a response is to be audio. `None`: as the connection is set.
    Response(Option<bool>),
}

impl AudioEvent {
    /// True if the event is one of audio alone.
    pub fn is_alone(&self) -> bool {
        matches!(self, AudioEvent::Append(_) | AudioEvent::Commit)
    }
}

/// Reads one text message of the websocket.
pub fn parse(message: &str, limits: &Limits) -> Result<Received, ErrorBody> {
    let map: Map<String, Value> = serde_json::from_str(message)
        .map_err(|cause| ErrorBody::new("invalid_json", format!("the message is not a JSON object: {cause}")))?;
    // An id that is not text cannot be echoed; the event itself may still be fine.
    let event_id = map.get("event_id").and_then(Value::as_str).map(str::to_owned);
    if event_id.as_ref().is_some_and(|id| id.chars().count() > limits.id_chars) {
        return Err(FieldError::too_large("event_id", limits.id_chars, "characters").into());
    }
    let trace_parent = map.get(TRACEPARENT).and_then(|place| TraceParent::read(place.as_str()?));
    let value = Value::Object(map);
    match event(&value, limits) {
        Ok((input, extensions, audio)) => {
            let is_alone = audio.as_ref().is_some_and(AudioEvent::is_alone);
            let is_extension = !is_alone
                && matches!(
                    input,
                    Input::Hear { .. }
                        | Input::HeardAll { .. }
                        | Input::StopThinking { .. }
                        | Input::Resume(_)
                        | Input::TruncateItem { heard: Heard::Chars(_), .. }
                );
            let known = value["type"].as_str().and_then(|kind| FIELDS.get(kind));
            let mut unread = known.map(|known| known.unread(&value)).unwrap_or_default();
            unread.retain(|field| field != "event_id" && field != TRACEPARENT);
            Ok(Received { event_id, input, is_extension, extensions, trace_parent, unread, audio })
        }
        Err(wrong) => Err(ErrorBody::from(wrong).caused_by(event_id)),
    }
}

fn audio_event(value: &Value) -> Read<Option<AudioEvent>> {
    Ok(match value["type"].as_str().unwrap_or_default() {
        "input_audio_buffer.commit" => Some(AudioEvent::Commit),
        "session.update" => {
            Some(AudioEvent::Session(audio_fields(&value["session"]).map_err(|wrong| wrong.under("session"))?))
        }
        "response.create" => Some(AudioEvent::Response(wanted_modality(&value["response"]))),
        _ => None,
    })
}

fn wanted_modality(response: &Value) -> Option<bool> {
    wants_audio(&response["output_modalities"]).or_else(|| wants_audio(&response["modalities"]))
}

static FIELDS: LazyLock<BTreeMap<String, KnownFields>> = LazyLock::new(KnownFields::of_kinds::<ClientEvent>);

pub fn note_unread(user: &str, unread: Vec<String>) {
    note("realtime", user, unread);
}

/// Says in the log, once for a user and reason, that audio is dropped.
pub fn note_audio(user: &str, why: &str) {
    if first_time(user, format!("realtime audio, {why}")) {
        tracing::info!(why, "audio of a client is dropped");
    }
}

pub const NO_EARS: &str = "there are no ears: set speech.stt to hear, and speech.tts to speak";
pub const NO_ROOM: &str = "there is no memory for it (memory.text_bytes)";

const NO_AUDIO: &str = "this server takes no audio: send what the user said as text with conversation.item.create and \
     response.create, or with the extension events input_text_buffer.update and input_text_buffer.commit";

// Input of an event, extensions that it opts in to, and its part for ears and voice.
type ParsedEvent = (Input, Option<Vec<String>>, Option<AudioEvent>);

fn event(value: &Value, limits: &Limits) -> Read<ParsedEvent> {
    let input = value["response"]["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    check_entries("response.input", input, limits.entries)?;
    check_entries("item", std::slice::from_ref(&value["item"]), limits.entries)?;
    let event = read(value).map_err(|wrong: FieldError| match value["type"].as_str() {
        Some(kind) if wrong.path == "type" => {
            if kind.starts_with("input_audio_buffer.") || kind.starts_with("output_audio_buffer.") {
                return FieldError::new("audio_not_supported", "type", NO_AUDIO);
            }
            let kind: String = kind.chars().take(limits.id_chars).collect();
            FieldError::invalid("type", format!("there is no event '{kind}'"))
        }
        _ => wrong,
    })?;
    let (mut extensions, mut audio_part) = (None, audio_event(value)?);
    let input = match event {
        ClientEvent::SessionUpdate { mut session } => {
            extensions = session.extensions.take();
            Input::Configure(Box::new(config(*session, limits).map_err(|wrong| wrong.under("session"))?))
        }
        ClientEvent::ItemCreate { item, previous_item_id } => Input::AddItem {
            item: new_item(item, limits).map_err(|wrong| wrong.under("item"))?,
            place: match previous_item_id {
                None => ItemPlace::End,
                Some(id) if id == "root" => ItemPlace::Head,
                Some(id) => ItemPlace::After(id),
            },
        },
        ClientEvent::ItemRetrieve { item_id } => Input::ReadItem { item_id },
        ClientEvent::ItemDelete { item_id } => Input::DeleteItem { item_id },
        ClientEvent::ItemTruncate { item_id, content_index, audio_end_ms, text_end } => {
            let heard = heard(text_end, audio_end_ms).ok_or_else(|| FieldError::missing("audio_end_ms"))?;
            let part = usize::try_from(content_index.unwrap_or(0)).unwrap_or(usize::MAX);
            Input::TruncateItem { item_id, part, heard }
        }
        ClientEvent::ResponseCreate { response: None } => Input::Respond(Box::default()),
        ClientEvent::ResponseCreate { response: Some(fields) } => {
            Input::Respond(Box::new(request(*fields, limits).map_err(|wrong| wrong.under("response"))?))
        }
        ClientEvent::ResponseCancel { response_id } => Input::CancelResponse { response_id },
        ClientEvent::StopThinking { response_id } => Input::StopThinking { response_id },
        ClientEvent::ResponseResume { item_id, audio_end_ms, text_end } => {
            Input::Resume(ResumeRequest { item_id, heard: heard(text_end, audio_end_ms) })
        }
        ClientEvent::AudioAppend { audio } => {
            let bytes = STANDARD.decode(audio).map_err(|_| FieldError::invalid("audio", "base64 with its padding"))?;
            audio_part = Some(AudioEvent::Append(bytes));
            Input::Hear { text: String::new() }
        }
        ClientEvent::AudioCommit {} => Input::Hear { text: String::new() },
        ClientEvent::AudioClear {} => Input::DropSpeech,
        ClientEvent::TextUpdate { text } => Input::Hear { text: bounded("text", text, limits)? },
        ClientEvent::TextCommit { text, item_id, speaker, create_response } => Input::HeardAll {
            text: text.map(|text| bounded("text", text, limits)).transpose()?,
            item_id: id("item_id", item_id, limits)?,
            speaker: speaker_of(speaker)?,
            respond: create_response.unwrap_or(true),
        },
        ClientEvent::TextClear {} => Input::Hear { text: String::new() },
    };
    Ok((input, extensions, audio_part))
}

fn heard(text_end: Option<u64>, audio_end_ms: Option<u64>) -> Option<Heard> {
    let chars = text_end.map(|end| Heard::Chars(usize::try_from(end).unwrap_or(usize::MAX)));
    chars.or(audio_end_ms.map(Heard::Ms))
}

/// A session as `session.update` has it, from a request that is no websocket's.
pub fn session_update(session: &Value, limits: &Limits) -> Result<ConfigUpdate, ErrorBody> {
    let update = read::<Option<SessionFields>>(session).and_then(|fields| config(fields.unwrap_or_default(), limits));
    Ok(update.map_err(|wrong| wrong.under("session"))?)
}

fn config(fields: SessionFields, limits: &Limits) -> Read<ConfigUpdate> {
    if fields.kind.is_some_and(|kind| kind != "realtime") {
        return Err(FieldError::invalid("type", "only sessions of type 'realtime'"));
    }
    if fields.temperature.flatten().is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err(FieldError::invalid("temperature", "between 0 and 2"));
    }
    if fields.prompt.is_some() {
        let message = "no prompts are stored here: put the prompt's words into instructions";
        return Err(FieldError::new("prompt_not_supported", "prompt", message));
    }
    let tool_choice = |value: &Value| {
        let allowed = "auto, none, required or a function's name";
        tool_choice_of(value).ok_or_else(|| FieldError::invalid("tool_choice", allowed))
    };
    let max_tokens = |value: &Value| match value.as_u64() {
        Some(tokens) if tokens > 0 => Ok(MaxTokens::Tokens(u32::try_from(tokens).unwrap_or(u32::MAX))),
        None if value == "inf" => Ok(MaxTokens::Unlimited),
        _ => Err(FieldError::invalid("max_output_tokens", "at least 1, or \"inf\"")),
    };
    Ok(ConfigUpdate {
        instructions: fields.instructions.map(|text| bounded("instructions", text, limits)).transpose()?,
        tools: fields.tools.map(|list| tools(list, limits)).transpose()?,
        tool_choice: fields.tool_choice.as_ref().map(tool_choice).transpose()?,
        max_output_tokens: fields.max_output_tokens.as_ref().map(max_tokens).transpose()?,
        temperature: fields.temperature,
        reasoning_effort: match fields.reasoning {
            Some(Some(Reasoning { effort })) => effort.map(|effort| json!(effort).as_str().map(str::to_owned)),
            Some(None) => Some(None),
            None => None,
        },
        parallel_tool_calls: fields.parallel_tool_calls,
    })
}

fn request(fields: ResponseFields, limits: &Limits) -> Read<ResponseRequest> {
    let ResponseFields { instructions, tools, tool_choice, max_output_tokens, parallel_tool_calls, prompt, .. } =
        fields;
    let (temperature, reasoning) = (fields.temperature.map(Some), fields.reasoning.map(Some));
    let input_item = |(index, item)| {
        let item = match item {
            InputFields::ItemReference { id } => return Ok(InputItem::Reference(id)),
            InputFields::Message(message) => NewItemFields::Message(message),
            InputFields::FunctionCall(call) => NewItemFields::FunctionCall(call),
            InputFields::FunctionCallOutput(output) => NewItemFields::FunctionCallOutput(output),
        };
        new_item(item, limits).map(InputItem::Item).map_err(|wrong| wrong.under(&format!("input[{index}]")))
    };
    let input = fields.input.map(|items| items.into_iter().enumerate().map(input_item).collect::<Read<_>>());
    let own = SessionFields {
        instructions,
        tools,
        tool_choice,
        max_output_tokens,
        temperature,
        reasoning,
        parallel_tool_calls,
        prompt,
        ..SessionFields::default()
    };
    Ok(ResponseRequest {
        conversation: match fields.conversation.as_deref() {
            None | Some("auto") => ConversationChoice::Auto,
            Some("none") => ConversationChoice::None,
            Some(name) => ConversationChoice::Named(name.to_owned()),
        },
        input: input.transpose()?,
        config: config(own, limits)?,
        options: GenerationOptions::default(),
        metadata: fields.metadata.map(|metadata| echoed(metadata, limits)).transpose()?,
        of_request: None,
    })
}

fn new_item(fields: NewItemFields, limits: &Limits) -> Read<NewItem> {
    let (given_id, body) = match fields {
        NewItemFields::Message(NewMessage { id, role, content, speaker }) => {
            let parts = match content.ok_or_else(|| FieldError::missing("content"))? {
                NewContent::Text(text) => vec![text],
                NewContent::Parts(parts) => parts.iter().enumerate().map(part).collect::<Read<_>>()?,
            };
            let role = match role {
                NewRole::User => Role::User,
                NewRole::Assistant => Role::Assistant,
                NewRole::System | NewRole::Developer => Role::System,
            };
            let speaker = speaker_of(speaker)?.filter(|_| role == Role::User);
            (id, ItemBody::Message { role, parts, speaker })
        }
        NewItemFields::FunctionCall(NewCall { id: given_id, call_id, name, arguments }) => {
            let call_id = id("call_id", call_id, limits)?.unwrap_or_default();
            let arguments = arguments.unwrap_or_else(|| "{}".to_owned());
            (given_id, ItemBody::FunctionCall { call_id, name, arguments })
        }
        NewItemFields::FunctionCallOutput(NewCallOutput { id: given_id, call_id, output }) => {
            let call_id = id("call_id", Some(call_id), limits)?.ok_or_else(|| FieldError::missing("call_id"))?;
            let output = match output {
                // A tool that returned nothing leaves the field out.
                None => String::new(),
                Some(Value::String(text)) => text,
                Some(value) => value.to_string(),
            };
            (given_id, ItemBody::FunctionCallOutput { call_id, output })
        }
    };
    if body.text_bytes() > limits.item_bytes {
        let message = format!("an item is larger than {} bytes", limits.item_bytes);
        return Err(FieldError::new("value_too_large", "content", message));
    }
    Ok(NewItem { id: id("id", given_id, limits)?, body })
}

/// Reads a speaker; the connection finds the person.
fn speaker_of(name: Option<String>) -> Read<Option<NamedSpeaker>> {
    match name {
        Some(name) if person_name(&name).is_none() => Err(FieldError::invalid("speaker", WRONG_SPEAKER)),
        name => Ok(name.map(|name| NamedSpeaker { name: name.trim().to_owned(), person: None })),
    }
}

/// The text of a part of a message.
fn part((index, part): (usize, &Value)) -> Read<String> {
    let text = |NewPart { kind, text, transcript }| match kind.as_deref().unwrap_or("text") {
        "input_text" | "output_text" | "text" => text.ok_or_else(|| FieldError::missing("text")),
        "input_audio" | "output_audio" | "audio" => transcript.ok_or_else(|| {
            let message = "this server takes no audio: send the part's transcript, or a text part";
            FieldError::new("audio_not_supported", "transcript", message)
        }),
        kind => {
            let message = format!("content of type '{kind}' is not supported: send text");
            Err(FieldError::new("content_not_supported", "type", message))
        }
    };
    read(part).and_then(text).map_err(|wrong| wrong.under(&format!("content[{index}]")))
}

fn tools(list: Vec<NewTool>, limits: &Limits) -> Read<Vec<Tool>> {
    if list.len() > limits.tools {
        return Err(FieldError::too_large("tools", limits.tools, "tools"));
    }
    let tool = |(index, tool): (usize, NewTool)| {
        let mut path = format!("tools[{index}]");
        if tool.kind.as_ref().is_some_and(|kind| kind != "function") {
            return Err(FieldError::invalid("type", "only tools of type 'function'").under(&path));
        }
        let NewTool { name, description, parameters, .. } = match tool.function {
            Some(wrapped) => {
                path += ".function";
                *wrapped
            }
            None => tool,
        };
        let name = name.ok_or_else(|| FieldError::missing("name").under(&path))?;
        if let Some(schema) = &parameters {
            let place = format!("{path}.parameters");
            check_parameters(&place, schema).map_err(|error| error.under(&place))?;
        }
        let parameters = parameters.map(|schema| json_text(&Value::Object(schema)));
        let parameters_bytes = parameters.as_ref().map_or(0, |parameters| parameters.0.len());
        if name.len() + description.as_ref().map_or(0, String::len) + parameters_bytes > limits.item_bytes {
            return Err(FieldError::too_large("parameters", limits.item_bytes, "bytes").under(&path));
        }
        Ok(Tool { name, description, parameters, verbatim: None })
    };
    list.into_iter().enumerate().map(tool).collect()
}

fn echoed(metadata: Map<String, Value>, limits: &Limits) -> Read<JsonText> {
    let mut bytes = 0;
    for (key, value) in &metadata {
        let text: Option<&str> = read(value).map_err(|wrong| wrong.under(key).under("metadata"))?;
        bytes += key.len() + text.map_or(0, str::len);
    }
    if bytes > limits.item_bytes {
        return Err(FieldError::too_large("metadata", limits.item_bytes, "bytes"));
    }
    Ok(json_text(&Value::Object(metadata)))
}

fn bounded(field: &str, text: String, limits: &Limits) -> Read<String> {
    if text.len() > limits.item_bytes {
        return Err(FieldError::too_large(field, limits.item_bytes, "bytes"));
    }
    Ok(text)
}

/// An id that the client chooses. "root" is a place, not a name.
fn id(field: &str, id: Option<String>, limits: &Limits) -> Read<Option<String>> {
    match id.filter(|id| !id.is_empty()) {
        Some(id) if id == "root" => Err(FieldError::invalid(field, "'root' is the head of the conversation")),
        Some(id) if id.chars().count() > limits.id_chars => {
            Err(FieldError::too_large(field, limits.id_chars, "characters"))
        }
        id => Ok(id),
    }
}
