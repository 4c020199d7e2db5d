//! The tensors of a model's files by name, each taken once, with its shape checked against what the model needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::format::{Format, dequantize};

use crate::bytes::ModelBytes;
use crate::error::{Error, shown};
use crate::matrix::Matrix;

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub path: Arc<Path>,
    /// Format of the values. None: the kernels cannot read the type, which matters only if the tensor is used.
    pub format: Option<Format>,
    pub type_name: String,
    pub dims: Vec<usize>,
    pub data: ModelBytes,
}

#[derive(Debug)]
pub(crate) struct Tensors {
    path: PathBuf,
    stored: BTreeMap<String, Stored>,
}

impl Tensors {
    pub fn new(path: &Path) -> Tensors {
        Tensors { path: path.to_path_buf(), stored: BTreeMap::new() }
    }

    /// Adds a tensor. False: there is one of that name already.
    pub fn insert(&mut self, name: String, tensor: Stored) -> bool {
        use std::collections::btree_map::Entry;
        match self.stored.entry(name) {
            Entry::Vacant(place) => {
                place.insert(tensor);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub fn len(&self) -> usize {
        self.stored.len()
    }

    pub fn has(&self, name: &str) -> bool {
        self.stored.contains_key(name)
    }

    pub fn get(&self, name: &str) -> Option<&Stored> {
        self.stored.get(name)
    }

    pub fn dims(&self, name: &str) -> Option<&[usize]> {
        self.stored.get(name).map(|tensor| &tensor.dims[..])
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.stored.iter().map(|(name, tensor)| (&name[..], tensor))
    }

    /// Returns the first of these names that is there, else the first of all, for the message that it is missing.
    pub fn one_of(&self, names: &[String]) -> String {
        names.iter().find(|name| self.has(name)).or(names.first()).cloned().unwrap_or_default()
    }

    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let tensor = self.take(name, &[rows, cols])?;
        tensor.expect_dims(name, &[rows, cols])?;
        tensor.into_matrix(name, rows, cols)
    }

    pub fn stack(&mut self, name: &str, count: usize, rows: usize, cols: usize) -> Result<Vec<Matrix>, Error> {
        let tensor = self.take(name, &[count, rows, cols])?;
        tensor.expect_dims(name, &[count, rows, cols])?;
        let path = tensor.path.clone();
        let overflow = || Error::tensor(&path, name, format!("{count} × {rows} rows"), "sizes that fit into memory");
        let all = tensor.into_matrix(name, count.checked_mul(rows).ok_or_else(overflow)?, cols)?;
        (0..count).map(|i| all.part(i * rows, rows).ok_or_else(overflow)).collect()
    }

    /// Takes values as f32. Dimensions of length one do not count: a vector may be stored as a row or a column.
    pub fn values(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, Error> {
        let tensor = self.take(name, dims)?;
        let without_ones = |dims: &[usize]| dims.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
        if without_ones(&tensor.dims) != without_ones(dims) {
            tensor.expect_dims(name, dims)?;
        }
        tensor.into_values(name)
    }

    /// Returns the type of the first of these tensors that the kernels cannot read.
    pub fn unreadable(&self, belongs: impl Fn(&str) -> bool) -> Option<&str> {
        let mut unknown = self.stored.iter().filter(|(name, tensor)| tensor.format.is_none() && belongs(name));
        unknown.next().map(|(_, tensor)| &tensor.type_name[..])
    }

    pub fn has_any(&self, belongs: impl Fn(&str) -> bool) -> bool {
        self.stored.keys().any(|name| belongs(name))
    }

    pub fn drop_all(&mut self, belongs: impl Fn(&str) -> bool) -> usize {
        let before = self.stored.len();
        self.stored.retain(|name, _| !belongs(name));
        before - self.stored.len()
    }

    /// Looks at the tensors that the model did not take. Some names say that the model's words depend on the tensor: an
    /// error. Others get a note.
    pub fn check_left_over(&self, notes: &mut Vec<String>) -> Result<(), Error> {
        if let Some((name, tensor)) = self.stored.iter().find(|(name, _)| changes_the_words(name)) {
            let expected = "no tensor of that name: the family has none, and leaving it out would change every word";
            return Err(Error::tensor(&tensor.path, name, format!("shape {:?}", tensor.dims), expected));
        }
        if let Some(first) = self.stored.keys().next() {
            notes.push(format!("{} tensors are not used, the first of them '{}'", self.stored.len(), shown(first)));
        }
        Ok(())
    }

    pub fn missing(&self, name: &str, dims: &[usize]) -> Error {
        Error::tensor(&self.path, name, "no such tensor", format!("shape {dims:?}"))
    }

    fn take(&mut self, name: &str, dims: &[usize]) -> Result<Stored, Error> {
        self.stored.remove(name).ok_or_else(|| self.missing(name, dims))
    }
}

/// Checks that no two of a file's tensors lie over each other: each is (first byte in the data, end, name).
pub(crate) fn check_apart(path: &Path, mut ranges: Vec<(u64, u64, &str)>) -> Result<(), Error> {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((begin, end, name), (next, _, other)) = (pair[0], pair[1]);
        if end > next {
            let found = format!("bytes {begin} to {end} of the data, and '{}' begins at {next}", shown(other));
            return Err(Error::tensor(path, name, found, "tensors that do not overlap"));
        }
    }
    Ok(())
}

/// Returns whether a tensor is a bias, a scale of quantised weights, an adapter or a factor of a rotation, which no known
/// family has.
fn changes_the_words(name: &str) -> bool {
    let ends = [".bias", "scale", "scale_inv", ".qzeros", ".qweight", "lora_a", "lora_b"];
    ends.iter().any(|end| name.ends_with(end)) || name.starts_with("rope_f")
}

impl Stored {
    fn expect_dims(&self, name: &str, expected: &[usize]) -> Result<(), Error> {
        if self.dims == expected {
            return Ok(());
        }
        Err(Error::tensor(&self.path, name, format!("shape {:?}", self.dims), format!("shape {expected:?}")))
    }

    fn known_format(&self, name: &str) -> Result<Format, Error> {
        self.format.ok_or_else(|| {
            let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            Error::tensor(&self.path, name, format!("type {}", self.type_name), format!("one of {}", known.join(", ")))
        })
    }

    /// Returns the data aligned to its elements: a copy, if safetensors put the tensor at another address.
    fn aligned_data(&self, format: Format) -> ModelBytes {
        let element = match format {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            _ => 1,
        };
        if (self.data.as_ptr() as usize).is_multiple_of(element) {
            self.data.clone()
        } else {
            ModelBytes::copy_of(&self.data)
        }
    }

    fn into_matrix(self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let format = self.known_format(name)?;
        let data = self.aligned_data(format);
        let len = data.len();
        Matrix::of_blocks(format, rows, cols, data).ok_or_else(|| {
            let expected = format!("the bytes of {rows} rows of {cols} values of {}", format.name());
            Error::tensor(&self.path, name, format!("{len} bytes"), expected)
        })
    }

    fn into_values(self, name: &str) -> Result<Vec<f32>, Error> {
        let format = self.known_format(name)?;
        let wrong = |found: String| {
            Error::tensor(&self.path, name, found, format!("the bytes of {:?} values of {}", self.dims, format.name()))
        };
        let count = self.dims.iter().try_fold(1usize, |product, &d| product.checked_mul(d));
        // Rows of blocks: a vector in a block format must be whole blocks, as the file's own check has seen to.
        let count = count.filter(|&count| format.row_bytes(count) == Some(self.data.len()));
        let count = count.ok_or_else(|| wrong(format!("{} bytes", self.data.len())))?;
        let mut values = vec![0.0f32; count];
        dequantize(format, &self.aligned_data(format), &mut values);
        Ok(values)
    }
}
