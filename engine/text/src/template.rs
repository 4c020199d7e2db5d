//! Chat templates: Jinja as Python's `transformers` renders it, to the byte.
//!
//! minijinja differs from Python's Jinja in `tojson`, `string`, `trim`, `items` and the printing of values; this module
//! replaces those. Text from messages and tools is told from the template's own (template/inert.rs).

mod date;
mod environment;
mod inert;
mod python;
#[cfg(test)]
mod tests;
mod variables;

pub use date::{LocalTime, utc};
pub use variables::{message_json, options_json, tool_json};

use crate::Error;
use chat::Prompt;
use environment::TemplateRefusal;
use inert::Mark;
use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json};
use std::error::Error as _;

#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: String,
}

#[derive(Debug, Clone, Copy)]
pub struct TemplateInput<'a> {
    pub prompt: &'a Prompt,
    /// Choice of thinking. `None`: the prompt's options decide, else the template.
    pub thinks: Option<bool>,
    /// True if the rendered text ends with the opening of a reply. Options of the prompt can forbid it too.
    pub opens_reply: bool,
    /// Time for `strftime_now`; a template that asks for the date without one is an error.
    pub now: Option<LocalTime>,
}

impl<'a> TemplateInput<'a> {
    pub fn of(prompt: &'a Prompt) -> TemplateInput<'a> {
        TemplateInput { prompt, thinks: None, opens_reply: true, now: None }
    }
}

struct Variables<'a> {
    messages: &'a [Json],
    tools: &'a [Json],
    /// `add_generation_prompt`, `enable_thinking`, and any other that this template reads.
    options: &'a Map<String, Json>,
    now: Option<LocalTime>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// Byte positions, ascending, of each `<` from messages, tools or options: no control token may begin there
    /// (`encode_prompt`).
    pub inert: Vec<usize>,
}

const NAME: &str = "chat";

/// Private-use plane of the marks (template/inert.rs).
const MARKS: std::ops::RangeInclusive<char> = '\u{f_0000}'..='\u{f_fffd}';

impl Template {
    pub fn new(source: &str) -> Result<Self, Error> {
        let mut environment = environment::like_python();
        let source = environment::without_generation_tags(source);
        environment
            .add_template_owned(NAME, source.clone())
            .map_err(|error| Error::TemplateSyntax(describe(&error)))?;
        Ok(Self { environment, source })
    }

    /// Compiles the template of the Qwen3.5 family, for a model file that brings none.
    pub fn family() -> Result<Self, Error> {
        Self::new(include_str!("template/family.jinja"))
    }

    pub fn render(&self, input: &TemplateInput) -> Result<Rendered, Error> {
        let TemplateInput { prompt, thinks, opens_reply, now } = *input;
        let messages: Vec<Json> = prompt.messages.iter().map(message_json).collect();
        let tools: Vec<Json> = prompt.tools.iter().map(tool_json).collect();
        let mut options = options_json(&prompt.options);
        options.extend(thinks.map(|thinks| ("enable_thinking".to_string(), Json::Bool(thinks))));
        options.extend((!opens_reply).then(|| ("add_generation_prompt".to_string(), Json::Bool(false))));
        self.render_variables(&Variables { messages: &messages, tools: &tools, options: &options, now })
    }

    fn render_variables(&self, prompt: &Variables) -> Result<Rendered, Error> {
        let from_outside = prompt.messages.iter().chain(prompt.tools).chain(prompt.options.values());
        let mark = Mark::choose(from_outside, &self.source)?;
        let messages: Vec<Value> = prompt.messages.iter().map(|message| mark.message_of(message)).collect();
        let tools: Vec<Value> = prompt.tools.iter().map(|tool| mark.value_of(tool)).collect();
        let tools = if tools.is_empty() { Value::from(()) } else { Value::from(tools) };
        let mut context = vec![("documents".to_string(), Value::from(()))];
        context.extend(prompt.options.iter().map(|(name, value)| (name.clone(), mark.value_of(value))));
        // The later of two entries wins: no option replaces the messages.
        context.extend([("messages".to_string(), Value::from(messages)), ("tools".to_string(), tools)]);
        if let Some(now) = prompt.now {
            context.push((environment::NOW.to_string(), Value::from(now.to_string())));
        }
        let template = self.environment.get_template(NAME).map_err(|error| Error::Render(describe(&error)))?;
        let rendered = template.render(Value::from_pairs(context)).map_err(|error| refusal_or_failure(&error))?;
        let (text, inert) = mark.restore(rendered);
        Ok(Rendered { text, inert })
    }
}

fn refusal_or_failure(error: &minijinja::Error) -> Error {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(TemplateRefusal(message)) = inner.downcast_ref() {
            return Error::Refused(message.clone());
        }
        source = inner.source();
    }
    Error::Render(describe(error))
}

fn describe(error: &minijinja::Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    match error.detail() {
        Some(detail) => format!("{}: {detail}{line}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}
