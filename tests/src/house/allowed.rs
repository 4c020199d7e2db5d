//! Lists of `house.toml`: breaches that the rules still let pass. A list may only shrink: what is mended must leave it.

use toml::Table;

pub struct Finding {
    pub key: String,
    pub complaint: String,
}

pub fn house() -> Table {
    include_str!("house.toml").parse().expect("house.toml is TOML")
}

pub fn list<'a>(house: &'a Table, name: &str) -> Vec<&'a str> {
    match &house[name] {
        toml::Value::Table(table) => table.keys().map(String::as_str).collect(),
        value => value.as_array().into_iter().flatten().filter_map(toml::Value::as_str).collect(),
    }
}

/// A complaint about everything found that is not allowed, and about everything allowed that is not found.
pub fn shrinking(found: &[Finding], allowed: &[&str]) -> Vec<String> {
    let new = found.iter().filter(|found| !allowed.contains(&found.key.as_str()));
    let mended = allowed.iter().filter(|allowed| !found.iter().any(|found| found.key == **allowed));
    let mended = mended.map(|key| format!("house.toml lets {key:?} pass, which is not there any more: take it out"));
    new.map(|found| format!("{} [{:?}]", found.complaint, found.key)).chain(mended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_and_what_is_mended_are_complaints() {
        let found = |key: &str| Finding { key: key.to_string(), complaint: format!("{key} is wrong") };
        assert_eq!(shrinking(&[found("a")], &["a"]), [""; 0]);
        assert_eq!(shrinking(&[found("a"), found("b")], &["a"]), ["b is wrong [\"b\"]"]);
        assert_eq!(shrinking(&[], &["a"]), ["house.toml lets \"a\" pass, which is not there any more: take it out"]);
    }

    #[test]
    fn lists_are_read() {
        let table: Table = "a = [\"x\", \"y\"]\n[b]\nz = 1".parse().expect("TOML");
        assert_eq!((list(&table, "a"), list(&table, "b")), (vec!["x", "y"], vec!["z"]));
    }
}
