//! Vocabulary files write a token's bytes as printable characters: a byte that is a printable Latin-1 character stands
//! for itself, the others are numbered from U+0100 on in their order.

/// The byte that a character stands for.
pub fn byte_of(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x100..0x144 => shifted_byte(code - 0x100),
        0..0x100 if stands_for_itself(code as u8) => Some(code as u8),
        _ => None,
    }
}

/// The bytes of a token as the file writes it. None when a character stands for no byte.
pub fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The n-th of the bytes that do not stand for themselves: 0x00-0x20, 0x7f-0xa0, 0xad.
fn shifted_byte(n: u32) -> Option<u8> {
    let byte = match n {
        0..=0x20 => n,
        0x21..=0x42 => n - 0x21 + 0x7f,
        0x43 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut seen = [0; 256];
        for c in (0..0x200).filter_map(char::from_u32) {
            if let Some(byte) = byte_of(c) {
                seen[byte as usize] += 1;
            }
        }
        assert_eq!(seen, [1; 256]);
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('Ń'), Some(0xad));
        assert_eq!(byte_of(' '), None);
        assert_eq!(bytes_of("ç"), Some(vec![0xe7]));
    }
}
