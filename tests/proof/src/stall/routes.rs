//! Targets: requests of every route in `/openapi.json`, events of every websocket, and those of Wyoming's port.

use super::house::StallHouse;
use super::inputs::{HeavyField, InputLimits, heavy_fields};
use anyhow::{Context, Result, bail};
use doors::wyoming::TranscriptFields;
use schemars::schema_for;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub kind: TargetKind,
    pub attacks: Vec<Attack>,
}

impl Target {
    pub fn is_route(&self) -> bool {
        matches!(self.kind, TargetKind::Http { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    Http {
        method: String,
        path: String,
        scope: String,
    },
    /// Path of a websocket that takes such messages.
    Socket {
        path: &'static str,
    },
    /// Kind of an event at Wyoming's port.
    Wyoming {
        event: &'static str,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Attack {
    pub name: String,
    pub query: Vec<(String, String)>,
    pub body: Option<AttackBody>,
    /// Body of `multipart/form-data` in place of JSON.
    pub form: Option<Arc<Vec<u8>>>,
}

#[derive(Clone, Debug)]
pub struct AttackBody {
    light: Value,
    heavy: Option<HeavyField>,
    event: Option<&'static str>,
}

impl Attack {
    fn named(name: &str) -> Attack {
        Attack { name: name.to_owned(), ..Attack::default() }
    }
}

impl AttackBody {
    pub fn text(&self, limits: &InputLimits) -> String {
        let mut body = match &self.heavy {
            Some(heavy) => heavy.body(&self.light, limits),
            None => self.light.clone(),
        };
        if let Some(event) = self.event {
            body["type"] = json!(event);
        }
        body.to_string()
    }
}

/// Returns an attack with the light body, and one for each field that may be heavy.
fn bodies(root: &Value, schema: &Value, limits: &InputLimits, event: Option<&'static str>) -> Result<Vec<Attack>> {
    let (light, fields) = heavy_fields(root, schema, limits)?;
    let body = |heavy: Option<HeavyField>| Some(AttackBody { light: light.clone(), heavy, event });
    let first = Attack { name: "light".to_owned(), body: body(None), ..Attack::default() };
    let rest =
        fields.into_iter().map(|field| Attack { name: field.name(), body: body(Some(field)), ..Attack::default() });
    Ok(std::iter::once(first).chain(rest).collect())
}

const QUERY_CHARS: usize = 8000;
const QUERY_NUMBER: i64 = 1_000_000_000;

pub fn targets(house: &StallHouse, document: &Value, events: &Value) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (path, operations) in document["paths"].as_object().context("the document has paths")? {
        for (method, operation) in operations.as_object().context("a path has operations")? {
            let name = format!("{} {path}", method.to_uppercase());
            if operation["responses"].get("101").is_some() {
                targets.extend(socket(house, path, document, events).with_context(|| name.clone())?);
                continue;
            }
            let scope = operation["x-scope"].as_str().unwrap_or_default().to_owned();
            let kind = TargetKind::Http { method: method.to_uppercase(), path: path.clone(), scope };
            let attacks = requests(house, path, operation).with_context(|| name.clone())?;
            targets.push(Target { name, kind, attacks });
        }
    }
    let order = |target: &Target| match &target.kind {
        TargetKind::Http { method, path, .. } if method == "DELETE" => 1 + usize::from(path.contains("/persons/")),
        _ => 0,
    };
    targets.extend(wyoming(house)?);
    targets.sort_by_key(order);
    Ok(targets)
}

/// Returns the events that Wyoming's port answers. Only what was said has a schema.
fn wyoming(house: &StallHouse) -> Result<Vec<Target>> {
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let said = serde_json::to_value(schema_for!(TranscriptFields))?;
    let events = [("describe", json!({"type": "object"})), ("ping", text), ("transcript", said)];
    let target = |(event, schema): (&'static str, Value)| {
        let attacks = bodies(&schema, &schema, &house.limits(house.wyoming_bytes), None)?;
        Ok(Target { name: format!("Wyoming {event}"), kind: TargetKind::Wyoming { event }, attacks })
    };
    events.into_iter().map(target).collect()
}

fn requests(house: &StallHouse, path: &str, operation: &Value) -> Result<Vec<Attack>> {
    let mut attacks = vec![Attack { name: "light".to_owned(), ..Attack::default() }];
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
        let name = parameter["name"].as_str().context("a parameter has a name")?.to_owned();
        let light = house.query(&name);
        if let Some(light) = &light {
            attacks[0].query.push((name.clone(), light.clone()));
        } else if parameter["required"] == true {
            bail!("no value can be built for the parameter '{name}'");
        }
        let heavy = match parameter["schema"]["type"].as_str() {
            Some("string") if light.is_none() => "x".repeat(QUERY_CHARS),
            Some("integer") => QUERY_NUMBER.to_string(),
            _ => continue,
        };
        attacks.push(Attack { name: format!("?{name}"), query: vec![(name, heavy)], ..Attack::default() });
    }
    let light = attacks[0].query.clone();
    for attack in &mut attacks[1..] {
        let more = light.iter().filter(|(name, _)| attack.query.iter().all(|(other, _)| other != name));
        attack.query.extend(more.cloned().collect::<Vec<_>>());
    }
    if path == "/v1/audio/transcriptions" {
        let form = |(name, form): (&str, Vec<u8>)| Attack { form: Some(Arc::new(form)), ..Attack::named(name) };
        attacks = house.forms().map(form).into();
    }
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !schema.is_null() {
        let mut with_body = bodies(schema, schema, &house.limits(house.body_bytes), None)?;
        with_body[0].query = std::mem::take(&mut attacks[0].query);
        attacks.splice(0..1, with_body);
    }
    Ok(attacks)
}

fn socket(house: &StallHouse, path: &str, document: &Value, events: &Value) -> Result<Vec<Target>> {
    match path {
        "/v1/realtime" => {
            let list = events["$defs"]["client_event"]["oneOf"].as_array().context("the schema lists client events")?;
            let limits = house.limits(house.message_bytes);
            list.iter().map(|event| messages("/v1/realtime?extensions=reprise", events, event, &limits, None)).collect()
        }
        "/v1/responses" => {
            let body =
                &document["paths"]["/v1/responses"]["post"]["requestBody"]["content"]["application/json"]["schema"];
            let limits = house.limits(house.message_bytes);
            Ok(vec![messages("/v1/responses", body, body, &limits, Some("response.create"))?])
        }
        _ => bail!("the proof does not know what this websocket is told"),
    }
}

fn messages(
    path: &'static str,
    root: &Value,
    schema: &Value,
    limits: &InputLimits,
    event: Option<&'static str>,
) -> Result<Target> {
    let attacks = bodies(root, schema, limits, event)?;
    let light = attacks[0].body.as_ref().context("an event is a message")?;
    let kind = event.or_else(|| light.light["type"].as_str()).context("an event has a type")?;
    Ok(Target { name: format!("{path} {kind}"), kind: TargetKind::Socket { path }, attacks })
}
