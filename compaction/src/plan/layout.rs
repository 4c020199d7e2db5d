//! Numbers behind a plan: positions and sizes of passages, and places where a conversation may be cut.

use crate::types::{CompactionLimits, Passage, PassageKind, PromptSizes, PromptView};

/// Sizes in a prompt. Sums are in u64: passages and sizes come from outside, and must not wrap around into something
/// that fits.
pub struct PlanLayout<'a> {
    pub view: &'a PromptView,
    pub sizes: &'a PromptSizes,
    pub limits: &'a CompactionLimits,
    pub dropped: usize,
    pub trimmed: usize,
    pub now: u64, // tokens of the prompt as it is, and the most it may have
    pub room: u64,
    /// Positions at which a turn of the user starts and no call is parted from its result.
    cuts: Vec<usize>,
    /// `torn[i]`: a call before passage i has its result at i or later.
    torn: Vec<bool>,
    /// `tail[i]`: tokens of the passages from i on, as the prompt shows them now.
    tail: Vec<u64>,
}

impl<'a> PlanLayout<'a> {
    pub fn new(view: &'a PromptView, sizes: &'a PromptSizes, limits: &'a CompactionLimits) -> PlanLayout<'a> {
        let (passages, dropped, trimmed) = (&view.passages, view.dropped(), view.trimmed());
        let mut tail = vec![0; passages.len() + 1];
        for index in (0..passages.len()).rev() {
            let shown = if index < dropped { 0 } else { shown(&passages[index], index < trimmed, sizes) };
            tail[index] = tail[index + 1] + shown;
        }
        let Pairs { torn, at_work_from } = pairs(passages);
        let is_turn = |at: &usize| passages[*at].kind == PassageKind::User && !torn[*at] && *at <= at_work_from;
        let cuts = (1..passages.len()).filter(is_turn).collect();
        let now = PlanLayout::now(view, sizes);
        let room = u64::from(limits.room_tokens());
        PlanLayout { view, sizes, limits, dropped, trimmed, now, room, cuts, torn, tail }
    }

    pub fn now(view: &PromptView, sizes: &PromptSizes) -> u64 {
        let (dropped, trimmed) = (view.dropped(), view.trimmed());
        let passages = view.passages.iter().enumerate().skip(dropped);
        let shown: u64 = passages.map(|(index, passage)| shown(passage, index < trimmed, sizes)).sum();
        u64::from(sizes.fixed_tokens) + u64::from(sizes.context_tokens) + shown
    }

    /// Finds the end of a summary, at `first` or later: with the longest tail that is allowed and leads to the target,
    /// or else before the last turn.
    pub fn cut(&self, first: usize, spare: u64) -> Option<usize> {
        let target = u64::from(self.limits.target_tokens()).saturating_sub(spare);
        let fits =
            |cut: usize| self.tail[cut] <= u64::from(self.limits.tail_tokens) && self.after_summary(cut) <= target;
        let mut cuts = self.cuts_from(first);
        cuts.find(|cut| fits(*cut)).or_else(|| self.last_cut(first))
    }

    pub fn last_cut(&self, first: usize) -> Option<usize> {
        self.cuts_from(first).last()
    }

    /// Start of the words that stay in any case, whether or not other passages must leave.
    pub fn tail_start(&self) -> Option<usize> {
        let tail = u64::from(self.limits.tail_tokens);
        let found = self.cuts.iter().copied().find(|&cut| cut >= self.dropped && self.tail[cut] <= tail);
        found.or_else(|| self.last_cut(self.dropped))
    }

    /// Lists cuts also inside of turns, oldest first; a call still stays with its result, and the head is no result.
    pub fn cuts_anywhere(&self, first: usize) -> impl Iterator<Item = usize> {
        let passages = &self.view.passages;
        let allowed = |at: &usize| !self.torn[*at] && !matches!(passages[*at].kind, PassageKind::Output { .. });
        (first.max(1)..passages.len()).filter(allowed)
    }

    pub fn last_output(&self) -> usize {
        let outputs = self.view.passages.iter().rposition(|passage| matches!(passage.kind, PassageKind::Output { .. }));
        outputs.unwrap_or(0)
    }

    pub fn saved_by_trimming(&self, through: usize) -> u64 {
        let from = self.trimmed.max(self.dropped);
        let passages = self.view.passages.iter().take(through).skip(from);
        passages.map(|passage| shown(passage, false, self.sizes) - shown(passage, true, self.sizes)).sum()
    }

    pub fn after_summary(&self, cut: usize) -> u64 {
        let around = u64::from(self.sizes.fixed_tokens) + u64::from(self.sizes.pins_tokens);
        around + u64::from(self.limits.summary_tokens) + self.tail[cut]
    }

    pub fn after_trim(&self, trimmed: usize) -> u64 {
        self.now - self.saved_by_trimming(trimmed)
    }

    /// Tokens of a prompt with the present summary and the passages behind the cut, the first `trimmed` of them
    /// trimmed.
    pub fn after_drop(&self, cut: usize, trimmed: usize) -> u64 {
        let passages = self.view.passages.iter().enumerate().skip(cut);
        let shown: u64 = passages.map(|(index, passage)| shown(passage, index < trimmed, self.sizes)).sum();
        self.around_after_drop() + shown
    }

    /// Tokens around the passages, with a context of all pins: a dropped passage may have held one word for word.
    pub fn around_after_drop(&self) -> u64 {
        let PromptSizes { fixed_tokens, context_tokens, pins_tokens, summary_tokens, .. } = *self.sizes;
        u64::from(fixed_tokens) + (u64::from(pins_tokens) + u64::from(summary_tokens)).max(u64::from(context_tokens))
    }

    /// Finds a cut no later than this one so that the request fits the window; if even the first turn is too large,
    /// also the passages to leave out of it. Returns the tokens of the request with its reply, too.
    pub fn fit_request(&self, cut: usize) -> Option<(usize, Vec<String>, u64)> {
        let passages = &self.view.passages;
        let PromptSizes { fixed_tokens, context_tokens, instruction_tokens, marker_tokens, .. } = *self.sizes;
        let around = u64::from(fixed_tokens) + u64::from(context_tokens) + u64::from(instruction_tokens);
        let mut request = around + u64::from(self.limits.ask_tokens());
        let window = u64::from(self.limits.ctx_size);
        let is_cut = |at: usize| at == cut || at == self.dropped || self.cuts.binary_search(&at).is_ok();
        let shown_at = |index: usize| shown(&passages[index], index < self.trimmed, self.sizes);
        let (mut fitting, mut first) = (None, None);
        for at in 1..=cut.min(passages.len()) {
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
            left_out.push(passages[index].id.clone());
        }
        // No model can be asked anyway.
        if request > window { Some(whole) } else { Some((cut, left_out, request)) }
    }

    /// Returns true while an attempt that led to nothing must wait: until the new passages are as long as a summary.
    pub fn waits_after_giving_up(&self) -> bool {
        let at = self.view.count_through(self.view.gave_up_at.as_deref());
        let since: u64 = self.view.passages.iter().skip(at).map(|passage| u64::from(passage.tokens)).sum();
        at > 0 && since < u64::from(self.limits.summary_tokens.max(1))
    }

    pub fn last_id(&self, cut: usize) -> Option<String> {
        Some(self.view.passages.get(cut.checked_sub(1)?)?.id.clone())
    }

    fn cuts_from(&self, first: usize) -> impl Iterator<Item = usize> {
        let first = first.max(1);
        let dropped = (self.dropped >= first).then_some(self.dropped);
        let after = self.dropped.max(first - 1);
        let later = self.cuts.iter().copied().filter(move |&cut| cut > after);
        dropped.into_iter().chain(later)
    }
}

fn shown(passage: &Passage, trimmed: bool, sizes: &PromptSizes) -> u64 {
    u64::from(match (&passage.kind, trimmed) {
        (PassageKind::Output { .. }, true) => passage.tokens.min(sizes.marker_tokens),
        _ => passage.tokens,
    })
}

struct Pairs {
    torn: Vec<bool>,     // positions between a call and its result
    at_work_from: usize, // the first call whose tool is still at work
}

fn pairs(passages: &[Passage]) -> Pairs {
    let mut torn = vec![false; passages.len() + 1];
    let mut waiting: Vec<(usize, &str)> = Vec::new();
    for (index, passage) in passages.iter().enumerate() {
        match &passage.kind {
            PassageKind::Call { call_id } => waiting.push((index, call_id)),
            PassageKind::Output { call_id } => {
                if let Some(found) = waiting.iter().rposition(|(_, id)| id == call_id) {
                    let (call, _) = waiting.remove(found);
                    torn[call + 1..=index].fill(true);
                }
            }
            _ => {}
        }
    }
    // Two turns later the tool counts as failed.
    let turns = passages.iter().enumerate().rev().filter(|(_, passage)| passage.kind == PassageKind::User);
    let recent = turns.map(|(index, _)| index).nth(1).unwrap_or(0);
    let at_work_from = waiting.iter().map(|(call, _)| *call).find(|call| *call >= recent).unwrap_or(passages.len());
    Pairs { torn, at_work_from }
}
