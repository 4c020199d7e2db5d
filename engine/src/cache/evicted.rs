//! Evicted sequences, kept as hashes so that a report can say that a prompt was cached once.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use crate::cached_sequence::common_prefix;
use crate::request::OwnerId;

const HASHED_TOKENS: usize = 64; // tokens of one hash: common prefixes are known in such steps

const MOST_SEQUENCES: usize = 256; // number of sequences kept: a household has fewer conversations to come back to

#[derive(Default)]
pub(crate) struct Evicted {
    /// Owner, user and prefix hashes of each sequence, each prefix `HASHED_TOKENS` longer than the one before.
    sequences: VecDeque<(Option<OwnerId>, Option<u64>, Vec<u64>)>,
}

impl Evicted {
    pub fn remember(&mut self, tokens: &[u32], owner: Option<OwnerId>, user: Option<u64>) {
        let hashes: Vec<u64> = hashes(tokens).collect();
        if hashes.is_empty() {
            return;
        }
        self.sequences.retain(|(_, by, theirs)| *by != user || !hashes.starts_with(theirs));
        self.sequences.push_back((owner, user, hashes));
        if self.sequences.len() > MOST_SEQUENCES {
            self.sequences.pop_front();
        }
    }

    pub fn known(&self, tokens: &[u32], user: Option<u64>) -> usize {
        if self.sequences.is_empty() {
            return 0;
        }
        let hashes: Vec<u64> = hashes(tokens).collect();
        let ours = self.sequences.iter().filter(|(_, by, _)| *by == user);
        ours.map(|(_, _, theirs)| common_prefix(theirs, &hashes)).max().unwrap_or(0) * HASHED_TOKENS
    }

    pub fn forget(&mut self, owner: OwnerId) {
        self.sequences.retain(|(owned_by, ..)| *owned_by != Some(owner));
    }
}

fn hashes(tokens: &[u32]) -> impl Iterator<Item = u64> {
    let mut hasher = DefaultHasher::new();
    tokens.chunks_exact(HASHED_TOKENS).map(move |tokens| {
        tokens.iter().for_each(|token| hasher.write_u32(*token));
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_known_by_its_beginning_until_it_is_forgotten() {
        let mut evicted = Evicted::default();
        let past: Vec<u32> = (0..300).collect();
        evicted.remember(&past, Some(OwnerId(1)), Some(3));
        assert_eq!((evicted.known(&past, None), evicted.known(&past, Some(4))), (0, 0));
        assert_eq!(evicted.known(&past, Some(3)), 256);
        assert_eq!(evicted.known(&past[..130], Some(3)), 128);
        assert_eq!(evicted.known(&[&past[..200], &[7; 100]].concat(), Some(3)), 192);
        assert_eq!(evicted.known(&past[1..], Some(3)), 0);
        evicted.forget(OwnerId(2));
        assert_eq!(evicted.known(&past, Some(3)), 256);
        evicted.forget(OwnerId(1));
        assert_eq!(evicted.known(&past, Some(3)), 0);
    }
}
