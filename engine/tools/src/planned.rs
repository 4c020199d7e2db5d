//! Tensors of a file to come: where their values are, and the format that they will have.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::format::{Format, dequantize, quantize_for_file};
use serde::Serialize;
use weights::Matrix;

use crate::Error;
use crate::file_head::FileHead;
use crate::gguf_writer::TensorInfo;
use crate::streaming::{self, NewFile, Piece};

pub struct Planned {
    pub name: String,
    /// Name in GGUF files, by which mixtures and importance matrices know the tensor.
    pub known_as: String,
    pub dims: Vec<u64>, // innermost first
    pub values: PlannedValues,
    pub format: Format,
    /// Weight of a column's error: [matrices of a stack, columns]
    pub importance: Option<Vec<f32>>,
}

pub enum PlannedValues {
    Floats(Vec<f32>),
    /// Matrices behind each other, all with the same number of rows.
    Matrices {
        stack: Vec<Matrix>,
        rows: PlaceOrder,
        cols: PlaceOrder,
    },
}

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

/// Tensor as it was and will be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorChange {
    pub name: String,
    pub dims: Vec<u64>,
    /// Format in the source; f32 where its values are computed.
    pub from: &'static str,
    pub to: &'static str,
    pub bytes: u64,
    pub weighted: bool, // true if an importance matrix weights the tensor's errors
}

/// Progress of a file that is written: done, and all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStep {
    Measured(u64, u64),
    Written(u64, u64),
}

/// Result of writing a file, or of planning it.
#[derive(Debug, Clone, Serialize)]
pub struct WriteReport {
    /// Bytes of the file; before it is written, of its tensors.
    pub bytes: u64,
    pub parameters: u64,
    pub formats: BTreeMap<&'static str, usize>,
    pub tensors: Vec<TensorChange>,
    pub notes: Vec<String>,
}

/// Values of a tensor that its formats are measured on.
const SAMPLED_VALUES: usize = 1 << 16; // not a window: values

impl Planned {
    /// Plans a tensor in the format of its source. `decide` gives it another.
    pub fn new(name: String, dims: Vec<u64>, values: PlannedValues) -> Planned {
        let format = values.format();
        Planned { known_as: name.clone(), name, dims, values, format, importance: None }
    }

    pub fn info(&self) -> TensorInfo {
        TensorInfo { name: self.name.clone(), dims: self.dims.clone(), format: self.format }
    }

    pub fn cols(&self) -> usize {
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

    pub fn parameters(&self) -> u64 {
        self.dims.iter().product()
    }

    fn make(&self, piece: Piece, values: &mut Vec<f32>, source: &Path) -> Result<Vec<u8>, Error> {
        let cols = self.cols();
        let (first, rows) = (piece.first_row as usize, piece.rows as usize);
        values.resize(rows * cols, 0.0);
        self.values.read(first, cols, values);
        self.check_finite(first, values, source)?;
        let as_they_are = self.values.as_they_are(first, rows).filter(|_| self.format == self.values.format());
        self.values.let_go_of_rows(first, rows);
        if let Some(bytes) = as_they_are {
            return Ok(bytes);
        }
        let row_bytes = cols / self.format.block_len() * self.format.block_bytes();
        let mut bytes = vec![0; rows * row_bytes];
        for (i, (row, bytes)) in values.chunks_exact(cols).zip(bytes.chunks_exact_mut(row_bytes)).enumerate() {
            quantize_for_file(self.format, row, self.importance_of_row(first + i), bytes);
            if let Some(at) = lost_by(self.format, row, bytes) {
                let (row, value, format) = (first + i, row[at], self.format.name());
                let what = format!("row {row}, column {at} is {value}, which {format} cannot hold: take bf16 or f32");
                return Err(Error::tensor(source, &self.name, what));
            }
        }
        Ok(bytes)
    }

    /// Measures on some of the rows which share of the product's squares the rounding of each format is.
    pub fn rounding_errors(&self, formats: &[Format], source: &Path) -> Result<Vec<f64>, Error> {
        let cols = self.cols();
        let all_rows = self.dims[1..].iter().product::<u64>() as usize;
        let rows = (SAMPLED_VALUES / cols.max(1)).clamp(1, all_rows.max(1));
        let (mut values, mut rounded, mut bytes) = (vec![0.0; cols], vec![0.0; cols], Vec::new());
        let (mut squares, mut errors) = (0.0, vec![0.0; formats.len()]);
        for row in (0..rows).map(|i| i * all_rows / rows) {
            self.values.read(row, cols, &mut values);
            self.check_finite(row, &values, source)?;
            let importance = self.importance_of_row(row);
            let weight = |col: usize| importance.map_or(1.0, |all| f64::from(all[col]));
            squares +=
                values.iter().enumerate().map(|(col, &x)| weight(col) * f64::from(x) * f64::from(x)).sum::<f64>();
            for (&format, error) in formats.iter().zip(&mut errors) {
                bytes.resize(cols / format.block_len() * format.block_bytes(), 0);
                quantize_for_file(format, &values, importance, &mut bytes);
                dequantize(format, &bytes, &mut rounded);
                let pairs = values.iter().zip(&rounded).enumerate();
                *error += pairs.map(|(col, (x, y))| weight(col) * f64::from(x - y) * f64::from(x - y)).sum::<f64>();
            }
        }
        Ok(errors.into_iter().map(|error| if squares > 0.0 { error / squares } else { 0.0 }).collect())
    }

    fn importance_of_row(&self, row: usize) -> Option<&[f32]> {
        let rows_of_one = self.dims.get(1).map_or(1, |&rows| rows as usize);
        self.importance.as_ref().map(|all| &all[row / rows_of_one * self.cols()..][..self.cols()])
    }

    fn check_finite(&self, first_row: usize, values: &[f32], source: &Path) -> Result<(), Error> {
        let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        let (cols, value) = (self.cols(), values[at]);
        let place = format!("row {}, column {} is {value}", first_row + at / cols, at % cols);
        Err(Error::tensor(source, &self.name, format!("{place}: the file is damaged, fetch it again")))
    }
}

impl PlannedValues {
    pub fn format(&self) -> Format {
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

    /// Returns the source's bytes of some rows. None: they lie in another order, or in several matrices, or an adapter changes them.
    fn as_they_are(&self, first: usize, rows: usize) -> Option<Vec<u8>> {
        match self {
            PlannedValues::Matrices { stack, rows: PlaceOrder::Kept, cols: PlaceOrder::Kept } => match &stack[..] {
                [one] if one.low_rank().is_none() => one.part(first, rows).map(|part| part.data().to_vec()),
                _ => None,
            },
            PlannedValues::Matrices { .. } | PlannedValues::Floats(_) => None,
        }
    }

    /// Lets go of rows that lie together in the file: a whole matrix may be gigabytes.
    fn let_go_of_rows(&self, first: usize, rows: usize) {
        if let PlannedValues::Matrices { stack, rows: PlaceOrder::Kept, .. } = self
            && let [one] = &stack[..]
        {
            one.part(first, rows).inspect(|part| part.data().let_go());
        }
    }

    fn let_go(&self) {
        if let PlannedValues::Matrices { stack, .. } = self {
            stack.iter().for_each(|matrix| matrix.data().let_go());
        }
    }
}

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

pub fn write(
    tensors: &[Planned],
    (source, out): (&Path, &Path),
    head: &FileHead,
    threads: usize,
    check: impl FnOnce(&Path) -> Result<(), Error>,
    progress: &mut dyn FnMut(WriteStep),
) -> Result<u64, Error> {
    let infos: Vec<TensorInfo> = tensors.iter().map(Planned::info).collect();
    let file = NewFile { out, head, tensors: &infos, threads };
    let make = |piece: Piece, values: &mut Vec<f32>| tensors[piece.tensor].make(piece, values, source);
    let mut let_go = |tensor: usize| tensors[tensor].values.let_go();
    streaming::write(&file, &make, &mut let_go, check, &mut |done, all| progress(WriteStep::Written(done, all)))
}

/// Form in which a model is written, as the name of its file or folder tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutForm {
    Gguf,
    Apr,
    Folder,
}

impl OutForm {
    pub fn of(out: &Path) -> OutForm {
        let is = |end: &str| out.extension().is_some_and(|found| found.eq_ignore_ascii_case(end));
        match (is("gguf"), is("apr")) {
            (true, _) => OutForm::Gguf,
            (_, true) => OutForm::Apr,
            _ => OutForm::Folder,
        }
    }
}

pub fn is_apr_name(out: &Path) -> bool {
    OutForm::of(out) == OutForm::Apr
}

/// Finds a value that its type cannot hold, in the bytes of its row: f16 ends, and scales of blocks are f16.
pub fn lost_by(format: Format, row: &[f32], bytes: &[u8]) -> Option<usize> {
    const LARGEST_F16: f32 = 65504.0; // not a window: the largest finite f16
    let largest = (0..row.len()).max_by(|a, b| row[*a].abs().total_cmp(&row[*b].abs()))?;
    if row[largest].abs() <= LARGEST_F16 {
        return None;
    }
    let mut again = vec![0.0; row.len()];
    dequantize(format, bytes, &mut again);
    let is_lost = again[largest].abs() < row[largest].abs() / 2.0;
    again.iter().position(|value| !value.is_finite()).or(is_lost.then_some(largest))
}

/// Returns the threads to write with; of 0, one for each core.
pub fn threads(wanted: usize) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    if wanted == 0 { cores() } else { wanted }
}

/// Tells of tensors that get a second rounding.
pub fn again_note(tensors: usize) -> String {
    format!("{tensors} tensors were quantised before: their errors add up; the bf16 model gives a better file")
}

/// Checks that a file to write is no folder, and none of the files that are read for it.
pub fn check_out(sources: &[&Path], out: &Path) -> Result<(), Error> {
    if out.is_dir() {
        return Err(Error::file(out, "is a folder; name the file to write"));
    }
    let Ok(found) = std::fs::canonicalize(out) else { return Ok(()) };
    let is_it = |file: &Path| std::fs::canonicalize(file).is_ok_and(|file| file == found);
    for source in sources {
        if is_it(source) {
            return Err(Error::file(out, "is the source itself; name another file"));
        }
        // Parts of a set, shards, and the small files beside them.
        let is_part = || weights::tensors_of(source, true).is_ok_and(|all| all.iter().any(|one| is_it(&one.path)));
        let is_text = found.extension().is_some_and(|end| end == "json" || end == "jinja");
        let is_beside = || is_text && std::fs::canonicalize(source).ok().as_deref() == found.parent();
        if is_part() || is_beside() {
            return Err(Error::file(out, format!("is a file of the source {}; name another one", source.display())));
        }
    }
    Ok(())
}

/// Checks that nothing has the name of a result that replaces nothing.
pub fn check_free(out: &Path) -> Result<(), Error> {
    match out.symlink_metadata() {
        Ok(_) => Err(Error::file(out, "is there already: give another name, or remove it")),
        Err(_) => Ok(()),
    }
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
}
