//! `reprise serve --print-config`: what holds, as TOML that can be loaded again, each line with where it came from.

use crate::tree::join;
use crate::{Effective, Loaded, Origin};

/// All sections, and the chosen preset in full. The other presets would only hide what matters.
pub fn print_config(loaded: &Loaded) -> String {
    let chosen = join("presets", &loaded.settings.model.preset);
    let mut text = match &loaded.file {
        Some(file) => format!("# your file: {}\n", file.display()),
        None => "# your file: none\n".to_string(),
    };
    let sections: Vec<&Effective> =
        loaded.origins.iter().filter(|value| !value.section.starts_with("presets.")).collect();
    let preset: Vec<&Effective> = loaded.origins.iter().filter(|value| within(&value.section, &chosen)).collect();
    print_values(&sections, &mut text);
    print_values(&preset, &mut text);
    text
}

fn print_values(values: &[&Effective], text: &mut String) {
    // A section's values may have been read around those of a section inside it.
    let mut sections: Vec<&str> = Vec::new();
    for value in values {
        if !sections.contains(&value.section.as_str()) {
            sections.push(&value.section);
        }
    }
    let width = values.iter().map(|value| line(value).chars().count()).filter(|width| *width <= 60).max().unwrap_or(0);
    for section in sections {
        text.push_str(&format!("\n[{section}]\n"));
        for value in values.iter().filter(|value| value.section == section) {
            text.push_str(&format!("{:<width$}  # {}\n", line(value), origin(value)));
        }
    }
}

fn line(value: &Effective) -> String {
    format!("{} = {}", value.key, value.value)
}

/// A preset's value may come from another key than its own: then that key is named.
fn origin(value: &Effective) -> String {
    let own = format!("{}.{}", value.section, value.key);
    match &value.origin {
        Origin::Default { .. } => value.origin.short(),
        origin if value.written == own => origin.short(),
        origin => format!("{}, {}", origin.short(), value.written),
    }
}

fn within(section: &str, outer: &str) -> bool {
    section == outer || section.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}
