//! Head of a model's file, in one of two forms: what stands before its tensors' bytes.

use std::io::{self, Write};

use kernels::format::Format;
use serde_json::Value;

use crate::apr::{self, AprTensor, AprWriter};
use crate::gguf_writer::{self, GgufValue, GgufWriter, TensorInfo};

#[derive(Debug, Clone)]
pub enum FileHead {
    Gguf(Vec<(String, GgufValue)>),
    Apr(Value),
}

/// Writer of the tensors behind a head, in the order of the list.
pub enum TensorWriter<W: Write> {
    Gguf(GgufWriter<W>),
    Apr(AprWriter<W>),
}

const FILE_TYPE: &str = "general.file_type";

impl FileHead {
    pub fn takes(&self, format: Format) -> bool {
        match self {
            FileHead::Gguf(_) => true,
            FileHead::Apr(_) => apr::number_of(format).is_some(),
        }
    }

    pub fn alignment(&self) -> u64 {
        match self {
            FileHead::Gguf(_) => gguf_writer::ALIGNMENT,
            FileHead::Apr(_) => apr::ALIGNMENT,
        }
    }

    /// Says which type most values of a GGUF file have; an APR file says nothing of the kind.
    pub fn set_file_type(&mut self, number: u32) {
        let FileHead::Gguf(keys) = self else { return };
        let value = GgufValue::U32(number);
        match keys.iter_mut().find(|(key, _)| key == FILE_TYPE) {
            Some((_, found)) => *found = value,
            None => keys.push((FILE_TYPE.to_owned(), value)),
        }
    }

    pub fn write<W: Write>(&self, out: W, tensors: &[TensorInfo]) -> io::Result<TensorWriter<W>> {
        match self {
            FileHead::Gguf(keys) => GgufWriter::new(out, keys, tensors).map(TensorWriter::Gguf),
            FileHead::Apr(metadata) => AprWriter::new(out, metadata, &mut of_apr(tensors)).map(TensorWriter::Apr),
        }
    }

    pub fn file_bytes(&self, tensors: &[TensorInfo]) -> io::Result<u64> {
        let mut head = ByteCounter(0);
        self.write(&mut head, tensors)?;
        let padded = |tensor: &TensorInfo| tensor.size().unwrap_or(0).next_multiple_of(self.alignment());
        let tail = if let FileHead::Apr(_) = self { apr::TAIL } else { 0 };
        Ok(head.0 + tensors.iter().map(padded).sum::<u64>() + tail)
    }
}

fn of_apr(tensors: &[TensorInfo]) -> Vec<AprTensor> {
    let of_apr = |TensorInfo { name, dims, format }: &TensorInfo| AprTensor {
        name: name.clone(),
        dims: dims.iter().rev().copied().collect(),
        format: *format,
    };
    tensors.iter().map(of_apr).collect()
}

impl<W: Write> TensorWriter<W> {
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            TensorWriter::Gguf(writer) => writer.write(bytes),
            TensorWriter::Apr(writer) => writer.write(bytes),
        }
    }

    pub fn finish(self) -> io::Result<W> {
        match self {
            TensorWriter::Gguf(writer) => writer.finish(),
            TensorWriter::Apr(writer) => writer.finish(),
        }
    }
}

struct ByteCounter(u64);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_file_are_known_before_it_is_written() {
        let tensor = |name: &str, dims: &[u64], format| TensorInfo { name: name.into(), dims: dims.into(), format };
        let tensors = [tensor("a", &[256, 3], Format::Q4_K), tensor("b", &[5], Format::F32)];
        let keys = vec![("general.name".to_owned(), GgufValue::Text("x".into()))];
        for head in [FileHead::Gguf(keys), FileHead::Apr(serde_json::json!({"name": "x"}))] {
            let mut writer = head.write(Vec::new(), &tensors).unwrap();
            writer.write(&[1; 3 * 144]).unwrap();
            writer.write(&[1; 20]).unwrap();
            let file = writer.finish().unwrap();
            assert_eq!(head.file_bytes(&tensors).unwrap(), file.len() as u64, "{head:?}");
            assert!(!matches!(head, FileHead::Apr(_)) || !head.takes(Format::Q8_0));
        }
    }
}
