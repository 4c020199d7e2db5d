//! Scripts without spaces between words, whose sentences would be one long word to the index. There each letter is a
//! word, and a search looks for letters in a row.

/// Separates such letters; `None` if the text has none.
pub fn spaced(text: &str) -> Option<String> {
    if !text.chars().any(is_unspaced) {
        return None;
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    let mut after_unspaced = false;
    for letter in text.chars() {
        let unspaced = is_unspaced(letter);
        if (unspaced || after_unspaced) && !spaced.is_empty() {
            spaced.push(SEAM);
        }
        spaced.push(letter);
        after_unspaced = unspaced;
    }
    Some(spaced)
}

pub fn joined(text: &str) -> String {
    text.replace(SEAM, "")
}

/// Separator of index words. No text contains it, so it can be removed again.
const SEAM: char = '\u{1f}';

fn is_unspaced(letter: char) -> bool {
    matches!(u32::from(letter),
        0x0e00..=0x0eff // Thai, Lao
        | 0x1000..=0x109f // Burmese
        | 0x1780..=0x17ff // Khmer
        | 0x3005..=0x3007 | 0x3040..=0x30ff | 0x31f0..=0x31ff // kana
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff // not a window: Chinese characters
        | 0xff66..=0xff9f) // narrow kana
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scripts_without_spaces_are_spaced() {
        assert_eq!(spaced("Grüße aus Köln, 서울"), None);
        assert_eq!(spaced("去Tokyo吧").as_deref(), Some("去\u{1f}Tokyo\u{1f}吧"));
        assert_eq!(joined(&spaced("去東京駅 now").unwrap_or_default()), "去東京駅 now");
    }
}
