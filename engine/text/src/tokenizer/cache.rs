//! Tokens of text that was encoded before, within a limit. Two generations: when the young one is full it becomes the
//! old one, and the former old one is dropped; a hit in the old one makes the entry young again. That is close to
//! 'least recently used' and needs no list.

use std::collections::HashMap;
use std::sync::Arc;

pub const WORTH_CACHING_BYTES: usize = 16;
/// Cost of an entry besides its text and its tokens: two map slots' worth of pointers and counters.
const ENTRY_BYTES: usize = 96;

#[derive(Debug)]
pub struct SegmentCache {
    generation_limit_bytes: usize,
    young: HashMap<Box<str>, Arc<[u32]>>,
    young_bytes: usize,
    old: HashMap<Box<str>, Arc<[u32]>>,
}

impl SegmentCache {
    pub fn new(limit_bytes: usize) -> Self {
        Self { generation_limit_bytes: limit_bytes / 2, young: HashMap::new(), young_bytes: 0, old: HashMap::new() }
    }

    pub fn get(&mut self, text: &str) -> Option<Arc<[u32]>> {
        if let Some(tokens) = self.young.get(text) {
            return Some(tokens.clone());
        }
        let (text, tokens) = self.old.remove_entry(text)?;
        self.put(text, tokens.clone());
        Some(tokens)
    }

    pub fn insert(&mut self, text: &str, tokens: &[u32]) {
        if entry_bytes(text, tokens) <= self.generation_limit_bytes {
            self.put(text.into(), tokens.into());
        }
    }

    fn put(&mut self, text: Box<str>, tokens: Arc<[u32]>) {
        let bytes = entry_bytes(&text, &tokens);
        if self.young_bytes + bytes > self.generation_limit_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(text, tokens).is_none() {
            self.young_bytes += bytes;
        }
    }
}

fn entry_bytes(text: &str, tokens: &[u32]) -> usize {
    text.len() + size_of_val(tokens) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held_bytes(cache: &SegmentCache) -> usize {
        cache.young.iter().chain(&cache.old).map(|(text, tokens)| entry_bytes(text, tokens)).sum()
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut cache = SegmentCache::new(4 * (ENTRY_BYTES + 8));
        cache.insert("used", &[1]);
        for n in 0..20u32 {
            cache.insert(&format!("n{n:03}"), &[n]);
            assert_eq!(cache.get("used").as_deref(), Some(&[1][..]), "after {n}");
        }
        assert_eq!(cache.get("n000"), None);
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let mut cache = SegmentCache::new(300);
        cache.insert(&"x".repeat(400), &[1, 2, 3]);
        assert_eq!(held_bytes(&cache), 0);
    }

    proptest! {
        #[test]
        fn never_over_the_limit_and_never_wrong(limit in 0usize..4000, keys in prop::collection::vec(0u32..40, 0..200)) {
            let mut cache = SegmentCache::new(limit);
            for key in keys {
                let text = format!("{key}").repeat(key as usize);
                let tokens = vec![key; key as usize];
                if let Some(found) = cache.get(&text) {
                    prop_assert_eq!(&found[..], &tokens[..]);
                }
                cache.insert(&text, &tokens);
                prop_assert!(held_bytes(&cache) <= limit);
            }
        }
    }
}
