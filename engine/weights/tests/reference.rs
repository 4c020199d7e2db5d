//! Every reference model opens as a folder and as GGUF, and both hold the same numbers.

use std::path::PathBuf;

use kernels::format::{Format, dequantize};
use weights::{Ffn, HeadOrder, LayerKind, Matrix, Mixer, ModelWeights, Shape, VocabSource, open};

const MODELS: [&str; 6] = ["dense-tied", "dense-gva2", "dense-gva3", "dense-yarn", "dense-wide", "moe"];

fn reference(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference")).join(name)
}

fn folder(name: &str) -> ModelWeights {
    open(&reference(name), true).unwrap()
}

fn gguf(name: &str) -> ModelWeights {
    open(&reference(&format!("gguf/{name}.gguf")), true).unwrap()
}

fn values(matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.rows() * matrix.cols()];
    dequantize(matrix.format().unwrap(), matrix.data(), &mut out);
    out
}

/// Rows in units of `unit` heads' worth of rows: from grouped to tiled order.
fn tiled<T: Clone>(grouped: &[T], keys: usize, values: usize, per_head: usize) -> Vec<T> {
    assert_eq!(grouped.len(), values * per_head);
    let ratio = values / keys;
    let head = |h: usize| (h % keys) * ratio + h / keys;
    (0..values).flat_map(|h| grouped[head(h) * per_head..(head(h) + 1) * per_head].to_vec()).collect()
}

fn tiled_rows(grouped: &[f32], shape: &Shape, skip_rows: usize, rows_per_head: usize, cols: usize) -> Vec<f32> {
    let (plain, heads) = grouped.split_at(skip_rows * cols);
    let mut out = plain.to_vec();
    out.extend(tiled(heads, shape.key_heads, shape.value_heads, rows_per_head * cols));
    out
}

fn tiled_cols(grouped: &[f32], shape: &Shape) -> Vec<f32> {
    let row = shape.value_heads * shape.value_dim;
    grouped.chunks(row).flat_map(|row| tiled(row, shape.key_heads, shape.value_heads, shape.value_dim)).collect()
}

fn close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 1e-6 * a.abs().max(1.0), "{what}: {a} and {b}");
    }
}

#[test]
fn shapes_of_both_kinds_of_file_are_equal() {
    for name in MODELS {
        let (folder, gguf) = (folder(name), gguf(&format!("{name}.bf16")));
        assert_eq!(folder.shape.value_head_order, HeadOrder::Grouped);
        assert_eq!(gguf.shape.value_head_order, HeadOrder::Tiled);
        let as_gguf = Shape { value_head_order: HeadOrder::Tiled, ..folder.shape.clone() };
        assert_eq!(as_gguf, gguf.shape, "{name}");
        assert_eq!(folder.stop_tokens, gguf.stop_tokens, "{name}");
        assert!(folder.notes.is_empty() && gguf.notes.is_empty(), "{name}: {:?} {:?}", folder.notes, gguf.notes);
        assert_ne!(folder.fingerprint, gguf.fingerprint);
    }
}

#[test]
fn the_shapes_are_those_of_the_recipe() {
    use LayerKind::{Attention as A, Delta as D};
    let gva3 = folder("dense-gva3").shape;
    assert_eq!(gva3.layers, [D, D, D, A, D, D]);
    assert_eq!((gva3.key_heads, gva3.value_heads, gva3.key_dim, gva3.value_dim), (2, 6, 32, 32));
    assert_eq!((gva3.hidden, gva3.ffn, gva3.q_heads, gva3.kv_heads, gva3.head_dim), (64, 160, 4, 2, 32));
    assert_eq!((gva3.rope.theta, gva3.rope.dims, gva3.native_ctx, gva3.vocab), (1e7, 8, 4096, 512));
    assert!(!gva3.tied && gva3.moe.is_none() && gva3.rope.scaling.is_none());
    let moe = folder("moe").shape;
    let experts = moe.moe.unwrap();
    assert_eq!((experts.experts, experts.used, experts.expert_ffn, experts.shared_ffn), (8, 2, 48, 64));
    assert!(experts.renormalise && moe.arch == "qwen35moe" && moe.ffn == 0);
    let yarn = folder("dense-yarn").shape;
    assert!(yarn.tied);
    let scaling = yarn.rope.scaling.unwrap();
    assert_eq!((scaling.factor, scaling.original_ctx, scaling.beta_fast, scaling.beta_slow), (4.0, 128, 32.0, 1.0));
    assert!((scaling.magnitude - 1.138_629_4).abs() < 1e-6);
}

#[test]
fn weights_of_both_kinds_of_file_are_equal() {
    for name in MODELS {
        let (folder, gguf) = (folder(name), gguf(&format!("{name}.bf16")));
        let shape = &folder.shape;
        assert_eq!(values(&folder.embed), values(&gguf.embed), "{name}");
        assert_eq!(folder.output.as_ref().map(values), gguf.output.as_ref().map(values), "{name}");
        close(&folder.output_norm, &gguf.output_norm, name);
        for (i, (f, g)) in folder.layers.iter().zip(&gguf.layers).enumerate() {
            let at = |what: &str| format!("{name} layer {i} {what}");
            close(&f.attn_norm, &g.attn_norm, &at("attn_norm"));
            close(&f.ffn_norm, &g.ffn_norm, &at("ffn_norm"));
            match (&f.mixer, &g.mixer) {
                (Mixer::Attention(f), Mixer::Attention(g)) => {
                    for (what, f, g) in [("q", &f.q, &g.q), ("k", &f.k, &g.k), ("v", &f.v, &g.v), ("o", &f.o, &g.o)] {
                        assert_eq!(values(f), values(g), "{}", at(what));
                    }
                    close(&f.q_norm, &g.q_norm, &at("q_norm"));
                    close(&f.k_norm, &g.k_norm, &at("k_norm"));
                }
                (Mixer::Delta(f), Mixer::Delta(g)) => {
                    let (dim, hidden) = (shape.value_dim, shape.hidden);
                    let keys = 2 * shape.key_heads * shape.key_dim;
                    let order =
                        |values: Vec<f32>, skip, per_head, cols| tiled_rows(&values, shape, skip, per_head, cols);
                    assert_eq!(order(values(&f.qkv), keys, dim, hidden), values(&g.qkv), "{}", at("qkv"));
                    assert_eq!(order(values(&f.z), 0, dim, hidden), values(&g.z), "{}", at("z"));
                    assert_eq!(order(values(&f.a), 0, 1, hidden), values(&g.a), "{}", at("a"));
                    assert_eq!(order(values(&f.b), 0, 1, hidden), values(&g.b), "{}", at("b"));
                    assert_eq!(order(f.conv.clone(), keys, dim, shape.conv_kernel), g.conv, "{}", at("conv"));
                    close(&order(f.a_log_neg.clone(), 0, 1, 1), &g.a_log_neg, &at("a_log_neg"));
                    assert_eq!(order(f.dt_bias.clone(), 0, 1, 1), g.dt_bias, "{}", at("dt_bias"));
                    assert_eq!(tiled_cols(&values(&f.out), shape), values(&g.out), "{}", at("out"));
                    assert_eq!(f.norm, g.norm, "{}", at("norm"));
                }
                _ => panic!("{}", at("are of different kinds")),
            }
            match (&f.ffn, &g.ffn) {
                (Ffn::Dense(f), Ffn::Dense(g)) => {
                    for (f, g) in f.matrices().into_iter().zip(g.matrices()) {
                        assert_eq!(values(f), values(g), "{}", at("ffn"));
                    }
                }
                (Ffn::Moe(f), Ffn::Moe(g)) => {
                    assert_eq!(values(&f.router), values(&g.router));
                    assert_eq!((f.experts.len(), g.experts.len()), (8, 8));
                    for (f, g) in f.experts.iter().zip(&g.experts) {
                        for (f, g) in f.matrices().into_iter().zip(g.matrices()) {
                            assert_eq!(values(f), values(g), "{}", at("expert"));
                        }
                    }
                    let (f, g) = (f.shared.as_ref().unwrap(), g.shared.as_ref().unwrap());
                    for (f, g) in f.expert.matrices().into_iter().zip(g.expert.matrices()) {
                        assert_eq!(values(f), values(g), "{}", at("shared expert"));
                    }
                    assert_eq!(f.router, g.router);
                }
                _ => panic!("{}", at("are of different kinds")),
            }
        }
    }
}

#[test]
fn mapped_and_read_are_the_same_model() {
    for path in [reference("moe"), reference("gguf/moe.bf16.gguf")] {
        let mapped = open(&path, true).unwrap();
        let read = open(&path, false).unwrap();
        assert_eq!(mapped.fingerprint, read.fingerprint);
        assert_eq!(&mapped.embed.data()[..], &read.embed.data()[..]);
        assert_eq!(mapped.shape, read.shape);
    }
}

#[test]
fn quantised_files_keep_their_blocks() {
    let q4 = gguf("dense-wide.q4_k_m");
    assert_eq!(q4.embed.format(), Some(Format::Q4_K));
    assert_eq!(q4.output.unwrap().format(), Some(Format::Q6_K));
    let q8 = gguf("dense-wide.q8_0");
    assert_eq!(q8.embed.format(), Some(Format::Q8_0));
    let exact = values(&folder("dense-wide").embed);
    let error: f32 = exact.iter().zip(values(&q8.embed)).map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f32 = exact.iter().map(|a| a * a).sum();
    assert!((error / norm).sqrt() < 0.01, "{}", (error / norm).sqrt());
}

#[test]
fn vocabularies_come_along() {
    let VocabSource::Gguf { tokens, types, merges, pre } = gguf("moe.bf16").vocab else { panic!() };
    assert_eq!((tokens.len(), types.len(), &pre[..]), (512, 512, "qwen35"));
    assert_eq!(tokens[505], "<|im_end|>");
    assert_eq!(types[505], 3);
    assert_eq!(merges[0], "Ġ t");
    let VocabSource::Json(tokenizer) = folder("moe").vocab else { panic!() };
    assert_eq!(tokenizer, std::fs::read(reference("moe/tokenizer.json")).unwrap());
    // What ends a turn and what ends a text.
    assert_eq!(folder("moe").stop_tokens, [503, 505]);
}
