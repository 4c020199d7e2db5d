//! Bodies of answers that clients have not read, counted until they are on their way.

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use runtime::{HeldShare, HeldText};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Counts the bytes of an answer until the client reads them. Returns `None` if the service has no room for them. An
/// answer that comes piece by piece breaks off instead.
pub fn counted(text: &HeldText, response: Response) -> Option<Response> {
    let (parts, body) = response.into_parts();
    let mut whole = text.share();
    let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    if !whole.take(bytes.unwrap_or(0)) {
        return None;
    }
    let counted = CountedBody { body, text: text.clone(), whole: bytes.is_some().then_some(whole) };
    Some(Response::from_parts(parts, Body::new(counted)))
}

struct CountedBody {
    body: Body,
    text: HeldText,
    whole: Option<HeldShare>,
}

struct Piece {
    bytes: Bytes,
    _held: HeldShare,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let bytes = match frame?.into_data() {
            Ok(bytes) => bytes,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let held = match self.whole.take() {
            Some(whole) => whole,
            None => {
                let mut held = self.text.share();
                if !held.take(bytes.len()) {
                    return Poll::Ready(Some(Err(axum::Error::new(runtime::Error::NoRoom))));
                }
                held
            }
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Piece { bytes, _held: held })))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use futures_util::{StreamExt, stream};

    fn answer(bytes: usize) -> Response {
        "x".repeat(bytes).into_response()
    }

    #[tokio::test]
    async fn an_answer_takes_room_until_its_bytes_are_gone() {
        let text = HeldText::new(1000, 10);
        let first = counted(&text, answer(900)).unwrap();
        assert_eq!(text.bytes(), 900);
        assert!(counted(&text, answer(101)).is_none());
        assert!(counted(&text, answer(100)).is_some(), "an even part");
        let mut pieces = first.into_body().into_data_stream();
        let piece = pieces.next().await.unwrap().unwrap();
        drop(pieces);
        assert_eq!((piece.len(), text.bytes()), (900, 900));
        drop(piece);
        assert_eq!(text.bytes(), 0);
    }

    #[tokio::test]
    async fn an_answer_in_pieces_breaks_off_where_there_is_no_room() {
        let text = HeldText::new(1000, 10);
        let pieces = stream::iter([600, 600].map(|bytes| Ok::<_, axum::Error>("x".repeat(bytes))));
        let answer = counted(&text, Body::from_stream(pieces).into_response()).unwrap();
        let mut pieces = answer.into_body().into_data_stream();
        let first = pieces.next().await.unwrap().unwrap();
        assert!(pieces.next().await.unwrap().is_err());
        drop(first);
        assert_eq!(text.bytes(), 0);
    }
}
