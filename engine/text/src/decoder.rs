//! Incremental decoding from bytes to text. A token may end inside a character: an incomplete character waits for its
//! remaining bytes. Invalid UTF-8 becomes U+FFFD exactly as in `String::from_utf8_lossy`.

use crate::Tokenizer;

#[derive(Debug, Clone, Default)]
pub struct Decoder {
    /// Beginning of an incomplete character: at most three bytes.
    waiting: Vec<u8>,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the characters that these bytes complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        let bytes = std::mem::take(&mut self.waiting);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            match std::str::from_utf8(chunk.invalid()) {
                Ok(_) => {}
                // The end of the bytes inside a character that may still be completed.
                Err(error) if error.error_len().is_none() && chunks.peek().is_none() => {
                    self.waiting = chunk.invalid().to_vec();
                }
                Err(_) => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        text
    }

    pub fn push_token(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        self.push(tokenizer.token_bytes(token))
    }

    pub fn finish(&mut self) -> String {
        let left = std::mem::take(&mut self.waiting);
        String::from_utf8_lossy(&left).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through(bytes: &[u8], cuts: &[usize]) -> String {
        let mut decoder = Decoder::new();
        let mut text = String::new();
        let mut start = 0;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts.into_iter().chain([bytes.len()]) {
            text += &decoder.push(&bytes[start..cut]);
            start = cut;
        }
        text + &decoder.finish()
    }

    #[test]
    fn a_character_waits_for_its_last_byte() {
        let mut decoder = Decoder::new();
        let bytes = "👩‍🚀".as_bytes();
        let mut pieces = Vec::new();
        for byte in bytes {
            pieces.push(decoder.push(&[*byte]));
        }
        assert_eq!(pieces, ["", "", "", "👩", "", "", "\u{200d}", "", "", "", "🚀"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn a_cut_character_becomes_the_replacement_character() {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.push(b"a\xe2\x82"), "a");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    /// Generates bytes that are likely to break decoders: pieces of characters, surrogates, overlong forms.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            any::<char>().prop_map(|c| c.to_string().into_bytes()[..1].to_vec()),
            Just(b"\xed\xa0\x80".to_vec()),
            Just(b"\xf0\x9f\x92".to_vec()),
            Just(b"\xc0\xaf".to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_lossy_decoding_of_the_whole(bytes in bytes(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
            prop_assert_eq!(through(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }
    }
}
