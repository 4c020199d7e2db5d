//! Connections with limits: accepted on a port, read and written in time, closed with a reason.
//!
//! [`next`] takes connections and leaves some files free ([`open_files`]). [`ClientStream`] counts what a client has begun
//! ([`HalfOpen`]), [`counted`] what a client has not read yet. [`SocketReader`] and [`SocketWriter`] are the two ends of a
//! websocket, and [`SocketEnd`] is the reason why it ends.
//!
//! ```
//! use runtime::End;
//! use sockets::SocketEnd;
//!
//! let frame = SocketEnd::BySession(End::Draining).close_frame();
//! assert_eq!((frame.code, frame.reason.as_str()), (1001, "the service stops: connect again and go on"));
//! ```
//!
//! The crate knows no message's meaning: a door parses the messages and renders the frames.

mod end;
mod goodbye;
mod half_open;
mod incoming;
pub mod open_files;
mod own_frames;
mod reader;
mod unread_body;
mod writer;

pub use end::SocketEnd;
pub use goodbye::say_goodbye;
pub use half_open::{ClientStream, HalfOpen};
pub use incoming::next;
pub use own_frames::OwnFrames;
pub use reader::{SocketMessage, SocketReader};
pub use unread_body::counted;
pub use writer::SocketWriter;
