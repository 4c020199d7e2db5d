//! Windows that cards hold, by the plan that the engine makes and keeps to, of files that have the sizes alone.

use engine::state::{KvFormats, StateShape};
use engine::{DeviceFacts, DeviceLimits, DeviceMemoryPlan, EngineLimits, LongestConversation};
use gpu::device::GpuMemory;
use kernels::format::Format;
use kernels::product::Precision;
use tools::mixture::Mixture;
use tools::synth::{SynthShape, outline};

// The service's own on a GPU.
const LIMITS: EngineLimits = EngineLimits {
    prefill_chunk_tokens: 1024,
    max_sequences: 8,
    max_waiting: 64,
    max_logit_bias: 64,
    memory_bytes: usize::MAX,
    moved_snapshot_bytes: 0,
    snapshots: Format::BF16,
    snapshot_spacing_tokens: 256,
    recurrence_log_tokens: 128,
    heads: 16,
};
const MIB: usize = 1 << 20;
const WHOLE: usize = usize::MAX; // the plan takes the model's own window

fn plan(shape: &str, quant: &str, kv: KvFormats, tokens: usize, card_gib: usize) -> (DeviceMemoryPlan, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outline.gguf");
    outline(&SynthShape::find(shape).unwrap(), Mixture::from_name(quant).unwrap(), &file).unwrap();
    let model = weights::open(&file, true).unwrap();
    let longest = LongestConversation { limits: LIMITS, kv, tokens };
    let limits = DeviceLimits {
        total_bytes: None,
        host_free_bytes: None,
        chunk_tokens: 1024,
        lanes: 8,
        ffn_layers: None,
        longest: Some(longest),
    };
    let card = DeviceFacts::imagined(card_gib << 30);
    let plan = DeviceMemoryPlan::new(&card, &model, Precision::Integer, &limits).unwrap();
    let without = LIMITS.bytes_of(&StateShape::new(&model.shape), kv, 0).unwrap();
    let (page, tokens) = (StateShape::new(&model.shape), tokens.min(model.shape.native_ctx));
    let page_bytes = page.page_bytes(&page.layout(kv).unwrap());
    println!(
        "{shape} in {quant} on {card_gib} GiB, {tokens} tokens: weights {} MiB, a step of {} tokens {} MiB, {} MiB left, of \
         which a conversation takes {} beside keys and values; {} of {} layers",
        plan.weight_bytes / MIB,
        plan.chunk_tokens,
        plan.scratch_bytes / MIB,
        plan.left_bytes / MIB,
        (without - page_bytes) / MIB,
        plan.ffn_layers,
        plan.layers
    );
    assert!(plan.weight_bytes + plan.scratch_bytes + plan.left_bytes <= (card_gib << 30) / 20 * 19 + 20);
    (plan, without - page_bytes)
}

#[test]
fn a_9b_keeps_all_layers_on_a_card_of_8_gib() {
    use Format::*;
    let q8_q4 = KvFormats::new(Q8_0, Q4_0);
    for (quant, kv, tokens) in [
        ("q4_k_m", q8_q4, 195_072),
        ("iq4_xs", q8_q4, 195_072),
        ("q4_k_m", KvFormats::new(TQ4, TQ4), WHOLE),
        ("iq4_xs", KvFormats::new(TQ4, TQ4), WHOLE),
    ] {
        let (plan, conversation) = plan("9B", quant, kv, tokens, 8);
        assert_eq!(plan.ffn_layers, plan.layers, "{quant} {kv:?}");
        // The aim is 200 MiB for a step. A longer one is taken where it fits.
        let step = plan.scratch_bytes * 256 / plan.chunk_tokens;
        assert!(conversation <= 250 * MIB && step <= 200 * MIB, "{plan:?}");
    }
}

#[test]
fn a_35b_a3b_keeps_its_whole_window_on_a_card_of_24_gib() {
    let (plan, _) = plan("35B-A3B", "q4_k_m", KvFormats::new(Format::Q8_0, Format::Q4_0), WHOLE, 24);
    assert_eq!(plan.ffn_layers, plan.layers);
}

#[test]
fn a_gpu_without_memory_of_its_own_has_what_the_system_has_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outline.gguf");
    outline(&SynthShape::find("0.8B").unwrap(), Mixture::from_name("q4_k_m").unwrap(), &file).unwrap();
    let model = weights::open(&file, true).unwrap();
    let total = |memory: GpuMemory, host_free_bytes: Option<usize>| {
        let card = DeviceFacts { memory, ..DeviceFacts::imagined(32 << 30) };
        let (total_bytes, ffn_layers, longest) = (None, None, None);
        let limits = DeviceLimits { total_bytes, host_free_bytes, chunk_tokens: 256, lanes: 2, ffn_layers, longest };
        DeviceMemoryPlan::new(&card, &model, Precision::Integer, &limits).unwrap().total_bytes
    };
    let but_a_twentieth = |gib: usize| (gib << 30) - (gib << 30) / 20;
    assert_eq!(total(GpuMemory::Shared, Some(8 << 30)), but_a_twentieth(8));
    assert_eq!(total(GpuMemory::Shared, Some(64 << 30)), but_a_twentieth(32), "the driver allows less");
    assert_eq!(total(GpuMemory::Shared, None), but_a_twentieth(32));
    assert_eq!(total(GpuMemory::Separate, Some(8 << 30)), but_a_twentieth(32));
}
