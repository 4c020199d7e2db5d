//! Texts of the reference implementation, and the vocabulary of a GGUF file.

use std::collections::HashMap;

use crate::golden::reference_models;

pub fn read(path: &str) -> Vec<u8> {
    let path = reference_models().join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn read_text(path: &str) -> String {
    String::from_utf8(read(path)).unwrap()
}

#[derive(Clone)]
pub struct GgufVocab {
    pub tokens: Vec<String>,
    pub types: Vec<u32>,
    pub merges: Vec<String>,
    pub pre: String,
}

pub fn gguf_vocab(path: &str) -> GgufVocab {
    let file = read(path);
    let mut at = Cursor { bytes: &file, at: 0 };
    assert_eq!(at.take(4), b"GGUF");
    at.number(4);
    at.number(8);
    let mut found: HashMap<String, Vec<Entry>> = HashMap::new();
    for _ in 0..at.number(8) {
        let key = at.string();
        let kind = at.number(4);
        let entries = match kind {
            9 => {
                let kind = at.number(4);
                (0..at.number(8)).map(|_| at.entry(kind)).collect()
            }
            kind => vec![at.entry(kind)],
        };
        found.insert(key, entries);
    }
    let mut take = |key: &str| found.remove(key).unwrap_or_else(|| panic!("no {key}"));
    let strings = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.text).collect::<Vec<_>>();
    GgufVocab {
        tokens: strings(take("tokenizer.ggml.tokens")),
        types: take("tokenizer.ggml.token_type").into_iter().map(|entry| entry.number as u32).collect(),
        merges: strings(take("tokenizer.ggml.merges")),
        pre: strings(take("tokenizer.ggml.pre")).remove(0),
    }
}

struct Entry {
    text: String,
    number: u64,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(self.take(bytes));
        u64::from_le_bytes(wide)
    }

    fn string(&mut self) -> String {
        let length = self.number(8) as usize;
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn entry(&mut self, kind: u64) -> Entry {
        match kind {
            8 => Entry { text: self.string(), number: 0 },
            0 | 1 | 7 => Entry { text: String::new(), number: self.number(1) },
            2 | 3 => Entry { text: String::new(), number: self.number(2) },
            4..=6 => Entry { text: String::new(), number: self.number(4) },
            10..=12 => Entry { text: String::new(), number: self.number(8) },
            other => panic!("GGUF value type {other}"),
        }
    }
}
