//! Sampling of one token from logits: bias, penalties, temperature, top-k, top-p, min-p, seed, log probabilities.
//!
//! The steps and their order, which is the order of the reference generation loop of the model family (its card's
//! numbers were chosen with it):
//!
//! 1. `logit_bias` is added, 2. penalties, 3. tokens outside the mask fall away, 4. temperature, 5. the `top_k` best,
//! 6. of those the fewest that hold `top_p` of their probability, 7. of those the ones with at least `min_p` times the
//!    best one's probability, 8. one draw.
//!
//! Ties are always resolved towards the lower id, so exactly `top_k` tokens are kept. Logits that are NaN or infinite
//! are never chosen. Everything that decides about a token uses only additions, multiplications and comparisons in a
//! fixed order, so that equal logits and equal seed give equal text on every platform (see `exp.rs` for why that
//! excludes the platform's own `exp`).

mod exp;
mod history;
mod random;
mod select;
#[cfg(test)]
mod tests;

use history::TokenHistory;
use random::SplitMix64;
use select::TokenSelector;

/// Choice of the next token. The default is greedy: the most probable token, every time.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingOptions {
    /// 0: the most probable token; 1: the model's own distribution; more: flatter.
    pub temperature: f32,
    /// Number of most probable tokens to keep; 0: all.
    pub top_k: usize,
    /// Probability that the kept tokens must have together; at least one is kept; 1: all.
    pub top_p: f32,
    /// Least probability of a kept token, as a share of the most probable one's; 0: all.
    pub min_p: f32,
    /// Divisor of the positive and factor of the negative logits of every token that is in the prompt or in the reply;
    pub repetition_penalty: f32,
    /// Penalty on the logit of every token that is in the reply; 0: off.
    pub presence_penalty: f32,
    /// Penalty on the logit of a token for each time it is in the reply; 0: off.
    pub frequency_penalty: f32,
    /// Number of last tokens, of prompt and reply together, that the penalties count; 0: all of them.
    pub penalty_last_tokens: usize,
    /// Numbers added to the logits of these tokens. Minus infinity forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Equal seeds give equal text for equal logits.
    pub seed: Option<u64>,
    /// Number of most probable tokens to report with their log probabilities, beside the chosen one's.
    pub logprobs: Option<usize>,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_tokens: 0,
            logit_bias: Vec::new(),
            seed: None,
            logprobs: None,
        }
    }
}

impl SamplingOptions {
    /// Returns the first wrong number, for a client's error. A `Sampler` never fails on them: it reads values that make
    /// no sense as 'off'.
    pub fn check(&self) -> Result<(), SamplingError> {
        let from_0_to_1 = "a number from 0 to 1";
        let (temperature, repetition) = (self.temperature, self.repetition_penalty);
        let (presence, frequency) = (self.presence_penalty, self.frequency_penalty);
        let wrong_bias =
            self.logit_bias.iter().map(|(_, bias)| *bias).find(|bias| bias.is_nan() || *bias == f32::INFINITY);
        let rules = [
            ("temperature", temperature, temperature.is_finite() && temperature >= 0.0, "a number of 0 or more"),
            ("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), from_0_to_1),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), from_0_to_1),
            ("repetition_penalty", repetition, repetition.is_finite() && repetition > 0.0, "a number above 0"),
            ("presence_penalty", presence, presence.is_finite(), "a finite number"),
            ("frequency_penalty", frequency, frequency.is_finite(), "a finite number"),
            (
                "logit_bias",
                wrong_bias.unwrap_or_default(),
                wrong_bias.is_none(),
                "finite numbers, or minus infinity to forbid a token",
            ),
        ];
        if let Some((field, found, _, allowed)) = rules.into_iter().find(|(_, _, holds, _)| !holds) {
            return Err(SamplingError::Field { field, found, allowed });
        }
        Ok(())
    }
}

/// The next token of a reply. `logprob` and `top` are set if `SamplingOptions::logprobs` asks for them.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    pub token: u32,
    /// Log probability in the model's own distribution, before bias, penalties, mask and temperature: clients of the
    /// OpenAI interface expect that, and it can be compared between requests. At least -9999.0, which means 'never'
    /// because JSON has no minus infinity.
    pub logprob: Option<f32>,
    /// Most probable tokens of the same distribution, best first. The chosen token need not be among them.
    pub top: Vec<(u32, f32)>,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SamplingError {
    #[error("{field} is {found}; use {allowed}")]
    Field { field: &'static str, found: f32, allowed: &'static str },
    #[error("no token can be chosen: the grammar and the logit bias together forbid every one; relax one of them")]
    NothingAllowed,
    #[error("no token can be chosen: none of the allowed tokens has a finite logit; check the model file")]
    NothingFinite,
}

/// Chooser of one sequence's tokens. The repetition penalty counts prompt and reply, as its inventors and every common engine do: feed the prompt with
/// `accept_prompt`. Presence and frequency penalty count the reply only: the OpenAI interface defines them for sampled
/// tokens, and a voice assistant that read a name in the prompt must stay free to say it.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: SamplingOptions,
    random: SplitMix64,
    history: TokenHistory,
    selector: TokenSelector,
    /// Logits before bias and penalties: log probabilities are of the model's own logits.
    originals: Vec<(u32, f32)>,
}

impl Sampler {
    /// Starts a sampler. `seed_if_none` replaces a missing seed: the caller has a source of chance.
    pub fn new(sampling: &SamplingOptions, seed_if_none: u64) -> Sampler {
        let mut sampling = sampling.clone();
        // Each token once, with all of its bias.
        sampling.logit_bias.retain(|(_, bias)| !bias.is_nan() && *bias != f32::INFINITY);
        sampling.logit_bias.sort_by_key(|(token, _)| *token);
        sampling.logit_bias.dedup_by(|(token, bias), (kept, sum)| {
            let is_same = token == kept;
            *sum += if is_same { *bias } else { 0.0 };
            is_same
        });
        Sampler {
            random: SplitMix64::new(sampling.seed.unwrap_or(seed_if_none)),
            history: TokenHistory::new(&sampling),
            selector: TokenSelector::default(),
            originals: Vec::new(),
            sampling,
        }
    }

    /// Counts the prompt for the repetition penalty. It costs nothing if that is off.
    pub fn accept_prompt(&mut self, tokens: &[u32]) {
        self.history.extend_prompt(tokens);
    }

    pub fn accept(&mut self, token: u32) {
        self.history.push_reply(token);
    }

    /// Chooses the next token. Bit `i % 32` of word `i / 32` of `allowed` says whether token `i` may be chosen; tokens
    /// past its end may not. `logits` keeps bias and penalties. The caller still has to `accept` the token.
    pub fn sample(&mut self, logits: &mut [f32], allowed: Option<&[u32]>) -> Result<SampledToken, SamplingError> {
        let told = self.sampling.logprobs.map(|count| self.selector.log_probabilities(logits, count));
        self.originals.clear();
        self.apply_bias(logits);
        self.history.apply_penalties(logits, &mut self.originals);

        // One number is drawn for every token, even if it is not needed: the n-th token of a reply then uses the n-th
        // number of its seed, whatever the grammar forced before it.
        let chance = self.random.next_unit();
        let token = if self.sampling.temperature > 0.0 {
            self.selector.draw(&self.sampling, logits, allowed, chance)
        } else {
            select::best(logits, allowed)
        };
        let token = token.ok_or_else(|| why_none(logits, allowed))?;

        let Some((normaliser, top)) = told else {
            return Ok(SampledToken { token, logprob: None, top: Vec::new() });
        };
        let original = self.originals.iter().find(|(id, _)| *id == token).map(|(_, logit)| *logit);
        let original = original.or_else(|| logits.get(token as usize).copied()).unwrap_or(f32::NEG_INFINITY);
        Ok(SampledToken { token, logprob: Some(select::log_probability(original, normaliser)), top })
    }

    /// Returns the log probability of a token in the model's own distribution, and the `count` most probable tokens.
    pub fn score(&mut self, logits: &[f32], token: u32, count: usize) -> (f32, Vec<(u32, f32)>) {
        let (normaliser, top) = self.selector.log_probabilities(logits, count);
        let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        (select::log_probability(logit, normaliser), top)
    }

    fn apply_bias(&mut self, logits: &mut [f32]) {
        for &(token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                self.originals.push((token, *logit));
                *logit += bias;
            }
        }
    }
}

fn why_none(logits: &[f32], allowed: Option<&[u32]>) -> SamplingError {
    let mut all_forbidden = true;
    select::for_each_allowed(logits, allowed, |_, logit| all_forbidden &= logit == f32::NEG_INFINITY);
    if all_forbidden { SamplingError::NothingAllowed } else { SamplingError::NothingFinite }
}
