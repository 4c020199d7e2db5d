//! Order keys: bytes that sort as the conversation reads, with room between any two.
//!
//! Six bytes count (an appended item gets the next number), the bytes after them are a fraction (for items inserted
//! between two others). A fraction never ends in zero: so there is always a key between two different ones.

use serde::{Deserialize, Deserializer, Serialize, de::Error};

const COUNT_BYTES: usize = 6;
const MIDDLE: u64 = 1 << (COUNT_BYTES * 8 - 1);
const LAST: u64 = (1 << (COUNT_BYTES * 8)) - 1;

/// Order key of an item. The empty key sorts before all others. JSON has two hexadecimal letters a byte.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, sqlx::Type)]
#[sqlx(transparent)]
pub struct OrderKey(#[serde(serialize_with = "hex::serialize")] Vec<u8>);

impl OrderKey {
    /// Returns a key after `before` and ahead of `after`; `None` is the open end on that side.
    pub fn between(before: Option<&OrderKey>, after: Option<&OrderKey>) -> OrderKey {
        let key = match (before, after) {
            (None, None) => counted(MIDDLE),
            (Some(before), None) => match count(&before.0) {
                LAST => midpoint(&before.0, None),
                n => counted(n + 1),
            },
            (None, Some(after)) => match count(&after.0) {
                0 => midpoint(&[], Some(&after.0)),
                n => counted(n - 1),
            },
            (Some(before), Some(after)) => {
                let (low, high) = (count(&before.0), count(&after.0));
                if high > low + 1 { counted(low + (high - low) / 2) } else { midpoint(&before.0, Some(&after.0)) }
            }
        };
        OrderKey(key)
    }
}

impl<'de> Deserialize<'de> for OrderKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrderKey, D::Error> {
        let key: Vec<u8> = hex::deserialize(deserializer)?;
        // An item has a key of at least one byte.
        if key.is_empty() { Err(D::Error::custom("an empty key")) } else { Ok(OrderKey(key)) }
    }
}

fn counted(n: u64) -> Vec<u8> {
    n.to_be_bytes()[8 - COUNT_BYTES..].to_vec()
}

fn count(key: &[u8]) -> u64 {
    (0..COUNT_BYTES).fold(0, |n, i| n << 8 | u64::from(key.get(i).copied().unwrap_or(0)))
}

/// Returns the first shorter fraction between two fractions in base 256.
fn midpoint(before: &[u8], mut after: Option<&[u8]>) -> Vec<u8> {
    let mut key = Vec::with_capacity(before.len() + 1);
    for i in 0.. {
        let low = u32::from(before.get(i).copied().unwrap_or(0));
        let high = after.map_or(256, |after| u32::from(after.get(i).copied().unwrap_or(0)));
        if high > low + 1 {
            key.push(((low + high) / 2) as u8);
            break;
        }
        key.push(low as u8);
        if high != low {
            after = None; // already below it: what follows may be anything
        }
        if after.is_some_and(|after| i >= after.len()) {
            break; // only for keys that are not in order; never with keys made here
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn between(before: Option<&OrderKey>, after: Option<&OrderKey>) -> OrderKey {
        OrderKey::between(before, after)
    }

    fn numbered(n: u64) -> OrderKey {
        OrderKey(counted(n))
    }

    #[test]
    fn items_said_in_order_keep_short_keys() {
        let mut last = between(None, None);
        for _ in 0..100_000 {
            let next = between(Some(&last), None);
            assert!(next > last && next.0.len() == COUNT_BYTES);
            last = next;
        }
    }

    #[test]
    fn the_ends_of_the_count_still_have_room() {
        let (first, last) = (numbered(0), numbered(LAST));
        let before = between(None, Some(&between(None, Some(&numbered(1)))));
        assert!(before < numbered(1));
        assert!(between(Some(&last), None) > last);
        let between_ends = between(Some(&first), Some(&numbered(1)));
        assert!(between_ends > first && between_ends < numbered(1));
    }

    proptest! {
        #[test]
        fn any_insertion_lands_where_it_was_asked(positions in prop::collection::vec(any::<prop::sample::Index>(), 1..300)) {
            let mut keys: Vec<OrderKey> = Vec::new();
            for position in positions {
                let at = position.index(keys.len() + 1);
                let before = at.checked_sub(1).and_then(|i| keys.get(i));
                let key = between(before, keys.get(at));
                prop_assert!(keys.get(at).is_none_or(|after| key < *after));
                prop_assert!(before.is_none_or(|before| key > *before));
                prop_assert!(key.0.len() == COUNT_BYTES || key.0.last() != Some(&0));
                let json = serde_json::to_string(&key).unwrap();
                prop_assert_eq!(&serde_json::from_str::<OrderKey>(&json).unwrap(), &key);
                keys.insert(at, key);
            }
        }

        #[test]
        fn always_the_same_gap(towards_the_end in any::<bool>()) {
            let (mut low, mut high) = (numbered(7), numbered(8));
            for _ in 0..500 {
                let key = between(Some(&low), Some(&high));
                prop_assert!(low < key && key < high);
                if towards_the_end { low = key } else { high = key }
            }
        }
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        for text in ["", "8", "8g", "-1"] {
            assert!(serde_json::from_value::<OrderKey>(text.into()).is_err(), "{text}");
        }
    }
}
