//! Sizes and times as people write them. Each function gives the number, or a hint how it was probably meant.

/// "8GiB" or "1048576" in bytes. Only binary units: with "8GB" one writer means 8,000,000,000 and the next 2^33.
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

/// The units of time that end the names of keys.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Milliseconds,
    Seconds,
    Days,
}

impl Time {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Time::Milliseconds => "milliseconds",
            Time::Seconds => "seconds",
            Time::Days => "days",
        }
    }

    fn ms(self) -> u64 {
        match self {
            Time::Milliseconds => 1,
            Time::Seconds => 1000,
            Time::Days => 86_400_000,
        }
    }
}

/// "10s", "500ms", "5min", "12h" or "30d" in the unit of the key; none where it is not a whole number of them.
pub(crate) fn time(text: &str, unit: Time) -> Option<u64> {
    let (number, written) = split(text);
    let ms: u64 = match written {
        "" => unit.ms(),
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let total = number.parse::<u64>().ok()?.checked_mul(ms)?;
    (total % unit.ms() == 0).then_some(total / unit.ms())
}

/// "20%" as 0.2.
pub(crate) fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
}

/// "2026-12-01", "2026-12-01T08:30:00Z" or "2026-12-01 08:30+01:00" as milliseconds since 1970.
pub(crate) fn moment(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, time) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month_index = usize::try_from(month - 1).ok()?;
    if !(1..=*days_of_month.get(month_index)?).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let before: i64 = days_of_month.iter().take(month_index).sum();
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969) + before + day - 1;
    let time = match time.strip_prefix(['T', 't', ' ']) {
        None if time.is_empty() => return Some(days * Time::Days.ms() as i64),
        None => return None,
        Some(time) => time,
    };
    let (time, offset_minutes) = match time.find(['Z', 'z', '+', '-']) {
        None => (time, 0),
        Some(at) => (time.get(..at)?, offset(time.get(at..)?)?),
    };
    // Parts of a second decide nothing here.
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let [hour, minute, second] = match time.matches(':').count() {
        1 => numbers(&format!("{time}:00"), ':')?,
        _ => numbers(time, ':')?,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
    Some(seconds * 1000)
}

fn offset(text: &str) -> Option<i64> {
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return (text.len() == 1).then_some(0),
    };
    let [hours, minutes, _] = numbers(&format!("{}:00", text.get(1..)?), ':')?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let parts: Vec<i64> = text
        .split(between)
        .map(|part| part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit())))
        .collect::<Option<_>>()?;
    parts.try_into().ok()
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
        assert_eq!(time("10s", Time::Milliseconds), Some(10_000));
        assert_eq!(time("5min", Time::Seconds), Some(300));
        assert_eq!(time("12h", Time::Seconds), Some(43_200));
        assert_eq!(time("30", Time::Days), Some(30));
        assert_eq!(time("1500ms", Time::Seconds), None);
        assert_eq!(time("2 weeks", Time::Days), None);
        assert_eq!(time("s", Time::Seconds), None);
    }

    /// As `date -u -d TEXT +%s` has them.
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
            let _ = (bytes(&text), time(&text, Time::Seconds), share(&text), moment(&text));
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
