//! Finds control tokens in a text: leftmost first, and of those that begin together the longest.

use crate::Error;
use aho_corasick::{AhoCorasick, Input, MatchKind};

#[derive(Debug)]
pub struct ControlTokens {
    names: AhoCorasick,
    ids: Vec<u32>,
}

impl ControlTokens {
    pub fn new(tokens: &[(String, u32)]) -> Result<Self, Error> {
        let named = || tokens.iter().filter(|(name, _)| !name.is_empty());
        let names = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(named().map(|(name, _)| name));
        let names = names.map_err(|error| Error::Vocabulary(format!("the control tokens: {error}")))?;
        Ok(Self { names, ids: named().map(|(_, id)| *id).collect() })
    }

    /// Finds the first control token that begins at the byte `from` or later: start, end, id.
    pub fn find(&self, text: &str, from: usize) -> Option<(usize, usize, u32)> {
        let found = self.names.find(Input::new(text).range(from..))?;
        Some((found.start(), found.end(), self.ids[found.pattern().as_usize()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftmost_and_then_the_longest_is_found() {
        let tokens = [("<a", 1), ("<ab>", 2), ("", 3), ("b", 4), ("<ab>", 5)];
        let tokens = ControlTokens::new(&tokens.map(|(name, id)| (name.to_string(), id))).unwrap();
        assert_eq!(tokens.find("x<ab>", 0), Some((1, 5, 2)), "of two with one name the first");
        assert_eq!(tokens.find("x<ax>b", 0), Some((1, 3, 1)));
        assert_eq!(tokens.find("x<ab>", 2), Some((3, 4, 4)));
        assert_eq!(tokens.find("é<ab>", 1), Some((2, 6, 2)), "from inside a character");
        assert_eq!(tokens.find("x<", 0), None);
        assert_eq!(ControlTokens::new(&[]).unwrap().find("x", 0), None);
    }
}
