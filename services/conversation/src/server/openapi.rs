//! `/openapi.json`, made from the table of routes: what is not described there is not served, and the other way round.

use super::routes::table;
use axum::Json;
use serde_json::{Map, Value, json};

pub async fn serve() -> Json<Value> {
    Json(document())
}

pub fn document() -> Value {
    let mut paths = Map::new();
    for route in table() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = json!({});
    }
    json!({ "openapi": "3.1.0", "paths": paths })
}
