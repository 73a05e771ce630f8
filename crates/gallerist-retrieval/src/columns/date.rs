//! Dates and times as ISO 8601 writes them.

/// A point in time: seconds since 1970 and nanoseconds. A date is its first moment; a time without an offset is UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant {
    seconds: i64,
    nanoseconds: u32,
}

impl Instant {
    /// Reads `2024-05`, `2024-05-01`, `2024-05-01T10:30`, `2024-05-01 10:30:15.25`, the times also with `Z` or an
    /// offset `+02:00`. `None` for other text and for days that do not exist.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.is_ascii() {
            return None;
        }
        let (date, time) = match text.get(10..) {
            None | Some("") => (text, None),
            Some(rest) => (&text[..10], Some(rest.strip_prefix(['T', ' '])?)),
        };
        let mut parts = date.split('-');
        let (year, month) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?);
        let day = parts.next().map_or(Some(1), |day| digits(day, 2))?;
        if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day)
        {
            return None;
        }
        let midnight = days_since_1970(year, month, day) * 86_400;
        let Some(time) = time else { return Some(Self { seconds: midnight, nanoseconds: 0 }) };
        let (clock, offset) = match time.find(['Z', '+', '-']) {
            None => (time, 0),
            Some(at) => (&time[..at], offset(&time[at..])?),
        };
        let (clock, nanoseconds) = match clock.split_once('.') {
            None => (clock, 0),
            Some((clock, fraction)) if clock.len() == 8 && (1..=9).contains(&fraction.len()) => {
                let value = digits(fraction, fraction.len())? as u32;
                (clock, value * 10u32.pow(9 - fraction.len() as u32))
            }
            Some(_) => return None,
        };
        let mut parts = clock.split(':');
        let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
        let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
        if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(Self { seconds: midnight + hour * 3600 + minute * 60 + second - offset, nanoseconds })
    }
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

/// The seconds of `Z`, `+02`, `+0200`, `+02:00`.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let rest = text[1..].replace(':', "");
    let (hours, minutes) = match rest.len() {
        2 => (digits(&rest, 2)?, 0),
        4 => (digits(&rest[..2], 2)?, digits(&rest[2..], 2)?),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The text that [`Instant::parse`] reads for a time in seconds since 1970: a date at midnight, else a date and a time,
/// with `Z` if it is UTC. `None` for years that have other than four digits.
#[cfg(feature = "arrow")]
pub(crate) fn date_text(seconds: i64, nanoseconds: u32, utc: bool) -> Option<String> {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The inverse of `days_since_1970`, with years that begin in March.
    let days = days.checked_add(719_468)?;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if of_day != 0 || nanoseconds != 0 {
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        text += &format!("T{hour:02}:{minute:02}:{second:02}");
        if nanoseconds != 0 {
            text += format!(".{nanoseconds:09}").trim_end_matches('0');
        }
        text += if utc { "Z" } else { "" };
    }
    Some(text)
}

/// Days since 1970-01-01 in the Gregorian calendar, with years that begin in March: a leap day is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        Instant::parse(text).map(|instant| instant.seconds)
    }

    #[cfg(feature = "arrow")]
    #[test]
    fn texts_of_times_are_read_back() {
        let steps = (-62_167_219_200..253_402_300_799i64).step_by(86_400 * 97 + 3_601);
        for (i, seconds) in steps.chain([0, -1, 253_402_300_799, 951_782_400]).enumerate() {
            let nanoseconds = [0, 500_000_000, 1, 120][i % 4];
            let text = date_text(seconds, nanoseconds, i % 2 == 0).unwrap();
            assert_eq!(Instant::parse(&text), Some(Instant { seconds, nanoseconds }), "{text}");
        }
        assert_eq!(date_text(951_782_400, 0, true).unwrap(), "2000-02-29");
        assert_eq!(date_text(1_714_559_415, 250_000_000, true).unwrap(), "2024-05-01T10:30:15.25Z");
        assert_eq!(date_text(253_402_300_800, 0, false), None);
        assert_eq!(date_text(i64::MAX, 0, false), None);
    }

    #[test]
    fn dates_have_the_seconds_of_the_calendar() {
        // date -u -d 2024-02-29 +%s
        for (text, wanted) in [
            ("1970-01-01", 0),
            ("2024-02-29", 1_709_164_800),
            ("2024-02", 1_706_745_600),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-03-01 00:00", 951_868_800),
            ("2024-05-01T12:30:15+02:00", 1_714_559_415),
            ("2024-05-01T12:30:15.5-0330", 1_714_579_215),
            ("0001-01-01", -62_135_596_800),
        ] {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
        assert!(Instant::parse("2024-05-01T00:00:00.5") > Instant::parse("2024-05-01"));
        assert_eq!(Instant::parse("2024-05-01T00:00:00.5"), Instant::parse("2024-05-01T00:00:00.500000000Z"));
    }

    #[test]
    fn days_that_do_not_exist_and_other_text_are_no_dates() {
        for text in [
            "",
            "2024",
            "2023-02-29",
            "1900-02-29",
            "2024-13",
            "2024-00-01",
            "2024-04-31",
            "24-04-30",
            "2024-4-3",
            "2024-05-01T24:00",
            "2024-05-01T10",
            "2024-05-01T10:60",
            "2024-05-01T10:00:60",
            "2024-05-01x10:00",
            "2024-05-01T10:00.5",
            "2024-05-01T10:00:00.",
            "2024-05-01T10:00+25:00",
            "2024-05-01T10:00+",
            "2024-05-0ä",
            "2024-05-01-01",
            "2024-05-01T",
            "+024-05-01",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
        assert!(Instant::parse("2000-02-29").is_some());
    }
}
