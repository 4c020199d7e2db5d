//! The numbers behind a plan: what stands where, how much it takes, and where a history may be cut.

use crate::types::{Entry, History, Kind, Limits, Sizes};

/// Sums are in u64: entries and sizes come from outside, and must not wrap around into something that fits.
pub struct Layout<'a> {
    pub history: &'a History,
    pub sizes: &'a Sizes,
    pub limits: &'a Limits,
    /// Entries at the head that left the prompt, and of which only the words are shown.
    pub dropped: usize,
    pub trimmed: usize,
    /// Tokens of the prompt as it is, and the most it may have.
    pub now: u64,
    pub room: u64,
    /// Positions at which a turn of the user starts and no call is parted from its result.
    cuts: Vec<usize>,
    /// `torn[i]`: between entry i - 1 and entry i, a call is parted from its result.
    torn: Vec<bool>,
    /// `tail[i]`: tokens of the entries from i on, as they are shown now.
    tail: Vec<u64>,
}

impl<'a> Layout<'a> {
    pub fn new(history: &'a History, sizes: &'a Sizes, limits: &'a Limits) -> Layout<'a> {
        let (entries, dropped, trimmed) = (&history.entries, history.dropped(), history.trimmed());
        let mut tail = vec![0; entries.len() + 1];
        for index in (0..entries.len()).rev() {
            let shown = if index < dropped { 0 } else { shown(&entries[index], index < trimmed, sizes) };
            tail[index] = tail[index + 1] + shown;
        }
        let Pairs { torn, at_work_from } = pairs(entries);
        let is_turn = |at: &usize| entries[*at].kind == Kind::User && !torn[*at] && *at <= at_work_from;
        let cuts = (1..entries.len()).filter(is_turn).collect();
        let now = Layout::now(history, sizes);
        let room = u64::from(limits.room_tokens());
        Layout { history, sizes, limits, dropped, trimmed, now, room, cuts, torn, tail }
    }

    /// Tokens of the prompt as it is.
    pub fn now(history: &History, sizes: &Sizes) -> u64 {
        let (dropped, trimmed) = (history.dropped(), history.trimmed());
        let entries = history.entries.iter().enumerate().skip(dropped);
        let shown: u64 = entries.map(|(index, entry)| shown(entry, index < trimmed, sizes)).sum();
        u64::from(sizes.fixed_tokens) + u64::from(sizes.memory_tokens) + shown
    }

    /// Where a summary ends, at `first` or later: the longest tail that is allowed and leads to the target, or else the
    /// last turn.
    pub fn cut(&self, first: usize, spare: u64) -> Option<usize> {
        let target = u64::from(self.limits.target_tokens()).saturating_sub(spare);
        let fits =
            |cut: usize| self.tail[cut] <= u64::from(self.limits.tail_tokens) && self.after_summary(cut) <= target;
        let mut cuts = self.cuts_from(first);
        cuts.find(|cut| fits(*cut)).or_else(|| self.last_cut(first))
    }

    /// Where the last turn starts.
    pub fn last_cut(&self, first: usize) -> Option<usize> {
        self.cuts_from(first).last()
    }

    /// Where the words start that stay in any case, whether or not something else must leave.
    pub fn tail_start(&self) -> Option<usize> {
        let tail = u64::from(self.limits.tail_tokens);
        let found = self.cuts.iter().copied().find(|&cut| cut >= self.dropped && self.tail[cut] <= tail);
        found.or_else(|| self.last_cut(self.dropped))
    }

    /// Also inside of turns, oldest first; a call still stays with its result, and the head is no result.
    pub fn cuts_anywhere(&self, first: usize) -> impl Iterator<Item = usize> {
        let entries = &self.history.entries;
        let allowed = |at: &usize| !self.torn[*at] && !matches!(entries[*at].kind, Kind::Output { .. });
        (first.max(1)..entries.len()).filter(allowed)
    }

    /// Position of the newest result of a tool.
    pub fn last_output(&self) -> usize {
        let outputs = self.history.entries.iter().rposition(|entry| matches!(entry.kind, Kind::Output { .. }));
        outputs.unwrap_or(0)
    }

    /// Tokens that leave the view if all before `through` is trimmed.
    pub fn saved_by_trimming(&self, through: usize) -> u64 {
        let from = self.trimmed.max(self.dropped);
        let entries = self.history.entries.iter().take(through).skip(from);
        entries.map(|entry| shown(entry, false, self.sizes) - shown(entry, true, self.sizes)).sum()
    }

    /// Of a prompt with a summary of all before the cut, as long as allowed.
    pub fn after_summary(&self, cut: usize) -> u64 {
        let around = u64::from(self.sizes.fixed_tokens) + u64::from(self.sizes.pins_tokens);
        around + u64::from(self.limits.summary_tokens) + self.tail[cut]
    }

    /// Of a prompt from which nothing is dropped, with the first `trimmed` entries trimmed.
    pub fn after_trim(&self, trimmed: usize) -> u64 {
        self.now - self.saved_by_trimming(trimmed)
    }

    /// Of a prompt that has the present summary and the entries behind the cut, the first `trimmed` of them trimmed.
    pub fn after_drop(&self, cut: usize, trimmed: usize) -> u64 {
        let entries = self.history.entries.iter().enumerate().skip(cut);
        let shown: u64 = entries.map(|(index, entry)| shown(entry, index < trimmed, self.sizes)).sum();
        self.around_after_drop() + shown
    }

    /// A memory of all pins, as whatever was dropped may have held one word for word.
    pub fn around_after_drop(&self) -> u64 {
        let Sizes { fixed_tokens, memory_tokens, pins_tokens, summary_tokens, .. } = *self.sizes;
        u64::from(fixed_tokens) + (u64::from(pins_tokens) + u64::from(summary_tokens)).max(u64::from(memory_tokens))
    }

    /// A cut no later than this one so that the request fits the window; where even the first turn is too large, what
    /// is left out of it. With the tokens of the request and the reply to it.
    pub fn fit_request(&self, cut: usize) -> Option<(usize, Vec<String>, u64)> {
        let entries = &self.history.entries;
        let Sizes { fixed_tokens, memory_tokens, instruction_tokens, marker_tokens, .. } = *self.sizes;
        let around = u64::from(fixed_tokens) + u64::from(memory_tokens) + u64::from(instruction_tokens);
        let mut request = around + u64::from(self.limits.ask_tokens());
        let window = u64::from(self.limits.ctx_size);
        let is_cut = |at: usize| at == cut || at == self.dropped || self.cuts.binary_search(&at).is_ok();
        let shown_at = |index: usize| shown(&entries[index], index < self.trimmed, self.sizes);
        let (mut fitting, mut first) = (None, None);
        for at in 1..=cut.min(entries.len()) {
            request += shown_at(at - 1);
            if is_cut(at) {
                first = first.or(Some((at, request)));
                if request <= window {
                    fitting = Some((at, Vec::new(), request));
                }
            }
        }
        if fitting.is_some() {
            return fitting;
        }
        let whole = (cut, Vec::new(), request);
        let (cut, mut request) = first?;
        let mut largest: Vec<usize> = (0..cut).collect();
        largest.sort_by_key(|&index| std::cmp::Reverse(shown_at(index)));
        let mut left_out = Vec::new();
        for index in largest {
            let saved = shown_at(index).saturating_sub(u64::from(marker_tokens));
            if request <= window || saved == 0 {
                break;
            }
            request -= saved;
            left_out.push(entries[index].id.clone());
        }
        // No model can be asked anyway.
        if request > window { Some(whole) } else { Some((cut, left_out, request)) }
    }

    /// After an attempt that led to nothing, the next one waits until as much as a summary has been said.
    pub fn waits_after_giving_up(&self) -> bool {
        let at = self.history.count_through(self.history.gave_up_at.as_deref());
        let since: u64 = self.history.entries.iter().skip(at).map(|entry| u64::from(entry.tokens)).sum();
        at > 0 && since < u64::from(self.limits.summary_tokens.max(1))
    }

    /// The last entry before a cut.
    pub fn last_id(&self, cut: usize) -> Option<String> {
        Some(self.history.entries.get(cut.checked_sub(1)?)?.id.clone())
    }

    /// Where a turn starts, and where the prompt starts now.
    fn cuts_from(&self, first: usize) -> impl Iterator<Item = usize> {
        let first = first.max(1);
        let dropped = (self.dropped >= first).then_some(self.dropped);
        let after = self.dropped.max(first - 1);
        let later = self.cuts.iter().copied().filter(move |&cut| cut > after);
        dropped.into_iter().chain(later)
    }
}

fn shown(entry: &Entry, trimmed: bool, sizes: &Sizes) -> u64 {
    let tokens = match (&entry.kind, trimmed) {
        (Kind::Output { .. }, true) => entry.tokens.min(sizes.marker_tokens),
        _ => entry.tokens,
    };
    let reasoning = if trimmed { 0 } else { entry.reasoning_tokens };
    u64::from(tokens) + u64::from(reasoning)
}

struct Pairs {
    /// Positions between a call and its result.
    torn: Vec<bool>,
    /// The first call whose tool is still at work.
    at_work_from: usize,
}

fn pairs(entries: &[Entry]) -> Pairs {
    let mut torn = vec![false; entries.len() + 1];
    let mut waiting: Vec<(usize, &str)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match &entry.kind {
            Kind::Call { call_id } => waiting.push((index, call_id)),
            Kind::Output { call_id } => {
                if let Some(found) = waiting.iter().rposition(|(_, id)| id == call_id) {
                    let (call, _) = waiting.remove(found);
                    torn[call + 1..=index].fill(true);
                }
            }
            _ => {}
        }
    }
    // Two turns later nobody waits for it any more.
    let turns = entries.iter().enumerate().rev().filter(|(_, entry)| entry.kind == Kind::User);
    let recent = turns.map(|(index, _)| index).nth(1).unwrap_or(0);
    let at_work_from = waiting.iter().map(|(call, _)| *call).find(|call| *call >= recent).unwrap_or(entries.len());
    Pairs { torn, at_work_from }
}
