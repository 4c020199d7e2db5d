//! A writer of GGUF files that lets a test write nonsense: nothing is checked, every field can be set apart.

#[derive(Clone, Debug)]
pub enum Value {
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    Bools(Vec<bool>),
    /// A type code and the bytes after it.
    Raw(u32, Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Outermost first; the file has them the other way round.
    pub dims: Vec<u64>,
    pub type_code: u32,
    pub data: Vec<u8>,
    pub offset: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct File {
    pub version: u32,
    pub alignment: usize,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
}

impl Default for File {
    fn default() -> File {
        File { version: 3, alignment: 32, keys: Vec::new(), tensors: Vec::new(), tensor_count: None, key_count: None }
    }
}

impl File {
    pub fn set(&mut self, key: &str, value: Value) -> &mut File {
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.keys.push((key.to_string(), value)),
        }
        self
    }

    pub fn remove(&mut self, key: &str) -> &mut File {
        self.keys.retain(|(name, _)| name != key);
        self
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub fn take(&mut self, name: &str) -> Tensor {
        let index = self.tensors.iter().position(|tensor| tensor.name == name).unwrap();
        self.tensors.remove(index)
    }

    pub fn add(&mut self, name: &str, dims: &[u64], values: &[f32]) -> &mut File {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push(Tensor { name: name.to_string(), dims: dims.to_vec(), type_code: 0, data, offset: None });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            text(&mut out, key);
            value.write(&mut out);
        }
        let mut data = Vec::new();
        for tensor in &self.tensors {
            text(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.type_code.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.data);
            pad(&mut data, self.alignment);
        }
        pad(&mut out, self.alignment);
        out.extend(data);
        out
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        let mut list = |code: u32, count: usize, bytes: Vec<u8>| {
            out.extend(9u32.to_le_bytes());
            out.extend(code.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Value::Texts(texts) => {
                let mut bytes = Vec::new();
                texts.iter().for_each(|item| text(&mut bytes, item));
                list(8, texts.len(), bytes);
            }
            Value::U32s(items) => list(4, items.len(), items.iter().flat_map(|item| item.to_le_bytes()).collect()),
            Value::I32s(items) => list(5, items.len(), items.iter().flat_map(|item| item.to_le_bytes()).collect()),
            Value::Bools(items) => list(7, items.len(), items.iter().map(|&item| item.into()).collect()),
            single => {
                let (code, bytes) = single.single();
                out.extend(code.to_le_bytes());
                out.extend(bytes);
            }
        }
    }

    fn single(&self) -> (u32, Vec<u8>) {
        match self {
            Value::U32(number) => (4, number.to_le_bytes().to_vec()),
            Value::I32(number) => (5, number.to_le_bytes().to_vec()),
            Value::F32(number) => (6, number.to_le_bytes().to_vec()),
            Value::Bool(flag) => (7, vec![(*flag).into()]),
            Value::U64(number) => (10, number.to_le_bytes().to_vec()),
            Value::Text(item) => {
                let mut bytes = Vec::new();
                text(&mut bytes, item);
                (8, bytes)
            }
            Value::Raw(code, bytes) => (*code, bytes.clone()),
            Value::Texts(_) | Value::U32s(_) | Value::I32s(_) | Value::Bools(_) => unreachable!("a list"),
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}
