//! The ways in which words are deleted, and what must be left of them: nothing.

use super::plant::{Done, Door, PERSON, Planted, Trouble, Ways, text};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use tests::random::Random;
use tokio::time::sleep;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Way {
    Session,
    Conversation,
    Items,
    ItemEvents,
    Response,
    Person,
    Memory,
    MemoriesOfPerson,
    /// 'Forget that ...', and then the session in which it was said.
    ForgetThat,
    Pin,
    Nothing,
    /// Deletion by age, while the service does not run.
    Age,
}

pub fn ways_of(door: Door) -> &'static [Way] {
    match door {
        Door::Realtime => &[Way::Session, Way::Items, Way::ItemEvents],
        Door::Chat => &[Way::Session, Way::Conversation, Way::Items],
        Door::ChatLog | Door::OllamaLog => &[Way::Person, Way::Items, Way::Session],
        Door::Responses => &[Way::Response, Way::Session],
        Door::Conversation => &[Way::Conversation, Way::Items],
        Door::Fork => &[Way::Items, Way::Response],
        Door::Wyoming => &[Way::Session, Way::Items],
        Door::Memory => &[Way::Memory, Way::MemoriesOfPerson, Way::Person],
        Door::Wish => &[Way::Person, Way::Session, Way::Items, Way::ForgetThat],
        Door::Note => &[Way::Session, Way::Items, Way::Person],
        Door::Pin => &[Way::Pin, Way::Session],
        Door::Summary => &[Way::Items, Way::Session],
        Door::Private => &[Way::Nothing],
    }
}

/// Doors whose replies may repeat the word in other conversations: there it stays until it is deleted, too.
fn may_be_repeated(door: Door) -> bool {
    matches!(door, Door::Memory | Door::Wish | Door::Note | Door::Fork | Door::Responses)
}

pub fn way(door: Door, random: &mut Random) -> Way {
    let ways = ways_of(door);
    ways[random.below(ways.len() as u64) as usize]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Anything,
    Memories,
}

struct Hit {
    session: String,
    item: String,
}

/// Looks at a word for so long: a reply may still be told, a turn of a client's log may still be kept beside it.
const LOOKS: usize = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Ways {
    pub async fn delete(&self, planted: &Planted, way: Way) -> Done<()> {
        let Planted { word, person, id, session, door, .. } = planted;
        match way {
            Way::Session if session.is_empty() => self.delete_sessions(word).await?,
            Way::Session => self.gone("DELETE", &format!("/v1/sessions/{session}")).await?,
            Way::Conversation => self.gone("DELETE", &format!("/v1/conversations/{session}")).await?,
            Way::Items => {}
            Way::ItemEvents => {
                let hits = self.hits(word).await?;
                let items: Vec<&str> =
                    hits.iter().filter(|hit| hit.session == *session).map(|hit| hit.item.as_str()).collect();
                self.speak(Some(session), &[], &items).await?;
            }
            Way::Response => self.gone("DELETE", &format!("/v1/responses/{id}")).await?,
            Way::Person => self.gone("DELETE", &format!("/v1/persons/{person}")).await?,
            // What was learned outlives a session that grew old.
            Way::Memory | Way::Age => self.delete_memories(word).await?,
            Way::MemoriesOfPerson => self.gone("DELETE", &format!("/v1/memories?person={person}")).await?,
            Way::ForgetThat => {
                let said = format!("Forget that my parrot is called {word}.");
                let headers = [(PERSON, person.as_str())];
                self.chat("new", &said, &headers).await?;
                // A next conversation hears what was asked for.
                self.chat("new", "Good morning.", &headers).await?;
                self.wait(word, Left::Memories).await?;
                self.delete_sessions(word).await?;
            }
            Way::Pin => self.gone("DELETE", &format!("/v1/sessions/{session}/pins/{id}")).await?,
            Way::Nothing => {}
        }
        if way == Way::Items || may_be_repeated(*door) {
            self.delete_items(word).await?;
        }
        if planted.outlived {
            self.delete_memories(word).await?;
        }
        self.wait(word, Left::Anything).await
    }

    pub async fn has(&self, planted: &Planted) -> Done<bool> {
        let Planted { word, door, session, .. } = planted;
        Ok(match door {
            Door::Memory | Door::Wish => !self.memories(word).await?.is_empty(),
            Door::Pin => {
                let pins = self.ask("GET", &format!("/v1/sessions/{session}/pins"), &[], Value::Null).await?;
                pins["data"].to_string().contains(word.as_str())
            }
            Door::Private => true,
            _ => !self.hits(word).await?.is_empty(),
        })
    }

    async fn gone(&self, method: &str, path: &str) -> Done<()> {
        match self.http(method, path, &[], &Value::Null).await? {
            (200..300 | 404, _) => Ok(()),
            (503, _) => Err(Trouble::CutOff),
            (status, answer) => Err(Trouble::Wrong(format!("{method} {path} answers {status}: {answer}"))),
        }
    }

    async fn hits(&self, word: &str) -> Done<Vec<Hit>> {
        let found = self.ask("GET", &format!("/v1/sessions/search?limit=100&q={word}"), &[], Value::Null).await?;
        let data = found["data"].as_array().into_iter().flatten();
        Ok(data
            .map(|hit| Hit { session: text(&hit["session_id"]).to_owned(), item: text(&hit["item_id"]).to_owned() })
            .collect())
    }

    async fn memories(&self, word: &str) -> Done<Vec<String>> {
        let found = self.ask("GET", &format!("/v1/memories?past=true&limit=100&q={word}"), &[], Value::Null).await?;
        let data = found["data"].as_array().into_iter().flatten();
        let holds = |fact: &&Value| fact.to_string().contains(word);
        Ok(data.filter(holds).map(|fact| text(&fact["id"]).to_owned()).collect())
    }

    async fn delete_memories(&self, word: &str) -> Done<()> {
        for memory in self.memories(word).await? {
            self.gone("DELETE", &format!("/v1/memories/{memory}")).await?;
        }
        Ok(())
    }

    async fn delete_sessions(&self, word: &str) -> Done<()> {
        let mut sessions: Vec<String> = self.hits(word).await?.into_iter().map(|hit| hit.session).collect();
        sessions.sort();
        sessions.dedup();
        for session in sessions {
            self.gone("DELETE", &format!("/v1/sessions/{session}")).await?;
        }
        Ok(())
    }

    /// Deletes every item that shows the word, but for copies of the service's own, which have to go by themselves.
    async fn delete_items(&self, word: &str) -> Done<()> {
        for _ in 0..LOOKS {
            let hits = self.hits(word).await?;
            let visible: Vec<&Hit> = hits.iter().filter(|hit| !hit.item.starts_with(session::HIDDEN)).collect();
            if visible.is_empty() {
                return Ok(());
            }
            for Hit { session, item } in visible {
                self.gone("DELETE", &format!("/v1/conversations/{session}/items/{item}")).await?;
            }
        }
        Err(Trouble::Wrong(format!("the items with {word} cannot be deleted")))
    }

    async fn wait(&self, word: &str, left: Left) -> Done<()> {
        for _ in 0..LOOKS {
            let is_found = left == Left::Anything && !self.hits(word).await?.is_empty();
            if !is_found && self.memories(word).await?.is_empty() {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        let hits = self.hits(word).await?;
        let items: Vec<Value> = hits.iter().map(|hit| json!([hit.session, hit.item])).collect();
        Err(Trouble::Wrong(format!("{word} is still found: {items:?}, memories {:?}", self.memories(word).await?)))
    }
}
