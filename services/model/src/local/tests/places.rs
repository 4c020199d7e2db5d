//! Requests that wait for the engine, and those that it refuses.

use super::*;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn prompts_to_warm_do_not_take_the_places_of_users_who_wait() {
    let stage = stage_with(&[("engine.max_waiting", "2")]).await;
    let warm = |at: usize| {
        let mut request = stage.request(vec![said(User, &format!("Is lamp {at} on?"))], 0);
        (request.purpose, request.priority) = (GenerationPurpose::WarmPartial, Priority::Speculate);
        stage.model.ask(request)
    };
    let asked: Vec<_> = (0..40).map(warm).collect();
    let reply = stage.answer(stage.request(vec![said(User, "Good morning.")], 3)).await;
    assert_eq!((reply.failure, reply.usage.output_tokens), (None, 3));
    drop(asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_wake_the_model_do_not_take_the_places_of_users_who_wait() {
    let stage = stage_with(&[("engine.max_waiting", "1")]).await;
    let over = CancellationToken::new();
    let wakes = {
        let (model, over) = (stage.model.clone(), over.clone());
        std::thread::spawn(move || {
            while !over.is_cancelled() {
                model.wake();
            }
        })
    };
    let mut refused = Vec::new();
    for at in 0..30 {
        let question = format!("Good morning for the {at}th time.");
        refused.extend(stage.answer(stage.request(vec![said(User, &question)], 3)).await.failure);
    }
    over.cancel();
    wakes.join().unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}
