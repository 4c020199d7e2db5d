//! Byte-level BPE, from `tokenizer.json` or from the vocabulary of a GGUF file: both are brought to the same parts
//! and go through the same code, so that both give the same ids.
//!
//! Text is first cut at control tokens (`<|im_end|>`, `<think>`, ...), then each stretch between them is split into
//! words by the family's pattern, and each word is merged from its bytes. Nothing is added or dropped: decoding gives
//! back what was encoded, byte for byte (a file that asks for NFC normalisation is the one exception).

mod atoms;
mod bpe;
mod byte_chars;
mod cache;
mod json;
mod parts;
mod split;

use crate::Error;
use atoms::Atoms;
use bpe::{Merges, Scratch};
use cache::SegmentCache;
use split::Split;
use std::borrow::Cow;
use std::sync::Mutex;
use unicode_normalization::UnicodeNormalization;

pub struct Tokenizer {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    /// Ids in the order of their bytes, for `id_of`.
    sorted: Vec<u32>,
    atoms: Atoms,
    split: Split,
    merges: Merges,
    /// A word that is itself a token is taken whole, whatever the merges say (Llama 3).
    whole_words_first: bool,
    nfc: bool,
    fingerprint: [u8; 32],
    cache: Option<Mutex<SegmentCache>>,
}

/// What a token is to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reached by merging bytes.
    Normal,
    /// One piece whatever surrounds it, never reached from plain text: `<|im_end|>`, `<think>`.
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
    pub fn from_parts(tokens: &[String], types: &[u32], merges: &[String], pre: &str) -> Result<Self, Error> {
        parts::from_gguf(tokens, types, merges, pre)
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
        while let Some((start, end, id)) = self.atoms.find(text, from) {
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
                    if let Some(known) = cache::lock(cache).get(text) {
                        tokens.extend_from_slice(&known);
                        return;
                    }
                    let start = tokens.len();
                    self.encode_words(text, tokens);
                    cache::lock(cache).insert(text, &tokens[start..]);
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
        match self.kinds.get(id as usize) {
            None | Some(Kind::Unused) => &[],
            Some(_) => self.raw_bytes(id),
        }
    }

    pub fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    /// A token that plain text never becomes: `<|im_end|>`, but also `<think>` and `<tool_call>`.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Kind::Control
    }

    /// A control token that means nothing to a reader (`<|im_end|>`), unlike `<think>`, which parsers of replies need.
    pub fn is_hidden(&self, id: u32) -> bool {
        let bytes = self.token_bytes(id);
        self.is_control(id) && bytes.starts_with(b"<|") && bytes.ends_with(b"|>")
    }

    /// The id of the token with exactly this text. A control token is found by its name.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.id_of_bytes(text.as_bytes())
    }

    pub fn id_of_bytes(&self, bytes: &[u8]) -> Option<u32> {
        let at = self.sorted.binary_search_by(|id| self.raw_bytes(*id).cmp(bytes)).ok()?;
        Some(self.sorted[at])
    }

    /// Ids go from 0 to here, unused ones included.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// SHA-256 over the used tokens in their order: equal for a model's GGUF file and its `tokenizer.json`, whose
    /// padding differs.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Plain text to tokens, without the cache.
    fn encode_words(&self, text: &str, tokens: &mut Vec<u32>) {
        let text: Cow<str> =
            if self.nfc && !text.is_ascii() { Cow::Owned(text.nfc().collect()) } else { Cow::Borrowed(text) };
        let mut scratch = Scratch::default();
        self.split.words(&text, |word| {
            if self.whole_words_first
                && let Some(id) = self.id_of_bytes(word.as_bytes())
                && self.kind(id) == Kind::Normal
            {
                tokens.push(id);
            } else {
                self.merges.encode(word.as_bytes(), &mut scratch, tokens);
            }
        });
    }

    fn raw_bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.bytes[start..self.ends[id] as usize]
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.len()).field("merges", &self.merges.len()).finish()
    }
}
