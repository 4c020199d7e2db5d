//! Models and adapters of the golden file, as other programs made and merged them.

use crate::folders::{Values, data, values_of, write_model};

/// The golden tensors whose names begin so, without that beginning.
pub fn golden(part: &str) -> Values {
    let all = values_of(&data().join("golden.safetensors")).into_iter();
    let values: Values = all.filter_map(|(name, value)| Some((name.strip_prefix(part)?.to_owned(), value))).collect();
    assert!(!values.is_empty(), "{part}");
    values
}

pub fn golden_models() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for model in ["base", "a", "b"] {
        write_model(&folder.path().join(model), &golden(&format!("{model}/")));
    }
    for recipe in std::fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path()) {
        if recipe.extension().is_some_and(|extension| extension == "yaml") {
            std::fs::copy(&recipe, folder.path().join(recipe.file_name().unwrap())).unwrap();
        }
    }
    folder
}
