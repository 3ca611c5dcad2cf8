//! The small tables: settings, library models and measured speeds.

use rusqlite::{OptionalExtension, params};

use super::{Store, StoreError, now_ms};
use crate::wire::{GenerationStats, LibraryModel, Settings};

/// A library model as it is kept: what was read from the file, and the file's state when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredModel {
    /// Size, time and reader; when it differs the file is read again.
    pub stamp: String,
    /// What was read.
    pub model: LibraryModel,
}

impl Store {
    /// The settings; defaults where nothing was chosen, or where what was kept cannot be read.
    pub fn settings(&self) -> Result<Settings, StoreError> {
        let sql = "SELECT value FROM settings WHERE name = 'app'";
        let kept: Option<String> = self.lock().query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(kept.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default())
    }

    /// Keeps the settings.
    pub fn set_settings(&self, settings: &Settings) -> Result<(), StoreError> {
        let sql = "INSERT INTO settings (name, value) VALUES ('app', ?1)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.lock().execute(sql, [serde_json::to_string(settings)?])?;
        Ok(())
    }

    /// All library models, in the order they were added. Entries that cannot be read are left out, and kept.
    pub fn models(&self) -> Result<Vec<StoredModel>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT stamp, model FROM models ORDER BY rowid")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        let mut models = Vec::new();
        for row in rows {
            let (stamp, json) = row?;
            match serde_json::from_str(&json) {
                Ok(model) => models.push(StoredModel { stamp, model }),
                Err(error) => tracing::warn!(%error, "a library entry cannot be read"),
            }
        }
        Ok(models)
    }

    /// Adds or replaces a library model.
    pub fn put_model(&self, entry: &StoredModel) -> Result<(), StoreError> {
        let sql = "INSERT INTO models (id, path, stamp, model) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (id) DO UPDATE SET path = excluded.path, stamp = excluded.stamp, model = excluded.model";
        let model = &entry.model;
        self.lock().execute(sql, params![model.id, model.path, entry.stamp, serde_json::to_string(model)?])?;
        Ok(())
    }

    /// Forgets a library model; its file is not touched.
    pub fn remove_model(&self, id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM models WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Keeps what an answer of this model cost on this machine.
    pub fn add_measurement(&self, model_id: &str, stats: &GenerationStats) -> Result<(), StoreError> {
        let sql = "INSERT INTO measurements (model_id, at_ms, stats) VALUES (?1, ?2, ?3)";
        self.lock().execute(sql, params![model_id, now_ms(), serde_json::to_string(stats)?])?;
        Ok(())
    }

    /// What the last answer of this model cost.
    pub fn last_measurement(&self, model_id: &str) -> Result<Option<GenerationStats>, StoreError> {
        let sql = "SELECT stats FROM measurements WHERE model_id = ?1 ORDER BY id DESC LIMIT 1";
        let json: Option<String> = self.lock().query_row(sql, [model_id], |row| row.get(0)).optional()?;
        Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::wire::{Integrity, Theme};

    fn model(id: &str, name: &str) -> StoredModel {
        let model = LibraryModel {
            id: id.into(),
            name: name.into(),
            quant: "Q4_1".into(),
            architecture: "llama".into(),
            path: format!("/模型/{id}.gguf"),
            size_bytes: 1,
            n_params: 2,
            context_length: 3,
            integrity: Integrity::Verified,
            source: None,
            refusal: None,
            added_at_ms: 4,
        };
        StoredModel { stamp: "1@2".into(), model }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        assert_eq!(store.settings().unwrap(), Settings::default());
        let settings = Settings { theme: Theme::Dark, hub_url: "http://x".into(), ..Settings::default() };
        store.set_settings(&settings).unwrap();
        assert_eq!(store.settings().unwrap(), settings);

        for entry in [model("b", "one"), model("a", "two"), model("b", "three")] {
            store.put_model(&entry).unwrap();
        }
        assert_eq!(store.models().unwrap(), [model("b", "three"), model("a", "two")]);
        store.remove_model("b").unwrap();
        assert_eq!(store.models().unwrap(), [model("a", "two")]);

        assert_eq!(store.last_measurement("a").unwrap(), None);
        for n_generated_tokens in [20, 30] {
            let stats = GenerationStats { n_generated_tokens, ..GenerationStats::default() };
            store.add_measurement("a", &stats).unwrap();
        }
        assert_eq!(store.last_measurement("a").unwrap().unwrap().n_generated_tokens, 30);
    }

    #[test]
    fn settings_of_another_version_do_not_keep_the_app_from_starting() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        let put = |value: &str| {
            store.lock().execute("INSERT OR REPLACE INTO settings VALUES ('app', ?1)", [value]).unwrap();
            store.settings().unwrap()
        };
        assert_eq!(put("not json"), Settings::default());
        assert_eq!(put(r#"{"theme":"dark","not_known_here":1}"#).theme, Theme::Dark);
    }
}
