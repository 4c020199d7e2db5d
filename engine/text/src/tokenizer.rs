//! Byte-level BPE, from `tokenizer.json` or from the vocabulary of a GGUF file: both become the same parts
//! (tokenizer/parts.rs), so that both give the same ids. The crate `tokenizers` cuts and merges words.
//!
//! Text is first cut at control tokens (`<|im_end|>`, `<think>`, ...), then each stretch between them is cut into words
//! by the family's pattern, and each word is merged from its bytes. Decoding gives back the encoded text, byte for byte
//! (a file that asks for NFC normalisation is the one exception).

mod byte_chars;
mod cache;
mod control;
mod gguf;
mod json;
mod parts;
mod table;

use crate::Error;
use cache::SegmentCache;
use control::ControlTokens;
use parking_lot::Mutex;
use std::borrow::Cow;
use table::TokenTable;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NFC;
use tokenizers::utils::SysRegex;
use tokenizers::{Model, NormalizedString, Normalizer};

#[derive(Debug)]
pub struct Tokenizer {
    control: ControlTokens,
    words: SysRegex,
    model: BPE,
    nfc: bool,
    table: TokenTable,
    cache: Option<Mutex<SegmentCache>>,
}

/// Vocabulary in the form of GGUF's keys `tokenizer.ggml.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufVocabulary {
    pub tokens: Vec<String>,
    pub types: Vec<i32>,
    pub merges: Vec<String>,
    pub pre: &'static str,
}

impl GgufVocabulary {
    pub fn from_json(file: &[u8], rows: usize) -> Result<GgufVocabulary, Error> {
        json::to_gguf(file, rows)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Token that merging bytes makes.
    Normal,
    /// Token that is recognised whole and never made from plain text: `<|im_end|>`, `<think>`.
    Control,
    /// Padding of the embedding matrix: has no text and is never encoded.
    Unused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t> {
    Plain(&'t str),
    Control(u32),
}

impl Tokenizer {
    pub fn from_json(file: &[u8]) -> Result<Self, Error> {
        json::read(file)
    }

    /// Reads the vocabulary of a GGUF file: `tokenizer.ggml.tokens`, `.token_type`, `.merges`, `.pre`.
    pub fn from_gguf(tokens: Vec<String>, types: &[u32], merges: Vec<String>, pre: &str) -> Result<Self, Error> {
        gguf::read(tokens, types, merges, pre)
    }

    /// Caches the tokens of stretches between control tokens (messages, in a prompt) up to about this many bytes, so
    /// that a long conversation is not tokenised again at every turn.
    pub fn with_cache(mut self, limit_bytes: usize) -> Self {
        self.cache = (limit_bytes > 0).then(|| Mutex::new(SegmentCache::new(limit_bytes)));
        self
    }

    /// Encodes a text and recognises control tokens in it. The words of a conversation go through
    /// `encode_plain` and `encode_prompt`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.segments(text, &[], |segment| self.encode_segment(segment, &mut tokens));
        tokens
    }

    /// Encodes a text; control tokens in it stay text.
    pub fn encode_plain(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.encode_segment(Segment::Plain(text), &mut tokens);
        tokens
    }

    /// Cuts a text at its control tokens. None begins at the byte positions in `inert` (ascending).
    pub fn segments<'t>(&self, text: &'t str, inert: &[usize], mut each: impl FnMut(Segment<'t>)) {
        let mut plain_start = 0;
        let mut from = 0;
        while let Some((start, end, id)) = self.control.find(text, from) {
            if inert.binary_search(&start).is_ok() {
                from = start + 1;
                continue;
            }
            if plain_start < start {
                each(Segment::Plain(&text[plain_start..start]));
            }
            each(Segment::Control(id));
            plain_start = end;
            from = end;
        }
        if plain_start < text.len() {
            each(Segment::Plain(&text[plain_start..]));
        }
    }

    pub fn encode_segment(&self, segment: Segment, tokens: &mut Vec<u32>) {
        match segment {
            Segment::Control(id) => tokens.push(id),
            Segment::Plain(text) => match &self.cache {
                // Shorter stretches are encoded in less time than it takes to find them.
                Some(cache) if text.len() >= cache::WORTH_CACHING_BYTES => {
                    if let Some(known) = cache.lock().get(text) {
                        tokens.extend_from_slice(&known);
                        return;
                    }
                    let start = tokens.len();
                    self.encode_words(text, tokens);
                    cache.lock().insert(text, &tokens[start..]);
                }
                _ => self.encode_words(text, tokens),
            },
        }
    }

    /// Decodes tokens. Invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.token_bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the bytes that a token stands for; a control token's are its name. Empty for an unused or unknown id.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.table.bytes(id)
    }

    pub fn longest_token_bytes(&self) -> usize {
        let longest = (0..self.table.len() as u32).map(|id| self.token_bytes(id).len()).max().unwrap_or(0);
        // NFC makes three bytes of nine at most, as of the letters of a Korean syllable.
        if self.nfc { longest * 3 } else { longest }
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.table.kind(id)
    }

    /// Returns true for a token that plain text never becomes: `<|im_end|>`, but also `<think>` and `<tool_call>`.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == TokenKind::Control
    }

    /// Returns true for a control token that readers need not see (`<|im_end|>`), unlike `<think>`, which parsers of
    /// replies need.
    pub fn is_hidden(&self, id: u32) -> bool {
        let bytes = self.token_bytes(id);
        self.is_control(id) && bytes.starts_with(b"<|") && bytes.ends_with(b"|>")
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        match self.control.find(text, 0) {
            Some((0, end, id)) if end == text.len() => Some(id),
            _ => self.model.token_to_id(&byte_chars::chars_of(text).collect::<String>()),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn encode_words(&self, text: &str, tokens: &mut Vec<u32>) {
        let text = self.normalised(text);
        let mut word = String::new();
        let mut encode = |part: &str| {
            word.clear();
            word.extend(byte_chars::chars_of(part));
            // Every byte has a token, so no word fails.
            let found = self.model.tokenize(&word).unwrap_or_default();
            tokens.extend(found.iter().map(|token| token.id));
        };
        let mut done = 0;
        for (start, end) in self.words.find_iter(&text) {
            // Text that the pattern does not match is a word of its own, so nothing is lost.
            encode(&text[done..start]);
            encode(&text[start..end]);
            done = end;
        }
        encode(&text[done..]);
    }

    fn normalised<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.nfc || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut normalised = NormalizedString::from(text);
        match NFC.normalize(&mut normalised) {
            Ok(()) => Cow::Owned(normalised.get().to_string()),
            Err(_) => Cow::Borrowed(text),
        }
    }
}
