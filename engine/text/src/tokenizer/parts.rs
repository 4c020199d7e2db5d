//! From the parts that every source is brought to, to a tokenizer.

use super::atoms::Atoms;
use super::bpe::Merges;
use super::split::{self, Split};
use super::{Kind, Tokenizer, byte_chars};
use crate::Error;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;

/// A vocabulary as files write it: the bytes of normal tokens as characters (byte_chars.rs), control tokens by name.
pub struct Parts<'a> {
    pub tokens: Vec<(Cow<'a, str>, Kind)>,
    pub merges: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub split: Split,
    pub whole_words_first: bool,
    pub nfc: bool,
}

pub fn from_gguf(tokens: &[String], types: &[u32], merges: &[String], pre: &str) -> Result<Tokenizer, Error> {
    if tokens.len() != types.len() {
        let message = format!("{} tokens but {} token types", tokens.len(), types.len());
        return Err(Error::Vocabulary(message));
    }
    let pre = split::of_pre(pre)?;
    let kinds = types.iter().map(|number| kind_of_gguf(*number));
    let tokens = tokens.iter().zip(kinds).map(|(token, kind)| Ok((Cow::Borrowed(token.as_str()), kind?)));
    build(Parts {
        tokens: tokens.collect::<Result<_, Error>>()?,
        merges: merges.iter().map(|merge| pair_of(merge)).collect::<Result<_, Error>>()?,
        split: Split::new(pre.pattern)?,
        whole_words_first: pre.whole_words_first,
        nfc: false,
    })
}

/// The two sides of a merge written as one string. A token never holds a plain space, it is written `Ġ`.
pub fn pair_of(merge: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), Error> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left.into(), right.into())),
        _ => Err(Error::Vocabulary(format!("the merge {merge:?} is not two tokens with a space between"))),
    }
}

pub fn build(parts: Parts) -> Result<Tokenizer, Error> {
    let tokens = &parts.tokens;
    if tokens.len() >= u32::MAX as usize {
        return Err(Error::Vocabulary(format!("{} tokens are more than ids can number", tokens.len())));
    }
    let (bytes, ends) = all_bytes(tokens)?;
    let ids = normal_ids(tokens);
    let merges = merges(&ids, &parts.merges)?;
    let slice = |id: u32| {
        let start = if id == 0 { 0 } else { ends[id as usize - 1] as usize };
        &bytes[start..ends[id as usize] as usize]
    };
    let mut sorted: Vec<u32> =
        (0u32..).zip(tokens).filter(|(_, token)| token.1 != Kind::Unused).map(|(id, _)| id).collect();
    sorted.sort_unstable_by(|a, b| slice(*a).cmp(slice(*b)).then(a.cmp(b)));
    sorted.dedup_by(|later, earlier| slice(*later) == slice(*earlier));
    let mut fingerprint = Sha256::new();
    for (id, (_, kind)) in (0u32..).zip(tokens) {
        if *kind != Kind::Unused {
            fingerprint.update(id.to_le_bytes());
            fingerprint.update([u8::from(*kind == Kind::Control)]);
            fingerprint.update((slice(id).len() as u64).to_le_bytes());
            fingerprint.update(slice(id));
        }
    }
    let atoms = (0u32..).zip(tokens).filter(|(_, token)| token.1 == Kind::Control);
    let atoms = Atoms::new(atoms.map(|(id, token)| (token.0.as_bytes().to_vec(), id)));
    Ok(Tokenizer {
        kinds: tokens.iter().map(|token| token.1).collect(),
        sorted,
        atoms,
        split: parts.split,
        merges,
        whole_words_first: parts.whole_words_first,
        nfc: parts.nfc,
        fingerprint: fingerprint.finalize().into(),
        cache: None,
        bytes,
        ends,
    })
}

fn all_bytes(tokens: &[(Cow<str>, Kind)]) -> Result<(Vec<u8>, Vec<u32>), Error> {
    let mut bytes = Vec::with_capacity(tokens.len() * 8);
    let mut ends = Vec::with_capacity(tokens.len());
    for (token, kind) in tokens {
        match kind {
            // Some converters list added tokens as normal ones: what is not written in byte characters is plain text.
            Kind::Normal => match byte_chars::bytes_of(token) {
                Some(token_bytes) => bytes.extend_from_slice(&token_bytes),
                None => bytes.extend_from_slice(token.as_bytes()),
            },
            Kind::Control | Kind::Unused => bytes.extend_from_slice(token.as_bytes()),
        }
        let end = u32::try_from(bytes.len());
        ends.push(end.map_err(|_| Error::Vocabulary("the tokens together are over 4 GiB".to_string()))?);
    }
    Ok((bytes, ends))
}

fn normal_ids<'t>(tokens: &'t [(Cow<str>, Kind)]) -> HashMap<&'t str, u32> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (id, (token, kind)) in (0u32..).zip(tokens) {
        if *kind == Kind::Normal {
            ids.entry(&**token).or_insert(id);
        }
    }
    ids
}

fn merges(ids: &HashMap<&str, u32>, pairs: &[(Cow<str>, Cow<str>)]) -> Result<Merges, Error> {
    let mut byte_ids = [0; 256];
    let mut found = [false; 256];
    for c in (0..0x200).filter_map(char::from_u32) {
        if let (Some(byte), Some(id)) = (byte_chars::byte_of(c), ids.get(c.encode_utf8(&mut [0; 4]) as &str)) {
            byte_ids[byte as usize] = *id;
            found[byte as usize] = true;
        }
    }
    if let Some(missing) = found.iter().position(|found| !found) {
        return Err(Error::Vocabulary(format!("no token for the byte 0x{missing:02x}, is this byte-level BPE?")));
    }
    let mut merges = Merges::new(byte_ids, pairs.len());
    let mut joined = String::new();
    for (rank, (left, right)) in (0u32..).zip(pairs) {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        match (ids.get(&**left), ids.get(&**right), ids.get(joined.as_str())) {
            (Some(left), Some(right), Some(merged)) => merges.insert(*left, *right, rank, *merged),
            _ => {
                let message = format!("merge {rank} ({left:?} with {right:?}) needs a token that is not there");
                return Err(Error::Vocabulary(message));
            }
        }
    }
    Ok(merges)
}

fn kind_of_gguf(number: u32) -> Result<Kind, Error> {
    match number {
        // Byte tokens (6) belong to vocabularies with byte fallback; here every byte has a normal token.
        1 | 6 => Ok(Kind::Normal),
        // 'Unknown' is a token that is never in a text, but has a name; 'user-defined' is recognised as it stands.
        2..=4 => Ok(Kind::Control),
        0 | 5 => Ok(Kind::Unused),
        other => Err(Error::Vocabulary(format!("token type {other} is not one of 0 to 6"))),
    }
}
