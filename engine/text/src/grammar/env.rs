//! The vocabulary for llguidance: every token's bytes in a trie, control tokens marked.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};

use super::error::{GrammarError, why};
use super::free::Marker;
use crate::Tokenizer;

/// Limit on the lexer states of one sequence, at about 2 KiB each. Only texts with a length limit in the thousands come
/// near it.
const MOST_LEXER_STATES: usize = 50_000;

/// State that all grammars of one model share. Building it takes about a second for a large vocabulary; a clone shares
/// it.
#[derive(Clone)]
pub struct GrammarEnv {
    pub(super) shared: Arc<SharedEnv>,
}

pub(super) struct SharedEnv {
    pub factory: ParserFactory,
    pub used: Vec<u32>,
    pub stop_tokens: Vec<u32>,
    pub think_end: Option<Marker>,
    pub call_start: Option<Marker>,
    call_end: Option<u32>,
    pub compiled: Mutex<VecDeque<CompiledGrammar>>,
}

pub(super) struct CompiledGrammar {
    pub source: String,
    pub matcher: llguidance::Matcher,
    pub bytes: usize,
}

impl GrammarEnv {
    /// Builds the environment. `stop_tokens` end a reply: `<|im_end|>` and any other that the model's files name.
    pub fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[u32]) -> Result<GrammarEnv, GrammarError> {
        let ids = 0..tokenizer.len() as u32;
        let tokens: Vec<Vec<u8>> = ids.clone().map(|id| tokenizer.token_bytes(id).to_vec()).collect();
        let control: Vec<bool> = ids.map(|id| tokenizer.is_control(id)).collect();
        GrammarEnv::from_tokens(tokens, &control, stop_tokens, Some(tokenizer))
    }

    /// Builds the environment from plain data. The tokenizer chooses the tokens of forced text; without one the longest
    /// tokens are chosen.
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
                // The token of the byte 255 must not look like that mark. It is left out: no text has that byte.
                false if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
                false => bytes.clone(),
            })
            .collect();
        let factory = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, first_stop), &words);
            let trie = trie.with_eos_tokens(&stop_tokens);
            let env: TokEnv = Arc::new(TrieAndTokenizer { trie, tokenizer });
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
        let shared = SharedEnv {
            factory,
            used,
            stop_tokens,
            think_end,
            call_start,
            call_end,
            compiled: Mutex::new(VecDeque::new()),
        };
        Ok(GrammarEnv { shared: Arc::new(shared) })
    }

    pub(super) fn why_not(&self, source: TopLevelGrammar) -> Option<String> {
        self.shared.factory.create_parser(source).err().map(why)
    }

    pub(super) fn call_tokens(&self) -> Result<(u32, u32), GrammarError> {
        let start = self.shared.call_start.as_ref().ok_or(GrammarError::MissingToken { name: "<tool_call>" })?;
        let end = self.shared.call_end.ok_or(GrammarError::MissingToken { name: "</tool_call>" })?;
        Ok((start.id, end))
    }
}

impl SharedEnv {
    pub fn len(&self) -> usize {
        self.factory.tok_env().tok_trie().vocab_size()
    }

    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let bytes = self.factory.tok_env().tok_trie().token(id);
        bytes.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]).unwrap_or(bytes)
    }
}

impl std::fmt::Debug for GrammarEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("GrammarEnv").field("tokens", &self.shared.len()).finish()
    }
}

struct TrieAndTokenizer {
    trie: TokTrie,
    tokenizer: Option<Arc<Tokenizer>>,
}

impl TokenizerEnv for TrieAndTokenizer {
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
