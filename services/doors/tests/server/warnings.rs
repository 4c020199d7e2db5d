//! Warnings and errors that the service logs in a test, whose tasks all run on its thread.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A subscriber of the whole process: with one of a thread, tests beside it decide which events there are.
struct OfThreads;

struct Line(String);

pub fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| tracing::subscriber::set_global_default(OfThreads).unwrap());
}

/// Returns what was logged on this thread since `listen`.
pub fn warnings() -> Vec<String> {
    LINES.with_borrow(Vec::clone)
}

impl Subscriber for OfThreads {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
