//! Random names and secrets, from the system's generator.

use crate::Error;
use std::path::Path;

/// No `i l o u`: an id may be read aloud.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_LETTERS: usize = 20; // 100 bits: two never meet

/// `sess_4k1…`: a prefix that tells what it names, and 20 random letters.
pub fn new_id(prefix: &str) -> Result<String, Error> {
    Ok(format!("{prefix}_{}", random_letters(ID_LETTERS)?))
}

/// Five bits of randomness a letter.
pub fn random_letters(count: usize) -> Result<String, Error> {
    let bytes = random_bytes(count)?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect())
}

pub fn random_bytes(count: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| Error::Disk {
        path: Path::new("/dev/urandom").to_path_buf(),
        cause: format!("the system gives no random bytes: {error}"),
    })?;
    Ok(bytes)
}
