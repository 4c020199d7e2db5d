//! A model that knows nothing: it chooses any allowed token.

use std::sync::{Arc, OnceLock};

use crate::Tokenizer;
use crate::grammar::{Grammar, GrammarEnv, Matcher};

pub fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let load = || {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-wide/tokenizer.json");
        Arc::new(Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap())
    };
    TOKENIZER.get_or_init(load).clone()
}

pub fn env() -> GrammarEnv {
    static ENV: OnceLock<GrammarEnv> = OnceLock::new();
    let stops = || ["<|im_end|>", "<|endoftext|>"].map(|name| tokenizer().id_of(name).unwrap());
    ENV.get_or_init(|| GrammarEnv::new(tokenizer(), &stops()).unwrap()).clone()
}

pub fn id(name: &str) -> u32 {
    tokenizer().id_of(name).unwrap_or_else(|| panic!("no token {name}"))
}

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % limit as u64) as usize
    }
}

pub fn allowed(mask: &[u32]) -> Vec<u32> {
    (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

/// Writes a reply from allowed tokens at random until it is finished. After `patience` tokens it prefers those that
/// bring it nearer to the end.
pub fn walk(grammar: &Grammar, seed: u64, patience: usize) -> String {
    let tokenizer = tokenizer();
    let mut matcher = env().matcher(grammar).unwrap();
    let mut dice = Dice::new(seed);
    let mut tokens = Vec::new();
    let stops = [id("<|im_end|>"), id("<|endoftext|>")];
    while !matcher.is_finished() {
        assert!(tokens.len() < patience + 600, "never ends: {:?}", tokenizer.decode(&tokens));
        if tokens.len() >= patience
            && let Some((further, way)) = way_out(&matcher)
        {
            matcher = further;
            tokens.extend(way);
            continue;
        }
        let token = match matcher.mask().unwrap() {
            Some(mask) => {
                let choices = allowed(mask);
                choices[dice.below(choices.len())]
            }
            None => dice.below(tokenizer.len()) as u32,
        };
        let taken = matcher.accept(token);
        assert_eq!(taken, Ok(()), "after {:?}", tokenizer.decode(&tokens));
        tokens.push(token);
    }
    tokens.retain(|token| !stops.contains(token));
    tokenizer.decode(&tokens)
}

fn way_out(matcher: &Matcher) -> Option<(Matcher, Vec<u32>)> {
    let take = |text: &&str| {
        let tokens = tokenizer().encode(text);
        let mut matcher = matcher.clone();
        tokens.iter().all(|token| matcher.accept(*token).is_ok()).then_some((matcher, tokens))
    };
    let in_quotes = ["q", "}", "]"].iter().all(|text| take(text).is_some());
    let json: &[&str] = if in_quotes { &["\""] } else { &["}", "]", "!"] };
    ["<|im_end|>", "</think>", "<tool_call>", "\n</parameter>"].iter().chain(json).find_map(take)
}

pub fn feed(matcher: &mut Matcher, text: &str) -> Result<(), String> {
    let tokenizer = tokenizer();
    let tokens = tokenizer.encode(text);
    for (index, token) in tokens.iter().enumerate() {
        let mask = matcher.mask().unwrap().map(<[u32]>::to_vec);
        let may = mask.is_none_or(|mask| mask[*token as usize / 32] >> (token % 32) & 1 == 1);
        let taken = matcher.accept(*token);
        assert_eq!(may, taken.is_ok(), "mask and acceptance disagree after {:?}", tokenizer.decode(&tokens[..index]));
        if taken.is_err() {
            return Err(tokenizer.decode(&tokens[..index]));
        }
    }
    Ok(())
}

/// Compares the mask with `accept`, for every token of the vocabulary at each step of a random walk.
pub fn assert_masks_are_exact(mut matcher: Matcher, seed: u64, steps: usize) {
    let mut dice = Dice::new(seed);
    for _ in 0..steps {
        let Some(mask) = matcher.mask().unwrap() else { panic!("this part is never free") };
        let may = allowed(mask);
        let taken: Vec<u32> =
            (0..tokenizer().len() as u32).filter(|token| matcher.clone().accept(*token).is_ok()).collect();
        // If a mask forces one way to write a text, `accept` takes other ways too: the mask is then a part of these.
        assert!(may == taken || (may.len() == 1 && taken.contains(&may[0])), "{may:?} {taken:?}");
        matcher.accept(may[dice.below(may.len())]).unwrap();
        if matcher.is_finished() {
            return;
        }
    }
}
