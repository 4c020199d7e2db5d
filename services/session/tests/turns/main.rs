//! The machine on a stage: tables of what is said and heard, in the session's own words, and random conversations.

mod barge_in;
mod client;
mod coming_back;
mod early;
mod inputs;
mod items;
mod lines;
mod random;
mod recall;
mod responses;
mod resume;
mod speech;
mod stage;
mod store;
mod storing;
