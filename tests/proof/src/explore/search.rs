//! Breadth first, so that what breaks something is told in the fewest steps. A state is kept as the steps that lead to it.

use super::world::World;
use std::collections::HashSet;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

#[derive(Debug)]
pub struct Explored {
    pub states: u64,
    pub steps: u64,
    /// All states that so many steps can reach were looked at.
    pub depth: usize,
    /// No step leads to a new one any more.
    pub is_all: bool,
    pub by_depth: Vec<u64>,
    pub failure: Option<String>,
}

type Path = Vec<u8>;

/// States between two looks at whether it goes on.
const BATCH: usize = 20_000;

/// `first` is where it begins.
pub fn explore(first: &World, deepest: usize, goes_on: &(dyn Fn() -> bool + Sync)) -> Explored {
    let mut explored = Explored { states: 1, steps: 0, depth: 0, is_all: false, by_depth: vec![1], failure: None };
    let mut seen: HashSet<u128> = HashSet::from([digest(first)]);
    let mut frontier: Vec<Path> = vec![Vec::new()];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    while explored.depth < deepest && explored.failure.is_none() {
        let mut next = Vec::new();
        for batch in frontier.chunks(BATCH) {
            if !goes_on() {
                return explored;
            }
            let parts = batch.chunks(batch.len().div_ceil(threads));
            let found: Vec<Vec<Found>> = std::thread::scope(|scope| {
                let expand = |part| scope.spawn(move || expand(first, part));
                let running: Vec<_> = parts.map(expand).collect();
                running.into_iter().map(|thread| thread.join().expect("exploring does not panic")).collect()
            });
            for Found { path, digest, wrong } in found.into_iter().flatten() {
                explored.steps += 1;
                if let Some(wrong) = wrong {
                    explored.failure = Some(format!("{wrong}\n    after: {}", told(first, &path)));
                    return explored;
                }
                if seen.insert(digest) {
                    next.push(path);
                }
            }
        }
        explored.states += next.len() as u64;
        explored.depth += 1;
        explored.by_depth.push(next.len() as u64);
        explored.is_all = next.is_empty();
        if explored.is_all {
            break;
        }
        frontier = next;
    }
    explored
}

struct Found {
    path: Path,
    digest: u128,
    wrong: Option<String>,
}

fn expand(first: &World, paths: &[Path]) -> Vec<Found> {
    let mut found = Vec::new();
    for path in paths {
        let world = replayed(first, path);
        for (number, action) in world.actions().into_iter().enumerate() {
            let mut next = world.clone();
            next.take(&action);
            let mut path = path.clone();
            path.push(number as u8);
            found.push(Found { path, digest: digest(&next), wrong: next.wrong.clone() });
        }
    }
    found
}

fn replayed(first: &World, path: &[u8]) -> World {
    let mut world = first.clone();
    for step in path {
        let action = world.actions().swap_remove(usize::from(*step));
        world.take(&action);
    }
    world
}

fn told(first: &World, path: &[u8]) -> String {
    let mut world = first.clone();
    let mut steps = Vec::new();
    for step in path {
        let action = world.actions().swap_remove(usize::from(*step));
        world.take(&action);
        steps.push(format!("{action:?}"));
    }
    steps.join(", ")
}

/// Hashes all of the state, as it prints itself.
fn digest(world: &World) -> u128 {
    struct Digest(DefaultHasher, DefaultHasher);
    impl Write for Digest {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            self.1.write(text.as_bytes());
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new(), DefaultHasher::new());
    digest.1.write_u8(1);
    let _ = write!(digest, "{world:?}");
    u128::from(digest.0.finish()) << 64 | u128::from(digest.1.finish())
}
