//! Files that downloads have given their final names, and what was known of them then; `download` says what that is.

use std::path::Path;

use rusqlite::OptionalExtension;

use super::{Store, StoreError};

impl Store {
    /// Keeps what is known of a file, in place of what was known of that path.
    pub fn keep_placed_file(&self, path: &Path, placed: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO placed_files (path, placed) VALUES (?1, ?2)
                   ON CONFLICT (path) DO UPDATE SET placed = excluded.placed";
        self.lock().execute(sql, [&path.to_string_lossy(), placed])?;
        Ok(())
    }

    /// What is known of a file.
    pub fn placed_file(&self, path: &Path) -> Result<Option<String>, StoreError> {
        let sql = "SELECT placed FROM placed_files WHERE path = ?1";
        Ok(self.lock().query_row(sql, [path.to_string_lossy()], |row| row.get(0)).optional()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_path_is_kept() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        let path = Path::new("/模型/a b.gguf");
        assert_eq!(store.placed_file(path).unwrap(), None);
        for word in ["1", "2"] {
            store.keep_placed_file(path, word).unwrap();
        }
        assert_eq!(store.placed_file(path).unwrap().as_deref(), Some("2"));
    }
}
