//! Stop strings across token borders: text is passed on as soon as it cannot be part of a stop string.

/// Search for stop strings. The reply ends where the first stop string is complete, and does not contain it. Of several
/// that end at the same position the longest counts.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Longest end of the text so far that may still become a stop string.
    held: String,
    matched: Option<usize>,
}

impl StopMatcher {
    /// Takes the stop strings. Empty ones never match, but keep their index in `matched`.
    pub fn new(stops: &[String]) -> Self {
        Self { stops: stops.to_vec(), held: String::new(), matched: None }
    }

    /// Returns the text that may be shown now: nothing after a match.
    pub fn push(&mut self, text: &str) -> String {
        if self.matched.is_some() {
            return String::new();
        }
        let mut text = std::mem::take(&mut self.held) + text;
        if let Some((start, index)) = self.first_match(&text) {
            self.matched = Some(index);
            text.truncate(start);
            return text;
        }
        self.held = text.split_off(text.len() - self.may_begin_bytes(&text));
        text
    }

    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    pub fn matched(&self) -> Option<usize> {
        self.matched
    }

    fn first_match(&self, text: &str) -> Option<(usize, usize)> {
        let stops = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found =
            stops.filter_map(|(index, stop)| text.find(stop.as_str()).map(|start| (start + stop.len(), start, index)));
        found.min().map(|(_, start, index)| (start, index))
    }

    fn may_begin_bytes(&self, text: &str) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        // From the longest end of the text to the shortest.
        let starts = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at < longest);
        let mut begins = starts.filter(|at| self.stops.iter().any(|stop| stop.starts_with(&text[*at..])));
        begins.next().map_or(0, |at| text.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn only_what_may_become_a_stop_string_waits() {
        let mut matcher = StopMatcher::new(&strings(&["\nUser:", "END"]));
        assert_eq!(matcher.push("Hello\n"), "Hello");
        assert_eq!(matcher.push("Us"), "");
        assert_eq!(matcher.push("ual E"), "\nUsual ");
        assert_eq!(matcher.push("N"), "");
        assert_eq!(matcher.push("Dgame"), "");
        assert_eq!(matcher.matched(), Some(1));
        assert_eq!(matcher.push("more"), "");
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn what_waited_is_given_back_at_the_end() {
        let mut matcher = StopMatcher::new(&strings(&["", "stop"]));
        assert_eq!(matcher.push("non-sto"), "non-");
        assert_eq!((matcher.finish().as_str(), matcher.matched()), ("sto", None));
    }

    #[test]
    fn the_first_to_be_complete_ends_the_reply() {
        let mut matcher = StopMatcher::new(&strings(&["abcd", "b", "xb"]));
        assert_eq!(matcher.push("1a"), "1");
        assert_eq!((matcher.push("bcd").as_str(), matcher.matched()), ("a", Some(1)));
        let mut matcher = StopMatcher::new(&strings(&["b", "xb"]));
        assert_eq!((matcher.push("1xb").as_str(), matcher.matched()), ("1", Some(1)), "the longest of two");
    }

    /// Searches the whole text: the smallest end, then the smallest start.
    fn by_search(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let complete = |stop: &&String| !stop.is_empty() && text[..end].ends_with(stop.as_str());
            if let Some(longest) = stops.iter().filter(complete).max_by_key(|stop| stop.len()) {
                let index = stops.iter().position(|stop| stop == longest);
                return (text[..end - longest.len()].to_string(), index);
            }
        }
        (text.to_string(), None)
    }

    proptest! {
        #[test]
        fn any_cut_finds_what_a_search_of_the_whole_finds(
            pieces in prop::collection::vec("[abé]{0,4}", 0..8),
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
        ) {
            let mut matcher = StopMatcher::new(&stops);
            let mut shown = String::new();
            for (at, piece) in pieces.iter().enumerate() {
                shown += &matcher.push(piece);
                if matcher.matched().is_none() {
                    // No text waits that could be shown.
                    let so_far = pieces[..=at].concat();
                    let waiting = &so_far[shown.len()..];
                    prop_assert!(waiting.is_empty() || stops.iter().any(|stop| stop.starts_with(waiting)));
                }
            }
            shown += &matcher.finish();
            prop_assert_eq!((shown, matcher.matched()), by_search(&pieces.concat(), &stops));
        }
    }
}
