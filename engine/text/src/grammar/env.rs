//! The vocabulary as llguidance wants it: every token's bytes in a trie, control tokens marked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};

use super::error::why;
use super::free::Marker;
use super::matcher::Matcher;
use super::{Body, Grammar, GrammarError, schema};
use crate::Tokenizer;

/// How far the automaton of one sequence may grow: about 2 KiB each. Only texts with a length limit in the thousands
/// come near it.
const MOST_LEXER_STATES: usize = 50_000;

/// How many grammars are kept compiled unless `remember_at_most` says otherwise: those of a household's sessions, at
/// some hundred KiB each.
const REMEMBERED: usize = 8;

/// What all grammars of one model share. Built once, which takes about a second for a large vocabulary; a clone is the
/// same one.
#[derive(Clone)]
pub struct GrammarEnv {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    factory: ParserFactory,
    pub tokens: Vec<Vec<u8>>,
    /// Every token that has text, as a mask.
    pub used: Vec<u32>,
    pub stop_tokens: Vec<u32>,
    pub think_end: Option<Marker>,
    pub call_start: Option<Marker>,
    call_end: Option<u32>,
    /// Grammars that were compiled, the latest last, by their source.
    remembered: Mutex<VecDeque<(String, llguidance::Matcher)>>,
    most_remembered: AtomicUsize,
}

impl GrammarEnv {
    /// `stop_tokens` end a reply: `<|im_end|>` and whatever else the model's files name.
    pub fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[u32]) -> Result<GrammarEnv, GrammarError> {
        let ids = 0..tokenizer.len() as u32;
        let tokens: Vec<Vec<u8>> = ids.clone().map(|id| tokenizer.token_bytes(id).to_vec()).collect();
        let control: Vec<bool> = ids.map(|id| tokenizer.is_control(id)).collect();
        GrammarEnv::from_tokens(tokens, &control, stop_tokens, Some(tokenizer))
    }

    /// From plain data. `tokenizer` says how forced text is best written; without one every spelling is allowed.
    pub(super) fn from_tokens(
        tokens: Vec<Vec<u8>>,
        control: &[bool],
        stop_tokens: &[u32],
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<GrammarEnv, GrammarError> {
        let vocabulary = |why: String| GrammarError::Vocabulary { why };
        let stop_tokens: Vec<u32> =
            stop_tokens.iter().copied().filter(|id| tokens.get(*id as usize).is_some_and(|b| !b.is_empty())).collect();
        let &[first_stop, ..] = stop_tokens.as_slice() else {
            return Err(vocabulary("it has none of the model's stop tokens".into()));
        };
        let words: Vec<Vec<u8>> = tokens
            .iter()
            .zip(control)
            .map(|(bytes, control)| match control {
                // The mark that llguidance knows control tokens by: a byte that UTF-8 never has.
                true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes.as_slice()].concat(),
                // A lone byte 255 must not look like that mark; as no text has it, nothing is lost.
                false if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
                false => bytes.clone(),
            })
            .collect();
        let factory = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, first_stop), &words);
            let trie = trie.with_eos_tokens(&stop_tokens);
            let env: TokEnv = Arc::new(Words { trie, tokenizer });
            let slices = SlicedBiasComputer::general_slices();
            let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
            factory.quiet();
            let limits =
                ParserLimits { verbose_errors: false, max_lexer_states: MOST_LEXER_STATES, ..Default::default() };
            *factory.limits_mut() = limits;
            Ok(factory)
        }))
        .map_err(|error| vocabulary(why(error)))?;

        let control_id = |name: &str| {
            let is_it = |(bytes, control): (&Vec<u8>, &bool)| *control && bytes == name.as_bytes();
            tokens.iter().zip(control).position(is_it).map(|id| id as u32)
        };
        let marker = |name| {
            let plain = tokens.iter().zip(control).enumerate().filter(|(_, (_, control))| !**control);
            Marker::new(control_id(name), name, plain.map(|(id, (bytes, _))| (id as u32, bytes.as_slice())))
        };
        let mut used = vec![0u32; tokens.len().div_ceil(32)];
        for (id, _) in tokens.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            used[id / 32] |= 1 << (id % 32);
        }
        let (think_end, call_start, call_end) = (marker("</think>"), marker("<tool_call>"), control_id("</tool_call>"));
        let (remembered, most_remembered) = (Mutex::new(VecDeque::new()), AtomicUsize::new(REMEMBERED));
        let shared =
            Shared { factory, used, stop_tokens, think_end, call_start, call_end, tokens, remembered, most_remembered };
        Ok(GrammarEnv { shared: Arc::new(shared) })
    }

    /// How many grammars are kept compiled, the latest ones: a conversation asks for the same tools at every turn.
    pub fn remember_at_most(&self, grammars: usize) {
        self.shared.most_remembered.store(grammars, Relaxed);
    }

    /// Compiles the grammar for one sequence: some milliseconds, more for large schemas. A schema that is not supported
    /// is refused here, and the error says at which part.
    pub fn matcher(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        if grammar.after_reasoning && self.shared.think_end.is_none() {
            return Err(GrammarError::MissingToken { name: "</think>" });
        }
        let source = grammar.source(self)?;
        let key = serde_json::to_string(&source).unwrap_or_default();
        if let Some(inner) = self.recall(&key) {
            return Ok(Matcher::new(self.shared.clone(), inner, grammar));
        }
        let inner = llguidance::Matcher::new(self.shared.factory.create_parser(source));
        if let Some(error) = inner.get_error() {
            return Err(self.refusal(grammar, why(error)));
        }
        self.remember(key, &inner);
        Ok(Matcher::new(self.shared.clone(), inner, grammar))
    }

    fn refusal(&self, grammar: &Grammar, why: String) -> GrammarError {
        match &grammar.body {
            Body::Json(schema) => {
                let (part, why) = schema::unsupported_part(self, schema, false, why);
                GrammarError::Schema { part, why }
            }
            Body::Regex(pattern) => GrammarError::Regex { pattern: pattern.clone(), why },
            Body::Tools(tools) => tools.unsupported_part(self, why),
        }
    }

    /// A fresh copy: what one sequence makes of it does not weigh on the others.
    fn recall(&self, key: &str) -> Option<llguidance::Matcher> {
        let mut remembered = self.shared.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let at = remembered.iter().position(|(known, _)| known == key)?;
        let found = remembered.remove(at)?;
        let fresh = found.1.deep_clone();
        remembered.push_back(found);
        Some(fresh)
    }

    fn remember(&self, key: String, inner: &llguidance::Matcher) {
        let most = self.shared.most_remembered.load(Relaxed);
        let mut remembered = self.shared.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.push_back((key, inner.deep_clone()));
        while remembered.len() > most {
            remembered.pop_front();
        }
    }

    pub(super) fn why_not(&self, source: llguidance::api::TopLevelGrammar) -> Option<String> {
        self.shared.factory.create_parser(source).err().map(why)
    }

    /// The ids of `<tool_call>` and `</tool_call>`.
    pub(super) fn call_tokens(&self) -> Result<(u32, u32), GrammarError> {
        let start = self.shared.call_start.as_ref().ok_or(GrammarError::MissingToken { name: "<tool_call>" })?;
        let end = self.shared.call_end.ok_or(GrammarError::MissingToken { name: "</tool_call>" })?;
        Ok((start.id, end))
    }
}

impl std::fmt::Debug for GrammarEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("GrammarEnv").field("tokens", &self.shared.tokens.len()).finish()
    }
}

struct Words {
    trie: TokTrie,
    tokenizer: Option<Arc<Tokenizer>>,
}

impl TokenizerEnv for Words {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        match &self.tokenizer {
            Some(tokenizer) => self.trie.tokenize_with_greedy_fallback(bytes, |text| tokenizer.encode_plain(text)),
            None => self.trie.greedy_tokenize(bytes),
        }
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.tokenizer.is_some()
    }
}
