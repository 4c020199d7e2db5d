//! Choice of the next requests: classes, waiting requests, and requests that wait for memory.

use super::Engine;
use super::pace::Hurry;
use crate::active_request::{ActiveRequest, RequestStart};
use crate::cache::{EvictionRights, PrefixQuery};
use crate::cached_sequence::CachedSequence;
use crate::error::Error;
use crate::limits::MOST_SCORED_TOKENS;
use crate::request::{EngineEvent, Priority, StopReason};
use crate::state::SequenceState;

/// Most steps that may pass a request over; then it takes part in the next one, whatever is more urgent: with one part
/// of a chunk in as many steps it takes little from urgent requests.
const LONGEST_WAIT_STEPS: u64 = 32;
const LONGEST_WAIT_BEHIND_WORDS: u64 = 4 * LONGEST_WAIT_STEPS; // while a user waits for a first word

/// Most early replies of one step: a request that comes meanwhile waits for the step's end, and a step of two takes
/// hardly longer than one of one.
const EARLY_REPLIES: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Talk,
    Prompt, // a prompt that a user may soon wait for
    EarlyReply,
    Background,
}

/// Splits `tokens` into even parts of at most `most`, and returns the next: a last part of a few tokens would cost a
/// step hardly less than a full one.
fn even_part(tokens: usize, most: usize) -> usize {
    match tokens.div_ceil(most.max(1)) {
        0 => 0,
        steps => tokens.div_ceil(steps).min(most),
    }
}

impl Engine {
    /// Ranks a request by its priority and its wait, so that no priority starves. An early reply may wait for ever.
    pub(super) fn urgency(&self, request: &ActiveRequest) -> Urgency {
        match request.priority {
            _ if self.is_late(request) => Urgency::Talk,
            Priority::Talk => Urgency::Talk,
            Priority::Speculate if request.is_early_reply() => Urgency::EarlyReply,
            Priority::Speculate => Urgency::Prompt,
            Priority::Background => Urgency::Background,
        }
    }

    /// Returns true for a request that has waited too long. Of background work only the first in turn is ever late, so
    /// that one ends after the other. It has its share of the time, but hardly of steps to a user's first word.
    fn is_late(&self, request: &ActiveRequest) -> bool {
        let waited = self.steps - request.computed_at;
        if request.priority != Priority::Background {
            return waited >= LONGEST_WAIT_STEPS && !request.speculative;
        }
        let is_background = |request: &&ActiveRequest| request.priority == Priority::Background;
        let first = self.requests.iter().find(is_background).map(|first| first.id);
        let is_awaited = |request: &ActiveRequest| request.priority == Priority::Talk && !request.is_decoding();
        let longest = if self.requests.iter().any(is_awaited) { LONGEST_WAIT_BEHIND_WORDS } else { LONGEST_WAIT_STEPS };
        let is_due = longest == LONGEST_WAIT_STEPS && self.pace.background_is_due();
        first == Some(request.id) && (waited >= longest || is_due)
    }

    /// Starts waiting requests, the most urgent first, and of these one of the user with the fewest places. Each may
    /// suspend a less urgent one, or one of a crowd. A request that would not be computed beside a more urgent one does
    /// not begin yet, because a beginning copies a state.
    pub(super) fn admit(&mut self, events: &mut Vec<EngineEvent>) {
        loop {
            let is_running = |request: &&ActiveRequest| request.is_running();
            let running = self.requests.iter().filter(is_running).count();
            let most_urgent = self.requests.iter().filter(is_running).map(|request| self.urgency(request)).min();
            let parked = |request: &ActiveRequest| running > 0 && request.parked_at == Some(self.done);
            let requests = self.requests.iter().enumerate();
            let is_ready = |request: &ActiveRequest| !parked(request) && !self.waits_for_choice(request);
            let waiting = requests.filter(|(_, request)| !request.is_running() && is_ready(request));
            let in_turn = |(at, request): (usize, &ActiveRequest)| {
                (self.urgency(request), self.running_of(request.user), self.turns.last(request.user), at)
            };
            let Some((urgency, _, _, at)) = waiting.map(in_turn).min() else { break };
            if most_urgent.is_some_and(|most_urgent| urgency > most_urgent) {
                return;
            }
            let less_urgent = self.least_urgent(|request| self.urgency(request));
            let less_urgent = less_urgent.filter(|last| self.urgency(&self.requests[*last]) > urgency);
            let gives_way = less_urgent.or_else(|| self.of_crowd(at));
            if running >= self.limits.max_sequences.max(1) {
                let Some(last) = gives_way else { return };
                self.suspend(last);
            }
            // A state, and a snapshot if the request begins at a mark.
            let shape = self.network.state_shape;
            let bytes = shape.fixed_bytes() + shape.snapshot_bytes(self.limits.snapshots);
            let rights = self.requests[at].rights();
            if let Ok(layout) = shape.layout(self.requests[at].kv) {
                self.cache.touch(&self.requests[at].tokens, layout, self.requests[at].scope);
            }
            if !self.make_room(bytes, rights) {
                if let Some(last) = gives_way {
                    self.requests[last].parked_at = Some(self.done);
                    self.suspend(last);
                } else if running > 0 {
                    self.requests[at].parked_at = Some(self.done);
                } else if !self.requests[at].is_wanted() || !self.make_room(bytes, EvictionRights::All) {
                    self.fail_for_memory(at, events);
                }
                continue;
            }
            self.turns.take(self.requests[at].user);
            if let Err(error) = self.begin(at, events) {
                let id = self.requests.remove(at).id;
                events.push(EngineEvent::Failed { id, error });
            }
        }
        if self.requests.iter().all(ActiveRequest::is_running) {
            self.turns.begin_again();
        }
    }

    fn waits_for_choice(&self, request: &ActiveRequest) -> bool {
        let first = request.choice_of.and_then(|id| self.requests.iter().find(|other| other.id == id));
        first.is_some_and(|first| first.tokens.len() == first.prompt_tokens)
    }

    fn begin(&mut self, at: usize, events: &mut Vec<EngineEvent>) -> Result<(), Error> {
        let shape = self.network.state_shape;
        let request = &self.requests[at];
        let layout = shape.layout(request.kv)?;
        let limit = request.reuse_limit();
        let all = self.requests.iter().chain(&self.held);
        let running = all.filter_map(|other| other.sequence.as_ref().map(|sequence| (other, sequence)));
        let running: Vec<(&[u32], &CachedSequence)> =
            running.map(|(other, sequence)| (&other.tokens[..sequence.state.position], sequence)).collect();
        let (network, executor) = (&self.network, &mut self.executor);
        let (rights, scope) = (request.rights(), request.scope);
        let ActiveRequest { tokens, owner, one_off, .. } = request;
        let query = PrefixQuery { tokens, layout, limit, rights, owner: *owner, scope, leaves_past: *one_off };
        let found = self.cache.find(network, executor, query, &running);
        let mut sequence = match found.sequence {
            Some(sequence) => sequence,
            None => {
                let state = SequenceState::new(shape, request.kv, &self.meter)?;
                CachedSequence::new(state, self.limits.recurrence_log_tokens)
            }
        };
        let request = &mut self.requests[at];
        request.fork = found.fork.or(request.fork);
        request.take_over(&mut sequence);
        let reused_tokens = sequence.state.position;
        if request.marks.contains(&reused_tokens) && sequence.wants_snapshot(&self.limits) {
            sequence.take_snapshot(&self.executor, &self.limits);
        }
        request.sequence = Some(sequence);
        if let Some(fork) = found.fork
            && let Err(before) = request.marks.binary_search(&fork)
        {
            request.marks.insert(before, fork);
        }
        if request.start.is_none() {
            request.start = Some(RequestStart { reused_tokens, reason: found.reason });
            events.push(EngineEvent::Started { id: request.id, reused_tokens, reason: found.reason });
        }
        if request.pending().is_empty() && request.max_new_tokens == 0 {
            let request = self.requests.remove(at);
            events.push(request.done(StopReason::Warm));
            self.keep(request);
        }
        Ok(())
    }

    fn hurry(&self, urgency: Urgency) -> Hurry {
        let alike = || self.requests.iter().filter(|request| self.urgency(request) == urgency).count();
        match urgency {
            Urgency::Talk if alike() == 1 => Hurry::Alone,
            Urgency::Talk => Hurry::Shared,
            Urgency::Prompt | Urgency::EarlyReply => Hurry::Ahead,
            Urgency::Background => Hurry::Background,
        }
    }

    pub(super) fn choose(&self, urgency: Urgency) -> Vec<(usize, usize)> {
        let mut budget = self.limits.prefill_chunk_tokens;
        let of_prompts = self.pace.tokens(budget, self.hurry(urgency));
        let mut background_budget = self.pace.tokens(budget, Hurry::Background);
        let mut scored_budget = MOST_SCORED_TOKENS;
        let mut early_replies = EARLY_REPLIES;
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for decoding in [true, false] {
            if !decoding {
                // Prompts go on beside any number of replies.
                budget = budget.min(of_prompts);
            }
            let all = || (0..self.requests.len()).map(|at| (at, 1)).collect();
            let order = if decoding { all() } else { self.prompts_in_turn(urgency) };
            for (at, sharing) in order {
                let request = &self.requests[at];
                let is_ours = request.is_running() && self.urgency(request) == urgency;
                let is_background = request.priority == Priority::Background;
                let most = if is_background { budget.min(background_budget) } else { budget.div_ceil(sharing) };
                let most = if request.is_scoring() { most.min(scored_budget) } else { most };
                let count = even_part(request.computed_next(), most.max(usize::from(decoding)));
                if is_ours && request.is_decoding() == decoding && count > 0 {
                    if urgency == Urgency::EarlyReply {
                        let Some(left) = early_replies.checked_sub(1) else { continue };
                        early_replies = left;
                    }
                    chosen.push((at, count));
                    budget = budget.saturating_sub(count);
                    if request.is_scoring() {
                        scored_budget -= count;
                    }
                    if is_background {
                        background_budget = background_budget.saturating_sub(count);
                    }
                }
            }
        }
        chosen.sort_unstable();
        chosen
    }

    /// Suspends the least urgent running request, and of these one of the user with the most, until another one has
    /// ended, because the next step does not fit into memory. The only running request fails instead, because no other
    /// one will free memory for it.
    pub(super) fn free_memory_for_step(&mut self, events: &mut Vec<EngineEvent>) {
        let Some(at) = self.least_urgent(|request| (request.priority, self.running_of(request.user))) else { return };
        if self.requests.iter().filter(|request| request.is_running()).count() > 1 {
            self.requests[at].parked_at = Some(self.done);
            self.suspend(at);
            return;
        }
        let request = &self.requests[at];
        // A reply is worth more than sequences that a conversation may come back to; a warm prompt is not.
        let needed = self.bytes_of(&[(at, 1)]);
        if request.is_wanted() && request.rights() != EvictionRights::All && self.make_room(needed, EvictionRights::All)
        {
            return;
        }
        self.fail_for_memory(at, events);
    }

    pub(super) fn least_urgent<U: Ord>(&self, urgency: impl Fn(&ActiveRequest) -> U) -> Option<usize> {
        let running = self.requests.iter().enumerate().filter(|(_, request)| request.is_running());
        running.max_by_key(|(_, request)| (urgency(request), request.id)).map(|(at, _)| at)
    }

    fn fail_for_memory(&mut self, at: usize, events: &mut Vec<EngineEvent>) {
        let request = self.requests.remove(at);
        events.push(EngineEvent::Failed {
            id: request.id,
            error: Error::NoRoom { budget_bytes: self.limits.memory_bytes },
        });
        self.keep(request);
    }

    pub(super) fn suspend(&mut self, at: usize) {
        let mut request = self.requests.remove(at);
        self.give_to_cache(&mut request);
        self.requests.insert(at, request);
    }

    pub(super) fn give_to_cache(&mut self, request: &mut ActiveRequest) {
        if let Some(sequence) = request.sequence.take() {
            self.cache.keep(request.tokens[..sequence.state.position].to_vec(), sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::even_part;

    #[test]
    fn parts_are_even_and_no_more_than_there_must_be() {
        for tokens in 0..600usize {
            for most in 1..130 {
                let (mut left, mut parts) = (tokens, Vec::new());
                while left > 0 {
                    let part = even_part(left, most);
                    assert!((1..=most).contains(&part), "{part} of {left}, at most {most}");
                    parts.push(part);
                    left -= part;
                }
                assert_eq!(parts.len(), tokens.div_ceil(most));
                let (least, longest) = (parts.iter().min(), parts.iter().max());
                assert!(longest.zip(least).is_none_or(|(longest, least)| longest - least <= 1), "{parts:?}");
            }
        }
        assert_eq!((even_part(5, 0), even_part(530, 256)), (0, 177));
    }
}
