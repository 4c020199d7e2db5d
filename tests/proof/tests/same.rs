use proof::same::{Args, prove};

#[test]
fn an_answer_is_the_same_however_it_is_computed() {
    let summary = prove(&Args { minutes: 0.0, conversations: Some(36), first: 0, seed: 1, json: false }).unwrap();
    println!("{}", summary.line);
    assert_eq!(summary.failures, Vec::<String>::new(), "{}", summary.again);
    for figure in ["reused", "in_batch", "resumed", "from_disk", "begun_early", "begun_wrong", "accepted_tokens"] {
        assert!(summary.figures[figure].as_u64() > Some(0), "{figure}: {}", summary.line);
    }
}
