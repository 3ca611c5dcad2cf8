//! The tables, as a list of steps; the database counts in `user_version` how many it has taken.

use std::path::Path;

use rusqlite::backup::Progress;
use rusqlite::{Connection, MAIN_DB};

use super::{StoreError, with_suffix};

/// Steps in order. A released step is never changed: add one.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE chats (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        title         TEXT NOT NULL,
        leaf          INTEGER REFERENCES messages (id),
        updated_at_ms INTEGER NOT NULL,
        deleted_at_ms INTEGER
    );
    CREATE TABLE messages (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id       INTEGER NOT NULL REFERENCES chats (id),
        parent        INTEGER REFERENCES messages (id),
        role          TEXT NOT NULL,
        text          TEXT NOT NULL,
        reasoning     TEXT NOT NULL DEFAULT '',
        created_at_ms INTEGER NOT NULL,
        model         TEXT,
        ending        TEXT,
        stats         TEXT
    );
    CREATE INDEX messages_of_chat ON messages (chat_id);
    CREATE INDEX messages_of_parent ON messages (parent);
    CREATE INDEX messages_unfinished ON messages (id) WHERE ending IS NULL;
    CREATE TABLE models (
        id    TEXT PRIMARY KEY,
        path  TEXT NOT NULL UNIQUE,
        stamp TEXT NOT NULL,
        model TEXT NOT NULL
    );
    CREATE TABLE settings (
        name  TEXT PRIMARY KEY,
        value TEXT NOT NULL
    );
    CREATE TABLE measurements (
        id       INTEGER PRIMARY KEY,
        model_id TEXT NOT NULL,
        at_ms    INTEGER NOT NULL,
        stats    TEXT NOT NULL
    );
    CREATE INDEX measurements_of_model ON measurements (model_id, at_ms);
",
    "
    CREATE TABLE outcomes (
        id      INTEGER PRIMARY KEY,
        outcome TEXT NOT NULL
    );
    CREATE TABLE tunings (
        model_id       TEXT NOT NULL,
        machine        TEXT NOT NULL,
        context_length INTEGER NOT NULL,
        tuning         TEXT NOT NULL,
        PRIMARY KEY (model_id, machine, context_length)
    );
",
    "
    CREATE TABLE library_folders (
        path    TEXT PRIMARY KEY,
        program TEXT NOT NULL
    );
",
    "
    CREATE TABLE placed_files (
        path   TEXT PRIMARY KEY,
        placed TEXT NOT NULL
    );
",
];

/// Takes the steps that are missing, each in a transaction. An older database at `path` is copied first.
pub(super) fn migrate(connection: &mut Connection, path: Option<&Path>, steps: &[&str]) -> Result<(), StoreError> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = steps.len() as u32;
    if version > known {
        return Err(StoreError::Newer { found: version, known });
    }
    if version > 0
        && version < known
        && let Some(path) = path
    {
        connection.backup(MAIN_DB, with_suffix(path, &format!(".schema-{version}")), None::<fn(Progress)>)?;
    }
    for (n, step) in (1_u32..).zip(steps).skip(version as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", n)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_database_is_copied_then_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, Some(&path), &["CREATE TABLE a (x)"]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        assert!(!dir.path().join("x.db.schema-0").exists(), "a new database needs no copy");

        migrate(&mut connection, Some(&path), &["CREATE TABLE a (x)", "ALTER TABLE a ADD y; UPDATE a SET y = x"])
            .unwrap();
        assert_eq!(connection.query_row("SELECT y FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        let copy = Connection::open(dir.path().join("x.db.schema-1")).unwrap();
        assert_eq!(copy.query_row("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        assert!(copy.prepare("SELECT y FROM a").is_err(), "the copy has the old form");
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let bad = ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"];
        assert!(migrate(&mut connection, None, &bad).is_err());
        assert_eq!(connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap(), 1);
        assert!(connection.prepare("SELECT x FROM b").is_err());
    }
}
