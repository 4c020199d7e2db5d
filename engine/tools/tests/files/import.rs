use std::collections::BTreeSet;

use testing::folder::Files;
use testing::golden::{assert_near_golden, reference_models};
use tools::mixture::Mixture;
use weights::VocabSource;

use crate::support::{FOLDERS, error, file, import, logits, tensor, theirs, values};

#[test]
fn every_reference_model_computes_what_its_folder_computes() {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = (0..48).map(|i| (i * 37 + 11) % 500).collect();
    for name in FOLDERS {
        let source = reference_models().join(name);
        let expected = logits(&source, &tokens);
        for mixture in [None, Some(Mixture::F32)] {
            let out = folder.path().join(format!("{name}.gguf"));
            let report = import(&source, &out, mixture).unwrap();
            assert_eq!(report.bytes, std::fs::metadata(&out).unwrap().len());
            assert_near_golden(&format!("{name} {mixture:?}"), &logits(&out, &tokens), &expected, 1e-5);
        }
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), FOLDERS.len(), "nothing unfinished is left");
}

#[test]
fn files_are_those_of_the_ecosystems_converter() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ours.gguf");
    for name in FOLDERS.into_iter().filter(|&name| name != "dense-mtp") {
        import(&reference_models().join(name), &out, None).unwrap();
        let (ours, theirs) = (file(&out), file(&theirs(&format!("{name}.bf16"))));
        let names = |file: &weights::gguf::GgufFile| -> BTreeSet<String> {
            file.tensors.iter().map(|tensor| tensor.name.clone()).collect()
        };
        assert_eq!(names(&ours), names(&theirs), "{name}");
        for expected in &theirs.tensors {
            let found = tensor(&ours, &expected.name);
            assert_eq!((&found.dims, found.format), (&expected.dims, expected.format), "{name} {}", expected.name);
            // The converter takes the exponent in f32.
            if expected.name.ends_with("ssm_a") {
                assert!(error(&values(found), &values(expected)) < 1e-7, "{name} {}", expected.name);
            } else {
                assert!(found.data[..] == expected.data[..], "{name} {} differs", expected.name);
            }
        }
        let own = ["general.name", "general.size_label"];
        for (key, value) in theirs.keys.iter().filter(|(key, _)| !own.contains(&key.as_str())) {
            let found = ours.keys.iter().find(|(ours, _)| ours == key).unwrap_or_else(|| panic!("{name}: no {key}"));
            assert!(found.1[..] == value[..], "{name}: {key} differs");
        }
    }
}

#[test]
fn a_block_for_prediction_and_what_a_folder_says_besides_come_along() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ours.gguf");
    let mut files = Files::reference("dense-mtp");
    files.chat_template = Some("{{ messages }}".into());
    files.generation_config = Some(serde_json::json!({"eos_token_id": [505, 503, 7]}));
    files.write(folder.path(), 3);
    import(folder.path(), &out, Some(Mixture::F32)).unwrap();
    let (ours, source) = (weights::open(&out, true).unwrap(), weights::open(folder.path(), true).unwrap());
    assert_eq!((ours.shape.mtp_blocks, ours.stop_tokens), (1, vec![7, 503, 505]));
    assert_eq!(ours.chat_template.as_deref(), Some("{{ messages }}"));
    let (ours, source) = (ours.prediction.unwrap(), source.prediction.unwrap());
    assert_eq!((ours.output_norm, ours.state_norm), (source.output_norm, source.state_norm));
    let row = |matrix: &weights::Matrix| {
        let mut row = vec![0.0; matrix.cols()];
        matrix.row(3, &mut row);
        row
    };
    assert_eq!(row(&ours.join), row(&source.join));
}

#[test]
fn tokens_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ours.gguf");
    let source = reference_models().join("dense-wide");
    import(&source, &out, None).unwrap();
    let VocabSource::Gguf { tokens, types, merges, pre } = weights::open(&out, true).unwrap().vocab else { panic!() };
    let ours = text::Tokenizer::from_gguf(tokens, &types, merges, &pre).unwrap();
    let json = std::fs::read(source.join("tokenizer.json")).unwrap();
    let expected = text::Tokenizer::from_json(&json).unwrap();
    let text = "<|im_start|>user\nWie warm ist es, 23 °C? <think>\n\n</think> naïve 日本語 🦀<|im_end|>\n";
    assert_eq!(ours.encode(text), expected.encode(text));
    assert!(ours.encode(text).len() > 10);
}
