//! Messages that a client has begun on a websocket: counted byte by byte, with as much time as the body of a request. The
//! websocket library tells of a message when it has ended; until then only the stream under it sees its bytes.

use crate::end::SocketEnd;
use parking_lot::Mutex;
use runtime::HeldShare;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

#[derive(Default)]
pub struct HalfOpen {
    state: Mutex<Option<State>>,
}

struct State {
    held: HeldShare,
    begun_at: Option<Instant>,
    most_time: Duration,
    end: Option<SocketEnd>,
}

/// Bytes of a message that may take any time.
const SHORT_BYTES: u64 = 64 << 10; // not a window: bytes of a message
/// Bytes of a client's control frame before its payload.
const CONTROL_HEADER_BYTES: usize = 6;

impl HalfOpen {
    pub fn watch(&self, held: HeldShare, most_time: Duration) {
        *self.state.lock() = Some(State { held, begun_at: None, most_time, end: None });
    }

    pub fn message_ended(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.begun_at = None;
            state.held.set(0);
        }
    }

    /// Discounts a ping or pong, which may come within a message.
    pub fn control_frame(&self, carried: usize) {
        if let Some(state) = &mut *self.state.lock() {
            state.held.give_back(carried + CONTROL_HEADER_BYTES);
        }
    }

    pub fn end(&self) -> Option<SocketEnd> {
        self.state.lock().as_ref().and_then(|state| state.end)
    }

    fn came(&self, bytes: usize) -> io::Result<()> {
        let state = &mut *self.state.lock();
        let Some(state) = state else { return Ok(()) };
        let has_room = state.held.take(bytes);
        if state.held.bytes() > SHORT_BYTES {
            state.begun_at.get_or_insert_with(Instant::now);
        }
        let is_late = state.begun_at.is_some_and(|begun_at| begun_at.elapsed() > state.most_time);
        if is_late || !has_room {
            state.end = Some(if is_late { SocketEnd::TooSlow } else { SocketEnd::NoRoom });
            return Err(io::Error::other("the message is not read to its end"));
        }
        Ok(())
    }
}

pub struct ClientStream {
    stream: TcpStream,
    half_open: Arc<HalfOpen>,
}

impl ClientStream {
    pub fn new(stream: TcpStream, half_open: Arc<HalfOpen>) -> ClientStream {
        ClientStream { stream, half_open }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.half_open.came(buffer.filled().len() - before))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::HeldText;

    fn watched(text: &HeldText) -> HalfOpen {
        let half_open = HalfOpen::default();
        half_open.watch(text.share(), Duration::from_secs(60));
        half_open
    }

    #[test]
    fn a_message_takes_room_until_it_ends() {
        let text = HeldText::new(1 << 20, 16);
        let (first, second) = (watched(&text), watched(&text));
        first.came(1 << 20).unwrap();
        second.came(60 << 10).unwrap();
        assert!(second.came(10 << 10).is_err() && second.end() == Some(SocketEnd::NoRoom));
        first.message_ended();
        assert_eq!((text.bytes(), first.end()), (60 << 10, None));
        drop((first, second));
        assert_eq!(text.bytes(), 0);
    }

    #[test]
    fn a_long_message_has_its_time_and_pings_have_all_time() {
        let text = HeldText::new(1 << 20, 1);
        let silent = watched(&text);
        for _ in 0..100_000 {
            silent.came(10).unwrap();
            silent.control_frame(4);
        }
        assert_eq!(text.bytes(), 0);
        let slow = HalfOpen::default();
        slow.watch(text.share(), Duration::ZERO);
        let came = (0..1 << 20).map(|_| slow.came(1));
        assert!(came.take_while(Result::is_ok).count() as u64 >= SHORT_BYTES);
        assert_eq!(slow.end(), Some(SocketEnd::TooSlow));
    }
}
