//! docs/troubleshooting.md explains every error of the product, and no other.

use tests::errors::{codes, complaints, rows, texts};
use tests::house::{files, source};

const PAGE: &str = "docs/troubleshooting.md";

/// Parts of the page: what stands under `## Codes`, and the rest.
fn parts() -> (String, String) {
    let page = std::fs::read_to_string(files::root().join(PAGE)).unwrap();
    let (before, after) = page.split_once("\n## Codes\n").expect("a section of codes");
    let (codes, behind) = after.split_once("\n## ").unwrap_or((after, ""));
    (format!("{before}\n## {behind}"), codes.to_owned())
}

#[test]
fn every_error_has_a_row_and_every_row_an_error() {
    let files = files::all();
    let said = texts(&source::product(&files));
    assert!(said.len() > 200, "only {} errors are found", said.len());
    let complaints = complaints(&said, &rows(&parts().0));
    assert!(complaints.is_empty(), "{PAGE}:\n{}", complaints.join("\n"));
}

#[test]
fn every_code_has_a_row_and_every_row_a_code() {
    let files = files::all();
    let said = codes(&source::product(&files));
    assert!(said.len() > 40, "only {} codes are found", said.len());
    let complaints = complaints(&said, &rows(&parts().1));
    assert!(complaints.is_empty(), "{PAGE}:\n{}", complaints.join("\n"));
}
