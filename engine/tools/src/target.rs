//! Tensors that adapters change, and the modules whose matrices they hold.

use weights::{Adapter, FileTensor, LowRank, Matrix, module_of, name_in_folder};

/// Last names of the modules that an adapter changes: attention, linear attention, feed-forward.
pub const TARGETS: [&str; 12] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_a",
    "in_proj_b",
    "out_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// Stack of experts whose rows are those of two modules.
pub const TWO_PARTS: &str = "gate_up_proj";
pub const DOWN: &str = "down_proj";

/// Tensor whose matrices an extracted adapter changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Path of the module as a checkpoint has it; of a stack, that of the parameter.
    pub path: String,
    pub count: usize, // of matrices: 1, or one for each expert
    pub rows: usize,
    pub cols: usize,
}

impl Target {
    /// Returns the target that a tensor is. `layers` are the model's, behind which a GGUF file has its block for prediction. None: an
    /// adapter leaves the tensor as it is.
    pub fn of(tensor: &FileTensor, layers: usize) -> Option<Target> {
        let path = path_of(&tensor.name, layers);
        let (parent, last) = path.rsplit_once('.')?;
        let is_module = tensor.name.ends_with(".weight") && TARGETS.contains(&last);
        let (count, rows, cols) = match tensor.dims[..] {
            [rows, cols] if is_module => (1, rows, cols),
            [count, rows, cols] if is_stack(parent) && (last == TWO_PARTS || TARGETS.contains(&last)) => {
                (count, rows, cols)
            }
            _ => return None,
        };
        module_of(&path).starts_with("layers.").then_some(Target { path, count, rows, cols })
    }

    pub fn last(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    pub fn is_stack(&self) -> bool {
        self.path.rsplit_once('.').is_some_and(|(parent, _)| is_stack(parent))
    }

    /// Returns the name of the parameter that PEFT wraps. None: the target is modules of their own.
    pub fn parameter(&self) -> Option<&'static str> {
        [TWO_PARTS, DOWN].into_iter().find(|parameter| self.is_stack() && self.last() == *parameter)
    }

    pub fn module_paths(&self) -> Vec<String> {
        match self.path.rsplit_once('.').filter(|_| self.is_stack()) {
            Some((experts, last)) => (0..self.count).map(|expert| format!("{experts}.{expert}.{last}")).collect(),
            None => vec![self.path.clone()],
        }
    }
}

/// Returns the modules of a tensor, as an adapter names them, in the order of the tensor's rows. `dims` have the experts first.
pub fn modules_of(name: &str, dims: &[usize], layers: usize) -> Vec<String> {
    let path = path_of(name, layers);
    let path = module_of(&path);
    match path.rsplit_once('.') {
        Some((experts, last)) if is_stack(experts) && dims.len() == 3 => {
            let parts = if last == TWO_PARTS { &["gate_proj", "up_proj"][..] } else { &[last] };
            let of_expert = |expert| parts.iter().map(move |part| format!("{experts}.{expert}.{part}"));
            (0..dims[0]).flat_map(of_expert).collect()
        }
        _ => vec![path.to_owned()],
    }
}

/// Adapter to add to a model's matrices, and how many times.
pub struct Addition<'a> {
    pub adapter: &'a Adapter,
    pub scale: f32,
}

impl Addition<'_> {
    /// Returns a tensor's matrix with its modules' changes, one part for each; or as it is, if none of them changes.
    pub fn to(&self, modules: &[String], matrix: &Matrix) -> Option<Vec<Matrix>> {
        let changes = &self.adapter.modules;
        if !modules.iter().any(|module| changes.contains_key(module)) {
            return Some(vec![matrix.clone()]);
        }
        let rows = matrix.rows() / modules.len();
        let part = |(at, module): (usize, &String)| {
            let part = matrix.part(at * rows, rows)?;
            match changes.get(module) {
                None => Some(part),
                Some(change) => part.with_low_rank(LowRank { scale: self.scale * change.scale, ..change.clone() }),
            }
        };
        modules.iter().enumerate().map(part).collect()
    }
}

fn is_stack(parent: &str) -> bool {
    parent.ends_with(".experts")
}

/// Returns the path of a tensor's module as a checkpoint has it.
fn path_of(name: &str, layers: usize) -> String {
    let name = match name_in_folder(name) {
        None => name.to_owned(),
        Some(name) => match name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
            Some((layer, rest)) if layer.parse().is_ok_and(|layer: usize| layer >= layers) => {
                format!("mtp.layers.{}.{rest}", layer.parse::<usize>().unwrap_or(layers) - layers)
            }
            _ => name,
        },
    };
    name.strip_suffix(".weight").map(str::to_owned).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_known_by_its_name_in_each_form() {
        let modules = |name: &str, dims: &[usize]| modules_of(name, dims, 4).join(" ");
        assert_eq!(modules("model.layers.1.self_attn.q_proj.weight", &[8, 4]), "layers.1.self_attn.q_proj");
        assert_eq!(modules("blk.1.attn_q.weight", &[8, 4]), "layers.1.self_attn.q_proj");
        assert_eq!(modules("blk.4.attn_q.weight", &[8, 4]), "mtp.layers.0.self_attn.q_proj");
        assert_eq!(modules("output.weight", &[8, 4]), "lm_head");
        let both = "layers.0.mlp.experts.0.gate_proj layers.0.mlp.experts.0.up_proj layers.0.mlp.experts.1.gate_proj \
                    layers.0.mlp.experts.1.up_proj";
        assert_eq!(modules("model.language_model.layers.0.mlp.experts.gate_up_proj", &[2, 8, 4]), both);
        assert_eq!(modules("blk.0.ffn_gate_up_exps.weight", &[2, 8, 4]), both);
        let down = "layers.0.mlp.experts.0.down_proj layers.0.mlp.experts.1.down_proj";
        assert_eq!(modules("blk.0.ffn_down_exps.weight", &[2, 4, 8]), down);
        assert_eq!(modules("blk.0.ffn_up_exps.weight", &[1, 4, 8]), "layers.0.mlp.experts.0.up_proj");
    }
}
