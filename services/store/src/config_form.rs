//! Stored form of a session's configuration: the columns `instructions`, `tools` and `settings`, and the same in JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use session::{JsonText, MaxTokens, SessionConfig, Tool, ToolChoice};

#[derive(Serialize, Deserialize)]
struct ConfigForm {
    instructions: String,
    tools: Value,
    settings: Value,
}

/// The column `settings`. A field that an older release did not write has the value of a new session.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(skip_serializing_if = "String::is_empty")]
    persona: String,
    tool_choice: Value,
    max_output_tokens: Value,
    temperature: Option<f64>,
    reasoning_effort: Option<String>,
    parallel_tool_calls: bool,
}

#[derive(Serialize, Deserialize)]
struct ToolForm {
    #[serde(rename = "type", default)]
    kind: FunctionWord,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    verbatim: Option<Value>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FunctionWord {
    #[default]
    Function,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::of(&SessionConfig::new(""))
    }
}

impl Settings {
    fn of(config: &SessionConfig) -> Settings {
        Settings {
            persona: config.persona.clone(),
            tool_choice: match &config.tool_choice {
                ToolChoice::Auto => json!("auto"),
                ToolChoice::None => json!("none"),
                ToolChoice::Required => json!("required"),
                ToolChoice::Function(name) => json!({ "type": "function", "name": name }),
            },
            max_output_tokens: config.max_output_tokens.limit().map_or(json!("inf"), |tokens| json!(tokens)),
            temperature: config.temperature,
            reasoning_effort: config.reasoning_effort.clone(),
            parallel_tool_calls: config.parallel_tool_calls,
        }
    }
}

pub fn serialize<S: Serializer>(config: &SessionConfig, serializer: S) -> Result<S::Ok, S::Error> {
    let (tools, settings) = (tools_form(config), settings_form(config));
    ConfigForm { instructions: config.instructions.clone(), tools, settings }.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SessionConfig, D::Error> {
    let form = ConfigForm::deserialize(deserializer)?;
    Ok(config_of("that is imported", form.instructions, &form.tools, &form.settings))
}

pub fn stored_bytes(config: &SessionConfig) -> usize {
    let forms = [tools_form(config), settings_form(config)];
    config.instructions.len() + forms.iter().map(|form| form.to_string().len()).sum::<usize>()
}

pub fn settings_form(config: &SessionConfig) -> Value {
    json!(Settings::of(config))
}

pub fn tools_form(config: &SessionConfig) -> Value {
    let value = |text: &JsonText| serde_json::from_str(&text.0).unwrap_or_default();
    let form = |tool: &Tool| ToolForm {
        kind: FunctionWord::Function,
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.as_ref().map(value),
        verbatim: tool.verbatim.as_ref().map(value),
    };
    json!(config.tools.iter().map(form).collect::<Vec<_>>())
}

/// Reads a configuration. An unreadable part is logged and gets the value of a new session, because the conversation is
/// worth more.
pub fn config_of(session_id: &str, instructions: String, tools: &Value, settings: &Value) -> SessionConfig {
    let unreadable = |what: &str, cause: &str| {
        tracing::warn!(session = session_id, what, cause, "this part of a session's configuration cannot be read");
    };
    let mut config = SessionConfig::new(instructions);
    if !tools.is_null() {
        match Vec::<ToolForm>::deserialize(tools) {
            Ok(tools) => config.tools = tools.into_iter().map(tool_of).collect(),
            Err(error) => unreadable("tools", &error.to_string()),
        }
    }
    if settings.is_null() {
        return config;
    }
    let read = Settings::deserialize(settings).map_err(|error| error.to_string()).and_then(|settings| {
        let choice = tool_choice_of(&settings.tool_choice).ok_or("not a tool choice")?;
        Ok((choice, max_tokens_of(&settings.max_output_tokens).ok_or("not a number of tokens")?, settings))
    });
    match read {
        Ok((tool_choice, max_output_tokens, settings)) => SessionConfig {
            persona: settings.persona,
            tool_choice,
            max_output_tokens,
            temperature: settings.temperature,
            reasoning_effort: settings.reasoning_effort,
            parallel_tool_calls: settings.parallel_tool_calls,
            ..config
        },
        Err(cause) => {
            unreadable("settings", &cause);
            config
        }
    }
}

fn tool_of(form: ToolForm) -> Tool {
    let text = |value: Value| JsonText::from(value.to_string());
    Tool {
        name: form.name,
        description: form.description,
        parameters: form.parameters.map(text),
        verbatim: form.verbatim.map(text),
    }
}

fn tool_choice_of(form: &Value) -> Option<ToolChoice> {
    match form.as_str() {
        Some("auto") => Some(ToolChoice::Auto),
        Some("none") => Some(ToolChoice::None),
        Some("required") => Some(ToolChoice::Required),
        Some(_) => None,
        None => Some(ToolChoice::Function(form.get("name")?.as_str()?.to_owned())),
    }
}

fn max_tokens_of(form: &Value) -> Option<MaxTokens> {
    if form == "inf" {
        return Some(MaxTokens::Unlimited);
    }
    let tokens = u32::try_from(form.as_u64()?).unwrap_or(u32::MAX);
    (tokens > 0).then_some(MaxTokens::Tokens(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_comes_back_as_it_was() {
        for tool_choice in [ToolChoice::None, ToolChoice::Required, ToolChoice::Function("light".into())] {
            let config = SessionConfig {
                persona: "You are a butler.".into(),
                instructions: "Be brief.".into(),
                tools: vec![Tool {
                    name: "light".into(),
                    description: None,
                    parameters: Some(r#"{"type":"object","b":1,"a":0.1}"#.into()),
                    verbatim: Some(r#"{"type":"function","function":{"name":"light","strict":true}}"#.into()),
                }],
                tool_choice,
                max_output_tokens: MaxTokens::Tokens(7),
                temperature: Some(0.5),
                reasoning_effort: Some("low".into()),
                parallel_tool_calls: false,
            };
            let (tools, settings) = (tools_form(&config), settings_form(&config));
            assert_eq!(config_of("sess_1", config.instructions.clone(), &tools, &settings), config);
        }
    }

    #[test]
    fn what_is_missing_or_unreadable_is_as_in_a_new_session() {
        let new = SessionConfig::new("Be brief.");
        let read = |tools: Value, settings: Value| config_of("sess_1", "Be brief.".into(), &tools, &settings);
        assert_eq!(read(Value::Null, Value::Null), new);
        for settings in [json!({"temperature": "hot"}), json!({"tool_choice": "any"}), json!({"max_output_tokens": 0})]
        {
            assert_eq!(read(json!("no"), settings), new);
        }
        let some = read(json!([]), json!({"temperature": 0.5, "of_a_newer_release": 1}));
        assert_eq!(some, SessionConfig { temperature: Some(0.5), ..new });
    }
}
