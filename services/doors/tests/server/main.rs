//! The doors on real sockets, with a store on disk and a backend whose answers the tests give.

mod chat;
mod choices;
/// The same client as the black-box tests have, which use more of it.
#[allow(dead_code)]
#[path = "../../../../tests/src/client.rs"]
mod client;
mod compaction;
mod doors;
mod early;
mod experiment;
mod forgotten;
mod heads;
mod held;
mod home;
mod kept;
#[allow(dead_code)]
#[path = "../../../../tests/src/kept_secret.rs"]
mod kept_secret;
mod looking;
mod ollama;
mod personas;
mod persons;
mod prompts;
mod questions;
mod recall;
mod refusals;
mod remember;
mod responses;
mod responses_socket;
mod resume;
mod retries;
mod scope;
mod scripted;
mod side_tasks;
mod speakers;
mod support;
mod talk;
mod thinking;
mod trust;
mod upstream;
mod wyoming;
#[allow(dead_code)]
#[path = "../../../../tests/src/wyoming.rs"]
mod wyoming_client;
