//! Frames of a websocket: what a client says becomes an input of the session, and the session's events become JSON. The
//! turns themselves are tested in `session`.

mod extensions;
mod golden;
mod stage;
