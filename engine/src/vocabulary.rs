//! The tokenizer of a model, from the vocabulary in its file.

use std::path::Path;
use text::{Template, Tokenizer};
use weights::VocabSource;

use crate::error::Error;

/// Opens the tokenizer and the template of a model file, without its weights.
pub fn open(path: &Path) -> Result<(Tokenizer, Template), Error> {
    let model = weights::open(path, true)?;
    let template = model.chat_template.as_deref().map_or_else(Template::family, Template::new)?;
    Ok((tokenizer(model.vocab)?, template))
}

pub fn tokenizer(source: VocabSource) -> Result<Tokenizer, Error> {
    Ok(match source {
        VocabSource::Gguf { tokens, types, merges, pre } => Tokenizer::from_gguf(tokens, &types, merges, &pre)?,
        VocabSource::Json(file) => Tokenizer::from_json(&file)?,
    })
}
