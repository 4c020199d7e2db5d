//! A cough is no interruption: a reply that was stopped goes on.

use super::stage::*;
use serde_json::{Value, json};
use session::machine::*;
use session::*;

const STORY: &str = "Once upon a time. There was a fox";

fn held() -> Delta {
    Delta::Done { finish: Finish::Held, usage: None, report: Some(TurnReport::default()) }
}

fn cancel() -> Value {
    json!({"type": "response.cancel"})
}

fn resume() -> Value {
    json!({"type": "response.resume"})
}

fn truncate(item_id: &str, text_end: usize) -> Value {
    json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": text_end})
}

/// A reply that was stopped behind so many characters, and that the model has kept.
fn stopped(heard: usize) -> Stage {
    let mut s = extended_stage();
    s.ask("Tell me a story");
    s.content(STORY);
    s.client(1, cancel());
    s.backend(held());
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
            "response.created R2 in_progress",
            "response.output_item.added I2 assistant \"Once upon\" in_progress",
            "response.content_part.added \"\"",
            "response.output_text.delta \" a time. There was a fox\"",
            "response.sentence.done 0 \" a time. \" 9..18",
            "response.output_text.delta \" who slept.\"",
            "response.sentence.done 1 \"There was a fox who slept.\" 18..44",
            "response.output_text.done \"Once upon a time. There was a fox who slept.\"",
            "response.content_part.done \"Once upon a time. There was a fox who slept.\"",
            "response.output_item.done I2 assistant \"Once upon a time. There was a fox who slept.\"",
            "item.done I2 assistant \"Once upon a time. There was a fox who slept.\" after I1",
            "response.done R2 completed [I2 assistant \"Once upon a time. There was a fox who slept.\"]",
        ]
    );
    assert_eq!(s.generations.len(), 2, "the model is asked nothing new");
    assert_eq!(s.stored(), s.history());
    s.check_agreement();
    s.client(1, resume());
    assert_eq!(s.heard(1), ["error response_resume_not_possible"]);
}

#[test]
fn the_client_may_say_with_the_resume_what_was_heard() {
    let rows = [
        (json!({"type": "response.resume", "text_end": 4}), "Once", " upon a time. There was a fox"),
        (json!({"type": "response.resume", "text_end": 17}), "Once upon a time.", " There was a fox"),
        (json!({"type": "response.resume", "audio_end_ms": 900}), "Once upon a", " time. There was a fox"),
    ];
    for (event, heard, told) in rows {
        let mut s = stopped(9);
        s.client(1, event);
        assert_eq!(s.heard(1)[1], format!("response.output_item.added I2 assistant {heard:?} in_progress"));
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
        let mut s = extended_stage();
        s.ask("Tell me a story");
        s.content("Once");
        s.client(1, cancel());
        s.heard(1);
        // The client was told nothing of this.
        s.content(" upon");
        if is_slow {
            // It resumes before the model has even stopped.
            s.client(1, resume());
            assert_eq!(s.heard(1).len(), 3);
        }
        s.content(" a");
        s.backend(held());
        if !is_slow {
            s.client(1, resume());
        }
        assert_eq!(s.resumed[0].made.len(), 2);
        s.content(" time.");
        s.done();
        let lines = s.heard(1);
        let deltas: Vec<_> = lines.iter().filter(|line| line.starts_with("response.output_text.delta")).collect();
        assert_eq!(
            deltas,
            ["\" upon\"", "\" a\"", "\" time.\""].map(|delta| format!("response.output_text.delta {delta}")).each_ref()
        );
        assert_eq!(s.history()[1], "I2 assistant \"Once upon a time.\"");
        let usage = &s.clients[&ConnId(1)].frames.iter().rfind(|frame| frame["type"] == "response.done").unwrap()["response"]
            ["usage"];
        assert_eq!(
            (&usage["input_tokens"], &usage["output_tokens"]),
            (&json!(0), &json!(3)),
            "what was told is not counted again"
        );
        s.check_agreement();
    }
}

#[test]
fn a_reply_that_was_complete_goes_on_where_it_was_cut() {
    let mut s = extended_stage();
    s.ask("Is it late?");
    s.content("It is noon. Good day.");
    s.done();
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, 5));
    s.heard(1);
    s.client(1, resume());
    let heard = s.heard(1);
    assert_eq!(heard[3], "response.output_text.delta \" noon. Good day.\"");
    assert_eq!(heard.last().unwrap(), "response.done R2 completed [I2 assistant \"It is noon. Good day.\"]");
    assert_eq!(s.history()[1], "I2 assistant \"It is noon. Good day.\"");
    s.check_agreement();
    // All of it was heard: there is nothing to go on with.
    s.client(1, truncate(&item_id, 100));
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["error response_resume_not_possible"]);
}

#[test]
fn an_item_that_was_deleted_and_made_again_goes_on_with_the_next_response() {
    for (text, goes_on) in [("Once upon", true), (STORY, true), ("Something else", false)] {
        let mut s = stopped(9);
        let item_id = s.last_reply();
        s.client(1, json!({"type": "conversation.item.delete", "item_id": item_id}));
        s.client(1, resume());
        assert_eq!(s.heard(1), ["item.deleted I2", "error response_resume_not_possible"]);
        s.client(
            1,
            json!({"type": "conversation.item.create", "item": {"id": item_id, "type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]}}),
        );
        assert!(s.resumed.is_empty(), "the client only told what was heard");
        s.client(1, json!({"type": "response.create"}));
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
            s.client(1, json!({"type": "input_text_buffer.commit", "text": "Uh-huh."}));
        } else {
            s.client(1, user("Mhm."));
            s.client(1, json!({"type": "response.create"}));
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
        |s| s.client(1, json!({"type": "input_text_buffer.commit", "text": "Stop", "create_response": false})),
        |s| {
            let first = s.machine.entries()[0].item.id.clone();
            s.client(1, json!({"type": "conversation.item.delete", "item_id": first}));
        },
        |s| {
            s.client(1, json!({"type": "response.create"}));
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
        assert_eq!(s.heard(1), ["error response_resume_not_possible"], "{number}");
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
            let mut s = extended_stage();
            s.ask("Tell me a story");
            s.content("Once");
            s.client(1, cancel());
            s.heard(1);
            if is_slow {
                s.client(1, resume());
                s.heard(1);
            }
            s.backend(last.clone());
            if is_slow {
                assert_eq!(s.heard(1).last().unwrap(), "response.done R2 failed [I2 assistant \"Once\" incomplete]");
            } else {
                s.client(1, resume());
                assert_eq!(s.heard(1), ["error response_resume_not_possible"]);
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
        s.backend(held());
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
    let mut s = extended_stage();
    s.ask("Tell me a story");
    s.client(1, cancel());
    s.backend(held());
    assert_eq!(s.heard(1)[0], "response.done R1 cancelled");
    s.client(1, resume());
    s.content("Once.");
    s.done();
    assert_eq!(s.heard(1).last().unwrap(), "response.done R2 completed [I2 assistant \"Once.\"]");
    s.check_agreement();
}

#[test]
fn half_a_call_does_not_go_on() {
    let mut s = extended_stage();
    s.ask("Light");
    s.backend(Delta::CallStarted { name: "light".into(), call_id: None });
    s.client(1, cancel());
    s.backend(held());
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["error response_resume_not_possible"]);
}

#[test]
fn while_a_response_runs_nothing_else_goes_on() {
    let mut s = stopped(9);
    s.client(1, resume());
    s.heard(1);
    s.client(1, resume());
    assert_eq!(s.heard(1), ["error conversation_already_has_active_response"]);
    s.done();
    s.check_agreement();
}

#[test]
fn the_store_hears_that_it_goes_on_and_what_it_refuses_did_not_happen() {
    let mut s = stopped(9);
    s.store_answers = false;
    s.client(1, resume());
    // The first words wait for no disk.
    assert_eq!(s.heard(1)[3], "response.output_text.delta \" a time. There was a fox\"");
    s.answer_one();
    s.fail_store();
    s.answer_store();
    assert_eq!(s.heard(1).last().unwrap(), "response.done R2 failed");
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
        (|s, id| s.client(1, truncate(id, 4)), item("Once"), "item.truncated I2 at 4 "),
        (|s, id| s.client(1, truncate(id, 16)), item("Once upon"), "item.truncated I2 at 9 "),
        (|s, id| s.client(1, json!({"type": "conversation.item.delete", "item_id": id})), vec![], "item.deleted I2"),
        (
            |s, id| {
                s.client(1, truncate(id, 12));
                s.client(1, truncate(id, 6));
            },
            item("Once u"),
            "item.truncated I2 at 6 ",
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
    s.backend(held());
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
    s.attach(2, false, Replay::All);
    let heard = s.heard(2);
    assert!(heard.contains(&format!("response.output_text.delta {STORY:?}")), "{heard:#?}");
    s.content(".");
    s.done();
    s.check_agreement();
}
