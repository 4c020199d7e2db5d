//! Random conversations: the stage checks every rule at each step, and at the end everybody must agree.

use super::stage::*;
use proptest::prelude::*;
use serde_json::json;
use session::machine::*;
use session::*;

#[derive(Clone, Debug)]
enum Act {
    Create { id: u8, before: Option<u8> },
    CreateReplyText { id: u8 },
    Delete(u8),
    DeleteReply,
    Retrieve(u8),
    Truncate { text_end: Option<u16>, audio_end_ms: u16 },
    Respond { beside: bool },
    Cancel,
    Resume { text_end: Option<u16>, named: bool },
    Mhm,
    MakeReplyAgain { chars: u16 },
    Turn { interrupts: bool },
    StopThinking,
    Update(u8),
    Commit { respond: bool },
    Instructions(u8),
    Content(&'static str),
    Call,
    Arguments,
    Done(Finish),
    Failed,
    Attach { conn: u8, extensions: bool },
    Detach(u8),
    Answer(u8),
    Refuse,
    Wait(u16),
    Cover(u8),
    By(u8, Box<Act>),
}

fn act() -> impl Strategy<Value = Act> {
    let id = 0u8..6;
    let plain = prop_oneof![
        4 => (id.clone(), prop::option::of(id.clone())).prop_map(|(id, before)| Act::Create { id, before }),
        1 => id.clone().prop_map(|id| Act::CreateReplyText { id }),
        2 => id.clone().prop_map(Act::Delete),
        2 => Just(Act::DeleteReply),
        1 => id.clone().prop_map(Act::Retrieve),
        3 => (prop::option::of(0u16..40), 0u16..4000)
            .prop_map(|(text_end, audio_end_ms)| Act::Truncate { text_end, audio_end_ms }),
        6 => any::<bool>().prop_map(|beside| Act::Respond { beside }),
        4 => Just(Act::Cancel),
        4 => (prop::option::of(0u16..40), any::<bool>()).prop_map(|(text_end, named)| Act::Resume { text_end, named }),
        2 => Just(Act::Mhm),
        1 => (0u16..20).prop_map(|chars| Act::MakeReplyAgain { chars }),
        1 => any::<bool>().prop_map(|interrupts| Act::Turn { interrupts }),
        1 => Just(Act::StopThinking),
        2 => (0u8..4).prop_map(Act::Update),
        2 => any::<bool>().prop_map(|respond| Act::Commit { respond }),
        1 => (0u8..3).prop_map(Act::Instructions),
        12 => prop::sample::select(vec!["Hello", " there.", " It is", "\n", "", " 你好。", " Yes! ", "No"]).prop_map(Act::Content),
        2 => Just(Act::Call),
        3 => Just(Act::Arguments),
        5 => prop::sample::select(vec![Finish::Stop, Finish::Stop, Finish::Length, Finish::Cancelled, Finish::Held, Finish::Held]).prop_map(Act::Done),
        1 => Just(Act::Failed),
        1 => (1u8..4, any::<bool>()).prop_map(|(conn, extensions)| Act::Attach { conn, extensions }),
        1 => (1u8..4).prop_map(Act::Detach),
        8 => (1u8..5).prop_map(Act::Answer),
        2 => (0u16..300).prop_map(Act::Wait),
        1 => id.prop_map(Act::Cover),
    ];
    (plain, 1u8..4, 0u8..4).prop_map(|(act, conn, other)| if other == 0 { Act::By(conn, Box::new(act)) } else { act })
}

fn perform(s: &mut Stage, act: &Act, conn: u64) {
    let name = |id: &u8| format!("i{id}");
    match act {
        Act::By(conn, act) => perform(s, act, u64::from(*conn)),
        Act::Create { id, before } => {
            let mut message = user_as(&name(id), "said by the user");
            if let Some(before) = before {
                message["previous_item_id"] = if *before == 0 { json!("root") } else { json!(name(before)) };
            }
            s.client(conn, message);
        }
        Act::CreateReplyText { id } => s.client(
            conn,
            json!({"type": "conversation.item.create", "item": {"id": name(id), "type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "what was heard"}]}}),
        ),
        Act::Delete(id) => s.client(conn, json!({"type": "conversation.item.delete", "item_id": name(id)})),
        Act::DeleteReply => {
            let id = reply(s);
            s.client(conn, json!({"type": "conversation.item.delete", "item_id": id}));
        }
        Act::Retrieve(id) => s.client(conn, json!({"type": "conversation.item.retrieve", "item_id": name(id)})),
        Act::Truncate { text_end, audio_end_ms } => {
            let id = reply(s);
            s.client(
                conn,
                json!({"type": "conversation.item.truncate", "item_id": id, "content_index": 0,
                    "audio_end_ms": audio_end_ms, "text_end": text_end}),
            );
        }
        Act::Respond { beside } => {
            let conversation = if *beside { "none" } else { "auto" };
            s.client(conn, json!({"type": "response.create", "response": {"conversation": conversation}}));
        }
        Act::Cancel => s.client(conn, json!({"type": "response.cancel"})),
        Act::Resume { text_end, named } => {
            let id = reply(s);
            let item_id = named.then_some(id);
            s.client(conn, json!({"type": "response.resume", "item_id": item_id, "text_end": text_end}));
        }
        Act::Mhm => {
            s.client(conn, user("Mhm."));
            s.client(conn, json!({"type": "response.create"}));
        }
        Act::MakeReplyAgain { chars } => {
            let id = reply(s);
            let entry = s.machine.entries().iter().find(|entry| entry.item.id == id);
            let text = entry.map(|entry| entry.item.text()).unwrap_or_default();
            let heard: String = text.chars().take(usize::from(*chars)).collect();
            s.client(conn, json!({"type": "conversation.item.delete", "item_id": id}));
            s.client(
                conn,
                json!({"type": "conversation.item.create", "item": {"id": id, "type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": heard}]}}),
            );
            s.client(conn, json!({"type": "response.create"}));
        }
        // As chat completions take one in a session.
        Act::Turn { interrupts } => {
            let body = ItemBody::message(Role::User, "and then");
            let items = vec![NewItem { id: None, body }];
            let turn = NewTurn { interrupts: *interrupts, items, ..NewTurn::default() };
            let (conn, input) = (ConnId(conn), Input::TakeTurn(Box::new(turn)));
            s.input(Happening::Said { conn, input_id: None, input });
        }
        Act::StopThinking => s.client(conn, json!({"type": "response.stop_thinking"})),
        Act::Update(words) => {
            let text = "what is the time".split(' ').take(usize::from(*words)).collect::<Vec<_>>().join(" ");
            s.client(conn, json!({"type": "input_text_buffer.update", "text": text}));
        }
        Act::Commit { respond } => {
            s.client(conn, json!({"type": "input_text_buffer.commit", "create_response": respond}));
        }
        Act::Instructions(number) => {
            s.client(conn, json!({"type": "session.update", "session": {"instructions": format!("{number}")}}));
        }
        Act::Content(text) => backend(s, conn, Delta::text(*text, 1)),
        Act::Call => backend(s, conn, Delta::CallStarted { name: "f".into(), call_id: None }),
        Act::Arguments => backend(s, conn, Delta::CallArguments { json: "{}".into(), tokens: 1 }),
        Act::Done(finish) => {
            backend(s, conn, Delta::Done { finish: *finish, usage: None, report: Some(TurnReport::default()) });
        }
        Act::Failed => {
            backend(s, conn, Delta::Failed(Failure::new(FailureCode::EngineFailed, "m")));
        }
        Act::Attach { conn, extensions } => {
            if !s.clients.contains_key(&ConnId(u64::from(*conn))) {
                s.attach(u64::from(*conn), *extensions, Replay::All);
            }
        }
        Act::Detach(conn) => s.detach(u64::from(*conn)),
        Act::Answer(count) => {
            for _ in 0..*count {
                s.answer_one();
            }
        }
        Act::Refuse => s.fail_store(),
        Act::Wait(ms) => {
            s.wait(u64::from(*ms));
            s.input(Happening::Tick);
        }
        Act::Cover(id) => {
            s.input(Happening::Context(Context { covered_through: Some(name(id)), ..Context::default() }))
        }
    }
}

fn reply(s: &Stage) -> String {
    let items = s.machine.entries();
    items.iter().rev().find(|entry| entry.item.id.starts_with("item_")).map_or("none".into(), |e| e.item.id.clone())
}

/// To the newest generation, or to one that is almost surely over.
fn backend(s: &mut Stage, conn: u64, piece: Delta) {
    let back = if conn == 3 { 2 } else { 1 };
    if let Some(index) = s.generations.len().checked_sub(back) {
        let generation = s.generations[index].generation;
        s.input(Happening::Delta { generation, delta: piece });
    }
}

const MOST_ITEMS: usize = 12;

/// All that was said, or hardly more than a prompt holds.
fn told_items() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), Just(2)]
}

fn random_stage(store_answers: bool, told_items: usize) -> Stage {
    let mut start = start();
    (start.limits.speculate_ms, start.limits.early_ms) = (Some(50), Some(80));
    (start.limits.session_items, start.limits.told_items) = (MOST_ITEMS, told_items);
    let mut s = Stage::new(start);
    s.store_answers = store_answers;
    s.attach(1, true, Replay::All);
    s.attach(2, false, Replay::All);
    s
}

/// Everything that is under way ends.
fn wind_down(s: &mut Stage) {
    s.store_answers = true;
    s.answer_store();
    // A reply that goes on is one more.
    for at in 0.. {
        let Some(generation) = s.generations.get(at).map(|known| known.generation) else { break };
        s.input(Happening::Delta {
            generation,
            delta: Delta::Done { finish: Finish::Stop, usage: None, report: None },
        });
    }
    s.answer_store();
    s.check_no_open_response();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    #[test]
    fn everybody_agrees_in_the_end(
        acts in prop::collection::vec(act(), 0..80),
        store_answers in any::<bool>(),
        told_items in told_items(),
    ) {
        let mut s = random_stage(store_answers, told_items);
        for act in &acts {
            perform(&mut s, act, 1);
        }
        wind_down(&mut s);
        if told_items < MOST_ITEMS {
            s.recover();
        }
        s.input(Happening::Context(Context::default()));
        s.check_agreement();
        prop_assert!(s.closed.is_empty());
        for conn in [1, 2, 3] {
            s.detach(conn);
        }
        prop_assert!(s.machine.is_idle());
    }

    #[test]
    fn a_store_that_fails_loses_no_answer(
        acts in prop::collection::vec(prop_oneof![6 => act().boxed(), 1 => Just(Act::Refuse).boxed()], 0..80),
        told_items in told_items(),
    ) {
        let mut s = random_stage(false, told_items);
        s.store.torn = true;
        for act in &acts {
            perform(&mut s, act, 1);
        }
        wind_down(&mut s);
        if told_items < MOST_ITEMS {
            s.recover();
        }
        s.check_store();
        for conn in [1, 2, 3] {
            s.detach(conn);
        }
        prop_assert!(s.machine.is_idle());
    }
}

/// The store takes neither the reply as it was heard nor that it goes on, but takes the one that is made again after that.
#[test]
fn a_reply_that_could_not_go_on_leaves_the_one_that_was_made_again_as_it_is() {
    use Act::*;
    let mut s = random_stage(false, usize::MAX);
    s.store.torn = true;
    let create = |id| Create { id, before: None };
    let beside = [Respond { beside: true }, Instructions(0), create(0), Answer(1), Mhm, Answer(1), Content("Hello")];
    let refused = [DeleteReply, Refuse, Respond { beside: false }, Refuse, Refuse, Failed, Refuse];
    let cut = Truncate { text_end: None, audio_end_ms: 0 };
    let asked = [Mhm, Content("Hello"), Answer(4), Refuse, create(0), create(1), cut, Answer(4), Refuse];
    let made_again = [Done(Finish::Length), MakeReplyAgain { chars: 0 }, Refuse, MakeReplyAgain { chars: 1 }];
    for act in beside.into_iter().chain(refused).chain(asked).chain(made_again) {
        perform(&mut s, &act, 1);
    }
    wind_down(&mut s);
    s.check_store();
}
