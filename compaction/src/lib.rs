//! Pure policy of compaction: when a conversation is summarised, what of it, how the request is worded, and whether the
//! result holds. Floor 0.
//!
//! # The boundary
//!
//! Knows no engine, no store, no clock and no socket. Whoever uses it brings the numbers of a preset, the turns with
//! their sizes in tokens, and the text of a summary; it answers with plain data. It will consist of four functions:
//!
//! - `plan`: from sizes and limits to what leaves the view and what is summarised, cut at a user turn, never between a
//!   tool call and its result
//! - `instructions`: how the model is asked for a summary, rolling over the one before
//! - `check`: what a summary must still say (names, numbers, dates, pins), and what it must not (orders)
//! - `apply`: the view that takes the place of the covered turns
//!
//! Nothing of it is written yet, and nothing calls it: a conversation ends where its window does.
