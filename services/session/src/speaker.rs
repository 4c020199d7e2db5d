//! Speakers: the person whose words an input brings.

use crate::vocabulary::{Input, InputItem, ItemBody, NamedSpeaker, Role};

impl NamedSpeaker {
    pub fn unnamed(person: &str) -> NamedSpeaker {
        NamedSpeaker { name: String::new(), person: Some(person.to_owned()) }
    }

    pub fn shown(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }
}

impl Input {
    /// Gives `person` the words that no rule gave to a person.
    pub fn assign(&mut self, person: &str) {
        match self {
            Input::AddItem { item, .. } => assign(&mut item.body, person),
            Input::TakeTurn(turn) => {
                turn.items.iter_mut().for_each(|item| assign(&mut item.body, person));
                assign_items(&mut turn.request.input, person);
            }
            Input::Respond(request) => assign_items(&mut request.input, person),
            Input::HeardAll { speaker, .. } => assign_speaker(speaker, person),
            _ => {}
        }
    }
}

fn assign_items(items: &mut Option<Vec<InputItem>>, person: &str) {
    for item in items.iter_mut().flatten() {
        if let InputItem::Item(item) = item {
            assign(&mut item.body, person);
        }
    }
}

fn assign(body: &mut ItemBody, person: &str) {
    if let ItemBody::Message { role: Role::User, speaker, .. } = body {
        assign_speaker(speaker, person);
    }
}

fn assign_speaker(speaker: &mut Option<NamedSpeaker>, person: &str) {
    let speaker = speaker.get_or_insert_with(|| NamedSpeaker::unnamed(person));
    speaker.person.get_or_insert_with(|| person.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{NewItem, NewTurn};

    #[test]
    fn words_of_the_user_without_a_person_are_given_one() {
        let body = |role, speaker| ItemBody::Message { role, parts: vec!["Hi".into()], speaker };
        let named = |person: Option<&str>| NamedSpeaker { name: "Ben".into(), person: person.map(str::to_owned) };
        let bodies = [
            body(Role::User, None),
            body(Role::User, Some(named(None))),
            body(Role::User, Some(named(Some("ben")))),
            body(Role::Assistant, None),
        ];
        let items = bodies.map(|body| NewItem { id: None, body }).into();
        let mut input = Input::TakeTurn(Box::new(NewTurn { items, ..NewTurn::default() }));
        input.assign("anna");
        let Input::TakeTurn(turn) = input else { panic!("another input") };
        let expected = [
            body(Role::User, Some(NamedSpeaker::unnamed("anna"))),
            body(Role::User, Some(named(Some("anna")))),
            body(Role::User, Some(named(Some("ben")))),
            body(Role::Assistant, None),
        ];
        assert_eq!(turn.items.into_iter().map(|item| item.body).collect::<Vec<_>>(), expected);
        assert_eq!((NamedSpeaker::unnamed("anna").shown(), named(None).shown()), (None, Some("Ben")));
    }
}
