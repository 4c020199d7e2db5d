//! Speech as it comes and goes: transcripts, what is warmed meanwhile, sentences, thinking, reports, notices.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

fn speculating() -> Stage {
    let mut start = start();
    start.limits.speculate_ms = Some(100);
    stage_from(start)
}

fn purposes(s: &Stage) -> Vec<(GenerationPurpose, &str)> {
    s.generations.iter().map(|known| (known.purpose, known.partial.as_deref().unwrap_or_default())).collect()
}

#[test]
fn log_probabilities_come_with_their_text() {
    let mut s = stage();
    s.client(1, respond());
    let sure = vec![TokenLogprob { bytes: b"Yes.".to_vec(), logprob: -0.5, top: Vec::new() }];
    s.model(Delta::Text { text: "Yes.".into(), tokens: 1, sentences: Vec::new(), logprobs: sure.clone() });
    let told = s.clients[&ConnId(1)].events.iter().find_map(|event| match event {
        Event::TextDelta { text, logprobs, .. } => Some((text.as_str(), logprobs)),
        _ => None,
    });
    assert_eq!(told, Some(("Yes.", &sure)));
}

#[test]
fn a_commit_is_the_users_turn() {
    let mut s = stage();
    s.client(1, hear("what is the"));
    s.client(1, hear("what is the time"));
    s.client(1, commit());
    assert_eq!(s.heard(1), ["added I1 user \"what is the time\" after the head", "started R1 in_progress"]);
    s.content("Noon.");
    s.done();
    s.heard(1);
    // The final transcript is another than the last partial one, and the client decides when to answer.
    s.client(1, hear("thanks"));
    let named = |text: &str, respond| Input::HeardAll {
        text: Some(text.to_owned()),
        item_id: Some("mine".into()),
        speaker: None,
        respond,
    };
    s.client(1, named("Thank you.", false));
    assert_eq!(s.heard(1), ["added mine user \"Thank you.\" after I2"]);
    assert_eq!(s.generations.len(), 1);
    s.client_as(1, "e9", commit());
    assert_eq!(s.heard(1), ["refused NothingSaid to e9"]);
    s.client(1, hear("never mind"));
    s.client(1, hear_nothing());
    s.client(1, commit());
    assert_eq!(s.heard(1), ["refused NothingSaid"]);
    s.client(1, named("x", true));
    assert_eq!(s.heard(1), ["refused ItemExists"]);
    s.check_agreement();
}

#[test]
fn a_commit_while_a_response_runs_keeps_the_words() {
    let mut s = stage();
    s.ask("Hi");
    s.client(1, commit_text("Wait"));
    assert_eq!(s.heard(1)[1], "refused ResponseActive");
    assert_eq!(s.history().len(), 2);
}

#[test]
fn the_prompt_is_warmed_while_the_user_speaks() {
    let mut s = speculating();
    // On connecting, the instructions: after a moment, because most clients change them at once.
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (0, Some(1100)));
    s.now = 1050;
    s.client(1, instructions("Be kind."));
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (0, Some(1100)));
    s.now = 1100;
    s.feed(MachineInput::Tick);
    assert_eq!(purposes(&s), [(GenerationPurpose::WarmHistory, "")]);
    assert_eq!(s.generations[0].priority(), Priority::Speculate);
    assert_eq!(s.generations[0].max_tokens, Some(0));
    assert_eq!(s.generations[0].config.instructions, "Be kind.");
    s.model(Delta::Done { finish: Finish::Stop, usage: None, report: None });
    s.client(1, hear("what is"));
    assert_eq!(s.machine.next_deadline(), Some(1200));
    s.now = 1150;
    s.client(1, hear("what is the"));
    assert_eq!(s.generations.len(), 1);
    s.now = 1200;
    s.feed(MachineInput::Tick);
    assert_eq!(purposes(&s)[1], (GenerationPurpose::WarmPartial, "what is the"));
    assert_eq!(s.machine.next_deadline(), None);
    // The same words again are no news; others take the place of the ones before.
    s.now = 1300;
    s.client(1, hear("what is the"));
    assert_eq!(s.generations.len(), 2);
    s.client(1, hear("what is the time"));
    assert_eq!(purposes(&s)[2], (GenerationPurpose::WarmPartial, "what is the time"));
    assert_eq!(s.stopped, [s.generations[1].generation]);
    // The user is done: the answer is more urgent than what is warmed.
    s.client(1, commit());
    assert_eq!(purposes(&s)[3], (GenerationPurpose::Reply, ""));
    assert_eq!(s.stopped.last(), Some(&s.generations[2].generation));
    // While the answer is made, nothing is warmed; afterwards what the next prompt will contain is.
    s.now = 2000;
    s.content("Noon.");
    s.client(1, hear("than"));
    s.feed(MachineInput::Tick);
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (4, None));
    s.done();
    assert_eq!(purposes(&s)[4], (GenerationPurpose::WarmPartial, "than"));
    assert_eq!(s.generations[4].items.len(), 2);
    s.now = 3000;
    s.client(1, hear_nothing());
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (5, Some(3100)));
    s.now = 3100;
    s.feed(MachineInput::Tick);
    assert_eq!(purposes(&s)[5], (GenerationPurpose::WarmHistory, ""));
    // What was heard is another past.
    s.now = 4000;
    let item_id = s.last_reply();
    s.client(1, truncate(&item_id, 2));
    s.now = 4100;
    s.feed(MachineInput::Tick);
    assert_eq!(s.generations[6].items[1].text(), "No");
    // No client is there: nothing is warmed.
    s.now = 5000;
    s.detach(1);
    assert_eq!(s.stopped.last(), Some(&s.generations[6].generation));
    assert_eq!(s.machine.next_deadline(), None);
}

#[test]
fn sentences_and_the_report() {
    let mut s = stage();
    s.ask("Tell me");
    s.now += 40;
    s.content("Yes. It ");
    s.now += 60;
    s.content("is 3.5 km.");
    s.now += 100;
    let report = TurnReport {
        reused_tokens: 90,
        computed_tokens: 12,
        reason: Some("edited"),
        queue_ms: 0.5,
        prefill_ms: 30.25,
        decode_ms: 160.0,
        memory_bytes: vec![("pages", 4096)],
        ..TurnReport::default()
    };
    s.model(Delta::Done { finish: Finish::Stop, usage: None, report: Some(report.clone()) });
    let heard = s.heard(1);
    assert_eq!(
        heard[1..],
        [
            "text \"Yes. It \"",
            "sentence 0 \"Yes. \" 0..5",
            "text \"is 3.5 km.\"",
            "sentence 1 \"It is 3.5 km.\" 5..18",
            "whole text \"Yes. It is 3.5 km.\"",
            "ended I2 assistant \"Yes. It is 3.5 km.\" after I1",
            "done R1 completed [I2 assistant \"Yes. It is 3.5 km.\"]",
            "report of R1: reused 90 computed 12 ms 0.5 30.25 Some(40.0) Some(40.0) 200",
        ]
    );
    assert!(matches!(s.store.ops.last(), Some(StoreOp::ResponseReported { report: stored, .. })
        if stored.decode_ms == report.decode_ms && stored.memory_bytes == report.memory_bytes && stored.total_ms == 200.0));
}

#[test]
fn a_cancelled_reply_is_reported_when_the_model_has_stopped() {
    let mut s = stage();
    s.ask("Tell me");
    s.content("Yes. It ");
    s.now += 10;
    s.client(1, cancel());
    // Half a sentence is not spoken.
    assert!(!s.heard(1).iter().any(|line| line.starts_with("sentence 1")));
    s.now += 500;
    s.model(Delta::Done { finish: Finish::Cancelled, usage: None, report: Some(TurnReport::default()) });
    assert_eq!(s.heard(1), ["report of R1: reused 0 computed 0 ms 0 0 Some(0.0) Some(0.0) 10"]);
}

#[test]
fn notices_reach_every_client() {
    let mut s = stage();
    s.attach(2, Replay::All);
    s.heard(2);
    let compaction = |stage| Event::Compaction(Compaction { stage, version: 1, tokens_before: 9 });
    let events = [
        Event::ContextUpdated { tokens: 5, margin_tokens: 0, ctx_size: 10, fill: 0.5, arm: Some("a".into()) },
        compaction(CompactionStage::Started),
        compaction(CompactionStage::Completed { tokens_after: 3, started_version: 1 }),
        compaction(CompactionStage::Dropped { tokens_after: 3 }),
        compaction(CompactionStage::Failed { message: "m".into() }),
        Event::PinRefused { item_id: "i".into(), text: "Call me Ann.".into(), limit_tokens: 4 },
        Event::FactLearned {
            fact: LearnedFact { id: "f".into(), person: String::new(), text: "I like tea.".into(), asked: false },
            replaces: Vec::new(),
        },
        Event::FactUnsure { fact_id: Some("f".into()), near: vec!["e".into()] },
    ];
    for event in events {
        s.feed(MachineInput::Tell(event));
    }
    let stages = ["Started", "Completed", "Dropped", "Failed"].map(|stage| format!("compaction {stage}"));
    let rest = ["pin refused of i", "learned \"I like tea.\"", "unsure beside 1"].map(str::to_owned);
    let expected = [&["context 5 of 10".to_owned()][..], &stages, &rest].concat();
    assert_eq!(s.heard(1), expected);
    assert_eq!(s.heard(2), expected);
}

#[test]
fn a_client_that_wants_the_answer_now_ends_the_thinking() {
    let mut s = stage();
    s.client_as(1, "e1", stop_thinking());
    assert_eq!(s.heard(1), ["refused NothingThinks to e1"]);
    s.ask("Tell me");
    s.model(Delta::Reasoning { text: "Hm.".into(), tokens: 1 });
    s.heard(1);
    s.client(1, stop_thinking());
    assert_eq!(
        (s.heard(1), &s.hurried),
        (vec!["thinking stopped of R1".to_owned()], &vec![s.generations[0].generation])
    );
    s.content("Yes.");
    s.done();
    assert!(s.heard(1).last().unwrap().starts_with("done R1 completed"));
    s.client_as(1, "e3", stop_thinking());
    assert_eq!(s.heard(1), ["refused NothingThinks to e3"]);
    // One beside the conversation is named.
    s.client(1, respond_with(ResponseRequest { input: Some(Vec::new()), ..beside() }));
    let response_id = s.generations[1].response_id.clone();
    s.client(1, Input::StopThinking { response_id });
    assert_eq!(s.hurried.len(), 2);
}
