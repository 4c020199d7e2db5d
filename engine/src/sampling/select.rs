//! Chooses among many logits without sorting them all: a vocabulary has a quarter of a million tokens, and a draw needs a few
//! dozen of them.

use std::cmp::Ordering;

use super::SamplingOptions;
use super::exp::exp_of_negative;

const GROUP_TOKENS: usize = 32; // tokens that share a word of the mask
/// Tokens whose weights are summed together if the whole vocabulary takes part in a draw.
const BLOCK_TOKENS: usize = 1024;
/// Number of candidates with which the search for `top_p` begins. It grows until they hold enough probability.
const FIRST_CANDIDATES: usize = 64;
const MORE_CANDIDATES: usize = 8;

const LEAST_LOG_PROBABILITY: f32 = -9999.0; // smallest log probability in an answer

#[derive(Debug, Clone, Copy, PartialEq)]
struct TokenCandidate {
    token: u32,
    logit: f32,
}

#[derive(Debug, Clone, Default)]
pub struct TokenSelector {
    candidates: Vec<TokenCandidate>,
    block_sums: Vec<f64>,
}

/// Returns the most probable allowed token, the lowest id on ties; `None` if no allowed logit is finite.
pub fn best(logits: &[f32], allowed: Option<&[u32]>) -> Option<u32> {
    let highest = highest(logits, allowed)?;
    // Whole groups are skipped by comparisons that the compiler vectorises.
    let mut groups = logits.chunks(GROUP_TOKENS).enumerate();
    groups.find_map(|(group, logits)| {
        let word = word_of(allowed, group);
        if word == 0 || !logits.iter().fold(false, |any, logit| any | (*logit == highest)) {
            return None;
        }
        let at = (0..logits.len()).find(|at| word >> at & 1 == 1 && logits[*at] == highest)?;
        Some((group * GROUP_TOKENS + at) as u32)
    })
}

pub fn log_probability(logit: f32, normaliser: f64) -> f32 {
    let value = (f64::from(logit) - normaliser) as f32;
    // NaN, which a broken logit gives, also becomes the smallest.
    if value > LEAST_LOG_PROBABILITY { value.min(0.0) } else { LEAST_LOG_PROBABILITY }
}

pub fn for_each_allowed(logits: &[f32], allowed: Option<&[u32]>, mut visit: impl FnMut(u32, f32)) {
    for (group, logits) in logits.chunks(GROUP_TOKENS).enumerate() {
        for_each_in_group(logits, group, word_of(allowed, group), &mut visit);
    }
}

impl TokenSelector {
    /// Draws by the number `chance` from [0, 1). `None` if no allowed logit is finite.
    pub fn draw(
        &mut self,
        sampling: &SamplingOptions,
        logits: &[f32],
        allowed: Option<&[u32]>,
        chance: f64,
    ) -> Option<u32> {
        let scale = Scale::new(highest(logits, allowed)?, sampling.temperature);
        let has_top_k = sampling.top_k > 0 && sampling.top_k < logits.len();
        // Written so that NaN means off.
        let has_top_p = sampling.top_p < 1.0;
        let has_min_p = sampling.min_p > 0.0;
        if has_top_k {
            self.keep_highest(logits, allowed, sampling.top_k);
        } else if has_top_p {
            self.keep_enough_for(sampling.top_p, scale, logits, allowed);
        } else if has_min_p {
            self.keep_heaviest(sampling.min_p.min(1.0), scale, logits, allowed);
        } else {
            return self.draw_from_all(scale, logits, allowed, chance);
        }
        if has_top_k && has_top_p {
            let total = self.candidates.iter().map(|found| f64::from(scale.weight(found.logit))).sum();
            let count = enough(&self.candidates, scale, sampling.top_p, total);
            self.candidates.truncate(count.unwrap_or(self.candidates.len()));
        }
        if has_min_p {
            self.candidates.retain(|found| scale.weight(found.logit) >= sampling.min_p.min(1.0));
        }
        let total: f64 = self.candidates.iter().map(|found| f64::from(scale.weight(found.logit))).sum();
        pick(&self.candidates, scale, total * chance)
    }

    /// Computes ln Σ e^logit over the finite logits, and the `count` best tokens with their log probabilities.
    pub fn log_probabilities(&mut self, logits: &[f32], count: usize) -> (f64, Vec<(u32, f32)>) {
        let Some(highest) = highest(logits, None) else { return (0.0, Vec::new()) };
        let scale = Scale::new(highest, 1.0);
        let normaliser = f64::from(highest) + self.sum_blocks(scale, logits, None).ln();
        if count == 0 {
            return (normaliser, Vec::new());
        }
        self.keep_highest(logits, None, count);
        let top = self.candidates.iter().map(|found| (found.token, log_probability(found.logit, normaliser)));
        (normaliser, top.collect())
    }

    fn keep_highest(&mut self, logits: &[f32], allowed: Option<&[u32]>, count: usize) {
        let candidates = &mut self.candidates;
        candidates.clear();
        let room = count.saturating_mul(2).max(256).min(logits.len().max(1));
        candidates.reserve(room);
        let mut threshold = f32::NEG_INFINITY;
        for (group, logits) in logits.chunks(GROUP_TOKENS).enumerate() {
            let word = word_of(allowed, group);
            // One vectorised comparison skips a group without a logit that is high enough, as most are.
            if word == 0 || !logits.iter().fold(false, |any, logit| any | (*logit > threshold)) {
                continue;
            }
            for_each_in_group(logits, group, word, &mut |token, logit| {
                // Ids rise, so a later token with the threshold's own logit has lost its tie.
                if logit <= threshold || !logit.is_finite() {
                    return;
                }
                if candidates.len() == room && room > count {
                    candidates.select_nth_unstable_by(count - 1, best_first);
                    candidates.truncate(count);
                    threshold = candidates[count - 1].logit;
                    if logit <= threshold {
                        return;
                    }
                }
                candidates.push(TokenCandidate { token, logit });
            });
        }
        candidates.sort_unstable_by(best_first);
        candidates.truncate(count);
    }

    /// Fills `candidates` with the fewest tokens that hold the share `top_p` of all weight, best first.
    fn keep_enough_for(&mut self, top_p: f32, scale: Scale, logits: &[f32], allowed: Option<&[u32]>) {
        let total = self.sum_blocks(scale, logits, allowed);
        let mut count = FIRST_CANDIDATES;
        loop {
            self.keep_highest(logits, allowed, count);
            let all = self.candidates.len() < count || count >= logits.len();
            if let Some(enough) = enough(&self.candidates, scale, top_p, total) {
                self.candidates.truncate(enough);
                return;
            }
            if all {
                return;
            }
            count *= MORE_CANDIDATES;
        }
    }

    fn keep_heaviest(&mut self, least_weight: f32, scale: Scale, logits: &[f32], allowed: Option<&[u32]>) {
        let candidates = &mut self.candidates;
        candidates.clear();
        for (group, logits) in logits.chunks(GROUP_TOKENS).enumerate() {
            let word = word_of(allowed, group);
            if word == 0 || !logits.iter().fold(false, |any, logit| any | (scale.weight(*logit) >= least_weight)) {
                continue;
            }
            for_each_in_group(logits, group, word, &mut |token, logit| {
                if scale.weight(logit) >= least_weight {
                    candidates.push(TokenCandidate { token, logit });
                }
            });
        }
    }

    fn draw_from_all(&mut self, scale: Scale, logits: &[f32], allowed: Option<&[u32]>, chance: f64) -> Option<u32> {
        let mut left = self.sum_blocks(scale, logits, allowed) * chance;
        // The last block that has any weight takes the remainder of rounding.
        let last = self.block_sums.iter().rposition(|sum| *sum > 0.0)?;
        let mut block = 0;
        while block < last && left >= self.block_sums[block] {
            left -= self.block_sums[block];
            block += 1;
        }
        let first_token = block * BLOCK_TOKENS;
        let end = logits.len().min(first_token + BLOCK_TOKENS);
        let allowed = allowed.map(|mask| mask.get(first_token / GROUP_TOKENS..).unwrap_or(&[]));
        self.candidates.clear();
        let candidates = &mut self.candidates;
        for_each_allowed(&logits[first_token..end], allowed, |token, logit| {
            if logit.is_finite() {
                candidates.push(TokenCandidate { token: token + first_token as u32, logit });
            }
        });
        pick(&self.candidates, scale, left)
    }

    fn sum_blocks(&mut self, scale: Scale, logits: &[f32], allowed: Option<&[u32]>) -> f64 {
        self.block_sums.clear();
        for (block, logits) in logits.chunks(BLOCK_TOKENS).enumerate() {
            let mut sums = [0.0; 8];
            for (group, logits) in logits.chunks(GROUP_TOKENS).enumerate() {
                let word = word_of(allowed, block * (BLOCK_TOKENS / GROUP_TOKENS) + group);
                if word != 0 {
                    add_weights(&mut sums, scale, logits, word);
                }
            }
            self.block_sums.push(sums.iter().sum());
        }
        self.block_sums.iter().sum()
    }
}

/// Maps a logit to a weight: e^((logit - highest) / temperature), so the best token weighs 1 and nothing overflows. A
/// logit that is not finite weighs nothing.
#[derive(Clone, Copy)]
struct Scale {
    highest: f32,
    per_temperature: f32,
}

impl Scale {
    fn new(highest: f32, temperature: f32) -> Scale {
        // Finite, so that the best token's distance of 0 stays 0 at the smallest temperature.
        Scale { highest, per_temperature: (1.0 / temperature).min(f32::MAX) }
    }

    #[inline(always)]
    fn weight(&self, logit: f32) -> f32 {
        exp_of_negative((logit - self.highest) * self.per_temperature)
    }
}

/// Adds the weights of the allowed tokens of one group. Eight sums side by side, always in this order: fast, and the
/// same on every platform.
fn add_weights(sums: &mut [f64; 8], scale: Scale, logits: &[f32], word: u32) {
    // A loop of its own without a branch, which the compiler vectorises.
    let mut weights = [0.0; GROUP_TOKENS];
    for (weight, &logit) in weights.iter_mut().zip(logits) {
        *weight = scale.weight(logit);
    }
    if word != u32::MAX {
        forbid(&mut weights, word, 0.0);
    }
    for eight in weights.as_chunks::<8>().0 {
        for (sum, &weight) in sums.iter_mut().zip(eight) {
            *sum += f64::from(weight);
        }
    }
}

fn forbid(values: &mut [f32; GROUP_TOKENS], word: u32, instead: f32) {
    for (at, value) in values.iter_mut().enumerate() {
        *value = if word >> at & 1 == 1 { *value } else { instead };
    }
}

/// Counts the candidates, best first, that hold the share `top_p` of `total`; at least one.
fn enough(candidates: &[TokenCandidate], scale: Scale, top_p: f32, total: f64) -> Option<usize> {
    let wanted = total * f64::from(top_p.max(0.0));
    let mut sum = 0.0;
    for (index, found) in candidates.iter().enumerate() {
        sum += f64::from(scale.weight(found.logit));
        if sum >= wanted {
            return Some(index + 1);
        }
    }
    None
}

fn pick(candidates: &[TokenCandidate], scale: Scale, mut left: f64) -> Option<u32> {
    let mut last = None;
    for found in candidates {
        let weight = f64::from(scale.weight(found.logit));
        if weight > 0.0 {
            last = Some(found.token);
            if left < weight {
                break;
            }
            left -= weight;
        }
    }
    last
}

fn highest(logits: &[f32], allowed: Option<&[u32]>) -> Option<f32> {
    let mut lanes = [f32::NEG_INFINITY; GROUP_TOKENS];
    for (group, logits) in logits.chunks(GROUP_TOKENS).enumerate() {
        let word = word_of(allowed, group);
        if word == 0 {
            continue;
        }
        let mut values = [f32::NEG_INFINITY; GROUP_TOKENS];
        values[..logits.len()].copy_from_slice(logits);
        if word != u32::MAX {
            forbid(&mut values, word, f32::NEG_INFINITY);
        }
        for (lane, value) in lanes.iter_mut().zip(values) {
            let higher = (value > *lane) & (value < f32::INFINITY);
            *lane = if higher { value } else { *lane };
        }
    }
    let highest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    (highest > f32::NEG_INFINITY).then_some(highest)
}

#[inline(always)]
fn for_each_in_group(logits: &[f32], group: usize, word: u32, visit: &mut impl FnMut(u32, f32)) {
    for (at, &logit) in logits.iter().enumerate() {
        if word >> at & 1 == 1 {
            visit((group * GROUP_TOKENS + at) as u32, logit);
        }
    }
}

/// Returns the mask's word for one group; past its end every token is forbidden.
#[inline(always)]
fn word_of(allowed: Option<&[u32]>, group: usize) -> u32 {
    allowed.map_or(u32::MAX, |mask| mask.get(group).copied().unwrap_or(0))
}

fn best_first(a: &TokenCandidate, b: &TokenCandidate) -> Ordering {
    // Only finite logits get here, and 0.0 equals -0.0.
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
}
