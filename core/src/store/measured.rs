//! What is known of this machine's speed: its benchmark, and what was predicted and came of it.

use rusqlite::{OptionalExtension, params};
use serde::de::DeserializeOwned;

use super::{Store, StoreError};
use crate::wire::{MachineRates, Outcome, Tuning};

/// Outcomes that are kept; older ones say little about a machine as it is now.
const MAX_OUTCOMES: u32 = 500;

impl Store {
    /// The last benchmark, of whatever machine it was.
    pub fn machine_rates(&self) -> Result<Option<MachineRates>, StoreError> {
        let sql = "SELECT value FROM settings WHERE name = 'rates'";
        let kept: Option<String> = self.lock().query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(kept.as_deref().and_then(read))
    }

    /// Keeps a benchmark.
    pub fn set_machine_rates(&self, rates: &MachineRates) -> Result<(), StoreError> {
        let sql = "INSERT INTO settings (name, value) VALUES ('rates', ?1)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.lock().execute(sql, [serde_json::to_string(rates)?])?;
        Ok(())
    }

    /// Keeps what came of a prediction.
    pub fn add_outcome(&self, outcome: &Outcome) -> Result<(), StoreError> {
        let json = serde_json::to_string(outcome)?;
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("INSERT INTO outcomes (outcome) VALUES (?1)", [json])?;
        let sql = "DELETE FROM outcomes WHERE id <= (SELECT max(id) FROM outcomes) - ?1";
        transaction.execute(sql, [MAX_OUTCOMES])?;
        Ok(transaction.commit()?)
    }

    /// What came of predictions, latest first.
    pub fn outcomes(&self) -> Result<Vec<Outcome>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT outcome FROM outcomes ORDER BY id DESC")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(rows.iter().filter_map(|json| read(json)).collect())
    }

    /// The fastest plan found for a model on a machine with a context.
    pub fn tuning(&self, model_id: &str, machine: &str, context_length: u32) -> Result<Option<Tuning>, StoreError> {
        let sql = "SELECT tuning FROM tunings WHERE model_id = ?1 AND machine = ?2 AND context_length = ?3";
        let key = params![model_id, machine, context_length];
        let kept: Option<String> = self.lock().query_row(sql, key, |row| row.get(0)).optional()?;
        Ok(kept.as_deref().and_then(read))
    }

    /// Keeps one.
    pub fn set_tuning(&self, tuning: &Tuning) -> Result<(), StoreError> {
        let Tuning { model_id, machine, context_length, .. } = tuning;
        let sql = "INSERT OR REPLACE INTO tunings (model_id, machine, context_length, tuning) VALUES (?1, ?2, ?3, ?4)";
        let json = serde_json::to_string(tuning)?;
        self.lock().execute(sql, params![model_id, machine, context_length, json])?;
        Ok(())
    }

    /// Forgets all of a model.
    pub fn forget_tunings(&self, model_id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM tunings WHERE model_id = ?1", [model_id])?;
        Ok(())
    }

    /// Forgets what came of predictions.
    pub fn forget_outcomes(&self) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM outcomes", [])?;
        Ok(())
    }
}

/// What cannot be read was written by another version; it is measured anew sooner or later.
fn read<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).inspect_err(|error| tracing::debug!(%error, "a stored figure cannot be read")).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_benchmark_is_kept_and_replaced() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        assert_eq!(store.machine_rates().unwrap(), None);
        for took_ms in [1.0, 2.0] {
            let rates = MachineRates { took_ms, disk_bytes_per_s: Some(1e9), ..MachineRates::default() };
            store.set_machine_rates(&rates).unwrap();
            assert_eq!(store.machine_rates().unwrap(), Some(rates));
        }
        store.lock().execute("UPDATE settings SET value = '{}' WHERE name = 'rates'", []).unwrap();
        assert_eq!(store.machine_rates().unwrap(), None, "of another version");
    }

    #[test]
    fn a_tuning_holds_for_its_model_machine_and_context() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        let tuning = Tuning { model_id: "a".into(), machine: "m".into(), context_length: 4096, ..Tuning::default() };
        store.set_tuning(&tuning).unwrap();
        let tuning = Tuning { n_threads: 3, ..tuning };
        store.set_tuning(&tuning).unwrap();
        assert_eq!(store.tuning("a", "m", 4096).unwrap(), Some(tuning));
        for (model, machine, context) in [("b", "m", 4096), ("a", "n", 4096), ("a", "m", 0)] {
            assert_eq!(store.tuning(model, machine, context).unwrap(), None);
        }
        store.forget_tunings("a").unwrap();
        assert_eq!(store.tuning("a", "m", 4096).unwrap(), None);
    }

    #[test]
    fn the_latest_outcomes_are_kept() {
        let store = Store::open(Path::new(":memory:")).unwrap().store;
        for at_ms in 0..i64::from(MAX_OUTCOMES) + 7 {
            store.add_outcome(&Outcome { at_ms, ..Outcome::default() }).unwrap();
        }
        let kept: Vec<i64> = store.outcomes().unwrap().iter().map(|outcome| outcome.at_ms).collect();
        assert_eq!(kept, (7..i64::from(MAX_OUTCOMES) + 7).rev().collect::<Vec<_>>());
        store.forget_outcomes().unwrap();
        assert_eq!(store.outcomes().unwrap(), []);
    }
}
