//! Random conversations: the stage checks every rule at each step, and at the end all must agree.

use super::inputs::*;
use super::stage::*;
use proptest::prelude::*;
use session::machine::*;
use session::*;

#[derive(Clone, Debug)]
enum Act {
    Create { id: u8, before: Option<u8> },
    CreateReplyText(u8),
    Delete(u8),
    DeleteReply,
    Read(u8),
    Truncate(Heard),
    Respond { beside: bool },
    Cancel,
    Resume { chars: Option<usize>, named: bool },
    Mhm,
    MakeReplyAgain { chars: usize },
    Turn { interrupts: bool },
    StopThinking,
    Hear { words: u8 },
    Commit { respond: bool },
    // A turn that ears heard: its item had its id before its words were there.
    Spoken { id: u8, words: u8, respond: bool },
    Instructions(u8),
    Content(&'static str),
    Call,
    Arguments,
    Done(Finish),
    Failed,
    Attach(u8),
    Detach(u8),
    Answer(u8),
    Refuse,
    Wait(u16),
    Cover(u8),
    By(u8, Box<Act>),
}

fn act() -> impl Strategy<Value = Act> {
    let id = 0u8..6;
    let heard = prop_oneof![(0usize..40).prop_map(Heard::Chars), (0u64..4000).prop_map(Heard::Ms)];
    let texts = prop::sample::select(vec!["Hello", " there.", " It is", "\n", "", " 你好。", " Yes! ", "No"]);
    let ends = vec![Finish::Stop, Finish::Stop, Finish::Length, Finish::Cancelled, Finish::Held, Finish::Held];
    let plain = prop_oneof![
        4 => (id.clone(), prop::option::of(id.clone())).prop_map(|(id, before)| Act::Create { id, before }),
        1 => id.clone().prop_map(Act::CreateReplyText),
        2 => id.clone().prop_map(Act::Delete),
        2 => Just(Act::DeleteReply),
        1 => id.clone().prop_map(Act::Read),
        3 => heard.prop_map(Act::Truncate),
        6 => any::<bool>().prop_map(|beside| Act::Respond { beside }),
        4 => Just(Act::Cancel),
        4 => (prop::option::of(0usize..40), any::<bool>()).prop_map(|(chars, named)| Act::Resume { chars, named }),
        2 => Just(Act::Mhm),
        1 => (0usize..20).prop_map(|chars| Act::MakeReplyAgain { chars }),
        1 => any::<bool>().prop_map(|interrupts| Act::Turn { interrupts }),
        1 => Just(Act::StopThinking),
        2 => (0u8..4).prop_map(|words| Act::Hear { words }),
        2 => any::<bool>().prop_map(|respond| Act::Commit { respond }),
        3 => (id.clone(), 1u8..5, any::<bool>()).prop_map(|(id, words, respond)| Act::Spoken { id, words, respond }),
        1 => (0u8..3).prop_map(Act::Instructions),
        12 => texts.prop_map(Act::Content),
        2 => Just(Act::Call),
        3 => Just(Act::Arguments),
        5 => prop::sample::select(ends).prop_map(Act::Done),
        1 => Just(Act::Failed),
        1 => (1u8..4).prop_map(Act::Attach),
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
            let place = match before {
                None => ItemPlace::End,
                Some(0) => ItemPlace::Head,
                Some(before) => ItemPlace::After(name(before)),
            };
            s.client(conn, user_at(&name(id), "said by the user", place));
        }
        Act::CreateReplyText(id) => s.client(conn, told(&name(id), "what was heard", ItemPlace::End)),
        Act::Delete(id) => s.client(conn, delete(&name(id))),
        Act::DeleteReply => {
            let id = newest(s);
            s.client(conn, delete(&id));
        }
        Act::Read(id) => s.client(conn, read(&name(id))),
        Act::Truncate(heard) => {
            let id = newest(s);
            s.client(conn, truncate_part(&id, 0, *heard));
        }
        Act::Respond { beside: false } => s.client(conn, respond()),
        Act::Respond { beside: true } => s.client(conn, respond_with(beside())),
        Act::Cancel => s.client(conn, cancel()),
        Act::Resume { chars, named } => {
            let item_id = named.then(|| newest(s));
            s.client(conn, Input::Resume(ResumeRequest { item_id, heard: chars.map(Heard::Chars) }));
        }
        Act::Mhm => {
            s.client(conn, user("Mhm."));
            s.client(conn, respond());
        }
        Act::MakeReplyAgain { chars } => {
            let id = newest(s);
            let entry = s.machine.entries().iter().find(|entry| entry.item.id == id);
            let text = entry.map(|entry| entry.item.text()).unwrap_or_default();
            let heard: String = text.chars().take(*chars).collect();
            s.client(conn, delete(&id));
            s.client(conn, told(&id, &heard, ItemPlace::End));
            s.client(conn, respond());
        }
        Act::Turn { interrupts } => {
            let items = vec![NewItem { id: None, body: ItemBody::message(Role::User, "and then") }];
            let turn = NewTurn { interrupts: *interrupts, items, ..NewTurn::default() };
            s.client(conn, Input::TakeTurn(Box::new(turn)));
        }
        Act::StopThinking => s.client(conn, stop_thinking()),
        Act::Hear { words } => {
            s.client(conn, hear(&first_words(*words)));
        }
        Act::Spoken { id, words, respond } => {
            let (text, item_id) = (Some(first_words(*words)), Some(format!("spoken_{id}")));
            s.client(conn, Input::HeardAll { text, item_id, speaker: None, respond: *respond });
        }
        Act::Commit { respond } => {
            s.client(conn, Input::HeardAll { text: None, item_id: None, speaker: None, respond: *respond });
        }
        Act::Instructions(number) => s.client(conn, instructions(&number.to_string())),
        Act::Content(text) => say(s, conn, Delta::text(*text, 1)),
        Act::Call => say(s, conn, Delta::CallStarted { name: "f".into(), call_id: None }),
        Act::Arguments => say(s, conn, Delta::CallArguments { json: "{}".into(), tokens: 1 }),
        Act::Done(finish) => {
            say(s, conn, Delta::Done { finish: *finish, usage: None, report: Some(TurnReport::default()) });
        }
        Act::Failed => say(s, conn, Delta::Failed(Failure::new(FailureCode::EngineFailed, "m"))),
        Act::Attach(conn) => {
            if !s.clients.contains_key(&ConnId(u64::from(*conn))) {
                s.attach(u64::from(*conn), Replay::All);
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
            s.feed(MachineInput::Tick);
        }
        Act::Cover(id) => {
            s.feed(MachineInput::Context(Context { covered_through: Some(name(id)), ..Context::default() }))
        }
    }
}

/// Returns the id of the newest item that the session named: mostly a reply, sometimes the user's words.
fn newest(s: &Stage) -> String {
    let items = s.machine.entries();
    items.iter().rev().find(|entry| entry.item.id.starts_with("item_")).map_or("none".into(), |e| e.item.id.clone())
}

fn say(s: &mut Stage, conn: u64, delta: Delta) {
    let back = if conn == 3 { 2 } else { 1 };
    if let Some(index) = s.generations.len().checked_sub(back) {
        let generation = s.generations[index].generation;
        s.feed(MachineInput::Delta { generation, delta });
    }
}

const MOST_ITEMS: usize = 12;

/// Draws the items that stay in memory when a summary tells them: all, or hardly more than a prompt holds.
fn told_items() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), Just(2)]
}

fn random_stage(store_answers: bool, told_items: usize) -> Stage {
    let mut start = start();
    (start.limits.speculate_ms, start.limits.early_ms) = (Some(50), Some(80));
    (start.limits.session_items, start.limits.told_items) = (MOST_ITEMS, told_items);
    let mut s = Stage::new(start);
    s.store_answers = store_answers;
    s.attach(1, Replay::All);
    s.attach(2, Replay::All);
    s
}

fn wind_down(s: &mut Stage) {
    s.store_answers = true;
    s.answer_store();
    // A reply that goes on is one more.
    for at in 0.. {
        let Some(generation) = s.generations.get(at).map(|known| known.generation) else { break };
        let delta = Delta::Done { finish: Finish::Stop, usage: None, report: None };
        s.feed(MachineInput::Delta { generation, delta });
    }
    s.answer_store();
    s.check_no_open_response();
}

fn check_that_all_agree(acts: &[Act], store_answers: bool, told_items: usize) {
    let mut s = random_stage(store_answers, told_items);
    acts.iter().for_each(|act| perform(&mut s, act, 1));
    wind_down(&mut s);
    if told_items < MOST_ITEMS {
        s.recover();
    }
    s.feed(MachineInput::Context(Context::default()));
    s.check_agreement();
    assert!(s.closed.is_empty());
    check_that_it_rests(s);
}

fn check_that_no_answer_is_lost(acts: &[Act], told_items: usize) {
    let mut s = random_stage(false, told_items);
    s.store.torn = true;
    acts.iter().for_each(|act| perform(&mut s, act, 1));
    wind_down(&mut s);
    if told_items < MOST_ITEMS {
        s.recover();
    }
    s.check_store();
    check_that_it_rests(s);
}

fn first_words(count: u8) -> String {
    "what is the time".split(' ').take(usize::from(count)).collect::<Vec<_>>().join(" ")
}

fn check_that_it_rests(mut s: Stage) {
    for conn in [1, 2, 3] {
        s.detach(conn);
    }
    assert!(s.machine.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    #[test]
    fn all_agree_in_the_end(
        acts in prop::collection::vec(act(), 0..80),
        store_answers in any::<bool>(),
        told_items in told_items(),
    ) {
        check_that_all_agree(&acts, store_answers, told_items);
    }

    #[test]
    fn a_store_that_fails_loses_no_answer(
        acts in prop::collection::vec(prop_oneof![6 => act().boxed(), 1 => Just(Act::Refuse).boxed()], 0..80),
        told_items in told_items(),
    ) {
        check_that_no_answer_is_lost(&acts, told_items);
    }
}

/// Conversations that a random run once found to fail, with an honest store.
#[test]
fn all_agree_where_they_once_did_not() {
    use Act::*;
    let create = |id| Create { id, before: None };
    let by = |conn, act| By(conn, Box::new(act));
    let cut = || Truncate(Heard::Chars(1));
    let resume = || Resume { chars: None, named: false };
    let content = || Content("Hello");
    let ask = || Respond { beside: false };
    let again = |chars| MakeReplyAgain { chars };
    let rows = [
        (true, vec![Detach(2), Attach(2)]),
        (false, vec![Attach(3), Detach(3), Attach(3)]),
        (false, vec![ask(), Instructions(0), create(0), Attach(3), by(3, Hear { words: 0 })]),
        (false, vec![Detach(2), ask(), content(), again(0), Detach(1)]),
        (
            true,
            vec![
                Mhm,
                content(),
                cut(),
                resume(),
                Done(Finish::Held),
                Respond { beside: true },
                Detach(1),
                by(3, content()),
                Attach(1),
            ],
        ),
        (false, vec![Mhm, Detach(2), Call, content(), DeleteReply, again(0), Detach(1)]),
        (false, vec![Mhm, again(0), content(), Done(Finish::Stop), Detach(1), Attach(1), Detach(2), cut()]),
        // The id of an item that has left memory is made again, and the store refuses it behind the next item.
        (
            false,
            vec![
                CreateReplyText(2),
                Mhm,
                CreateReplyText(0),
                CreateReplyText(0),
                Cover(0),
                create(2),
                CreateReplyText(3),
            ],
        ),
        // A client makes the user's 'Mhm.' again as the assistant's, and it goes on as a reply would.
        (false, vec![Mhm, Done(Finish::Stop), again(4), Detach(2), content(), DeleteReply, again(1), Detach(1)]),
    ];
    for (store_answers, acts) in rows {
        for told_items in [usize::MAX, 2] {
            check_that_all_agree(&acts, store_answers, told_items);
        }
    }
}

/// The same with a store that refuses.
#[test]
fn no_answer_is_lost_where_one_once_was() {
    use Act::*;
    let create = |id| Create { id, before: None };
    let ask = || Respond { beside: false };
    let again = |chars| MakeReplyAgain { chars };
    let rows = [
        vec![
            Hear { words: 1 },
            Commit { respond: false },
            Answer(1),
            create(0),
            again(0),
            Cancel,
            again(0),
            Refuse,
            Refuse,
        ],
        vec![ask(), Answer(2), Call, again(0), Refuse, Answer(1), Refuse, create(0)],
        // No client heard a word of the reply whose deletion is refused.
        vec![ask(), Content("Hello"), DeleteReply, Detach(1), Detach(2), Refuse, Answer(1), Answer(2), Refuse],
        // The store takes neither the reply as it was heard nor that it goes on, but the one that is made again behind.
        vec![
            Respond { beside: true },
            Instructions(0),
            create(0),
            Answer(1),
            Mhm,
            Answer(1),
            Content("Hello"),
            DeleteReply,
            Refuse,
            ask(),
            Refuse,
            Refuse,
            Failed,
            Refuse,
            Mhm,
            Content("Hello"),
            Answer(4),
            Refuse,
            create(0),
            create(1),
            Truncate(Heard::Ms(0)),
            Answer(4),
            Refuse,
            Done(Finish::Length),
            again(0),
            Refuse,
            again(1),
        ],
    ];
    for acts in rows {
        for told_items in [usize::MAX, 2] {
            check_that_no_answer_is_lost(&acts, told_items);
        }
    }
}
