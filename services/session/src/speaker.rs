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
    pub fn speakers(&mut self) -> Vec<&mut NamedSpeaker> {
        let bodies: Vec<&mut ItemBody> = match self {
            Input::AddItem { item, .. } => vec![&mut item.body],
            Input::Respond(request) => request.input.iter_mut().flatten().filter_map(body_of).collect(),
            Input::HeardAll { speaker, .. } => return speaker.iter_mut().collect(),
            _ => return Vec::new(),
        };
        let speakers = bodies.into_iter().filter_map(|body| match body {
            ItemBody::Message { speaker, .. } => speaker.as_mut(),
            _ => None,
        });
        speakers.collect()
    }

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
    items.iter_mut().flatten().filter_map(body_of).for_each(|body| assign(body, person));
}

fn body_of(item: &mut InputItem) -> Option<&mut ItemBody> {
    match item {
        InputItem::Item(item) => Some(&mut item.body),
        InputItem::Reference(_) => None,
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
