//! Pasts whose state had to go, kept as hashes so that a report can say that they were known once.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use crate::request::OwnerId;

/// Tokens of one hash: what is remembered of a past is told to the next of these.
const GRAIN: usize = 64;

/// Older ones are forgotten: a household has fewer conversations that it may come back to.
const PASTS: usize = 256;

#[derive(Default)]
pub(crate) struct Evicted {
    /// Of each past the hashes of its beginnings, one grain longer each.
    pasts: VecDeque<(Option<OwnerId>, Vec<u64>)>,
}

impl Evicted {
    pub fn remember(&mut self, tokens: &[u32], owner: Option<OwnerId>) {
        let hashes: Vec<u64> = hashes(tokens).collect();
        if hashes.is_empty() {
            return;
        }
        self.pasts.retain(|(_, past)| !hashes.starts_with(past));
        self.pasts.push_back((owner, hashes));
        if self.pasts.len() > PASTS {
            self.pasts.pop_front();
        }
    }

    /// So many tokens of this prompt were known once.
    pub fn known(&self, tokens: &[u32]) -> usize {
        if self.pasts.is_empty() {
            return 0;
        }
        let hashes: Vec<u64> = hashes(tokens).collect();
        self.pasts.iter().map(|(_, past)| common(past, &hashes)).max().unwrap_or(0) * GRAIN
    }

    pub fn forget(&mut self, owner: OwnerId) {
        self.pasts.retain(|(theirs, _)| *theirs != Some(owner));
    }
}

fn hashes(tokens: &[u32]) -> impl Iterator<Item = u64> {
    let mut hasher = DefaultHasher::new();
    tokens.chunks_exact(GRAIN).map(move |grain| {
        grain.iter().for_each(|token| hasher.write_u32(*token));
        hasher.finish()
    })
}

fn common(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_is_known_by_its_beginning_until_it_is_forgotten() {
        let mut gone = Evicted::default();
        let past: Vec<u32> = (0..300).collect();
        gone.remember(&past, Some(OwnerId(1)));
        assert_eq!(gone.known(&past), 256);
        assert_eq!(gone.known(&past[..130]), 128);
        assert_eq!(gone.known(&[&past[..200], &[7; 100]].concat()), 192);
        assert_eq!(gone.known(&past[1..]), 0);
        gone.forget(OwnerId(2));
        assert_eq!(gone.known(&past), 256);
        gone.forget(OwnerId(1));
        assert_eq!(gone.known(&past), 0);
    }
}
