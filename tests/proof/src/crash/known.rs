//! A conversation as its client knows it, held against what the service has after a restart.

use ::tests::service::Service;
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct Known {
    pub id: String,
    pub turns: Vec<KnownTurn>,
    pub version: Option<u64>,
    pub deletion: Step,
    pub refusals: Vec<String>,
    /// Tokens that the first turn after the restart reused and computed.
    pub first_turn: Option<(u64, u64)>,
}

/// No words of a user's are said twice in a run, so that they name the turn.
#[derive(Clone, Debug)]
pub struct KnownTurn {
    pub said: String,
    pub kept: Step,
    pub heard: String,
    pub is_whole: bool,
    /// Step of a cut: the client asked to keep so many characters.
    pub cut: Step,
    pub cut_chars: usize,
    pub is_examined: bool,
}

/// Steps that may be missing after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    #[default]
    Nothing,
    /// The log's end was torn: what was written last, and nothing in the middle.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    #[default]
    No,
    /// It may be done or not.
    Asked,
    Acknowledged,
}

impl KnownTurn {
    pub fn new(said: String) -> KnownTurn {
        let (kept, cut) = (Step::Asked, Step::No);
        KnownTurn { said, kept, heard: String::new(), is_whole: false, cut, cut_chars: 0, is_examined: false }
    }

    fn cut_words(&self) -> String {
        self.heard.chars().take(self.cut_chars).collect()
    }

    /// True if the store may have these words of the reply.
    fn may_be(&self, stored: Option<&str>) -> bool {
        let words = stored.unwrap_or_default();
        let is_uncut = match self.is_whole {
            true => words == self.heard,
            false => words.starts_with(&self.heard),
        };
        match self.cut {
            Step::No => is_uncut,
            Step::Asked => is_uncut || words == self.cut_words(),
            Step::Acknowledged => words == self.cut_words(),
        }
    }
}

struct Stored {
    is_user: bool,
    is_reply: bool,
    is_open: bool,
    text: String,
}

impl Known {
    pub fn asked(&mut self, said: &str) -> &mut KnownTurn {
        self.turns.push(KnownTurn::new(said.to_owned()));
        self.turns.last_mut().expect("it was put there")
    }

    /// Compares the service with what must hold, and lists the faults. From then on, what the service has must hold.
    pub async fn examine(&mut self, service: &Service, loss: Loss) -> Vec<String> {
        if self.id.is_empty() {
            return Vec::new();
        }
        let (status, body) = service.http("GET", &format!("/v1/sessions/{}", self.id), &[], "").await;
        let is_torn = loss == Loss::End;
        let mut wrong = Vec::new();
        match (self.deletion, status) {
            (Step::Asked | Step::Acknowledged, 404) => {
                self.deletion = Step::Acknowledged;
                return wrong;
            }
            (Step::Acknowledged, _) if !is_torn => wrong.push("it was deleted, and is there".to_owned()),
            (Step::No, 404) if is_torn => {
                *self = Known::default();
                return wrong;
            }
            (_, 200) => self.deletion = Step::No,
            _ => {}
        }
        if status != 200 {
            wrong.push(format!("it answers {status}: {body}"));
            return wrong;
        }
        let session: Value = serde_json::from_str(&body).unwrap_or_default();
        wrong.extend(self.examine_summary(service, &session, is_torn).await);
        let stored = match items(service, &self.id).await {
            Ok(stored) => stored,
            Err(why) => return vec![why],
        };
        if stored.iter().any(|item| item.is_open) {
            wrong.push("an item is still in progress".to_owned());
        }
        let mut lost_at = None;
        for (at, turn) in self.turns.iter_mut().enumerate() {
            let places: Vec<usize> =
                (0..stored.len()).filter(|&at| stored[at].is_user && stored[at].text == turn.said).collect();
            let [place] = places[..] else {
                let is_lost = places.is_empty() && (turn.kept != Step::Acknowledged || is_torn);
                if !is_lost {
                    wrong.push(format!("{:?} is there {} times", turn.said, places.len()));
                }
                if turn.kept == Step::Acknowledged {
                    lost_at = lost_at.or(Some(at));
                }
                turn.said.clear();
                continue;
            };
            // What is lost with the end of a file is the end of what was written.
            if lost_at.is_some() && turn.kept == Step::Acknowledged {
                wrong.push(format!("{:?} is there, and what was acknowledged before it is not", turn.said));
            }
            (turn.kept, turn.is_examined) = (Step::Acknowledged, true);
            let replies = stored[place + 1..].iter().take_while(|item| !item.is_user).filter(|item| item.is_reply);
            let words: Vec<&str> = replies.map(|item| item.text.as_str()).collect();
            let words = (!words.is_empty()).then(|| words.concat());
            if !turn.may_be(words.as_deref()) && !is_torn {
                wrong.push(format!("{turn:?}: stored is {words:?}"));
            }
            (turn.heard, turn.is_whole, turn.cut) = (words.unwrap_or_default(), true, Step::No);
        }
        self.turns.retain(|turn| !turn.said.is_empty());
        wrong
    }

    async fn examine_summary(&mut self, service: &Service, session: &Value, is_torn: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let stands = session["summary"]["version"].as_u64();
        if stands < self.version && !is_torn {
            wrong.push(format!("summary {:?} was told to be in use, and {stands:?} is", self.version));
        }
        if session["summary_is_stale"] != false {
            wrong.push("the summary tells what is not there".to_owned());
        }
        let summaries = service.get(&format!("/v1/sessions/{}/summaries", self.id)).await;
        let in_use = summaries["data"].as_array().into_iter().flatten().filter(|one| one["in_use"] == true).count();
        if in_use != usize::from(stands.is_some()) {
            wrong.push(format!("{in_use} summaries are in use, and {stands:?} stands"));
        }
        self.version = stands;
        wrong
    }
}

async fn items(service: &Service, id: &str) -> Result<Vec<Stored>, String> {
    let mut all = Vec::new();
    let mut path = format!("/v1/sessions/{id}/items");
    loop {
        let (status, body) = service.http("GET", &path, &[], "").await;
        if status != 200 {
            return Err(format!("its items answer {status}: {body}"));
        }
        let page: Value = serde_json::from_str(&body).map_err(|error| format!("its items are no JSON: {error}"))?;
        all.extend(page["data"].as_array().into_iter().flatten().map(stored));
        let Some(after) = page["after"].as_str() else { return Ok(all) };
        path = format!("/v1/sessions/{id}/items?after={after}");
    }
}

fn stored(item: &Value) -> Stored {
    let parts = item["body"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let role = item["body"]["role"].as_str().unwrap_or_default();
    Stored {
        is_user: role == "user",
        is_reply: role == "assistant",
        is_open: item["status"] == "in_progress",
        text: parts.iter().filter_map(|part| part["text"].as_str()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_must_be_there() {
        let mut turn = KnownTurn { heard: "Good mor".to_owned(), ..KnownTurn::new("Hello".to_owned()) };
        assert!(turn.may_be(Some("Good morning")) && turn.may_be(Some("Good mor")));
        assert!(!turn.may_be(Some("Good")) && !turn.may_be(None));
        turn.is_whole = true;
        assert!(!turn.may_be(Some("Good morning")));
        (turn.cut, turn.cut_chars) = (Step::Asked, 4);
        assert!(turn.may_be(Some("Good")) && turn.may_be(Some("Good mor")));
        turn.cut = Step::Acknowledged;
        assert!(turn.may_be(Some("Good")) && !turn.may_be(Some("Good mor")));
    }
}
