//! Files of `config/` inside the binary, which runs without a folder beside it.

pub(crate) const DEFAULT: &str = include_str!("../../../config/default.toml");

/// Name and text of each model file. A test compares the list with the folder.
pub(crate) const MODELS: &[(&str, &str)] = &[
    ("builtin.toml", include_str!("../../../config/models/builtin.toml")),
    ("qwen3.5-0.8b.toml", include_str!("../../../config/models/qwen3.5-0.8b.toml")),
    ("qwen3.5-2b.toml", include_str!("../../../config/models/qwen3.5-2b.toml")),
    ("qwen3.5-4b.toml", include_str!("../../../config/models/qwen3.5-4b.toml")),
    ("qwen3.5-9b.toml", include_str!("../../../config/models/qwen3.5-9b.toml")),
    ("qwen3.5-27b.toml", include_str!("../../../config/models/qwen3.5-27b.toml")),
    ("qwen3.5-35b-a3b.toml", include_str!("../../../config/models/qwen3.5-35b-a3b.toml")),
    ("qwen3.5-122b-a10b.toml", include_str!("../../../config/models/qwen3.5-122b-a10b.toml")),
    ("qwen3.5-397b-a17b.toml", include_str!("../../../config/models/qwen3.5-397b-a17b.toml")),
    ("qwen3.6-27b.toml", include_str!("../../../config/models/qwen3.6-27b.toml")),
    ("qwen3.6-35b-a3b.toml", include_str!("../../../config/models/qwen3.6-35b-a3b.toml")),
];

pub(crate) const BUILT_IN_PRESET: &str = "builtin";
