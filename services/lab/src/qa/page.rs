//! The report as a page: one file that needs nothing else.

use super::{Check, Outcome, Report};
use std::fmt::Write;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color-scheme:light dark}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.4rem .8rem;border-bottom:1px solid #8886;vertical-align:top}\
.fails{color:#c00;font-weight:600}.holds{color:#080}@media(prefers-color-scheme:dark){.fails{color:#f66}.holds{color:#6c6}}";

pub fn page(report: &Report) -> String {
    let (model, verdict) =
        (escaped(&report.model), if report.holds { "holds all checks" } else { "does not hold all checks" });
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{model}</title><style>{STYLE}</style>\n<h1>{model}</h1>\n<p>It {verdict}.</p>\n<table><tr><th>check<th><th><th>ms</tr>\n"
    );
    for Check { name, outcome, detail, took_ms } in &report.checks {
        let (class, word) = match outcome {
            Outcome::Holds => ("holds", "holds"),
            Outcome::Fails => ("fails", "fails"),
            Outcome::Measured => ("told", ""),
        };
        let _ =
            writeln!(page, "<tr><th>{name}<td class=\"{class}\">{word}<td>{}<td>{took_ms:.0}</tr>", escaped(detail));
    }
    page + "</table>\n</html>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_what_a_model_said_as_text() {
        let check = Check { name: "replies", outcome: Outcome::Holds, detail: "<script>\"&".into(), took_ms: 1.0 };
        let report = Report { model: "a<b".into(), holds: true, checks: vec![check] };
        let page = page(&report);
        assert!(page.contains("<h1>a&lt;b</h1>") && page.contains("&lt;script&gt;&quot;&amp;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
