//! Prompts that no template renders, and the log probabilities of their tokens.

use super::*;
use crate::RawPrompt;

fn raw(stage: &Stage, prompt: RawPrompt, tokens: u32) -> ModelRequest {
    let mut request = ModelRequest::new(Prompt::default(), stage.preset.clone());
    (request.raw, request.max_tokens) = (Some(prompt), Some(tokens));
    (request.options.ignore_eos, request.options.logprobs) = (true, Some(1));
    request
}

#[tokio::test]
async fn a_prompt_is_reported_token_by_token_and_its_reply_is_text_as_it_comes() {
    let stage = stage().await;
    let prompt = RawPrompt::Text("The light in the kitchen is on.".into());
    let reported = ModelRequest { prompt_logprobs: Some(2), ..raw(&stage, prompt.clone(), 0) };
    let only = stage.answer(reported.clone()).await;
    assert_eq!((only.finish, only.usage.output_tokens, only.content.as_str()), (Some(Finish::Length), 0, ""));
    let text: Vec<u8> = only.prompt_tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    assert_eq!(text, b"The light in the kitchen is on.");
    assert_eq!(only.usage.input_tokens, only.prompt_tokens.len() as u64);
    let [first, others @ ..] = &only.prompt_tokens[..] else { panic!("{only:?}") };
    assert_eq!((first.logprob, others.iter().all(|token| token.logprob.is_some())), (None, true));
    assert!(others.iter().all(|token| token.top.len() == 2 && token.top[0].1 >= token.top[1].1), "{others:?}");

    // Cached or not, the same is reported. Every token of the reply has its log probability.
    let replied = stage.answer(ModelRequest { max_tokens: Some(4), ..reported }).await;
    assert_eq!(replied.prompt_tokens, only.prompt_tokens);
    assert_eq!((replied.usage.output_tokens, replied.logprobs.len()), (4, 4));
    assert!(replied.sentences.is_empty(), "it is not spoken");
    let plain = stage.answer(raw(&stage, prompt, 4)).await;
    assert_eq!((plain.prompt_tokens.len(), &plain.content), (0, &replied.content));

    // Marks of thought and calls are text here.
    let mut marks = raw(&stage, RawPrompt::Tokens(vec![5, 6, 7]), 3);
    marks.options.sampling.logit_bias = vec![(THINK_CLOSE, 1e9)];
    let marks = stage.answer(marks).await;
    assert_eq!((marks.content.as_str(), marks.reasoning.as_str()), ("</think></think></think>", ""));
    assert_eq!(marks.logprobs.len(), 3);
    stage.model.shutdown().await;
}

#[tokio::test]
async fn prompts_that_do_not_fit_are_refused_and_a_full_window_is_reported() {
    let stage = stage_with(&[("model.ctx_size", "500")]).await;
    let refused = async |prompt: RawPrompt, tokens: u32| {
        stage.answer(raw(&stage, prompt, tokens)).await.failure.map(|(code, _)| code)
    };
    let full = RawPrompt::Tokens(vec![5; stage.preset.ctx_size as usize]);
    assert_eq!(refused(full.clone(), 1).await, Some(FailureCode::PromptTooLong));
    let reported = ModelRequest { prompt_logprobs: Some(0), ..raw(&stage, full.clone(), 0) };
    assert_eq!(stage.answer(reported).await.prompt_tokens.len(), full.most_tokens());
    assert_eq!(refused(RawPrompt::Text("word ".repeat(100_000)), 1).await, Some(FailureCode::PromptTooLong));
    assert_eq!(refused(RawPrompt::Tokens(vec![5, 1_000_000]), 1).await, Some(FailureCode::InvalidRequest));
    assert_eq!(refused(RawPrompt::Text(String::new()), 1).await, Some(FailureCode::InvalidRequest));
    stage.model.shutdown().await;
}

#[tokio::test]
async fn parameters_of_tools_are_part_of_a_prompt_and_their_space_is_not() {
    let stage = stage().await;
    let refused = async |request| stage.answer(request).await.failure.unwrap();
    let with_parameters = |parameters: String| {
        let mut tools = stage.request(user("x"), 5);
        let parameters = Some(JsonText(parameters.into()));
        tools.prompt.tools = vec![Tool { name: "light".into(), description: None, parameters, verbatim: None }];
        tools
    };
    let long = format!(r#"{{"type": "object", "description": "{}"}}"#, "word ".repeat(2_000_000));
    let (code, message) = refused(with_parameters(long)).await;
    assert_eq!(code, FailureCode::PromptTooLong);
    assert!(message.contains("far more"), "before a token is made of it: {message}");
    let spaced = format!(r#"{{"type":{}"object"}}"#, " ".repeat(4_000_000));
    assert_eq!(stage.answer(with_parameters(spaced)).await.failure, None, "space is not part of the prompt");
}
