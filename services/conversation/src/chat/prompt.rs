//! Messages as clients send them to messages as templates take them: one system message, at the head, and then a user.

use serde_json::{Value, json};
use settings::{ConversationSettings, NotesAs};
use text::chat::ChatPrompt;

pub fn settle(chat: &mut ChatPrompt, wording: &ConversationSettings) {
    let head = chat.messages.iter().take_while(|message| message["role"] == "system").count();
    if head > 1 {
        let texts: Vec<String> = chat.messages.drain(..head).map(|message| text_of(&message)).collect();
        let joined =
            texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        chat.messages.insert(0, json!({ "role": "system", "content": joined }));
    }
    let head = head.min(1);
    if wording.notes_as == NotesAs::User {
        for message in chat.messages[head..].iter_mut().filter(|message| message["role"] == "system") {
            let note = format!("{}{}{}", wording.note_before, text_of(message).trim(), wording.note_after);
            *message = json!({ "role": "user", "content": note });
        }
    }
    if chat.messages.get(head).is_none_or(|message| message["role"] != "user") {
        chat.messages.insert(head, json!({ "role": "user", "content": wording.opening }));
    }
}

/// The words of a message, its parts one a line.
pub fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Settings, Sources};

    fn settled(messages: Value) -> Vec<String> {
        let mut wording = Settings::load(&Sources::default()).unwrap().settings.conversation;
        wording.note_before = "[".into();
        wording.note_after = "]".into();
        wording.opening = "(speak)".into();
        let mut chat = text::chat::normalise(&json!({ "messages": messages })).unwrap();
        settle(&mut chat, &wording);
        let line = |message: &Value| format!("{}: {}", message["role"].as_str().unwrap(), text_of(message));
        chat.messages.iter().map(line).collect()
    }

    #[test]
    fn system_messages_find_a_place() {
        let messages = json!([
            {"role": "developer", "content": "Be brief."}, {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Hi"}, {"role": "system", "content": "It is 10:05."}, {"role": "user", "content": "Well?"}]);
        let expected = ["system: Be brief.\n\nBe kind.", "user: Hi", "user: [It is 10:05.]", "user: Well?"];
        assert_eq!(settled(messages), expected);
    }

    #[test]
    fn the_assistant_may_speak_first() {
        let one = json!([{"role": "system", "content": "Greet."}]);
        assert_eq!(settled(one), ["system: Greet.", "user: (speak)"]);
        let two = json!([{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Hi"}]);
        assert_eq!(settled(two), ["user: (speak)", "assistant: Hello.", "user: Hi"]);
    }

    #[test]
    fn what_is_in_order_stays_as_it_is() {
        let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
        assert_eq!(settled(messages), ["system: Be brief.", "user: Hi"]);
    }
}
