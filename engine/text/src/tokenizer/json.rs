//! Reads `tokenizer.json`, as far as byte-level BPE of this kind needs it; anything else is an error that says what was
//! found, because ids that are nearly right are worse than none.

use super::parts::{self, TokenizerParts};
use super::{GgufVocabulary, Tokenizer, gguf};
use crate::Error;
use serde::Deserialize;
use std::collections::HashSet;
use tokenizers::models::bpe::Vocab;

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Option<Step>,
    #[serde(default)]
    pre_tokenizer: Option<Step>,
    model: BpeModel,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    special: bool,
}

/// A normaliser or pre-tokenizer: the fields of all the supported kinds.
#[derive(Deserialize)]
struct Step {
    r#type: String,
    #[serde(default)]
    normalizers: Vec<Step>,
    #[serde(default)]
    pretokenizers: Vec<Step>,
    pattern: Option<Pattern>,
    behavior: Option<String>,
    #[serde(default)]
    invert: bool,
    #[serde(default)]
    add_prefix_space: bool,
    use_regex: Option<bool>,
}

#[derive(Deserialize)]
struct Pattern {
    #[serde(rename = "Regex")]
    regex: Option<String>,
}

#[derive(Deserialize)]
struct BpeModel {
    #[serde(default)]
    r#type: Option<String>,
    vocab: Vocab,
    merges: Vec<Merge>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

/// A merge: `"a b"` in older files, `["a", "b"]` in newer ones.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a merge must be two tokens, as an array or as a string with a space between")]
enum Merge {
    Pair(String, String),
    Line(String),
}

pub fn read(file: &[u8]) -> Result<Tokenizer, Error> {
    let TokenizerFile { added_tokens, normalizer, pre_tokenizer, model } = parse(file)?;
    let nfc = nfc(normalizer.as_ref())?;
    let pattern = pattern(pre_tokenizer.as_ref())?;
    let mut normal = model.vocab;
    let highest = normal.values().copied().chain(added_tokens.iter().map(|added| added.id)).max();
    let count = highest.map_or(0, |id| id as usize + 1);
    // Ids may have gaps, but a table much larger than the tokens in it is a damaged file, not a vocabulary.
    if count > 4 * (normal.len() + added_tokens.len()) + 1_000 {
        let message = format!("the highest id is {} of only {} tokens", count - 1, normal.len() + added_tokens.len());
        return Err(Error::Vocabulary(message));
    }
    let added: HashSet<u32> = added_tokens.iter().map(|added| added.id).collect();
    normal.retain(|_, id| !added.contains(id));
    parts::build(TokenizerParts {
        count,
        normal,
        control: added_tokens.into_iter().map(|added| (added.content, added.id)).collect(),
        merges: model.merges.into_iter().map(pair_of).collect::<Result<_, Error>>()?,
        pattern,
        ignore_merges: model.ignore_merges,
        nfc,
    })
}

/// Lays the vocabulary out as a GGUF file holds it, with a token for each of `rows` rows of the embedding.
pub fn to_gguf(file: &[u8], rows: usize) -> Result<GgufVocabulary, Error> {
    let TokenizerFile { added_tokens, pre_tokenizer, model, .. } = parse(file)?;
    let pre = gguf::name_of(pattern(pre_tokenizer.as_ref())?, model.ignore_merges)?;
    let (mut tokens, mut types) = (vec![String::new(); rows], vec![UNUSED; rows]);
    let normal = model.vocab.iter().map(|(token, &id)| (token.clone(), id, NORMAL));
    let added = added_tokens.into_iter().map(|added| {
        let looks_special = added.content.starts_with("<|") && added.content.ends_with("|>");
        let kind = if added.special || looks_special { CONTROL } else { USER_DEFINED };
        (added.content, added.id, kind)
    });
    for (token, id, kind) in normal.chain(added) {
        let Some(place) = usize::try_from(id).ok().filter(|&place| place < rows) else {
            return Err(Error::Vocabulary(format!(
                "the id {id} of {token:?} has no row among {rows} of the embedding"
            )));
        };
        (tokens[place], types[place]) = (token, kind);
    }
    for (id, token) in tokens.iter_mut().enumerate().filter(|(id, _)| types[*id] == UNUSED) {
        *token = format!("[PAD{id}]");
    }
    let merges = model.merges.into_iter().map(pair_of);
    let merges = merges.map(|pair| pair.map(|(left, right)| format!("{left} {right}")));
    Ok(GgufVocabulary { tokens, types, merges: merges.collect::<Result<_, Error>>()?, pre })
}

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

fn parse(file: &[u8]) -> Result<TokenizerFile, Error> {
    let parsed: TokenizerFile = serde_json::from_slice(file).map_err(Error::TokenizerJson)?;
    check_model(&parsed.model)?;
    check_added(&parsed.added_tokens)?;
    Ok(parsed)
}

fn pair_of(merge: Merge) -> Result<(String, String), Error> {
    match merge {
        Merge::Pair(left, right) => Ok((left, right)),
        Merge::Line(line) => parts::pair_of(&line),
    }
}

fn check_added(added: &[Added]) -> Result<(), Error> {
    match added.iter().find(|added| added.lstrip || added.rstrip || added.single_word) {
        Some(added) => Err(Error::UnsupportedTokenizer {
            part: "added token",
            found: format!("{:?} with lstrip, rstrip or single_word", added.content),
            supported: "one that is matched as it stands",
        }),
        None => Ok(()),
    }
}

fn check_model(model: &BpeModel) -> Result<(), Error> {
    let unsupported =
        |found: String| Err(Error::UnsupportedTokenizer { part: "model", found, supported: "byte-level BPE" });
    if let Some(found) = model.r#type.as_ref().filter(|found| *found != "BPE") {
        return unsupported(found.clone());
    }
    if model.byte_fallback {
        return unsupported("BPE with byte_fallback".to_string());
    }
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if affixes.iter().any(|affix| affix.as_ref().is_some_and(|affix| !affix.is_empty())) {
        return unsupported("BPE with a subword prefix or suffix".to_string());
    }
    Ok(())
}

fn nfc(normalizer: Option<&Step>) -> Result<bool, Error> {
    let Some(step) = normalizer else { return Ok(false) };
    match step.r#type.as_str() {
        "NFC" => Ok(true),
        "Sequence" => {
            let steps = step.normalizers.iter().map(|step| nfc(Some(step))).collect::<Result<Vec<_>, Error>>()?;
            Ok(steps.contains(&true))
        }
        found => {
            Err(Error::UnsupportedTokenizer { part: "normalizer", found: found.to_string(), supported: "NFC or none" })
        }
    }
}

fn pattern(pre_tokenizer: Option<&Step>) -> Result<&str, Error> {
    const SUPPORTED: &str = "ByteLevel, or a Split (regex, isolated) followed by ByteLevel";
    let unsupported =
        |found: String| Error::UnsupportedTokenizer { part: "pre_tokenizer", found, supported: SUPPORTED };
    let Some(step) = pre_tokenizer else { return Err(unsupported("missing".to_string())) };
    let steps = match step.r#type.as_str() {
        "Sequence" => step.pretokenizers.as_slice(),
        _ => std::slice::from_ref(step),
    };
    let byte_level = |step: &Step| step.r#type == "ByteLevel" && !step.add_prefix_space;
    match steps {
        [only] if byte_level(only) && only.use_regex != Some(false) => Ok(gguf::GPT2),
        [cut, bytes]
            if cut.r#type == "Split"
                && !cut.invert
                && cut.behavior.as_deref() == Some("Isolated")
                && byte_level(bytes)
                && bytes.use_regex == Some(false) =>
        {
            let regex = cut.pattern.as_ref().and_then(|pattern| pattern.regex.as_deref());
            regex.ok_or_else(|| unsupported("a Split by a plain string".to_string()))
        }
        _ => {
            let kinds: Vec<&str> = steps.iter().map(|step| step.r#type.as_str()).collect();
            Err(unsupported(kinds.join(" then ")))
        }
    }
}
