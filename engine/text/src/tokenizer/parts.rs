//! Parts that every source of a vocabulary becomes, and the tokenizer that they make.

use super::control::ControlTokens;
use super::table::TokenTable;
use super::{TokenKind, Tokenizer, byte_chars};
use crate::Error;
use tokenizers::models::bpe::{self, BPE, Merges, Vocab};
use tokenizers::utils::SysRegex;

pub struct TokenizerParts<'a> {
    pub count: usize,
    /// Tokens that merging bytes makes, their bytes written as characters (byte_chars.rs).
    pub normal: Vocab,
    pub control: Vec<(String, u32)>,
    pub merges: Merges,
    pub pattern: &'a str,
    /// True if a word that is itself a token stays whole, whatever the merges say (Llama 3).
    pub ignore_merges: bool,
    pub nfc: bool,
}

/// Splits a merge that is written as one string. A token never holds a plain space, it is written `Ġ`.
pub fn pair_of(merge: &str) -> Result<(String, String), Error> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left.to_string(), right.to_string())),
        _ => Err(Error::Vocabulary(format!("the merge {merge:?} is not two tokens with a space between"))),
    }
}

pub fn build(parts: TokenizerParts) -> Result<Tokenizer, Error> {
    let words = SysRegex::new(parts.pattern)
        .map_err(|error| Error::Pattern { pattern: parts.pattern.to_string(), why: error.to_string() })?;
    let has_byte = |c: char| parts.normal.contains_key(&*c.encode_utf8(&mut [0; 4]));
    if let Some(missing) = byte_chars::CHARS.iter().position(|c| !has_byte(*c)) {
        return Err(Error::Vocabulary(format!("no token for the byte 0x{missing:02x}, is this byte-level BPE?")));
    }
    Ok(Tokenizer {
        table: table(&parts)?,
        control: ControlTokens::new(&parts.control)?,
        model: model(parts.normal, parts.merges, parts.ignore_merges)?,
        words,
        nfc: parts.nfc,
        cache: None,
    })
}

fn table(parts: &TokenizerParts) -> Result<TokenTable, Error> {
    let mut tokens = vec![("", TokenKind::Unused); parts.count];
    let normal = parts.normal.iter().map(|(token, id)| (token, *id, TokenKind::Normal));
    let control = parts.control.iter().map(|(name, id)| (name, *id, TokenKind::Control));
    for (token, id, kind) in normal.chain(control) {
        match tokens.get_mut(id as usize) {
            Some(slot) if slot.1 == TokenKind::Unused => *slot = (token, kind),
            _ => return Err(Error::Vocabulary(format!("the id {id} of {token:?} is taken, or too large"))),
        }
    }
    TokenTable::new(&tokens)
}

fn model(normal: Vocab, merges: Merges, ignore_merges: bool) -> Result<BPE, Error> {
    let needs = |token: &str| Error::Vocabulary(format!("a merge needs a token that is not there: {token:?}"));
    // The builder panics on a pair that is longer than the longest token.
    let longest = normal.keys().map(String::len).max().unwrap_or(0);
    if let Some((left, right)) = merges.iter().find(|(left, right)| left.len() + right.len() > longest) {
        return Err(needs(&format!("{left}{right}")));
    }
    // The library keeps words by thread, and keeps them beyond the tokenizer's life.
    let builder = BPE::builder().vocab_and_merges(normal, merges).ignore_merges(ignore_merges).cache_capacity(0);
    builder.build().map_err(|error| match error.downcast_ref() {
        Some(bpe::Error::MergeTokenOutOfVocabulary(token)) => needs(token),
        _ => Error::Vocabulary(error.to_string()),
    })
}
