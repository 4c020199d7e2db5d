//! Free text that ends at a control token.

/// A control token, and the ways to spell its name with other tokens.
#[derive(Debug, Clone)]
pub struct Marker {
    pub id: u32,
    name: Vec<u8>,
    /// Tokens at `n` that complete the name after its first `n` bytes; at 0 those that hold all of it.
    completions: Vec<Vec<u32>>,
}

impl Marker {
    /// Builds a marker from `tokens`, the ordinary tokens and their bytes. `None` without an id: the vocabulary has no
    /// such control token.
    pub fn new<'t>(id: Option<u32>, name: &str, tokens: impl Iterator<Item = (u32, &'t [u8])>) -> Option<Marker> {
        let (id, name) = (id?, name.as_bytes().to_vec());
        let mut completions = vec![Vec::new(); name.len()];
        for (token, bytes) in tokens {
            if bytes.windows(name.len()).any(|window| window == name) {
                completions[0].push(token);
                continue;
            }
            for written in 1..name.len() {
                if bytes.starts_with(&name[written..]) {
                    completions[written].push(token);
                }
            }
        }
        Some(Marker { id, name, completions })
    }

    /// Returns the tokens that must not follow the first `written` bytes of the name.
    pub fn completions(&self, written: usize) -> impl Iterator<Item = u32> + '_ {
        let begun = if written > 0 { self.completions[written].as_slice() } else { &[] };
        self.completions[0].iter().chain(begun).copied()
    }

    /// Counts the bytes of the name at the end of the text, after `bytes` were added behind `written` of them.
    pub fn written_after(&self, written: usize, bytes: &[u8]) -> usize {
        // A name begins with '<' and has no second one, so after a mismatch at most that one byte is written.
        debug_assert!(!self.name[1..].contains(&self.name[0]));
        bytes.iter().fold(written, |written, byte| match self.name.get(written) {
            Some(wanted) if wanted == byte && written + 1 < self.name.len() => written + 1,
            _ => usize::from(*byte == self.name[0]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_followed_over_token_borders() {
        let tokens: Vec<&[u8]> = vec![b"<", b"<t", b"ool_call", b">", b">\n", b"x<tool_call>", b"l>", b"tool", b"<to<"];
        let numbered = tokens.iter().enumerate().map(|(id, bytes)| (id as u32, *bytes));
        let marker = Marker::new(Some(99), "<tool_call>", numbered).unwrap();
        let after = |written: usize, id: usize| marker.written_after(written, tokens[id]);
        assert_eq!(after(0, 0), 1);
        assert_eq!(after(1, 0), 1);
        assert_eq!(after(1, 7), 5);
        assert_eq!(after(after(0, 1), 2), 10);
        assert_eq!(after(5, 0), 1);
        assert_eq!(after(0, 8), 1);
        assert_eq!(after(0, 3), 0);
        // Token 5 holds the whole name and is never allowed.
        let forbidden = |written| marker.completions(written).collect::<Vec<u32>>();
        assert_eq!(forbidden(0), [5]);
        assert_eq!(forbidden(10), [5, 3, 4]);
        assert_eq!(forbidden(9), [5, 6]);
        assert_eq!(forbidden(4), [5]);
    }
}
