use super::*;
use session::SamplingOverrides;

const TOKENS: u32 = 120;

fn asked(stage: &Stage, words: &str, seed: u64, temperature: f32) -> ModelRequest {
    let messages = vec![said(System, "You are a voice assistant at home. Answer shortly."), said(User, words)];
    let mut request = stage.request(messages, TOKENS);
    (request.past_owner, request.options.seed) = (Some(7), Some(seed));
    request.options.sampling = SamplingOverrides {
        temperature: Some(temperature),
        presence_penalty: Some(0.5),
        repetition_penalty: Some(1.1),
        ..SamplingOverrides::default()
    };
    request
}

fn early(request: &ModelRequest) -> ModelRequest {
    ModelRequest { purpose: GenerationPurpose::EarlyReply, priority: Priority::Speculate, ..request.clone() }
}

async fn begin(stage: &Stage, request: &ModelRequest) {
    let told = stage.answer(early(request)).await;
    assert_eq!((told.finish, told.usage.output_tokens), (Some(Finish::Warm), 0), "{told:?}");
    assert!(told.content.is_empty() && told.prompt.is_none(), "nothing of it is told: {told:?}");
}

/// Returns everything that another time does not change.
fn words_of(told: &WholeAnswer) -> (&str, &[String], Option<Finish>, u64, u64) {
    (&told.content, &told.sentences, told.finish, told.usage.output_tokens, told.usage.input_tokens)
}

async fn f32_stage(more: &[(&str, &str)]) -> Stage {
    stage_with(&[&[("engine.precision", "f32")], more].concat()).await
}

#[tokio::test]
async fn a_reply_begun_early_is_the_one_that_would_have_been_made() {
    let (stage, off) = (f32_stage(&[]).await, f32_stage(&[("preset.speculation.tokens", "0")]).await);
    for seed in 0..6 {
        for temperature in [0.0, 0.7, 1.3] {
            let request = asked(&stage, "Is the light on in the kitchen?", seed, temperature);
            let plain = off.answer(asked(&off, "Is the light on in the kitchen?", seed, temperature)).await;
            assert_eq!(plain.report.begun_early, None);
            begin(&stage, &request).await;
            let told = stage.answer(request).await;
            assert_eq!(words_of(&told), words_of(&plain));
            assert_eq!(told.report.begun_early, Some(24), "{told:?}");
            assert_eq!(told.prompt, Some((told.usage.input_tokens, told.usage.cached_tokens)));
            assert_eq!(told.report.reused_tokens + told.report.computed_tokens, told.usage.input_tokens);
            assert_ne!(told.report.reason, Some("resumed"));
        }
    }
}

#[tokio::test]
async fn other_words_are_answered_as_if_nothing_had_been_begun() {
    let stage = f32_stage(&[]).await;
    for (seed, (partial, whole)) in [
        ("Is the light on in the kit", "Is the light on in the kitchen?"),
        ("Is the light on in the kitchen", "Is the light on in the kitchen or in the hall?"),
        ("Turn the", "No."),
    ]
    .into_iter()
    .enumerate()
    {
        begin(&stage, &asked(&stage, partial, seed as u64, 0.9)).await;
        let told = stage.answer(asked(&stage, whole, seed as u64, 0.9)).await;
        let cold = f32_stage(&[]).await;
        let alone = cold.answer(asked(&cold, whole, seed as u64, 0.9)).await;
        assert_eq!(words_of(&told), words_of(&alone));
        assert_eq!(told.report.begun_early, None);
        assert!(told.usage.cached_tokens > 20, "what is the same is not computed again: {told:?}");
    }
}

#[tokio::test]
async fn a_reply_is_only_taken_where_all_that_makes_it_is_the_same() {
    let stage = f32_stage(&[]).await;
    let request = asked(&stage, "Is the light on?", 3, 0.9);
    let changes: [fn(&mut ModelRequest); 8] = [
        |request| request.options.seed = Some(4),
        |request| request.options.sampling.temperature = Some(0.8),
        |request| request.options.stop = vec!["x".into()],
        |request| request.max_tokens = Some(TOKENS + 1),
        |request| request.user = Some(5),
        |request| request.past_owner = Some(8),
        |request| request.thinking = Some(Thinking::On),
        |request| request.priority = Priority::Background,
    ];
    for change in changes {
        begin(&stage, &request).await;
        let mut other = request.clone();
        change(&mut other);
        assert_eq!(stage.answer(other).await.report.begun_early, None);
    }
    // Those of other owners took nothing away.
    begin(&stage, &request).await;
    assert_eq!(stage.answer(request.clone()).await.report.begun_early, Some(24));
    // And it is reported once.
    assert_eq!(stage.answer(request).await.report.begun_early, None);
}

#[tokio::test]
async fn a_short_reply_is_there_with_its_end() {
    let stage = f32_stage(&[]).await;
    let request = ModelRequest { max_tokens: Some(6), ..asked(&stage, "Is the light on?", 1, 0.9) };
    begin(&stage, &request).await;
    let told = stage.answer(request).await;
    assert_eq!((told.finish, told.usage.output_tokens), (Some(Finish::Length), 6), "{told:?}");
    assert_eq!(told.report.begun_early, Some(6));
    assert_eq!(told.sentences.concat(), told.content);
}

#[tokio::test]
async fn a_reply_that_is_being_begun_is_gone_on_with() {
    let stage = f32_stage(&[("preset.speculation.tokens", "100")]).await;
    let plain = stage.answer(ModelRequest { past_owner: None, ..asked(&stage, "Is the light on?", 1, 0.9) }).await;
    let request = asked(&stage, "Is the light on?", 1, 0.9);
    let mut tokens = 0;
    for cancels in [false, true] {
        let begun = stage.model.ask(early(&request));
        while stage.model.status().load.speculate == 0 {
            tokio::task::yield_now().await;
        }
        // The session does so, because the user is done.
        if cancels {
            begun.canceller().cancel();
        }
        let told = stage.answer(request.clone()).await;
        assert_eq!(told.content, plain.content);
        tokens = told.report.begun_early.unwrap();
        let begun = self::told(begun).await;
        assert_eq!((begun.finish, begun.content.as_str()), (Some(Finish::Warm), ""));
    }
    assert!(tokens < 100, "{tokens}");
}

#[tokio::test]
async fn the_newest_of_a_conversation_is_held_and_so_many_in_all() {
    let stage = f32_stage(&[("engine.early_replies", "2")]).await;
    let of = |owner, words| ModelRequest { past_owner: Some(owner), ..asked(&stage, words, 1, 0.9) };
    begin(&stage, &of(7, "Is the light")).await;
    begin(&stage, &of(7, "Is the light on?")).await;
    assert_eq!(stage.answer(of(7, "Is the light")).await.report.begun_early, None);
    for owner in [1, 2, 3] {
        begin(&stage, &of(owner, "Is the light on?")).await;
    }
    for (owner, begun) in [(1, None), (2, Some(24)), (3, Some(24))] {
        assert_eq!(stage.answer(of(owner, "Is the light on?")).await.report.begun_early, begun, "{owner}");
    }
}

#[tokio::test]
async fn a_reply_is_not_there_any_more() {
    for end in ["forget", "time", "panic", "another turn"] {
        let stage = f32_stage(&[("preset.speculation.keep_s", "1")]).await;
        let request = asked(&stage, "Is the light on?", 1, 0.9);
        begin(&stage, &request).await;
        match end {
            "forget" => stage.model.forget(7, PastStays::Nothing).await.unwrap(),
            "time" => tokio::time::sleep(std::time::Duration::from_millis(1_100)).await,
            "panic" => stage.model.panic(),
            _ => {
                let keep_as = Some(crate::ReplyKey { past_owner: 7, generation: 1 });
                stage.answer(ModelRequest { keep_as, ..asked(&stage, "No.", 1, 0.9) }).await;
            }
        }
        let told = stage.answer(request).await;
        assert_eq!((told.report.begun_early, told.usage.output_tokens), (None, u64::from(TOKENS)), "{end}: {told:?}");
    }
}

#[tokio::test]
async fn a_cough_does_not_cost_the_reply_that_it_stopped() {
    let stage = f32_stage(&[]).await;
    let key = crate::ReplyKey { past_owner: 7, generation: 1 };
    let keep_as = Some(key);
    let mut answer =
        stage.model.ask(ModelRequest { keep_as, max_tokens: Some(2000), ..asked(&stage, "Sing.", 1, 0.9) });
    while !matches!(answer.next().await, Some(Delta::Text { .. })) {}
    answer.canceller().cancel();
    assert_eq!(told(answer).await.finish, Some(Finish::Held));
    begin(&stage, &asked(&stage, "Mhm", 1, 0.9)).await;
    let resumed = crate::ResumedReply {
        key,
        keep_as: crate::ReplyKey { past_owner: 7, generation: 2 },
        made: Vec::new(),
        in_message: true,
        ended: None,
        sentences: session::sentences::SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 },
        questions: settings::Questions::Any,
    };
    let went_on = told(stage.model.resume(resumed)).await;
    assert_eq!((went_on.report.reason, went_on.failure), (Some("resumed"), None));
}

/// A client that sends its request before its user is done, closes it and sends it again, without a seed.
#[tokio::test]
async fn a_request_that_was_broken_off_unheard_goes_on_when_it_comes_again() {
    let stage = f32_stage(&[("preset.speculation.tokens", "2000")]).await;
    let request = |words: &str| {
        let mut request = ModelRequest { max_tokens: Some(1500), ..asked(&stage, words, 1, 0.9) };
        (request.past_owner, request.options.seed) = (None, None);
        request
    };
    // Before the engine has it, and during its computation.
    let long = request(&"The light in the kitchen is on and off and on. ".repeat(30));
    for waits in [0, 1] {
        let talks = || stage.model.status().load.talk;
        while talks() > 0 {
            tokio::task::yield_now().await;
        }
        let unread = stage.model.ask(long.clone());
        while waits > 0 && talks() == 0 {
            tokio::task::yield_now().await;
        }
        drop(unread);
        let told = stage.answer(long.clone()).await;
        if waits > 0 {
            assert!(told.report.begun_early.is_some(), "{told:?}");
        }
        assert_eq!((told.usage.output_tokens, told.finish), (1500, Some(Finish::Length)));
    }
    // Text that its client has read is not sent again.
    let mut read = stage.model.ask(request("Is the light on?"));
    while !matches!(read.next().await, Some(Delta::Text { .. })) {}
    drop(read);
    assert_eq!(stage.answer(request("Is the light on?")).await.report.begun_early, None);
}

#[tokio::test]
async fn calls_are_told_when_they_are_asked_for() {
    let stage = f32_stage(&[]).await;
    let mut request = asked(&stage, "Turn on the light", 1, 0.0);
    request.options.ignore_eos = false;
    let parameters = json!({"type": "object", "properties": {"room": {"enum": ["hall"]}}, "required": ["room"]});
    let parameters = Some(JsonText::from(parameters.to_string()));
    request.prompt.tools = vec![Tool { name: "light".into(), description: None, parameters, verbatim: None }];
    (request.tool_choice, request.parallel_tool_calls) = (ToolChoice::Required, false);
    let off = f32_stage(&[("preset.speculation.tokens", "0")]).await;
    let plain = off.answer(ModelRequest { preset: off.preset.clone(), ..request.clone() }).await;
    begin(&stage, &request).await;
    let told = stage.answer(request).await;
    assert!(told.report.begun_early > Some(0));
    assert_eq!((told.finish, &told.calls), (Some(Finish::ToolCalls), &plain.calls));
    assert_eq!(told.usage.output_tokens, plain.usage.output_tokens);
}

#[tokio::test]
async fn what_cannot_be_begun_is_told_when_it_is_asked_for() {
    let stage = f32_stage(&[]).await;
    let long = asked(&stage, &"word ".repeat(5000), 1, 0.0);
    begin(&stage, &long).await;
    assert_eq!(stage.answer(long).await.failure.unwrap().0, FailureCode::PromptTooLong);
    let off = f32_stage(&[("preset.speculation.tokens", "0")]).await;
    let request = asked(&off, "Is the light on?", 1, 0.0);
    begin(&off, &request).await;
    assert_eq!(off.answer(request).await.report.begun_early, None);
}
