//! A client that leaves in the middle of a reply and comes back loses no word and no sentence of it.

use super::inputs::*;
use super::stage::*;
use session::machine::*;

const STORY: &str = "It is noon here. The sun is out. And";

/// Returns a stage of two clients, and the reply of which the second was told `STORY` before it left.
fn left_in_the_middle() -> (Stage, String) {
    let mut s = stage();
    s.attach(2, Replay::All);
    s.client(1, user_as("a", "What is it like?"));
    s.client(1, respond());
    s.content(STORY);
    s.heard(2);
    s.detach(2);
    let item_id = s.last_reply();
    (s, item_id)
}

fn come_back(s: &mut Stage, after: &str) -> Vec<String> {
    s.attach(2, Replay::After(after.to_owned()));
    s.heard(2)
}

#[test]
fn a_reply_that_ended_meanwhile_is_told_whole() {
    let (mut s, item_id) = left_in_the_middle();
    s.content(" I am glad.");
    s.done();
    s.client(1, user_as("b", "Thanks"));
    let told = format!("known I1 assistant \"{STORY} I am glad.\" after a");
    assert_eq!(come_back(&mut s, &item_id), ["opened", &told, "known b user \"Thanks\" after I1"]);
    // The service tells the client that reply once.
    s.detach(2);
    assert_eq!(come_back(&mut s, &item_id), ["opened", "known b user \"Thanks\" after I1"]);
    // The client has all of what it names then.
    s.detach(2);
    assert_eq!(come_back(&mut s, "b"), ["opened"]);
}

#[test]
fn a_reply_that_was_cut_meanwhile_is_told_as_it_was_cut() {
    let (mut s, item_id) = left_in_the_middle();
    s.client(1, truncate(&item_id, 9));
    assert_eq!(come_back(&mut s, &item_id), ["opened", "known I1 assistant \"It is noo\" incomplete after a"]);
}

#[test]
fn a_reply_whose_end_waited_for_the_store_is_told_again() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, respond());
    s.content("Hello.");
    s.store_answers = false;
    s.done();
    assert!(s.heard(1).iter().all(|line| !line.starts_with("ended")));
    let item_id = s.last_reply();
    s.detach(1);
    s.answer_store();
    assert_eq!(come_back(&mut s, &item_id), ["opened", "known I1 assistant \"Hello.\" after a"]);
}

#[test]
fn a_reply_that_a_client_heard_to_its_end_is_not_told_again() {
    let mut s = stage();
    s.ask("Hi");
    s.content("Hello.");
    s.done();
    let item_id = s.last_reply();
    s.detach(1);
    assert_eq!(come_back(&mut s, &item_id), ["opened"]);
}

#[test]
fn a_reply_in_progress_begins_again_with_its_sentences() {
    let (mut s, item_id) = left_in_the_middle();
    assert_eq!(
        come_back(&mut s, &item_id),
        [
            "opened",
            "started R1 in_progress",
            "begun I1 assistant \"\" in_progress after a",
            &format!("text \"{STORY}\""),
            "sentence 0 \"It is noon here. \" 0..17",
            "sentence 1 \"The sun is out. \" 17..33",
        ]
    );
    s.content(" I am glad.");
    s.done();
    let sentences = s.heard(2).into_iter().filter(|line| line.starts_with("sentence"));
    assert_eq!(sentences.collect::<Vec<_>>(), ["sentence 2 \"And I am glad.\" 33..47"]);
    s.check_agreement();
}

#[test]
fn sentences_of_an_earlier_message_of_the_response_are_not_told_again() {
    let (mut s, item_id) = left_in_the_middle();
    s.model(session::Delta::CallStarted { name: "light".into(), call_id: None });
    s.content("So it is. Yes");
    let told = come_back(&mut s, &item_id);
    assert!(told[1].starts_with("known I1 assistant"), "{told:#?}");
    assert!(told[2].starts_with("known I2 call"), "{told:#?}");
    assert_eq!(told[5..], ["text \"So it is. Yes\"", "sentence 0 \"So it is. \" 0..10"]);
}

#[test]
fn clients_that_come_back_to_a_long_conversation_wait_for_the_store_like_all_others() {
    let mut start = start();
    let many = 2 * start.limits.outbox_steps;
    start.limits.session_items = 2 * many;
    start.items = (0..many).map(|at| session::Item::message(format!("i{at}"), session::Role::User, "Hi")).collect();
    let mut s = stage_from(start);
    s.store_answers = false;
    s.client(1, user_as("a", "What is it like?"));
    (2..5).for_each(|conn| s.attach(conn, Replay::All));
    s.answer_store();
    assert!(s.closed.is_empty());
    // The session, and all items with the new one.
    (2..5).for_each(|conn| assert_eq!(s.heard(conn).len(), many + 2));
    s.check_agreement();
}

fn warmed(s: &Stage) -> Vec<usize> {
    let is_warm = |asked: &&Generate| asked.purpose == session::GenerationPurpose::WarmHistory;
    s.generations.iter().filter(is_warm).map(|asked| asked.items.len()).collect()
}

fn answered() -> Stage {
    let mut start = start();
    start.limits.speculate_ms = Some(100);
    let mut s = stage_from(start);
    s.ask("Hi");
    s.content("Hello.");
    s
}

#[test]
fn a_client_that_leaves_with_its_reply_finds_the_next_prompt_warm() {
    for leaves_after_ms in [0, 500] {
        let mut s = answered();
        s.done();
        s.wait(leaves_after_ms);
        s.detach(1);
        s.wait(1000);
        assert_eq!((warmed(&s), s.stopped.len()), (vec![2], 0), "{leaves_after_ms}");
        // Without a client nothing else is read ahead.
        s.feed(MachineInput::Context(session::Context { notes: vec!["It is noon.".into()], ..Default::default() }));
        s.wait(1000);
        assert_eq!(warmed(&s), [2]);
    }
}

#[test]
fn a_reply_that_its_last_client_broke_off_warms_nothing() {
    let mut s = answered();
    s.detach(1);
    s.done();
    s.wait(1000);
    assert_eq!(warmed(&s), []);
}
