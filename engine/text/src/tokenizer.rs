//! Byte-level BPE, from `tokenizer.json` or from the vocabulary of a GGUF file: both are brought to the same parts
//! (tokenizer/parts.rs), so that both give the same ids. Words are cut and merged by the crate `tokenizers`.
//!
//! Text is first cut at control tokens (`<|im_end|>`, `<think>`, ...), then each stretch between them is cut into words
//! by the family's pattern, and each word is merged from its bytes. Nothing is added or dropped: decoding gives back
//! what was encoded, byte for byte (a file that asks for NFC normalisation is the one exception).

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
    /// Cuts plain text into words.
    words: SysRegex,
    /// Merges the bytes of a word, which it reads and keeps as characters (byte_chars.rs).
    model: BPE,
    nfc: bool,
    table: TokenTable,
    cache: Option<Mutex<SegmentCache>>,
}

/// What a token is to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Reached by merging bytes.
    Normal,
    /// Recognised as it stands, never reached from plain text: `<|im_end|>`, `<think>`.
    Control,
    /// Padding of the embedding matrix: has no text and is never encoded.
    Unused,
}

/// A stretch of a text: either plain, or one control token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t> {
    Plain(&'t str),
    Control(u32),
}

impl Tokenizer {
    /// From the bytes of a Hugging Face `tokenizer.json`.
    pub fn from_json(file: &[u8]) -> Result<Self, Error> {
        json::read(file)
    }

    /// From the vocabulary of a GGUF file: `tokenizer.ggml.tokens`, `.token_type`, `.merges`, `.pre`.
    pub fn from_gguf(tokens: Vec<String>, types: &[u32], merges: Vec<String>, pre: &str) -> Result<Self, Error> {
        gguf::read(tokens, types, merges, pre)
    }

    /// Remembers the tokens of stretches between control tokens (messages, in a prompt) up to about this many bytes,
    /// so that a long conversation is not tokenised again at every turn.
    pub fn with_cache(mut self, limit_bytes: usize) -> Self {
        self.cache = (limit_bytes > 0).then(|| Mutex::new(SegmentCache::new(limit_bytes)));
        self
    }

    /// Control tokens in the text are recognised. For text from outside see `encode_plain` and `encode_prompt`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.segments(text, &[], |segment| self.encode_segment(segment, &mut tokens));
        tokens
    }

    /// Control tokens in the text stay text.
    pub fn encode_plain(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.encode_segment(Segment::Plain(text), &mut tokens);
        tokens
    }

    /// Cuts a text at its control tokens. At the byte positions in `inert` (ascending) none begins.
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

    /// The text of these tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.token_bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for; a control token's are its name. None for an unused or unknown id.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.table.bytes(id)
    }

    /// Bytes of text that one token can stand for at most.
    pub fn longest_token_bytes(&self) -> usize {
        let longest = (0..self.table.len() as u32).map(|id| self.token_bytes(id).len()).max().unwrap_or(0);
        // NFC makes three bytes of nine at most, as of the letters of a Korean syllable.
        if self.nfc { longest * 3 } else { longest }
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.table.kind(id)
    }

    /// A token that plain text never becomes: `<|im_end|>`, but also `<think>` and `<tool_call>`.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == TokenKind::Control
    }

    /// A control token that means nothing to a reader (`<|im_end|>`), unlike `<think>`, which parsers of replies need.
    pub fn is_hidden(&self, id: u32) -> bool {
        let bytes = self.token_bytes(id);
        self.is_control(id) && bytes.starts_with(b"<|") && bytes.ends_with(b"|>")
    }

    /// The id of the token with exactly this text. A control token is found by its name.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        match self.control.find(text, 0) {
            Some((0, end, id)) if end == text.len() => Some(id),
            _ => self.model.token_to_id(&byte_chars::chars_of(text).collect::<String>()),
        }
    }

    /// Ids go from 0 to here, unused ones included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Plain text to tokens, without the cache.
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
            // What the pattern does not match is a word of its own, so nothing is lost.
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
