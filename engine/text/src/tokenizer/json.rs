//! Reads `tokenizer.json`. Only what byte-level BPE of this kind needs is understood; anything else is an error that
//! says what was found, because ids that are nearly right are worse than none.

use super::parts::{self, Parts};
use super::split::{self, Split};
use super::{Kind, Tokenizer};
use crate::Error;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow, default)]
    added_tokens: Vec<Added<'a>>,
    #[serde(default)]
    normalizer: Option<Step>,
    #[serde(default)]
    pre_tokenizer: Option<Step>,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
struct Added<'a> {
    id: u32,
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
}

/// A normaliser or pre-tokenizer: the fields of all the kinds that are understood.
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
struct Model<'a> {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(borrow)]
    vocab: Vocab<'a>,
    #[serde(borrow)]
    merges: Vec<Merge<'a>>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

pub fn read(file: &[u8]) -> Result<Tokenizer, Error> {
    let file: File = serde_json::from_slice(file).map_err(Error::TokenizerJson)?;
    check_model(&file.model)?;
    let nfc = nfc(file.normalizer.as_ref())?;
    let split = Split::new(pattern(file.pre_tokenizer.as_ref())?)?;
    let whole_words_first = file.model.ignore_merges;
    parts::build(Parts {
        tokens: tokens(file.model.vocab.0, file.added_tokens)?,
        merges: file.model.merges.into_iter().map(|merge| (merge.left, merge.right)).collect(),
        split,
        whole_words_first,
        nfc,
    })
}

fn tokens<'a>(vocab: Vec<(Cow<'a, str>, u32)>, added: Vec<Added<'a>>) -> Result<Vec<(Cow<'a, str>, Kind)>, Error> {
    let highest = vocab.iter().map(|(_, id)| *id).chain(added.iter().map(|added| added.id)).max();
    let count = highest.map_or(0, |id| id as usize + 1);
    // Ids may have gaps, but a table much larger than the tokens in it is a damaged file, not a vocabulary.
    if count > 4 * (vocab.len() + added.len()) + 1_000 {
        let message = format!("the highest id is {} of only {} tokens", count - 1, vocab.len() + added.len());
        return Err(Error::Vocabulary(message));
    }
    let mut tokens = vec![(Cow::Borrowed(""), Kind::Unused); count];
    for (token, id) in vocab {
        tokens[id as usize] = (token, Kind::Normal);
    }
    for added in added {
        if added.lstrip || added.rstrip || added.single_word {
            return Err(Error::UnsupportedTokenizer {
                part: "added token",
                found: format!("{:?} with lstrip, rstrip or single_word", added.content),
                supported: "one that is matched as it stands",
            });
        }
        tokens[added.id as usize] = (added.content, Kind::Control);
    }
    Ok(tokens)
}

fn check_model(model: &Model) -> Result<(), Error> {
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
        [only] if byte_level(only) && only.use_regex != Some(false) => Ok(split::GPT2),
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

/// The entries in the file's order, without a map of 250,000 strings in between.
struct Vocab<'a>(Vec<(Cow<'a, str>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(Cow<'de, str>, u32)>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map of tokens to ids")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = Vec::new();
                while let Some((Text(token), id)) = map.next_entry()? {
                    entries.push((token, id));
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries).map(Vocab)
    }
}

/// `"a b"` in older files, `["a", "b"]` in newer ones.
struct Merge<'a> {
    left: Cow<'a, str>,
    right: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two tokens, as an array or as a string with a space between")
            }
            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                let (left, right) = parts::pair_of(text).map_err(E::custom)?;
                Ok(Merge { left, right })
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let (left, right) = parts::pair_of(text).map_err(E::custom)?;
                Ok(Merge { left: left.into_owned().into(), right: right.into_owned().into() })
            }
            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
                let missing = |at| serde::de::Error::invalid_length(at, &"two tokens");
                let Text(left) = seq.next_element()?.ok_or_else(|| missing(0))?;
                let Text(right) = seq.next_element()?.ok_or_else(|| missing(1))?;
                if seq.next_element::<IgnoredAny>()?.is_some() {
                    return Err(missing(3));
                }
                Ok(Merge { left, right })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A string that borrows from the file where it holds no escape.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_string()))
            }
        }
        deserializer.deserialize_str(Borrowing).map(Text)
    }
}
