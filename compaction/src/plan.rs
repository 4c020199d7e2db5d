//! Decision about a conversation that fills its window.
//!
//! Between turns a plan is made in the silence, and may take its time. Before a reply it must be carried out at once,
//! so it is never a summary. Cheap steps go first: used results of tools leave the view before words do.

mod layout;
#[cfg(test)]
mod tests;

use crate::types::{CompactionLimits, PromptSizes, PromptView};
use layout::PlanLayout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanMoment {
    Silence, // after a turn: no client waits
    Reply,   // the user has spoken, and `PromptView::passages` ends with their words
}

#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum CompactionPlan {
    Nothing, // the prompt may stay as it is
    Trim(TrimPlan),
    Summarise(SummaryPlan), // only in the silence
    Drop(DropPlan),         // only before a reply
    /// Only before a reply. Nothing is lost: the message stays in the history, and the next one is answered without it.
    TooLarge(TooLargePlan),
}

impl CompactionPlan {
    /// Last item that a summary takes out of the prompt, or whose words leave it.
    pub fn through(&self) -> Option<&str> {
        match self {
            CompactionPlan::Trim(trim) => Some(&trim.through),
            CompactionPlan::Summarise(summarise) => Some(&summarise.through),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimPlan {
    pub through: String,      // the new `PromptView::trimmed_through`
    pub expected_tokens: u32, // of the prompt after it
}

/// A summary replaces the summary before and the passages up to `through`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryPlan {
    pub through: String,
    /// Passages too large for the request: it shows [`LEFT_OUT`](crate::LEFT_OUT) in their place.
    pub left_out: Vec<String>,
    /// Tokens of the request with its reply. More than the window if even that does not fit: no model can be asked.
    pub request_tokens: u32,
    pub expected_tokens: u32, // of the prompt after it, with a summary as long as allowed
}

/// Oldest turns leave the prompt, with nothing in their place until a later summary tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropPlan {
    pub through: String, // the new `PromptView::dropped_through`
    pub trim_through: Option<String>,
    pub expected_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLargePlan {
    pub id: String, // the message, or the largest passage if several belong together
    /// Tokens that cannot leave: of the message, or also of a call and the mark of its result.
    pub tokens: u32,
    /// Tokens that the window leaves for it; 0: instructions, tools, pins and summary alone are too large.
    pub room_tokens: u32,
}

impl TooLargePlan {
    pub fn message(&self) -> String {
        let TooLargePlan { tokens, room_tokens, .. } = self;
        match room_tokens {
            0 => {
                "instructions, tools, pins and summary alone fill the window; shorten them, or choose a preset with a \
                 larger window"
                    .to_owned()
            }
            _ => format!(
                "the message has {tokens} tokens and the window has room for {room_tokens}; shorten it, or choose a \
                 preset with a larger window"
            ),
        }
    }
}

/// Decides. A plan that was carried out is not made again: one that changes nothing is `Nothing`.
pub fn plan(view: &PromptView, sizes: &PromptSizes, limits: &CompactionLimits, moment: PlanMoment) -> CompactionPlan {
    let layout = PlanLayout::new(view, sizes, limits);
    match moment {
        PlanMoment::Silence => in_silence(&layout),
        PlanMoment::Reply => before_reply(&layout),
    }
}

pub fn prompt_tokens(view: &PromptView, sizes: &PromptSizes) -> u32 {
    clamp(PlanLayout::now(view, sizes))
}

/// Covers more than up to `through`, because the prompt came out `excess_tokens` above the target. `None`: there is
/// nothing more to cover.
pub fn tighter(
    view: &PromptView,
    sizes: &PromptSizes,
    limits: &CompactionLimits,
    through: &str,
    excess_tokens: u32,
) -> Option<SummaryPlan> {
    let layout = PlanLayout::new(view, sizes, limits);
    let first = view.count_through(Some(through)) + 1;
    let cut = layout.cut(first, u64::from(excess_tokens))?;
    summary_of(&layout, cut).filter(|plan| view.count_through(Some(&plan.through)) >= first)
}

fn in_silence(layout: &PlanLayout) -> CompactionPlan {
    let limits = layout.limits;
    let owed = layout.dropped > 0;
    if layout.now < u64::from(limits.soft_tokens()) && !owed {
        return CompactionPlan::Nothing;
    }
    if !owed && let Some(trim) = trim(layout) {
        return CompactionPlan::Trim(trim);
    }
    if layout.waits_after_giving_up() {
        return CompactionPlan::Nothing;
    }
    let Some(cut) = layout.cut(layout.dropped, 0) else { return CompactionPlan::Nothing };
    let Some(plan) = summary_of(layout, cut) else { return CompactionPlan::Nothing };
    let expected = u64::from(plan.expected_tokens);
    // Dropped passages are already out of the prompt: telling them costs room and gains none.
    let worth_it = match owed {
        true => expected <= layout.room,
        false => expected + u64::from(limits.summary_tokens.max(1)) <= layout.now,
    };
    if worth_it { CompactionPlan::Summarise(plan) } else { CompactionPlan::Nothing }
}

/// Trims only if that brings the prompt a good part of the way: all passages behind it are computed again.
fn trim(layout: &PlanLayout) -> Option<TrimPlan> {
    let limits = layout.limits;
    let through = layout.tail_start()?;
    let after = layout.after_trim(through);
    let halfway = u64::from(limits.soft_tokens()).midpoint(u64::from(limits.target_tokens()));
    let id = layout.last_id(through)?;
    (after < layout.now && after <= halfway).then(|| TrimPlan { through: id, expected_tokens: clamp(after) })
}

fn summary_of(layout: &PlanLayout, cut: usize) -> Option<SummaryPlan> {
    let (cut, left_out, request) = layout.fit_request(cut)?;
    Some(SummaryPlan {
        through: layout.last_id(cut)?,
        left_out,
        request_tokens: clamp(request),
        expected_tokens: clamp(layout.after_summary(cut)),
    })
}

fn before_reply(layout: &PlanLayout) -> CompactionPlan {
    if layout.now <= u64::from(layout.limits.hard_tokens()) {
        return CompactionPlan::Nothing;
    }
    if let Some(trim) = trim(layout) {
        return CompactionPlan::Trim(trim);
    }
    // As for a summary, so that the later one takes just the room that is left for it.
    let first = layout.dropped + 1;
    if let Some(cut) = layout.cut(first, 0)
        && layout.after_drop(cut, layout.trimmed) <= layout.room
    {
        return drop_of(layout, cut, layout.trimmed);
    }
    // The last turn alone is too much: it gives up the results of its tools, the newest one last.
    let all = layout.view.passages.len();
    let trims = [layout.trimmed, layout.last_output().max(layout.trimmed), all];
    for trimmed in trims {
        let expected = layout.after_trim(trimmed);
        if expected <= layout.room {
            return match layout.last_id(trimmed) {
                Some(through) if trimmed > layout.trimmed => {
                    CompactionPlan::Trim(TrimPlan { through, expected_tokens: clamp(expected) })
                }
                _ => CompactionPlan::Nothing,
            };
        }
        if let Some(cut) = layout.last_cut(first)
            && layout.after_drop(cut, trimmed) <= layout.room
        {
            return drop_of(layout, cut, trimmed);
        }
    }
    // The user was silent for a whole window, or the model called tools for that long: a cut inside a turn is better
    // than no answer.
    for trimmed in trims {
        if let Some(cut) = layout.cuts_anywhere(first).find(|cut| layout.after_drop(*cut, trimmed) <= layout.room) {
            return drop_of(layout, cut, trimmed);
        }
    }
    too_large(layout)
}

fn drop_of(layout: &PlanLayout, cut: usize, trimmed: usize) -> CompactionPlan {
    let Some(through) = layout.last_id(cut) else { return CompactionPlan::Nothing };
    let trim_through = if trimmed > layout.trimmed { layout.last_id(trimmed) } else { None };
    CompactionPlan::Drop(DropPlan { through, trim_through, expected_tokens: clamp(layout.after_drop(cut, trimmed)) })
}

fn too_large(layout: &PlanLayout) -> CompactionPlan {
    let passages = &layout.view.passages;
    let turn = layout.cuts_anywhere(layout.dropped + 1).last().unwrap_or(layout.dropped);
    let largest = passages.iter().skip(turn).max_by_key(|passage| passage.tokens);
    let around = layout.around_after_drop();
    CompactionPlan::TooLarge(TooLargePlan {
        id: largest.map(|passage| passage.id.clone()).unwrap_or_default(),
        tokens: clamp(layout.after_drop(turn, passages.len()).saturating_sub(around)),
        room_tokens: clamp(layout.room.saturating_sub(around)),
    })
}

fn clamp(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
