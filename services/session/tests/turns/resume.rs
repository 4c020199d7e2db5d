//! A cough is no interruption: a reply that was stopped goes on.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

const STORY: &str = "Once upon a time. There was a fox";

fn held() -> Delta {
    Delta::Done { finish: Finish::Held, usage: None, report: Some(TurnReport::default()) }
}

/// Returns a stage whose reply was stopped behind `heard` characters; the model has kept it.
fn stopped(heard: usize) -> Stage {
    let mut s = stage();
    s.ask("Tell me a story");
    s.content(STORY);
    s.client(1, cancel());
    s.model(held());
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, heard));
    s.heard(1);
    s
}

#[test]
fn a_stopped_reply_goes_on_where_it_was_heard() {
    let mut s = stopped(9);
    assert_eq!(s.history()[1], "I2 assistant \"Once upon\" incomplete");
    s.client(1, resume());
    s.content(" who slept.");
    s.done();
    assert_eq!(
        s.heard(1),
        [
            "started R2 in_progress",
            "begun I2 assistant \"Once upon\" in_progress",
            "text \" a time. There was a fox\"",
            "sentence 0 \" a time. \" 9..18",
            "text \" who slept.\"",
            "sentence 1 \"There was a fox who slept.\" 18..44",
            "whole text \"Once upon a time. There was a fox who slept.\"",
            "ended I2 assistant \"Once upon a time. There was a fox who slept.\" after I1",
            "done R2 completed [I2 assistant \"Once upon a time. There was a fox who slept.\"]",
        ]
    );
    assert_eq!(s.generations.len(), 2, "the model is asked nothing new");
    assert_eq!(s.stored(), s.history());
    s.check_agreement();
    s.client(1, resume());
    assert_eq!(s.heard(1), ["refused NothingToResume"]);
}

#[test]
fn the_client_may_say_with_the_resume_what_was_heard() {
    let rows = [
        (Heard::Chars(4), "Once", " upon a time. There was a fox"),
        (Heard::Chars(17), "Once upon a time.", " There was a fox"),
        (Heard::Ms(900), "Once upon a", " time. There was a fox"),
    ];
    for (by, heard, told) in rows {
        let mut s = stopped(9);
        s.client(1, resume_from(by));
        assert_eq!(s.heard(1)[1], format!("begun I2 assistant {heard:?} in_progress"));
        assert_eq!(s.resumed[0].made, [Delta::text(told, 0)]);
        s.content("!");
        s.done();
        assert_eq!(s.history()[1], format!("I2 assistant \"{STORY}!\""));
        s.check_agreement();
    }
}

#[test]
fn what_the_model_said_after_the_stop_is_not_lost() {
    for is_slow in [false, true] {
        let mut s = stage();
        s.ask("Tell me a story");
        s.content("Once");
        s.client(1, cancel());
        s.heard(1);
        // The client was told nothing of this.
        s.content(" upon");
        if is_slow {
            // It resumes before the model has even stopped.
            s.client(1, resume());
            assert_eq!(s.heard(1).len(), 2);
        }
        s.content(" a");
        s.model(held());
        if !is_slow {
            s.client(1, resume());
        }
        assert_eq!(s.resumed[0].made.len(), 2);
        s.content(" time.");
        s.done();
        let texts: Vec<_> = s.heard(1).into_iter().filter(|line| line.starts_with("text")).collect();
        assert_eq!(texts, ["text \" upon\"", "text \" a\"", "text \" time.\""]);
        assert_eq!(s.history()[1], "I2 assistant \"Once upon a time.\"");
        let usage = s.last_response(1).usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (0, 3), "what was told is not counted again");
        s.check_agreement();
    }
}

#[test]
fn a_reply_that_a_summary_covers_meanwhile_says_no_word_twice() {
    let mut s = stage();
    s.ask("Tell me a story");
    s.content("Once upon");
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, 4));
    // It resumes before the model has stopped, and a summary covers it then.
    s.client(1, resume());
    s.client(1, user_as("a", "Hm"));
    s.feed(MachineInput::Context(Context { covered_through: Some("a".into()), ..Context::default() }));
    s.model(held());
    s.content(" a time.");
    s.done();
    assert!(s.heard(1).last().unwrap().ends_with("[I2 assistant \"Once upon a time.\"]"));
    assert_eq!(s.store.items[1].text(), "Once upon a time.");
}

#[test]
fn a_reply_that_was_complete_goes_on_where_it_was_cut() {
    let mut s = stage();
    s.ask("Is it late?");
    s.content("It is noon. Good day.");
    s.done();
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, 5));
    s.heard(1);
    s.client(1, resume());
    let heard = s.heard(1);
    assert_eq!(heard[2], "text \" noon. Good day.\"");
    assert_eq!(heard.last().unwrap(), "done R2 completed [I2 assistant \"It is noon. Good day.\"]");
    assert_eq!(s.history()[1], "I2 assistant \"It is noon. Good day.\"");
    s.check_agreement();
    // All of it was heard: there is nothing to go on with.
    s.client(1, truncate(&item_id, 100));
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["refused NothingToResume"]);
}

#[test]
fn an_item_that_was_deleted_and_made_again_goes_on_with_the_next_response() {
    for (text, goes_on) in [("Once upon", true), (STORY, true), ("Something else", false)] {
        let mut s = stopped(9);
        let item_id = s.last_reply();
        s.client(1, delete(&item_id));
        s.client(1, resume());
        assert_eq!(s.heard(1), ["deleted I2", "refused NothingToResume"]);
        s.client(1, told(&item_id, text, ItemPlace::End));
        assert!(s.resumed.is_empty(), "the client only told what was heard");
        s.client(1, respond());
        assert_eq!(s.resumed.len(), usize::from(goes_on), "{text}");
        s.content(".");
        s.done();
        let said =
            if goes_on { format!("I2 assistant \"{STORY}.\"") } else { "I2 assistant \"Something else\"".into() };
        assert_eq!(s.history()[1], said);
        s.check_agreement();
    }
}

#[test]
fn mhm_is_no_turn_of_the_user() {
    for by_commit in [false, true] {
        let mut s = stopped(9);
        if by_commit {
            s.client(1, commit_text("Uh-huh."));
        } else {
            s.client(1, user("Mhm."));
            s.client(1, respond());
        }
        assert_eq!(s.resumed.len(), 1);
        s.content(".");
        s.done();
        // What was said is kept.
        assert_eq!(s.history().len(), 3);
        assert_eq!(s.history()[1], format!("I2 assistant \"{STORY}.\""));
        s.check_agreement();
    }
}

#[test]
fn a_real_interruption_ends_it() {
    let interruptions: [fn(&mut Stage); 6] = [
        |s| s.client(1, user("Stop that")),
        |s| {
            s.client(1, user("Mhm."));
            s.client(1, user("no"));
        },
        |s| s.client(1, note_text("Stop")),
        |s| {
            let first = s.machine.entries()[0].item.id.clone();
            s.client(1, delete(&first));
        },
        |s| {
            s.client(1, respond());
            s.content("Well.");
            s.done();
        },
        |s| s.now += 10_001,
    ];
    for (number, interrupt) in interruptions.into_iter().enumerate() {
        let mut s = stopped(9);
        interrupt(&mut s);
        s.heard(1);
        s.client(1, resume());
        assert_eq!(s.heard(1), ["refused NothingToResume"], "{number}");
        assert!(s.resumed.is_empty());
        s.check_agreement();
    }
}

#[test]
fn nothing_goes_on_that_the_model_has_not_kept() {
    let lost = [
        Delta::Done { finish: Finish::Cancelled, usage: None, report: None },
        Delta::Failed(Failure::new(FailureCode::EngineFailed, "m")),
    ];
    for last in lost {
        for is_slow in [false, true] {
            let mut s = stage();
            s.ask("Tell me a story");
            s.content("Once");
            s.client(1, cancel());
            s.heard(1);
            if is_slow {
                s.client(1, resume());
                s.heard(1);
            }
            s.model(last.clone());
            if is_slow {
                assert_eq!(s.heard(1).last().unwrap(), "done R2 failed [I2 assistant \"Once\" incomplete]");
            } else {
                s.client(1, resume());
                assert_eq!(s.heard(1), ["refused NothingToResume"]);
            }
            assert_eq!(s.history()[1], "I2 assistant \"Once\" incomplete");
            s.check_agreement();
            s.check_no_open_response();
        }
    }
}

#[test]
fn it_can_be_stopped_and_go_on_again_and_again() {
    let mut s = stopped(9);
    let item_id = s.last_reply();
    for (heard, word) in [(16, "."), (4, "."), (0, "."), (30, "!")] {
        s.client(1, resume());
        s.content(word);
        s.client(1, cancel());
        s.model(held());
        s.client(1, truncate(&item_id, heard));
        s.check_agreement();
    }
    s.client(1, resume());
    s.done();
    assert_eq!(s.history()[1], format!("I2 assistant \"{STORY}...!\""));
    assert_eq!(s.stored(), s.history());
    s.check_agreement();
}

#[test]
fn a_reply_that_was_stopped_before_its_first_word_goes_on() {
    let mut s = stage();
    s.ask("Tell me a story");
    s.client(1, cancel());
    s.model(held());
    assert_eq!(s.heard(1)[0], "done R1 cancelled");
    s.client(1, resume());
    s.content("Once.");
    s.done();
    assert_eq!(s.heard(1).last().unwrap(), "done R2 completed [I2 assistant \"Once.\"]");
    s.check_agreement();
}

#[test]
fn half_a_call_does_not_go_on() {
    let mut s = stage();
    s.ask("Light");
    s.model(Delta::CallStarted { name: "light".into(), call_id: None });
    s.client(1, cancel());
    s.model(held());
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["refused NothingToResume"]);
}

#[test]
fn while_a_response_runs_nothing_else_goes_on() {
    let mut s = stopped(9);
    s.client(1, resume());
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["refused ResponseActive"]);
    s.done();
    s.check_agreement();
}

#[test]
fn the_store_hears_that_it_goes_on_and_what_it_refuses_did_not_happen() {
    let mut s = stopped(9);
    s.store_answers = false;
    s.client(1, resume());
    // The first words wait for no disk.
    assert_eq!(s.heard(1)[2], "text \" a time. There was a fox\"");
    s.answer_one();
    s.fail_store();
    s.answer_store();
    assert_eq!(s.heard(1).last().unwrap(), "done R2 failed");
    s.store_answers = true;
    s.answer_store();
    assert_eq!(s.history()[1], "I2 assistant \"Once upon\" incomplete");
    assert_eq!(s.stored(), s.history());
}

/// The store refuses that the reply goes on, and what the client did to its item meanwhile is done to what stood there.
#[test]
fn what_is_done_to_a_reply_that_did_not_go_on_is_done_to_what_was_said() {
    let item = |text: &str| vec![format!("I2 assistant {text:?} incomplete")];
    type Act = fn(&mut Stage, &str);
    let acts: [(Act, Vec<String>, &str); 4] = [
        // Less than was heard before, and more than that.
        (|s, id| s.client(1, truncate(id, 4)), item("Once"), "truncated I2 at 4 "),
        (|s, id| s.client(1, truncate(id, 16)), item("Once upon"), "truncated I2 at 9 "),
        (|s, id| s.client(1, delete(id)), vec![], "deleted I2"),
        (
            |s, id| {
                s.client(1, truncate(id, 12));
                s.client(1, truncate(id, 6));
            },
            item("Once u"),
            "truncated I2 at 6 ",
        ),
    ];
    for (act, said, told) in acts {
        let mut s = stopped(9);
        s.store_answers = false;
        s.client(1, resume());
        let item_id = s.last_reply();
        act(&mut s, &item_id);
        // The response was taken.
        s.answer_one();
        s.fail_store();
        s.answer_store();
        assert_eq!(s.history()[1..], said);
        assert_eq!(s.stored(), s.history());
        let heard = s.heard(1);
        assert!(heard.iter().any(|line| line.starts_with(told)), "{told} in {heard:#?}");
        s.check_no_open_response();
        s.check_store();
    }
}

/// It goes on a second time before the store has refused the first: only the first did not happen.
#[test]
fn a_reply_that_goes_on_again_is_not_undone_with_what_was_refused_before() {
    let mut s = stopped(9);
    s.store_answers = false;
    s.client(1, resume());
    s.client(1, cancel());
    s.model(held());
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, 16));
    s.client(1, resume());
    s.answer_one();
    s.fail_store();
    s.answer_store();
    s.content(".");
    s.done();
    s.answer_store();
    assert_eq!(s.history()[1], format!("I2 assistant \"{STORY}.\""));
    s.check_store();
    s.check_no_open_response();
}

#[test]
fn a_client_that_comes_late_hears_all_of_it() {
    let mut s = stopped(9);
    s.client(1, resume());
    s.attach(2, Replay::All);
    let heard = s.heard(2);
    assert!(heard.contains(&format!("text {STORY:?}")), "{heard:#?}");
    s.content(".");
    s.done();
    s.check_agreement();
}
