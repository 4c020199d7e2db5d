//! The tokenizer's data in GGUF metadata.

use crate::error::Error;
use crate::family::Family;
use crate::gguf::metadata::Metadata;
use crate::model::VocabSource;
use crate::stop;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const CONTROL: u32 = 3;

pub(crate) struct Vocab {
    pub source: VocabSource,
    pub stop_tokens: Vec<u32>,
}

pub(crate) fn vocab(metadata: &Metadata, family: &Family, rows: usize) -> Result<Vocab, Error> {
    let path = metadata.path();
    let tokens = metadata.text_list(TOKENS)?.ok_or_else(|| metadata.missing(TOKENS, "the list of tokens"))?;
    if tokens.len() != rows {
        let expected = format!("{rows}, the rows of token_embd.weight");
        return Err(Error::key(path, TOKENS, format!("{} tokens", tokens.len()), expected));
    }
    let types = match metadata.unsigned_list(TYPES)? {
        None => vec![1; tokens.len()],
        Some(types) if types.len() != tokens.len() => {
            let found = format!("a list of {}", types.len());
            return Err(Error::key(path, TYPES, found, format!("one for each of the {} tokens", tokens.len())));
        }
        Some(types) => {
            let narrow = types.iter().map(|&kind| u32::try_from(kind)).collect::<Result<Vec<u32>, _>>();
            narrow.map_err(|_| Error::key(path, TYPES, "a number above 32 bits", "types of tokens, 1 to 6"))?
        }
    };
    let merges = metadata.text_list(MERGES)?.ok_or_else(|| metadata.missing(MERGES, "the list of merges"))?.to_vec();
    let mut stop_tokens = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        stop_tokens
            .extend(metadata.unsigned(key)?.map(|number| in_vocabulary(metadata, key, number, rows)).transpose()?);
    }
    const MORE: &str = "tokenizer.ggml.eos_token_ids";
    for number in metadata.unsigned_list(MORE)?.unwrap_or_default() {
        stop_tokens.push(in_vocabulary(metadata, MORE, number, rows)?);
    }
    let control = tokens.iter().zip(&types).zip(0u32..).filter(|((_, kind), _)| **kind == CONTROL);
    stop_tokens.extend(control.filter(|((token, _), _)| family.ends_with(token)).map(|(_, id)| id));
    Ok(Vocab {
        stop_tokens: stop::sorted(stop_tokens),
        source: VocabSource::Gguf {
            tokens: tokens.to_vec(),
            types,
            merges,
            pre: metadata.text("tokenizer.ggml.pre")?.unwrap_or_default().to_string(),
        },
    })
}

fn in_vocabulary(metadata: &Metadata, key: &str, number: u64, rows: usize) -> Result<u32, Error> {
    match u32::try_from(number) {
        Ok(id) if usize::try_from(id).is_ok_and(|id| id < rows) => Ok(id),
        _ => Err(Error::key(metadata.path(), key, number.to_string(), format!("a token, less than {rows}"))),
    }
}
