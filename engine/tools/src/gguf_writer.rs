//! Writes GGUF files as a stream: header first, then the tensors' bytes in the order of the list. Nothing is kept, so a
//! file may be larger than memory.

use std::io::{self, Write};

use kernels::format::Format;

const VERSION: u32 = 3;
pub const ALIGNMENT: u64 = 32;

#[derive(Debug, Clone, PartialEq)]
pub enum GgufValue {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    I32s(Vec<i32>),
    Bools(Vec<bool>),
    Texts(Vec<String>),
    /// Type and value as another file has them.
    Copied(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    pub name: String,
    /// Innermost first: [columns, rows, ..], as the file holds them.
    pub dims: Vec<u64>,
    pub format: Format,
}

impl TensorInfo {
    /// Bytes of the tensor. None: its rows are not whole blocks, or the size overflows.
    pub fn size(&self) -> Option<u64> {
        let (&cols, outer) = self.dims.split_first()?;
        let row = self.format.row_bytes(usize::try_from(cols).ok()?)? as u64;
        outer.iter().try_fold(row, |size, &dim| size.checked_mul(dim))
    }
}

pub struct GgufWriter<W: Write> {
    out: W,
    sizes: std::vec::IntoIter<(u64, u64)>, // (bytes of the tensor, zeros after it), in the order of the list
    left: u64,                             // bytes of the current tensor still to come, and the zeros after it
    padding: u64,
}

impl<W: Write> GgufWriter<W> {
    /// Writes everything before the tensors' bytes.
    pub fn new(mut out: W, metadata: &[(String, GgufValue)], tensors: &[TensorInfo]) -> io::Result<GgufWriter<W>> {
        let mut header = Vec::new();
        header.extend_from_slice(b"GGUF");
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata {
            put_text(&mut header, key);
            put_value(&mut header, value);
        }
        let mut sizes = Vec::with_capacity(tensors.len());
        let mut offset = 0u64;
        for tensor in tensors {
            let size = tensor.size().ok_or_else(|| {
                let (name, format) = (&tensor.name, tensor.format.name());
                io::Error::other(format!("tensor '{name}' with {:?} values has no size in {format}", tensor.dims))
            })?;
            put_text(&mut header, &tensor.name);
            header.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                header.extend_from_slice(&dim.to_le_bytes());
            }
            header.extend_from_slice(&tensor.format.to_gguf().to_le_bytes());
            header.extend_from_slice(&offset.to_le_bytes());
            let padding = size.next_multiple_of(ALIGNMENT) - size;
            sizes.push((size, padding));
            offset += size + padding;
        }
        header.resize((header.len() as u64).next_multiple_of(ALIGNMENT) as usize, 0);
        out.write_all(&header)?;
        let mut writer = GgufWriter { out, sizes: sizes.into_iter(), left: 0, padding: 0 };
        writer.next_tensor();
        Ok(writer)
    }

    /// The next bytes of the current tensor. A piece may not reach over a tensor's end.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = bytes.len() as u64;
        if size > self.left {
            return Err(io::Error::other(format!("{size} bytes where the tensor wants {} more", self.left)));
        }
        self.out.write_all(bytes)?;
        self.left -= size;
        if self.left == 0 {
            self.out.write_all(&[0; ALIGNMENT as usize][..self.padding as usize])?;
            self.next_tensor();
        }
        Ok(())
    }

    /// Bytes of the tensors and the zeros between them, before the first was written.
    pub fn bytes_to_come(&self) -> u64 {
        let rest = self.sizes.as_slice().iter().map(|(size, padding)| size + padding);
        self.left + self.padding + rest.sum::<u64>()
    }

    /// Returns the writer, whatever is missing.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Ends the file. An error where bytes are missing.
    pub fn finish(mut self) -> io::Result<W> {
        if self.left > 0 {
            return Err(io::Error::other(format!("the last tensor written lacks {} bytes", self.left)));
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn next_tensor(&mut self) {
        // Tensors without values take no bytes, so no piece would ever come for them.
        (self.left, self.padding) = self.sizes.find(|&(size, _)| size > 0).unwrap_or((0, 0));
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

mod kind {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const TEXT: u32 = 8;
    pub const ARRAY: u32 = 9;
}

fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    let array = |element: u32, count: usize| {
        [&kind::ARRAY.to_le_bytes()[..], &element.to_le_bytes(), &(count as u64).to_le_bytes()].concat()
    };
    match value {
        GgufValue::U32(value) => out.extend([kind::U32, *value].map(u32::to_le_bytes).as_flattened()),
        GgufValue::F32(value) => out.extend([kind::F32, value.to_bits()].map(u32::to_le_bytes).as_flattened()),
        GgufValue::Bool(value) => {
            out.extend(kind::BOOL.to_le_bytes());
            out.push(u8::from(*value));
        }
        GgufValue::Text(value) => {
            out.extend(kind::TEXT.to_le_bytes());
            put_text(out, value);
        }
        GgufValue::I32s(values) => {
            out.extend(array(kind::I32, values.len()));
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        GgufValue::Bools(values) => {
            out.extend(array(kind::BOOL, values.len()));
            out.extend(values.iter().map(|&value| u8::from(value)));
        }
        GgufValue::Copied(bytes) => out.extend(bytes),
        GgufValue::Texts(values) => {
            out.extend(array(kind::TEXT, values.len()));
            values.iter().for_each(|value| put_text(out, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dims: &[u64], format: Format) -> TensorInfo {
        TensorInfo { name: name.into(), dims: dims.into(), format }
    }

    #[test]
    fn a_small_file_byte_by_byte() {
        let metadata = [("k".to_string(), GgufValue::Texts(vec!["ab".into()]))];
        let tensors = [tensor("t", &[3], Format::F32), tensor("u", &[32, 1], Format::Q8_0)];
        let mut writer = GgufWriter::new(Vec::new(), &metadata, &tensors).unwrap();
        writer.write(&[1; 5]).unwrap();
        writer.write(&[2; 7]).unwrap();
        writer.write(&[3; 34]).unwrap();
        let file = writer.finish().unwrap();

        let mut expected = Vec::new();
        let mut put = |bytes: &[u8]| expected.extend_from_slice(bytes);
        put(b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
        put(b"\x01\0\0\0\0\0\0\0k\x09\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab");
        put(b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        put(b"\x01\0\0\0\0\0\0\0u\x02\0\0\0\x20\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\x20\0\0\0\0\0\0\0");
        expected.resize(expected.len().next_multiple_of(32), 0);
        expected.extend([[1u8; 5].as_slice(), &[2; 7], &[0; 20], &[3; 34], &[0; 30]].concat());
        assert_eq!(file, expected);
    }

    #[test]
    fn too_many_and_too_few_bytes_are_errors() {
        let tensors = [tensor("t", &[2], Format::F32), tensor("u", &[1], Format::F32)];
        let mut writer = GgufWriter::new(Vec::new(), &[], &tensors).unwrap();
        assert!(writer.write(&[0; 9]).is_err());
        writer.write(&[0; 8]).unwrap();
        let error = writer.finish().unwrap_err().to_string();
        assert_eq!(error, "the last tensor written lacks 4 bytes");
        let broken = [tensor("t", &[33], Format::Q8_0)];
        let error = GgufWriter::new(Vec::new(), &[], &broken).err().unwrap().to_string();
        assert_eq!(error, "tensor 't' with [33] values has no size in q8_0");
    }
}
