//! The machine on a stage: tables of what is said and heard, golden frames, and random conversations.

mod barge_in;
mod early;
mod extensions;
mod frames;
mod items;
mod random;
mod recall;
mod responses;
mod resume;
mod stage;
mod storing;
#[path = "../../src/openai_realtime/tests/validator.rs"]
mod validator;

use doors::openai_realtime::schema;
