use super::*;
use weights::{Ffn, LayerKind, Matrix, Mixer, ModelBytes, ModelWeights};

const TINY: &str = r#"
name = "Tiny"
layers = 4
attention_every = 2
hidden = 256
ffn = 512
q_heads = 4
kv_heads = 2
head_dim = 64
rope_dims = 16
rope_sections = [3, 3, 2, 0]
rope_theta = 10000.0
key_heads = 2
value_heads = 4
key_dim = 32
value_dim = 32
conv_kernel = 4
rms_eps = 1e-6
vocab = 1024
native_ctx = 512
tied = false
"#;

fn tiny(changes: impl Fn(&mut SynthShape)) -> SynthShape {
    let mut shape = SynthShape::parse(TINY, Path::new("tiny.toml")).unwrap();
    changes(&mut shape);
    shape
}

fn write_tiny(shape: SynthShape, mixture: Mixture, threads: usize) -> (Vec<u8>, SynthReport) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let mut last = (0, 0);
    let options = SynthOptions { shape, mixture, seed: 5, threads };
    let report = write(&options, &path, &mut |written, total| last = (written, total)).unwrap();
    assert_eq!(last.0, last.1, "progress ends at the whole");
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["tiny.gguf"], "nothing unfinished is left");
    (std::fs::read(path).unwrap(), report)
}

#[test]
fn the_file_does_not_depend_on_the_threads() {
    let (one, report) = write_tiny(tiny(|_| ()), Mixture::Q4_K_M, 1);
    let (three, _) = write_tiny(tiny(|_| ()), Mixture::Q4_K_M, 3);
    assert!(one == three);
    assert_eq!(report.bytes, one.len() as u64);
}

/// The same but for its values: tensors, sizes, shape, vocabulary.
#[test]
fn an_outline_is_the_file_without_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outline.gguf");
    for mixture in [Mixture::Q4_K_M, Mixture::BF16] {
        outline(&tiny(|_| ()), mixture, &path).unwrap();
        let (whole, _) = write_tiny(tiny(|_| ()), mixture, 1);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), whole.len() as u64);
        let open = |bytes: &[u8]| weights::gguf::from_bytes(&path, ModelBytes::copy_of(bytes)).unwrap();
        let (ours, whole) = (open(&std::fs::read(&path).unwrap()), open(&whole));
        assert_eq!(ours.shape, whole.shape);
        let sizes = |model: &ModelWeights| {
            let head =
                model.output.iter().chain([&model.embed]).map(|m| (m.format(), m.rows(), m.cols())).collect::<Vec<_>>();
            (head, model.layers.len())
        };
        assert_eq!(sizes(&ours), sizes(&whole));
    }
}

#[test]
fn a_block_for_multi_token_prediction_is_read_back() {
    for (moe, mixture) in [(None, Mixture::F32), (Some(MOE), Mixture::Q4_K_M)] {
        let shape = tiny(|shape| (shape.mtp, shape.moe) = (true, moe.clone()));
        let model = open_tiny(shape, mixture);
        assert_eq!((model.layers.len(), model.shape.mtp_blocks, &model.notes[..]), (4, 1, &[][..]));
        let block = model.prediction.unwrap();
        assert_eq!((block.join.rows(), block.join.cols()), (256, 512));
        assert_eq!(matches!(block.ffn, Ffn::Moe(_)), moe.is_some());
        assert!((deviation(&values(&block.join)) * 512f64.sqrt() - 1.6).abs() < 0.05);
    }
    assert!(open_tiny(tiny(|_| ()), Mixture::F32).prediction.is_none());
}

const MOE: MoeShape = MoeShape { experts: 4, used: 2, expert_ffn: 64, shared_ffn: 32 };

#[test]
fn a_shape_that_cannot_be_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let options = SynthOptions { shape: tiny(|shape| shape.kv_heads = 3), mixture: Mixture::F32, seed: 1, threads: 1 };
    let error = write(&options, &path, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.ends_with("shape 'Tiny': q_heads must be a multiple of kv_heads"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

fn open_tiny(shape: SynthShape, mixture: Mixture) -> ModelWeights {
    let (bytes, _) = write_tiny(shape, mixture, 2);
    weights::gguf::from_bytes(Path::new("tiny.gguf"), ModelBytes::copy_of(&bytes)).unwrap()
}

fn values(matrix: &Matrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.cols()];
    format::dequantize(matrix.format().unwrap(), matrix.data(), &mut values);
    values
}

fn deviation(values: &[f32]) -> f64 {
    let square: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
    (square / values.len() as f64).sqrt()
}

#[test]
fn our_reader_reads_it_back() {
    let shape = tiny(|_| ());
    let model = open_tiny(shape.clone(), Mixture::F32);
    assert_eq!(model.shape.arch, "qwen35");
    let attention: Vec<bool> = model.shape.layers.iter().map(|&kind| kind == LayerKind::Attention).collect();
    assert_eq!(attention, [false, true, false, true]);
    assert_eq!((model.shape.hidden, model.shape.ffn, model.shape.vocab), (256, 512, 1024));
    assert_eq!((model.shape.key_heads, model.shape.value_heads), (2, 4));
    assert_eq!((model.shape.key_dim, model.shape.value_dim), (32, 32));
    assert_eq!((model.shape.rope.dims, model.shape.native_ctx), (16, 512));
    assert_eq!(model.notes, Vec::<String>::new());
    assert_eq!(model.chat_template.as_deref(), Some(include_str!("../../data/chat_template.jinja")));
    // <|endoftext|> and <|im_end|>
    assert_eq!(model.stop_tokens, [1015, 1017]);

    let Mixer::Delta(delta) = &model.layers[0].mixer else { panic!("layer 0 is linear") };
    assert_eq!(delta.a_log_neg.len(), 4);
    assert!(delta.a_log_neg.iter().all(|a| (-8.0..=-0.02).contains(a)), "{:?}", delta.a_log_neg);
    assert!((deviation(&values(&delta.qkv)) * 16.0 - 1.6).abs() < 0.05);
    let head = values(model.output.as_ref().unwrap());
    let rows: Vec<f64> = head.chunks(256).map(deviation).collect();
    let loudest = rows.iter().copied().fold(0.0, f64::max);
    assert_eq!(rows[1000], 0.0, "a reserved token");
    assert!(rows[1017] > 0.0 && rows[1017] < 0.3 * loudest, "a control token: {} of {loudest}", rows[1017]);
}

#[test]
fn experts_and_tied_heads_are_read_back() {
    let shape = tiny(|shape| {
        shape.tied = true;
        shape.ffn = 0;
        shape.moe = Some(MOE);
    });
    let model = open_tiny(shape, Mixture::Q8_0);
    assert_eq!(model.shape.arch, "qwen35moe");
    assert!(model.output.is_none());
    let moe = model.shape.moe.as_ref().unwrap();
    assert_eq!((moe.experts, moe.used, moe.expert_ffn, moe.shared_ffn), (4, 2, 64, 32));
    let Ffn::Moe(ffn) = &model.layers[1].ffn else { panic!("a layer with experts") };
    assert_eq!(ffn.experts.len(), 4);
    assert_eq!(ffn.experts[3].down.cols(), 64);
    assert!(ffn.shared.is_some());
    assert!((deviation(&values(&ffn.experts[3].gate)) * 16.0 - 1.6).abs() < 0.05);
}

fn formats(model: &ModelWeights) -> Vec<(String, &'static str)> {
    let mut list = vec![("embed".to_string(), model.embed.format().unwrap().name())];
    list.extend(model.output.iter().map(|head| ("head".to_string(), head.format().unwrap().name())));
    for (i, layer) in model.layers.iter().enumerate() {
        let mut add = |part: &str, matrix: &Matrix| list.push((format!("{i}.{part}"), matrix.format().unwrap().name()));
        match &layer.mixer {
            Mixer::Attention(w) => {
                [("q", &w.q), ("k", &w.k), ("v", &w.v), ("o", &w.o)]
                    .into_iter()
                    .for_each(|(part, matrix)| add(part, matrix));
            }
            Mixer::Delta(w) => {
                let parts = [("qkv", &w.qkv), ("z", &w.z), ("a", &w.a), ("b", &w.b), ("out", &w.out)];
                parts.into_iter().for_each(|(part, matrix)| add(part, matrix));
            }
        }
        if let Ffn::Dense(weights) = &layer.ffn {
            ["gate", "up", "down"].into_iter().zip(weights.matrices()).for_each(|(part, matrix)| add(part, matrix));
        }
    }
    list
}

/// The recipe of the reference file is in `tests/data/reference/README.md`: the ecosystem's own quantiser.
#[test]
fn the_mixture_is_that_of_the_ecosystem() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/gguf/dense-wide.q4_k_m.gguf");
    let reference = weights::open(Path::new(path), false).unwrap();
    let shape = tiny(|shape| {
        shape.attention_every = 4;
        (shape.key_dim, shape.value_dim) = (64, 64);
    });
    let ours = open_tiny(shape, Mixture::Q4_K_M);
    assert_eq!(formats(&ours), formats(&reference));
}
