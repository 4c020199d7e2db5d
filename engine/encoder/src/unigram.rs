//! Tokens of Unigram vocabularies: the cut of a text into pieces whose scores have the largest sum. The vocabulary of a multilingual
//! encoder has 250,000 pieces, for which `tokenizers` takes 300 MB; sorted in one buffer they take 8.

use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokenizers::models::unigram::UnigramTrainer;
use tokenizers::{Model, Result, Token};

// Unigram model as `tokenizer.json` has it.
#[derive(Deserialize)]
pub struct UnigramForm {
    vocab: Vec<(String, f64)>,
    unk_id: Option<u32>,
    #[serde(default)]
    byte_fallback: bool,
}

pub struct Unigram {
    // Pieces in the order of their bytes, one behind the other.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    ids: Vec<u32>,
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f64,
}

// Best way to the end of a piece.
#[derive(Clone, Copy)]
struct Way {
    score: f64,
    start: usize,
    id: u32,
}

// Score of a character that no piece has, below the worst piece.
const UNKNOWN_BELOW: f64 = 10.0;

impl Unigram {
    // Returns `None` for a form that is not known here.
    pub fn new(form: UnigramForm) -> Option<Unigram> {
        let UnigramForm { vocab, unk_id: Some(unknown), byte_fallback: false } = form else { return None };
        let worst = vocab.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
        let mut order: Vec<u32> = (0..u32::try_from(vocab.len()).ok()?).collect();
        order.sort_unstable_by_key(|id| vocab[*id as usize].0.as_bytes());
        let mut bytes = Vec::with_capacity(vocab.iter().map(|(piece, _)| piece.len()).sum());
        let mut ends = Vec::with_capacity(vocab.len());
        for id in &order {
            bytes.extend_from_slice(vocab[*id as usize].0.as_bytes());
            ends.push(u32::try_from(bytes.len()).ok()?);
        }
        let scores = order.iter().map(|id| vocab[*id as usize].1 as f32).collect();
        Some(Unigram { bytes, ends, ids: order, scores, unknown, unknown_score: worst - UNKNOWN_BELOW })
    }

    pub fn largest(&self) -> Option<u32> {
        self.ids.iter().copied().max()
    }

    fn piece(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[at] as usize]
    }

    // Calls `found` with the end and the place of each piece that the text has at `start`.
    fn pieces_at(&self, text: &str, start: usize, mut found: impl FnMut(usize, usize)) {
        let (mut first, mut behind) = (0, self.ids.len());
        for (depth, byte) in text.as_bytes()[start..].iter().enumerate() {
            let byte_of = |at: usize| self.piece(at).get(depth).copied();
            first = bound(first, behind, |at| byte_of(at) < Some(*byte));
            behind = bound(first, behind, |at| byte_of(at) <= Some(*byte));
            if first == behind {
                return;
            }
            if self.piece(first).len() == depth + 1 {
                found(start + depth + 1, first);
            }
        }
    }

    fn cut(&self, text: &str) -> Vec<(u32, usize, usize)> {
        let unreached = Way { score: f64::NEG_INFINITY, start: 0, id: self.unknown };
        let mut ways = vec![unreached; text.len() + 1];
        ways[0].score = 0.0;
        for (start, character) in text.char_indices() {
            let (before, next) = (ways[start].score, start + character.len_utf8());
            let mut try_way = |end: usize, score: f64, id: u32| {
                if before + score > ways[end].score {
                    ways[end] = Way { score: before + score, start, id };
                }
            };
            let mut is_known = false;
            self.pieces_at(text, start, |end, at| {
                is_known |= end == next;
                try_way(end, f64::from(self.scores[at]), self.ids[at]);
            });
            if !is_known {
                try_way(next, self.unknown_score, self.unknown);
            }
        }
        let (mut cut, mut end) = (Vec::new(), text.len());
        while end > 0 {
            let Way { start, id, .. } = ways[end];
            match cut.last_mut() {
                // Unknown characters beside each other are one token.
                Some((last, last_start, _)) if *last == self.unknown && id == self.unknown => *last_start = start,
                _ => cut.push((id, start, end)),
            }
            end = start;
        }
        cut.reverse();
        cut
    }
}

// Returns the first place of a range for which `is_before` does not hold.
fn bound(first: usize, behind: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (first, behind);
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

impl Model for Unigram {
    type Trainer = UnigramTrainer;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        Ok(self.cut(text).into_iter().map(|(id, start, end)| Token::new(id, String::new(), (start, end))).collect())
    }

    fn token_to_id(&self, piece: &str) -> Option<u32> {
        let at = bound(0, self.ids.len(), |at| self.piece(at) < piece.as_bytes());
        (at < self.ids.len() && self.piece(at) == piece.as_bytes()).then(|| self.ids[at])
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        let at = self.ids.iter().position(|other| *other == id)?;
        Some(String::from_utf8_lossy(self.piece(at)).into_owned())
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        let piece = |at: usize| String::from_utf8_lossy(self.piece(at)).into_owned();
        (0..self.ids.len()).map(|at| (piece(at), self.ids[at])).collect()
    }

    fn get_vocab_size(&self) -> usize {
        self.ids.len()
    }

    fn save(&self, _: &Path, _: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("a vocabulary that only reads cannot be saved".into())
    }

    fn get_trainer(&self) -> UnigramTrainer {
        UnigramTrainer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::models::unigram::Unigram as Reference;

    fn tokens(model: &impl Model, text: &str) -> Vec<(u32, (usize, usize))> {
        model.tokenize(text).unwrap().into_iter().map(|token| (token.id, token.offsets)).collect()
    }

    fn form(vocab: Vec<(String, f64)>) -> UnigramForm {
        UnigramForm { vocab, unk_id: Some(0), byte_fallback: false }
    }

    proptest! {
        #[test]
        fn a_text_is_cut_as_the_reference_cuts_it(
            pieces in prop::collection::btree_set("[abäß日本]{1,4}", 1..40),
            scores in prop::collection::vec(-12.0f32..-1.0, 40),
            text in "[abcäß日本語]{0,24}",
        ) {
            let scored = pieces.into_iter().zip(scores).map(|(piece, score)| (piece, f64::from(score)));
            let vocab: Vec<(String, f64)> = std::iter::once(("<unk>".to_owned(), 0.0)).chain(scored).collect();
            let reference = Reference::from(vocab.clone(), Some(0), false).unwrap();
            let own = Unigram::new(form(vocab.clone())).unwrap();
            prop_assert_eq!(tokens(&own, &text), tokens(&reference, &text));
            prop_assert_eq!(own.get_vocab(), reference.get_vocab());
            for (id, (piece, _)) in vocab.iter().enumerate() {
                prop_assert_eq!(own.token_to_id(piece), Some(id as u32));
            }
        }
    }

    #[test]
    fn other_forms_are_left_to_the_crate() {
        let vocab = || vec![("<unk>".to_owned(), 0.0)];
        assert!(Unigram::new(UnigramForm { byte_fallback: true, ..form(vocab()) }).is_none());
        assert!(Unigram::new(UnigramForm { unk_id: None, ..form(vocab()) }).is_none());
        let empty = Unigram::new(form(Vec::new())).unwrap();
        assert_eq!((tokens(&empty, "ab"), empty.largest()), (vec![(0, (0, 2))], None));
    }
}
