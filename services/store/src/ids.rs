//! Random names and secrets, from the system's generator.

use crate::Error;
use std::path::Path;

/// Letters of ids, without `i l o u`, because people read ids aloud.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_LETTERS: usize = 20; // 100 bits: two never meet

/// Makes an id such as `sess_4k1…`: a prefix for its kind, and 20 random letters.
pub fn new_id(prefix: &str) -> Result<String, Error> {
    Ok(format!("{prefix}_{}", random_letters(ID_LETTERS)?))
}

/// Makes letters with five bits of randomness each.
pub fn random_letters(count: usize) -> Result<String, Error> {
    let bytes = random_bytes(count)?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect())
}

pub fn random_bytes(count: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| Error::Disk {
        path: Path::new("/dev/urandom").to_path_buf(),
        cause: format!("the system gave no random bytes: {error}"),
    })?;
    Ok(bytes)
}
