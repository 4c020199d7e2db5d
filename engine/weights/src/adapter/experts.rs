//! Changes of all experts of a layer in one pair of tensors, as PEFT writes them for `target_parameters`.

use super::config::{AdapterConfig, STACKS};
use super::finite_values;
use crate::contents::FileTensor;
use crate::error::Error;
use crate::matrix::LowRank;

const WRAPPED: &str = ".base_layer";

/// Returns the path of a stack: the experts', and which stack it is. None: the module is no stack of these.
pub(super) fn stack_of<'m>(config: &AdapterConfig, module: &'m str) -> Option<(&'m str, &'static str)> {
    let experts = module.trim_end_matches(WRAPPED);
    let depth = (module.len() - experts.len()) / WRAPPED.len();
    let mut targeted = STACKS.iter().map(|(stack, _)| *stack).filter(|stack| config.targets(stack));
    experts.ends_with(".experts").then(|| targeted.nth(depth))?.map(|stack| (experts, stack))
}

/// Returns the change of each expert's matrices. `a` is [experts × rank, columns], `b` [rows, rank × experts].
pub(super) fn changes(
    config: &AdapterConfig,
    (experts, stack): (&str, &str),
    a: &FileTensor,
    b: &FileTensor,
) -> Result<Vec<(String, LowRank)>, Error> {
    let wrong = |found: String, expected: String| Err(Error::tensor(&a.path, &a.name, found, expected));
    let (rank, scale) = config.rank_and_scale(&format!("{experts}.{stack}"));
    let (&[all, cols], &[rows, inner]) = (&a.dims[..], &b.dims[..]) else {
        let found = format!("shapes {:?} and {:?}", a.dims, b.dims);
        return wrong(found, "[experts × rank, columns] and [rows, rank × experts]".into());
    };
    if all != inner || all % rank != 0 {
        let found = format!("{all} rows of lora_A and {inner} columns of lora_B");
        return wrong(found, format!("rank {rank} for each expert, as adapter_config.json says"));
    }
    let parts = STACKS.iter().find(|(name, _)| *name == stack).map_or(&[][..], |(_, parts)| parts);
    let (count, rows_of_part) = (all / rank, rows / parts.len().max(1));
    let (a, b) = (finite_values(a)?, finite_values(b)?);
    let mut changes = Vec::new();
    for expert in 0..count {
        let a = &a[expert * rank * cols..][..rank * cols];
        for (at, part) in parts.iter().enumerate() {
            let rows = at * rows_of_part..(at + 1) * rows_of_part;
            let b = rows.flat_map(|row| (0..rank).map(move |k| (row * rank + k) * count + expert)).map(|at| b[at]);
            let change = LowRank { rank, scale, a: a.to_vec(), b: b.collect() };
            changes.push((format!("{experts}.{expert}.{part}"), change));
        }
    }
    Ok(changes)
}
