//! Events of clients as they are written. `parse` makes inputs of them; the schema is derived from them.
//! The log names fields that are not named here. A field that is `null` is one that is not there.

use super::EXTENSION;
use crate::tools::ToolChoiceView;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Deserialize, JsonSchema)]
#[schemars(tag = "type")]
pub enum ClientEvent {
    #[serde(rename = "session.update")]
    SessionUpdate { session: Box<SessionFields> },
    #[serde(rename = "conversation.item.create")]
    ItemCreate { item: NewItemFields, previous_item_id: Option<String> },
    #[serde(rename = "conversation.item.retrieve")]
    ItemRetrieve { item_id: String },
    #[serde(rename = "conversation.item.truncate")]
    ItemTruncate {
        item_id: String,
        content_index: Option<u64>,
        audio_end_ms: Option<u64>,
        /// Extension: characters (Unicode scalar values) that were heard.
        text_end: Option<u64>,
    },
    #[serde(rename = "conversation.item.delete")]
    ItemDelete { item_id: String },
    #[serde(rename = "response.create")]
    ResponseCreate { response: Option<Box<ResponseFields>> },
    #[serde(rename = "response.cancel")]
    ResponseCancel { response_id: Option<String> },
    /// Words follow with what was thought so far.
    #[serde(rename = "response.stop_thinking")]
    #[schemars(extend("x-extension" = EXTENSION))]
    StopThinking { response_id: Option<String> },
    /// The reply that was stopped goes on: nothing interrupted it. A new response says the same item from where it was heard.
    #[serde(rename = "response.resume")]
    #[schemars(extend("x-extension" = EXTENSION))]
    ResponseResume {
        /// The reply that was stopped last, if it is not given.
        item_id: Option<String>,
        /// Milliseconds of speech that were played of all that was said. As the item was truncated, if neither is given.
        audio_end_ms: Option<u64>,
        /// Characters (Unicode scalar values) that were heard of it.
        text_end: Option<u64>,
    },
    /// Audio of the microphone, in the input's format. It is never acknowledged.
    #[serde(rename = "input_audio_buffer.append")]
    AudioAppend {
        /// Base64.
        audio: String,
    },
    /// Ends a turn by hand.
    #[serde(rename = "input_audio_buffer.commit")]
    AudioCommit {},
    #[serde(rename = "input_audio_buffer.clear")]
    AudioClear {},
    #[serde(rename = "input_text_buffer.update")]
    #[schemars(extend("x-extension" = EXTENSION))]
    TextUpdate { text: String },
    #[serde(rename = "input_text_buffer.commit")]
    #[schemars(extend("x-extension" = EXTENSION))]
    TextCommit { text: Option<String>, item_id: Option<String>, speaker: Option<String>, create_response: Option<bool> },
    #[serde(rename = "input_text_buffer.clear")]
    #[schemars(extend("x-extension" = EXTENSION))]
    TextClear {},
}

/// Settings that the session uses from now on.
#[derive(Default, Deserialize, JsonSchema)]
pub struct SessionFields {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["realtime", null]))]
    pub kind: Option<String>,
    /// Modalities that the client asks for. A service without a voice answers in text.
    #[schemars(with = "Option<Vec<ModalityName>>")]
    pub output_modalities: Option<Vec<String>>,
    /// Older name of `output_modalities`.
    #[schemars(with = "Option<Vec<ModalityName>>")]
    pub modalities: Option<Vec<String>>,
    pub instructions: Option<String>,
    pub tools: Option<Vec<NewTool>>,
    #[schemars(with = "Option<ToolChoiceView<'static>>")]
    pub tool_choice: Option<Value>,
    #[schemars(with = "Option<MaxTokensView>")]
    pub max_output_tokens: Option<Value>,
    /// Null: back to the preset's.
    #[serde(default, deserialize_with = "even_null")]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<Option<f64>>,
    /// Null: back to the preset's.
    #[serde(default, deserialize_with = "even_null")]
    pub reasoning: Option<Option<Reasoning>>,
    pub parallel_tool_calls: Option<bool>,
    /// Refused: no prompts are stored here.
    pub prompt: Option<Map<String, Value>>,
    pub extensions: Option<Vec<String>>,
    pub audio: Option<AudioFields>,
    /// Older names of what stands in `audio`.
    pub voice: Option<Value>,
    pub speed: Option<Value>,
    pub input_audio_format: Option<Value>,
    pub output_audio_format: Option<Value>,
    pub input_audio_transcription: Option<Value>,
    pub turn_detection: Option<Value>,
}

/// Audio settings. They mean nothing to a service without ears and a voice.
#[derive(Deserialize, JsonSchema)]
pub struct AudioFields {
    pub input: Option<AudioInputFields>,
    pub output: Option<AudioOutputFields>,
}

#[derive(Deserialize, JsonSchema)]
pub struct AudioInputFields {
    /// `audio/pcm` at 24000, `audio/pcmu` or `audio/pcma`.
    pub format: Option<Value>,
    pub noise_reduction: Option<Value>,
    pub transcription: Option<Value>,
    /// `server_vad` or `semantic_vad`; null: turns end by hand.
    pub turn_detection: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
pub struct AudioOutputFields {
    pub format: Option<Value>,
    /// Name of a speaker that the voice server has.
    pub voice: Option<Value>,
    pub speed: Option<Value>,
}

/// Settings of one response. The session's settings apply where a field is left out.
#[derive(Deserialize, JsonSchema)]
pub struct ResponseFields {
    /// Modalities that the client asks for. A service without a voice answers in text.
    #[schemars(with = "Option<Vec<ModalityName>>")]
    pub output_modalities: Option<Vec<String>>,
    /// Older name of `output_modalities`.
    #[schemars(with = "Option<Vec<ModalityName>>")]
    pub modalities: Option<Vec<String>>,
    pub instructions: Option<String>,
    pub tools: Option<Vec<NewTool>>,
    #[schemars(with = "Option<ToolChoiceView<'static>>")]
    pub tool_choice: Option<Value>,
    #[schemars(with = "Option<MaxTokensView>")]
    pub max_output_tokens: Option<Value>,
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    pub reasoning: Option<Reasoning>,
    pub parallel_tool_calls: Option<bool>,
    /// Refused: no prompts are stored here.
    pub prompt: Option<Map<String, Value>>,
    /// `auto`, `none` (beside the conversation), or the conversation's id.
    pub conversation: Option<String>,
    /// Items that the model reads instead of the conversation so far.
    pub input: Option<Vec<InputFields>>,
    /// Echoed in the response.
    #[schemars(with = "Option<BTreeMap<String, Option<String>>>")]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "stands in the schema only")]
enum ModalityName {
    Text,
    Audio,
}

#[derive(Deserialize, JsonSchema)]
pub struct Reasoning {
    pub effort: Option<Effort>,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MaxTokensView {
    Tokens(#[schemars(range(min = 1))] u32),
    Word(Unlimited),
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub enum Unlimited {
    #[serde(rename = "inf")]
    Infinite,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewTool {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["function", null]))]
    pub kind: Option<String>,
    #[schemars(required)]
    pub name: Option<String>,
    pub description: Option<String>,
    /// A JSON schema.
    pub parameters: Option<Map<String, Value>>,
    /// Chat completions wrap the same fields once more.
    #[schemars(skip)]
    pub function: Option<Box<NewTool>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
pub enum NewItemFields {
    Message(NewMessage),
    FunctionCall(NewCall),
    FunctionCallOutput(NewCallOutput),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
pub enum InputFields {
    Message(NewMessage),
    FunctionCall(NewCall),
    FunctionCallOutput(NewCallOutput),
    /// An item of the conversation.
    ItemReference {
        id: String,
    },
}

#[derive(Deserialize, JsonSchema)]
pub struct NewMessage {
    pub id: Option<String>,
    pub role: NewRole,
    #[schemars(required)]
    pub content: Option<NewContent>,
    /// Extension: the speaker's name, of a user's message.
    pub speaker: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewRole {
    User,
    Assistant,
    System,
    Developer,
}

/// A plain string is not in OpenAI's protocol, but it can mean only one thing.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of parts or a string")]
pub enum NewContent {
    Text(String),
    Parts(#[schemars(with = "Vec<NewPart>")] Vec<Value>),
}

#[derive(Deserialize, JsonSchema)]
pub struct NewPart {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: Option<String>,
    /// Transcript of an audio part. The service does not hear the audio.
    pub transcript: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewCall {
    pub id: Option<String>,
    pub call_id: Option<String>,
    pub name: String,
    pub arguments: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewCallOutput {
    pub id: Option<String>,
    pub call_id: String,
    /// A string, or any JSON: a tool that returned an object may not have written it out.
    pub output: Option<Value>,
}

/// Tells a field that is `null` from one that is not there.
fn even_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
