//! Ids that the server makes: `item_`, `resp_`, `call_`, `event_` and 21 letters.

pub const NOTE_OF_PAST: &str = "recall_note";
/// Prefix of the ids of all items that the service made by itself. Clients may not choose such ids.
pub const HIDDEN: &str = "recall";

pub fn is_hidden_id(id: &str) -> bool {
    id.strip_prefix(HIDDEN).is_some_and(|rest| rest.starts_with('_'))
}

/// Generator of ids that do not repeat: a counter, mixed with a seed so that two runs of the service differ.
#[derive(Clone, Debug)]
pub struct Ids {
    seed: u64,
    count: u64,
}

impl Ids {
    /// Takes a seed that must be random for each load of a session.
    pub fn new(seed: u64) -> Ids {
        Ids { seed, count: 0 }
    }

    pub fn next(&mut self, prefix: &str) -> String {
        self.count += 1;
        let high = mix(self.seed ^ mix(self.count));
        let low = mix(high ^ self.count.rotate_left(32) ^ self.seed.rotate_left(17));
        let mut number = (u128::from(high) << 64) | u128::from(low);
        let mut id = String::with_capacity(prefix.len() + 22);
        id.push_str(prefix);
        id.push('_');
        for _ in 0..21 {
            const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            id.push(char::from(LETTERS[(number % 62) as usize]));
            number /= 62;
        }
        id
    }
}

/// Mixes 64 bits one to one, so that no pattern of the counter is visible (the finaliser of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_do_not_repeat_within_or_between_seeds() {
        let mut seen = HashSet::new();
        for seed in 0..20 {
            let mut ids = Ids::new(seed);
            for _ in 0..1000 {
                assert!(seen.insert(ids.next("item")));
            }
        }
        assert!(seen.iter().all(|id| id.len() == 26 && id.starts_with("item_")));
    }
}
