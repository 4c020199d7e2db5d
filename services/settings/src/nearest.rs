//! "did you mean": the nearest of the allowed words, if it is near enough to be a slip of the finger.

pub(crate) fn nearest<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters may differ, at least one: a word that differs more is another word.
    let tolerance = (word.chars().count() / 3).max(1);
    allowed
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= tolerance)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

pub(crate) fn hint<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, allowed).map(|near| format!("did you mean {near:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_a_slip_and_not_another_word() {
        assert_eq!(nearest("prot", ["host", "port"]), Some("port"));
        assert_eq!(nearest("Threads", ["threads", "mmap"]), Some("threads"));
        assert_eq!(nearest("colour", ["host", "port"]), None);
    }
}
