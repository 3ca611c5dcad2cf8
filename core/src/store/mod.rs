//! Chats, library, settings and measurements in one SQLite file. Blocking: async callers go through blocking threads.
//!
//! Opening never keeps the app from starting. A damaged file is set aside, whole, and a new one begun; a file that
//! cannot be written (full disk, no permission) is read into memory, and a notice says that nothing will be kept.
//! What a call has returned from survives the death of the process: WAL, with a sync per commit.

mod chats;
mod measured;
mod placed;
mod rest;
mod schema;

pub use chats::{NewTurn, Turn};

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode as SqliteCode, OpenFlags};

use crate::error::{Explain, FileAction, FileError, detail};
use crate::wire::{ErrorCode, Failure, Text};

/// The open database.
pub struct Store {
    connection: Mutex<Connection>,
}

/// A store, and what went wrong on the way to it.
pub struct Opened {
    /// Ready to use.
    pub store: Store,
    /// For the person to know; empty as a rule.
    pub notices: Vec<Failure>,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite said no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The file's own check found damage.
    #[error("database check failed: {finding}")]
    Damaged {
        /// First finding of `quick_check`.
        finding: String,
    },
    /// The file was written by a newer version of the app.
    #[error("database has schema {found}, this version knows {known}")]
    Newer {
        /// Schema of the file.
        found: u32,
        /// Newest schema known here.
        known: u32,
    },
    /// No such chat, or it was deleted.
    #[error("no chat {id}")]
    NoChat {
        /// What was asked for.
        id: i64,
    },
    /// No such message in that chat.
    #[error("no message {id} in chat {chat_id}")]
    NoMessage {
        /// Chat that was asked.
        chat_id: i64,
        /// What was asked for.
        id: i64,
    },
    /// A stored value has another form than this version writes.
    #[error("a stored value cannot be read: {0}")]
    Value(#[from] serde_json::Error),
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as i64)
}

impl Store {
    /// Opens or makes the database at `path`. Fails only if not even an empty one in memory can be made.
    pub fn open(path: &Path) -> Result<Opened, StoreError> {
        let error = match Self::on_disk(path) {
            Ok(connection) => return Ok(Opened::new(connection, Vec::new())),
            Err(error) => error,
        };
        tracing::warn!(%error, "the database cannot be opened");
        if error.is_damage() {
            let opened = set_aside(path).map(|kept| (kept, Self::on_disk(path).ok()));
            if let Ok((kept, Some(connection))) = opened {
                return Ok(Opened::new(connection, vec![set_aside_notice(&kept)]));
            }
        }
        Ok(Opened::new(in_memory(path)?, vec![in_memory_notice(&error)]))
    }

    /// Opens the database at `path` to look something up, beside an app that may have it open. Whatever would write fails.
    pub fn read_only(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    fn on_disk(path: &Path) -> Result<Connection, StoreError> {
        let mut connection = Connection::open(path)?;
        prepare(&connection)?;
        let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if finding != "ok" {
            return Err(StoreError::Damaged { finding });
        }
        schema::migrate(&mut connection, Some(path), schema::MIGRATIONS)?;
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic in between rolls the transaction back: the connection stays good.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn new(connection: Connection, notices: Vec<Failure>) -> Self {
        Self { store: Store { connection: Mutex::new(connection) }, notices }
    }
}

impl StoreError {
    fn sqlite_code(&self) -> Option<SqliteCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            _ => None,
        }
    }

    fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
            || matches!(self.sqlite_code(), Some(SqliteCode::DatabaseCorrupt | SqliteCode::NotADatabase))
    }
}

impl Explain for StoreError {
    fn explain(&self) -> Failure {
        let kept = || Text::new("what was saved before is kept", "之前保存的内容仍在");
        match self {
            Self::NoChat { .. } => Failure::new(
                ErrorCode::BadRequest,
                Text::new("this chat is not there any more", "这个对话已不存在"),
                Text::new("choose another chat, or begin a new one", "选择其他对话，或者新建对话"),
            ),
            Self::NoMessage { .. } => Failure::new(
                ErrorCode::BadRequest,
                Text::new("this message is not part of the chat", "这条消息不在此对话中"),
                Text::new("open the chat again", "重新打开该对话"),
            ),
            Self::Newer { found, known } => Failure::new(
                ErrorCode::StoreDamaged,
                Text::new(
                    format!("the chats were written by a newer version (schema {found}, this one knows {known})"),
                    format!("对话由更新的版本写入（结构 {found}，此版本只支持到 {known}）"),
                ),
                Text::new("install the newer version again", "重新安装较新的版本"),
            ),
            _ if self.sqlite_code() == Some(SqliteCode::DiskFull) => Failure::new(
                ErrorCode::DiskFull,
                Text::new("the disk is full: the chat cannot be saved", "磁盘已满：无法保存对话"),
                Text::new("free some space; what was saved before is kept", "腾出磁盘空间；之前保存的内容仍在"),
            ),
            _ if self.is_damage() => Failure::new(
                ErrorCode::StoreDamaged,
                Text::new("the chat database is damaged", "对话数据库已损坏"),
                Text::new(
                    "restart the app: it sets the file aside and begins a new one",
                    "重启应用：损坏的文件会另存，并新建数据库",
                ),
            ),
            Self::Sqlite(error) => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("the chat database cannot be used: {error}"),
                    format!("无法使用对话数据库{}", detail(error)),
                ),
                kept(),
            ),
            Self::Damaged { .. } | Self::Value(_) => Failure::new(
                ErrorCode::StoreDamaged,
                Text::new("a saved entry cannot be read", "有一条保存的内容无法读取"),
                kept(),
            ),
        }
    }
}

/// Settings of every connection. The lock in the data folder makes this process the only one, so the WAL's index can
/// stay in memory: one file less to make on a full disk.
fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}

/// Renames a damaged database with its side files; returns the new name.
fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    let kept = with_suffix(path, &format!(".damaged-{}", now_ms()));
    for side in ["-wal", "-shm"] {
        let from = with_suffix(path, side);
        if from.exists() {
            fs::rename(&from, with_suffix(&kept, side)).map_err(FileError::at(FileAction::Move, &from))?;
        }
    }
    fs::rename(path, &kept).map_err(FileError::at(FileAction::Move, path))?;
    Ok(kept)
}

/// What can be read of the database, in memory.
fn in_memory(path: &Path) -> Result<Connection, StoreError> {
    let copy = || -> Result<Connection, StoreError> {
        let on_disk = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        on_disk.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let mut memory = Connection::open_in_memory()?;
        rusqlite::backup::Backup::new(&on_disk, &mut memory)?.step(-1)?;
        schema::migrate(&mut memory, None, schema::MIGRATIONS)?;
        Ok(memory)
    };
    copy().or_else(|error| {
        tracing::warn!(%error, "the database cannot be read either");
        let mut memory = Connection::open_in_memory()?;
        schema::migrate(&mut memory, None, schema::MIGRATIONS)?;
        Ok(memory)
    })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn set_aside_notice(kept: &Path) -> Failure {
    let kept = kept.display();
    Failure::new(
        ErrorCode::StoreDamaged,
        Text::new("the chat database was damaged; a new one was begun", "对话数据库已损坏，已新建一个"),
        Text::new(format!("the damaged file is kept as `{kept}`"), format!("损坏的文件保存在 `{kept}`")),
    )
}

fn in_memory_notice(error: &StoreError) -> Failure {
    let cause = error.explain();
    Failure::new(
        cause.code,
        Text::new(
            format!("{}; new chats will not be kept after closing", cause.message.en),
            format!("{}；新的对话在关闭后不会保留", cause.message.zh),
        ),
        Text::new(
            "free some disk space or check the folder's permissions, then restart the app",
            "腾出磁盘空间或检查文件夹权限，然后重启应用",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_set_aside_whole() {
        for damage in [&b"<!DOCTYPE html>"[..], &[0; 4096], &[0xff; 100]] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("模型 é.db");
            fs::write(&path, damage).unwrap();
            let opened = Store::open(&path).unwrap();
            assert_eq!(opened.notices.len(), 1);
            assert_eq!(opened.notices[0].code, ErrorCode::StoreDamaged);
            let kept: Vec<PathBuf> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.to_string_lossy().contains(".damaged-"))
                .collect();
            assert_eq!(kept.len(), 1);
            assert_eq!(fs::read(&kept[0]).unwrap(), damage);
            drop(opened);
            assert!(Store::open(&path).unwrap().notices.is_empty(), "the new one is good");
        }
    }

    #[test]
    fn damage_in_the_middle_is_found_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tandem.db");
        let store = Store::open(&path).unwrap().store;
        for n in 0..200 {
            store.begin_turn(&NewTurn { text: "x".repeat(500), title: format!("{n}"), ..NewTurn::default() }).unwrap();
        }
        drop(store);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 9000].fill(0x5a);
        fs::write(&path, bytes).unwrap();
        assert_eq!(Store::open(&path).unwrap().notices[0].code, ErrorCode::StoreDamaged);
    }

    #[test]
    fn a_place_that_cannot_be_written_gives_a_store_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let opened = Store::open(&file.join("tandem.db")).unwrap();
        assert_eq!(opened.notices.len(), 1);
        let turn = opened.store.begin_turn(&NewTurn { text: "hello".into(), ..NewTurn::default() }).unwrap();
        assert_eq!(opened.store.chat(turn.chat.id).unwrap().messages.len(), 3);
    }

    #[test]
    fn a_newer_file_is_left_alone_and_readable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tandem.db");
        Store::open(&path).unwrap().store.lock().pragma_update(None, "user_version", 99).unwrap();
        let before = fs::read(&path).unwrap();
        let opened = Store::open(&path).unwrap();
        assert_eq!(opened.notices[0].code, ErrorCode::StoreDamaged);
        assert!(opened.store.chats().unwrap().is_empty());
        drop(opened);
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_full_disk_fails_the_write_and_keeps_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("tandem.db")).unwrap().store;
        let first = store.begin_turn(&NewTurn { text: "kept".into(), ..NewTurn::default() }).unwrap();
        let n_pages: i64 = store.lock().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.lock().pragma_update_and_check(None, "max_page_count", n_pages, |_| Ok(())).unwrap();
        let error = store.begin_turn(&NewTurn { text: "x".repeat(100_000), ..NewTurn::default() }).unwrap_err();
        assert_eq!(error.explain().code, ErrorCode::DiskFull);
        assert_eq!(store.chats().unwrap().len(), 1);
        assert_eq!(store.chat(first.chat.id).unwrap().messages[1].text, "kept");
    }
}
