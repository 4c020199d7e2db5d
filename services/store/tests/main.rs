//! The store on real files.

mod core;
mod crash;
mod delete;
mod erase;
mod facts;
mod full_store;
mod keys;
mod model;
mod notes;
mod old_release;
mod persons;
mod quota;
mod requests;
mod responses;
mod resume;
mod search;
mod session_names;
mod statements;
mod summaries;
mod support;
mod transfer;
mod trouble;
