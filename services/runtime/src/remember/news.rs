//! News of facts for the clients of the conversation in which they were said.

use super::change::{Remembered, Unsure};
use crate::shared::{FactNews, Shared};
use session::{Event, LearnedFact};
use store::{Error, SessionRef};

/// Facts that were learned in a conversation and that its clients are not told yet.
#[derive(Default)]
pub struct LearnedFacts {
    facts: Vec<(String, Vec<String>)>,
    unsure: Vec<Unsure>,
}

/// Facts of one look at a conversation that its clients are told: the list of memories has the others.
const MOST_TOLD: usize = 16;

impl LearnedFacts {
    pub fn add(&mut self, remembered: &Remembered) {
        self.facts.extend(remembered.changes.new.iter().map(|fact| (fact.id.clone(), Vec::new())));
        for (older, newer) in &remembered.changes.replaced {
            if let Some((_, replaces)) = self.facts.iter_mut().find(|(id, _)| id == newer) {
                replaces.push(older.clone());
            }
        }
        self.unsure.extend(remembered.unsure.iter().cloned());
    }

    pub async fn tell(mut self, shared: &Shared, session: &SessionRef) -> Result<(), Error> {
        self.facts.truncate(MOST_TOLD);
        for (id, replaces) in self.facts {
            let Some(fact) = shared.store.fact(session.user(), &id).await?.filter(|fact| fact.holds()) else {
                continue;
            };
            let learned = LearnedFact { id: fact.id, person: fact.person, text: fact.text, asked: fact.asked };
            tell_clients(shared, session, Event::FactLearned { fact: learned, replaces });
            let unsure = self.unsure.iter().find(|unsure| unsure.kept.as_ref() == Some(&id));
            unsure.into_iter().for_each(|unsure| tell_clients(shared, session, unsure.event()));
        }
        let wishes = self.unsure.iter().filter(|unsure| unsure.kept.is_none()).take(MOST_TOLD);
        wishes.for_each(|wish| tell_clients(shared, session, wish.event()));
        Ok(())
    }
}

impl Unsure {
    fn event(&self) -> Event {
        Event::FactUnsure { fact_id: self.kept.clone(), near: self.near.to_vec() }
    }
}

fn tell_clients(shared: &Shared, session: &SessionRef, event: Event) {
    // No session in memory waits for it: then there is no client, either.
    let _ = shared.news.send(FactNews { session: session.clone(), event }.into());
}
