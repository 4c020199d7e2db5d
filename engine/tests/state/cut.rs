//! A model's file that another program cuts while the model is in use.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use engine::network::Network;
use engine::{Cpu, Engine, Error, Executor, Precision};

use crate::support::{LIMITS, answers, request, tries};

#[test]
fn a_file_that_is_cut_fails_requests_and_not_the_process() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference/gguf/dense-wide.q8_0.gguf");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for left in [4096, std::fs::metadata(&reference).unwrap().len() - 8] {
        std::fs::copy(&reference, &path).unwrap();
        let model = weights::open(&path, true).unwrap();
        let tokenizer = Arc::new(engine::vocabulary::tokenizer(model.vocab.clone()).unwrap());
        let network = Network::new(model, Precision::F32);
        let mut engine = Engine::new(Executor::on_cpu(Cpu::new(2)), network, tokenizer, LIMITS);
        assert_eq!(answers(&mut engine, vec![request(&[1, 2, 3], 4)])[0].tokens.len(), 4);
        assert_eq!(engine.failure(), None);
        // One request is running, another comes after.
        let running = engine.submit(request(&[4, 5, 6], 1000)).unwrap();
        engine.step(&mut Vec::new());
        File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let mut events = Vec::new();
        while engine.step(&mut events) {}
        let failed = events.iter().find_map(|event| match event {
            engine::EngineEvent::Failed { id, error } if *id == running => Some(error.to_string()),
            _ => None,
        });
        let message = failed.expect("the request fails");
        assert!(message.contains("model.gguf") && message.contains("was cut"), "{message}");
        assert!(!events.iter().any(|event| matches!(event, engine::EngineEvent::Token(_))), "no token of zeros");
        assert!(engine.failure().is_some_and(|why| why.contains("put the whole file back")));
        assert!(matches!(engine.submit(request(&[1], 1)), Err(Error::Weights(_))));
    }
    std::fs::copy(&reference, &path).unwrap();
    let model = weights::open(&path, true).unwrap();
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(model.vocab.clone()).unwrap());
    let mut engine = Engine::new(Executor::on_cpu(Cpu::new(2)), Network::new(model, Precision::F32), tokenizer, LIMITS);
    assert!(tries(&mut engine, vec![request(&[1, 2, 3], 4)])[0].is_ok(), "the whole file is a model again");
}
