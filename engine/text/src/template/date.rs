//! Dates for templates that tell the model the date. The caller gives the time: nothing here asks a clock.

pub use jiff::civil::DateTime as LocalTime;

/// Converts seconds since 1970 to a date and time in UTC.
pub fn utc(seconds: i64) -> LocalTime {
    jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(seconds).unwrap_or_default())
}

pub fn format(time: LocalTime, format: &str) -> Result<String, String> {
    jiff::fmt::strtime::format(format, time).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_the_date_that_they_are() {
        // As `date -u -d @N +'%F %T %j %a'` prints it.
        let cases = [
            (0, "1970-01-01 00:00:00 001 Thu"),
            (-1, "1969-12-31 23:59:59 365 Wed"),
            (951_782_400, "2000-02-29 00:00:00 060 Tue"),
            (1_709_164_799, "2024-02-28 23:59:59 059 Wed"),
            (1_740_787_200, "2025-03-01 00:00:00 060 Sat"),
            (4_107_542_399, "2100-02-28 23:59:59 059 Sun"),
            (4_107_542_400, "2100-03-01 00:00:00 060 Mon"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(format(utc(seconds), "%F %T %j %a").as_deref(), Ok(expected));
        }
    }

    #[test]
    fn the_date_is_written_as_python_writes_it() {
        let now = LocalTime::constant(2026, 3, 7, 15, 4, 9, 0);
        let formats = [
            ("%Y-%m-%d", "2026-03-07"),
            ("%d %b %Y", "07 Mar 2026"),
            ("%A, %B %-d, %y", "Saturday, March 7, 26"),
            ("%H:%M:%S %I %p %j %a %%", "15:04:09 03 PM 066 Sat %"),
        ];
        for (pattern, expected) in formats {
            assert_eq!(format(now, pattern).as_deref(), Ok(expected));
        }
        let midnight = LocalTime::constant(2024, 12, 31, 0, 0, 0, 0);
        assert_eq!(format(midnight, "%I %p %j %a %-M").as_deref(), Ok("12 AM 366 Tue 0"));
        let refused = format(now, "%J").unwrap_err();
        assert!(refused.contains("`J`"), "{refused}");
    }
}
