//! Traces of a session's turns for a collector: which request a turn answers, which tools it called, when it was stored.

use session::ItemBody;
use session::machine::{OpId, StoreOp};
use session::{Item, ResponseStatus};
use std::collections::VecDeque;
use std::time::SystemTime;
use telemetry::{ToolTrace, TraceParent, TurnTrace};

pub struct TurnTraces {
    session_id: String,
    preset: String,
    most_turns: usize,
    asked_from: Option<TraceParent>,
    // The turn whose tool gave its result: what follows belongs to its trace.
    called_from: Option<TraceParent>,
    turns: VecDeque<OpenTurn>,
    calls: VecDeque<ToolTrace>,
}

struct OpenTurn {
    response_id: String,
    place: TraceParent,
    trace: TurnTrace,
    items: Vec<String>,
    ending: Option<(OpId, ResponseStatus, SystemTime)>,
}

const MOST_CALLS: usize = 64;

impl TurnTraces {
    pub fn new(session_id: &str, preset: &str, most_turns: usize) -> TurnTraces {
        TurnTraces {
            session_id: session_id.to_owned(),
            preset: preset.to_owned(),
            most_turns,
            asked_from: None,
            called_from: None,
            turns: VecDeque::new(),
            calls: VecDeque::new(),
        }
    }

    // `None`: the request was handled.
    pub fn asked_from(&mut self, place: Option<TraceParent>) {
        self.asked_from = place;
    }

    /// Begins a response's trace, or finds the one that it has, and returns its place.
    pub fn asked(&mut self, response_id: &str) -> Option<TraceParent> {
        if let Some(turn) = self.turns.iter().find(|turn| turn.response_id == response_id) {
            return Some(turn.place);
        }
        let parent = self.asked_from.or(self.called_from.take());
        let trace = TurnTrace::begin(parent, &self.session_id, response_id, &self.preset)?;
        let place = trace.place();
        let response_id = response_id.to_owned();
        self.turns.push_back(OpenTurn { response_id, place, trace, items: Vec::new(), ending: None });
        while self.turns.len() > self.most_turns {
            self.turns.pop_front();
        }
        Some(place)
    }

    pub fn given(&mut self, id: OpId, op: &StoreOp) {
        match op {
            StoreOp::ReplyBegun { response_id, item, .. } => {
                if let Some(turn) = self.turns.iter_mut().find(|turn| turn.response_id == *response_id) {
                    turn.items.push(item.id.clone());
                }
            }
            StoreOp::ReplyFinished { item } => self.called(item),
            StoreOp::ItemAdded { item, .. } => self.returned(item),
            StoreOp::ResponseFinished { response_id, status, .. } => {
                if let Some(turn) = self.turns.iter_mut().find(|turn| turn.response_id == *response_id) {
                    turn.ending = Some((id, *status, SystemTime::now()));
                }
            }
            _ => {}
        }
    }

    fn called(&mut self, item: &Item) {
        let ItemBody::FunctionCall { call_id, name, .. } = &item.body else { return };
        let Some(turn) = self.turns.iter().find(|turn| turn.items.contains(&item.id)) else { return };
        let (turn, name, call_id) = (turn.place, name.clone(), Some(call_id.clone()));
        self.calls.push_back(ToolTrace { turn, name, call_id, began: SystemTime::now() });
        while self.calls.len() > MOST_CALLS {
            self.calls.pop_front();
        }
    }

    fn returned(&mut self, item: &Item) {
        let ItemBody::FunctionCallOutput { call_id, .. } = &item.body else { return };
        let called = self.calls.iter().position(|call| call.call_id.as_ref() == Some(call_id));
        if let Some(call) = called.and_then(|at| self.calls.remove(at)) {
            self.called_from = Some(call.turn);
            call.end();
        }
    }

    pub fn stored(&mut self, op: OpId, is_stored: bool) {
        let is_its_end = |turn: &OpenTurn| turn.ending.is_some_and(|(id, ..)| id == op);
        let Some(turn) = self.turns.iter().position(is_its_end).and_then(|at| self.turns.remove(at)) else { return };
        if let Some((_, status, given)) = turn.ending {
            turn.trace.stored(status, given, (!is_stored).then_some("store_failed"));
        }
    }
}
