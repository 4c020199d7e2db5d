//! The vocabulary of a GGUF file: `tokenizer.ggml.tokens`, `.token_type`, `.merges`, `.pre`.

use super::Tokenizer;
use super::parts::{self, TokenizerParts};
use crate::Error;
use tokenizers::models::bpe::Vocab;

pub const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

struct PreTokenizer {
    name: &'static str,
    pattern: &'static str,
    ignore_merges: bool,
}

const KNOWN: &[PreTokenizer] = &[
    PreTokenizer { name: "qwen35", pattern: QWEN35, ignore_merges: false },
    PreTokenizer { name: "qwen2", pattern: QWEN2, ignore_merges: false },
    PreTokenizer { name: "deepseek-r1-qwen", pattern: QWEN2, ignore_merges: false },
    PreTokenizer { name: "gpt-2", pattern: GPT2, ignore_merges: false },
    PreTokenizer { name: "llama-bpe", pattern: LLAMA3, ignore_merges: true },
];

pub fn name_of(pattern: &str, ignore_merges: bool) -> Result<&'static str, Error> {
    let same = |known: &&PreTokenizer| known.pattern == pattern && known.ignore_merges == ignore_merges;
    KNOWN.iter().find(same).map(|known| known.name).ok_or_else(|| Error::UnsupportedTokenizer {
        part: "pattern",
        found: format!("{pattern:?}"),
        supported: "one that has a name in GGUF files",
    })
}

pub fn read(tokens: Vec<String>, types: &[u32], merges: Vec<String>, pre: &str) -> Result<Tokenizer, Error> {
    if tokens.len() != types.len() {
        let message = format!("{} tokens but {} token types", tokens.len(), types.len());
        return Err(Error::Vocabulary(message));
    }
    let pre = KNOWN.iter().find(|known| known.name == pre).ok_or_else(|| Error::UnknownPreTokenizer {
        found: pre.to_string(),
        known: KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
    })?;
    let count = tokens.len();
    let (mut normal, mut control) = (Vocab::with_capacity(count), Vec::new());
    for ((token, kind), id) in tokens.into_iter().zip(types).zip(0u32..) {
        match kind {
            // Byte tokens (6) belong to vocabularies with byte fallback; here every byte has a normal token. Of two
            // equal tokens the first is the one that is encoded.
            1 | 6 => {
                normal.entry(token).or_insert(id);
            }
            // 'Unknown' is a token that is never in a text, but has a name; 'user-defined' is recognised as it is
            // written.
            2..=4 => control.push((token, id)),
            0 | 5 => {}
            other => return Err(Error::Vocabulary(format!("token type {other} is not one of 0 to 6"))),
        }
    }
    parts::build(TokenizerParts {
        count,
        normal,
        control,
        merges: merges.iter().map(|merge| parts::pair_of(merge)).collect::<Result<_, Error>>()?,
        pattern: pre.pattern,
        ignore_merges: pre.ignore_merges,
        nfc: false,
    })
}
