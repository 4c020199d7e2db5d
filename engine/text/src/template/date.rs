//! `strftime_now` for templates that tell the model the date. The caller gives the time: nothing here asks a clock.

/// Plain data: the caller has the clock and the time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl LocalTime {
    /// UTC. Days are counted from March, so that the leap day is the last of its year.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        let (days, in_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let since_year_0 = days + 719_468;
        let (era, day_of_era) = (since_year_0.div_euclid(146_097), since_year_0.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: (era * 400 + year_of_era + i64::from(month <= 2)) as i32,
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            hour: (in_day / 3_600) as u32,
            minute: (in_day / 60 % 60) as u32,
            second: (in_day % 60) as u32,
        }
    }

    /// As Python's `strftime` in the C locale; Err is the directive that is not known.
    pub fn format(&self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let directive = chars.next().ok_or("%")?;
            // `%-d` is `%d` without the zero in front.
            let (bare, directive) = match directive {
                '-' => (true, chars.next().ok_or("%-")?),
                other => (false, other),
            };
            let text = self.directive(directive).ok_or_else(|| format!("%{directive}"))?;
            let trimmed = text.trim_start_matches('0');
            out.push_str(match (bare, trimmed) {
                (true, "") => "0",
                (true, trimmed) => trimmed,
                (false, _) => &text,
            });
        }
        Ok(out)
    }

    fn directive(&self, directive: char) -> Option<String> {
        let month = MONTHS.get(self.month.checked_sub(1)? as usize)?;
        let day = DAYS.get(self.weekday() as usize)?;
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{:02}", (self.hour + 11) % 12 + 1),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_string(),
            'B' => month.to_string(),
            'b' | 'h' => month[..3].to_string(),
            'A' => day.to_string(),
            'a' => day[..3].to_string(),
            'j' => format!("{:03}", self.day_of_year()),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            '%' => "%".to_string(),
            _ => return None,
        })
    }

    fn day_of_year(&self) -> u32 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        lengths.iter().take(self.month.saturating_sub(1) as usize).sum::<u32>() + self.day
    }

    /// 0 is Sunday.
    fn weekday(&self) -> i64 {
        let before = i64::from(self.year) - 1;
        let days = 365 * before + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        (days + i64::from(self.day_of_year())).rem_euclid(7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_the_date_that_they_are() {
        // As `date -u -d @N +'%F %T %j %a'` has it.
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
            assert_eq!(LocalTime::from_unix_seconds(seconds).format("%F %T %j %a").as_deref(), Ok(expected));
        }
    }

    #[test]
    fn the_date_is_written_as_python_writes_it() {
        let now = LocalTime { year: 2026, month: 3, day: 7, hour: 15, minute: 4, second: 9 };
        let formats = [
            ("%Y-%m-%d", "2026-03-07"),
            ("%d %b %Y", "07 Mar 2026"),
            ("%A, %B %-d, %y", "Saturday, March 7, 26"),
            ("%H:%M:%S %I %p %j %a %%", "15:04:09 03 PM 066 Sat %"),
        ];
        for (format, expected) in formats {
            assert_eq!(now.format(format).as_deref(), Ok(expected));
        }
        let midnight = LocalTime { year: 2024, month: 12, day: 31, hour: 0, minute: 0, second: 0 };
        assert_eq!(midnight.format("%I %p %j %a %-M").as_deref(), Ok("12 AM 366 Tue 0"));
        assert_eq!(now.format("%Q"), Err("%Q".to_string()));
    }
}
