//! Helpers shared by the black-box tests.

pub mod client;
pub mod collector;
pub mod errors;
pub mod house;
pub mod http;
pub mod hub;
pub mod json_schema;
pub mod kept_secret;
pub mod licenses;
pub mod random;
pub mod reprise;
pub mod service;
pub mod snippets;
pub mod speech;
pub mod upload_hub;
pub mod upstream;
pub mod wyoming;
