//! The small tables: settings, library models and measured speeds.

use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, params};

use super::{Store, StoreError, now_ms};
use crate::wire::{GenerationStats, LibraryModel, Program, Settings};

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
    pub fn models(&self) -> Result<Vec<LibraryModel>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT model FROM models ORDER BY rowid")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut models = Vec::new();
        for row in rows {
            match serde_json::from_str(&row?) {
                Ok(model) => models.push(model),
                Err(error) => tracing::warn!(%error, "a library entry cannot be read"),
            }
        }
        Ok(models)
    }

    /// Adds or replaces a library model.
    pub fn put_model(&self, model: &LibraryModel) -> Result<(), StoreError> {
        // Sizes and times of files stand in the model itself; older versions had them in `stamp`.
        let sql = "INSERT INTO models (id, path, stamp, model) VALUES (?1, ?2, '', ?3)
                   ON CONFLICT (id) DO UPDATE SET path = excluded.path, model = excluded.model";
        self.lock().execute(sql, params![model.id, model.path, serde_json::to_string(model)?])?;
        Ok(())
    }

    /// Folders whose models are used in place, in the order they were chosen, and whose they are.
    pub fn library_folders(&self) -> Result<Vec<(PathBuf, Program)>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT path, program FROM library_folders ORDER BY rowid")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let program = |json: String| serde_json::from_str(&json).unwrap_or(Program::Other);
        Ok(rows.into_iter().map(|(path, json)| (PathBuf::from(path), program(json))).collect())
    }

    /// Keeps that a folder is used.
    pub fn use_folder(&self, path: &Path, program: Program) -> Result<(), StoreError> {
        let sql = "INSERT INTO library_folders (path, program) VALUES (?1, ?2)
                   ON CONFLICT (path) DO UPDATE SET program = excluded.program";
        self.lock().execute(sql, params![path.to_string_lossy(), serde_json::to_string(&program)?])?;
        Ok(())
    }

    /// Forgets that a folder is used.
    pub fn drop_folder(&self, path: &Path) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM library_folders WHERE path = ?1", [path.to_string_lossy()])?;
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
    use super::*;
    use crate::wire::{Integrity, Theme};

    fn model(id: &str, name: &str) -> LibraryModel {
        LibraryModel {
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
            files: Vec::new(),
            places: Vec::new(),
            newer: None,
            elsewhere: Vec::new(),
        }
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

        let folder = Path::new("/模型/ollama 🙂");
        for program in [Program::Other, Program::Ollama] {
            store.use_folder(folder, program).unwrap();
        }
        assert_eq!(store.library_folders().unwrap(), [(folder.to_owned(), Program::Ollama)]);
        store.drop_folder(folder).unwrap();
        assert_eq!(store.library_folders().unwrap(), []);

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
