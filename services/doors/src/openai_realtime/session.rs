//! The session object: what a client may change, what it is told.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

/// What a session is set to: kept with it, changed by `session.update`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionConfig {
    pub instructions: String,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub max_output_tokens: MaxTokens,
    /// None: the preset's.
    pub temperature: Option<f64>,
    /// None: the preset's.
    pub reasoning_effort: Option<String>,
    pub parallel_tool_calls: bool,
}

/// The fields of a `session.update` that were there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUpdate {
    pub instructions: Option<String>,
    pub tools: Option<Vec<Tool>>,
    pub tool_choice: Option<ToolChoice>,
    pub max_output_tokens: Option<MaxTokens>,
    /// `Some(None)`: back to the preset's.
    pub temperature: Option<Option<f64>>,
    pub reasoning_effort: Option<Option<String>>,
    pub parallel_tool_calls: Option<bool>,
    pub extensions: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    #[serde(rename = "type")]
    pub kind: ToolKind,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub description: Option<String>,
    /// A JSON schema.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parameters: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    #[default]
    Function,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Function(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokens {
    /// As many as the window and the preset allow.
    #[default]
    Unlimited,
    Tokens(u32),
}

impl SessionConfig {
    /// What a session starts with: everything as the preset has it.
    pub fn new(instructions: impl Into<String>) -> SessionConfig {
        SessionConfig {
            instructions: instructions.into(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: MaxTokens::Unlimited,
            temperature: None,
            reasoning_effort: None,
            parallel_tool_calls: true,
        }
    }

    pub fn apply(&mut self, update: &SessionUpdate) {
        fn set<T: Clone>(field: &mut T, given: &Option<T>) {
            if let Some(value) = given {
                *field = value.clone();
            }
        }
        set(&mut self.instructions, &update.instructions);
        set(&mut self.tools, &update.tools);
        set(&mut self.tool_choice, &update.tool_choice);
        set(&mut self.max_output_tokens, &update.max_output_tokens);
        set(&mut self.temperature, &update.temperature);
        set(&mut self.reasoning_effort, &update.reasoning_effort);
        set(&mut self.parallel_tool_calls, &update.parallel_tool_calls);
    }
}

impl Tool {
    /// The shape that chat templates print.
    pub fn for_template(&self) -> Value {
        let mut function = serde_json::Map::new();
        function.insert("name".into(), json!(self.name));
        if let Some(description) = &self.description {
            function.insert("description".into(), json!(description));
        }
        if let Some(parameters) = &self.parameters {
            function.insert("parameters".into(), parameters.clone());
        }
        json!({ "type": "function", "function": function })
    }
}

/// The `session` of `session.created` and `session.updated`: the full effective session, every field that the typed
/// clients know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionView {
    #[serde(rename = "type")]
    kind: &'static str,
    object: &'static str,
    pub id: String,
    pub model: String,
    /// Always text: a client that asked for audio is answered in text.
    output_modalities: [&'static str; 1],
    pub instructions: String,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub max_output_tokens: MaxTokens,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    pub parallel_tool_calls: bool,
    reasoning: Option<Value>,
    /// There is no audio here: no formats, no voice, and nobody listens for the end of a turn.
    audio: Value,
    truncation: &'static str,
    tracing: Option<Value>,
    prompt: Option<Value>,
    include: Option<Value>,
    expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

impl SessionView {
    pub fn new(id: &str, model: &str, config: &SessionConfig, extensions: bool) -> SessionView {
        SessionView {
            kind: "realtime",
            object: "realtime.session",
            id: id.to_owned(),
            model: model.to_owned(),
            output_modalities: ["text"],
            instructions: config.instructions.clone(),
            tools: config.tools.clone(),
            tool_choice: config.tool_choice.clone(),
            max_output_tokens: config.max_output_tokens,
            temperature: config.temperature,
            parallel_tool_calls: config.parallel_tool_calls,
            reasoning: config.reasoning_effort.as_ref().map(|effort| json!({ "effort": effort })),
            audio: json!({
                "input": { "format": null, "noise_reduction": null, "transcription": null, "turn_detection": null },
                "output": { "format": null, "voice": null, "speed": null },
            }),
            truncation: "auto",
            tracing: None,
            prompt: None,
            include: None,
            expires_at: None,
            extensions: if extensions { vec![super::EXTENSION.to_owned()] } else { Vec::new() },
        }
    }
}

impl Serialize for ToolChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ToolChoice::Auto => serializer.serialize_str("auto"),
            ToolChoice::None => serializer.serialize_str("none"),
            ToolChoice::Required => serializer.serialize_str("required"),
            ToolChoice::Function(name) => json!({ "type": "function", "name": name }).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ToolChoice, D::Error> {
        let value = Value::deserialize(deserializer)?;
        ToolChoice::from_value(&value).ok_or_else(|| serde::de::Error::custom("not a tool choice"))
    }
}

impl ToolChoice {
    /// Both shapes of a named function: the Realtime one and that of chat completions.
    pub fn from_value(value: &Value) -> Option<ToolChoice> {
        match value.as_str() {
            Some("auto") => Some(ToolChoice::Auto),
            Some("none") => Some(ToolChoice::None),
            Some("required") => Some(ToolChoice::Required),
            Some(_) => None,
            None => {
                let name = value.get("name").or_else(|| value.get("function").and_then(|f| f.get("name")))?;
                let is_function = value.get("type").and_then(Value::as_str) == Some("function");
                is_function.then(|| name.as_str().map(|name| ToolChoice::Function(name.to_owned())))?
            }
        }
    }
}

impl Serialize for MaxTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            MaxTokens::Unlimited => serializer.serialize_str("inf"),
            MaxTokens::Tokens(tokens) => serializer.serialize_u32(*tokens),
        }
    }
}

impl<'de> Deserialize<'de> for MaxTokens {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<MaxTokens, D::Error> {
        let value = Value::deserialize(deserializer)?;
        MaxTokens::from_value(&value).ok_or_else(|| serde::de::Error::custom("not a number of tokens"))
    }
}

impl MaxTokens {
    pub fn from_value(value: &Value) -> Option<MaxTokens> {
        if value.as_str() == Some("inf") {
            return Some(MaxTokens::Unlimited);
        }
        value
            .as_u64()
            .filter(|&tokens| tokens > 0)
            .map(|tokens| MaxTokens::Tokens(tokens.min(u64::from(u32::MAX)) as u32))
    }

    pub fn limit(self) -> Option<u32> {
        match self {
            MaxTokens::Unlimited => None,
            MaxTokens::Tokens(tokens) => Some(tokens),
        }
    }
}
