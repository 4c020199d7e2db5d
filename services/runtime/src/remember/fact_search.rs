//! Search for the fact that a sentence means.

use encoder::Encoder;
use remember::{
    Aspects, ChoiceWeights, FactMatcher, Heads, LIKELY_CORRECTION, MatchTokens, Statement, TextSide, are_of_others,
    fit_of_likeness, is_of_unnamed, may_replace, names_another,
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

    /// Tells whether a fact may be meant, by whom and what it is about. What hardly is a correction has to name the same.
    pub fn may_mean(&self, fact: &str, about: &str) -> bool {
        let Some(Correction { share, about: own, aspects }) = &self.correction else { return true };
        let is_of_another = are_of_others(self.sentence, fact)
            || names_another(own, about)
            || aspects.is_of_another_thing(&Aspects::of(fact));
        let names_same = || may_replace(own, about) && !is_of_unnamed(self.sentence, fact);
        !is_of_another && (*share >= LIKELY_CORRECTION || names_same())
    }

    // `None`: the fact's tokens were not read.
    pub fn fit(&self, fact: Option<&MatchTokens>, likeness: f32, same_words: usize) -> Option<f32> {
        match &self.matched {
            Some((matcher, tokens)) => Some(matcher.fit(self.side(), tokens, fact?, likeness, same_words)),
            None => Some(fit_of_likeness(likeness, same_words)),
        }
    }
}
