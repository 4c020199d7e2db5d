//! Keeps a conversation within its window: what stands in the prompt for what left it, and how that comes to be.
//!
//! `Standing` is what the prompt shows of the past, `Past` the conversation as the store has it, `weigh` what each part of
//! it takes, `make` a summary from the request to the store, `compaction::phases` when each step begins. Whether, what and how well is
//! the `compaction` crate's too; carrying it out is the session's task, in `actor/compacting.rs`.
//!
//! Invariants:
//! - The history is never touched: every step changes which part of it the prompt shows.
//! - A swap is one transaction of the store, and the prompt follows it; what a crash leaves is before it or after it.
//! - Nobody waits for a summary: where there is no room and none is ready, oldest turns leave the prompt.

mod make;
mod past;
mod room;
mod standing;
mod weigh;

pub use make::{Effort, Look, Made, Shelf, Trouble, Wish, look, make, pin_wishes, placed_pins, trimmed, wishes};
pub use past::Past;
pub use room::{Room, make_room};
pub use standing::{Standing, pin_of};
pub use weigh::Kitchen;

use compaction::CompactionLimits;
use settings::Preset;

pub fn limits_of(preset: &Preset) -> CompactionLimits {
    CompactionLimits {
        ctx_size: preset.ctx_size,
        soft_fill: preset.compaction.soft_fill,
        hard_fill: preset.compaction.hard_fill,
        target_fill: preset.compaction.target_fill,
        tail_tokens: preset.compaction.tail_tokens,
        summary_tokens: preset.compaction.summary_tokens,
        reply_reserve_tokens: preset.reply_reserve_tokens,
    }
}

/// By which clients know a summary of the session.
pub fn summary_id(version: u64) -> String {
    format!("summary_{version}")
}
