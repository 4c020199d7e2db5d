//! Thinking that ends early: by a reader, in time for the first word, after a limit of tokens.

use super::*;

#[tokio::test]
async fn a_reader_that_wants_the_answer_ends_the_thinking() {
    let stage = stage_with(&[("preset.thinking", "on")]).await;
    let mut answer = stage.model.ask(stage.request(user("Why is the sky blue?"), 600));
    let mut thought = 0;
    while thought < 5 {
        match answer.next().await.unwrap() {
            Delta::Reasoning { tokens, .. } => thought += tokens,
            Delta::Prompt { .. } | Delta::PromptTokens(_) => {}
            delta => panic!("{delta:?}"),
        }
    }
    answer.thinking_stopper().cancel();
    let told = told(answer).await;
    assert_eq!(told.finish, Some(Finish::Length), "{told:?}");
    assert!(!told.content.is_empty() && told.usage.reasoning_tokens < 600, "{told:?}");
    assert_eq!(told.usage.output_tokens, 600);
    assert!(!told.content.contains("</think>") && !told.reasoning.contains("</think>"), "{told:?}");
}

#[tokio::test]
async fn the_first_word_comes_in_time_or_after_so_many_tokens() {
    // The time is over before the engine has read the prompt: the model does not think.
    let stage = stage_with(&[("preset.thinking.first_word_ms", "1")]).await;
    let told = stage.answer(stage.request(user("Why is the sky blue?"), 40)).await;
    assert!(!told.content.is_empty() && told.usage.reasoning_tokens < 20, "{told:?}");
    // The time is long, and the tokens are spent first.
    let both = [("preset.thinking.first_word_ms", "10min"), ("preset.thinking.tokens", "7")];
    let stage = stage_with(&both).await;
    let told = stage.answer(stage.request(user("Why is the sky blue?"), 40)).await;
    // The end of the thought has four tokens at most.
    assert!((7..=11).contains(&told.usage.reasoning_tokens) && !told.content.is_empty(), "{told:?}");
    // The time is long, and nothing else ends the thought.
    let stage = stage_with(&both[..1]).await;
    let told = stage.answer(stage.request(user("Why is the sky blue?"), 40)).await;
    assert_eq!((told.content.as_str(), told.finish), ("", Some(Finish::Length)), "{told:?}");
}
