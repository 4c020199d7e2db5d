//! GGUF metadata to a shape.

use kernels::rotation::Yarn;

use crate::error::{Error, shown};
use crate::gguf::metadata::Metadata;
use crate::shape::{HeadOrder, LayerKind, Moe, Rope, Shape, yarn_magnitude};
use crate::tensors::Tensors;

/// Reads the keys of the file's own architecture.
pub(crate) struct Keys<'a> {
    pub metadata: &'a Metadata,
    pub arch: &'a str,
}

/// What the engine computes: `qwen35` and `qwen35moe`.
pub(crate) fn architecture(metadata: &Metadata) -> Result<&str, Error> {
    let path = metadata.path();
    const KEY: &str = "general.architecture";
    let arch = metadata.text(KEY)?.ok_or_else(|| metadata.missing(KEY, "qwen35 or qwen35moe"))?;
    if let Some(kind @ ("adapter" | "mmproj" | "imatrix")) = metadata.text("general.type")? {
        return Err(Error::unsupported(
            path,
            format!("holds a {kind}, not a model; give the file of the model itself"),
        ));
    }
    match arch {
        "qwen35" | "qwen35moe" => Ok(arch),
        "qwen3next" => Err(Error::unsupported(
            path,
            "architecture 'qwen3next' is not supported: it is an older sibling of the Qwen3.5 family with merged \
             projections; take a model of the family (qwen35, qwen35moe)",
        )),
        "clip" => {
            Err(Error::unsupported(path, "holds a vision encoder, not a model; give the file of the model itself"))
        }
        other => Err(Error::OtherFamily { path: path.to_path_buf(), arch: shown(other) }),
    }
}

pub(crate) fn shape(metadata: &Metadata, arch: &str, tensors: &Tensors) -> Result<Shape, Error> {
    let keys = Keys { metadata, arch };
    let path = metadata.path();
    let blocks = keys.size("block_count")?;
    // Each block has tensors: this bounds the list below by what the file really holds.
    if blocks > tensors.len() {
        let expected = format!("fewer than the file's {} tensors", tensors.len());
        return Err(keys.wrong("block_count", blocks, expected));
    }
    let mtp_blocks = keys.optional("nextn_predict_layers")?.unwrap_or(0);
    let trunk = match blocks.checked_sub(mtp_blocks) {
        Some(trunk) if trunk > 0 => trunk,
        _ => return Err(keys.wrong("nextn_predict_layers", mtp_blocks, format!("fewer than the {blocks} blocks"))),
    };
    let head_dim = keys.size("attention.key_length")?;
    let value_length = keys.optional("attention.value_length")?.unwrap_or(head_dim);
    if value_length != head_dim {
        return Err(keys.wrong("attention.value_length", value_length, format!("{head_dim}, as the keys have")));
    }
    let value_heads = keys.size("ssm.time_step_rank")?;
    let inner = keys.size("ssm.inner_size")?;
    if inner % value_heads != 0 {
        return Err(keys.wrong("ssm.inner_size", inner, format!("a multiple of the {value_heads} value heads")));
    }
    let moe = moe(&keys, tensors)?;
    let dims = tensors.dims("token_embd.weight");
    let Some(&[vocab, _]) = dims else {
        return Err(Error::tensor(
            path,
            "token_embd.weight",
            dims.map_or("no such tensor".into(), |d| format!("shape {d:?}")),
            "shape [vocabulary, hidden]",
        ));
    };
    let reordered = metadata.bool(&keys.name("ssm.v_head_reordered"))?.unwrap_or(true);
    let native_ctx = keys.required("context_length")?;
    let shape = Shape {
        arch: if moe.is_some() { "qwen35moe" } else { "qwen35" }.to_string(),
        layers: layers(&keys, blocks, trunk)?,
        hidden: keys.size("embedding_length")?,
        ffn: if moe.is_some() { 0 } else { keys.same_everywhere("feed_forward_length")? },
        q_heads: keys.same_everywhere("attention.head_count")?,
        kv_heads: keys.same_everywhere("attention.head_count_kv")?,
        head_dim,
        key_heads: keys.size("ssm.group_count")?,
        value_heads,
        key_dim: keys.size("ssm.state_size")?,
        value_dim: inner / value_heads,
        conv_kernel: keys.size("ssm.conv_kernel")?,
        value_head_order: if reordered { HeadOrder::Tiled } else { HeadOrder::Grouped },
        vocab,
        rms_eps: keys
            .float("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| metadata.missing(&keys.name("attention.layer_norm_rms_epsilon"), "a small number"))?
            as f32,
        rope: rope(&keys, head_dim, native_ctx)?,
        native_ctx,
        moe,
        tied: !tensors.has("output.weight"),
        mtp_blocks,
    };
    shape.check(path)?;
    Ok(shape)
}

fn moe(keys: &Keys, tensors: &Tensors) -> Result<Option<Moe>, Error> {
    let experts = keys.optional("expert_count")?.unwrap_or(0);
    if experts == 0 {
        if keys.arch == "qwen35moe" {
            return Err(keys.metadata.missing(&keys.name("expert_count"), "the number of experts"));
        }
        return Ok(None);
    }
    let gating = keys.optional("expert_gating_func")?.unwrap_or(1);
    if gating > 1 {
        return Err(keys.wrong("expert_gating_func", gating, "1: softmax".to_string()));
    }
    if let Some(scale) = keys.float("expert_weights_scale")?.filter(|&scale| scale != 0.0 && scale != 1.0) {
        return Err(Error::key(keys.metadata.path(), &keys.name("expert_weights_scale"), scale.to_string(), "1"));
    }
    // Converters may leave the widths out: then the first block's tensors tell them.
    let rows = |name: &str| tensors.dims(name).and_then(|dims| dims.iter().rev().nth(1)).copied();
    let expert_ffn = match keys.optional("expert_feed_forward_length")?.filter(|&width| width > 0) {
        Some(width) => width,
        None => rows("blk.0.ffn_gate_exps.weight")
            .or(rows("blk.0.ffn_gate_up_exps.weight").map(|both| both / 2))
            .ok_or_else(|| keys.metadata.missing(&keys.name("expert_feed_forward_length"), "the experts' width"))?,
    };
    let shared_ffn = match keys.optional("expert_shared_feed_forward_length")? {
        Some(width) => width,
        None => rows("blk.0.ffn_gate_shexp.weight").unwrap_or(0),
    };
    let mut renormalise = true;
    for key in ["norm_top_k_prob", "expert_weights_norm"] {
        renormalise &= keys.metadata.bool(&keys.name(key))?.unwrap_or(true);
    }
    Ok(Some(Moe { experts, used: keys.size("expert_used_count")?, expert_ffn, shared_ffn, renormalise }))
}

/// Which blocks of the trunk are attention: a list of flags, or the heads that are 0 in linear blocks, or every n-th.
fn layers(keys: &Keys, blocks: usize, trunk: usize) -> Result<Vec<LayerKind>, Error> {
    let kind = |recurrent: bool| if recurrent { LayerKind::Delta } else { LayerKind::Attention };
    let length = |key: &str, found: usize| {
        let found = format!("a list of {found}");
        Error::key(keys.metadata.path(), &keys.name(key), found, format!("one for each of the {blocks} blocks"))
    };
    let flags = keys.name("attention.recurrent_layers");
    if let Some(list) = keys.metadata.unsigned_list(&flags)? {
        if list.len() != blocks && list.len() != trunk {
            return Err(length("attention.recurrent_layers", list.len()));
        }
        if let Some(other) = list.iter().find(|&&flag| flag > 1) {
            return Err(Error::key(keys.metadata.path(), &flags, format!("{other} in the list"), "flags, 0 or 1"));
        }
        return Ok(list.iter().take(trunk).map(|&flag| kind(flag == 1)).collect());
    }
    if let Some(heads) = keys.metadata.unsigned_list(&keys.name("attention.head_count_kv"))?.filter(|h| h.contains(&0))
    {
        if heads.len() != blocks && heads.len() != trunk {
            return Err(length("attention.head_count_kv", heads.len()));
        }
        return Ok(heads.iter().take(trunk).map(|&heads| kind(heads == 0)).collect());
    }
    // The family's pattern, where a file says nothing.
    let interval = keys.optional("full_attention_interval")?.unwrap_or(4);
    if interval == 0 {
        return Err(keys.wrong("full_attention_interval", interval, "1 or more".to_string()));
    }
    Ok((0..trunk).map(|i| kind((i + 1) % interval != 0)).collect())
}

fn rope(keys: &Keys, head_dim: usize, native_ctx: usize) -> Result<Rope, Error> {
    let metadata = keys.metadata;
    let theta = keys.float("rope.freq_base")?;
    let theta = theta.ok_or_else(|| metadata.missing(&keys.name("rope.freq_base"), "the base of the rotation"))?;
    let dims = keys.optional("rope.dimension_count")?.unwrap_or(head_dim);
    let scaling = match metadata.text(&keys.name("rope.scaling.type"))? {
        None | Some("none" | "default" | "mrope") => None,
        Some("yarn") => Some(yarn(keys, native_ctx)?),
        Some(other) => {
            let key = keys.name("rope.scaling.type");
            return Err(Error::key(metadata.path(), &key, format!("'{}'", shown(other)), "none or yarn"));
        }
    };
    Ok(Rope { theta, dims, scaling })
}

fn yarn(keys: &Keys, native_ctx: usize) -> Result<Yarn, Error> {
    let factor = keys.float("rope.scaling.factor")?;
    let factor =
        factor.ok_or_else(|| keys.metadata.missing(&keys.name("rope.scaling.factor"), "how far to stretch"))?;
    let factor = factor as f32;
    // Two keys, two meanings: this one goes on top of the magnitude that belongs to the stretch,
    let on_top = keys.float("rope.scaling.attn_factor")?.filter(|&scale| scale != 1.0);
    let on_top = on_top.map(|scale| scale as f32 * yarn_magnitude(factor, 1.0));
    // and this one, which converters copy from the configuration's attention_factor, stands in its place.
    let instead = keys.float("rope.scaling.yarn_attn_factor")?.map(|scale| scale as f32);
    if let Some(other) = keys.float("rope.scaling.yarn_ext_factor")?.filter(|&ext| ext >= 0.0 && ext != 1.0) {
        let name = keys.name("rope.scaling.yarn_ext_factor");
        return Err(Error::key(keys.metadata.path(), &name, other.to_string(), "1: the whole of YaRN"));
    }
    Ok(Yarn {
        factor: factor.into(),
        original_ctx: keys.optional("rope.scaling.original_context_length")?.filter(|&n| n > 0).unwrap_or(native_ctx),
        beta_fast: f64::from(keys.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0) as f32),
        beta_slow: f64::from(keys.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0) as f32),
        magnitude: instead.or(on_top).unwrap_or_else(|| yarn_magnitude(factor, 1.0)),
        truncate: true,
    })
}

impl Keys<'_> {
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    pub fn optional(&self, key: &str) -> Result<Option<usize>, Error> {
        let name = self.name(key);
        match self.metadata.unsigned(&name)? {
            None => Ok(None),
            Some(number) => match usize::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Error::key(self.metadata.path(), &name, number.to_string(), "one that fits into memory")),
            },
        }
    }

    pub fn required(&self, key: &str) -> Result<usize, Error> {
        self.optional(key)?.ok_or_else(|| self.metadata.missing(&self.name(key), "a whole number"))
    }

    /// A dimension: at least one. What is too much is the shape's own check.
    pub fn size(&self, key: &str) -> Result<usize, Error> {
        match self.required(key)? {
            0 => Err(self.wrong(key, 0, "1 or more".to_string())),
            size => Ok(size),
        }
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.metadata.float(&self.name(key))
    }

    /// A number, or a list with one for each block: all the same, but for zeros where a block has none of it.
    fn same_everywhere(&self, key: &str) -> Result<usize, Error> {
        let name = self.name(key);
        let Some(list) = self.metadata.unsigned_list(&name)? else { return self.size(key) };
        let mut numbers = list.iter().copied().filter(|&number| number != 0);
        let first = numbers.next().unwrap_or(0);
        if let Some(other) = numbers.find(|&number| number != first) {
            return Err(Error::key(self.metadata.path(), &name, format!("{first} and {other}"), "one number for all"));
        }
        match usize::try_from(first) {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(Error::key(self.metadata.path(), &name, first.to_string(), "1 or more")),
        }
    }

    fn wrong(&self, key: &str, found: usize, expected: String) -> Error {
        Error::key(self.metadata.path(), &self.name(key), found.to_string(), expected)
    }
}
