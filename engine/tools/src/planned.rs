//! Tensors of a file to come: where their values are, and the format that they will have.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::format::{Format, is_weighted, quantize_for_file};
use serde::Serialize;
use weights::Matrix;

use crate::Error;
use crate::gguf_writer::{GgufValue, TensorInfo};
use crate::imatrix::Imatrix;
use crate::mixture::{Mixture, MixtureModel, is_matrix};
use crate::streaming::{self, NewFile, Piece};

pub struct Planned {
    pub name: String,
    /// Dimensions, innermost first.
    pub dims: Vec<u64>,
    pub values: PlannedValues,
    pub format: Format,
    /// Weight of a column's error: [matrices of a stack, columns]
    importance: Option<Vec<f32>>,
}

/// PlannedValues of a tensor, in the order of the file to come.
pub enum PlannedValues {
    Floats(Vec<f32>),
    /// Matrices behind each other, all with the same number of rows.
    Matrices {
        stack: Vec<Matrix>,
        rows: PlaceOrder,
        cols: PlaceOrder,
    },
}

/// PlaceOrder of rows or columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceOrder {
    Kept,
    /// Value heads, `width` long each, go from beside their key head to a distance of all key heads. What lies `before` them stays.
    Tiled {
        before: usize,
        key_heads: usize,
        value_heads: usize,
        width: usize,
    },
}

impl PlaceOrder {
    /// Returns the place in the source of what will be at this place.
    pub fn source(self, place: usize) -> usize {
        match self {
            PlaceOrder::Tiled { before, key_heads, value_heads, width } if place >= before => {
                let (head, rest) = ((place - before) / width, (place - before) % width);
                let grouped = head % key_heads * (value_heads / key_heads) + head / key_heads;
                before + grouped * width + rest
            }
            _ => place,
        }
    }
}

/// Rule that gives the tensors with a pattern's names a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRule {
    /// A part of a name, or with `*` a whole name.
    pub pattern: String,
    pub format: Format,
}

impl TypeRule {
    /// Reads PATTERN=TYPE.
    pub fn parse(text: &str) -> Result<TypeRule, String> {
        let (pattern, name) = text.split_once('=').ok_or("give PATTERN=TYPE, such as ffn_down=q6_k")?;
        let format = Format::from_name(name).filter(|&format| is_weighted(format).is_some());
        let format = format.ok_or_else(|| {
            let known = Format::ALL.iter().filter(|&&format| is_weighted(format).is_some());
            format!(
                "no type '{name}'; give one of {}",
                known.map(|format| format.name()).collect::<Vec<_>>().join(", ")
            )
        })?;
        if pattern.is_empty() {
            return Err("the pattern before '=' is empty".to_string());
        }
        Ok(TypeRule { pattern: pattern.to_string(), format })
    }

    fn holds_for(&self, name: &str) -> bool {
        if !self.pattern.contains('*') {
            return name.contains(&self.pattern);
        }
        let mut parts = self.pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// Formats that a file's tensors shall have.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    pub mixture: Mixture,
    pub rules: &'a [TypeRule],
    pub imatrix: Option<&'a Imatrix>,
}

/// Tensor as it was and will be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorChange {
    pub name: String,
    pub dims: Vec<u64>,
    /// Format in the source; f32 where its values are computed.
    pub from: &'static str,
    pub to: &'static str,
    pub bytes: u64,
    /// True if an importance matrix weights the tensor's errors.
    pub weighted: bool,
}

/// Result of writing a file, or of planning it.
#[derive(Debug, Clone, Serialize)]
pub struct WriteReport {
    /// Bytes of the file; before it is written, of its tensors.
    pub bytes: u64,
    pub parameters: u64,
    /// Number of tensors by format.
    pub formats: BTreeMap<&'static str, usize>,
    pub tensors: Vec<TensorChange>,
    pub notes: Vec<String>,
}

impl Planned {
    /// Plans a tensor in the format of its source. `decide` gives it another.
    pub fn new(name: String, dims: Vec<u64>, values: PlannedValues) -> Planned {
        let format = values.format();
        Planned { name, dims, values, format, importance: None }
    }

    fn info(&self) -> TensorInfo {
        TensorInfo { name: self.name.clone(), dims: self.dims.clone(), format: self.format }
    }

    fn cols(&self) -> usize {
        self.dims[0] as usize
    }

    fn change(&self) -> TensorChange {
        TensorChange {
            name: self.name.clone(),
            dims: self.dims.clone(),
            from: self.values.format().name(),
            to: self.format.name(),
            bytes: self.info().size().unwrap_or(0),
            weighted: self.importance.is_some(),
        }
    }

    fn parameters(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Makes some rows of the tensor. `source` is for messages.
    fn make(&self, piece: Piece, values: &mut Vec<f32>, source: &Path) -> Result<Vec<u8>, Error> {
        let cols = self.cols();
        let (first, rows) = (piece.first_row as usize, piece.rows as usize);
        values.resize(rows * cols, 0.0);
        self.values.read(first, cols, values);
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let place = format!("row {}, column {} is {}", first + at / cols, at % cols, values[at]);
            return Err(Error::tensor(source, &self.name, format!("{place}: the file is damaged, fetch it again")));
        }
        if let Some(bytes) = self.values.as_they_are(first, rows).filter(|_| self.format == self.values.format()) {
            return Ok(bytes);
        }
        let row_bytes = cols / self.format.block_len() * self.format.block_bytes();
        let mut bytes = vec![0; rows * row_bytes];
        let rows_of_one = self.dims.get(1).map_or(1, |&rows| rows as usize);
        for (i, (row, bytes)) in values.chunks_exact(cols).zip(bytes.chunks_exact_mut(row_bytes)).enumerate() {
            let matrix = (first + i) / rows_of_one;
            let importance = self.importance.as_ref().map(|all| &all[matrix * cols..][..cols]);
            quantize_for_file(self.format, row, importance, bytes);
        }
        Ok(bytes)
    }
}

impl PlannedValues {
    fn format(&self) -> Format {
        match self {
            PlannedValues::Floats(_) => Format::F32,
            PlannedValues::Matrices { stack, .. } => stack.first().and_then(Matrix::format).unwrap_or(Format::F32),
        }
    }

    fn read(&self, first: usize, cols: usize, out: &mut [f32]) {
        match self {
            PlannedValues::Floats(values) => out.copy_from_slice(&values[first * cols..][..out.len()]),
            PlannedValues::Matrices { stack, rows, cols: order } => {
                let rows_of_one = stack.first().map_or(1, Matrix::rows);
                let mut kept = vec![0.0; if *order == PlaceOrder::Kept { 0 } else { cols }];
                for (i, out) in out.chunks_exact_mut(cols).enumerate() {
                    let row = rows.source(first + i);
                    let matrix = &stack[row / rows_of_one];
                    if *order == PlaceOrder::Kept {
                        matrix.row(row % rows_of_one, out);
                    } else {
                        matrix.row(row % rows_of_one, &mut kept);
                        out.iter_mut().enumerate().for_each(|(col, out)| *out = kept[order.source(col)]);
                    }
                }
            }
        }
    }

    /// Returns the source's bytes of some rows. None: they lie in another order, or in several matrices.
    fn as_they_are(&self, first: usize, rows: usize) -> Option<Vec<u8>> {
        match self {
            PlannedValues::Matrices { stack, rows: PlaceOrder::Kept, cols: PlaceOrder::Kept } if stack.len() == 1 => {
                stack[0].part(first, rows).map(|part| part.data().to_vec())
            }
            _ => None,
        }
    }

    /// Says that the values were read for the last time.
    fn let_go(&self) {
        if let PlannedValues::Matrices { stack, .. } = self {
            stack.iter().for_each(|matrix| matrix.data().let_go());
        }
    }
}

/// Gives each tensor its format, and the importance of its columns. `source` is for messages.
pub fn decide(
    tensors: &mut [Planned],
    wanted: &Wanted,
    model: MixtureModel,
    source: &Path,
) -> Result<Vec<String>, Error> {
    let model = MixtureModel { has_importance: wanted.imatrix.is_some(), ..model };
    let mut used = vec![0; wanted.rules.len()];
    for tensor in tensors.iter_mut().filter(|tensor| is_matrix(&tensor.name, &tensor.dims)) {
        match wanted.rules.iter().position(|rule| rule.holds_for(&tensor.name)) {
            Some(rule) => {
                used[rule] += 1;
                tensor.format = wanted.rules[rule].format;
                if tensor.info().size().is_none() {
                    let what = format!(
                        "its rows of {} values are not whole blocks of {}",
                        tensor.cols(),
                        tensor.format.name()
                    );
                    return Err(Error::tensor(source, &tensor.name, what));
                }
            }
            None => tensor.format = wanted.mixture.format_of(&tensor.name, &tensor.dims, &model),
        }
    }
    if let Some((rule, _)) = wanted.rules.iter().zip(&used).find(|(_, used)| **used == 0) {
        let what =
            format!("no matrix is named like '{}'; norms, convolutions and routers keep their type", rule.pattern);
        return Err(Error::file(source, what));
    }
    let mut notes = Vec::new();
    if let Some(imatrix) = wanted.imatrix {
        notes.extend(weigh(tensors, imatrix, source)?);
    }
    let again = tensors.iter().filter(|tensor| {
        let from = tensor.values.format();
        from.is_quantised() && from != tensor.format
    });
    let again = again.count();
    if again > 0 {
        notes.push(format!(
            "{again} tensors were quantised before: their errors add up; the bf16 model gives a better file"
        ));
    }
    Ok(notes)
}

/// Gives tensors the importance of their columns, where the format can use it.
fn weigh(tensors: &mut [Planned], imatrix: &Imatrix, source: &Path) -> Result<Vec<String>, Error> {
    let is_searched = |tensor: &&mut Planned| is_weighted(tensor.format) == Some(true);
    let (mut weighted, mut searched) = (0, 0);
    for tensor in tensors.iter_mut().filter(is_searched) {
        searched += 1;
        let stack = tensor.dims.get(2).map_or(1, |&stack| stack as usize);
        let importance = imatrix.importance(&tensor.name, tensor.cols(), stack);
        tensor.importance = importance.map_err(|what| Error::tensor(&imatrix.path, &tensor.name, what))?;
        weighted += usize::from(tensor.importance.is_some());
    }
    if searched == 0 {
        let what = "changes nothing in these types: only those with a search of 4 to 6 bits have a use for it";
        return Err(Error::file(&imatrix.path, what));
    }
    if weighted == 0 {
        let what = format!("names none of the tensors of {}: it was made for another model", source.display());
        return Err(Error::file(&imatrix.path, what));
    }
    let missing = searched - weighted;
    Ok(vec![format!(
        "the importance matrix weights {weighted} tensors; {missing} that it does not name are searched without"
    )])
}

/// Reports what will be written.
pub fn report(tensors: &[Planned], notes: Vec<String>) -> WriteReport {
    let changes: Vec<TensorChange> = tensors.iter().map(Planned::change).collect();
    let mut formats = BTreeMap::new();
    changes.iter().for_each(|change| *formats.entry(change.to).or_insert(0) += 1);
    WriteReport {
        bytes: changes.iter().map(|change| change.bytes).sum(),
        parameters: tensors.iter().map(Planned::parameters).sum(),
        formats,
        tensors: changes,
        notes,
    }
}

/// Writes the tensors to a file.
pub fn write(
    tensors: &[Planned],
    (source, out): (&Path, &Path),
    metadata: &[(String, GgufValue)],
    threads: usize,
    check: impl FnOnce(&Path) -> Result<(), Error>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Error> {
    let infos: Vec<TensorInfo> = tensors.iter().map(Planned::info).collect();
    let file = NewFile { out, metadata, tensors: &infos, threads };
    let make = |piece: Piece, values: &mut Vec<f32>| tensors[piece.tensor].make(piece, values, source);
    streaming::write(&file, &make, &mut |tensor| tensors[tensor].values.let_go(), check, progress)
}

/// Checks that a file to write is no other kind of file and not the source.
pub fn check_out(source: &Path, out: &Path) -> Result<(), Error> {
    if out.extension().is_some_and(|end| end.eq_ignore_ascii_case("apr")) {
        return Err(Error::file(out, "files in the form .apr are not written yet; name a .gguf file"));
    }
    if out.is_dir() {
        return Err(Error::file(out, "is a folder; name the file to write"));
    }
    let same = std::fs::canonicalize(source).ok().zip(std::fs::canonicalize(out).ok()).is_some_and(|(a, b)| a == b);
    if same {
        return Err(Error::file(out, "is the source itself; name another file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_heads_go_from_groups_to_tiles() {
        let order = PlaceOrder::Tiled { before: 2, key_heads: 2, value_heads: 4, width: 1 };
        // Grouped: [k0v0 k0v1 k1v0 k1v1]; tiled: [k0v0 k1v0 k0v1 k1v1].
        assert_eq!((0..6).map(|place| order.source(place)).collect::<Vec<_>>(), [0, 1, 2, 4, 3, 5]);
        let wide = PlaceOrder::Tiled { before: 0, key_heads: 2, value_heads: 6, width: 2 };
        let mut seen: Vec<usize> = (0..12).map(|place| wide.source(place)).collect();
        assert_eq!(seen[2..4], [6, 7]);
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>(), "each row once");
    }

    #[test]
    fn patterns_are_parts_of_names_or_whole_names() {
        let holds =
            |pattern: &str, name: &str| TypeRule { pattern: pattern.into(), format: Format::F16 }.holds_for(name);
        assert!(holds("ffn_down", "blk.0.ffn_down.weight"));
        assert!(holds("blk.*.ffn_*.weight", "blk.11.ffn_up.weight"));
        assert!(holds("*", "output.weight"));
        assert!(!holds("blk.1.*", "blk.11.ffn_up.weight"));
        assert!(!holds("ffn*", "blk.1.ffn_up.weight"));
        assert!(!holds("blk.*.attn_*.weight", "blk.1.ffn_up.weight"));
        assert_eq!(TypeRule::parse("a=q6_k"), Ok(TypeRule { pattern: "a".into(), format: Format::Q6_K }));
        assert!(TypeRule::parse("a=q2_k").unwrap_err().starts_with("no type 'q2_k'; give one of f32, f16"));
        assert!(TypeRule::parse("=q6_k").is_err() && TypeRule::parse("q6_k").is_err());
    }
}
