//! Numbers in messages, and lines of CSV.

use gallerist_retrieval::eval::OpenSet;
use gallerist_util::text::csv_field;

/// `1 image`, `13,180 images`.
pub(crate) fn count(n: usize, one: &str) -> String {
    let plural = match one.strip_suffix("ss").map(|_| "es").or(one.strip_suffix('y').map(|_| "ies")) {
        Some("ies") => format!("{}ies", &one[..one.len() - 1]),
        Some(ending) => format!("{one}{ending}"),
        None => format!("{one}s"),
    };
    format!("{} {}", grouped(n), if n == 1 { one } else { &plural })
}

/// The searches of open-set identification.
pub(crate) fn open_set_searches(found: &OpenSet) -> String {
    let taken_out = match found.taken_out {
        0 => String::new(),
        taken_out => format!(", from which {} were taken out", count(taken_out, "class")),
    };
    format!(
        "{} searches for known and {} for unknown classes in a gallery of {}{taken_out}",
        grouped(found.known),
        grouped(found.unknown),
        count(found.gallery, "image")
    )
}

/// `13,180`.
pub(crate) fn grouped(n: usize) -> String {
    gallerist_util::text::grouped(n as u64)
}

/// `2 min 05 s`, `48 s`, `0.8 s`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{} min {:02} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {:02} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

/// A line of CSV (RFC 4180), with its end.
pub(crate) fn csv_line(fields: impl IntoIterator<Item = String>) -> String {
    table_line(fields, ',')
}

/// The same with another character between the values, such as a tab.
pub(crate) fn table_line(fields: impl IntoIterator<Item = String>, delimiter: char) -> String {
    let quoted = |field: String| csv_field(&field, delimiter).into_owned();
    fields.into_iter().map(quoted).collect::<Vec<_>>().join(&delimiter.to_string()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(duration(0.84), "0.8 s");
        assert_eq!(duration(125.0), "2 min 05 s");
    }

    #[test]
    fn values_with_the_delimiter_or_a_quote_are_quoted() {
        let fields = || ["a,b", "c\td", "e\"f"].map(String::from);
        assert_eq!(csv_line(fields()), "\"a,b\",c\td,\"e\"\"f\"\n");
        assert_eq!(table_line(fields(), '\t'), "a,b\t\"c\td\"\t\"e\"\"f\"\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(13_180), "13,180");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1, "image"), "1 image");
        assert_eq!(count(659, "class"), "659 classes");
        assert_eq!(count(2, "query"), "2 queries");
    }
}
