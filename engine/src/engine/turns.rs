//! Turns of users: places in the batch and in the queue go round by user, so that the crowd of one keeps no other
//! waiting. Knows a user as a number, and requests without one as those of one user.

use std::collections::HashMap;

use super::Engine;
use super::schedule::Urgency;
use crate::active_request::ActiveRequest;
use crate::error::Error;
use crate::request::{EngineEvent, Priority, RequestId};

/// Users that got a place while others waited for one.
#[derive(Default)]
pub(super) struct Turns {
    count: u64,
    last: HashMap<Option<u64>, u64>, // by user: the number of the last place that it got
}

impl Turns {
    /// Number of the last place that a user got. 0: the user has had none since requests began to wait.
    pub fn last(&self, user: Option<u64>) -> u64 {
        self.last.get(&user).copied().unwrap_or(0)
    }

    pub fn take(&mut self, user: Option<u64>) {
        self.count += 1;
        self.last.insert(user, self.count);
    }

    /// Forgets all users, for the moment when no request waits.
    pub fn begin_again(&mut self) {
        self.last.clear();
    }
}

impl Engine {
    pub(super) fn running_of(&self, user: Option<u64>) -> usize {
        self.requests.iter().filter(|request| request.is_running() && request.user == user).count()
    }

    /// Finds a running request that gives its place to the waiting one at `at`, which is as urgent: the newest of the
    /// user with the most places. This user keeps no fewer places than the other gets, so that none goes to and fro.
    pub(super) fn of_crowd(&self, at: usize) -> Option<usize> {
        let enough = self.running_of(self.requests[at].user) + 2;
        let running = self.requests.iter().enumerate().filter(|(_, request)| request.is_running());
        let crowds = running.map(|(at, request)| ((self.running_of(request.user), request.id), at));
        crowds.filter(|((places, _), _)| *places >= enough).max().map(|(_, at)| at)
    }

    /// Finds a place in the queue. `Some`: the newest request of the user with the most waiting ones gives up its own;
    /// this user keeps no fewer than the other gets.
    pub(super) fn place_in_queue(&self, user: Option<u64>, priority: Priority) -> Result<Option<RequestId>, Error> {
        let is_waiting = |request: &&ActiveRequest| !request.is_running() && request.priority == priority;
        let waiting = self.requests.iter().filter(is_waiting).count();
        if waiting < self.limits.max_waiting {
            return Ok(None);
        }
        // The reader of a suspended reply has heard a part of it.
        let unbegun = || self.requests.iter().filter(is_waiting).filter(|request| request.start.is_none());
        let count = |user| unbegun().filter(|request| request.user == user).count();
        let enough = count(user) + 2;
        let crowds = unbegun().map(|request| (count(request.user), request.id));
        let newest = crowds.filter(|(waiting, _)| *waiting >= enough).max();
        newest.map(|(_, id)| Some(id)).ok_or(Error::Busy { waiting })
    }

    pub(super) fn refuse(&mut self, id: RequestId) {
        self.requests.retain(|request| request.id != id);
        self.ended.push(EngineEvent::Failed { id, error: Error::Busy { waiting: self.limits.max_waiting } });
    }

    /// Lists the running requests of this urgency in the order in which their prompts get tokens of a step, each with
    /// the number of prompts that have an equal part of the rest: the first of each user, the shortest before the
    /// others. Background work keeps its order, because one ends after the other.
    pub(super) fn prompts_in_turn(&self, urgency: Urgency) -> Vec<(usize, usize)> {
        let is_prompt = |request: &ActiveRequest| {
            request.is_running() && !request.is_decoding() && self.urgency(request) == urgency
        };
        let mut first_of_users: Vec<usize> = Vec::new();
        let mut others = Vec::new();
        for (at, request) in self.requests.iter().enumerate().filter(|(_, request)| is_prompt(request)) {
            let is_alone = first_of_users.is_empty();
            let has_one = first_of_users.iter().any(|first| self.requests[*first].user == request.user);
            match has_one || (urgency == Urgency::Background && !is_alone) {
                true => others.push((at, 1)),
                false => first_of_users.push(at),
            }
        }
        first_of_users.sort_by_key(|at| self.requests[*at].computed_next());
        let users = first_of_users.len();
        first_of_users.into_iter().enumerate().map(|(count, at)| (at, users - count)).chain(others).collect()
    }
}
