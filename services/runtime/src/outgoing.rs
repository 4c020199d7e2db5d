//! Queue of one connection: bounded, and it reports what was written.
//!
//! A plain channel does not do: the store may have a reply's words only after they were written, and the items that a
//! new connection missed are bounded by the session and not by the queue.

use crate::held::HeldShare;
use parking_lot::Mutex;
use session::Event;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingLimits {
    pub events: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Draining,
    StoreStalled,
    SessionGone,
    TooSlow,
    Left,
}

/// Session's end of the queue. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub struct Written {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub enum ToWrite {
    Event(Arc<Event>),
    End(End),
}

#[derive(Debug)]
struct Shared {
    limits: OutgoingLimits,
    state: Mutex<State>,
    more: Notify,
    ended: Notify,
    written: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<(Arc<Event>, Weight)>,
    writing: VecDeque<Weight>,
    events: usize,
    bytes: usize,
    held: HeldShare,
    pushed: u64,
    written: u64,
    end: Option<End>,
    end_is_now: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Weight {
    bytes: usize,
    is_counted: bool,
}

pub fn outgoing(limits: OutgoingLimits, held: HeldShare, written: Arc<Notify>) -> (Outgoing, Written) {
    let state = Mutex::new(State {
        queue: VecDeque::new(),
        writing: VecDeque::new(),
        events: 0,
        bytes: 0,
        held,
        pushed: 0,
        written: 0,
        end: None,
        end_is_now: false,
        closed: false,
    });
    let shared = Arc::new(Shared { limits, state, more: Notify::new(), ended: Notify::new(), written });
    (Outgoing { shared: shared.clone() }, Written { shared })
}

impl Outgoing {
    /// Queues an event and returns its mark. `None`: the connection is closed, or its reader is too slow, which closes
    /// it. Events that are not `counted` do not fill the queue.
    pub fn push(&self, event: Arc<Event>, counted: bool) -> Option<u64> {
        let weight = Weight { bytes: event.weight_bytes(), is_counted: counted };
        let mut state = self.shared.state.lock();
        if state.closed || state.end.is_some() {
            return None;
        }
        if !state.has_room(weight, self.shared.limits) || !state.held.take(weight.bytes) {
            state.end_now(End::TooSlow);
            drop(state);
            self.shared.tell_end();
            return None;
        }
        if counted {
            state.events += 1;
            state.bytes += weight.bytes;
        }
        state.queue.push_back((event, weight));
        state.pushed += 1;
        let mark = state.pushed;
        drop(state);
        self.shared.more.notify_one();
        Some(mark)
    }

    pub fn end(&self, end: End) {
        self.shared.state.lock().end.get_or_insert(end);
        self.shared.tell_end();
    }

    pub fn end_now(&self, end: End) {
        self.shared.state.lock().end_now(end);
        self.shared.tell_end();
    }

    pub async fn ended(&self) -> End {
        loop {
            let told = self.shared.ended.notified();
            if let Some(end) = self.shared.state.lock().end {
                return end;
            }
            told.await;
        }
    }

    pub fn is_written(&self, mark: u64) -> bool {
        self.shared.state.lock().written >= mark
    }

    pub fn is_over(&self) -> bool {
        let state = self.shared.state.lock();
        state.closed || (state.end.is_some() && state.queue.is_empty())
    }
}

impl Written {
    /// Returns the next event to write. The caller calls `done` when it is written.
    pub async fn next(&mut self) -> ToWrite {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.shared.more.notified().await;
        }
    }

    pub fn try_next(&mut self) -> Option<ToWrite> {
        let mut state = self.shared.state.lock();
        match state.queue.pop_front() {
            Some((event, weight)) => {
                state.writing.push_back(weight);
                Some(ToWrite::Event(event))
            }
            None => state.end.map(ToWrite::End),
        }
    }

    pub fn done(&mut self, count: u64) {
        let mut state = self.shared.state.lock();
        state.written += count;
        for _ in 0..count {
            state.leave_one();
        }
        drop(state);
        self.shared.written.notify_one();
    }

    /// Returns when the connection must close at once, also in the middle of a write.
    pub async fn ended_now(&mut self) {
        while !self.shared.state.lock().end_is_now {
            self.shared.more.notified().await;
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.queue.clear();
        state.held.set(0);
        drop(state);
        self.shared.written.notify_one();
    }
}

impl State {
    fn has_room(&self, weight: Weight, limits: OutgoingLimits) -> bool {
        !weight.is_counted || (self.events < limits.events && self.bytes + weight.bytes <= limits.bytes)
    }

    fn leave_one(&mut self) {
        let Some(Weight { bytes, is_counted }) = self.writing.pop_front() else { return };
        self.held.give_back(bytes);
        if is_counted {
            self.events -= 1;
            self.bytes -= bytes;
        }
    }

    fn end_now(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.end_is_now = true;
        self.queue.clear();
        self.writing.clear();
        (self.events, self.bytes) = (0, 0);
        self.held.set(0);
    }
}

impl Shared {
    fn tell_end(&self) {
        self.more.notify_one();
        self.ended.notify_waiters();
        self.written.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::HeldText;

    const LIMITS: OutgoingLimits = OutgoingLimits { events: 3, bytes: 3 * size_of::<Event>() + 100 };

    fn frame(text: impl Into<String>) -> Arc<Event> {
        Arc::new(Event::ReasoningDelta { response_id: String::new(), text: text.into() })
    }

    fn pair() -> (Outgoing, Written) {
        outgoing(LIMITS, HeldText::new(1 << 20, 1).share(), Arc::new(Notify::new()))
    }

    fn text(next: Option<ToWrite>) -> String {
        match next {
            Some(ToWrite::Event(event)) => match &*event {
                Event::ReasoningDelta { text, .. } => text.clone(),
                event => format!("{event:?}"),
            },
            Some(ToWrite::End(end)) => format!("{end:?}"),
            None => "nothing".into(),
        }
    }

    #[test]
    fn a_full_queue_ends_the_connection() {
        let (session, mut socket) = pair();
        for _ in 0..3 {
            assert!(session.push(frame("a"), true).is_some());
        }
        assert!(session.push(frame("a"), true).is_none());
        assert!(session.is_over());
        assert_eq!(text(socket.try_next()), "TooSlow");
    }

    #[test]
    fn bytes_count_too_and_come_back_when_written() {
        let (session, mut socket) = pair();
        let most_of_it = "x".repeat(2 * size_of::<Event>());
        assert!(session.push(frame(&most_of_it), true).is_some());
        assert_eq!(text(socket.try_next()), most_of_it);
        socket.done(1);
        assert!(session.push(frame(&most_of_it), true).is_some());
        assert!(session.push(frame(&most_of_it), true).is_none());
    }

    #[test]
    fn what_is_being_written_still_takes_its_place() {
        let (session, mut socket) = pair();
        let most_of_it = "x".repeat(2 * size_of::<Event>());
        assert!(session.push(frame(&most_of_it), true).is_some());
        assert_eq!(text(socket.try_next()), most_of_it);
        assert!(session.push(frame(&most_of_it), true).is_none());
    }

    #[test]
    fn connections_that_do_not_read_hold_no_more_together_than_they_may() {
        let event = size_of::<Event>() + 10;
        let held = HeldText::new(3 * event as u64, 3);
        let connect = || outgoing(LIMITS, held.share(), Arc::new(Notify::new()));
        let (lazy, _unread) = connect();
        assert!(lazy.push(frame("x".repeat(10)), true).is_some() && lazy.push(frame("x".repeat(10)), false).is_some());
        let (greedy, _unread_too) = connect();
        assert!(greedy.push(frame("x".repeat(10)), true).is_some());
        let (other, mut socket) = connect();
        assert!(other.push(frame("x".repeat(10)), true).is_some(), "others have their even part");
        assert!(greedy.push(frame("x"), true).is_none() && lazy.push(frame("x"), false).is_none());
        assert_eq!(held.bytes(), event as u64);
        assert!(matches!(socket.try_next(), Some(ToWrite::Event(_))));
        assert_eq!(held.bytes(), event as u64);
        socket.done(1);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn what_is_not_counted_fills_nothing() {
        let (session, mut socket) = pair();
        for _ in 0..50 {
            assert!(session.push(Arc::new(Event::SpeechDropped), false).is_some());
        }
        assert!(session.push(frame("a"), true).is_some());
        for _ in 0..50 {
            assert!(text(socket.try_next()).starts_with("SpeechDropped"));
        }
        assert_eq!((text(socket.try_next()), text(socket.try_next())), ("a".into(), "nothing".into()));
    }

    #[test]
    fn an_end_comes_after_what_is_queued() {
        let (session, mut socket) = pair();
        session.push(frame("last words"), true);
        session.end(End::Draining);
        session.end(End::SessionGone);
        assert!(session.push(frame("too late"), true).is_none());
        assert!(!session.is_over());
        assert_eq!(text(socket.try_next()), "last words");
        assert_eq!((text(socket.try_next()), text(socket.try_next())), ("Draining".into(), "Draining".into()));
    }

    #[tokio::test]
    async fn a_mark_is_written_when_the_socket_says_so() {
        let written = Arc::new(Notify::new());
        let (session, mut socket) = outgoing(LIMITS, HeldText::new(1 << 20, 1).share(), written.clone());
        let mark = session.push(Arc::new(Event::SpeechDropped), false).unwrap();
        assert!(matches!(socket.next().await, ToWrite::Event(_)));
        assert!(!session.is_written(mark));
        socket.done(1);
        written.notified().await;
        assert!(session.is_written(mark));
        drop(socket);
        written.notified().await;
        assert!(session.is_over() && session.push(frame("b"), true).is_none());
    }

    #[tokio::test]
    async fn a_write_that_hangs_can_be_interrupted() {
        let (session, mut socket) = pair();
        session.push(frame("a"), true);
        let hurry = tokio::spawn(async move { socket.ended_now().await });
        session.end_now(End::Left);
        hurry.await.unwrap();
    }
}
