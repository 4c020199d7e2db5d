//! From what the machine wants generated to what a model is asked.

use model::{ModelRequest, PLACEHOLDER, Purpose};
use session::machine::{Generate, GenerationPurpose, has_recall, recall_tool};
use session::prompt::{Context, Layout, Wording, lay_out};
use session::{Item, Message, Prompt, SessionConfig, TemplateOptions};
use settings::Preset;
use std::sync::Arc;

/// The prompt of a conversation.
pub fn prompt_of(
    config: &SessionConfig,
    items: &[Arc<Item>],
    context: &Context,
    partial: Option<&str>,
    wording: &Wording,
) -> Prompt {
    let layout = Layout { instructions: &config.instructions, context, partial, wording };
    prompt_with(config, context, lay_out(items, &layout).messages)
}

/// Tools and options around messages that are laid out already.
pub fn prompt_with(config: &SessionConfig, context: &Context, messages: Vec<Message>) -> Prompt {
    let mut tools = config.tools.clone();
    if has_recall(config, context) {
        tools.push(recall_tool());
    }
    let options = TemplateOptions { reasoning_effort: config.reasoning_effort.clone(), ..TemplateOptions::default() };
    Prompt { messages, tools, options }
}

pub fn request_of(generate: &Generate, preset: &Arc<Preset>, wording: &Wording) -> ModelRequest {
    let Generate { config, context, .. } = generate;
    let partial = match &generate.purpose {
        GenerationPurpose::WarmPartial(text) => Some(text.as_str()),
        GenerationPurpose::WarmHistory => Some(PLACEHOLDER),
        GenerationPurpose::Reply | GenerationPurpose::BesideConversation => None,
    };
    let has_notes = context.notes.iter().any(|note| !note.trim().is_empty());
    let mut request = ModelRequest::new(prompt_of(config, &generate.items, context, partial, wording), preset.clone());
    request.purpose = match &generate.purpose {
        GenerationPurpose::Reply | GenerationPurpose::BesideConversation => Purpose::Reply,
        GenerationPurpose::WarmPartial(_) => Purpose::WarmPartial,
        // The notes stand before what the user says next, and may be others then.
        GenerationPurpose::WarmHistory => Purpose::WarmHistory { placeholders: 1 + usize::from(has_notes) },
    };
    request.priority = generate.priority();
    request.max_tokens = generate.max_tokens;
    request.options = (*generate.options).clone();
    request.options.sampling.temperature = config.temperature.map(|temperature| temperature as f32);
    request.tool_choice = config.tool_choice.clone();
    request.parallel_tool_calls = config.parallel_tool_calls;
    request
}
