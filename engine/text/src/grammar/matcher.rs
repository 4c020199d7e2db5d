//! The walk of one sequence through a grammar.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use super::Grammar;
use super::env::SharedEnv;
use super::error::{GrammarError, why};
use super::free::Marker;

/// Masks the allowed tokens before each token, and takes the chosen token after it.
#[derive(Clone)]
pub struct Matcher {
    shared: Arc<SharedEnv>,
    inner: llguidance::Matcher,
    phase: MatcherPhase,
    optional: bool,
    finished: bool,
    computed: Option<SimpleVob>,
    free_mask: Vec<u32>,
}

/// Phase of the reply. `written`: length of the marker's name as far as the end of the text spells it.
#[derive(Clone, Copy)]
enum MatcherPhase {
    Reasoning { written: usize },
    Speech { written: usize },
    Constrained,
}

impl Matcher {
    pub(super) fn new(shared: Arc<SharedEnv>, inner: llguidance::Matcher, grammar: &Grammar) -> Matcher {
        let optional = grammar.is_optional();
        let phase = match (grammar.after_reasoning, optional) {
            (true, _) => MatcherPhase::Reasoning { written: 0 },
            (false, true) => MatcherPhase::Speech { written: 0 },
            (false, false) => MatcherPhase::Constrained,
        };
        Matcher { shared, inner, phase, optional, finished: false, computed: None, free_mask: Vec::new() }
    }

    /// Returns the allowed tokens: bit `i % 32` of word `i / 32` for token `i`; tokens past the end are forbidden.
    /// `None` allows every token. A finished grammar allows only stop tokens.
    pub fn mask(&mut self) -> Result<Option<&[u32]>, GrammarError> {
        if let MatcherPhase::Constrained = self.phase {
            if self.computed.is_none() {
                let mask = self.inner.compute_mask_or_eos().map_err(failed)?;
                self.computed = Some(mask);
            }
            return Ok(self.computed.as_ref().map(SimpleVob::as_slice));
        }
        if self.finished {
            self.free_mask.clear();
            self.free_mask.resize(self.shared.used.len(), 0);
            for &id in &self.shared.stop_tokens {
                self.free_mask[id as usize / 32] |= 1 << (id % 32);
            }
            return Ok(Some(&self.free_mask));
        }
        let shared = self.shared.clone();
        let mut some_forbidden = false;
        let mut forbid = |id: u32| {
            if !some_forbidden {
                self.free_mask.clone_from(&shared.used);
                some_forbidden = true;
            }
            self.free_mask[id as usize / 32] &= !(1 << (id % 32));
        };
        if let Some((marker, written)) = marker_of(&shared, self.phase) {
            marker.completions(written).for_each(&mut forbid);
        }
        if let MatcherPhase::Reasoning { .. } = self.phase {
            // A call belongs after the reasoning, and so does the end of a reply that must have a constrained part.
            shared.call_start.iter().for_each(|marker| forbid(marker.id));
            if !self.optional {
                shared.stop_tokens.iter().copied().for_each(&mut forbid);
            }
        }
        Ok(some_forbidden.then_some(self.free_mask.as_slice()))
    }

    /// Advances by one token. A forbidden token is an error and changes nothing.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        if self.finished {
            return if self.shared.stop_tokens.contains(&token) { Ok(()) } else { Err(self.rejected(token)) };
        }
        let shared = self.shared.clone();
        match (self.phase, marker_of(&shared, self.phase)) {
            (MatcherPhase::Constrained, _) | (_, None) => self.accept_constrained(token)?,
            (phase, Some((marker, _))) if marker.id == token => {
                let speech_follows = matches!(phase, MatcherPhase::Reasoning { .. }) && self.optional;
                self.phase =
                    if speech_follows { MatcherPhase::Speech { written: 0 } } else { MatcherPhase::Constrained };
                if let MatcherPhase::Speech { .. } = phase {
                    self.accept_constrained(token)?;
                }
            }
            (phase, _) if shared.stop_tokens.contains(&token) => {
                if !self.optional {
                    return Err(self.rejected(token));
                }
                self.finished = true;
                self.phase = phase;
            }
            (phase, Some((marker, written))) => {
                let is_call = shared.call_start.as_ref().is_some_and(|marker| marker.id == token);
                let bytes = shared.token_bytes(token);
                if is_call || marker.completions(written).any(|id| id == token) {
                    return Err(self.rejected(token));
                }
                let written = marker.written_after(written, bytes);
                self.phase = match phase {
                    MatcherPhase::Reasoning { .. } => MatcherPhase::Reasoning { written },
                    _ => MatcherPhase::Speech { written },
                };
            }
        }
        self.computed = None;
        Ok(())
    }

    /// Returns true if only a stop token can follow.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    fn accept_constrained(&mut self, token: u32) -> Result<(), GrammarError> {
        if token as usize >= self.shared.len() || self.inner.try_consume_tokens(&[token]).map_err(failed)? == 0 {
            return Err(self.rejected(token));
        }
        if self.inner.is_stopped() {
            if !self.inner.stop_reason().is_ok() {
                return Err(GrammarError::Failed { why: self.inner.stop_reason().to_string() });
            }
            self.finished = true;
        }
        Ok(())
    }

    fn rejected(&self, token: u32) -> GrammarError {
        let bytes = self.shared.token_bytes(token);
        GrammarError::Rejected { token, text: String::from_utf8_lossy(bytes).into_owned() }
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Matcher").field("finished", &self.finished).finish()
    }
}

/// Returns the control token that ends this free part, and the written length of its name.
fn marker_of(shared: &SharedEnv, phase: MatcherPhase) -> Option<(&Marker, usize)> {
    match phase {
        MatcherPhase::Reasoning { written } => shared.think_end.as_ref().map(|marker| (marker, written)),
        MatcherPhase::Speech { written } => shared.call_start.as_ref().map(|marker| (marker, written)),
        MatcherPhase::Constrained => None,
    }
}

fn failed(error: impl std::fmt::Display) -> GrammarError {
    GrammarError::Failed { why: why(error) }
}
