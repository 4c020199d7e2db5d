use crate::end::SocketEnd;
use crate::reader::GOODBYE;
use axum::extract::ws::{Message, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

pub struct SocketWriter {
    sink: SplitSink<WebSocket, Message>,
    pings: Interval,
}

impl SocketWriter {
    pub fn new(sink: SplitSink<WebSocket, Message>, ping: Duration) -> SocketWriter {
        let mut pings = interval(ping);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        SocketWriter { sink, pings }
    }

    pub async fn ping_due(&mut self) {
        self.pings.tick().await;
    }

    pub async fn ping(&mut self) -> Result<(), SocketEnd> {
        self.sink.send(Message::Ping(Default::default())).await.map_err(|_| SocketEnd::ClientLeft)
    }

    pub async fn send(&mut self, frames: impl IntoIterator<Item = String>) -> Result<(), SocketEnd> {
        for frame in frames {
            self.sink.feed(Message::Text(frame.into())).await.map_err(|_| SocketEnd::ClientLeft)?;
        }
        self.sink.flush().await.map_err(|_| SocketEnd::ClientLeft)
    }

    pub async fn say_goodbye(mut self, end: SocketEnd) {
        let _ = timeout(GOODBYE, self.sink.send(Message::Close(Some(end.close_frame())))).await;
    }
}
