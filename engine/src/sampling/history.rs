//! The tokens that the penalties count, and the penalties.

use std::collections::{HashMap, VecDeque};

use super::SamplingOptions;

#[derive(Debug, Clone, Copy, Default)]
struct TokenCount {
    anywhere: u32,
    in_reply: u32,
}

#[derive(Debug, Clone)]
pub struct TokenHistory {
    repetition: f32,
    presence: f32,
    frequency: f32,
    counts: HashMap<u32, TokenCount>,
    /// Tokens in `counts`, oldest first, and whether each is of the reply. Empty if the penalties count everything.
    window: VecDeque<(u32, bool)>,
    window_tokens: usize,
}

impl TokenHistory {
    pub fn new(sampling: &SamplingOptions) -> TokenHistory {
        let sane = |value: f32, off: f32| if value.is_finite() { value } else { off };
        let repetition = sane(sampling.repetition_penalty, 1.0);
        TokenHistory {
            repetition: if repetition > 0.0 { repetition } else { 1.0 },
            presence: sane(sampling.presence_penalty, 0.0),
            frequency: sane(sampling.frequency_penalty, 0.0),
            counts: HashMap::new(),
            window: VecDeque::new(),
            window_tokens: sampling.penalty_last_tokens,
        }
    }

    pub fn extend_prompt(&mut self, tokens: &[u32]) {
        if self.repetition == 1.0 && (!self.reply_counts() || self.window_tokens == 0) {
            return; // no penalty needs the prompt
        }
        let first = if self.window_tokens == 0 { 0 } else { tokens.len().saturating_sub(self.window_tokens) };
        for &token in &tokens[first..] {
            self.push(token, false);
        }
    }

    pub fn push_reply(&mut self, token: u32) {
        if self.repetition != 1.0 || self.reply_counts() {
            self.push(token, true);
        }
    }

    /// Changes the logits of the counted tokens, and adds their old values to `originals`.
    pub fn apply_penalties(&self, logits: &mut [f32], originals: &mut Vec<(u32, f32)>) {
        for (&token, count) in &self.counts {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            originals.push((token, *logit));
            if self.repetition != 1.0 {
                *logit = if *logit > 0.0 { *logit / self.repetition } else { *logit * self.repetition };
            }
            if count.in_reply > 0 {
                *logit -= count.in_reply as f32 * self.frequency + self.presence;
            }
        }
    }

    fn reply_counts(&self) -> bool {
        self.presence != 0.0 || self.frequency != 0.0
    }

    fn push(&mut self, token: u32, of_reply: bool) {
        if self.window_tokens > 0 {
            if self.window.len() == self.window_tokens {
                self.forget_oldest();
            }
            self.window.push_back((token, of_reply));
        }
        let count = self.counts.entry(token).or_default();
        count.anywhere += 1;
        count.in_reply += u32::from(of_reply);
    }

    fn forget_oldest(&mut self) {
        let Some((token, of_reply)) = self.window.pop_front() else { return };
        if let Some(count) = self.counts.get_mut(&token) {
            count.anywhere -= 1;
            count.in_reply -= u32::from(of_reply);
            if count.anywhere == 0 {
                self.counts.remove(&token);
            }
        }
    }
}
