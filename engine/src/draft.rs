//! Drafts: tokens that may come next, computed in the step of the token before them. The model still chooses every
//! token of a reply; a rejected draft has cost a row of a step, and a step with few rows waits for weights anyway.
//!
//! Where a reply repeats earlier text (a name, a number, a list that is read back, the arguments of a tool), the tokens
//! behind the last place that ends alike are the draft. Elsewhere the model's block for multi-token prediction makes
//! one, if the model has it: that costs a part of a step for each token.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftLimits {
    pub ngram: usize,  // length of the repeated ending that makes a draft; 0: no draft from repetition
    pub tokens: usize, // most drafted tokens of one step
    pub mtp: usize,    // most tokens that the model predicts; 0: none
    /// Size of the vocabulary that it predicts from: the first tokens, which are the frequent ones.
    pub mtp_vocab: usize,
}

#[derive(Default)]
pub(crate) struct Draft {
    pub tokens: Vec<u32>,
    source: DraftSource,
}

#[derive(Clone, Copy)]
enum DraftSource {
    /// Tokens behind an earlier place that has the same `matched` tokens before it.
    Repeated {
        matched: usize,
    },
    Predicted,
}

impl Default for DraftSource {
    fn default() -> DraftSource {
        DraftSource::Repeated { matched: 0 }
    }
}

const LONGEST_MATCH: usize = 16; // longest match that still says more
const MATCHES: [usize; 4] = [3, 5, 8, LONGEST_MATCH]; // lengths of matches, each with an expectation of its own
const FIRST_HOPES: [f64; MATCHES.len()] = [0.4, 0.5, 0.6, 0.8];
/// Predicted tokens have an expectation for each place: the model guesses each from its guess before.
const FIRST_PREDICTION_HOPES: [f64; MOST_PREDICTED] = [0.6, 0.5, 0.4, 0.3];
pub(crate) const MOST_PREDICTED: usize = 4;
const LEARNING: f64 = 1.0 / 16.0; // weight of one draft in an expectation
const TIMING: f64 = 1.0 / 8.0; // weight of one step in the measured times
/// Least gain of a draft: less is not worth the risk that a step takes longer.
const WORTH: f64 = 1.03;
/// Number of skipped drafts for one that is made nevertheless, because texts change.
const TRIAL: u32 = 32;
/// One of this many steps predicts nothing, so that the time of a step without drafts stays known.
const PLAIN: u32 = 64; // not a window: steps
/// Cost of one more row of a step, as a share of the step with one, before it was measured.
const FIRST_ROW_COST: f64 = 0.06;

pub(crate) struct Drafting {
    pub limits: DraftLimits,
    /// Expectations by the lengths of `MATCHES`: the share of drafted tokens that were accepted where those before them were.
    hopes: [f64; MATCHES.len()],
    prediction_hopes: [f64; MOST_PREDICTED],
    passed: [u32; 2],   // skipped drafts, of each source
    since_plain: u32,   // predicted drafts since a step without any
    plain: Option<f64>, // seconds of a step with one token of one reply
    row_cost: f64,
    prediction_cost: f64, // of a predicted row, with its prediction
    last: LastStep,
}

#[derive(Clone, Copy, Default)]
enum LastStep {
    #[default]
    Other,
    One {
        drafts: usize,
        predicted: bool,
    }, // one token of one reply, and its drafts
}

impl Default for Drafting {
    fn default() -> Drafting {
        Drafting::new(DraftLimits::default(), None)
    }
}

#[derive(Clone, Copy)]
struct Promise {
    count: usize,
    gain: f64,
}

impl Drafting {
    /// Starts with `prediction`, the cost of predicting one token as a share of a step. `None`: the model cannot.
    pub fn new(limits: DraftLimits, prediction: Option<f64>) -> Drafting {
        let mtp = prediction.map_or(0, |_| limits.mtp.min(MOST_PREDICTED));
        Drafting {
            limits: DraftLimits { mtp, ..limits },
            hopes: FIRST_HOPES,
            prediction_hopes: FIRST_PREDICTION_HOPES,
            passed: [0; 2],
            since_plain: PLAIN,
            plain: None,
            row_cost: FIRST_ROW_COST,
            prediction_cost: FIRST_ROW_COST + prediction.unwrap_or_default(),
            last: LastStep::Other,
        }
    }

    pub fn limit(&mut self, limits: DraftLimits, prediction: Option<f64>) {
        let new = Drafting::new(limits, prediction);
        *self = if self.plain.is_none() { new } else { Drafting { limits: new.limits, ..std::mem::take(self) } };
    }

    /// Drafts up to `most` tokens that may follow `tokens`. Returns the number that the model shall predict, if it
    /// `can`: then the draft is empty and the caller adds them.
    pub fn draft(&mut self, tokens: &[u32], most: usize, can: bool, draft: &mut Draft) -> usize {
        draft.tokens.clear();
        let most = most.min(self.limits.tokens);
        if most == 0 {
            return 0;
        }
        let alike = if self.limits.ngram > 0 { last_alike(tokens, self.limits.ngram) } else { None };
        let none = Promise { count: 0, gain: WORTH };
        let repeated = alike.map_or(none, |(_, matched)| {
            let hope = self.hopes[kind_of(matched)];
            promise(most, self.row_cost, |_| hope)
        });
        let predictable = if can { most.min(self.limits.mtp) } else { 0 };
        let predicted = promise(predictable, self.prediction_cost, |at| self.prediction_hopes[at]);
        let is_predicted = predicted.gain > repeated.gain;
        if is_predicted && self.since_plain >= PLAIN {
            self.since_plain = 0;
            return 0;
        }
        let (predicted, repeated) = match (is_predicted, repeated.count) {
            // One more now and then: a token that is never drafted is never seen to be right.
            (true, _) if predicted.count < predictable && self.tries(1) => (predicted.count + 1, 0),
            (true, _) => (predicted.count, 0),
            (false, 0) if alike.is_some() && self.tries(0) => (0, 1),
            (false, 0) if predictable > 0 && self.tries(1) => (1, 0),
            (false, count) => (0, count),
        };
        if predicted > 0 {
            self.since_plain += 1;
            draft.source = DraftSource::Predicted;
        } else if let Some((place, matched)) = alike {
            draft.source = DraftSource::Repeated { matched };
            // Repeated text continues behind its end.
            for at in place..place + repeated {
                let token = tokens.get(at).or_else(|| draft.tokens.get(at - tokens.len())).copied();
                draft.tokens.extend(token);
            }
        }
        predicted
    }

    fn tries(&mut self, source: usize) -> bool {
        self.passed[source] += 1;
        self.passed[source].is_multiple_of(TRIAL)
    }

    pub fn learn(&mut self, draft: &Draft, accepted: usize) {
        for at in 0..draft.tokens.len().min(accepted + 1) {
            let came = if at < accepted { 1.0 } else { 0.0 };
            let hope = match draft.source {
                DraftSource::Repeated { matched } => &mut self.hopes[kind_of(matched)],
                DraftSource::Predicted => &mut self.prediction_hopes[at.min(MOST_PREDICTED - 1)],
            };
            *hope += LEARNING * (came - *hope);
        }
    }

    pub fn begin<'d>(&mut self, chosen: &[(usize, usize)], drafts: impl Iterator<Item = &'d Draft>) {
        let (mut count, mut is_predicted) = (0, false);
        for draft in drafts {
            count += draft.tokens.len();
            is_predicted |= matches!(draft.source, DraftSource::Predicted);
        }
        let predicted = is_predicted && count > 0;
        self.last =
            if matches!(chosen, [(_, 1)]) { LastStep::One { drafts: count, predicted } } else { LastStep::Other };
    }

    pub fn took(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        match (self.last, self.plain) {
            (LastStep::One { drafts: 0, .. }, None) => self.plain = Some(time),
            // Another program on this machine may have held a step up.
            (LastStep::One { drafts: 0, .. }, Some(plain)) => {
                self.plain = Some(plain + TIMING * (time.min(2.0 * plain) - plain));
            }
            (LastStep::One { drafts, predicted }, Some(plain)) if plain > 0.0 => {
                let cost = ((time / plain - 1.0) / drafts as f64).clamp(0.0, 1.0);
                let known = if predicted { &mut self.prediction_cost } else { &mut self.row_cost };
                *known += TIMING * (cost - *known);
            }
            _ => {}
        }
        self.last = LastStep::Other;
    }
}

/// Computes how many tokens are worth drafting. Each costs `cost`; `hope` gives its chance if all before it were right.
fn promise(most: usize, cost: f64, hope: impl Fn(usize) -> f64) -> Promise {
    let (mut expected, mut comes) = (1.0, 1.0);
    let mut best = Promise { count: 0, gain: WORTH };
    for at in 0..most {
        comes *= hope(at);
        expected += comes;
        let gain = expected / (1.0 + (at + 1) as f64 * cost);
        if gain > best.gain {
            best = Promise { count: at + 1, gain };
        }
    }
    best
}

fn kind_of(matched: usize) -> usize {
    MATCHES.iter().position(|most| matched <= *most).unwrap_or(MATCHES.len() - 1)
}

/// Finds the longest earlier match, of at least `least` tokens, for the end of `tokens`; of equal ones the last.
/// Returns the position behind it and its length.
fn last_alike(tokens: &[u32], least: usize) -> Option<(usize, usize)> {
    let last = *tokens.last()?;
    let mut best = None;
    let mut longest = least.max(1) - 1;
    for place in (1..tokens.len()).rev().filter(|place| tokens[place - 1] == last) {
        let before = tokens[..place].iter().rev();
        let alike = before.zip(tokens.iter().rev()).take(LONGEST_MATCH).take_while(|(a, b)| a == b).count();
        if alike > longest {
            (best, longest) = (Some((place, alike)), alike);
            if alike == LONGEST_MATCH {
                break;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DraftLimits = DraftLimits { ngram: 3, tokens: 7, mtp: 0, mtp_vocab: 0 };

    fn drafted(drafting: &mut Drafting, tokens: &[u32], most: usize) -> Vec<u32> {
        let mut draft = Draft::default();
        assert_eq!(drafting.draft(tokens, most, true, &mut draft), 0);
        draft.tokens
    }

    fn of(tokens: usize) -> [Draft; 1] {
        [Draft { tokens: vec![1; tokens], ..Draft::default() }]
    }

    #[test]
    fn the_longest_match_counts_and_of_these_the_last() {
        assert_eq!(last_alike(&[1, 2, 3, 4, 9, 1, 2, 3], 3), Some((3, 3)));
        assert_eq!(last_alike(&[7, 1, 2, 3, 4, 0, 1, 2, 3, 5, 7, 1, 2, 3], 3), Some((4, 4)), "the longer one");
        assert_eq!(last_alike(&[1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 3), Some((7, 3)), "the later one");
        assert_eq!(last_alike(&[1, 2, 3, 4, 2, 3], 3), None);
        assert_eq!(last_alike(&[], 3), None);
        assert_eq!(last_alike(&[5; 40], 3), Some((39, LONGEST_MATCH)), "what repeats itself");
    }

    #[test]
    fn a_draft_is_what_followed_and_no_longer_than_there_is_room() {
        let mut drafting = Drafting::new(LIMITS, None);
        let tokens = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3];
        let all = drafted(&mut drafting, &tokens, 7);
        assert!(!all.is_empty() && [4, 5, 6, 9, 1, 2, 3].starts_with(&all), "{all:?}");
        assert_eq!(drafted(&mut drafting, &tokens, 1), [4]);
        let cycle = [8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9];
        assert!(
            drafted(&mut drafting, &cycle, 7).len() > 2
                && [8, 9, 8, 9, 8, 9, 8].starts_with(&drafted(&mut drafting, &cycle, 7))
        );
        assert!(drafted(&mut drafting, &tokens, 0).is_empty());
        assert!(drafted(&mut Drafting::default(), &tokens, 7).is_empty(), "off");
    }

    #[test]
    fn drafts_grow_where_they_come_and_end_where_they_do_not() {
        let mut drafting = Drafting::new(LIMITS, None);
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3];
        let mut draft = Draft::default();
        for _ in 0..100 {
            drafting.draft(&tokens, 7, true, &mut draft);
            drafting.learn(&draft, draft.tokens.len());
        }
        assert_eq!(draft.tokens.len(), 7);
        let mut rows = 0;
        for _ in 0..1000 {
            drafting.draft(&tokens, 7, true, &mut draft);
            drafting.learn(&draft, 0);
            rows += draft.tokens.len();
        }
        // A few until it has learned, then a trial now and then.
        assert!((20..150).contains(&rows), "{rows} rows for nothing");
        // And back, when the text repeats again.
        for _ in 0..4000 {
            drafting.draft(&tokens, 7, true, &mut draft);
            drafting.learn(&draft, draft.tokens.len());
        }
        assert_eq!(draft.tokens.len(), 7);
    }

    #[test]
    fn rows_that_cost_much_are_not_drafted() {
        let mut drafting = Drafting::new(LIMITS, None);
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3];
        for _ in 0..50 {
            drafting.begin(&[(0, 1)], of(0).iter());
            drafting.took(Duration::from_millis(10));
            drafting.begin(&[(0, 1)], of(3).iter());
            drafting.took(Duration::from_millis(40));
        }
        assert!(drafted(&mut drafting, &tokens, 7).is_empty());
        for _ in 0..50 {
            drafting.begin(&[(0, 1)], of(3).iter());
            drafting.took(Duration::from_micros(10_300));
        }
        assert!(!drafted(&mut drafting, &tokens, 7).is_empty());
        // Steps of several replies, or with a prompt, say nothing.
        drafting.begin(&[(0, 1), (1, 1)], of(3).iter());
        drafting.took(Duration::from_secs(1));
        drafting.begin(&[(0, 256)], of(0).iter());
        drafting.took(Duration::from_secs(1));
        assert!(!drafted(&mut drafting, &tokens, 7).is_empty());
    }

    const BOTH: DraftLimits = DraftLimits { mtp: 2, mtp_vocab: 100, ..LIMITS };
    const NOTHING_ALIKE: [u32; 5] = [1, 2, 3, 4, 5];

    fn predicts(drafting: &mut Drafting, draft: &mut Draft, came: usize) -> usize {
        let asked = drafting.draft(&NOTHING_ALIKE, 7, true, draft);
        draft.tokens.extend(std::iter::repeat_n(9, asked));
        drafting.learn(draft, came.min(asked));
        asked
    }

    #[test]
    fn the_model_predicts_where_nothing_repeats_and_only_while_that_is_worth_it() {
        let (mut drafting, mut draft) = (Drafting::new(BOTH, Some(0.1)), Draft::default());
        let asked: Vec<usize> = (0..200).map(|_| predicts(&mut drafting, &mut draft, 2)).collect();
        assert_eq!((asked[0], asked[1]), (0, 2), "a step without says what a step takes");
        assert_eq!(asked.iter().filter(|asked| **asked == 0).count(), 4, "and one of many later");
        // The first is right and the second is wrong: one is requested.
        for _ in 0..200 {
            predicts(&mut drafting, &mut draft, 1);
        }
        let two = (0..96).filter(|_| predicts(&mut drafting, &mut draft, 1) == 2).count();
        assert!((1..=4).contains(&two), "{two} times two of 96");
        let asked: usize = (0..1000).map(|_| predicts(&mut drafting, &mut draft, 0)).sum();
        assert!((20..100).contains(&asked), "{asked} for nothing");
        let back: usize = (0..3000).map(|_| predicts(&mut drafting, &mut draft, 2)).skip(2900).sum();
        assert!(back > 180, "{back} of 100 steps");
        assert_eq!(drafting.draft(&NOTHING_ALIKE, 7, false, &mut draft), 0, "without its last output it cannot");
        assert_eq!(Drafting::new(BOTH, None).limits.mtp, 0, "a model without the block");
    }

    #[test]
    fn what_promises_more_is_drafted() {
        let (mut drafting, mut draft) = (Drafting::new(BOTH, Some(0.1)), Draft::default());
        let repeating = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3];
        drafting.since_plain = 0;
        assert_eq!(drafting.draft(&repeating, 7, true, &mut draft), 2, "a short match promises less");
        for _ in 0..100 {
            drafting.draft(&repeating, 7, false, &mut draft);
            drafting.learn(&draft, draft.tokens.len());
        }
        assert_eq!(drafting.draft(&repeating, 7, true, &mut draft), 0);
        assert_eq!(draft.tokens.len(), 7, "what comes always promises more than two tokens");
    }

    #[test]
    fn predictions_that_cost_much_end() {
        let (mut drafting, mut draft) = (Drafting::new(BOTH, Some(0.1)), Draft::default());
        let mut late = 0;
        for step in 0..400 {
            let asked = predicts(&mut drafting, &mut draft, 1);
            drafting.begin(&[(0, 1)], [&draft].into_iter());
            drafting.took(Duration::from_millis(10 + 10 * asked as u64));
            late += if step >= 100 { asked } else { 0 };
        }
        assert!((1..30).contains(&late), "{late} after it was known what they cost");
        assert_eq!(drafting.row_cost, FIRST_ROW_COST, "rows that repeat may cost less");
    }
}
