//! Choice of the fact that a correction or a wish to forget means.

use crate::matcher::MOST_SAME_WORDS;
use crate::meant::content;
use crate::text::stems;

// Share of corrections from which on a statement is likely one.
pub const LIKELY_CORRECTION: f32 = 0.12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeantFact {
    None,
    One(usize),
    Unsure(usize, usize),
}

/// Fact that may be meant: how near its vector is, and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearFact<'a> {
    pub text: &'a str,
    pub likeness: f32,
    pub fit: f32,
}

/// Weights of the choice among facts: of the best one's likeness and fit, and of its lead before the next. `models/heads/recipe/match.py`
/// fits them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChoiceWeights {
    bias: f32,
    likeness: f32,
    fit: f32,
    lead: f32,
    most_lead: f32,
    // Lead of a fact that has no other beside it.
    lone_lead: f32,
    // Of two that are nearer to each other, neither is chosen.
    least_lead: f32,
    // Chance that the fact is the right one, from which on it is chosen.
    least_chance: f32,
}

impl ChoiceWeights {
    const FORGOTTEN: ChoiceWeights = ChoiceWeights {
        bias: -5.22,
        likeness: 5.86,
        fit: 0.18,
        lead: 0.54,
        most_lead: 6.0,
        lone_lead: 1.0,
        least_lead: 0.0,
        least_chance: 0.15,
    };
    const CORRECTED: ChoiceWeights = ChoiceWeights {
        bias: -6.5,
        likeness: 8.77,
        fit: 0.12,
        lead: 0.56,
        least_lead: 0.3,
        least_chance: 0.3,
        ..ChoiceWeights::FORGOTTEN
    };
    // Weights where the encoder has no matcher: a fact fits as its vector is near.
    const NEAR: ChoiceWeights = ChoiceWeights {
        bias: -2.9,
        likeness: 7.77,
        fit: 0.0,
        lead: 9.54,
        most_lead: 0.3,
        lone_lead: 0.1,
        least_lead: 0.03,
        least_chance: 0.5,
    };

    pub fn of_wish(is_matched: bool) -> ChoiceWeights {
        if is_matched { ChoiceWeights::FORGOTTEN } else { ChoiceWeights { least_lead: 0.0, ..ChoiceWeights::NEAR } }
    }

    /// Returns the weights of a statement that is a correction as surely as `share`. What hardly is one has to fit better, and is never
    /// unsure.
    pub fn of_correction(share: f32, is_matched: bool) -> ChoiceWeights {
        let weights = if is_matched { ChoiceWeights::CORRECTED } else { ChoiceWeights::NEAR };
        let bias = weights.bias + SHARE * share.max(LEAST_SHARE).ln();
        match share < LIKELY_CORRECTION {
            true => ChoiceWeights { bias, least_lead: 0.0, least_chance: 0.5, ..weights },
            false => ChoiceWeights { bias, ..weights },
        }
    }

    fn are_met(&self, fact: &NearFact, lead: f32) -> bool {
        let lead = self.lead * lead.min(self.most_lead);
        let score = self.bias + self.likeness * fact.likeness + self.fit * fact.fit + lead;
        1.0 / (1.0 + (-score).exp()) >= self.least_chance
    }
}

/// Counts the words of a fact that a sentence has too, besides those of wishes.
pub fn same_words(sentence: &str, fact: &str) -> usize {
    let there = stems(fact);
    content(sentence).iter().filter(|stem| there.contains(stem)).count()
}

/// Returns how well a fact fits where the encoder has no matcher.
pub fn fit_of_likeness(likeness: f32, same_words: usize) -> f32 {
    likeness + SAME_WORD * same_words.min(MOST_SAME_WORDS) as f32
}

pub fn meant_fact(facts: &[NearFact], weights: &ChoiceWeights) -> MeantFact {
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by(|a, b| facts[*b].fit.total_cmp(&facts[*a].fit).then(a.cmp(b)));
    let Some(first) = order.first().copied() else { return MeantFact::None };
    let best = &facts[first];
    let second = order.into_iter().find(|at| facts[*at].text != best.text);
    let lead = second.map_or(weights.lone_lead, |second| best.fit - facts[second].fit);
    match second {
        Some(second) if lead < weights.least_lead && weights.are_met(best, weights.most_lead) => {
            MeantFact::Unsure(first, second)
        }
        _ if weights.are_met(best, lead) => MeantFact::One(first),
        _ => MeantFact::None,
    }
}

const LEAST_SHARE: f32 = 0.01;
const SAME_WORD: f32 = 0.12;
const SHARE: f32 = 0.57; // weight of its logarithm

#[cfg(test)]
mod tests {
    use super::*;

    fn near<const N: usize>(facts: [(&str, f32, f32); N]) -> [NearFact<'_>; N] {
        facts.map(|(text, likeness, fit)| NearFact { text, likeness, fit })
    }

    #[test]
    fn the_fact_that_fits_best_is_meant() {
        let sure = ChoiceWeights::of_correction(0.9, true);
        let wish = ChoiceWeights::of_wish(true);
        let [dog, cat, same, far] = near([
            ("My dog is called Rex.", 0.6, 16.0),
            ("My cat is called Tom.", 0.5, 12.0),
            ("My cat is called Tom.", 0.6, 15.9),
            ("I like tea.", 0.1, 5.0),
        ]);
        assert_eq!(meant_fact(&[far, cat, dog], &sure), MeantFact::One(2));
        assert_eq!(meant_fact(&[far], &sure), MeantFact::None);
        assert_eq!(meant_fact(&[far], &wish), MeantFact::None);
        assert_eq!(meant_fact(&[], &wish), MeantFact::None);
        // Two are near; the same words twice are one fact.
        assert_eq!(meant_fact(&[same, dog], &sure), MeantFact::Unsure(1, 0));
        assert_eq!(meant_fact(&[dog, dog, cat], &sure), MeantFact::One(0));
        assert_eq!(meant_fact(&[same, dog], &wish), MeantFact::One(1));
        // What is less surely a correction has to fit better.
        let some = near([("My dog is called Rex.", 0.4, 12.0), ("I like tea.", 0.1, 10.5)]);
        assert_eq!(meant_fact(&some, &sure), MeantFact::One(0));
        assert_eq!(meant_fact(&some, &ChoiceWeights::of_correction(0.05, true)), MeantFact::None);
    }

    #[test]
    fn without_a_matcher_the_nearest_fact_is_meant() {
        let facts =
            near([("My dog is called Rex.", 0.5, 0.5), ("My cat is called Tom.", 0.2, 0.2), ("I like tea.", 0.1, 0.1)]);
        assert_eq!(meant_fact(&facts, &ChoiceWeights::of_correction(0.9, false)), MeantFact::One(0));
        assert_eq!(meant_fact(&facts, &ChoiceWeights::of_wish(false)), MeantFact::One(0));
        assert_eq!(meant_fact(&facts[2..], &ChoiceWeights::of_wish(false)), MeantFact::None);
    }

    #[test]
    fn words_of_wishes_are_not_shared() {
        assert_eq!(same_words("Forget that my dog is called Rex", "My dog is called Rex."), 3);
        assert_eq!(same_words("Erase what I told you", "I told Ann that we erase it"), 0);
    }
}
