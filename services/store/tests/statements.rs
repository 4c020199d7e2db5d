//! Every statement of the crate is prepared against the schema, also those that no other test happens to run.
//!
//! The test finds statements in the source. To miss none, each must be a literal in a `sqlx::query(`, and nothing else
//! that takes SQL is allowed.

use crate::support::*;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, SqlSafeStr};
use std::path::Path;

const QUERIES: [&str; 3] = ["sqlx::query(", "sqlx::query_as(", "sqlx::query_scalar("];
/// Other ways to SQLite, written without spaces.
const OTHER_WAYS: [&str; 8] =
    ["query_with", "query!", "queryas", "raw_sql", "QueryBuilder", "AssertSqlSafe", "execute(\"", "fetch_all(\""];

fn statements(source: &str) -> Result<Vec<&str>, String> {
    let source = source.split("#[cfg(test)]").next().unwrap();
    let packed: String = source.split_whitespace().collect();
    if let Some(way) = OTHER_WAYS.iter().find(|way| packed.contains(**way)) {
        return Err(format!("{way} gets past this test: use {}\"...\")", QUERIES[0]));
    }
    let calls: Vec<_> = QUERIES.iter().flat_map(|query| source.split(query).skip(1)).map(str::trim_start).collect();
    // `sqlx::query::Query` is a type.
    let mentions = source.matches("sqlx::query").count() - source.matches("sqlx::query::Query").count();
    let others = ["query(", "query_", "query::<"].map(|way| source.matches(way).count()).iter().sum::<usize>();
    if mentions.max(others) != calls.len() {
        return Err(format!("another name of sqlx::query: use {}\"...\")", QUERIES[0]));
    }
    calls
        .iter()
        .map(|call| {
            let statement = call.strip_prefix('"').and_then(|rest| rest.split('"').next());
            let statement = statement.filter(|statement| !statement.contains('\\'));
            statement.ok_or_else(|| format!("not a plain literal: {}", call.lines().next().unwrap_or_default()))
        })
        .collect()
}

async fn refused(connection: &mut sqlx::SqliteConnection, statement: &str) -> Option<String> {
    let prepared = connection.prepare(AssertSqlSafe(statement.to_owned()).into_sql_str()).await;
    prepared.err().map(|error| format!("{error}: {statement}"))
}

#[tokio::test]
async fn every_statement_fits_the_schema() {
    let fixture = Fixture::new().await;
    let mut connection =
        sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.store.path()).connect().await.unwrap();
    let (mut count, mut complaints) = (0, Vec::new());
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            let inside: Vec<_> = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name()).collect();
            assert_eq!(inside, ["tests.rs"], "this test does not look into {}", path.display());
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let found = statements(&source).unwrap_or_else(|complaint| panic!("{}: {complaint}", path.display()));
        for statement in found {
            count += 1;
            complaints
                .extend(refused(&mut connection, statement).await.map(|why| format!("{}: {why}", path.display())));
        }
    }
    assert_eq!(complaints, Vec::<String>::new());
    assert!(count > 60, "only {count} statements were found");

    // The message for a wrong statement.
    for wrong in
        ["SELECT nothing FROM items", "SELECT item_id FROM item", "INSERT INTO users (id) VALUES (?, ?)", "SELCT 1"]
    {
        assert!(refused(&mut connection, wrong).await.is_some(), "{wrong}");
    }
}

#[test]
fn no_statement_gets_past() {
    assert_eq!(
        statements("sqlx::query(\"SELECT 1\")\n sqlx::query(\n \"SELECT\n 2\",\n)"),
        Ok(vec!["SELECT 1", "SELECT\n 2"])
    );
    assert_eq!(
        statements("sqlx::query_as(\"SELECT 1\") sqlx::query_scalar(\"SELECT 2\")"),
        Ok(vec!["SELECT 1", "SELECT 2"])
    );
    assert_eq!(statements("use sqlx::query::Query;"), Ok(vec![]));
    assert_eq!(statements("#[cfg(test)] sqlx::query(rule)"), Ok(vec![]));
    for source in [
        "sqlx::query(step)",
        "sqlx::query(r\"SELECT 1\")",
        "sqlx::query(concat!(\"SELECT\", \" 1\"))",
        "sqlx::query(\"SELECT '\\\"'\")",
        "let ask = sqlx::query; ask(\"SELECT 1\")",
        "use sqlx::{query}; query(\"SELECT 1\")",
        "use sqlx::{query as ask}; ask(\"SELECT 1\")",
        "sqlx::query_as::<_, (i64,)>(\"SELECT 1\")",
        "sqlx::query_as(step)",
        "sqlx::query_with(\"SELECT 1\", arguments)",
        "use sqlx::query_as as ask; ask(\"SELECT 1\")",
        "connection.execute(\n\"SELECT 1\")",
        "sqlx::raw_sql(\"SELECT 1\")",
        "AssertSqlSafe(text)",
    ] {
        assert!(statements(source).is_err(), "{source}");
    }
}

/// Returns the statements of a source file that have `words`, each with the steps of its plan.
async fn plans(file: &str, words: &str) -> Vec<(String, Vec<String>)> {
    let fixture = Fixture::new().await;
    let mut connection =
        sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.store.path()).connect().await.unwrap();
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
    let mut plans = Vec::new();
    for statement in statements(&source).unwrap().into_iter().filter(|statement| statement.contains(words)) {
        let query = sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
        let steps: Vec<(i64, i64, i64, String)> = query.fetch_all(&mut connection).await.unwrap();
        plans.push((statement.to_string(), steps.into_iter().map(|(.., step)| step).collect()));
    }
    plans
}

/// Looks at the plans of what is read before a reply: none of them reads every fact, of this user or of others.
#[tokio::test]
async fn no_question_looks_at_all_facts() {
    let plans = plans("found_facts.rs", "facts").await;
    for (statement, steps) in &plans {
        for step in steps {
            let is_narrow = step.contains("facts_to_index") || !step.starts_with("SCAN f");
            assert!(is_narrow, "{step}: {statement}");
        }
        let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE FOR ORDER BY"));
        let is_small = statement.contains("json_each") || statement.contains("?2 IS NULL");
        assert!(is_small || !sorts, "{statement}: {steps:?}");
    }
    assert!(plans.len() >= 7, "{}", plans.len());
}

#[tokio::test]
async fn a_few_messages_are_read_without_the_whole_conversation() {
    let plans = plans("facts.rs", "v.role = 'user'").await;
    for (statement, steps) in &plans {
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{statement}: {steps:?}");
    }
    assert_eq!(plans.len(), 3);
}

/// Looks at the plans of what a barge-in and feedback change: neither looks through all turns of its conversation.
#[tokio::test]
async fn one_turn_is_found_without_the_others() {
    let plans = plans("measurements.rs", "UPDATE measurements").await;
    for (statement, steps) in &plans {
        let finds = |step: &String| step.contains("measurements_of_response (session=? AND response=?)");
        assert!(steps.iter().any(finds), "{statement}: {steps:?}");
    }
    assert_eq!(plans.len(), 2);
}
