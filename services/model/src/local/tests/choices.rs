use super::*;

#[tokio::test]
async fn arms_of_a_reply_share_its_prompt_and_are_as_they_would_be_alone() {
    let lively = [("preset.sampling.temperature", "1"), ("engine.precision", "f32")];
    let stage = stage_with(&lively).await;
    let mut request = stage.request(user("Turn on the light in the kitchen, please."), 12);
    request.options.seed = Some(40);
    let answers = stage.model.ask_choices(request.clone(), 3);
    let mut choices = Vec::new();
    for answer in answers {
        choices.push(told(answer).await);
    }
    let input = choices[0].usage.input_tokens;
    let cached: Vec<u64> = choices.iter().map(|choice| choice.usage.cached_tokens).collect();
    assert_eq!(cached, [0, input, input], "the prompt is computed once");
    for (choice, told) in choices.iter().enumerate() {
        let mut alone = request.clone();
        alone.options.seed = Some(40 + choice as u64);
        let alone = stage_with(&lively).await.answer(alone).await;
        assert_eq!((&told.content, told.finish), (&alone.content, Some(Finish::Length)), "choice {choice}");
    }
    assert!(choices[0].content != choices[1].content && choices[1].content != choices[2].content, "{choices:?}");
    // Without a seed each has one of its own.
    request.options.seed = None;
    let answers = stage.model.ask_choices(request, 2);
    let mut fresh = Vec::new();
    for answer in answers {
        fresh.push(told(answer).await.content);
    }
    assert_ne!(fresh[0], fresh[1]);
}
