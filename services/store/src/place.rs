//! Where an item stands among the others: a key of bytes that sorts as the conversation reads, with room between any two.
//!
//! Six bytes count (items said one after the other get the next number), the bytes after them are a fraction (items that
//! were put between two others). A fraction never ends in zero: so there is always a key between two different ones.

const COUNT_BYTES: usize = 6;
const MIDDLE: u64 = 1 << (COUNT_BYTES * 8 - 1);
const LAST: u64 = (1 << (COUNT_BYTES * 8)) - 1;

/// A key after `before` and ahead of `after`; `None` is the open end on that side.
pub fn between(before: Option<&[u8]>, after: Option<&[u8]>) -> Vec<u8> {
    match (before, after) {
        (None, None) => counted(MIDDLE),
        (Some(before), None) => match count(before) {
            LAST => midpoint(before, None),
            n => counted(n + 1),
        },
        (None, Some(after)) => match count(after) {
            0 => midpoint(&[], Some(after)),
            n => counted(n - 1),
        },
        (Some(before), Some(after)) => {
            let (low, high) = (count(before), count(after));
            if high > low + 1 { counted(low + (high - low) / 2) } else { midpoint(before, Some(after)) }
        }
    }
}

fn counted(n: u64) -> Vec<u8> {
    n.to_be_bytes()[8 - COUNT_BYTES..].to_vec()
}

fn count(place: &[u8]) -> u64 {
    (0..COUNT_BYTES).fold(0, |n, i| n << 8 | u64::from(place.get(i).copied().unwrap_or(0)))
}

/// Both are read as fractions in base 256; the result is the first shorter one found between them.
fn midpoint(before: &[u8], mut after: Option<&[u8]>) -> Vec<u8> {
    let mut place = Vec::with_capacity(before.len() + 1);
    for i in 0.. {
        let low = u32::from(before.get(i).copied().unwrap_or(0));
        let high = after.map_or(256, |after| u32::from(after.get(i).copied().unwrap_or(0)));
        if high > low + 1 {
            place.push(((low + high) / 2) as u8);
            break;
        }
        place.push(low as u8);
        if high != low {
            after = None; // already below it: what follows may be anything
        }
        if after.is_some_and(|after| i >= after.len()) {
            break; // only for keys that are not in order; never with keys made here
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn items_said_in_order_keep_short_places() {
        let mut last = between(None, None);
        for _ in 0..100_000 {
            let next = between(Some(&last), None);
            assert!(next > last && next.len() == COUNT_BYTES);
            last = next;
        }
    }

    #[test]
    fn the_ends_of_the_count_still_have_room() {
        let (first, last) = (counted(0), counted(LAST));
        let before = between(None, Some(&between(None, Some(&counted(1)))));
        assert!(before < counted(1));
        assert!(between(Some(&last), None) > last);
        let between_ends = between(Some(&first), Some(&counted(1)));
        assert!(between_ends > first && between_ends < counted(1));
    }

    proptest! {
        #[test]
        fn any_insertion_lands_where_it_was_asked(positions in prop::collection::vec(any::<prop::sample::Index>(), 1..300)) {
            let mut places: Vec<Vec<u8>> = Vec::new();
            for position in positions {
                let at = position.index(places.len() + 1);
                let before = at.checked_sub(1).and_then(|i| places.get(i)).map(Vec::as_slice);
                let place = between(before, places.get(at).map(Vec::as_slice));
                prop_assert!(places.get(at).is_none_or(|after| place < *after));
                prop_assert!(before.is_none_or(|before| place.as_slice() > before));
                prop_assert!(place.len() == COUNT_BYTES || place.last() != Some(&0));
                places.insert(at, place);
            }
        }

        #[test]
        fn always_the_same_gap(towards_the_end in any::<bool>()) {
            let (mut low, mut high) = (counted(7), counted(8));
            for _ in 0..500 {
                let place = between(Some(&low), Some(&high));
                prop_assert!(low < place && place < high);
                if towards_the_end { low = place } else { high = place }
            }
        }
    }
}
