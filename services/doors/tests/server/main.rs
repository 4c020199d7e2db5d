//! The doors on real sockets, with a store on disk and a backend whose answers the tests give.

mod chat;
mod choices;
mod compaction;
mod doors;
mod early;
mod experiment;
mod forgotten;
mod heads;
mod held;
mod home;
mod kept;
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

use tests::client;
use tests::wyoming as wyoming_client;
