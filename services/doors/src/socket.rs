//! Connections: accepted on a port, read and written with limits, closed with a reason. Websockets of all protocols share a
//! reader and a writer; a door parses the messages and renders the frames.

mod accept;
mod end;
mod goodbye;
mod half_open;
mod incoming;
pub mod open_files;
mod own_frames;
mod reader;
mod unread_body;
mod upgrade;
mod writer;

pub use accept::{run, tell_starting};
pub use end::SocketEnd;
pub use goodbye::say_goodbye;
pub use half_open::HalfOpen;
pub use incoming::next;
pub use own_frames::OwnFrames;
pub use reader::{SocketMessage, SocketReader};
pub use unread_body::counted;
pub use upgrade::{admit, upgrade};
pub use writer::SocketWriter;
