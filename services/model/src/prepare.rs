//! Preparation: from a request to the engine's, with the prompt in tokens and the reply's form as a grammar.
//!
//! Runs beside the engine's thread, so that other replies continue meanwhile.

use crate::engine_options::{kv_formats, sampling, thinking};
use crate::measure::{Counted, Measured};
use crate::own_heads::OwnHeads;
use crate::request::{ModelRequest, RawPrompt};
use engine::{EngineRequest, OwnerId, Precision, ReuseScope};
use serde_json::Value;
use session::{
    Failure, FailureCode, GenerationPurpose, JsonText, Message, MessageRole, Part, Prompt, ResponseFormat, ToolChoice,
};
use settings::{Preset, Thinking};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use text::grammar::{self, Grammar, GrammarEnv, GrammarError};
use text::template::{Rendered, utc};
use text::{Template, TemplateInput, Tokenizer, ToolSchema, encode_prompt, opens_thinking};

pub(crate) struct Preparer {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Template,
    pub precision: Precision,
    pub native_ctx: u32,
    pub longest_token_bytes: usize,
    /// True if users reuse each other's cached sequences.
    pub shares_users: bool,
    pub own_heads: Arc<OwnHeads>,
    pub stop_tokens: Vec<u32>,
    /// Grammars, made once beside the first requests: it takes a second for a large vocabulary.
    pub grammars: OnceLock<Result<GrammarEnv, GrammarError>>,
}

pub(crate) struct Prepared {
    pub request: EngineRequest,
    pub tools: Vec<ToolSchema>,
    pub thinks: bool,
    /// Limit on the time from the request to the first word of the answer: then the thinking ends.
    pub first_word_ms: Option<u64>,
    pub is_raw: bool,
}

impl Preparer {
    pub fn prepare(&self, asked: &ModelRequest) -> Result<Prepared, Failure> {
        let ModelRequest { prompt, preset, .. } = asked;
        if prompt.messages.iter().any(|message| message.images() > 0) {
            return Err(invalid("this model reads no images; send text only"));
        }
        if preset.ctx_size > self.native_ctx {
            return Err(invalid(format!(
                "preset {} has a window of {} tokens, but the model that runs has {}; choose another preset",
                preset.name, preset.ctx_size, self.native_ctx
            )));
        }
        if let Some(raw) = &asked.raw {
            return self.prepare_raw(asked, raw);
        }
        let thinking_wanted = asked.effective_thinking();
        let (tokens, marks, thinks) = self.encode(asked, thinking_wanted)?;
        let mut request = EngineRequest::new(tokens, preset.ctx_size as usize, kv_formats(preset, self.precision));
        // The last mark of a reply is in its opening.
        request.given_tokens = asked.wants_reply().then(|| marks.iter().rev().nth(1).copied()).flatten();
        let has_instructions = prompt.messages.first().is_some_and(|first| first.role == MessageRole::System);
        let head_tokens = marks.first().filter(|_| has_instructions).map_or(0, |end| *end);
        let (user, is_head_shared) =
            (asked.reused_by.or(asked.user).filter(|_| !self.shares_users), self.own_heads.have(prompt));
        request.scope = ReuseScope { user, head_tokens, is_head_shared };
        // Another room's instructions may differ in their last lines.
        request.marks = self.last_lines(&request.tokens, head_tokens);
        request.fork = request.marks.first().copied();
        request.marks.extend(marks);
        own(&mut request, asked);
        if !asked.wants_reply() {
            // The window may be full to the last token: text beyond it need not be warm.
            request.tokens.truncate(request.ctx_size);
            return Ok(Prepared { request, tools: Vec::new(), thinks, first_word_ms: None, is_raw: false });
        }
        let room = request.ctx_size.saturating_sub(request.tokens.len());
        let is_longer = |limit: u32| request.tokens.len() > limit as usize;
        if room == 0 || asked.prompt_limit_tokens.is_some_and(is_longer) {
            return Err(too_long_for(&request.tokens.len().to_string(), preset, asked.prompt_limit_tokens));
        }
        request.max_new_tokens = (asked.max_tokens.unwrap_or(preset.reply_reserve_tokens).max(1) as usize).min(room);
        set_options(&mut request, asked, thinking_wanted != Thinking::Off);
        request.thinking = thinking(thinking_wanted, thinks);
        let tools = ToolSchema::of_all(&prompt.tools);
        request.grammar = self.grammar(asked, &tools, thinks)?;
        if asked.tool_choice == ToolChoice::None && !tools.is_empty() {
            // The tools stay in the prompt, which would miss the cache without them.
            let call = self.tokenizer.id_of("<tool_call>");
            request.sampling.logit_bias.extend(call.map(|token| (token, f32::NEG_INFINITY)));
        }
        request.sampling.check().map_err(|error| invalid(error.to_string()))?;
        Ok(Prepared { request, tools, thinks, first_word_ms: thinking_wanted.first_word_ms(), is_raw: false })
    }

    fn prepare_raw(&self, asked: &ModelRequest, raw: &RawPrompt) -> Result<Prepared, Failure> {
        let (preset, ctx_size) = (&asked.preset, asked.preset.ctx_size as usize);
        let tokens = match raw {
            RawPrompt::Text(text) if text.len() / self.longest_token_bytes.max(1) > ctx_size => {
                return Err(too_long("far more", preset));
            }
            RawPrompt::Text(text) => self.tokenizer.encode(text),
            RawPrompt::Tokens(tokens) => tokens.clone(),
        };
        let reply = asked.max_tokens.unwrap_or(preset.reply_reserve_tokens) as usize;
        if tokens.len() + reply.min(1) > ctx_size {
            return Err(too_long(&tokens.len().to_string(), preset));
        }
        let room = ctx_size - tokens.len();
        let mut request = EngineRequest::new(tokens, ctx_size, kv_formats(preset, self.precision));
        own(&mut request, asked);
        request.scope.user = asked.reused_by.or(asked.user).filter(|_| !self.shares_users);
        request.prompt_logprobs = asked.prompt_logprobs;
        request.max_new_tokens = reply.min(room);
        set_options(&mut request, asked, false);
        request.sampling.check().map_err(|error| invalid(error.to_string()))?;
        Ok(Prepared { request, tools: Vec::new(), thinks: false, first_word_ms: None, is_raw: true })
    }

    /// True if the prompt is certainly too long, before it is rendered. Text that a template may drop does not count:
    /// thoughts of the assistant, and space around a message.
    pub fn cannot_fit(&self, prompt: &Prompt, preset: &Preset) -> bool {
        let said = prompt.messages.iter().filter(|message| message.role != MessageRole::Assistant);
        let bytes = |part: &Part| if let Part::Text(text) = part { text.trim().len() } else { 0 };
        let bytes: usize = said.flat_map(|message| &message.parts).map(bytes).sum();
        let described: usize = prompt.tools.iter().filter_map(|tool| Some(tool.description.as_ref()?.len())).sum();
        // A template writes parameters without space, and a letter for six of its escaped form.
        let parameters = prompt.tools.iter().filter_map(|tool| tool.parameters.as_ref());
        let letters = |json: &JsonText| json.0.bytes().filter(|byte| !byte.is_ascii_whitespace()).count() / 6;
        let described = described + parameters.map(letters).sum::<usize>();
        bytes + described > (preset.ctx_size as usize).saturating_mul(self.longest_token_bytes)
    }

    pub fn measure(&self, prompt: &Prompt, thinking: Thinking) -> Result<Measured, Failure> {
        let rendered = self.render(prompt, thinking, true)?;
        let encoded = encode_prompt(&self.tokenizer, &rendered);
        let total = Counted::exactly(encoded.tokens.len() as u64);
        Ok(Measured::from_marks(total, &encoded.marks, &prompt.messages))
    }

    pub fn grammars(&self) -> &Result<GrammarEnv, GrammarError> {
        self.grammars.get_or_init(|| GrammarEnv::new(self.tokenizer.clone(), &self.stop_tokens))
    }

    /// Returns tokens, marks, and whether the reply begins inside a think block.
    fn encode(&self, asked: &ModelRequest, thinking: Thinking) -> Result<(Vec<u32>, Vec<usize>, bool), Failure> {
        let (prompt, is_reply) = (&asked.prompt, asked.wants_reply());
        let rendered = self.render(prompt, thinking, is_reply)?;
        let encoded = encode_prompt(&self.tokenizer, &rendered);
        let (mut tokens, mut marks) = (encoded.tokens, encoded.marks);
        let end = match asked.purpose {
            GenerationPurpose::Reply | GenerationPurpose::EarlyReply => tokens.len(),
            GenerationPurpose::WarmPartial => self.end_of_partial(prompt, &tokens),
            // Each message of the user ends at a mark of its own.
            GenerationPurpose::WarmHistory => {
                marks.len().checked_sub(asked.placeholders + 1).map_or(0, |before| marks[before])
            }
        };
        tokens.truncate(end);
        marks.retain(|mark| *mark <= end);
        if !is_reply && marks.last() != Some(&end) {
            marks.push(end);
        }
        Ok((tokens, marks, is_reply && opens_thinking(&rendered.text)))
    }

    fn render(&self, prompt: &Prompt, thinking: Thinking, opens_reply: bool) -> Result<Rendered, Failure> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let (thinks, now) = (Some(thinking != Thinking::Off), Some(utc(seconds)));
        let input = TemplateInput { prompt, thinks, opens_reply, now };
        self.template.render(&input).map_err(|error| invalid(error.to_string()))
    }

    /// Returns the end of the stable part of a partial transcript, the last message. Its last word may change, and with
    /// it the tokens that spell it.
    fn end_of_partial(&self, prompt: &Prompt, tokens: &[u32]) -> usize {
        let end = self.tokenizer.id_of("<|im_end|>");
        let mut at = tokens.iter().rposition(|token| Some(*token) == end).unwrap_or(tokens.len());
        let said = prompt.messages.last().map(Message::text).unwrap_or_default();
        let word = said.split_whitespace().next_back().map_or(0, str::len);
        let mut left = at.min(LAST_WORD_TOKENS);
        let mut bytes = 0;
        while left > 0 && bytes < word {
            (at, left) = (at - 1, left - 1);
            bytes += self.tokenizer.token_bytes(tokens[at]).len();
        }
        at
    }

    /// Returns the starts of the last lines of instructions that end at `end`, ascending.
    fn last_lines(&self, tokens: &[u32], end: usize) -> Vec<usize> {
        let mut starts: Vec<usize> = Vec::new();
        for start in (end.saturating_sub(LAST_LINES_TOKENS)..end).rev() {
            let before = starts.last().copied().unwrap_or(end);
            let ends_line = start > 0 && self.tokenizer.token_bytes(tokens[start - 1]).ends_with(b"\n");
            if ends_line && before - start >= LINE_TOKENS && starts.len() < LAST_LINES {
                starts.push(start);
            }
        }
        starts.reverse();
        starts
    }

    fn grammar(&self, asked: &ModelRequest, tools: &[ToolSchema], thinks: bool) -> Result<Option<Grammar>, Failure> {
        let may_call = !tools.is_empty() && asked.tool_choice != ToolChoice::None;
        let choice = match &asked.tool_choice {
            ToolChoice::Required => Some(grammar::CallChoice::Required),
            ToolChoice::Function(name) => Some(grammar::CallChoice::Named(name.clone())),
            ToolChoice::Auto if may_call => Some(grammar::CallChoice::Auto),
            ToolChoice::Auto | ToolChoice::None => None,
        };
        let form = match &asked.options.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some(Grammar::json_object()),
            ResponseFormat::JsonSchema { schema, .. } => Some(json_schema(schema)?),
        };
        let built = match (choice, form) {
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
                let built = Grammar::tool_calls(tools, &choice, asked.parallel_tool_calls).map_err(refused)?;
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

    fn compile(&self, grammar: &Grammar) -> Result<(), GrammarError> {
        match self.grammars() {
            Ok(env) => env.matcher(grammar).map(|_| ()),
            Err(error) => Err(error.clone()),
        }
    }
}

fn own(request: &mut EngineRequest, asked: &ModelRequest) {
    request.priority = asked.priority;
    request.owner = asked.past_owner.map(OwnerId);
    request.user = asked.user;
    request.speculative = matches!(asked.purpose, GenerationPurpose::WarmPartial | GenerationPurpose::EarlyReply);
    request.one_off = asked.one_off;
    request.unsaved = asked.unsaved;
}

fn set_options(request: &mut EngineRequest, asked: &ModelRequest, thinks: bool) {
    request.sampling = sampling(&asked.preset, thinks, &asked.options.sampling);
    request.sampling.seed = asked.options.seed;
    request.sampling.logprobs = asked.options.logprobs;
    request.seed = fresh_seed();
    request.stop = asked.options.stop.clone();
    request.ignore_eos = asked.options.ignore_eos;
}

/// Limit on the tokens of a partial transcript's last word: in languages without spaces a whole sentence is one word,
/// and only its end can change.
const LAST_WORD_TOKENS: usize = 4;

/// Lines at the end of instructions that may differ between rooms: Home Assistant writes the room into one of the last
/// two. A snapshot at each is a few megabytes, until something else needs the room.
const LAST_LINES: usize = 3;
/// Least tokens of such a line: shorter ones are computed as fast as a state is copied.
const LINE_TOKENS: usize = 8;
/// Limit on the distance from the end: other snapshots are near enough further back.
const LAST_LINES_TOKENS: usize = 256;

pub(crate) fn too_long(tokens: &str, preset: &Preset) -> Failure {
    too_long_for(tokens, preset, None)
}

/// Makes the failure of a prompt that may have `limit_tokens` of the window: the rest of it is for the reply.
fn too_long_for(tokens: &str, preset: &Preset, limit_tokens: Option<u32>) -> Failure {
    let ctx_size = preset.ctx_size;
    let kept = limit_tokens.map_or(0, |limit| ctx_size.saturating_sub(limit));
    let kept = if kept > 0 { format!(", of which {kept} are kept for the reply") } else { String::new() };
    let message = format!(
        "the prompt has {tokens} tokens and the window is {ctx_size}{kept}; shorten the conversation, or choose a preset \
         with a larger window"
    );
    Failure::new(FailureCode::PromptTooLong, message)
}

fn json_schema(schema: &JsonText) -> Result<Grammar, Failure> {
    let schema: Value =
        serde_json::from_str(&schema.0).map_err(|error| invalid(format!("the schema is no JSON: {error}")))?;
    Grammar::json_schema(&schema).map_err(refused)
}

fn refused(error: GrammarError) -> Failure {
    invalid(error.to_string())
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::InvalidRequest, message)
}

pub(crate) fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
