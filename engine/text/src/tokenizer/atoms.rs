//! Finds control tokens in a text: leftmost first, and of those that begin together the longest.

pub struct Atoms {
    /// By first byte, longest first.
    by_first_byte: Vec<Vec<(Vec<u8>, u32)>>,
}

impl Atoms {
    pub fn new(names: impl Iterator<Item = (Vec<u8>, u32)>) -> Self {
        let mut by_first_byte = vec![Vec::new(); 256];
        for (name, id) in names {
            if let Some(first) = name.first() {
                by_first_byte[*first as usize].push((name, id));
            }
        }
        for bucket in &mut by_first_byte {
            // Of two equal names the first id wins, so the sort must be stable.
            bucket.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        }
        Self { by_first_byte }
    }

    /// The first control token that begins at `from` or later: start, end, id.
    pub fn find(&self, text: &str, from: usize) -> Option<(usize, usize, u32)> {
        let bytes = text.as_bytes();
        for start in from..bytes.len() {
            for (name, id) in &self.by_first_byte[bytes[start] as usize] {
                if bytes[start..].starts_with(name) {
                    return Some((start, start + name.len(), *id));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftmost_and_then_the_longest_is_found() {
        let atoms = Atoms::new([(b"<a".to_vec(), 1), (b"<ab>".to_vec(), 2), (b"b".to_vec(), 3)].into_iter());
        assert_eq!(atoms.find("x<ab>", 0), Some((1, 5, 2)));
        assert_eq!(atoms.find("x<ax>b", 0), Some((1, 3, 1)));
        assert_eq!(atoms.find("x<ab>", 2), Some((3, 4, 3)));
        assert_eq!(atoms.find("x<", 0), None);
    }
}
