//! Bytes and kind of each token, in the order of ids.

use super::{TokenKind, byte_chars};
use crate::Error;

#[derive(Debug)]
pub struct TokenTable {
    bytes: Vec<u8>,
    /// End of each token's bytes. An unused token has none.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
}

impl TokenTable {
    /// Reads tokens as files write them: normal ones as characters for bytes (byte_chars.rs), control ones by name.
    pub fn new(tokens: &[(&str, TokenKind)]) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(tokens.len() * 8);
        let mut ends = Vec::with_capacity(tokens.len());
        for (token, kind) in tokens {
            // Some converters list control tokens as normal ones: text that is not in byte characters is plain text.
            match byte_chars::bytes_of(token).filter(|_| *kind == TokenKind::Normal) {
                Some(token_bytes) => bytes.extend_from_slice(&token_bytes),
                None => bytes.extend_from_slice(token.as_bytes()),
            }
            let end = u32::try_from(bytes.len());
            ends.push(end.map_err(|_| Error::Vocabulary("the tokens together are over 4 GiB".to_string()))?);
        }
        Ok(Self { bytes, ends, kinds: tokens.iter().map(|token| token.1).collect() })
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    pub fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..*end as usize]
    }
}
