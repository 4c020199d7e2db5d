//! Requests that were stopped and may go on. What was computed for one stays, and how its next token is chosen (random numbers,
//! penalties, grammar, half a character), so that it goes on as if it had never been stopped.
//!
//! Its memory counts like that of a running request, and is given up when something needs it: then it is a cached sequence like
//! others, and what is evicted of it is computed again if the request goes on.

use super::Engine;
use crate::request::{RequestId, RequestReport};

impl Engine {
    /// Stops a request, so that `resume` can let it go on until `release`. No event follows. None: it has ended.
    pub fn hold(&mut self, id: RequestId) -> Option<RequestReport> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        let request = self.requests.remove(at);
        self.done += 1;
        let report = request.report();
        self.held.push(request);
        Some(report)
    }

    /// Lets a request go on that is held: its events come again. False: it is not held, because it was forgotten, or the GPU
    /// was lost.
    pub fn resume(&mut self, id: RequestId) -> bool {
        let Some(at) = self.held.iter().position(|request| request.id == id) else { return false };
        let mut request = self.held.remove(at);
        let running = self.requests.iter().filter(|request| request.is_running()).count();
        if request.is_running() && running >= self.limits.max_sequences.max(1) {
            let last = self.least_urgent(|request| self.urgency(request));
            match last.filter(|last| self.urgency(&self.requests[*last]) > request.class) {
                Some(last) => self.suspend(last),
                // It waits for a place as others do.
                None => self.give_to_cache(&mut request),
            }
        }
        request.resume(self.steps);
        self.requests.push(request);
        true
    }

    /// A request that is held will not go on. What was computed for it stays cached.
    pub fn release(&mut self, id: RequestId) {
        if let Some(at) = self.held.iter().position(|request| request.id == id) {
            let mut request = self.held.remove(at);
            self.give_to_cache(&mut request);
        }
    }

    /// What the oldest held request has computed is from now on a cached sequence like others.
    pub(super) fn give_up_held(&mut self) {
        if let Some(at) = self.held.iter().position(|request| request.is_running()) {
            let mut request = self.held.remove(at);
            self.give_to_cache(&mut request);
            self.held.insert(at, request);
        }
    }
}
