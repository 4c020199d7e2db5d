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

use doors::openai_realtime::schema;
use serde_json::Value;
use std::sync::LazyLock;

/// Checks a frame against the door's own schema.
fn check_against_schema(definition: &str, value: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    ::tests::json_schema::check(&SCHEMA, definition, value)
}
