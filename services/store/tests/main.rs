//! The store on real files.

mod core;
mod crash;
mod delete;
mod keys;
mod model;
mod old_release;
mod responses;
mod search;
mod statements;
mod summaries;
mod support;
mod transfer;
mod trouble;
