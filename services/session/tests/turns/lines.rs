//! Events as lines of a transcript. Ids that the session made get short names: the first item is I1.

use session::{Event, Item, ItemBody, ItemStatus, Placed, Refusal, Response};
use std::collections::HashMap;

#[derive(Default)]
pub struct Names {
    known: HashMap<String, String>,
    counts: HashMap<char, usize>,
}

impl Names {
    pub fn name(&mut self, id: &str) -> String {
        let Some((prefix, rest)) = id.split_once('_') else { return id.to_owned() };
        if rest.len() != 21 {
            return id.to_owned(); // a client's
        }
        if let Some(name) = self.known.get(id) {
            return name.clone();
        }
        let letter = prefix.chars().next().unwrap().to_ascii_uppercase();
        let count = self.counts.entry(letter).or_default();
        *count += 1;
        let name = format!("{letter}{count}");
        self.known.insert(id.to_owned(), name.clone());
        name
    }

    pub fn item(&mut self, item: &Item) -> String {
        let id = self.name(&item.id);
        let body = match &item.body {
            ItemBody::Message { role, .. } => format!("{} {:?}", role.word(), item.text()),
            ItemBody::FunctionCall { call_id, name, arguments } => {
                format!("call {} {name}({arguments})", self.name(call_id))
            }
            ItemBody::FunctionCallOutput { call_id, output } => format!("output of {} {output:?}", self.name(call_id)),
        };
        match item.status {
            ItemStatus::Completed => format!("{id} {body}"),
            status => format!("{id} {body} {}", status.word()),
        }
    }

    fn behind(&mut self, previous: &Option<String>) -> String {
        previous.as_ref().map_or("after the head".to_owned(), |id| format!("after {}", self.name(id)))
    }

    fn placed(&mut self, item: &Item, place: &Option<Placed>) -> String {
        match place {
            None => self.item(item),
            Some(Placed { previous_item_id }) => format!("{} {}", self.item(item), self.behind(previous_item_id)),
        }
    }

    fn response(&mut self, Response { id, status, output, .. }: &Response) -> String {
        let id = self.name(id);
        let output: Vec<String> = output.iter().map(|item| self.item(item)).collect();
        let output = if output.is_empty() { String::new() } else { format!(" [{}]", output.join(", ")) };
        format!("{id} {}{output}", status.word())
    }

    pub fn line(&mut self, event: &Event) -> String {
        match event {
            Event::Opened(_) => "opened".to_owned(),
            Event::Configured(_) => "configured".to_owned(),
            Event::Refused { input_id, refusal } => {
                let to = input_id.as_ref().map(|id| format!(" to {id}")).unwrap_or_default();
                format!("refused {}{to}", refusal_name(refusal))
            }
            Event::ItemAdded { item, previous_item_id, is_new } => {
                let item = self.item(item);
                format!("{} {item} {}", if *is_new { "added" } else { "known" }, self.behind(previous_item_id))
            }
            Event::ItemRead { item } => format!("read {}", self.item(item)),
            Event::ItemTruncated { item_id, heard_ms, heard_chars, .. } => {
                format!("truncated {} at {heard_chars} ({heard_ms} ms)", self.name(item_id))
            }
            Event::ItemDeleted { item_id } => format!("deleted {}", self.name(item_id)),
            Event::SpeechDropped => "speech dropped".to_owned(),
            Event::Reached { mark, .. } => format!("reached {mark}"),
            Event::ResponseStarted { response } => format!("started {}", self.response(response)),
            Event::ReplyStarted { item, place, .. } => format!("begun {}", self.placed(item, place)),
            Event::ReasoningDelta { text, .. } => format!("thought {text:?}"),
            Event::ThinkingStopped { response_id } => format!("thinking stopped of {}", self.name(response_id)),
            Event::PromptTokens { tokens, .. } => format!("{} tokens of the prompt", tokens.len()),
            Event::TextDelta { text, .. } => format!("text {text:?}"),
            Event::ArgumentsDelta { json, .. } => format!("arguments {json}"),
            Event::SentenceDone { sentence, .. } => {
                format!(
                    "sentence {} {:?} {}..{}",
                    sentence.index, sentence.text, sentence.text_start, sentence.text_end
                )
            }
            Event::TextDone { text, .. } => format!("whole text {text:?}"),
            Event::ReplyDone { item, place, .. } => format!("ended {}", self.placed(item, place)),
            Event::RecallDone { query, places, .. } => format!("recalled {query:?} in {places}"),
            Event::ResponseDone { response } => format!("done {}", self.response(response)),
            Event::Reported { response_id, report } => format!(
                "report of {}: reused {} computed {} ms {} {} {:?} {:?} {}",
                self.name(response_id),
                report.reused_tokens,
                report.computed_tokens,
                report.queue_ms,
                report.prefill_ms,
                report.first_token_ms,
                report.first_sentence_ms,
                report.total_ms
            ),
            Event::ContextUpdated { tokens, ctx_size, .. } => format!("context {tokens} of {ctx_size}"),
            Event::Compaction(compaction) => format!("compaction {}", variant(&compaction.stage)),
            Event::PinRefused { item_id, .. } => format!("pin refused of {}", self.name(item_id)),
            Event::FactLearned { fact, .. } => format!("learned {:?}", fact.text),
            Event::FactUnsure { near, .. } => format!("unsure beside {}", near.len()),
        }
    }
}

fn refusal_name(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoSuchItem { wanted, .. } => format!("NoSuchItem for {wanted:?}"),
        refusal => variant(refusal),
    }
}

fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}
