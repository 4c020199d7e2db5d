//! Values of tensors: numbers that are none, scales, dead tensors.

use weights::{FileContents, FileForm, FileTensor};

use super::findings::Findings;
use crate::tensors::TensorStats;

const CHECK: &str = "values";

/// Share of groups without any value above which a tensor looks lost. Experts of published models have up to half.
const MOST_ZERO_GROUPS: f64 = 0.9;

pub(super) fn check(contents: &FileContents, stats: &[Option<TensorStats>], findings: &mut Findings) {
    for (tensor, stats) in contents.tensors.iter().zip(stats) {
        if let Some(stats) = stats {
            check_one(contents, tensor, stats, findings);
        }
    }
}

fn check_one(contents: &FileContents, tensor: &FileTensor, stats: &TensorStats, findings: &mut Findings) {
    let name = &tensor.name;
    let is_matrix = tensor.dims.iter().filter(|&&dim| dim > 1).count() > 1;
    let mut problem = |says: String| findings.problem(CHECK, Some(name), says);
    if let Some(scales) = stats.scales.as_ref().filter(|scales| scales.bad > 0) {
        let says = format!(
            "'{name}': the scales of {} of {} groups are infinite or not a number; quantise or download the file again",
            scales.bad, scales.groups
        );
        problem(says);
    } else if let Some(first) = stats.first_bad {
        let what = match (stats.nan, stats.infinite) {
            (nan, 0) => format!("{nan} that are not a number (NaN)"),
            (0, infinite) => format!("{infinite} that are infinite"),
            (nan, infinite) => format!("{nan} that are not a number (NaN) and {infinite} that are infinite"),
        };
        let at = place(&tensor.dims, first);
        problem(format!(
            "'{name}' has {} values, {what}, the first at {at}; convert or download it again",
            stats.values
        ));
    } else if stats.zero_share == 1.0 && stats.values > 1 {
        let says = format!("'{name}' holds nothing but zeros");
        if is_matrix {
            problem(format!("{says}: the layer does nothing; download or convert the file again"));
        } else {
            findings.warning(
                CHECK,
                Some(name),
                format!("{says}: right for a bias or an untrained norm, else convert again"),
            );
        }
    } else if stats.is_constant() && is_matrix {
        let says = format!("all values of '{name}' are {}: no matrix of a trained model is constant", stats.min);
        findings.warning(CHECK, Some(name), says);
    } else if let Some(scales) = stats.scales.as_ref().filter(|scales| scales.zero_share > MOST_ZERO_GROUPS) {
        let share = 100.0 * scales.zero_share;
        let says = format!("{share:.1} % of the groups of '{name}' have a scale of zero; compare with its source");
        findings.warning(CHECK, Some(name), says);
    }
    let Ok((family, _)) = &contents.family else { return };
    let own = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(&name[..], |(_, own)| own);
    let own = own.strip_suffix(".weight").unwrap_or(own);
    let is_below = family.values.below_zero.iter().any(|rule| rule == own);
    if contents.form == FileForm::Gguf && is_below && stats.max >= 0.0 && stats.first_bad.is_none() {
        let says = format!(
            "'{name}' has values up to {} and must lie below zero: it is -exp(A_log) in GGUF; the converter left that out",
            stats.max
        );
        findings.problem(CHECK, Some(name), says);
    }
    let is_exact = family.values.exact.iter().any(|end| name.ends_with(end));
    if let Some(format) = tensor.format.filter(|format| is_exact && format.is_quantised()) {
        let says =
            format!("'{name}' is quantised to {}: keep this small tensor in f32, or replies get worse", format.name());
        findings.warning(CHECK, Some(name), says);
    }
}

/// Writes a position as that of each dimension.
fn place(dims: &[usize], position: u64) -> String {
    let mut left = position;
    let mut places: Vec<String> = Vec::new();
    for &dim in dims.iter().rev() {
        let dim = dim.max(1) as u64;
        places.push((left % dim).to_string());
        left /= dim;
    }
    places.reverse();
    format!("[{}]", places.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_are_outermost_first() {
        assert_eq!(super::place(&[2, 3, 4], 23), "[1, 2, 3]");
        assert_eq!(super::place(&[5], 4), "[4]");
    }
}
