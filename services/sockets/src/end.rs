use axum::extract::ws::{CloseFrame, Utf8Bytes};
use runtime::End;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEnd {
    BySession(End),
    KeyRevoked,
    TooSlow,
    NoRoom,
    TooLarge,
    BadMessage,
    NoText,
    NeverSpoke,
    Idle,
    Dead,
    ClientLeft,
}

impl SocketEnd {
    /// Tells errors of the library apart by their words: it has no types for them.
    pub fn of_error(error: &axum::Error) -> SocketEnd {
        let words = error.to_string();
        if words.contains("too long") || words.contains("too large") {
            SocketEnd::TooLarge
        } else if words.contains("UTF-8") {
            SocketEnd::NoText
        } else if words.contains("reset") || words.contains("closed") || words.contains("IO error") {
            SocketEnd::ClientLeft
        } else {
            SocketEnd::BadMessage
        }
    }

    pub fn close_frame(self) -> CloseFrame {
        let (code, reason) = match self {
            SocketEnd::BySession(End::Draining) => (1001, "the service stops: connect again and go on"),
            SocketEnd::BySession(End::StoreStalled) => (1011, "the store does not answer"),
            SocketEnd::BySession(End::SessionGone) => (1001, "the session was deleted, or left memory: connect again"),
            SocketEnd::KeyRevoked => (1008, "the key was revoked"),
            SocketEnd::BySession(End::TooSlow) | SocketEnd::TooSlow => {
                (1008, "the connection does not read what it is sent")
            }
            SocketEnd::NoRoom => (1013, "clients send more at once than there is room for: try again in a moment"),
            SocketEnd::TooLarge => (1009, "the message is too large"),
            SocketEnd::BadMessage => (1002, "this is no websocket message"),
            SocketEnd::NoText => (1007, "a text message is UTF-8"),
            SocketEnd::NeverSpoke => (1008, "the connection never said anything"),
            SocketEnd::Idle => (1000, "nothing was said for a long time"),
            SocketEnd::Dead => (1001, "the connection does not answer"),
            SocketEnd::BySession(End::Left) | SocketEnd::ClientLeft => (1000, ""),
        };
        CloseFrame { code, reason: Utf8Bytes::from_static(reason) }
    }
}
