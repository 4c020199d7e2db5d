//! View of one conversation for a person.

use super::Sessions;
use anyhow::Result;
use session::{ItemBody, Role};
use std::io::Write;
use store::{Change, ItemVersion, SessionRef, Store, VersionStatus};
use terminal::output::{clean, clean_lines, print_json, stdout, time};

const ITEMS_AT_ONCE: u32 = 500;

impl Sessions<'_> {
    pub async fn show(&self, session: &SessionRef, history: bool) -> Result<()> {
        let view = self.store.load(session).await?;
        let items = all_items(self.store, session, history).await?;
        if self.json {
            return print_json(&serde_json::json!({
                "session": view.session, "summary": view.summary, "pins": view.pins, "items": items,
            }));
        }
        let mut out = stdout();
        let record = &view.session;
        writeln!(out, "{}  {}", clean(&record.id), clean(&record.title))?;
        writeln!(
            out,
            "user {}, preset {}, window {}",
            clean(&record.user),
            clean(&record.placement.preset),
            record.placement.ctx_size
        )?;
        if let Some(arm) = &record.placement.arm {
            writeln!(out, "arm {}", clean(arm))?;
        }
        writeln!(out, "begun {}, last used {} (UTC)", time(record.created_at_ms), time(record.updated_at_ms))?;
        if !record.config.instructions.is_empty() {
            writeln!(out, "\ninstructions\n{}", indented(&record.config.instructions))?;
        }
        for pin in &view.pins {
            writeln!(out, "\npin {}\n{}", clean(&pin.id), indented(&pin.text))?;
        }
        if let Some(summary) = &view.summary {
            writeln!(
                out,
                "\nsummary {} (up to {})\n{}",
                summary.version,
                clean(&summary.to_item),
                indented(&summary.text)
            )?;
        }
        for item in &items {
            writeln!(out, "\n{}\n{}", headline(item, history), indented(&words(item)))?;
        }
        Ok(())
    }
}

async fn all_items(store: &Store, session: &SessionRef, history: bool) -> Result<Vec<ItemVersion>> {
    let mut items: Vec<ItemVersion> = Vec::new();
    loop {
        let last = items.last();
        let page = if history {
            store.history(session, last.map_or(0, |item| item.seq), ITEMS_AT_ONCE).await?
        } else {
            store.items(session, last.map(|item| item.item_id.as_str()), ITEMS_AT_ONCE).await?
        };
        if page.is_empty() {
            return Ok(items);
        }
        items.extend(page);
    }
}

fn headline(item: &ItemVersion, history: bool) -> String {
    let who = match &item.body {
        ItemBody::Message { role: Role::System, .. } => "system",
        ItemBody::Message { role: Role::User, .. } => "user",
        ItemBody::Message { role: Role::Assistant, .. } => "assistant",
        ItemBody::FunctionCall { .. } => "function_call",
        ItemBody::FunctionCallOutput { .. } => "function_call_output",
    };
    let mut line = format!("{} {who} {}", time(item.created_at_ms), clean(&item.item_id));
    if history {
        line.push_str(&format!(" #{} version {} {}", item.seq, item.version, item.change));
    }
    match (item.status, item.heard_chars, item.sent_chars) {
        (VersionStatus::Interrupted, Some(heard), Some(sent)) => {
            line.push_str(&format!(" (heard {heard} of {sent} characters)"))
        }
        (VersionStatus::Completed, ..) => {}
        _ if item.change == Change::Deleted => {}
        (status, ..) => line.push_str(&format!(" ({status})")),
    }
    line
}

fn words(item: &ItemVersion) -> String {
    match &item.body {
        ItemBody::Message { .. } | ItemBody::FunctionCallOutput { .. } => item.said(),
        ItemBody::FunctionCall { name, arguments, .. } => format!("{name}({arguments})"),
    }
}

fn indented(text: &str) -> String {
    clean_lines(text).lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
