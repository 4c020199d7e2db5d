//! Heads on a sentence encoder: what kind of saying a sentence is, by its vector. `models/heads` has how they were made.

use crate::matcher::FactMatcher;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaidKind {
    Person, // something lasting about the speaker, or one of theirs
    Home,
    Passing,
    Question,
    Order,
    Correction,
    Remember,
    Forget,
    Secret, // told, and not to be kept
}

#[derive(Debug)]
pub struct Heads {
    pub encoder: String,
    pub languages: Vec<String>,
    pub matcher: FactMatcher,
    kinds: Vec<KindHead>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindHeads {
    encoder: String,
    languages: Vec<String>,
    kinds: Vec<KindHead>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindHead {
    kind: SaidKind,
    bias: f32,
    scale: f32,
    weights: Vec<i8>,
}

/// Files of the heads of each encoder: the kinds, and the matcher with its weights.
#[rustfmt::skip]
const FILES: &[(&str, &str, &[u8])] = &[
    (
        include_str!("../../../models/heads/all-MiniLM-L6-v2.toml"),
        include_str!("../../../models/heads/all-MiniLM-L6-v2.match.toml"),
        include_bytes!("../../../models/heads/all-MiniLM-L6-v2.match.i8"),
    ),
];

static HEADS: LazyLock<Vec<Heads>> = LazyLock::new(|| {
    let read = |(kinds, matcher, weights): &(&str, &str, &'static [u8])| {
        let KindHeads { encoder, languages, kinds } = read_toml(kinds);
        Heads { encoder, languages, kinds, matcher: read_toml::<FactMatcher>(matcher).with(weights) }
    };
    FILES.iter().map(read).collect()
});

fn read_toml<T: DeserializeOwned>(file: &str) -> T {
    toml::from_str(file).unwrap_or_else(|error| panic!("models/heads: {error}"))
}

impl Heads {
    pub fn of(encoder: &str) -> Option<&'static Heads> {
        HEADS.iter().find(|heads| heads.encoder == encoder)
    }

    pub fn all() -> &'static [Heads] {
        &HEADS
    }

    pub fn shares(&self, vector: &[f32]) -> Shares {
        let score = |head: &KindHead| {
            let dot: f32 = head.weights.iter().zip(vector).map(|(weight, x)| f32::from(*weight) * x).sum();
            (head.kind, dot * head.scale + head.bias)
        };
        Shares::of_scores(self.kinds.iter().map(score))
    }
}

const LEAST_SHARE: f32 = 1e-6;

#[derive(Clone, Debug, PartialEq)]
pub struct Shares(Vec<(SaidKind, f32)>);

impl Shares {
    pub(crate) fn of_scores(scores: impl Iterator<Item = (SaidKind, f32)>) -> Shares {
        let scores: Vec<(SaidKind, f32)> = scores.collect();
        let most = scores.iter().map(|(_, score)| *score).fold(f32::MIN, f32::max);
        let mut shares: Vec<_> = scores.into_iter().map(|(kind, score)| (kind, (score - most).exp())).collect();
        let sum: f32 = shares.iter().map(|(_, share)| share).sum();
        shares.iter_mut().for_each(|(_, share)| *share /= sum);
        Shares(shares)
    }

    /// Joins what two heads tell that saw different things of a sentence.
    pub(crate) fn with(&self, other: &Shares) -> Shares {
        let score = |(kind, share): &(SaidKind, f32)| {
            (*kind, share.max(LEAST_SHARE).ln() + other.of(*kind).max(LEAST_SHARE).ln())
        };
        Shares::of_scores(self.0.iter().map(score))
    }

    #[cfg(test)]
    pub(crate) fn only(kind: SaidKind) -> Shares {
        Shares(vec![(kind, 1.0)])
    }

    pub fn of(&self, kind: SaidKind) -> f32 {
        self.0.iter().find(|(known, _)| *known == kind).map_or(0.0, |(_, share)| *share)
    }

    pub fn kind(&self) -> SaidKind {
        let likeliest = self.0.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        likeliest.map_or(SaidKind::Passing, |(kind, _)| *kind)
    }

    pub fn lasting(&self) -> f32 {
        use SaidKind::{Correction, Home, Person, Remember};
        [Person, Home, Correction, Remember].into_iter().map(|kind| self.of(kind)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_whole_and_tell_kinds_apart() {
        assert!(!Heads::all().is_empty());
        for heads in Heads::all() {
            let width = heads.encoder.rsplit('-').next().and_then(|width| width.parse().ok());
            assert_eq!(Some(heads.matcher.width()), width);
            assert!(heads.kinds.len() == 9 && heads.kinds.iter().all(|head| Some(head.weights.len()) == width));
            for head in &heads.kinds {
                // A vector along a head's own weights is of its kind.
                let length = head.weights.iter().map(|weight| f32::from(*weight).powi(2)).sum::<f32>().sqrt();
                let vector: Vec<f32> = head.weights.iter().map(|weight| f32::from(*weight) / length).collect();
                let shares = heads.shares(&vector);
                assert_eq!(shares.kind(), head.kind);
                assert!((shares.0.iter().map(|(_, share)| share).sum::<f32>() - 1.0).abs() < 1e-4);
            }
            assert!(Heads::of(&heads.encoder).is_some() && Heads::of("none").is_none());
        }
    }
}
