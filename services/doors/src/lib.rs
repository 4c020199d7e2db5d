//! The doors: each protocol parses what its clients say and renders what sessions tell. `routes` is the table of all that
//! can be asked over HTTP; `access` stands before every one of them.

mod accept;
pub mod access;
mod admin;
mod api_error;
mod app;
mod bodies;
mod console;
mod error;
pub mod explain;
mod fields;
mod health;
pub mod hostile;
mod incoming;
mod json;
pub mod metrics;
mod ollama;
pub mod open_files;
mod openai_chat;
pub mod openai_realtime;
mod openai_responses;
mod openapi;
mod pulls;
mod reader;
mod retries;
mod route;
mod routes;
mod serve;
mod side_task;
mod thinking;
mod unended;
mod unread;
mod upkeep;
mod words;
pub mod wyoming;

pub use accept::{Listeners, while_starting};
pub use api_error::ApiError;
pub use app::App;
pub use error::Error;
pub use serve::{listen, serve};
