//! Notices that the log has once for each source, however often clients cause them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Limit on the sources whose notices are remembered: the one that was silent longest is forgotten.
const SOURCES: usize = 256;
/// Limit on the notices of one source: what they name comes from its clients. Beyond it none is new.
const NOTICES: usize = 64;

static NOTED: LazyLock<Mutex<Noted>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Noted(VecDeque<(String, BTreeSet<String>)>);

/// Returns true if this notice is new for its source, a user or an address. No source takes the room of another.
pub fn first_time(source: &str, notice: String) -> bool {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).is_new(source, notice)
}

impl Noted {
    fn is_new(&mut self, source: &str, notice: String) -> bool {
        let known = self.0.iter().position(|(known, _)| known == source).and_then(|at| self.0.remove(at));
        let (source, mut notices) = known.unwrap_or_else(|| (source.to_owned(), BTreeSet::new()));
        let is_new = notices.len() < NOTICES && notices.insert(notice);
        self.0.push_back((source, notices));
        if self.0.len() > SOURCES {
            self.0.pop_front();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_silences_no_notice_of_another() {
        let mut noted = Noted::default();
        let new = (0..10 * NOTICES).filter(|number| noted.is_new("loud", format!("field {number}")));
        assert_eq!(new.count(), NOTICES, "what a client names is bounded");
        assert!(noted.is_new("quiet", "field 1".into()));
        assert!(!noted.is_new("quiet", "field 1".into()), "each notice comes once");
        assert!(!noted.is_new("loud", "field 1".into()));
    }

    #[test]
    fn sources_are_bounded_and_the_silent_one_is_forgotten() {
        let mut noted = Noted::default();
        for source in 0..2 * SOURCES {
            assert!(noted.is_new(&source.to_string(), "field".into()));
            assert_eq!(noted.is_new("talks", "field".into()), source == 0);
        }
        assert_eq!(noted.0.len(), SOURCES);
        assert!(noted.is_new("0", "field".into()));
        assert!(!noted.is_new("talks", "field".into()));
    }
}
