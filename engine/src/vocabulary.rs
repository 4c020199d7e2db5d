//! The tokenizer of a model, from whatever its file brings.

use text::Tokenizer;
use weights::VocabSource;

use crate::error::Error;

pub fn tokenizer(source: &VocabSource) -> Result<Tokenizer, Error> {
    Ok(match source {
        VocabSource::Gguf { tokens, types, merges, pre, .. } => Tokenizer::from_parts(tokens, types, merges, pre)?,
        VocabSource::Json { tokenizer, .. } => Tokenizer::from_json(tokenizer)?,
    })
}
