//! Bytes as vocabulary files write them, in printable characters: a byte that is a printable Latin-1 character stands
//! for itself, the others are numbered from U+0100 on in their order.

pub const CHARS: [char; 256] = chars();
const BYTES: [Option<u8>; 0x144] = bytes();

/// Writes a text's bytes as vocabulary files do.
pub fn chars_of(text: &str) -> impl Iterator<Item = char> + '_ {
    text.bytes().map(|byte| CHARS[byte as usize])
}

/// Reads the bytes of a token as the file writes it. `None` if a character stands for no byte.
pub fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(|c| BYTES.get(c as usize).copied().flatten()).collect()
}

const fn chars() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut shifted = 0x100;
    let mut byte = 0;
    while byte < 256 {
        let code = match byte as u8 {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => byte as u32,
            _ => {
                shifted += 1;
                shifted - 1
            }
        };
        if let Some(c) = char::from_u32(code) {
            chars[byte] = c;
        }
        byte += 1;
    }
    chars
}

const fn bytes() -> [Option<u8>; 0x144] {
    let mut bytes = [None; 0x144];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        for byte in 0..=255u8 {
            assert_eq!(bytes_of(&CHARS[byte as usize].to_string()), Some(vec![byte]));
        }
        assert_eq!(BYTES.iter().flatten().count(), 256);
        assert_eq!(bytes_of("çĠĊŃ"), Some(vec![0xe7, b' ', b'\n', 0xad]));
        assert_eq!(bytes_of("a b"), None);
    }
}
