//! From an ask to what the engine takes: the prompt rendered and in tokens, the reply's form as a grammar.
//!
//! Runs beside the engine's thread, so that other replies go on meanwhile.

use super::answer::{Failure, FailureCode};
use super::ask::{Ask, Purpose};
use super::model::{kv_formats, sampling, thinking};
use super::{Counted, Measured};
use crate::manner::ResponseFormat;
use crate::realtime::ToolChoice;
use engine::{EngineRequest, OwnerId, Precision};
use serde_json::Value;
use settings::Thinking;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use text::chat::ChatPrompt;
use text::grammar::{self, Grammar, GrammarEnv, GrammarError};
use text::template::{LocalTime, Rendered};
use text::{Template, Tokenizer, encode_prompt, opens_thinking};

/// What is needed of a model to prepare: shared by all asks.
pub(super) struct Preparer {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Template,
    pub precision: Precision,
    pub native_ctx: u32,
    pub stop_tokens: Vec<u32>,
    /// Made once, beside the first asks: it takes a second for a large vocabulary.
    pub grammars: OnceLock<Result<GrammarEnv, GrammarError>>,
}

pub(super) struct Prepared {
    pub request: EngineRequest,
    /// The reply begins inside a think block.
    pub thinks: bool,
}

impl Preparer {
    pub fn prepare(&self, ask: &Ask) -> Result<Prepared, Failure> {
        let preset = &ask.preset;
        if ask.chat.images > 0 {
            return Err(invalid("this model reads no images; send text only"));
        }
        if preset.ctx_size > self.native_ctx {
            return Err(invalid(format!(
                "preset {} has a window of {} tokens, but the model that runs has {}; choose another preset",
                preset.name, preset.ctx_size, self.native_ctx
            )));
        }
        let thinking_wanted = ask.effective_thinking();
        let (tokens, marks, thinks) = self.prompt(ask, thinking_wanted)?;
        let mut request = EngineRequest::new(tokens, preset.ctx_size as usize, kv_formats(preset, self.precision));
        // The last mark of a reply is in its opening.
        request.given_tokens = (ask.purpose == Purpose::Reply).then(|| marks.iter().rev().nth(1).copied()).flatten();
        request.marks = marks;
        request.class = ask.priority;
        request.owner = ask.past_owner.map(OwnerId);
        request.speculative = ask.purpose == Purpose::WarmPartial;
        if ask.purpose != Purpose::Reply {
            // The window may be full to the last token: what does not fit need not be warm.
            request.tokens.truncate(request.ctx_size);
            return Ok(Prepared { request, thinks });
        }
        let room = request.ctx_size.saturating_sub(request.tokens.len());
        let is_longer = |limit: u32| request.tokens.len() > limit as usize;
        if room == 0 || ask.prompt_limit_tokens.is_some_and(is_longer) {
            return Err(Failure::new(
                FailureCode::PromptTooLong,
                format!(
                    "the prompt has {} tokens and the window is {}; shorten the conversation, or choose a preset with a \
                     larger window",
                    request.tokens.len(),
                    request.ctx_size
                ),
            ));
        }
        request.max_new_tokens = (ask.max_tokens.unwrap_or(preset.reply_reserve_tokens).max(1) as usize).min(room);
        request.sampling = sampling(preset, thinking_wanted != Thinking::Off, &ask.manner.sampling);
        request.sampling.seed = ask.manner.seed;
        request.sampling.logprobs = ask.manner.logprobs;
        request.seed = fresh_seed();
        request.stop = ask.manner.stop.clone();
        request.ignore_eos = ask.manner.ignore_eos;
        request.thinking = thinking(thinking_wanted, thinks);
        request.grammar = self.grammar(ask, thinks)?;
        if ask.tool_choice == ToolChoice::None && !ask.chat.tools.is_empty() {
            // The tools stay in the prompt, which would not be the known one without them.
            let call = self.tokenizer.id_of("<tool_call>");
            request.sampling.logit_bias.extend(call.map(|token| (token, f32::NEG_INFINITY)));
        }
        request.sampling.check().map_err(|error| invalid(error.to_string()))?;
        Ok(Prepared { request, thinks })
    }

    /// Tokens of a reply's prompt.
    pub fn count(&self, chat: &ChatPrompt, thinking: Thinking) -> Result<u64, Failure> {
        let rendered = self.render(chat, thinking, true)?;
        Ok(encode_prompt(&self.tokenizer, &rendered).tokens.len() as u64)
    }

    /// Tokens of a reply's prompt, and of each message in it.
    pub fn measure(&self, chat: &ChatPrompt, thinking: Thinking) -> Result<Measured, Failure> {
        let rendered = self.render(chat, thinking, true)?;
        let encoded = encode_prompt(&self.tokenizer, &rendered);
        let total = Counted { tokens: encoded.tokens.len() as u64, exact: true, margin_tokens: 0 };
        Ok(Measured::from_marks(total, &encoded.marks, &chat.messages))
    }

    pub fn grammars(&self) -> &Result<GrammarEnv, GrammarError> {
        self.grammars.get_or_init(|| GrammarEnv::new(self.tokenizer.clone(), &self.stop_tokens))
    }

    /// Tokens, marks, and whether the reply begins inside a think block.
    fn prompt(&self, ask: &Ask, thinking: Thinking) -> Result<(Vec<u32>, Vec<usize>, bool), Failure> {
        let is_reply = ask.purpose == Purpose::Reply;
        let rendered = self.render(&ask.chat, thinking, is_reply)?;
        let encoded = encode_prompt(&self.tokenizer, &rendered);
        let (mut tokens, mut marks) = (encoded.tokens, encoded.marks);
        let end = match ask.purpose {
            Purpose::Reply => tokens.len(),
            Purpose::WarmPartial => self.end_of_partial(&ask.chat, &tokens),
            // Each message of the user ends at a mark of its own.
            Purpose::WarmHistory { placeholders } => {
                marks.len().checked_sub(placeholders + 1).map_or(0, |before| marks[before])
            }
        };
        tokens.truncate(end);
        marks.retain(|mark| *mark <= end);
        if !is_reply && marks.last() != Some(&end) {
            marks.push(end);
        }
        Ok((tokens, marks, is_reply && opens_thinking(&rendered.text)))
    }

    fn render(&self, chat: &ChatPrompt, thinking: Thinking, opens_reply: bool) -> Result<Rendered, Failure> {
        let mut options = chat.options.clone();
        options.insert("enable_thinking".into(), Value::Bool(thinking != Thinking::Off));
        if !opens_reply || !options.contains_key("add_generation_prompt") {
            options.insert("add_generation_prompt".into(), Value::Bool(opens_reply));
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let now = Some(LocalTime::from_unix_seconds(seconds));
        let prompt = text::TemplateInput { messages: &chat.messages, tools: &chat.tools, options: &options, now };
        self.template.render(&prompt).map_err(|error| invalid(error.to_string()))
    }

    /// The last message is what the user has said so far. Its last word may become another one, and with it the tokens
    /// that spell it.
    fn end_of_partial(&self, chat: &ChatPrompt, tokens: &[u32]) -> usize {
        let end = self.tokenizer.id_of("<|im_end|>");
        let mut at = tokens.iter().rposition(|token| Some(*token) == end).unwrap_or(tokens.len());
        let said = chat.messages.last().and_then(|message| message["content"].as_str()).unwrap_or("").trim_end();
        let word = said.split_whitespace().next_back().map_or(0, str::len);
        let mut left = at.min(LAST_WORD_TOKENS);
        let mut bytes = 0;
        while left > 0 && bytes < word {
            (at, left) = (at - 1, left - 1);
            bytes += self.tokenizer.token_bytes(tokens[at]).len();
        }
        at
    }

    fn grammar(&self, ask: &Ask, thinks: bool) -> Result<Option<Grammar>, Failure> {
        let tools = &ask.chat.tools;
        let may_call = !tools.is_empty() && ask.tool_choice != ToolChoice::None;
        let asked = match &ask.tool_choice {
            ToolChoice::Required => Some(grammar::CallChoice::Required),
            ToolChoice::Function(name) => Some(grammar::CallChoice::Named(name.clone())),
            ToolChoice::Auto if may_call => Some(grammar::CallChoice::Auto),
            ToolChoice::Auto | ToolChoice::None => None,
        };
        let form = match &ask.manner.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some(Grammar::json_object()),
            ResponseFormat::JsonSchema { schema, .. } => Some(Grammar::json_schema(schema).map_err(refused)?),
        };
        let built = match (asked, form) {
            (None, None) => return Ok(None),
            (Some(grammar::CallChoice::Auto), Some(_)) => {
                return Err(invalid(
                    "a response_format cannot be promised where the model may call tools instead; set tool_choice to \
                     none or required",
                ));
            }
            (None, Some(form)) => form,
            // A reply that must be a call has no content to be of a form.
            (Some(choice), _) => {
                let built = Grammar::tool_calls(tools, &choice, ask.parallel_tool_calls).map_err(refused)?;
                let built = if thinks { built.after_reasoning() } else { built };
                return match self.compile(&built) {
                    Ok(()) => Ok(Some(built)),
                    // A model without such tokens writes calls as it likes, or none.
                    Err(GrammarError::MissingToken { .. }) if choice == grammar::CallChoice::Auto => Ok(None),
                    Err(error) => Err(refused(error)),
                };
            }
        };
        let built = if thinks { built.after_reasoning() } else { built };
        self.compile(&built).map_err(refused)?;
        Ok(Some(built))
    }

    /// Compiles it here: the engine's thread finds it ready.
    fn compile(&self, grammar: &Grammar) -> Result<(), GrammarError> {
        match self.grammars() {
            Ok(env) => env.matcher(grammar).map(|_| ()),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Tokens that the last word of a partial transcript is spelled with, at most: in languages without spaces a whole
/// sentence is one word, and only its end can change.
const LAST_WORD_TOKENS: usize = 4;

fn refused(error: GrammarError) -> Failure {
    invalid(error.to_string())
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::InvalidRequest, message)
}

/// For replies that name no seed.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
