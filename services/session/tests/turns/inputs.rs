//! Inputs of a client, one short function each.

use session::{
    ConfigUpdate, ConversationChoice, Heard, Input, ItemBody, ItemPlace, NewItem, ResponseRequest, ResumeRequest, Role,
};

pub fn user(text: &str) -> Input {
    add(None, ItemBody::message(Role::User, text), ItemPlace::End)
}

pub fn user_as(id: &str, text: &str) -> Input {
    user_at(id, text, ItemPlace::End)
}

pub fn user_at(id: &str, text: &str, place: ItemPlace) -> Input {
    add(Some(id), ItemBody::message(Role::User, text), place)
}

pub fn told(id: &str, text: &str, place: ItemPlace) -> Input {
    add(Some(id), ItemBody::message(Role::Assistant, text), place)
}

pub fn answer_call(call_id: &str, output: &str) -> Input {
    let body = ItemBody::FunctionCallOutput { call_id: call_id.to_owned(), output: output.to_owned() };
    add(None, body, ItemPlace::End)
}

pub fn add(id: Option<&str>, body: ItemBody, place: ItemPlace) -> Input {
    Input::AddItem { item: NewItem { id: id.map(str::to_owned), body }, place }
}

pub fn read(id: &str) -> Input {
    Input::ReadItem { item_id: id.to_owned() }
}

pub fn delete(id: &str) -> Input {
    Input::DeleteItem { item_id: id.to_owned() }
}

pub fn truncate(id: &str, chars: usize) -> Input {
    truncate_part(id, 0, Heard::Chars(chars))
}

pub fn truncate_ms(id: &str, ms: u64) -> Input {
    truncate_part(id, 0, Heard::Ms(ms))
}

pub fn truncate_part(id: &str, part: usize, heard: Heard) -> Input {
    Input::TruncateItem { item_id: id.to_owned(), part, heard }
}

pub fn instructions(text: &str) -> Input {
    Input::Configure(Box::new(ConfigUpdate { instructions: Some(text.to_owned()), ..ConfigUpdate::default() }))
}

pub fn respond() -> Input {
    Input::Respond(Box::default())
}

pub fn respond_with(request: ResponseRequest) -> Input {
    Input::Respond(Box::new(request))
}

pub fn beside() -> ResponseRequest {
    ResponseRequest { conversation: ConversationChoice::None, ..ResponseRequest::default() }
}

pub fn cancel() -> Input {
    Input::CancelResponse { response_id: None }
}

pub fn cancel_response(id: &str) -> Input {
    Input::CancelResponse { response_id: Some(id.to_owned()) }
}

pub fn stop_thinking() -> Input {
    Input::StopThinking { response_id: None }
}

pub fn resume() -> Input {
    Input::Resume(ResumeRequest::default())
}

pub fn resume_from(heard: Heard) -> Input {
    Input::Resume(ResumeRequest { item_id: None, heard: Some(heard) })
}

pub fn hear(text: &str) -> Input {
    Input::Hear { text: text.to_owned() }
}

pub fn hear_nothing() -> Input {
    hear("")
}

pub fn commit() -> Input {
    Input::HeardAll { text: None, item_id: None, speaker: None, respond: true }
}

pub fn commit_text(text: &str) -> Input {
    Input::HeardAll { text: Some(text.to_owned()), item_id: None, speaker: None, respond: true }
}

/// Returns the end of the user's speech, which the client does not want answered yet.
pub fn note_text(text: &str) -> Input {
    Input::HeardAll { text: Some(text.to_owned()), item_id: None, speaker: None, respond: false }
}
