//! The last requests of each user, and the rule that took each for a person or a room. They are in memory alone.

use super::Scope;
use super::explain::written;
use parking_lot::Mutex;
use serde::Serialize;
use settings::PersonRule;
use std::collections::{HashMap, VecDeque};

/// Requests of one client, one behind the other, that were taken for the same person and room.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TakenRequests {
    pub agent: String,
    pub key_id: Option<String>,
    /// Person whose words they held. Empty: the home's guest.
    pub person: String,
    pub room: String,
    /// Number of the first rule that holds, from 1.
    pub rule: Option<usize>,
    pub because: Vec<String>,
    pub requests: u64,
    pub last_at_ms: i64,
}

#[derive(Default)]
pub struct RecentRequests(Mutex<HashMap<String, VecDeque<TakenRequests>>>);

const LONGEST_AGENT: usize = 80;

impl RecentRequests {
    /// Notes a request, unless it is private. At most `most` lines of a user stay.
    pub fn note(&self, scope: &Scope, rule: Option<(usize, &PersonRule)>, at_ms: i64, most: usize) {
        if scope.is_private || most == 0 {
            return;
        }
        let agent: String = scope.agent.chars().take(LONGEST_AGENT).collect();
        let number = rule.map(|(at, _)| at + 1);
        let mut all = self.0.lock();
        let lines = all.entry(scope.user.clone()).or_default();
        let is_alike = |known: &TakenRequests| {
            (&known.agent, &known.key_id, known.rule) == (&agent, &scope.key, number)
                && (&known.person, &known.room) == (&scope.person, &scope.room)
        };
        let before = lines.iter().position(is_alike).and_then(|at| lines.remove(at));
        let mut line = before.unwrap_or_else(|| TakenRequests {
            agent,
            key_id: scope.key.clone(),
            person: scope.person.clone(),
            room: scope.room.clone(),
            rule: number,
            because: rule.map(|(_, rule)| rule.conditions.iter().map(written).collect()).unwrap_or_default(),
            requests: 0,
            last_at_ms: 0,
        });
        (line.requests, line.last_at_ms) = (line.requests + 1, at_ms);
        lines.push_front(line);
        lines.truncate(most);
    }

    pub fn of(&self, user: &str) -> Vec<TakenRequests> {
        self.0.lock().get(user).into_iter().flatten().cloned().collect()
    }

    pub fn forget(&self, user: &str, name: &str) {
        if let Some(lines) = self.0.lock().get_mut(user) {
            lines.retain(|line| line.person != name && line.room != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str, person: &str) -> Scope {
        Scope { user: user.into(), person: person.into(), agent: "satellite".into(), ..Scope::default() }
    }

    #[test]
    fn requests_that_are_alike_are_one_line_and_each_user_sees_its_own() {
        let recent = RecentRequests::default();
        for (at, scope) in
            [of("ann", "anna"), of("ann", "ben"), of("ann", "anna"), of("carl", "anna")].iter().enumerate()
        {
            recent.note(scope, None, at as i64, 2);
        }
        let told: Vec<_> =
            recent.of("ann").into_iter().map(|line| (line.person, line.requests, line.last_at_ms)).collect();
        assert_eq!(told, [("anna".to_owned(), 2, 2), ("ben".to_owned(), 1, 1)]);
        assert_eq!(recent.of("carl").len(), 1);
        recent.note(&of("ann", "dora"), None, 5, 2);
        assert_eq!(recent.of("ann").len(), 2, "no more than the limit");
        recent.forget("ann", "anna");
        assert!(recent.of("ann").iter().all(|line| line.person != "anna"));
    }

    #[test]
    fn what_is_private_leaves_no_line() {
        let recent = RecentRequests::default();
        recent.note(&Scope { is_private: true, ..of("ann", "anna") }, None, 1, 10);
        recent.note(&of("ann", "anna"), None, 1, 0);
        assert!(recent.of("ann").is_empty());
    }
}
