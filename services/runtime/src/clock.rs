use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns words with the day on which they were said, in this form, where they mean another day when they are said on another.
pub fn with_its_day(words: &str, said_at_ms: i64, form: &str) -> String {
    format!("{words}{}", its_day(words, said_at_ms, form).unwrap_or_default())
}

pub fn its_day(words: &str, said_at_ms: i64, form: &str) -> Option<String> {
    if form.is_empty() || !remember::is_of_its_day(words) {
        return None;
    }
    let said_at = Timestamp::from_millisecond(said_at_ms).ok()?.to_zoned(TimeZone::system());
    jiff::fmt::strtime::format(form, &said_at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_need_their_day_have_it() {
        // Noon in most of the world's zones, so that the day is the same in all of them.
        let at_ms = 1_772_539_200_000;
        assert_eq!(
            with_its_day("my exam is tomorrow", at_ms, " (%F, %A)"),
            "my exam is tomorrow (2026-03-03, Tuesday)"
        );
        assert_eq!(with_its_day("my dog is called Rex", at_ms, " (%F)"), "my dog is called Rex");
        assert_eq!(with_its_day("my exam is tomorrow", at_ms, ""), "my exam is tomorrow");
        assert_eq!(with_its_day("my exam is tomorrow", i64::MAX, " (%F)"), "my exam is tomorrow");
    }
}
