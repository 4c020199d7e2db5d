//! Search for the fact that a sentence means.

use encoder::Encoder;
use remember::{
    Aspects, ChoiceWeights, ComparedStatement, Differences, FactMatcher, Heads, MatchTokens, Statement, TextSide,
    fit_of_likeness,
};

pub struct FactSearch<'a> {
    pub sentence: &'a str,
    // `None`: a wish to forget.
    pub correction: Option<Correction>,
    pub vector: &'a [i8],
    // Matcher of the encoder, and the sentence's tokens. `None`: the nearest fact is meant.
    pub matched: Option<(&'static FactMatcher, MatchTokens)>,
}

/// Statement that may correct another, and how surely it is a correction.
pub struct Correction {
    share: f32,
    about: String,
    aspects: Aspects,
}

impl Correction {
    pub fn new(statement: &Statement, share: f32) -> Correction {
        Correction { share, about: statement.about.clone(), aspects: Aspects::of(&statement.text) }
    }
}

impl<'a> FactSearch<'a> {
    // `states`: of the sentence's tokens, as the encoder tells them.
    pub fn new(
        encoder: &Encoder,
        sentence: &'a str,
        correction: Option<Correction>,
        vector: &'a [i8],
        states: &[f32],
    ) -> FactSearch<'a> {
        let mut search = FactSearch { sentence, correction, vector, matched: None };
        let matcher = Heads::of(encoder.name()).map(|heads| &heads.matcher);
        search.matched = matcher.map(|matcher| (matcher, matcher.tokens(search.side(), states)));
        search
    }

    fn side(&self) -> TextSide {
        if self.correction.is_some() { TextSide::Correction } else { TextSide::Forget }
    }

    pub fn weights(&self) -> ChoiceWeights {
        match &self.correction {
            Some(correction) => ChoiceWeights::of_correction(correction.share, self.matched.is_some()),
            None => ChoiceWeights::of_wish(self.matched.is_some()),
        }
    }

    /// Returns how a statement differs from a fact that it may correct. A wish to forget states nothing.
    pub fn differences(&self, fact: &str, about: &str) -> Differences {
        let Some(correction) = &self.correction else { return Differences::default() };
        let newer = ComparedStatement { about: &correction.about, aspects: &correction.aspects };
        Differences::between(&newer, &ComparedStatement { about, aspects: &Aspects::of(fact) })
    }

    // `None`: the fact's tokens were not read.
    pub fn fit(&self, fact: Option<&MatchTokens>, likeness: f32, same_words: usize) -> Option<f32> {
        match &self.matched {
            Some((matcher, tokens)) => Some(matcher.fit(self.side(), tokens, fact?, likeness, same_words)),
            None => Some(fit_of_likeness(likeness, same_words)),
        }
    }
}
