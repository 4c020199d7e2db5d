//! `reprise logits`: the model's output for given tokens, to compare it with other implementations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use engine::network::WantedLogits;
use engine::state::SequenceState;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use settings::Settings;

use terminal::flags::wrong_use;
use terminal::opening::{self, ModelArgs, ReadyModel};
use terminal::output::print_json;
use terminal::say;

/// Writes the logits of every position of given tokens to a safetensors file
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens: 1,2,3 or @FILE
    #[arg(long)]
    tokens: String,
    /// The safetensors file to write: `logits` float32 [position, vocab]
    #[arg(long)]
    out: PathBuf,
    /// Tokens to compute together [default: the configuration's]
    #[arg(long)]
    chunk: Option<usize>,
    /// Continues for this number of tokens, each the most probable one: `greedy` int64 [N]
    #[arg(long, default_value_t = 0)]
    greedy: usize,
    #[arg(help = "Prints one JSON object instead of a line")]
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let tokens = opening::parse_tokens(&args.tokens)?;
    let name = args.model.model.as_deref().unwrap_or(&settings.model.preset);
    let (file, _) = model::resolve(settings, name)?;
    let adapters = args.model.lora.iter().chain(&settings.model.lora).map(|adapter| adapter.path.as_path());
    tools::check_out(&[file.as_path()].into_iter().chain(adapters).collect::<Vec<_>>(), &args.out)?;
    let ReadyModel { opened, mut executor, device, kv, .. } = args.model.open(settings)?;
    let network = &opened.model.network;
    let vocab = network.shape().vocab;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
        return Err(wrong_use(anyhow!("token {token} is not in this model's vocabulary of {vocab}")));
    }
    if tokens.is_empty() {
        return Err(wrong_use(anyhow!("--tokens is empty")));
    }
    let mut state = SequenceState::new(network.state_shape, kv, &executor.meter())?;
    let of_device = device.as_ref().map_or(settings.engine.prefill_chunk_tokens, |memory| memory.chunk_tokens);
    let chunk = args.chunk.unwrap_or(of_device).max(1);
    let mut logits: Vec<f32> = Vec::new();
    let mut feed = |tokens: &[u32], wanted: WantedLogits| -> Result<Vec<f32>> {
        let logits =
            executor.forward(network, &mut [opening::lane(&mut state, tokens, wanted)]).map(|logits| logits.to_vec());
        logits.ok_or_else(|| opening::lost(&executor))
    };
    for tokens in tokens.chunks(chunk) {
        logits.extend_from_slice(&feed(tokens, WantedLogits::All)?);
    }
    let mut greedy: Vec<i64> = Vec::new();
    let mut last = logits[logits.len() - vocab..].to_vec();
    for _ in 0..args.greedy {
        let best = (0..vocab).fold(0, |best, token| if last[token] > last[best] { token } else { best });
        greedy.push(best as i64);
        last = feed(&[best as u32], WantedLogits::Last)?;
    }

    let bytes: Vec<u8> = logits.iter().flat_map(|value| value.to_le_bytes()).collect();
    let greedy_bytes: Vec<u8> = greedy.iter().flat_map(|token| token.to_le_bytes()).collect();
    let mut tensors = BTreeMap::new();
    tensors.insert("logits", TensorView::new(Dtype::F32, vec![tokens.len(), vocab], &bytes)?);
    if args.greedy > 0 {
        tensors.insert("greedy", TensorView::new(Dtype::I64, vec![greedy.len()], &greedy_bytes)?);
    }
    safetensors::serialize_to_file(tensors, None, &args.out)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    if args.json {
        return print_json(
            &json!({ "file": args.out, "positions": tokens.len(), "vocab": vocab, "greedy": greedy.len() }),
        );
    }
    say!("{}: logits of {} positions, {vocab} each", args.out.display(), tokens.len())?;
    Ok(())
}
