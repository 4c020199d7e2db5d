//! Requests that wait for the engine: which of them are refused.

use super::*;

/// As hundreds of clients do that come back at once.
#[tokio::test]
async fn prompts_to_warm_do_not_take_the_places_of_users_who_wait() {
    let stage = stage_with(&[("engine.max_waiting", "2")]).await;
    let warm = |at: usize| {
        let mut request = stage.request(vec![said(User, &format!("Is lamp {at} on?"))], 0);
        (request.purpose, request.priority) = (Purpose::WarmPartial, Priority::Speculate);
        stage.model.ask(request)
    };
    let asked: Vec<_> = (0..40).map(warm).collect();
    let reply = stage.answer(stage.request(vec![said(User, "Good morning.")], 3)).await;
    assert_eq!((reply.failure, reply.usage.output_tokens), (None, 3));
    drop(asked);
}
