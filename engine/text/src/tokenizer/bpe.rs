//! Byte-pair merging of one word: of all neighbours that may merge the pair with the lowest rank does, the leftmost
//! first, until none may.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

pub struct Merges {
    /// (left << 32 | right) to (rank, merged id).
    pairs: HashMap<u64, (u32, u32), BuildHasherDefault<PairHasher>>,
    byte_ids: [u32; 256],
}

/// Working memory, kept from word to word.
#[derive(Default)]
pub struct Scratch {
    symbols: Vec<Symbol>,
    /// (rank, position of the left symbol, pair that it was when it was put here).
    candidates: BinaryHeap<Reverse<(u32, u32, u64)>>,
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl Merges {
    pub fn new(byte_ids: [u32; 256], capacity: usize) -> Self {
        Self { pairs: HashMap::with_capacity_and_hasher(capacity, Default::default()), byte_ids }
    }

    /// A pair that is listed twice keeps its last rank, as the reference has it.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, merged: u32) {
        self.pairs.insert(key(left, right), (rank, merged));
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn encode(&self, word: &[u8], scratch: &mut Scratch, tokens: &mut Vec<u32>) {
        if let [byte] = word {
            tokens.push(self.byte_ids[*byte as usize]);
            return;
        }
        let Scratch { symbols, candidates } = scratch;
        symbols.clear();
        candidates.clear();
        let count = word.len() as u32;
        for (at, byte) in (0u32..).zip(word) {
            let next = if at + 1 < count { at + 1 } else { NONE };
            symbols.push(Symbol { id: self.byte_ids[*byte as usize], previous: at.wrapping_sub(1), next });
        }
        for at in 0..count.saturating_sub(1) {
            self.offer(symbols, candidates, at);
        }
        while let Some(Reverse((_, at, pair))) = candidates.pop() {
            let left = symbols[at as usize];
            // A symbol that was merged away has an id of `NONE`, which is in no pair.
            if left.next == NONE || key(left.id, symbols[left.next as usize].id) != pair {
                continue;
            }
            let Some((_, merged)) = self.pairs.get(&pair) else { continue };
            let right = symbols[left.next as usize];
            symbols[left.next as usize].id = NONE;
            symbols[at as usize] = Symbol { id: *merged, previous: left.previous, next: right.next };
            if right.next != NONE {
                symbols[right.next as usize].previous = at;
                self.offer(symbols, candidates, at);
            }
            if left.previous != NONE {
                self.offer(symbols, candidates, left.previous);
            }
        }
        let mut at = if symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            let symbol = symbols[at as usize];
            tokens.push(symbol.id);
            at = symbol.next;
        }
    }

    fn offer(&self, symbols: &[Symbol], candidates: &mut BinaryHeap<Reverse<(u32, u32, u64)>>, at: u32) {
        let left = symbols[at as usize];
        let pair = key(left.id, symbols[left.next as usize].id);
        if let Some((rank, _)) = self.pairs.get(&pair) {
            candidates.push(Reverse((*rank, at, pair)));
        }
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Keys come from the model's file, not from a stranger, and are looked up for every pair of bytes: one multiplication
/// is enough.
#[derive(Default)]
pub struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
