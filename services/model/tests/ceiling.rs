//! Memory ceiling: `memory.total` is a promise about the process, not about the engine's counts. So this test is a
//! process of its own: it talks for thousands of turns with more conversations than fit, and then reads the process's
//! peak from the system.

#![cfg(target_os = "linux")]

use model::{Model, ModelRequest};
use session::{Delta, Message, MessageRole, Part, Prompt};
use settings::{Flag, Settings, Sources};
use std::sync::Arc;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-tied");
const TOTAL_BYTES: u64 = 128 << 20;
const CONVERSATIONS: usize = 60;
const AT_ONCE: usize = 4;
const ROUNDS: usize = 36;

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

async fn reply(model: &Model, request: ModelRequest) -> String {
    let mut answer = model.ask(request);
    let mut text = String::new();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Text { text: more, .. } => text += &more,
            Delta::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    text
}

#[tokio::test]
async fn thousands_of_turns_stay_under_the_ceiling_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        ("model.path", MODEL),
        ("memory.total", &TOTAL_BYTES.to_string()),
        ("memory.token_cache_bytes", "4MiB"),
        ("memory.disk_path", folder.path().to_str().unwrap()),
        ("memory.disk_idle_s", "0"),
        ("memory.disk_bytes", "64MiB"),
        ("engine.threads", "1"),
        ("engine.prefill_chunk_tokens", "64"),
        ("engine.max_sequences", &AT_ONCE.to_string()),
    ];
    let flags = flags.map(|(key, value)| Flag::new("--set", key, value)).into();
    let settings = Settings::load(&Sources { flags, ..Sources::default() }).unwrap().settings;
    let started = Model::start(&settings).await.unwrap();
    let (model, plan) = (started.model, started.plan.unwrap());
    let preset = Arc::new(started.settings.chosen().unwrap().clone());
    let mut said: Vec<Vec<Message>> = (0..CONVERSATIONS)
        .map(|n| vec![Message::new(MessageRole::System, format!("You are assistant number {n}. ").repeat(10))])
        .collect();
    let (mut turns, mut most_held) = (0, 0);
    for round in 0..ROUNDS {
        for some in 0..CONVERSATIONS / AT_ONCE {
            let talking = some * AT_ONCE..(some + 1) * AT_ONCE;
            for messages in &mut said[talking.clone()] {
                // Some replies are interrupted, and a long conversation begins again.
                if (round + some) % 5 == 4
                    && let Some(last) = messages.last_mut()
                    && last.role == MessageRole::Assistant
                {
                    last.parts = vec![Part::Text(last.text().chars().take(3).collect())];
                }
                if messages.len() > 20 {
                    messages.truncate(1);
                }
                let words = format!("In round {round} somebody asks for the {}th time how it is. ", some * 7);
                messages.push(Message::new(MessageRole::User, words));
            }
            let asks = said[talking.clone()].iter().map(|messages| {
                let prompt = Prompt { messages: messages.clone(), ..Prompt::default() };
                let mut request = ModelRequest::new(prompt, preset.clone());
                (request.max_tokens, request.options.ignore_eos) = (Some(4), true);
                reply(&model, request)
            });
            let replies = futures_util::future::join_all(asks).await;
            for (messages, text) in said[talking].iter_mut().zip(replies) {
                messages.push(Message::new(MessageRole::Assistant, text));
                turns += 1;
            }
            let held: u64 = model.status().memory_bytes.iter().map(|(_, bytes)| bytes).sum();
            most_held = most_held.max(held);
        }
    }
    let peak = peak_bytes();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{turns} turns; the engine held up to {:.1} of its {:.1} MiB; the process took up to {:.1} of {:.1} MiB\n{plan}",
        mib(most_held),
        mib(plan.engine_bytes()),
        mib(peak),
        mib(TOTAL_BYTES)
    );
    assert!(most_held <= plan.engine_bytes());
    assert!(most_held > plan.engine_bytes() * 9 / 10, "the ceiling was never near: {}", mib(most_held));
    assert!(peak <= TOTAL_BYTES, "{:.1} MiB", mib(peak));
    model.shutdown().await;
    assert!(peak_bytes() <= TOTAL_BYTES, "writing all of it took more: {:.1} MiB", mib(peak_bytes()));
}
