//! Connections of a session, and what was sent to them.

use crate::outgoing::{End, Outgoing};
use session::machine::ConnId;
use session::{Event, Input};
use std::collections::HashMap;
use std::sync::Arc;
use telemetry::TraceParent;
use tokio::sync::Notify;

/// Filter of the events that a connection wants; others do not fill its queue.
pub type Interest = Arc<dyn Fn(&Event) -> bool + Send + Sync>;

/// Connections, each with the mark of its last event. Words that were sent are on their way when one connection has
/// written up to its mark.
pub type SentLast = Vec<(Outgoing, u64)>;

pub struct Connections {
    open: HashMap<ConnId, Connection>,
    written: Arc<Notify>,
    is_greeting: bool,
}

pub struct Connection {
    pub outgoing: Outgoing,
    pub interest: Interest,
    pub person: Option<String>,
    pub trace: ConnectionTrace,
    pub mark: u64,
}

// Places in the client's trace: of all that the connection asks for, and of the next response alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionTrace {
    pub own: Option<TraceParent>,
    pub next: Option<TraceParent>,
}

impl Connections {
    pub fn new(written: Arc<Notify>) -> Connections {
        Connections { open: HashMap::new(), written, is_greeting: false }
    }

    pub fn written(&self) -> Arc<Notify> {
        self.written.clone()
    }

    pub fn person(&self, conn: ConnId) -> Option<&str> {
        self.open.get(&conn)?.person.as_deref()
    }

    pub fn trace_next(&mut self, conn: ConnId, place: TraceParent) {
        if let Some(connection) = self.open.get_mut(&conn) {
            connection.trace.next = Some(place);
        }
    }

    pub fn take_trace(&mut self, conn: ConnId, input: &Input) -> Option<TraceParent> {
        let trace = &mut self.open.get_mut(&conn).filter(|_| input.wants_response())?.trace;
        trace.next.take().or(trace.own)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a connection. The events up to `greeted` are those that it missed.
    pub fn add(&mut self, conn: ConnId, connection: Connection) {
        self.open.insert(conn, connection);
        self.is_greeting = true;
    }

    pub fn greeted(&mut self) {
        self.is_greeting = false;
    }

    pub fn remove(&mut self, conn: ConnId) -> bool {
        self.open.remove(&conn).is_some()
    }

    pub fn end(&mut self, conn: ConnId, end: End) -> bool {
        let connection = self.open.remove(&conn);
        if let Some(connection) = &connection {
            connection.outgoing.end(end);
        }
        connection.is_some()
    }

    pub fn end_all(&self, end: End) {
        self.open.values().for_each(|connection| connection.outgoing.end(end));
    }

    pub fn closed(&self) -> Vec<ConnId> {
        self.open.iter().filter(|(_, connection)| connection.outgoing.is_over()).map(|(conn, _)| *conn).collect()
    }

    /// Sends an event. Returns the connections that are closed or read too slowly; they are removed.
    pub fn send(&mut self, to: &[ConnId], event: Event) -> Vec<ConnId> {
        let event = Arc::new(event);
        let mut left = Vec::new();
        for conn in to {
            let Some(connection) = self.open.get_mut(conn) else { continue };
            if !(connection.interest)(&event) {
                continue;
            }
            // What a connection missed may come late, where the store has something to answer first.
            let is_missed = self.is_greeting || matches!(*event, Event::ItemAdded { is_new: false, .. });
            match connection.outgoing.push(event.clone(), !is_missed) {
                Some(mark) => connection.mark = mark,
                None => {
                    tracing::info!(conn = conn.0, "a connection is closed or reads too slowly");
                    self.open.remove(conn);
                    left.push(*conn);
                }
            }
        }
        left
    }

    pub fn sent_last(&self) -> SentLast {
        self.open.values().map(|connection| (connection.outgoing.clone(), connection.mark)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::HeldText;
    use crate::outgoing::{OutgoingLimits, outgoing};
    use session::{Item, Role};

    #[test]
    fn items_that_a_connection_missed_fill_no_queue() {
        let limits = OutgoingLimits { events: 3, bytes: 1 << 20 };
        let (outgoing, _socket) = outgoing(limits, HeldText::new(1 << 20, 1).share(), Arc::default());
        let trace = ConnectionTrace::default();
        let connection = Connection { outgoing, interest: Arc::new(|_| true), person: None, trace, mark: 0 };
        let mut connections = Connections::new(Arc::default());
        connections.add(ConnId(1), connection);
        connections.greeted();
        let item = || Item::message("a", Role::User, "Hi");
        let told = |is_new| Event::ItemAdded { item: item(), previous_item_id: None, is_new };
        assert!((0..9).all(|_| connections.send(&[ConnId(1)], told(false)).is_empty()));
        assert!((0..3).all(|_| connections.send(&[ConnId(1)], told(true)).is_empty()));
        assert_eq!(connections.send(&[ConnId(1)], told(true)), [ConnId(1)], "it reads too slowly");
    }
}
