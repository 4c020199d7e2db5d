//! Errors that the product can say, found in its sources, beside the rows of a page that explains them.

use regex::Regex;

use crate::house::source::Source;

/// Letters that a text needs to be told from others: `{path}: {source}` has none, and its source is found by itself.
const LETTERS: usize = 4;
/// Letters that a row needs where it is not a whole text, or it would stand for anything.
const ROW_LETTERS: usize = 8;

/// Returns the texts of errors, with `…` where a text has a value: those of `#[error(...)]`, `bail!`, `anyhow!` and `context`.
pub fn texts(sources: &[Source]) -> Vec<(String, String)> {
    let begin =
        r"#\[error\(|\bbail!\(|\banyhow!\(|\.context\(\s*(?:format!\()?|\.with_context\(\|\|\s*\{?\s*(?:format!\()?";
    let said = Regex::new(&format!(r#"(?s)(?:{begin})\s*"((?:\\.|[^"\\])*)""#)).expect("a pattern");
    let mut all = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let texts = said.captures_iter(&source.code_and_strings).map(|found| text_of(&found[1]));
        all.extend(texts.filter(|text| letters(text) >= LETTERS).map(|text| (source.path.to_owned(), text)));
    }
    all
}

/// Returns the words by which programs know an error of the service.
pub fn codes(sources: &[Source]) -> Vec<(String, String)> {
    let patterns = [
        r#"StatusCode::(?:[A-NP-Z][A-Z_]+),\s*"([a-z_]+)""#,
        r#"(?:ApiError::bad|FieldError::new|ErrorBody::new)\(\s*"([a-z_]+)""#,
        r#"\bcode: "([a-z_]+)""#,
        r#"(?:=>|\{)\s*\("([a-z]+_[a-z_]+)", (?:None|Some)"#,
    ]
    .map(|pattern| Regex::new(pattern).expect("a pattern"));
    let mut all = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("services/")) {
        for pattern in &patterns {
            let found = pattern.captures_iter(&source.code_and_strings);
            all.extend(found.map(|found| (source.path.to_owned(), found[1].to_owned())));
        }
        all.extend(failure_codes(&source.code_and_strings).into_iter().map(|code| (source.path.to_owned(), code)));
    }
    all
}

/// Reads the words of `enum FailureCode`: a variant's name in small letters, or what stands before it.
fn failure_codes(code: &str) -> Vec<String> {
    let Some((_, variants)) = code.split_once("enum FailureCode {") else { return Vec::new() };
    let variants = variants.split('}').next().unwrap_or_default();
    let variant = Regex::new(r#"(?:serialize = "([a-z_]+)"\)\]\s*)?\b([A-Z]\w+),"#).expect("a pattern");
    let capital = Regex::new("([a-z])([A-Z])").expect("a pattern");
    let word = |found: regex::Captures| match found.get(1) {
        Some(word) => word.as_str().to_owned(),
        None => capital.replace_all(&found[2], "${1}_$2").to_lowercase(),
    };
    variant.captures_iter(variants).map(word).collect()
}

/// Returns the texts of the first cells of a page's tables; `<br>` parts several of one cell.
pub fn rows(page: &str) -> Vec<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = lines.filter_map(|line| line.split(" | ").next());
    cells.flat_map(|cell| cell.split("<br>").map(plain).collect::<Vec<_>>()).collect()
}

/// Complains of texts without a row, of rows without a text, and of rows that would stand for anything.
pub fn complaints(said: &[(String, String)], rows: &[String]) -> Vec<String> {
    let row_of = |row: &String| {
        let parts: Vec<String> = row.split('…').map(regex::escape).collect();
        Regex::new(&format!("^{}$", parts.join(".*"))).expect("a pattern")
    };
    let patterns: Vec<Regex> = rows.iter().map(row_of).collect();
    let mut complaints = Vec::new();
    let said: Vec<(&String, String)> = said.iter().map(|(path, text)| (path, plain(text))).collect();
    for (path, text) in &said {
        if !patterns.iter().any(|row| row.is_match(text)) {
            complaints.push(format!("{path}: no row explains: {text}"));
        }
    }
    for (row, pattern) in rows.iter().zip(&patterns) {
        if !said.iter().any(|(_, text)| pattern.is_match(text)) {
            complaints.push(format!("no error reads: {row}"));
        }
        let is_whole = said.iter().any(|(_, text)| text == row);
        if !is_whole && letters(row) < ROW_LETTERS {
            complaints.push(format!("the row stands for too much: {row}"));
        }
    }
    complaints.sort();
    complaints.dedup();
    complaints
}

fn text_of(literal: &str) -> String {
    let joined = Regex::new(r"\\\n\s*").expect("a pattern").replace_all(literal, "").into_owned();
    let joined = joined.replace("\\n", " ").replace("\\\"", "\"").replace("{{", "\u{1}").replace("}}", "\u{2}");
    let values = Regex::new(r"\{[^{}]*\}").expect("a pattern").replace_all(&joined, "…").into_owned();
    let text = values.replace('\u{1}', "{").replace('\u{2}', "}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Backticks of a message and of a table's cell are not told apart.
fn plain(text: &str) -> String {
    text.replace('`', "").trim().to_owned()
}

fn letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphabetic()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::files::File;
    use crate::house::source::product;

    const CODE: &str = r#"
        #[derive(thiserror::Error)]
        enum Error {
            #[error("{}: {source}", path.display())]
            Io,
            #[error(
                "the store {path} is full: make \
                 room with `rm`"
            )]
            Full,
            #[error("the store has \"{name}\" in {{braces}}")]
            Named,
        }
        fn f() { bail!("give a word") } // bail!("no error")
        fn c() { x.context("cannot read it").with_context(|| format!("cannot find {name}")) }
        fn g() { ApiError::new(StatusCode::NOT_FOUND, "not_found", message); match x { A => ("too_many", None), } ApiError::bad("bad_word", m) }
        enum FailureCode { #[strum(serialize = "too_long")] PromptTooLong, EngineFailed, }
        #[cfg(test)]
        mod tests { fn h() { bail!("a test's words") } }
    "#;

    fn found(of: fn(&[Source]) -> Vec<(String, String)>) -> Vec<String> {
        let files = [File::new("services/a/src/b.rs", CODE)];
        of(&product(&files)).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn texts_and_codes_are_found_in_the_sources() {
        let expected = [
            "the store … is full: make room with `rm`",
            "the store has \"…\" in {braces}",
            "give a word",
            "cannot read it",
            "cannot find …",
        ];
        assert_eq!(found(texts), expected);
        assert_eq!(found(codes), ["not_found", "bad_word", "too_many", "too_long", "engine_failed"]);
    }

    #[test]
    fn an_error_without_a_row_and_a_row_without_an_error_are_complained_of() {
        let files = [File::new("services/a/src/b.rs", CODE)];
        let said = texts(&product(&files));
        let page = |rows: &[&str]| rows.iter().map(|row| format!("| {row} | do this |\n")).collect::<String>();
        let good = page(&[
            "``the store … is full: make room with `rm` ``",
            "`the store has …`<br>`give a word`<br>`cannot …`",
        ]);
        assert_eq!(complaints(&said, &rows(&good)), ["the row stands for too much: cannot …"]);
        let good = good.replace("cannot …", "cannot read it`<br>`cannot find …");
        assert_eq!(complaints(&said, &rows(&good)), [""; 0]);
        let missing = good.replace("`give a word`<br>", "");
        assert_eq!(complaints(&said, &rows(&missing)), ["services/a/src/b.rs: no row explains: give a word"]);
        let old = good.clone() + &page(&["`an error of last year`"]);
        assert_eq!(complaints(&said, &rows(&old)), ["no error reads: an error of last year"]);
        let wide = good + &page(&["`the …`"]);
        assert_eq!(complaints(&said, &rows(&wide)), ["the row stands for too much: the …"]);
    }
}
