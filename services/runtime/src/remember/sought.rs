//! Sentence whose fact is looked for.

use super::change::{MOST_NEAR, Remembered};
use crate::encode::encode_tokens;
use encoder::Encoder;
use remember::{
    Aspects, ChoiceWeights, FactMatcher, Heads, MatchTokens, Statement, TextSide, are_of_others, is_of_unnamed,
    may_replace, names_another,
};
use std::sync::Arc;
use store::SaidMessage;

pub struct Sought<'a> {
    pub sentence: &'a str,
    /// `None`: a wish to forget.
    pub correction: Option<Correction>,
    pub vector: &'a [i8],
    /// Matcher of the encoder, and the sentence's tokens. `None`: the nearest fact is meant.
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

impl<'a> Sought<'a> {
    /// `states`: of the sentence's tokens, as the encoder tells them.
    pub fn new(
        encoder: &Encoder,
        sentence: &'a str,
        correction: Option<Correction>,
        vector: &'a [i8],
        states: &[f32],
    ) -> Sought<'a> {
        let mut sought = Sought { sentence, correction, vector, matched: None };
        let matcher = Heads::of(encoder.name()).map(|heads| &heads.matcher);
        sought.matched = matcher.map(|matcher| (matcher, matcher.tokens(sought.side(), states)));
        sought
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

    /// Tells whether a fact may be meant, by whom and what it is about.
    pub fn may_mean(&self, fact: &str, about: &str) -> bool {
        let Some(Correction { share, about: own, aspects }) = &self.correction else { return true };
        let is_of_another = are_of_others(self.sentence, fact)
            || names_another(own, about)
            || aspects.is_of_another_thing(&Aspects::of(fact));
        let names_same = || may_replace(own, about) && !is_of_unnamed(self.sentence, fact);
        !is_of_another && (*share >= SURE_CORRECTION || names_same())
    }

    /// Returns how well a fact fits. `None`: its tokens were not read.
    pub fn fit(&self, fact: Option<&MatchTokens>, likeness: f32, same_words: usize) -> Option<f32> {
        match &self.matched {
            Some((matcher, tokens)) => Some(matcher.fit(self.side(), tokens, fact?, likeness, same_words)),
            None => Some(likeness + SAME_WORD * same_words.min(MOST_SAME_WORDS) as f32),
        }
    }

    /// Reads the tokens of the facts that the sentence may mean.
    pub async fn read_near(&self, encoder: &Arc<Encoder>, remembered: &mut Remembered, source: &SaidMessage) {
        let Some((matcher, _)) = self.matched else { return };
        let (ids, texts): (Vec<String>, Vec<String>) = remembered.unread(self, source, MOST_NEAR).into_iter().unzip();
        if texts.is_empty() {
            return;
        }
        let read = encode_tokens(encoder, texts).await;
        let tokens = read.iter().map(|text| matcher.tokens(TextSide::Fact, &text.tokens));
        remembered.add_tokens(ids.into_iter().zip(tokens).collect());
    }
}

const SURE_CORRECTION: f32 = 0.12;
const SAME_WORD: f32 = 0.12;
const MOST_SAME_WORDS: usize = 3;
