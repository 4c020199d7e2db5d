//! Fit of a fact with what a correction or a wish to forget means, token by token. `models/heads` has how it was made.

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSide {
    Fact,
    Forget,
    Correction,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactMatcher {
    rank: usize,
    project: f32, // scale of the projection
    fact: SideWeights,
    forget: SideWeights,
    correction: SideWeights,
    #[serde(skip)]
    weights: &'static [u8],
}

/// Weights of a token in a text, and of a fit: of the likeness of two texts, of the tokens of each, of a shared word.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SideWeights {
    scale: f32,
    bias: f32,
    weights: Vec<f32>,
}

/// Tokens of a text as the matcher compares them: a projected row each, of length one, and its share of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchTokens {
    rows: Vec<f32>,
    shares: Vec<f32>,
}

impl FactMatcher {
    pub(crate) fn with(self, weights: &'static [u8]) -> FactMatcher {
        FactMatcher { weights, ..self }
    }

    pub(crate) fn width(&self) -> usize {
        self.weights.len() / (self.rank + SIDES)
    }

    // `states`: of length one, as the encoder tells them.
    pub fn tokens(&self, side: TextSide, states: &[f32]) -> MatchTokens {
        let width = self.width();
        let (projection, counts) = self.weights.split_at(width * self.rank);
        let at = match side {
            TextSide::Fact => 0,
            TextSide::Forget => 1,
            TextSide::Correction => 2,
        };
        let (side, counts) = (self.side(side), &counts[at * width..][..width]);
        let mut tokens = MatchTokens::default();
        for state in states.chunks_exact(width).take(MOST_TOKENS) {
            let start = tokens.rows.len();
            tokens.rows.extend(projection.chunks_exact(width).map(|row| dot_bytes(row, state) * self.project));
            let row = &mut tokens.rows[start..];
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
            row.iter_mut().for_each(|x| *x /= length);
            tokens.shares.push(soft_plus(dot_bytes(counts, state) * side.scale + side.bias));
        }
        let sum = tokens.shares.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        tokens.shares.iter_mut().for_each(|share| *share /= sum);
        tokens
    }

    /// Returns how well a fact fits what is said, by the tokens of both, the likeness of their vectors, and the words that they share.
    pub fn fit(&self, side: TextSide, said: &MatchTokens, fact: &MatchTokens, likeness: f32, same_words: usize) -> f32 {
        let mut nearest_said = vec![-1.0f32; said.shares.len()];
        let mut nearest_fact = vec![-1.0f32; fact.shares.len()];
        for (said, nearest_said) in said.rows.chunks_exact(self.rank).zip(&mut nearest_said) {
            for (fact, nearest_fact) in fact.rows.chunks_exact(self.rank).zip(&mut nearest_fact) {
                let near: f32 = said.iter().zip(fact).map(|(a, b)| a * b).sum();
                (*nearest_said, *nearest_fact) = (nearest_said.max(near), nearest_fact.max(near));
            }
        }
        let mean = |nearest: &[f32], tokens: &MatchTokens| -> f32 {
            nearest.iter().zip(&tokens.shares).map(|(near, share)| near * share).sum()
        };
        let same = same_words.min(MOST_SAME_WORDS) as f32;
        let ways = [likeness, mean(&nearest_said, said), mean(&nearest_fact, fact), same];
        ways.iter().zip(&self.side(side).weights).map(|(way, weight)| way * weight).sum()
    }

    fn side(&self, side: TextSide) -> &SideWeights {
        match side {
            TextSide::Fact => &self.fact,
            TextSide::Forget => &self.forget,
            TextSide::Correction => &self.correction,
        }
    }
}

fn dot_bytes(weights: &[u8], values: &[f32]) -> f32 {
    weights.iter().zip(values).map(|(weight, x)| f32::from(*weight as i8) * x).sum()
}

fn soft_plus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

const SIDES: usize = 3;
const MOST_TOKENS: usize = 28;
pub(crate) const MOST_SAME_WORDS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Heads;

    fn states(seed: usize, width: usize) -> (Vec<f32>, Vec<f32>) {
        let state = |token: usize| (0..width).map(move |at| ((at * 7 + seed * 13 + token * at) as f32 * 0.37).sin());
        let rows: Vec<Vec<f32>> = (0..5).map(|token| state(token).collect()).collect();
        let of_length_one = |row: &[f32]| -> Vec<f32> {
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter().map(|x| x / length).collect()
        };
        let sum: Vec<f32> = (0..width).map(|at| rows.iter().map(|row| row[at]).sum()).collect();
        (rows.iter().flat_map(|row| of_length_one(row)).collect(), of_length_one(&sum))
    }

    // Compares with what `recipe/match.py` computes for the same states.
    #[test]
    fn fits_are_those_of_the_recipe() {
        let matcher = &Heads::all()[0].matcher;
        let ((said, vector), (fact, other)) = (states(1, matcher.width()), states(2, matcher.width()));
        let likeness = vector.iter().zip(&other).map(|(a, b)| a * b).sum();
        let fact = matcher.tokens(TextSide::Fact, &fact);
        let mut golden = include_str!("../../../models/heads/match.golden.tsv").lines();
        for (side, name) in [(TextSide::Forget, "forget"), (TextSide::Correction, "correction")] {
            let (told, wanted) = golden.next().unwrap().split_once('\t').unwrap();
            let fit = matcher.fit(side, &matcher.tokens(side, &said), &fact, likeness, 2);
            assert!(
                told == name && (fit - wanted.parse::<f32>().unwrap()).abs() < 2e-3,
                "{name}: {fit}, wanted {wanted}"
            );
        }
    }

    #[test]
    fn a_text_without_tokens_fits_by_what_is_left() {
        let matcher = &Heads::all()[0].matcher;
        let empty = matcher.tokens(TextSide::Forget, &[]);
        let fit = matcher.fit(TextSide::Forget, &empty, &matcher.tokens(TextSide::Fact, &[]), 0.5, 9);
        let weights = &matcher.forget.weights;
        assert!((fit - 0.5 * weights[0] - 3.0 * weights[3]).abs() < 1e-5);
    }
}
