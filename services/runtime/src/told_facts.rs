//! Facts that a conversation tells, and the time when others take their place. The text stays the same while all of
//! them hold, and with it what was computed behind it.

use crate::Runtime;
use crate::clock::{its_day, wall_ms};
use crate::fact_block::{BlockFacts, owners};
use crate::shared::Shared;
use remember::{TellableFact, block, choose};
use settings::Preset;
use store::{Error, RememberedFact, SessionRecord, SessionRef, ToldFact};

impl Runtime {
    pub async fn first_facts(&self, user: &str, person: &str, preset: &Preset) -> BlockFacts {
        self.shared.first_facts(user, person, preset).await
    }

    pub async fn facts_of(&self, session: &SessionRef, record: &SessionRecord, preset: &Preset) -> BlockFacts {
        self.shared.facts_of(session, record, preset).await
    }
}

impl Shared {
    pub async fn first_facts(&self, user: &str, person: &str, preset: &Preset) -> BlockFacts {
        self.chosen_anew(user, person, preset).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "facts could not be read; the conversation continues without them");
            BlockFacts::default()
        })
    }

    /// Returns the facts that a session tells when it is loaded. They are chosen anew where one of them holds no more, and after
    /// a long silence.
    pub async fn facts_of(&self, session: &SessionRef, record: &SessionRecord, preset: &Preset) -> BlockFacts {
        if !record.is_remembered {
            return BlockFacts::default();
        }
        let (user, person) = (&record.user, &record.person);
        let silent_ms = wall_ms().saturating_sub(record.updated_at_ms);
        let refresh_ms = self.settings.remember.refresh_s.saturating_mul(1000);
        let is_silent = refresh_ms > 0 && u64::try_from(silent_ms).is_ok_and(|silent_ms| silent_ms >= refresh_ms);
        let told = match record.told_facts.as_ref().filter(|_| !is_silent) {
            Some(ids) => match self.told_or_chosen(user, person, preset, ids).await {
                Ok(told) => told,
                Err(error) => {
                    tracing::warn!(%error, "facts could not be read; the conversation continues without them");
                    return BlockFacts::default();
                }
            },
            None => self.first_facts(user, person, preset).await,
        };
        if record.told_facts.as_ref() != Some(&told.ids) {
            self.store.set_told_facts(session, told.ids.clone());
        }
        told
    }

    pub async fn told_or_chosen(
        &self,
        user: &str,
        person: &str,
        preset: &Preset,
        ids: &[String],
    ) -> Result<BlockFacts, Error> {
        let holding = self.store.holding_facts(user, ids).await?;
        if holding.len() != ids.len() {
            return self.chosen(user, person, preset).await;
        }
        let facts: Vec<TellableFact> = holding.into_iter().map(|fact| self.tellable(fact, person)).collect();
        Ok(BlockFacts { ids: ids.to_vec(), text: self.told_text(preset, facts.iter()) })
    }

    pub async fn chosen_anew(&self, user: &str, person: &str, preset: &Preset) -> Result<BlockFacts, Error> {
        for owner in owners(person) {
            self.hear_recent(user, owner).await?;
        }
        self.chosen(user, person, preset).await
    }

    async fn chosen(&self, user: &str, person: &str, preset: &Preset) -> Result<BlockFacts, Error> {
        let limit_tokens = preset.remember.prompt_tokens;
        let mut holding = Vec::new();
        for owner in owners(person) {
            let best = self.store.facts_to_tell(user, owner, limit_tokens / FEWEST_TOKENS + 1).await?;
            let of_home = owner.is_empty() && !person.is_empty();
            holding.extend(best.into_iter().map(|fact| (fact, of_home)));
        }
        holding.sort_by_key(|(fact, of_home)| (*of_home, fact.said_at_ms, fact.key));
        let (mut ids, facts): (Vec<String>, Vec<TellableFact>) =
            holding.into_iter().map(|fact| self.tellable_with_id(fact)).unzip();
        let remember = &self.settings.remember;
        let (heading, home) = (&remember.heading, &remember.home_mark);
        let chosen = choose(&facts, limit_tokens, heading, home);
        let text = self.told_text(preset, chosen.iter().map(|index| &facts[*index]));
        let ids = chosen.into_iter().map(|index| std::mem::take(&mut ids[index])).collect();
        Ok(BlockFacts { ids, text })
    }

    fn told_text<'a>(&self, preset: &Preset, facts: impl Iterator<Item = &'a TellableFact>) -> String {
        let remember = &self.settings.remember;
        let facts = block(facts, &remember.heading, &remember.home_mark);
        [self.confirmation(preset), &facts].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn confirmation(&self, preset: &Preset) -> &str {
        if preset.remember.confirm { &self.settings.remember.confirmation } else { "" }
    }

    fn tellable_with_id(&self, (fact, of_home): (ToldFact, bool)) -> (String, TellableFact) {
        let ToldFact { id, text, asked, uses, said_at_ms, .. } = fact;
        let said_on = self.said_on(&text, said_at_ms);
        (id, TellableFact { of_home, text, asked, uses, said_at_ms, said_on })
    }

    fn tellable(&self, fact: RememberedFact, person: &str) -> TellableFact {
        TellableFact {
            of_home: fact.person.is_empty() && !person.is_empty(),
            said_on: self.said_on(&fact.text, fact.said_at_ms),
            text: fact.text,
            asked: fact.asked,
            uses: fact.uses,
            said_at_ms: fact.said_at_ms,
        }
    }

    fn said_on(&self, text: &str, said_at_ms: i64) -> Option<String> {
        its_day(text, said_at_ms, &self.settings.remember.said_on)
    }
}

const FEWEST_TOKENS: u32 = 2;
