//! "did you mean": the nearest of the allowed words, if one is near enough to be a slip of the finger.

pub(crate) fn nearest<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters may differ, at least one: more is another word.
    let tolerance = (word.chars().count() / 3).max(1);
    allowed
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        for (a, b, edits) in [("", "abc", 3), ("port", "port", 0), ("prot", "port", 1), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a, b), edits, "{a} to {b}");
            assert_eq!(distance(b, a), edits, "{b} to {a}");
        }
    }

    #[test]
    fn offers_a_slip_and_not_another_word() {
        assert_eq!(nearest("prot", ["host", "port"]), Some("port"));
        assert_eq!(nearest("Threads", ["threads", "mmap"]), Some("threads"));
        assert_eq!(nearest("colour", ["host", "port"]), None);
    }
}
