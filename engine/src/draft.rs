//! Drafts: tokens that may come next, computed in the step of the token before them. The model still chooses every token of a
//! reply; a draft that it does not choose has cost a row of a step, and a step with few rows waits for weights anyway.
//!
//! Where a reply repeats what stands before it (a name, a number, a list that is read back, the arguments of a tool), the
//! tokens behind the last place that ends alike are the draft.

use std::time::Duration;

/// How far drafts may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftLimits {
    /// So many last tokens must stand somewhere before. 0: there are no drafts.
    pub ngram: usize,
    /// The most tokens that are drafted for one step.
    pub tokens: usize,
}

/// What may come next in one reply.
#[derive(Default)]
pub(crate) struct Draft {
    pub tokens: Vec<u32>,
    /// How many last tokens stand in the same order before what was drafted.
    matched: usize,
}

/// Longer matches say no more.
const LONGEST_MATCH: usize = 16;
/// Matches of up to so many tokens have an expectation of their own.
const MATCHES: [usize; 4] = [3, 5, 8, LONGEST_MATCH];
/// Expectations before anything was seen.
const FIRST_HOPES: [f64; MATCHES.len()] = [0.4, 0.5, 0.6, 0.8];
/// How much one draft changes an expectation.
const LEARNING: f64 = 1.0 / 16.0;
/// How much one step changes what a step is known to cost.
const TIMING: f64 = 1.0 / 8.0;
/// A draft that promises less than this is not worth the risk that a step takes longer.
const WORTH: f64 = 1.03;
/// Where no draft is worth it, one of so many is made, because texts change.
const TRIAL: u32 = 32;
/// The cost of one more row of a step, as a share of the step with one, before it was measured.
const FIRST_ROW_COST: f64 = 0.06;

/// Decides how many tokens are drafted, by how often drafts came and by what a row costs here.
pub(crate) struct Drafting {
    pub limits: DraftLimits,
    /// Of matches as long as `MATCHES`: the share of drafted tokens that came where those before them had.
    hopes: [f64; MATCHES.len()],
    passed: u32,
    /// Seconds of a step with one token of one reply.
    plain: Option<f64>,
    row_cost: f64,
    last: LastStep,
}

#[derive(Clone, Copy, Default)]
enum LastStep {
    /// With a chunk of a prompt, or of several replies: its time says nothing about drafts.
    #[default]
    Other,
    /// One token of one reply, and so many drafts.
    One(usize),
}

impl Default for Drafting {
    fn default() -> Drafting {
        Drafting::new(DraftLimits::default())
    }
}

impl Drafting {
    pub fn new(limits: DraftLimits) -> Drafting {
        Drafting { limits, hopes: FIRST_HOPES, passed: 0, plain: None, row_cost: FIRST_ROW_COST, last: LastStep::Other }
    }

    /// Up to `most` tokens that may follow `tokens`.
    pub fn draft(&mut self, tokens: &[u32], most: usize, draft: &mut Draft) {
        draft.tokens.clear();
        if self.limits.ngram == 0 || most == 0 {
            return;
        }
        let Some((place, matched)) = last_alike(tokens, self.limits.ngram) else { return };
        draft.matched = matched;
        let count = self.length(matched, most.min(self.limits.tokens));
        // What repeats itself goes on behind its end.
        for at in place..place + count {
            let token = tokens.get(at).or_else(|| draft.tokens.get(at - tokens.len())).copied();
            draft.tokens.extend(token);
        }
    }

    /// How many tokens are worth drafting after a match of this length.
    fn length(&mut self, matched: usize, most: usize) -> usize {
        let hope = self.hopes[kind_of(matched)];
        let (mut expected, mut best) = (1.0, (WORTH, 0));
        for count in 1..=most {
            expected += hope.powi(count as i32);
            let gain = expected / (1.0 + count as f64 * self.row_cost);
            if gain > best.0 {
                best = (gain, count);
            }
        }
        if best.1 == 0 {
            self.passed += 1;
            return usize::from(self.passed.is_multiple_of(TRIAL)).min(most);
        }
        best.1
    }

    /// So many first tokens of a draft came.
    pub fn learn(&mut self, draft: &Draft, accepted: usize) {
        let hope = &mut self.hopes[kind_of(draft.matched)];
        for at in 0..draft.tokens.len().min(accepted + 1) {
            let came = if at < accepted { 1.0 } else { 0.0 };
            *hope += LEARNING * (came - *hope);
        }
    }

    /// A step begins over so many tokens of each of these requests, and drafts.
    pub fn begin(&mut self, chosen: &[(usize, usize)], drafts: usize) {
        self.last = if matches!(chosen, [(_, 1)]) { LastStep::One(drafts) } else { LastStep::Other };
    }

    /// The last step took so long.
    pub fn took(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        match (self.last, self.plain) {
            (LastStep::One(0), None) => self.plain = Some(time),
            // Something else on this machine may have held a step up.
            (LastStep::One(0), Some(plain)) => self.plain = Some(plain + TIMING * (time.min(2.0 * plain) - plain)),
            (LastStep::One(drafts), Some(plain)) if plain > 0.0 => {
                let cost = ((time / plain - 1.0) / drafts as f64).clamp(0.0, 1.0);
                self.row_cost += TIMING * (cost - self.row_cost);
            }
            _ => {}
        }
        self.last = LastStep::Other;
    }
}

fn kind_of(matched: usize) -> usize {
    MATCHES.iter().position(|most| matched <= *most).unwrap_or(MATCHES.len() - 1)
}

/// Where what follows the last place begins at which the same tokens stand as at the end, at least `least` of them; and how many.
/// Of places with as many the last one.
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

    const LIMITS: DraftLimits = DraftLimits { ngram: 3, tokens: 7 };

    fn drafted(drafting: &mut Drafting, tokens: &[u32], most: usize) -> Vec<u32> {
        let mut draft = Draft::default();
        drafting.draft(tokens, most, &mut draft);
        draft.tokens
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
        let mut drafting = Drafting::new(LIMITS);
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
        let mut drafting = Drafting::new(LIMITS);
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3];
        let mut draft = Draft::default();
        for _ in 0..100 {
            drafting.draft(&tokens, 7, &mut draft);
            drafting.learn(&draft, draft.tokens.len());
        }
        assert_eq!(draft.tokens.len(), 7);
        let mut rows = 0;
        for _ in 0..1000 {
            drafting.draft(&tokens, 7, &mut draft);
            drafting.learn(&draft, 0);
            rows += draft.tokens.len();
        }
        // A few until it is learned, then a trial now and then.
        assert!((20..150).contains(&rows), "{rows} rows for nothing");
        // And back, when the text repeats again.
        for _ in 0..4000 {
            drafting.draft(&tokens, 7, &mut draft);
            drafting.learn(&draft, draft.tokens.len());
        }
        assert_eq!(draft.tokens.len(), 7);
    }

    #[test]
    fn rows_that_cost_much_are_not_drafted() {
        let mut drafting = Drafting::new(LIMITS);
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3];
        for _ in 0..50 {
            drafting.begin(&[(0, 1)], 0);
            drafting.took(Duration::from_millis(10));
            drafting.begin(&[(0, 1)], 3);
            drafting.took(Duration::from_millis(40));
        }
        assert!(drafted(&mut drafting, &tokens, 7).is_empty());
        for _ in 0..50 {
            drafting.begin(&[(0, 1)], 3);
            drafting.took(Duration::from_micros(10_300));
        }
        assert!(!drafted(&mut drafting, &tokens, 7).is_empty());
        // Steps of several replies, or with a prompt, say nothing.
        drafting.begin(&[(0, 1), (1, 1)], 3);
        drafting.took(Duration::from_secs(1));
        drafting.begin(&[(0, 256)], 0);
        drafting.took(Duration::from_secs(1));
        assert!(!drafted(&mut drafting, &tokens, 7).is_empty());
    }
}
