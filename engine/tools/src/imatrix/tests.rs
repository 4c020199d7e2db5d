use super::*;
use testing::gguf::{File, Value};

fn small() -> Imatrix {
    let entry = |sums: &[f32], counts: &[f32]| ImatrixEntry { sums: sums.into(), counts: counts.into() };
    Imatrix {
        path: PathBuf::new(),
        datasets: vec!["words.txt".into()],
        chunk_count: 3,
        chunk_size: 512,
        entries: [
            ("blk.0.attn_q.weight".to_string(), entry(&[2.0, 4.0, 6.0], &[2.0])),
            ("blk.0.ffn_up_exps.weight".to_string(), entry(&[2.0, 4.0, 6.0, 8.0], &[2.0, 0.0])),
        ]
        .into(),
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("im.gguf");
    small().write(&path).unwrap();
    let read = Imatrix::read(&path).unwrap();
    assert_eq!(read, Imatrix { path, ..small() });
}

#[test]
fn importance_is_the_mean_square() {
    let matrix = small();
    assert_eq!(matrix.importance("blk.0.attn_q.weight", 3, 1).unwrap().unwrap(), [1.0, 2.0, 3.0]);
    let experts = matrix.importance("blk.0.ffn_up_exps.weight", 2, 2).unwrap().unwrap();
    assert_eq!(experts, [1.0, 2.0, 1.0, 1.0], "an expert that no token reached");
    assert_eq!(matrix.importance("output.weight", 3, 1), Ok(None));
    let error = matrix.importance("blk.0.attn_q.weight", 4, 1).unwrap_err();
    assert_eq!(error, "3 sums and 1 counts: expected 4 and 1; it was made for another model");
}

#[test]
fn the_older_form_is_read() {
    let mut bytes = Vec::new();
    let mut put = |number: i32| bytes.extend(number.to_le_bytes());
    put(1);
    put(1);
    bytes.push(b'w');
    for number in [2i32, 2] {
        bytes.extend(number.to_le_bytes());
    }
    [3.0f32, 5.0].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("im.dat");
    std::fs::write(&path, &bytes).unwrap();
    let read = Imatrix::read(&path).unwrap();
    assert_eq!(read.importance("w", 2, 1).unwrap().unwrap(), [1.5, 2.5]);
    for len in 0..bytes.len() {
        std::fs::write(&path, &bytes[..len]).unwrap();
        assert!(Imatrix::read(&path).is_err(), "cut to {len}");
    }
}

#[test]
fn damaged_files_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("im.gguf");
    let error = |file: &File| {
        std::fs::write(&path, file.bytes()).unwrap();
        Imatrix::read(&path).unwrap_err().to_string()
    };
    let mut file = File::default();
    file.set("general.type", Value::Text("imatrix".into()));
    assert!(error(&file).contains("of no tensor"));
    file.add("w.in_sum2", &[1, 2], &[1.0, 2.0]);
    assert!(error(&file).contains("'w.counts' is missing"));
    file.add("w.counts", &[1, 1], &[-1.0]);
    assert!(error(&file).contains("-1: expected none below zero"));
    file.tensor("w.counts").data = f32::NAN.to_le_bytes().to_vec();
    assert!(error(&file).contains("NaN"));
    file.set("general.type", Value::Text("model".into()));
    assert!(error(&file).contains("no importance matrix"));
}
