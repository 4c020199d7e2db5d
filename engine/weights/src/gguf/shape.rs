//! GGUF metadata to a shape.

use kernels::rotation::Yarn;

use crate::error::{Error, shown};
use crate::family::{self, Architecture, Family, Known};
use crate::gguf::metadata::Metadata;
use crate::shape::{HeadOrder, LayerKind, Moe, Rope, Shape, yarn_magnitude};
use crate::tensors::Tensors;

pub(crate) struct Keys<'a> {
    pub metadata: &'a Metadata,
    pub arch: &'a str,
}

pub(crate) fn architecture(metadata: &Metadata) -> Result<(&'static Family, &'static Architecture), Error> {
    let path = metadata.path();
    const KEY: &str = "general.architecture";
    let arch = metadata.text(KEY)?.ok_or_else(|| metadata.missing(KEY, &family::all_architectures()))?;
    let other =
        |kind: &str| Err(Error::file(path, format!("holds a {kind}, not a model; give the file of the model itself")));
    match (metadata.text("general.type")?, arch) {
        (Some(kind @ ("adapter" | "mmproj" | "imatrix")), _) => other(kind),
        (_, "clip") => other("vision encoder"),
        _ => match family::of_gguf(arch) {
            Known::Family(family, architecture) => Ok((family, architecture)),
            Known::OlderSibling(family) => {
                Err(Error::older_sibling(path, arch, &family.name, &family.architecture_names()))
            }
            Known::Other => Err(Error::other_family(path, arch)),
        },
    }
}

pub(crate) fn shape(
    metadata: &Metadata,
    (family, architecture): (&Family, &Architecture),
    tensors: &Tensors,
) -> Result<Shape, Error> {
    let keys = Keys { metadata, arch: &architecture.name };
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
    let moe = moe(&keys, architecture, tensors)?;
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
        arch: family.architecture(moe.is_some()).to_string(),
        layers: layers(&keys, family, blocks, trunk)?,
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
        rms_eps: keys.needed("attention.layer_norm_rms_epsilon", "a small number")? as f32,
        rope: rope(&keys, head_dim, native_ctx)?,
        native_ctx,
        moe,
        tied: !tensors.has("output.weight"),
        mtp_blocks,
    };
    shape.check(path)?;
    Ok(shape)
}

fn moe(keys: &Keys, architecture: &Architecture, tensors: &Tensors) -> Result<Option<Moe>, Error> {
    let experts = keys.optional("expert_count")?.unwrap_or(0);
    if experts == 0 {
        if architecture.has_experts {
            return Err(keys.missing("expert_count", "the number of experts"));
        }
        return Ok(None);
    }
    let gating = keys.optional("expert_gating_func")?.unwrap_or(1);
    if gating > 1 {
        return Err(keys.wrong("expert_gating_func", gating, "1: softmax"));
    }
    if let Some(scale) = keys.float("expert_weights_scale")?.filter(|&scale| scale != 0.0 && scale != 1.0) {
        return Err(keys.wrong("expert_weights_scale", scale, "1"));
    }
    // Converters may leave the widths out: then the first block's tensors tell them.
    let rows = |name: &str| tensors.dims(name).and_then(|dims| dims.iter().rev().nth(1)).copied();
    let expert_ffn = match keys.optional("expert_feed_forward_length")?.filter(|&width| width > 0) {
        Some(width) => width,
        None => rows("blk.0.ffn_gate_exps.weight")
            .or(rows("blk.0.ffn_gate_up_exps.weight").map(|both| both / 2))
            .ok_or_else(|| keys.missing("expert_feed_forward_length", "the experts' width"))?,
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

/// Reads the kinds of the trunk's blocks from a list of flags, or from heads that are 0 in linear blocks, or from every n-th.
fn layers(keys: &Keys, family: &Family, blocks: usize, trunk: usize) -> Result<Vec<LayerKind>, Error> {
    let kind = |recurrent: bool| if recurrent { LayerKind::Delta } else { LayerKind::Attention };
    let list = |key: &str| match keys.metadata.unsigned_list(&keys.name(key))? {
        Some(list) if list.len() != blocks && list.len() != trunk => {
            let expected = format!("one for each of the {blocks} blocks");
            Err(keys.wrong(key, format!("a list of {}", list.len()), expected))
        }
        list => Ok(list),
    };
    const FLAGS: &str = "attention.recurrent_layers";
    if let Some(flags) = list(FLAGS)? {
        if let Some(other) = flags.iter().find(|&&flag| flag > 1) {
            return Err(keys.wrong(FLAGS, format!("{other} in the list"), "flags, 0 or 1"));
        }
        return Ok(flags.iter().take(trunk).map(|&flag| kind(flag == 1)).collect());
    }
    const HEADS: &str = "attention.head_count_kv";
    if keys.metadata.unsigned_list(&keys.name(HEADS))?.is_some_and(|heads| heads.contains(&0))
        && let Some(heads) = list(HEADS)?
    {
        return Ok(heads.iter().take(trunk).map(|&heads| kind(heads == 0)).collect());
    }
    // The family's pattern, where a file says nothing.
    let interval = keys.optional("full_attention_interval")?.unwrap_or(family.attention_every);
    if interval == 0 {
        return Err(keys.wrong("full_attention_interval", interval, "1 or more"));
    }
    Ok((0..trunk).map(|i| kind((i + 1) % interval != 0)).collect())
}

fn rope(keys: &Keys, head_dim: usize, native_ctx: usize) -> Result<Rope, Error> {
    let theta = keys.needed("rope.freq_base", "the base of the rotation")?;
    let dims = keys.optional("rope.dimension_count")?.unwrap_or(head_dim);
    const SCALING: &str = "rope.scaling.type";
    let scaling = match keys.metadata.text(&keys.name(SCALING))? {
        None | Some("none" | "default" | "mrope") => None,
        Some("yarn") => Some(yarn(keys, native_ctx)?),
        Some(other) => return Err(keys.wrong(SCALING, format!("'{}'", shown(other)), "none or yarn")),
    };
    Ok(Rope { theta, dims, scaling })
}

fn yarn(keys: &Keys, native_ctx: usize) -> Result<Yarn, Error> {
    let factor = keys.needed("rope.scaling.factor", "how far to stretch")? as f32;
    // Two keys, two meanings: this one goes on top of the magnitude that belongs to the stretch,
    let on_top = keys.float("rope.scaling.attn_factor")?.filter(|&scale| scale != 1.0);
    let on_top = on_top.map(|scale| scale as f32 * yarn_magnitude(factor, 1.0));
    // and this one, which converters copy from the configuration's attention_factor, stands in its place.
    let instead = keys.float("rope.scaling.yarn_attn_factor")?.map(|scale| scale as f32);
    if let Some(other) = keys.float("rope.scaling.yarn_ext_factor")?.filter(|&ext| ext >= 0.0 && ext != 1.0) {
        return Err(keys.wrong("rope.scaling.yarn_ext_factor", other, "1: the whole of YaRN"));
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
        let fitting =
            |number: u64| usize::try_from(number).map_err(|_| self.wrong(key, number, "one that fits into memory"));
        self.metadata.unsigned(&self.name(key))?.map(fitting).transpose()
    }

    pub fn required(&self, key: &str) -> Result<usize, Error> {
        self.optional(key)?.ok_or_else(|| self.missing(key, "a whole number"))
    }

    /// Reads a dimension of at least one. `Shape::check` finds one that is too large.
    pub fn size(&self, key: &str) -> Result<usize, Error> {
        match self.required(key)? {
            0 => Err(self.wrong(key, 0, "1 or more")),
            size => Ok(size),
        }
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.metadata.float(&self.name(key))
    }

    fn needed(&self, key: &str, expected: &str) -> Result<f64, Error> {
        self.float(key)?.ok_or_else(|| self.missing(key, expected))
    }

    /// Reads a number, or a list with equal numbers for all blocks, apart from zeros.
    fn same_everywhere(&self, key: &str) -> Result<usize, Error> {
        let Some(list) = self.metadata.unsigned_list(&self.name(key))? else { return self.size(key) };
        let mut numbers = list.iter().copied().filter(|&number| number != 0);
        let first = numbers.next().unwrap_or(0);
        if let Some(other) = numbers.find(|&number| number != first) {
            return Err(self.wrong(key, format!("{first} and {other}"), "one number for all"));
        }
        match usize::try_from(first) {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(self.wrong(key, first, "1 or more")),
        }
    }

    fn missing(&self, key: &str, expected: &str) -> Error {
        self.metadata.missing(&self.name(key), expected)
    }

    fn wrong(&self, key: &str, found: impl ToString, expected: impl Into<String>) -> Error {
        Error::key(self.metadata.path(), &self.name(key), found.to_string(), expected)
    }
}
