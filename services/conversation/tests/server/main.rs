//! The doors on real sockets, with a store on disk and a backend whose answers the tests give.

mod chat;
mod conversation;
mod doors;
mod experiment;
mod support;
mod upstream;
