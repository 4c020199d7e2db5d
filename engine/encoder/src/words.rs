//! A folder's tokenizer: texts to the numbers of their tokens.

use crate::Error;
use crate::unigram::{Unigram, UnigramForm};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;
use tokenizers::{
    DecoderWrapper, Encoding, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer, TokenizerImpl,
    TruncationParams,
};

pub enum TokenizerOfWords {
    Unigram(Box<TokenizerImpl<Unigram, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>>),
    Other(Box<Tokenizer>),
}

#[derive(Deserialize)]
struct ModelType {
    r#type: Option<String>,
}

impl TokenizerOfWords {
    /// Reads `tokenizer.json`. No token is `vocab_size` or more, and no text has more than `most` tokens.
    pub fn read(path: &Path, vocab_size: usize, most: usize) -> Result<TokenizerOfWords, Error> {
        let file = std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let wrong = |error: tokenizers::Error| Error::form(path, error.to_string());
        let truncation = Some(TruncationParams { max_length: most, ..TruncationParams::default() });
        let (largest, tokenizer) = match unigram(&file) {
            Some((pieces, rest)) => {
                let rest = Tokenizer::from_bytes(rest).map_err(wrong)?;
                let largest = pieces.largest();
                let mut own = TokenizerImpl::new(pieces);
                own.with_normalizer(rest.get_normalizer().cloned()).map_err(wrong)?;
                own.with_pre_tokenizer(rest.get_pre_tokenizer().cloned());
                own.with_post_processor(rest.get_post_processor().cloned());
                own.with_truncation(truncation).map_err(wrong)?;
                (largest, TokenizerOfWords::Unigram(Box::new(own)))
            }
            None => {
                let mut whole = Tokenizer::from_bytes(file).map_err(wrong)?;
                whole.with_truncation(truncation).map_err(wrong)?;
                whole.with_padding(None);
                (whole.get_vocab(true).values().copied().max(), TokenizerOfWords::Other(Box::new(whole)))
            }
        };
        match largest.filter(|id| *id as usize >= vocab_size) {
            Some(id) => Err(Error::form(path, format!("token {id} is beyond the network's {vocab_size}"))),
            None => Ok(tokenizer),
        }
    }

    pub fn encode(&self, text: &str) -> Option<Encoding> {
        match self {
            TokenizerOfWords::Unigram(tokenizer) => tokenizer.encode_fast(text, true),
            TokenizerOfWords::Other(tokenizer) => tokenizer.encode_fast(text, true),
        }
        .ok()
    }
}

/// Returns the pieces of a Unigram tokenizer, and the rest of its file, with a model of one piece. Marks such as `<s>` are text where
/// a user types them.
fn unigram(file: &[u8]) -> Option<(Unigram, Vec<u8>)> {
    let mut parts: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(file).ok()?;
    let model = parts.remove("model")?;
    let ModelType { r#type } = serde_json::from_str(model.get()).ok()?;
    if r#type.as_deref() != Some("Unigram") {
        return None;
    }
    let form: UnigramForm = serde_json::from_str(model.get()).ok()?;
    let raw = |json: &str| RawValue::from_string(json.to_owned()).ok();
    parts.insert("model".to_owned(), raw(r#"{"type": "Unigram", "unk_id": 0, "vocab": [["", 0.0]]}"#)?);
    parts.insert("added_tokens".to_owned(), raw("[]")?);
    Some((Unigram::new(form)?, serde_json::to_vec(&parts).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "decoder": null,
        "added_tokens": [
            {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
        "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": false, "vocab": [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0],
            ["<unk>", 0.0], ["▁mein", -7.0], ["▁me", -6.5], ["in", -5.0], ["e", -4.0], ["▁Schwester", -11.0], ["▁Sch", -8.0],
            ["west", -8.5], ["er", -5.5], ["▁", -3.5], ["2", -6.0], ["㎏", -9.0], ["kg", -9.5], ["妹", -10.0]]}}"#;

    #[test]
    fn a_unigram_file_is_read_as_the_crate_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, FILE).unwrap();
        let own = TokenizerOfWords::read(&path, 17, 128).unwrap();
        assert!(matches!(own, TokenizerOfWords::Unigram(_)));
        let reference = Tokenizer::from_bytes(FILE).unwrap();
        for text in ["meine Schwester", "  me  in ", "2㎏ xyz", "妹e", "", "Schweſter", "e".repeat(200).as_str()] {
            let (own, reference) = (own.encode(text).unwrap(), reference.encode_fast(text, true).unwrap());
            let most = reference.len().min(128);
            let tokens = |encoding: &Encoding| encoding.get_ids()[..most - 1].to_vec();
            assert_eq!(tokens(&own), tokens(&reference), "{text}");
            assert_eq!((own.len(), own.get_ids().last()), (most, Some(&2)));
            assert_eq!(own.get_special_tokens_mask()[..most - 1], reference.get_special_tokens_mask()[..most - 1]);
        }
        // A mark that a user types is text.
        assert!(!own.encode("me </s>").unwrap().get_ids()[1..3].contains(&2));
        let beyond = TokenizerOfWords::read(&path, 16, 128).err().map(|error| error.to_string());
        assert!(beyond.is_some_and(|error| error.contains("token 16 is beyond")));
    }
}
