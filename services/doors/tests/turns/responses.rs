//! One response: its events in order, its end in every way, and what may run beside it.

use super::stage::*;
use serde_json::json;
use session::machine::*;
use session::*;

#[test]
fn a_response_in_order() {
    let mut s = stage();
    s.client(1, user_as("u1", "Hi"));
    assert_eq!(s.heard(1), ["item.added u1 user \"Hi\" after the head", "item.done u1 user \"Hi\" after the head"]);
    s.client(1, json!({"type": "response.create"}));
    assert_eq!(s.heard(1), ["response.created R1 in_progress"]);
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.priority(), asked.items.len(), asked.max_tokens), (Priority::Talk, 1, None));
    s.backend(Delta::Prompt { input_tokens: 9, cached_tokens: 4 });
    s.backend(Delta::Reasoning { text: "hm".into(), tokens: 3 });
    assert!(s.heard(1).is_empty());
    s.content("\n\n");
    assert!(s.heard(1).is_empty());
    s.content("Hel");
    s.content("lo.");
    s.content("");
    s.done();
    assert_eq!(
        s.heard(1),
        [
            "response.output_item.added I1 assistant \"\" in_progress",
            "item.added I1 assistant \"\" in_progress after u1",
            "response.content_part.added \"\"",
            "response.output_text.delta \"Hel\"",
            "response.output_text.delta \"lo.\"",
            "response.output_text.done \"Hello.\"",
            "response.content_part.done \"Hello.\"",
            "response.output_item.done I1 assistant \"Hello.\"",
            "item.done I1 assistant \"Hello.\" after u1",
            "response.done R1 completed [I1 assistant \"Hello.\"]",
        ]
    );
    assert_eq!(s.history(), ["u1 user \"Hi\"", "I1 assistant \"Hello.\""]);
    s.check_agreement();
}

#[test]
fn usage_is_the_backends_or_counted() {
    let mut s = stage();
    s.ask("Hi");
    s.backend(Delta::Prompt { input_tokens: 9, cached_tokens: 4 });
    s.backend(Delta::Reasoning { text: "hm".into(), tokens: 3 });
    s.content("Yes.");
    s.client(1, json!({"type": "response.cancel"}));
    let usage = |s: &Stage| s.clients[&ConnId(1)].frames.last().unwrap()["response"]["usage"].clone();
    let counts = |usage: serde_json::Value| {
        let cached = usage["input_token_details"]["cached_tokens"].clone();
        [usage["input_tokens"].clone(), cached, usage["output_tokens"].clone(), usage["total_tokens"].clone()]
    };
    assert_eq!(counts(usage(&s)), [9, 4, 4, 13]);
    s.ask("Hi");
    let counted = Usage { input_tokens: 20, cached_tokens: 10, output_tokens: 5, reasoning_tokens: 0 };
    s.content("Yes.");
    s.backend(Delta::Done { finish: Finish::Stop, usage: Some(counted), report: None });
    assert_eq!(counts(usage(&s)), [20, 10, 5, 25]);
}

#[test]
fn metadata_is_echoed() {
    let mut s = stage();
    s.client(1, json!({"type": "response.create", "response": {"metadata": {"client_event_id": "mine"}}}));
    let created = s.clients[&ConnId(1)].frames.last().unwrap().clone();
    assert_eq!(created["response"]["metadata"], json!({"client_event_id": "mine"}));
    s.done();
    let done = s.clients[&ConnId(1)].frames.last().unwrap();
    assert_eq!(done["response"]["metadata"], json!({"client_event_id": "mine"}));
    assert_eq!(done["response"]["output"], json!([]));
    assert_eq!(s.history(), [""; 0]);
    s.check_agreement();
}

#[test]
fn function_calls() {
    let mut s = stage();
    s.ask("Light on, and the heating");
    s.content("One moment.");
    s.backend(Delta::CallStarted { name: "light".into(), call_id: None });
    s.backend(Delta::CallArguments { json: "{\"on\":".into(), tokens: 2 });
    s.backend(Delta::CallArguments { json: "true}".into(), tokens: 2 });
    s.backend(Delta::CallStarted { name: "heating".into(), call_id: Some("call_x".into()) });
    s.done();
    assert_eq!(
        s.heard(1),
        [
            "response.output_item.added I2 assistant \"\" in_progress",
            "item.added I2 assistant \"\" in_progress after I1",
            "response.content_part.added \"\"",
            "response.output_text.delta \"One moment.\"",
            "response.output_text.done \"One moment.\"",
            "response.content_part.done \"One moment.\"",
            "response.output_item.done I2 assistant \"One moment.\"",
            "item.done I2 assistant \"One moment.\" after I1",
            "response.output_item.added I3 call light() in_progress",
            "item.added I3 call light() in_progress after I2",
            "response.function_call_arguments.delta \"{\\\"on\\\":\"",
            "response.function_call_arguments.delta \"true}\"",
            "response.function_call_arguments.done C1 light({\"on\":true})",
            "response.output_item.done I3 call light({\"on\":true})",
            "item.done I3 call light({\"on\":true}) after I2",
            "response.output_item.added I4 call heating() in_progress",
            "item.added I4 call heating() in_progress after I3",
            "response.function_call_arguments.done call_x heating({})",
            "response.output_item.done I4 call heating({})",
            "item.done I4 call heating({}) after I3",
            "response.done R1 completed [I2 assistant \"One moment.\", I3 call light({\"on\":true}), I4 call heating({})]",
        ]
    );
    s.client(
        1,
        json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "call_x", "output": "ok"}}),
    );
    s.client(1, json!({"type": "response.create"}));
    let kinds: Vec<_> = s.generations.last().unwrap().items.iter().map(|item| item.text()).collect();
    assert_eq!(kinds, ["Light on, and the heating", "One moment.", "", "", ""]);
    s.check_agreement();
}

#[test]
fn a_call_that_comes_first_takes_the_place_of_the_answer() {
    let mut s = stage();
    s.client(1, user_as("u1", "Light on"));
    s.client(1, json!({"type": "response.create"}));
    s.client(1, user_as("u2", "please"));
    s.heard(1);
    s.backend(Delta::CallStarted { name: "light".into(), call_id: None });
    s.backend(Delta::CallArguments { json: "{}".into(), tokens: 1 });
    s.content("Done.");
    s.done();
    let heard = s.heard(1);
    assert_eq!(heard[1], "item.added I1 call light() in_progress after u1");
    assert_eq!(heard[7], "item.added I2 assistant \"\" in_progress after I1");
    assert_eq!(
        s.history(),
        ["u1 user \"Light on\"", "I1 call light({})", "I2 assistant \"Done.\"", "u2 user \"please\""]
    );
    s.check_agreement();
}

#[test]
fn an_answer_stands_behind_what_it_answers() {
    let mut s = stage();
    s.client(1, user_as("u1", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    s.client(1, user_as("u2", "Are you there?"));
    assert_eq!(s.heard(1).last().unwrap(), "item.done u2 user \"Are you there?\" after u1");
    s.content("Hello.");
    s.client(1, user_as("u3", "Hm"));
    s.done();
    assert_eq!(s.heard(1)[1], "item.added I1 assistant \"\" in_progress after u1");
    assert_eq!(
        s.history(),
        ["u1 user \"Hi\"", "I1 assistant \"Hello.\"", "u2 user \"Are you there?\"", "u3 user \"Hm\""]
    );
    s.check_agreement();
}

#[test]
fn one_response_at_a_time() {
    let mut s = stage();
    s.ask("Hi");
    s.client(1, json!({"type": "response.create", "event_id": "e2"}));
    assert_eq!(s.heard(1), ["error conversation_already_has_active_response to e2"]);
    s.content("Hello.");
    s.done();
    s.heard(1);
    s.client(1, json!({"type": "response.create"}));
    assert_eq!(s.heard(1), ["response.created R2 in_progress"]);
}

#[test]
fn cancel_with_nothing_active() {
    let mut s = stage();
    s.client(1, json!({"type": "response.cancel", "event_id": "e1"}));
    assert_eq!(s.heard(1), ["error response_cancel_not_active to e1"]);
    let message = s.clients[&ConnId(1)].frames.last().unwrap()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Cancellation failed"), "{message}");
    s.ask("Hi");
    s.client(1, json!({"type": "response.cancel", "response_id": "resp_other"}));
    assert_eq!(s.heard(1), ["error response_cancel_not_active"]);
}

#[test]
fn the_limit_of_tokens() {
    let mut s = stage();
    s.client(1, json!({"type": "response.create", "response": {"max_output_tokens": 2}}));
    assert_eq!(s.generations.last().unwrap().max_tokens, Some(2));
    s.content("Hello the");
    s.backend(Delta::Done { finish: Finish::Length, usage: None, report: None });
    assert_eq!(s.heard(1).last().unwrap(), "response.done R1 incomplete [I1 assistant \"Hello the\" incomplete]");
    let done = s.clients[&ConnId(1)].frames.last().unwrap();
    assert_eq!(done["response"]["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    s.check_agreement();
}

#[test]
fn half_a_call_is_never_made() {
    let rows = [
        Delta::Done { finish: Finish::Length, usage: None, report: None },
        Delta::Done { finish: Finish::Cancelled, usage: None, report: None },
        Delta::Failed(Failure::new(FailureCode::EngineFailed, "gone")),
    ];
    for end in rows {
        let mut s = stage();
        s.ask("Light on");
        s.backend(Delta::CallStarted { name: "light".into(), call_id: None });
        s.backend(Delta::CallArguments { json: "{\"on\":".into(), tokens: 2 });
        s.heard(1);
        s.backend(end);
        let heard = s.heard(1);
        assert_eq!(heard[0], "item.deleted I2");
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert_eq!(s.history(), ["I1 user \"Light on\""]);
        s.check_agreement();
    }
}

#[test]
fn a_failure_ends_the_response_and_not_the_session() {
    for said in ["", "Hel"] {
        let mut s = stage();
        s.ask("Hi");
        s.content(said);
        s.backend(Delta::Failed(Failure::new(FailureCode::EngineFailed, "too long")));
        let done = s.clients[&ConnId(1)].frames.last().unwrap();
        assert_eq!(
            done["response"]["status_details"],
            json!({"type": "failed", "error": {"type": "server_error", "code": "engine_failed", "message": "too long"}})
        );
        s.check_agreement();
        s.ask("Again");
        s.content("Hello.");
        s.done();
        assert!(s.heard(1).last().unwrap().contains("completed"));
        s.check_agreement();
    }
}

#[test]
fn responses_beside_the_conversation() {
    let mut s = stage();
    s.client(1, user_as("u1", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    s.heard(1);
    let beside = json!({"type": "response.create", "response": {
        "conversation": "none", "instructions": "Classify.", "metadata": {"topic": "class"},
        "input": [{"type": "item_reference", "id": "u1"}, {"type": "message", "role": "user", "content": "What is this?"}]}});
    s.client(1, beside.clone());
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.priority(), &asked.purpose), (Priority::Background, &GenerationPurpose::BesideConversation));
    assert_eq!(asked.items.iter().map(|item| item.text()).collect::<Vec<_>>(), ["Hi", "What is this?"]);
    assert_eq!(asked.config.instructions, "Classify.");
    s.content("A greeting.");
    // Not a word about the conversation.
    assert_eq!(
        s.heard(1),
        [
            "response.created R2 in_progress",
            "response.output_item.added I1 assistant \"\" in_progress",
            "response.content_part.added \"\"",
            "response.output_text.delta \"A greeting.\"",
        ]
    );
    s.client(1, beside.clone());
    s.client(1, beside);
    assert_eq!(s.heard(1)[1], "error too_many_responses");
    // The one in the conversation goes on.
    let first = s.generations[0].generation;
    s.input(Happening::Delta { generation: first, delta: Delta::text("Hello.", 1) });
    s.input(Happening::Delta {
        generation: first,
        delta: Delta::Done { finish: Finish::Stop, usage: None, report: None },
    });
    assert!(s.heard(1).last().unwrap().starts_with("response.done R1 completed"));
    let second = s.generations[1].generation;
    s.input(Happening::Delta {
        generation: second,
        delta: Delta::Done { finish: Finish::Stop, usage: None, report: None },
    });
    assert_eq!(s.heard(1).last().unwrap(), "response.done R2 completed [I1 assistant \"A greeting.\"]");
    let done = s.clients[&ConnId(1)].frames.last().unwrap().clone();
    assert_eq!(done["response"]["conversation_id"], json!(null));
    let id =
        s.clients[&ConnId(1)].frames.iter().rev().find(|f| f["type"] == "response.created").unwrap()["response"]["id"]
            .clone();
    s.client(1, json!({"type": "response.cancel", "response_id": id}));
    assert_eq!(s.heard(1), ["response.done R3 cancelled"]);
    assert_eq!(s.history(), ["u1 user \"Hi\"", "I2 assistant \"Hello.\""]);
    s.check_agreement();
    s.check_no_open_response();
}

#[test]
fn what_a_response_asks_for_is_for_it_alone() {
    let mut s = stage();
    s.client(
        1,
        json!({"type": "response.create", "response": {
        "instructions": "In French.", "tool_choice": "none", "temperature": 0.1, "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "f"}], "input": []}}),
    );
    let asked = s.generations.last().unwrap();
    assert!(asked.items.is_empty());
    assert_eq!(asked.config.instructions, "In French.");
    assert_eq!((asked.config.temperature, asked.config.tools.len()), (Some(0.1), 1));
    assert_eq!(s.machine.config(), &SessionConfig::new("Be brief."));
}

#[test]
fn a_response_for_nobody_or_nothing_is_refused() {
    let mut s = stage();
    s.client(1, json!({"type": "response.create", "response": {"conversation": "conv_2"}}));
    assert_eq!(s.heard(1), ["error invalid_value"]);
    s.client(1, json!({"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "x"}]}}));
    assert_eq!(s.heard(1), ["error item_reference_invalid_item_id"]);
    s.client(1, json!({"type": "response.create", "response": {"conversation": "conv_1"}}));
    assert_eq!(s.heard(1), ["response.created R1 in_progress"]);
}

#[test]
fn pieces_of_a_generation_that_is_over_are_ignored() {
    let mut s = stage();
    s.ask("Hi");
    s.content("Hel");
    s.client(1, json!({"type": "response.cancel"}));
    s.heard(1);
    s.content("lo.");
    s.done();
    s.done();
    s.input(Happening::Delta { generation: GenerationId(999), delta: Delta::text("x", 1) });
    assert!(s.heard(1).is_empty());
}

fn take_turn(s: &mut Stage, behind: Option<&str>, words: &[&str], instructions: Option<&str>) {
    let body = |text: &&str| ItemBody::message(Role::User, *text);
    let items = words.iter().map(|text| NewItem { id: None, body: body(text) }).collect();
    let config = ConfigUpdate { instructions: instructions.map(str::to_owned), ..ConfigUpdate::default() };
    let request = ResponseRequest { config, ..ResponseRequest::default() };
    let turn = NewTurn { behind: behind.map(str::to_owned), items, request, ..NewTurn::default() };
    s.input(Happening::Said { conn: ConnId(1), input_id: None, input: Input::TakeTurn(Box::new(turn)) });
}

#[test]
fn a_turn_is_taken_whole_or_not_at_all() {
    let mut s = stage();
    take_turn(&mut s, None, &["Hi", "Is it late?"], None);
    s.content("No.");
    // A second one while the first is answered leaves nothing behind.
    take_turn(&mut s, None, &["Hello?"], None);
    s.done();
    let history = s.history();
    assert_eq!(history.len(), 3, "{history:?}");
    // What its client does not know was said since.
    take_turn(&mut s, Some("item_unknown"), &["And now?"], None);
    assert_eq!(s.history(), history);
    let last = s.machine.entries().last().unwrap().item.id.clone();
    take_turn(&mut s, Some(&last), &["And now?"], None);
    s.content("Still not.");
    s.done();
    assert_eq!(s.history().len(), 5);
    let refused = s.heard(1).into_iter().filter(|frame| frame.starts_with("error")).count();
    assert_eq!(refused, 2);
    s.check_agreement();
}

#[test]
fn a_turn_that_finds_no_room_stores_nothing() {
    let mut s = stage();
    let words = vec!["word"; 51];
    take_turn(&mut s, None, &words, None);
    assert!(s.history().is_empty() && s.stored().is_empty());
    s.check_agreement();
}

#[test]
fn the_next_prompt_is_expected_to_be_as_the_last_turns() {
    let mut s = stage();
    let instructions = |s: &Stage| s.machine.ahead(Vec::new(), Default::default()).config.instructions.clone();
    take_turn(&mut s, None, &["Hi"], Some("Be kind."));
    assert_eq!(s.generations.last().unwrap().config.instructions, "Be kind.");
    s.done();
    assert_eq!(instructions(&s), "Be kind.");
    // A response that differs once changes nothing for later.
    s.ask("Hello?");
    s.done();
    assert_eq!(instructions(&s), "Be brief.");
    assert_eq!(s.machine.config().instructions, "Be brief.");
}

#[test]
fn a_turn_may_talk_over_the_reply() {
    let mut s = stage();
    take_turn(&mut s, None, &["Tell me a story."], None);
    s.content("Once upon a time ");
    let items = vec![NewItem { id: None, body: ItemBody::message(Role::User, "Stop.") }];
    let turn = NewTurn { interrupts: true, items, ..NewTurn::default() };
    s.input(Happening::Said { conn: ConnId(1), input_id: None, input: Input::TakeTurn(Box::new(turn)) });
    let told = s.heard(1);
    let (ended, began) = (position(&told, "response.done R1 cancelled"), position(&told, "response.created R2"));
    assert!(ended.is_some() && ended < began, "{told:?}");
    s.content("Yes.");
    s.done();
    assert_eq!(s.history().len(), 4, "{:?}", s.history());
}

fn position(told: &[String], start: &str) -> Option<usize> {
    told.iter().position(|frame| frame.starts_with(start))
}
