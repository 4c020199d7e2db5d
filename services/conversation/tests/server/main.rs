//! The doors on real sockets, with a store on disk and a backend whose answers the tests give.

mod conversation;
mod support;
