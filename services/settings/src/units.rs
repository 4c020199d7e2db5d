//! Sizes, times, shares and dates as people write them.
//!
//! Not with `bytesize` and `humantime`: they read "8GB" as 8,000,000,000 bytes and "1M" as a month, which are mistakes
//! here.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses "8GiB" or "1048576" to bytes; an error may have a hint. Only binary units: "8GB" means 8,000,000,000 to one
/// user and 2^33 to another.
pub fn bytes(text: &str) -> Result<u64, Option<String>> {
    const UNITS: [(&str, u32); 5] = [("", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (number, unit) = split(text);
    if let Some((_, shift)) = UNITS.iter().find(|(name, _)| *name == unit) {
        let number: u64 = number.parse().map_err(|_| None)?;
        return number.checked_mul(1 << shift).ok_or(None);
    }
    let first = unit.chars().next().map(|letter| letter.to_ascii_uppercase());
    let meant = UNITS.iter().find(|(name, _)| name.chars().next() == first).map(|(name, _)| *name);
    Err(meant.filter(|_| unit.len() <= 3 && !number.is_empty()).map(|unit| format!("did you mean \"{number}{unit}\"")))
}

#[derive(Clone, Copy)]
pub(crate) struct TimeUnit {
    pub name: &'static str,
    ms: u64,
}

impl TimeUnit {
    pub(crate) fn of_key(key: &str) -> TimeUnit {
        match key.rsplit('_').next() {
            Some("ms") => TimeUnit { name: "milliseconds", ms: 1 },
            Some("days") => TimeUnit { name: "days", ms: 86_400_000 },
            _ => TimeUnit { name: "seconds", ms: 1000 },
        }
    }
}

/// Parses "10s", "500ms", "5min", "12h" or "30d" to the unit of the key; `None` if it is not a whole number of them.
pub(crate) fn time(text: &str, unit: TimeUnit) -> Option<u64> {
    let (number, written) = split(text);
    let ms: u64 = match written {
        "" => unit.ms,
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let total = number.parse::<u64>().ok()?.checked_mul(ms)?;
    (total % unit.ms == 0).then_some(total / unit.ms)
}

pub(crate) fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
}

/// Parses "2026-12-01", "2026-12-01T08:30:00Z" or "2026-12-01 08:30+01:00" to milliseconds since 1970, in UTC without
/// an offset.
pub(crate) fn moment(text: &str) -> Option<i64> {
    let text = text.trim();
    let in_utc = || text.parse::<DateTime>()?.to_zoned(TimeZone::UTC).map(|moment| moment.timestamp());
    let moment = text.parse::<Timestamp>().or_else(|_| in_utc()).ok()?;
    Some(moment.as_second() * 1000).filter(|ms| *ms >= 0)
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("8GiB"), Ok(8 << 30));
        assert_eq!(bytes(" 64 KiB "), Ok(64 << 10));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("8GB"), Err(Some("did you mean \"8GiB\"".to_string())));
        assert_eq!(bytes("8g"), Err(Some("did you mean \"8GiB\"".to_string())));
        assert_eq!(bytes("-1"), Err(None));
        assert_eq!(bytes("1.5GiB"), Err(None));
        assert_eq!(bytes("99999999999TiB"), Err(None));
        assert_eq!(bytes(""), Err(None));
    }

    #[test]
    fn times() {
        assert_eq!(time("10s", TimeUnit::of_key("a_ms")), Some(10_000));
        assert_eq!(time("5min", TimeUnit::of_key("a_s")), Some(300));
        assert_eq!(time("12h", TimeUnit::of_key("a_s")), Some(43_200));
        assert_eq!(time("30", TimeUnit::of_key("a_days")), Some(30));
        assert_eq!(time("1500ms", TimeUnit::of_key("a_s")), None);
        assert_eq!(time("2 weeks", TimeUnit::of_key("a_days")), None);
        assert_eq!(time("s", TimeUnit::of_key("a_s")), None);
    }

    // From `date -u -d TEXT +%s`.
    #[test]
    fn moments() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2026-11-21", 1_795_219_200),
            ("2024-02-29T12:00:00Z", 1_709_208_000),
            ("2100-03-01", 4_107_542_400),
            ("2026-12-01 08:30+01:00", 1_796_110_200),
            ("2026-12-01T08:30:15.5-02:30", 1_796_122_815),
        ] {
            assert_eq!(moment(text), Some(seconds * 1000), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2026-13-01",
            "2026-02-29",
            "2026-12-01T24:00",
            "2026-12-01Tx",
            "2026-1-1",
            "2026-12-01T8",
            "+026-12-01",
            "2026-12-01T08:30+1",
            "2026-12-01T08:30X",
            "2026-12-0é",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share("20%"), Some(0.2));
        assert_eq!(share("0%"), None);
        assert_eq!(share("120%"), None);
        assert_eq!(share("20"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = (bytes(&text), time(&text, TimeUnit::of_key("a_s")), share(&text), moment(&text));
        }

        #[test]
        fn any_date_is_read_or_refused(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.]{0,9}[-+Z0-9:]{0,7}") {
            let _ = moment(&text);
        }

        #[test]
        fn a_size_reads_back(number in 0u64..1 << 20, shift in prop::sample::select(vec![("KiB", 10), ("MiB", 20), ("GiB", 30)])) {
            prop_assert_eq!(bytes(&format!("{number}{}", shift.0)), Ok(number << shift.1));
        }
    }
}
