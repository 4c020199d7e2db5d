//! Files as they are here.

use super::Sent;
use crate::error::Error;
use crate::name::is_part;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Upload {
    pub path: String,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    File(PathBuf),
    Text(String),
}

pub(super) struct LocalFile {
    pub path: String,
    pub content: Content,
    pub bytes: u64,
    pub sha256: String,
    pub how: Sent,
    pub is_object: bool,
    begin: Vec<u8>,
}

/// Reads a file and returns its SHA-256 in hexadecimal digits.
pub fn sha256_of(file: &Path) -> Result<String, Error> {
    let mut hash = Sha256::new();
    read_pieces(file, &mut |piece: &[u8]| hash.update(piece)).map_err(|source| disk(file, source))?;
    Ok(hex::encode(hash.finalize()))
}

const SAMPLE: usize = 512;
const PIECE: usize = 1 << 20;

impl LocalFile {
    /// Reads a file's size and hash, off the workers.
    pub async fn read(upload: Upload) -> Result<LocalFile, Error> {
        if !upload.path.split('/').all(is_part) {
            return Err(Error::UploadName { file: upload.path });
        }
        let read = tokio::task::spawn_blocking(move || LocalFile::hash(upload));
        read.await.map_err(|error| Error::Disk { path: PathBuf::new(), source: io::Error::other(error) })?
    }

    fn hash(Upload { path, content }: Upload) -> Result<LocalFile, Error> {
        let (mut hash, mut begin, mut bytes) = (Sha256::new(), Vec::new(), 0);
        let mut take = |piece: &[u8]| {
            hash.update(piece);
            bytes += piece.len() as u64;
            begin.extend_from_slice(&piece[..piece.len().min(SAMPLE - begin.len())]);
        };
        match &content {
            Content::Text(text) => take(text.as_bytes()),
            Content::File(file) => read_pieces(file, &mut take).map_err(|source| disk(file, source))?,
        }
        Ok(LocalFile {
            path,
            content,
            bytes,
            sha256: hex::encode(hash.finalize()),
            how: Sent::New,
            is_object: true,
            begin,
        })
    }

    pub fn sample(&self) -> Value {
        json!({ "path": self.path, "size": self.bytes, "sha": self.sha256, "sample": BASE64_STANDARD.encode(&self.begin) })
    }

    pub fn text(&self) -> Result<String, Error> {
        match &self.content {
            Content::Text(text) => Ok(BASE64_STANDARD.encode(text)),
            Content::File(file) => {
                std::fs::read(file).map(|bytes| BASE64_STANDARD.encode(bytes)).map_err(|source| disk(file, source))
            }
        }
    }
}

pub(super) fn disk(file: &Path, source: io::Error) -> Error {
    Error::Disk { path: file.to_path_buf(), source }
}

fn read_pieces(file: &Path, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let (mut file, mut piece) = (std::fs::File::open(file)?, vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            count => take(&piece[..count]),
        }
    }
}
