//! Stopped requests that may resume: replies that a user broke off, and replies that began early. The computed part of
//! one stays, with the state of its sampling (random numbers, penalties, grammar, half a character), so that it resumes
//! as if it had never stopped.
//!
//! Its memory counts like that of a running request, and is given up when something needs it: then it is a cached
//! sequence like others, and evicted parts are computed again if the request resumes.

use super::Engine;
use crate::active_request::ActiveRequest;
use crate::request::{Priority, RequestId, RequestReport};

impl Engine {
    /// Stops a request, so that `resume` can continue it until `release`. No event follows. `None`: it has ended.
    pub fn hold(&mut self, id: RequestId) -> Option<RequestReport> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        let request = self.requests.remove(at);
        self.done += 1;
        let report = request.report();
        self.held.push(request);
        Some(report)
    }

    /// Resumes a held request: its events come again. False: it is not held, because it was forgotten, or the GPU was
    /// lost.
    pub fn resume(&mut self, id: RequestId) -> bool {
        let Some(at) = self.held.iter().position(|request| request.id == id) else { return false };
        let mut request = self.held.remove(at);
        request.resume(self.steps);
        self.let_in(request);
        true
    }

    /// Turns an early request into a real one: from now on a user waits for its reply, and a held one resumes. Its
    /// report is that of one request. False: it has ended, or the GPU was lost.
    pub fn ask_for(&mut self, id: RequestId) -> bool {
        let at_once = |request: &mut ActiveRequest| {
            (request.priority, request.speculative) = (Priority::Talk, false);
            request.sequence.iter_mut().for_each(|sequence| sequence.speculative = false);
        };
        if let Some(request) = self.requests.iter_mut().find(|request| request.id == id) {
            at_once(request);
            return true;
        }
        let Some(at) = self.held.iter().position(|request| request.id == id) else { return false };
        let mut request = self.held.remove(at);
        at_once(&mut request);
        (request.parked_at, request.computed_at) = (None, self.steps);
        self.let_in(request);
        true
    }

    fn let_in(&mut self, mut request: ActiveRequest) {
        let running = self.requests.iter().filter(|request| request.is_running()).count();
        if request.is_running() && running >= self.limits.max_sequences.max(1) {
            let last = self.least_urgent(|request| self.urgency(request));
            match last.filter(|last| self.urgency(&self.requests[*last]) > self.urgency(&request)) {
                Some(last) => self.suspend(last),
                None => self.give_to_cache(&mut request),
            }
        }
        self.requests.push(request);
    }

    pub fn release(&mut self, id: RequestId) {
        if let Some(at) = self.held.iter().position(|request| request.id == id) {
            let mut request = self.held.remove(at);
            self.give_to_cache(&mut request);
        }
    }

    /// Caches the computed part of the oldest held request; first of those that no user has asked for.
    pub(super) fn give_up_held(&mut self) {
        let running = |only: fn(&ActiveRequest) -> bool| {
            self.held.iter().position(|request| request.is_running() && only(request))
        };
        if let Some(at) = running(|request| request.speculative).or_else(|| running(|_| true)) {
            let mut request = self.held.remove(at);
            self.give_to_cache(&mut request);
            self.held.insert(at, request);
        }
    }
}
