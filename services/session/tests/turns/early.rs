//! Replies that are begun while a partial transcript stands still: when, with what, and that no client hears of them.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

const AFTER: u64 = 150;

fn begins(early_ms: Option<u64>) -> Stage {
    let mut start = start();
    (start.limits.speculate_ms, start.limits.early_ms) = (Some(200), early_ms);
    let mut s = stage_from(start);
    s.wait(1000);
    s
}

/// Lets time pass; each prompt is warm as soon as it is asked for.
fn wait(s: &mut Stage, ms: u64) {
    for _ in 0..ms {
        s.wait(1);
        let is_warming = |last: &&Generate| last.purpose == GenerationPurpose::WarmPartial;
        if s.generations.last().filter(is_warming).is_some() {
            s.model(warm());
        }
    }
}

fn warm() -> Delta {
    Delta::Done { finish: Finish::Warm, usage: None, report: Some(TurnReport::default()) }
}

fn begun(s: &Stage) -> Vec<(String, GenerationId)> {
    let early = s.generations.iter().filter(|known| known.purpose == GenerationPurpose::EarlyReply);
    early.map(|known| (known.items.last().unwrap().text(), known.generation)).collect()
}

fn texts(s: &Stage) -> Vec<String> {
    begun(s).into_iter().map(|(text, _)| text).collect()
}

#[test]
fn a_reply_is_begun_when_the_words_stand_still() {
    let mut s = begins(Some(AFTER));
    s.client(1, hear("what is"));
    wait(&mut s, AFTER - 1);
    s.client(1, hear("what is the"));
    wait(&mut s, AFTER - 1);
    assert!(begun(&s).is_empty(), "the user goes on");
    wait(&mut s, 1);
    assert_eq!(texts(&s), ["what is the"]);
    // The same words again are no news.
    s.client(1, hear("what is the"));
    wait(&mut s, 10 * AFTER);
    assert_eq!(texts(&s), ["what is the"]);
    // Newer words take the place of the older ones.
    let (_, first) = begun(&s)[0].clone();
    s.client(1, hear("what is the time"));
    wait(&mut s, AFTER);
    assert_eq!(texts(&s), ["what is the", "what is the time"]);
    assert!(s.stopped.contains(&first));
    let early = s.generations.last().unwrap().clone();
    assert_eq!((early.priority(), early.response_id.as_deref(), early.max_tokens), (Priority::Speculate, None, None));
    // What is asked in the end is the same.
    s.client(1, commit());
    let reply = s.generations.last().unwrap();
    assert_eq!(reply.purpose, GenerationPurpose::Reply);
    let said = |generate: &Generate| generate.items.iter().map(|item| (item.role(), item.text())).collect::<Vec<_>>();
    assert_eq!(said(reply), said(&early));
    assert_eq!((&reply.config, &reply.options, &reply.context), (&early.config, &early.options, &early.context));
    assert_eq!(reply.max_tokens, early.max_tokens);
    assert_eq!(s.stopped.last(), Some(&early.generation));
    assert_eq!(s.machine.next_deadline(), None, "while the reply is made, none is begun");
}

#[test]
fn it_waits_until_the_prompt_is_warm() {
    let mut s = begins(Some(AFTER));
    s.client(1, hear("what is the time"));
    s.wait(10 * AFTER);
    assert!(begun(&s).is_empty(), "the prompt is still being computed");
    s.model(warm());
    s.wait(1);
    assert_eq!(texts(&s), ["what is the time"]);
}

#[test]
fn nothing_of_it_is_heard_or_kept() {
    let mut s = begins(Some(AFTER));
    s.client(1, hear("turn on the light"));
    wait(&mut s, AFTER);
    s.heard(1);
    let operations = s.store.ops.len();
    // What no model should say.
    s.content("Done.");
    s.model(Delta::CallStarted { name: "f".into(), call_id: None });
    s.model(Delta::CallArguments { json: "{}".into(), tokens: 1 });
    s.model(warm());
    assert_eq!(s.heard(1), [""; 0]);
    assert!(s.recalls.is_empty() && s.store.ops.len() == operations && s.machine.entries().is_empty());
    s.check_agreement();
}

#[test]
fn what_changes_meanwhile_begins_it_anew() {
    let changes: [fn(&mut Stage); 3] = [
        |s| s.client(1, instructions("Be kind.")),
        |s| s.client(1, user("And")),
        |s| s.feed(MachineInput::Context(Context { notes: vec!["It is noon.".into()], ..Context::default() })),
    ];
    for change in changes {
        let mut s = begins(Some(AFTER));
        s.client(1, hear("what is the time"));
        wait(&mut s, AFTER);
        let before = s.generations.last().unwrap().clone();
        change(&mut s);
        wait(&mut s, 2 * AFTER);
        assert_eq!(texts(&s), ["what is the time", "what is the time"]);
        let after = s.generations.last().unwrap();
        assert_ne!((&before.items, &before.context, &before.config), (&after.items, &after.context, &after.config));
        assert!(s.stopped.contains(&before.generation));
    }
}

#[test]
fn it_ends_with_the_words_it_answers() {
    let ends: [fn(&mut Stage); 4] = [
        |s| s.client(1, hear_nothing()),
        |s| s.detach(1),
        |s| s.feed(MachineInput::Drain),
        |s| s.client(1, note_text("Stop.")),
    ];
    for end in ends {
        let mut s = begins(Some(AFTER));
        s.client(1, hear("what is the time"));
        wait(&mut s, AFTER);
        let (_, generation) = begun(&s)[0].clone();
        end(&mut s);
        s.wait(1000);
        assert_eq!((texts(&s).len(), s.stopped.contains(&generation)), (1, true));
    }
}

#[test]
fn none_begins_without_partial_transcripts_while_a_reply_is_made_or_where_it_is_off() {
    let mut s = begins(Some(AFTER));
    s.ask("Hi");
    s.client(1, hear("and"));
    s.wait(1000);
    assert!(begun(&s).is_empty());
    s.content("Hello.");
    s.done();
    s.client(1, hear_nothing());
    s.wait(1000);
    assert!(begun(&s).is_empty());
    let mut off = begins(None);
    off.client(1, hear("what is the time"));
    off.wait(1000);
    assert!(begun(&off).is_empty());
}
