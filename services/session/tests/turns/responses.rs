//! One response: its events in order, its end in every way, and what may run beside it.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

#[test]
fn a_response_in_order() {
    let mut s = stage();
    s.client(1, user_as("u1", "Hi"));
    assert_eq!(s.heard(1), ["added u1 user \"Hi\" after the head"]);
    s.client(1, respond());
    assert_eq!(s.heard(1), ["started R1 in_progress"]);
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.priority(), asked.items.len(), asked.max_tokens), (Priority::Talk, 1, None));
    s.model(Delta::Prompt { input_tokens: 9, cached_tokens: 4 });
    s.model(Delta::Reasoning { text: "hm".into(), tokens: 3 });
    assert_eq!(s.heard(1), ["thought \"hm\""]);
    s.content("\n\n");
    assert!(s.heard(1).is_empty());
    s.content("Hel");
    s.content("lo.");
    s.content("");
    s.done();
    assert_eq!(
        s.heard(1),
        [
            "begun I1 assistant \"\" in_progress after u1",
            "text \"Hel\"",
            "text \"lo.\"",
            "sentence 0 \"Hello.\" 0..6",
            "whole text \"Hello.\"",
            "ended I1 assistant \"Hello.\" after u1",
            "done R1 completed [I1 assistant \"Hello.\"]",
        ]
    );
    assert_eq!(s.history(), ["u1 user \"Hi\"", "I1 assistant \"Hello.\""]);
    s.check_agreement();
}

#[test]
fn usage_is_the_models_or_counted() {
    let mut s = stage();
    s.ask("Hi");
    s.model(Delta::Prompt { input_tokens: 9, cached_tokens: 4 });
    s.model(Delta::Reasoning { text: "hm".into(), tokens: 3 });
    s.content("Yes.");
    s.client(1, cancel());
    let counted = Usage { input_tokens: 9, cached_tokens: 4, output_tokens: 4, reasoning_tokens: 3 };
    assert_eq!(s.last_response(1).usage, Some(counted));
    s.ask("Hi");
    let told = Usage { input_tokens: 20, cached_tokens: 10, output_tokens: 5, reasoning_tokens: 0 };
    s.content("Yes.");
    s.model(Delta::Done { finish: Finish::Stop, usage: Some(told), report: None });
    assert_eq!(s.last_response(1).usage, Some(told));
}

#[test]
fn metadata_is_echoed() {
    let mut s = stage();
    let metadata = Some(JsonText::from(r#"{"client_event_id":"mine"}"#));
    s.client(1, respond_with(ResponseRequest { metadata: metadata.clone(), ..ResponseRequest::default() }));
    let Some(Event::ResponseStarted { response }) = s.clients[&ConnId(1)].events.last() else { panic!() };
    assert_eq!(response.metadata, metadata);
    s.done();
    assert_eq!((&s.last_response(1).metadata, &s.last_response(1).output[..]), (&metadata, &[][..]));
    assert_eq!(s.history(), [""; 0]);
    s.check_agreement();
}

#[test]
fn function_calls() {
    let mut s = stage();
    s.ask("Light on, and the heating");
    s.content("One moment.");
    s.model(Delta::CallStarted { name: "light".into(), call_id: None });
    s.model(Delta::CallArguments { json: "{\"on\":".into(), tokens: 2 });
    s.model(Delta::CallArguments { json: "true}".into(), tokens: 2 });
    s.model(Delta::CallStarted { name: "heating".into(), call_id: Some("call_x".into()) });
    s.done();
    assert_eq!(
        s.heard(1),
        [
            "begun I2 assistant \"\" in_progress after I1",
            "text \"One moment.\"",
            "sentence 0 \"One moment.\" 0..11",
            "whole text \"One moment.\"",
            "ended I2 assistant \"One moment.\" after I1",
            "begun I3 call C1 light() in_progress after I2",
            "arguments {\"on\":",
            "arguments true}",
            "ended I3 call C1 light({\"on\":true}) after I2",
            "begun I4 call call_x heating() in_progress after I3",
            "ended I4 call call_x heating({}) after I3",
            "done R1 completed [I2 assistant \"One moment.\", I3 call C1 light({\"on\":true}), I4 call call_x heating({})]",
        ]
    );
    s.client(1, answer_call("call_x", "ok"));
    s.client(1, respond());
    let texts: Vec<_> = s.generations.last().unwrap().items.iter().map(|item| item.text()).collect();
    assert_eq!(texts, ["Light on, and the heating", "One moment.", "", "", ""]);
    s.check_agreement();
}

#[test]
fn a_call_that_comes_first_takes_the_place_of_the_answer() {
    let mut s = stage();
    s.client(1, user_as("u1", "Light on"));
    s.client(1, respond());
    s.client(1, user_as("u2", "please"));
    s.heard(1);
    s.model(Delta::CallStarted { name: "light".into(), call_id: None });
    s.model(Delta::CallArguments { json: "{}".into(), tokens: 1 });
    s.content("Done.");
    s.done();
    let heard = s.heard(1);
    assert_eq!(heard[0], "begun I1 call C1 light() in_progress after u1");
    assert_eq!(heard[3], "begun I2 assistant \"\" in_progress after I1");
    assert_eq!(
        s.history(),
        ["u1 user \"Light on\"", "I1 call C1 light({})", "I2 assistant \"Done.\"", "u2 user \"please\""]
    );
    s.check_agreement();
}

#[test]
fn an_answer_stands_behind_what_it_answers() {
    let mut s = stage();
    s.client(1, user_as("u1", "Hi"));
    s.client(1, respond());
    s.client(1, user_as("u2", "Are you there?"));
    assert_eq!(s.heard(1).last().unwrap(), "added u2 user \"Are you there?\" after u1");
    s.content("Hello.");
    s.client(1, user_as("u3", "Hm"));
    s.done();
    assert_eq!(s.heard(1)[0], "begun I1 assistant \"\" in_progress after u1");
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
    s.client_as(1, "e2", respond());
    assert_eq!(s.heard(1), ["refused ResponseActive to e2"]);
    s.content("Hello.");
    s.done();
    s.heard(1);
    s.client(1, respond());
    assert_eq!(s.heard(1), ["started R2 in_progress"]);
}

#[test]
fn cancel_with_nothing_active() {
    let mut s = stage();
    s.client_as(1, "e1", cancel());
    assert_eq!(s.heard(1), ["refused NoActiveResponse to e1"]);
    s.ask("Hi");
    s.client(1, cancel_response("resp_other"));
    assert_eq!(s.heard(1), ["refused NoActiveResponse"]);
}

#[test]
fn the_limit_of_tokens() {
    let mut s = stage();
    let config = ConfigUpdate { max_output_tokens: Some(MaxTokens::Tokens(2)), ..ConfigUpdate::default() };
    s.client(1, respond_with(ResponseRequest { config, ..ResponseRequest::default() }));
    assert_eq!(s.generations.last().unwrap().max_tokens, Some(2));
    s.content("Hello the");
    s.model(Delta::Done { finish: Finish::Length, usage: None, report: None });
    assert_eq!(s.heard(1).last().unwrap(), "done R1 incomplete [I1 assistant \"Hello the\" incomplete]");
    assert_eq!(s.last_response(1).details, Some(StatusDetails::MaxOutputTokens));
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
        s.model(Delta::CallStarted { name: "light".into(), call_id: None });
        s.model(Delta::CallArguments { json: "{\"on\":".into(), tokens: 2 });
        s.heard(1);
        s.model(end);
        let heard = s.heard(1);
        assert_eq!(heard[0], "deleted I2");
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
        let failure = Failure::new(FailureCode::EngineFailed, "too long");
        s.model(Delta::Failed(failure.clone()));
        assert_eq!(s.last_response(1).details, Some(StatusDetails::Failed(failure)));
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
    s.client(1, respond());
    s.heard(1);
    let question = NewItem { id: None, body: ItemBody::message(Role::User, "What is this?") };
    let config = ConfigUpdate { instructions: Some("Classify.".into()), ..ConfigUpdate::default() };
    let input = Some(vec![InputItem::Reference("u1".into()), InputItem::Item(question)]);
    let request = ResponseRequest { input, config, ..beside() };
    s.client(1, respond_with(request.clone()));
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.priority(), asked.is_reply()), (Priority::Background, false));
    assert_eq!(asked.items.iter().map(|item| item.text()).collect::<Vec<_>>(), ["Hi", "What is this?"]);
    assert_eq!(asked.config.instructions, "Classify.");
    s.content("A greeting.");
    // Not a word about the conversation.
    assert_eq!(s.heard(1), ["started R2 in_progress", "begun I1 assistant \"\" in_progress", "text \"A greeting.\"",]);
    s.client(1, respond_with(request.clone()));
    s.client(1, respond_with(request));
    assert_eq!(s.heard(1), ["started R3 in_progress", "refused TooManyResponses"]);
    // The one in the conversation goes on.
    let done = || Delta::Done { finish: Finish::Stop, usage: None, report: None };
    let first = s.generations[0].generation;
    s.feed(MachineInput::Delta { generation: first, delta: Delta::text("Hello.", 1) });
    s.feed(MachineInput::Delta { generation: first, delta: done() });
    assert!(s.heard(1).last().unwrap().starts_with("done R1 completed"));
    let second = s.generations[1].generation;
    s.feed(MachineInput::Delta { generation: second, delta: done() });
    assert_eq!(s.heard(1).last().unwrap(), "done R2 completed [I1 assistant \"A greeting.\"]");
    assert_eq!(s.last_response(1).conversation_id, None);
    let third = s.generations[2].response_id.clone().unwrap();
    s.client(1, cancel_response(&third));
    assert_eq!(s.heard(1), ["done R3 cancelled"]);
    assert_eq!(s.history(), ["u1 user \"Hi\"", "I2 assistant \"Hello.\""]);
    s.check_agreement();
    s.check_no_open_response();
}

#[test]
fn a_response_keeps_what_it_asks_for_to_itself() {
    let mut s = stage();
    let tool = Tool { name: "f".into(), description: None, parameters: None, verbatim: None };
    let config = ConfigUpdate {
        instructions: Some("In French.".into()),
        tools: Some(vec![tool]),
        tool_choice: Some(ToolChoice::None),
        temperature: Some(Some(0.1)),
        reasoning_effort: Some(Some("low".into())),
        ..ConfigUpdate::default()
    };
    s.client(1, respond_with(ResponseRequest { config, input: Some(Vec::new()), ..ResponseRequest::default() }));
    let asked = s.generations.last().unwrap();
    assert!(asked.items.is_empty());
    assert_eq!(asked.config.instructions, "In French.");
    assert_eq!((asked.config.temperature, asked.config.tools.len()), (Some(0.1), 1));
    assert_eq!((&asked.config.tool_choice, asked.config.reasoning_effort.as_deref()), (&ToolChoice::None, Some("low")));
    assert_eq!(s.machine.config(), &SessionConfig::new("Be brief."));
}

#[test]
fn a_response_for_an_unknown_conversation_or_item_is_refused() {
    let mut s = stage();
    let named = |id: &str| ResponseRequest {
        conversation: ConversationChoice::Named(id.to_owned()),
        ..ResponseRequest::default()
    };
    s.client(1, respond_with(named("conv_2")));
    assert_eq!(s.heard(1), ["refused NoSuchConversation"]);
    let input = Some(vec![InputItem::Reference("x".into())]);
    s.client(1, respond_with(ResponseRequest { input, ..ResponseRequest::default() }));
    assert_eq!(s.heard(1), ["refused NoSuchReference"]);
    s.client(1, respond_with(named("conv_1")));
    assert_eq!(s.heard(1), ["started R1 in_progress"]);
}

#[test]
fn deltas_of_a_generation_that_is_over_are_ignored() {
    let mut s = stage();
    s.ask("Hi");
    s.content("Hel");
    s.client(1, cancel());
    s.heard(1);
    s.content("lo.");
    s.done();
    s.done();
    s.feed(MachineInput::Delta { generation: GenerationId(999), delta: Delta::text("x", 1) });
    assert!(s.heard(1).is_empty());
}

fn take_turn(s: &mut Stage, behind: Option<&str>, words: &[&str], instructions: Option<&str>) {
    let item = |text: &&str| NewItem { id: None, body: ItemBody::message(Role::User, *text) };
    let config = ConfigUpdate { instructions: instructions.map(str::to_owned), ..ConfigUpdate::default() };
    let request = ResponseRequest { config, ..ResponseRequest::default() };
    let items = words.iter().map(item).collect();
    let turn = NewTurn { behind: behind.map(str::to_owned), items, request, ..NewTurn::default() };
    s.client(1, Input::TakeTurn(Box::new(turn)));
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
    let refused: Vec<_> = s.heard(1).into_iter().filter(|line| line.starts_with("refused")).collect();
    assert_eq!(refused, ["refused ResponseActive", "refused SaidSince"]);
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
    // It counts as text in memory until then.
    let words: usize = s.machine.items().iter().map(|item| item.body.text_bytes()).sum();
    assert_eq!(s.machine.text_bytes(), "Be brief.".len() + "Be kind.".len() + words);
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
    s.client(1, Input::TakeTurn(Box::new(turn)));
    let told = s.heard(1);
    let position = |start: &str| told.iter().position(|line| line.starts_with(start));
    let (ended, began) = (position("done R1 cancelled"), position("started R2"));
    assert!(ended.is_some() && ended < began, "{told:?}");
    s.content("Yes.");
    s.done();
    assert_eq!(s.history().len(), 4, "{:?}", s.history());
}
