use super::*;
use proptest::prelude::*;
use settings::{Settings, Sources};
use std::collections::BTreeMap;

const MOST: usize = 4096; // not a window: bytes of instructions
const ULID: &str = "01KB2M5Q8V4T9W3X7Y1Z6A0C2E";

fn rules(text: &str) -> Vec<PersonRule> {
    let mut sources = Sources::default();
    if !text.is_empty() {
        sources.environment = BTreeMap::from([("REPRISE__REMEMBER__WHO".to_owned(), text.to_owned())]);
    }
    Settings::load(&sources).expect(text).settings.remember.who
}

#[derive(Default)]
struct Given {
    key: Option<(&'static str, &'static str)>,
    path: Option<&'static str>,
    headers: HeaderMap,
    body: BodyClues,
}

impl Given {
    fn clues(&self) -> Clues<'_> {
        Clues {
            key: self.key,
            path: self.path,
            headers: &self.headers,
            body: &self.body,
            speaker: self.body.speaker.as_deref(),
            most: MOST,
        }
    }

    fn header(mut self, name: &'static str, value: &str) -> Given {
        self.headers.append(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }
}

fn body(change: impl FnOnce(&mut BodyClues)) -> Given {
    let mut given = Given::default();
    change(&mut given.body);
    given
}

fn person(text: &str, given: &Given) -> Option<String> {
    let recognised = recognise(&rules(text), &given.clues());
    recognised.rule.map(|_| if recognised.room.is_empty() { recognised.person } else { recognised.room })
}

#[test]
fn each_condition_holds_and_does_not() {
    let user = |user: &str| body(|body| body.user = Some(user.to_owned()));
    let key = |id, name| Given { key: Some((id, name)), ..Given::default() };
    let path = |path| Given { path: Some(path), ..Given::default() };
    let prompt = |text: &str| body(|body| body.instructions = Some(text.to_owned()));
    let header = |value: &str| Given::default().header("x-name", value);
    let cases: Vec<(&str, Given, Option<&str>)> = vec![
        (r#"person = "Anna", key = "phone""#, key("k1", "phone"), Some("anna")),
        (r#"person = "anna", key = "k1""#, key("k1", "phone"), Some("anna")),
        (r#"person = "anna", key = "phone""#, key("k1", "tablet"), None),
        (r#"person = "anna", key = "phone""#, Given::default(), None),
        (r#"person = "*", key = "*""#, key("k1", "Phone"), Some("phone")),
        (r#"person = "*", key = "*""#, key("k1", ""), Some("k1")),
        (r#"person = "*", key = "{name}'s phone""#, key("k1", "Anna's phone"), Some("anna")),
        (r#"person = "anna", path = "anna""#, path("anna"), Some("anna")),
        (r#"person = "anna", path = "anna""#, path("ben"), None),
        (r#"person = "anna", path = "anna""#, Given::default(), None),
        (r#"person = "anna", model = "butler""#, body(|body| body.model = "butler".into()), Some("anna")),
        (r#"person = "anna", model = "butler""#, body(|body| body.model = "butle".into()), None),
        (r#"person = "*", model = "for-{name}""#, body(|body| body.model = "for-Ben".into()), Some("ben")),
        (r#"person = "*", header = "X-Name""#, header("Ben"), Some("ben")),
        (r#"person = "*", header = "X-Name""#, header("J%C3%B6rg"), Some("jörg")),
        (r#"person = "*", header = "X-Name""#, header("Jörg"), Some("jörg")),
        (r#"person = "*", header = "X-Name""#, header("100%"), Some("100%")),
        (r#"person = "*", header = "X-Name""#, header("%00"), None),
        (r#"person = "*", header = "X-Name""#, header(""), None),
        (r#"person = "ben", header = "X-Name", value = "1""#, header("1"), Some("ben")),
        (r#"person = "ben", header = "X-Name", value = "1""#, header("2"), None),
        (r#"person = "ben", header = "X-Name", value = "2""#, header("1").header("x-name", "2"), Some("ben")),
        (r#"person = "*", user = "*""#, user("Ben"), Some("ben")),
        (r#"person = "ben", user = "u7""#, user("u7"), Some("ben")),
        (r#"person = "*", user = "*""#, user(ULID), None),
        (r#"person = "*", user = "*""#, user(&ULID.to_lowercase()), None),
        (r#"person = "ben", user = "*""#, user(ULID), None),
        (r#"person = "*", user = "ha-{name}""#, user(&format!("ha-{ULID}")), None),
        (r#"person = "*", user = "*""#, user(""), None),
        (r#"person = "*", user = "*""#, user("a/b"), None),
        (r#"person = "*", user = "*""#, user(&"x".repeat(100)), None),
        (r#"person = "ben", user = "*""#, user(&"x".repeat(100)), Some("ben")),
        (
            r#"person = "*", safety_identifier = "*""#,
            body(|body| body.safety_identifier = Some("Ben".into())),
            Some("ben"),
        ),
        (r#"person = "*", safety_identifier = "*""#, body(|body| body.safety_identifier = Some(ULID.into())), None),
        (r#"person = "*", prompt_cache_key = "*""#, body(|body| body.prompt_cache_key = Some("k".into())), Some("k")),
        (r#"person = "*", prompt_cache_key = "*""#, body(|body| body.prompt_cache_key = Some(ULID.into())), None),
        // A key that was chosen for good may be one.
        (
            r#"person = "ben", prompt_cache_key = "01KB2M5Q8V4T9W3X7Y1Z6A0C2E""#,
            body(|body| body.prompt_cache_key = Some(ULID.into())),
            Some("ben"),
        ),
        (r#"person = "*", satellite = "*""#, body(|body| body.satellite = Some("hall".into())), Some("hall")),
        (r#"person = "*", device = "*""#, body(|body| body.device = Some("d1".into())), Some("d1")),
        (r#"person = "*", satellite = "*""#, body(|body| body.device = Some("d1".into())), None),
        (r#"person = "ben", instructions = "You serve Ben.""#, prompt("Hello. You serve Ben. Bye."), Some("ben")),
        (r#"person = "ben", instructions = "You serve Ben.""#, prompt("You serve Anna."), None),
        (r#"person = "*", instructions = "serve {name}.""#, prompt("You serve Ben. Bye."), Some("ben")),
        // The first place is not the right one.
        (r#"person = "*", instructions = "serve {name}!""#, prompt("You serve. You serve Ben!"), Some("ben")),
        (r#"person = "*", instructions = "serve {name}!""#, prompt("serve \nAnna! serve Ben!"), Some("ben")),
        (r#"person = "", key = "tablet""#, key("k1", "tablet"), Some("")),
        (r#"person = "anna", key = "phone", model = "butler""#, key("k1", "phone"), None),
    ];
    for (rule, given, wanted) in cases {
        assert_eq!(person(&format!("[{{ {rule} }}]"), &given).as_deref(), wanted, "{rule}");
    }
}

#[test]
fn a_person_may_be_in_a_room() {
    let rules =
        rules(r#"[{ person = "anna", room = "*", key = "phone", satellite = "*" }, { room = "hall", path = "hall" }]"#);
    let mut given = body(|body| body.satellite = Some("Kitchen".into()));
    given.key = Some(("k1", "phone"));
    let anna = recognise(&rules, &given.clues());
    assert_eq!((anna.person.as_str(), anna.room.as_str(), anna.is_found), ("anna", "kitchen", true));
    given = Given { path: Some("hall"), ..Given::default() };
    let hall = recognise(&rules, &given.clues());
    assert_eq!((hall.person.as_str(), hall.room.as_str(), hall.is_found), ("", "hall", false));
}

#[test]
fn the_first_rule_that_holds_wins() {
    let text = r#"[
        { person = "", key = "tablet", private = true },
        { person = "*", user = "*", continue_minutes = 30 },
        { person = "home" },
    ]"#;
    let rules = rules(text);
    let mut given = body(|body| body.user = Some("Anna".into()));
    let anna = recognise(&rules, &given.clues());
    assert_eq!((anna.person.as_str(), anna.rule, anna.continue_minutes), ("anna", Some(1), Some(30)));
    assert!(anna.is_found && !anna.is_private);
    given.key = Some(("k1", "tablet"));
    let guest = recognise(&rules, &given.clues());
    assert_eq!((guest.person.as_str(), guest.rule, guest.is_private), ("", Some(0), true));
    let other = recognise(&rules, &Given::default().clues());
    assert_eq!((other.person.as_str(), other.rule, other.is_found), ("home", Some(2), false));
    let private = recognise(&rules, &body(|body| body.is_private = true).clues());
    assert!(private.is_private);
    assert_eq!(recognise(&[], &given.clues()), Recognised::default());
}

#[test]
fn home_assistant_names_its_area() {
    let area = |text: &str| person("", &body(|body| body.instructions = Some(text.to_owned())));
    let rest = "all generic commands like 'turn on the lights' should target this area.\nThis device is not able";
    assert_eq!(area(&format!("Rules.\nYou are in area Kitchen (floor Ground) and {rest}")).as_deref(), Some("kitchen"));
    assert_eq!(area(&format!("Rules.\nYou are in area Living Room and {rest}")).as_deref(), Some("living room"));
    assert_eq!(area("When a user asks to turn on all devices, ask for the area."), None);
    // Far more than any client sends.
    assert_eq!(area(&"You are in area ".repeat(100_000)), None);
    let satellite = |id: &str| person("", &body(|body| body.satellite = Some(id.to_owned())));
    assert_eq!(satellite("assist_satellite.kitchen").as_deref(), Some("kitchen"));
    assert_eq!(satellite("kitchen").as_deref(), Some("kitchen"));
    // Nothing that a frontend sends by itself.
    let given = Given::default().header("x-openwebui-user-name", "Anna");
    assert_eq!(person("", &given), None);
    assert_eq!(person("", &body(|body| body.user = Some("anna".into()))), None);
}

#[test]
fn it_is_said_why_a_rule_does_not_hold() {
    let rules = rules(r#"[{ person = "*", user = "*", model = "m" }, { person = "anna", key = "phone" }]"#);
    let given = body(|body| (body.user, body.model) = (Some(ULID.into()), "n".into()));
    assert_eq!(outcomes(&rules[0], &given.clues()), [Outcome::Other, Outcome::Ulid]);
    assert_eq!(outcomes(&rules[1], &given.clues()), [Outcome::Absent]);
    let given = body(|body| (body.user, body.model) = (Some("a/b".into()), "m".into()));
    assert_eq!(outcomes(&rules[0], &given.clues()), [Outcome::Holds(None), Outcome::NoName]);
}

#[test]
fn ulids() {
    for text in [ULID, "01kb2m5q8v4t9w3x7y1z6a0c2e", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"] {
        assert!(is_ulid(text), "{text}");
    }
    for text in ["", "anna", "81KB2M5Q8V4T9W3X7Y1Z6A0C2E", "01KB2M5Q8V4T9W3X7Y1Z6A0C2", "01KB2M5Q8V4T9W3X7Y1Z6A0C2I"] {
        assert!(!is_ulid(text), "{text}");
    }
}

proptest! {
    #[test]
    fn a_name_is_a_name(text in "\\PC{0,80}|[a-c \\x00-\\x7f\u{200b}\u{202e}%]{0,40}") {
        let text = &text;
        let in_instructions = format!("You are in area {text} (floor Ground) and all generic commands");
        for (rule, given) in [
            (r#"[{ person = "*", user = "*" }]"#, body(|body| body.user = Some(text.clone()))),
            (r#"[{ person = "*", satellite = "*" }]"#, body(|body| body.satellite = Some(text.clone()))),
            ("", body(|body| body.instructions = Some(in_instructions.clone()))),
        ] {
            if let Some(name) = person(rule, &given) {
                prop_assert_eq!(person_name(&name), Some(name.clone()), "{:?} of {:?}", name, text);
                prop_assert!(!is_ulid(text) || rule.contains("satellite") || rule.is_empty());
            }
        }
    }
}

#[test]
fn voice_integrations_are_recognised() {
    let rules = Settings::load(&Sources::default()).unwrap().settings.prompt.clients;
    let agent = |value: &str| Given::default().header("user-agent", value);
    let prompt = |text: &str| body(|body| body.instructions = Some(text.to_owned()));
    for (given, notes) in [
        (agent("HomeAssistant/2026.11.1 aiohttp/3.12 Python/3.13"), true),
        (agent("Home Assistant/1"), true),
        (agent("AsyncOpenAI/Python 2.8.0"), false),
        (agent("ollama-python/0.6.1 (x86_64 linux) Python/3.13"), false),
        (agent(""), false),
        (prompt("You are a voice assistant for Home Assistant.\nAnswer in plain text."), true),
        (prompt("Be brief.\nYou are in area Kitchen (floor Ground)"), true),
        (prompt("You write about Home Assistant."), false),
        (Given::default(), false),
    ] {
        let expected = if notes { ChangedHead::Notes } else { ChangedHead::Exact };
        assert_eq!(changed_head_of(&rules, &given.clues()), expected, "{:?} {:?}", given.headers, given.body);
    }
}

#[test]
fn long_instructions_are_looked_through_at_both_ends() {
    let rules = rules(r#"[{ person = "*", instructions = "serve {name}." }]"#);
    let filler = "x".repeat(MOST);
    let named = |text: &str| recognise(&rules, &body(|body| body.instructions = Some(text.to_owned())).clues()).person;
    assert_eq!(named(&format!("You serve Ben. {filler}")), "ben");
    assert_eq!(named(&format!("{filler} You serve Ben.")), "ben");
    assert_eq!(named(&format!("{filler} You serve Ben. {filler}")), "");
    assert_eq!(named(&format!("ä{} You serve Ben. {}ä", "ä".repeat(10), "ä".repeat(10))), "ben");
}

#[test]
fn one_request_may_name_many_speakers() {
    let rules = rules(
        r#"[{ person = "anna", speaker = "Mum", key = "phone" }, { person = "*", speaker = "*" }, { person = "guest" }]"#,
    );
    let phone = Given { key: Some(("k1", "phone")), ..Given::default() };
    let tried = TriedRules::new(&rules, &phone.clues());
    let found = [Some("Mum"), Some("Ben"), None].map(|name| tried.recognise(name));
    assert_eq!(found.each_ref().map(|found| found.person.as_str()), ["anna", "ben", "guest"]);
    assert_eq!(found.map(|found| found.by_speaker), [true, true, false]);
    let other = Given::default();
    assert_eq!(TriedRules::new(&rules, &other.clues()).recognise(Some("Mum")).person, "mum");
}
