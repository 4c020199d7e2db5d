use super::*;

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

fn write_tiny(shape: SynthShape, mixture: Mixture, threads: usize) -> (Vec<u8>, Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let mut last = (0, 0);
    let options = Options { shape, mixture, seed: 5, threads };
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

#[test]
fn a_shape_that_cannot_be_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let options = Options { shape: tiny(|shape| shape.kv_heads = 3), mixture: Mixture::F32, seed: 1, threads: 1 };
    let error = write(&options, &path, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.ends_with("shape 'Tiny': q_heads must be a multiple of kv_heads"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
