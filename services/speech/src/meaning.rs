//! Endings of turns, as the words so far tell them. Lists of words are data.

use serde::Deserialize;
use std::collections::HashSet;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnding {
    // The words can stand alone.
    Finished,
    Unknown,
    // More must follow: 'turn on the'.
    Open,
}

#[derive(Deserialize)]
struct Lists {
    // Lists by language.
    open: std::collections::BTreeMap<String, Vec<String>>,
}

static OPEN: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let lists = toml::from_str::<Lists>(include_str!("open_words.toml"));
    lists.map(|lists| lists.open.into_values().flatten().collect()).unwrap_or_default()
});

// Marks of recognisers. Those that write none leave it unknown.
const STOPS: [char; 8] = ['.', '!', '?', '。', '！', '？', '؟', '।'];
const PAUSES: [char; 7] = [',', ';', ':', '-', '–', '…', '、'];

pub fn ending_of(words: &str) -> TurnEnding {
    let words = words.trim_end();
    let bare = words.trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let last = bare.rsplit(|letter: char| letter.is_whitespace()).next().unwrap_or_default();
    let is_cut = words.ends_with("...") || words.ends_with(PAUSES);
    if last.is_empty() {
        TurnEnding::Unknown
    } else if is_cut || OPEN.contains(&last.to_lowercase()) {
        TurnEnding::Open
    } else if words.ends_with(STOPS) {
        TurnEnding::Finished
    } else {
        TurnEnding::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_and_its_mark_decide() {
        assert!(OPEN.len() > 60);
        for (words, ending) in [
            ("Turn on the light.", TurnEnding::Finished),
            ("Is it raining? ", TurnEnding::Finished),
            ("Turn on the", TurnEnding::Open),
            ("Turn on the.", TurnEnding::Open),
            ("Well, I think...", TurnEnding::Open),
            ("Milk, butter,", TurnEnding::Open),
            ("Mach das Licht an und", TurnEnding::Open),
            ("turn on the light", TurnEnding::Unknown),
            ("灯を付けて。", TurnEnding::Finished),
            ("", TurnEnding::Unknown),
            (" ... ", TurnEnding::Unknown),
        ] {
            assert_eq!(ending_of(words), ending, "{words}");
        }
    }
}
