//! Prints a model's reply as it comes: `cargo run --release -p engine --example generate -- MODEL.gguf "Why is it dark?"`

use chat::{Message, MessageRole, Prompt};
use engine::open::{ModelOptions, open};
use engine::state::KvFormats;
use engine::{Cpu, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, Precision};
use kernels::format::Format;
use std::io::Write;
use text::TemplateInput;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, question] = &arguments[..] else { return Err("give a model's file and a question".into()) };
    let model = open(path.as_ref(), &ModelOptions::new(Precision::Integer), &mut |_packed, _total| ())?;

    let prompt = Prompt { messages: vec![Message::new(MessageRole::User, question)], ..Prompt::default() };
    let prompt = text::encode_prompt(&model.tokenizer, &model.template.render(&TemplateInput::of(&prompt))?);

    let limits = EngineLimits {
        prefill_chunk_tokens: 256,
        max_sequences: 1,
        max_waiting: 1,
        max_logit_bias: 0,
        memory_bytes: 4 << 30, // not a window: bytes
        moved_snapshot_bytes: 0,
        snapshots: Format::BF16,
        snapshot_spacing_tokens: 512,
        recurrence_log_tokens: 0,
        heads: 0,
    };
    let kv = KvFormats::new(Format::F16, Format::F16);
    let request = EngineRequest::new(prompt.tokens, model.network.shape().native_ctx, kv);
    let mut engine = Engine::new(Executor::on_cpu(Cpu::new(0)), model.network, model.tokenizer, limits);
    engine.submit(EngineRequest { max_new_tokens: 1000, ..request })?;
    let mut events = Vec::new();
    while engine.step(&mut events) | !events.is_empty() {
        for event in events.drain(..) {
            match event {
                EngineEvent::Token(token) => print!("{}", token.text),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } | EngineEvent::Done { .. } => {}
            }
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}
