use super::*;
use crate::request::ReplyKey;
use crate::resume::ResumedReply;
use session::sentences::SentenceLimits;
use settings::Questions;

const SENTENCES: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };

const TOKENS: u32 = 300;

fn key(generation: u64) -> ReplyKey {
    ReplyKey { past_owner: 7, generation }
}

fn asked(stage: &Stage, seed: u64) -> ModelRequest {
    let mut request = stage.request(user("Tell me a long story about the light in the kitchen."), TOKENS);
    (request.past_owner, request.keep_as) = (Some(7), Some(key(0)));
    request.options.seed = Some(seed);
    request.options.sampling.temperature = Some(1.0);
    request
}

async fn stopped(mut answer: Answer, deltas: u64) -> WholeAnswer {
    let mut content = String::new();
    let mut tokens = 0;
    for _ in 0..deltas {
        match answer.next().await {
            Some(Delta::Text { text, tokens: more, .. }) => {
                content += &text;
                tokens += more;
            }
            // It was done before it could be stopped.
            Some(Delta::Done { finish, usage, report }) => {
                let (finish, usage, report) = (Some(finish), usage.unwrap(), report.unwrap());
                return WholeAnswer { content, tokens, finish, usage, report, ..WholeAnswer::default() };
            }
            _ => {}
        }
    }
    answer.canceller().cancel();
    let rest = told(answer).await;
    WholeAnswer { content: content + &rest.content, tokens: tokens + rest.tokens, ..rest }
}

fn resumed(of: u64, made: Vec<Delta>) -> ResumedReply {
    ResumedReply {
        key: key(of),
        keep_as: key(of + 1),
        in_message: of > 0 || !made.is_empty(),
        made,
        ended: None,
        sentences: SENTENCES,
        questions: Questions::Any,
    }
}

#[tokio::test]
async fn a_reply_goes_on_with_the_words_that_it_would_have_had() {
    // The first reply reads the prompt, the next ones return to it.
    let stage = stage_with(&[("engine.precision", "f32")]).await;
    let mut all_stops = 0;
    for seed in 0..12 {
        let whole = stage.answer(ModelRequest { past_owner: Some(8), ..asked(&stage, seed) }).await;
        assert_eq!(whole.usage.output_tokens, u64::from(TOKENS), "{whole:?}");
        let mut part = stopped(stage.model.ask(asked(&stage, seed)), 2 + seed % 9).await;
        let (mut content, mut tokens, mut stops) = (String::new(), 0, 0);
        while part.finish == Some(Finish::Held) {
            content += &part.content;
            tokens += part.usage.output_tokens;
            let went_on = ResumedReply { in_message: !content.is_empty(), ..resumed(stops, Vec::new()) };
            part = stopped(stage.model.resume(went_on), 3).await;
            assert_eq!((part.usage.input_tokens, part.usage.cached_tokens), (0, 0));
            assert_eq!((part.report.reason, part.report.computed_tokens), (Some("resumed"), 0), "{part:?}");
            assert_eq!(part.report.reused_tokens, whole.usage.input_tokens + tokens - 1);
            stops += 1;
        }
        assert_eq!(part.finish, Some(Finish::Length));
        all_stops += stops;
        assert_eq!(content + &part.content, whole.content);
        assert_eq!(tokens + part.usage.output_tokens, u64::from(TOKENS));
    }
    assert!(all_stops > 12, "{all_stops}");
}

#[tokio::test]
async fn what_was_made_before_comes_first_and_its_sentences_are_cut_anew() {
    let stage = stage().await;
    let part = stopped(stage.model.ask(asked(&stage, 3)), 4).await;
    assert_eq!(part.finish, Some(Finish::Held));
    let made = vec![Delta::text(" is over. There", 0), Delta::text(" was", 2)];
    let went_on = told(stage.model.resume(resumed(0, made))).await;
    assert!(went_on.content.starts_with(" is over. There was"), "{went_on:?}");
    assert_eq!(went_on.sentences[0], " is over. ");
    assert_eq!(went_on.sentences.concat(), went_on.content);
    assert_eq!(went_on.usage.output_tokens, u64::from(TOKENS) - part.usage.output_tokens + 2);
}

#[tokio::test]
async fn a_reply_that_was_done_needs_no_model() {
    let stage = stage().await;
    let done = ResumedReply { ended: Some(Finish::Stop), ..resumed(5, vec![Delta::text(" is noon.", 0)]) };
    let (mut answer, mut deltas) = (stage.model.resume(done), Vec::new());
    while let Some(delta) = answer.next().await {
        deltas.push(delta);
    }
    assert!(matches!(&deltas[0], Delta::Text { text, .. } if text == " is noon."));
    assert!(matches!(deltas.last(), Some(Delta::Done { finish: Finish::Stop, usage: None, .. })));
}

#[tokio::test]
async fn another_turn_a_deletion_and_time_end_it() {
    let stage = stage_with(&[("conversation.resume_s", "1")]).await;
    for end in ["turn", "forget", "time", "failure"] {
        let part = stopped(stage.model.ask(asked(&stage, 1)), 4).await;
        assert_eq!(part.finish, Some(Finish::Held));
        match end {
            "turn" => drop(stage.answer(asked(&stage, 2)).await),
            "forget" => stage.model.forget(7, PastStays::Nothing).await.unwrap(),
            "time" => tokio::time::sleep(std::time::Duration::from_millis(1_100)).await,
            _ => stage.model.panic(),
        }
        let went_on = told(stage.model.resume(resumed(0, Vec::new()))).await;
        let (code, message) = went_on.failure.unwrap();
        assert!(matches!(code, FailureCode::EngineFailed | FailureCode::Unavailable), "{end}: {message}");
    }
}

#[tokio::test]
async fn nothing_is_kept_where_the_configuration_says_so() {
    let stage = stage_with(&[("conversation.resume_s", "0")]).await;
    assert_eq!(stopped(stage.model.ask(asked(&stage, 1)), 4).await.finish, Some(Finish::Cancelled));
    let stage = super::stage().await;
    let plain = ModelRequest { keep_as: None, ..asked(&stage, 1) };
    assert_eq!(stopped(stage.model.ask(plain), 4).await.finish, Some(Finish::Cancelled));
}
