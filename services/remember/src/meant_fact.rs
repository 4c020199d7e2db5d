//! Choice of the fact that a correction or a wish to forget means.

use crate::matcher::MOST_SAME_WORDS;
use crate::meant::content;
use crate::same_subject::Differences;
use crate::text::stems;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeantFact {
    None,
    One(usize),
    Unsure(usize, usize),
}

/// Fact that may be meant: how near its vector is, how well it fits, and how what is said differs from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearFact<'a> {
    pub text: &'a str,
    pub likeness: f32,
    pub fit: f32,
    pub differs: Differences,
}

/// Weights of the chance that a fact is the one that is meant: of its likeness and fit, and of its lead before the others.
/// `models/heads/recipe/match.py` fits them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChoiceWeights {
    bias: f32,
    likeness: f32,
    fit: f32,
    lead: f32,
    most_lead: f32,
    // Lead of a fact that has no other beside it.
    lone_lead: f32,
    // Of a statement that says another thing of the same, or the same of another.
    replaces_nothing: f32,
    // `None`: a word of another thing rules a fact out.
    of_another_thing: Option<f32>,
    // Only what is of the same, by its words, is meant.
    is_strict: bool,
    // Of two that are nearer to each other, neither is chosen.
    least_lead: f32,
    // What is neither as like nor fits as well as this is never chosen. A statement mostly corrects nothing: it stands beside a fact
    // that fits it less than facts that were corrected.
    least_likeness: f32,
    least_fit: f32,
    // Chance from which on a fact is chosen.
    least_chance: f32,
}

impl ChoiceWeights {
    const FORGOTTEN: ChoiceWeights = ChoiceWeights {
        bias: -5.54,
        likeness: 6.33,
        fit: 0.18,
        lead: 0.58,
        most_lead: 6.0,
        lone_lead: 1.0,
        replaces_nothing: 0.0,
        of_another_thing: Some(0.0),
        is_strict: false,
        least_lead: 1.0,
        least_likeness: 0.4,
        least_fit: 9.0,
        least_chance: 0.15,
    };
    const CORRECTED: ChoiceWeights = ChoiceWeights {
        bias: -3.18,
        likeness: 5.15,
        fit: -0.05,
        lead: 0.62,
        replaces_nothing: -0.71,
        of_another_thing: Some(-1.0),
        least_lead: 0.3,
        least_likeness: 0.42,
        least_fit: 10.0,
        least_chance: 0.12,
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
        replaces_nothing: 0.0,
        of_another_thing: None,
        is_strict: false,
        least_lead: 0.03,
        least_likeness: 0.0,
        least_fit: 0.0,
        least_chance: 0.5,
    };

    pub fn of_wish(is_matched: bool) -> ChoiceWeights {
        if is_matched { ChoiceWeights::FORGOTTEN } else { ChoiceWeights::NEAR }
    }

    /// Returns the weights of a statement that is a correction as surely as `share`. What hardly is one corrects nothing that differs from it,
    /// and is never unsure.
    pub fn of_correction(share: f32, is_matched: bool) -> ChoiceWeights {
        let weights = if is_matched { ChoiceWeights::CORRECTED } else { ChoiceWeights::NEAR };
        let bias = weights.bias + SHARE * share.max(LEAST_SHARE).ln();
        match share < LIKELY_CORRECTION {
            true => ChoiceWeights { bias, least_lead: 0.0, is_strict: true, ..weights },
            false => ChoiceWeights { bias, ..weights },
        }
    }

    fn rule_out(&self, fact: &NearFact) -> bool {
        let differs = &fact.differs;
        let is_of_another_thing = differs.of_another_thing && self.of_another_thing.is_none();
        let is_of_another = differs.of_others || differs.names_another || is_of_another_thing;
        let may_be = differs.of_another_thing || differs.replaces_nothing || differs.of_unnamed;
        let is_far = fact.likeness < self.least_likeness && fact.fit < self.least_fit;
        is_far || is_of_another || self.is_strict && may_be
    }

    fn chance(&self, fact: &NearFact, lead: f32) -> f32 {
        let if_so = |differs: bool, weight: f32| if differs { weight } else { 0.0 };
        let differs = if_so(fact.differs.replaces_nothing, self.replaces_nothing)
            + if_so(fact.differs.of_another_thing, self.of_another_thing.unwrap_or_default());
        let lead = self.lead * lead.clamp(-self.most_lead, self.most_lead);
        let score = self.bias + self.likeness * fact.likeness + self.fit * fact.fit + lead + differs;
        1.0 / (1.0 + (-score).exp())
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

/// Chooses the fact whose chance is best. Two that fit alike, or that say the same of two whom the sentence does not name, are unsure where
/// either would be chosen alone. A fact that is ruled out still counts against the lead of another: where it fits as well, the sentence may
/// well tell of it.
pub fn meant_fact(sentence: &str, facts: &[NearFact], weights: &ChoiceWeights) -> MeantFact {
    let best_other = |at: usize| {
        let others = (0..facts.len()).filter(|other| facts[*other].text != facts[at].text);
        others.max_by(|a, b| facts[*a].fit.total_cmp(&facts[*b].fit).then(b.cmp(a)))
    };
    let lead = |at: usize| best_other(at).map_or(weights.lone_lead, |other| facts[at].fit - facts[other].fit);
    let allowed = (0..facts.len()).filter(|at| !weights.rule_out(&facts[*at]));
    let chances = allowed.map(|at| (at, weights.chance(&facts[at], lead(at))));
    let Some((first, chance)) = chances.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))) else {
        return MeantFact::None;
    };
    let is_like =
        |other: &usize| weights.least_lead > 0.0 && differ_by_unnamed(sentence, facts[first].text, facts[*other].text);
    let close = best_other(first).filter(|_| lead(first) < weights.least_lead);
    let second = (0..facts.len()).find(is_like).or(close);
    match second.filter(|second| !weights.rule_out(&facts[*second])) {
        Some(second) if weights.chance(&facts[first], weights.most_lead) >= weights.least_chance => {
            MeantFact::Unsure(first, second)
        }
        _ if chance >= weights.least_chance => MeantFact::One(first),
        _ => MeantFact::None,
    }
}

/// Returns true if each fact has one word that the other lacks, a name as a rule, and the sentence has neither: 'Maya has migraines',
/// 'Lena has migraines', 'forget the migraines'.
fn differ_by_unnamed(sentence: &str, first: &str, second: &str) -> bool {
    let [said, first, second] = [sentence, first, second].map(|text| stems(text).into_iter().collect::<HashSet<_>>());
    let differ: Vec<&String> = first.symmetric_difference(&second).collect();
    let is_one_each = differ.len() == 2 && first.len() == second.len();
    is_one_each
        && !differ.iter().any(|stem| said.contains(*stem))
        && first.intersection(&second).any(|stem| said.contains(stem))
}

// Share of corrections from which on a statement is likely one.
const LIKELY_CORRECTION: f32 = 0.12;
const LEAST_SHARE: f32 = 0.01;
const SAME_WORD: f32 = 0.12;
const SHARE: f32 = 1.16; // weight of its logarithm

#[cfg(test)]
mod tests {
    use super::*;

    fn near<const N: usize>(facts: [(&str, f32, f32); N]) -> [NearFact<'_>; N] {
        facts.map(|(text, likeness, fit)| NearFact { text, likeness, fit, differs: Differences::default() })
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
        assert_eq!(meant_fact("", &[far, cat, dog], &sure), MeantFact::One(2));
        assert_eq!(meant_fact("", &[far], &sure), MeantFact::None);
        assert_eq!(meant_fact("", &[far], &wish), MeantFact::None);
        assert_eq!(meant_fact("", &[], &wish), MeantFact::None);
        // Two are near; the same words twice are one fact.
        assert_eq!(meant_fact("", &[same, dog], &sure), MeantFact::Unsure(1, 0));
        assert_eq!(meant_fact("", &[dog, dog, cat], &sure), MeantFact::One(0));
        assert_eq!(meant_fact("", &[same, dog], &wish), MeantFact::Unsure(1, 0));
        assert_eq!(meant_fact("", &[cat, dog], &wish), MeantFact::One(1));
        // What is less surely a correction has to fit better.
        let some = near([("My dog is called Rex.", 0.4, 12.0), ("I like tea.", 0.1, 10.5)]);
        assert_eq!(meant_fact("", &some, &sure), MeantFact::One(0));
        assert_eq!(meant_fact("", &some, &ChoiceWeights::of_correction(0.05, true)), MeantFact::None);
    }

    #[test]
    fn a_sentence_that_names_neither_of_two_may_mean_both() {
        let wish = ChoiceWeights::of_wish(true);
        let [maya, lena, niece] = near([
            ("My sister Maya has migraines.", 0.7, 18.0),
            ("My sister Lena has migraines.", 0.6, 15.0),
            ("My niece has migraines in spring.", 0.5, 14.0),
        ]);
        let meant = |sentence: &str, facts: &[NearFact]| meant_fact(sentence, facts, &wish);
        assert_eq!(meant("Forget my sister's migraines", &[maya, niece, lena]), MeantFact::Unsure(0, 2));
        assert_eq!(meant("Forget Maya's migraines", &[maya, niece, lena]), MeantFact::One(0));
        assert_eq!(meant("Forget my sister's migraines", &[maya, niece]), MeantFact::One(0));
        // They have in common only what the sentence does not speak of.
        assert_eq!(meant("Forget what I told you", &[maya, niece, lena]), MeantFact::One(0));
    }

    #[test]
    fn a_fact_of_another_is_not_meant() {
        let sure = ChoiceWeights::of_correction(0.9, true);
        let [niece, cousin] = near([("My niece works at the port.", 0.8, 18.0), ("My cousin works there.", 0.5, 12.0)]);
        assert_eq!(meant_fact("", &[niece, cousin], &sure), MeantFact::One(0));
        let of_others = Differences { of_others: true, ..Differences::default() };
        let niece = NearFact { differs: of_others, ..niece };
        assert_eq!(meant_fact("", &[niece], &sure), MeantFact::None);
        // Where it hardly is a correction, it must replace the same of the same.
        let open = Differences { replaces_nothing: true, ..Differences::default() };
        let niece = NearFact { differs: open, ..niece };
        assert_eq!(meant_fact("", &[niece, cousin], &sure), MeantFact::One(0));
        assert_eq!(meant_fact("", &[niece], &ChoiceWeights::of_correction(0.1, true)), MeantFact::None);
        // Words of another thing may be those of a new value: 'My wife is on reception at a dentist's'.
        let [job, tea] = near([("My wife works at the library.", 0.45, 13.8), ("I like tea.", 0.1, 10.4)]);
        let job = NearFact { differs: Differences { of_another_thing: true, ..Differences::default() }, ..job };
        assert_eq!(meant_fact("", &[job, tea], &ChoiceWeights::of_correction(0.5, true)), MeantFact::One(0));
        assert_eq!(meant_fact("", &[job, tea], &ChoiceWeights::of_correction(0.1, true)), MeantFact::None);
    }

    #[test]
    fn without_a_matcher_the_nearest_fact_is_meant() {
        let facts =
            near([("My dog is called Rex.", 0.5, 0.5), ("My cat is called Tom.", 0.2, 0.2), ("I like tea.", 0.1, 0.1)]);
        assert_eq!(meant_fact("", &facts, &ChoiceWeights::of_correction(0.9, false)), MeantFact::One(0));
        assert_eq!(meant_fact("", &facts, &ChoiceWeights::of_wish(false)), MeantFact::One(0));
        assert_eq!(meant_fact("", &facts[2..], &ChoiceWeights::of_wish(false)), MeantFact::None);
        let differs = Differences { of_another_thing: true, ..Differences::default() };
        let facts = facts.map(|fact| NearFact { differs, ..fact });
        assert_eq!(meant_fact("", &facts, &ChoiceWeights::of_correction(0.9, false)), MeantFact::None);
    }

    #[test]
    fn words_of_wishes_are_not_shared() {
        assert_eq!(same_words("Forget that my dog is called Rex", "My dog is called Rex."), 3);
        assert_eq!(same_words("Erase what I told you", "I told Ann that we erase it"), 0);
    }
}
