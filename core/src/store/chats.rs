//! Chats and their messages. A chat is a tree under one system message; its leaf says which path is shown.
//!
//! The system message is always there, empty where the model's own is used, so that every other message has a parent:
//! an answer is written anew under the same question, an edited question is put under the same parent.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Store, StoreError, now_ms};
use crate::wire::{Chat, ChatSummary, EndReason, GenerationStats, Message, Role};

/// A question, and the empty answer to be written.
#[derive(Clone, Debug, Default)]
pub struct NewTurn {
    /// Chat to go on with; `None` begins one.
    pub chat_id: Option<i64>,
    /// Message that the question follows; `None`: the chat's leaf. With empty `text`: the question to answer anew.
    pub parent: Option<i64>,
    /// The question.
    pub text: String,
    /// Title of a new chat.
    pub title: String,
    /// System message of a new chat.
    pub system: String,
    /// Name of the model that will answer.
    pub model: String,
}

/// What [`Store::begin_turn`] has made.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The chat, its leaf now the answer.
    pub chat: ChatSummary,
    /// The question.
    pub user: Message,
    /// The answer, empty.
    pub assistant: Message,
}

impl Store {
    /// All chats that are not deleted, last changed first.
    pub fn chats(&self) -> Result<Vec<ChatSummary>, StoreError> {
        let connection = self.lock();
        let sql = format!("{SELECT_SUMMARY} WHERE deleted_at_ms IS NULL ORDER BY updated_at_ms DESC, id DESC");
        let mut statement = connection.prepare_cached(&sql)?;
        let summaries = statement.query_map([], read_summary)?.collect::<Result<_, _>>()?;
        Ok(summaries)
    }

    /// A chat with all its messages, in order of creation.
    pub fn chat(&self, id: i64) -> Result<Chat, StoreError> {
        let connection = self.lock();
        let summary = summary(&connection, id)?;
        let leaf = leaf(&connection, id)?;
        let mut statement =
            connection.prepare_cached(&format!("{SELECT_MESSAGE} WHERE chat_id = ?1 ORDER BY messages.id"))?;
        let messages = statement.query_map([id], read_message)?.collect::<Result<_, _>>()?;
        Ok(Chat { summary, messages, leaf })
    }

    /// The messages from the root to `leaf`.
    pub fn path(&self, chat_id: i64, leaf: i64) -> Result<Vec<Message>, StoreError> {
        let connection = self.lock();
        message(&connection, chat_id, leaf)?;
        let sql = format!(
            "WITH RECURSIVE up (id, parent) AS (
                 SELECT id, parent FROM messages WHERE id = ?1
                 UNION ALL SELECT m.id, m.parent FROM messages m JOIN up ON m.id = up.parent)
             {SELECT_MESSAGE} WHERE messages.id IN (SELECT id FROM up) ORDER BY messages.id"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let messages = statement.query_map([leaf], read_message)?.collect::<Result<_, _>>()?;
        Ok(messages)
    }

    /// Stores a question and its empty answer at once, making the chat if there is none.
    pub fn begin_turn(&self, turn: &NewTurn) -> Result<Turn, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let chat_id = match turn.chat_id {
            Some(id) => summary(&transaction, id)?.id,
            None => new_chat(&transaction, turn)?,
        };
        let parent = match turn.parent {
            Some(parent) => Some(message(&transaction, chat_id, parent)?.id),
            None => leaf(&transaction, chat_id)?,
        };
        let user = if turn.text.is_empty() {
            // Only a question can be answered anew.
            let id = parent.unwrap_or_default();
            let question = message(&transaction, chat_id, id)?;
            if question.role != Role::User {
                return Err(StoreError::NoMessage { chat_id, id });
            }
            question.id
        } else {
            insert(&transaction, chat_id, parent, Role::User, &turn.text, None)?
        };
        let assistant = insert(&transaction, chat_id, Some(user), Role::Assistant, "", Some(&turn.model))?;
        touch(&transaction, chat_id, assistant)?;
        let made = Turn {
            chat: summary(&transaction, chat_id)?,
            user: message(&transaction, chat_id, user)?,
            assistant: message(&transaction, chat_id, assistant)?,
        };
        transaction.commit()?;
        Ok(made)
    }

    /// Keeps what there is of an answer so far.
    pub fn save_part(&self, message_id: i64, text: &str, reasoning: &str) -> Result<(), StoreError> {
        let sql = "UPDATE messages SET text = ?2, reasoning = ?3 WHERE id = ?1";
        self.lock().execute(sql, params![message_id, text, reasoning])?;
        Ok(())
    }

    /// Keeps an answer as it ended, and gives it back as it is stored.
    pub fn finish(&self, answer: &Message) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute(
            "UPDATE messages SET text = ?2, reasoning = ?3, ending = ?4, stats = ?5 WHERE id = ?1",
            params![
                answer.id,
                answer.text,
                answer.reasoning,
                answer.end.map(|end| word(&end)).transpose()?,
                answer.stats.as_ref().map(serde_json::to_string).transpose()?,
            ],
        )?;
        transaction.execute(
            "UPDATE chats SET updated_at_ms = ?2 WHERE id = (SELECT chat_id FROM messages WHERE id = ?1)",
            params![answer.id, now_ms()],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Ends the answers that a dying app left open: stopped if something was written, failed if nothing was.
    pub fn close_interrupted(&self) -> Result<usize, StoreError> {
        let sql = "UPDATE messages SET ending = CASE WHEN text = '' AND reasoning = '' THEN 'failed' ELSE 'stopped' END
                   WHERE ending IS NULL";
        Ok(self.lock().execute(sql, [])?)
    }

    /// Gives a chat another title.
    pub fn rename_chat(&self, id: i64, title: &str) -> Result<ChatSummary, StoreError> {
        let connection = self.lock();
        summary(&connection, id)?;
        connection.execute("UPDATE chats SET title = ?2 WHERE id = ?1", params![id, title])?;
        summary(&connection, id)
    }

    /// Hides a chat; nothing is lost.
    pub fn delete_chat(&self, id: i64) -> Result<(), StoreError> {
        self.set_deleted(id, Some(now_ms()))
    }

    /// Shows a hidden chat again.
    pub fn restore_chat(&self, id: i64) -> Result<(), StoreError> {
        self.set_deleted(id, None)
    }

    /// Shows the path through a message, down to the newest leaf below it.
    pub fn set_leaf(&self, chat_id: i64, message_id: i64) -> Result<Chat, StoreError> {
        {
            let connection = self.lock();
            summary(&connection, chat_id)?;
            message(&connection, chat_id, message_id)?;
            connection.execute(
                "WITH RECURSIVE down (id) AS (
                     SELECT ?2 UNION ALL
                     SELECT (SELECT max(m.id) FROM messages m WHERE m.parent = down.id) FROM down
                     WHERE down.id IS NOT NULL)
                 UPDATE chats SET leaf = (SELECT max(id) FROM down) WHERE id = ?1",
                params![chat_id, message_id],
            )?;
        }
        self.chat(chat_id)
    }

    fn set_deleted(&self, id: i64, at_ms: Option<i64>) -> Result<(), StoreError> {
        let sql = "UPDATE chats SET deleted_at_ms = ?2 WHERE id = ?1";
        match self.lock().execute(sql, params![id, at_ms])? {
            0 => Err(StoreError::NoChat { id }),
            _ => Ok(()),
        }
    }
}

const SELECT_SUMMARY: &str = "SELECT id, title, updated_at_ms,
    (SELECT count(*) FROM messages WHERE chat_id = chats.id AND role <> 'system') FROM chats";

const SELECT_MESSAGE: &str =
    "SELECT id, parent, role, text, reasoning, created_at_ms, model, ending, stats FROM messages";

fn new_chat(connection: &Connection, turn: &NewTurn) -> Result<i64, StoreError> {
    let sql = "INSERT INTO chats (title, updated_at_ms) VALUES (?1, ?2)";
    connection.execute(sql, params![turn.title, now_ms()])?;
    let chat_id = connection.last_insert_rowid();
    let root = insert(connection, chat_id, None, Role::System, &turn.system, None)?;
    touch(connection, chat_id, root)?;
    Ok(chat_id)
}

fn insert(
    connection: &Connection,
    chat_id: i64,
    parent: Option<i64>,
    role: Role,
    text: &str,
    model: Option<&str>,
) -> Result<i64, StoreError> {
    // Only an answer is still to be ended.
    let ending = if role == Role::Assistant { None } else { Some(word(&EndReason::Complete)?) };
    connection.execute(
        "INSERT INTO messages (chat_id, parent, role, text, created_at_ms, model, ending)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![chat_id, parent, word(&role)?, text, now_ms(), model, ending],
    )?;
    Ok(connection.last_insert_rowid())
}

fn touch(connection: &Connection, chat_id: i64, leaf: i64) -> Result<(), StoreError> {
    let sql = "UPDATE chats SET leaf = ?2, updated_at_ms = ?3 WHERE id = ?1";
    connection.execute(sql, params![chat_id, leaf, now_ms()])?;
    Ok(())
}

fn summary(connection: &Connection, id: i64) -> Result<ChatSummary, StoreError> {
    connection
        .prepare_cached(&format!("{SELECT_SUMMARY} WHERE id = ?1 AND deleted_at_ms IS NULL"))?
        .query_row([id], read_summary)
        .optional()?
        .ok_or(StoreError::NoChat { id })
}

fn leaf(connection: &Connection, chat_id: i64) -> Result<Option<i64>, StoreError> {
    Ok(connection.query_row("SELECT leaf FROM chats WHERE id = ?1", [chat_id], |row| row.get(0))?)
}

fn message(connection: &Connection, chat_id: i64, id: i64) -> Result<Message, StoreError> {
    connection
        .prepare_cached(&format!("{SELECT_MESSAGE} WHERE chat_id = ?1 AND id = ?2"))?
        .query_row([chat_id, id], read_message)
        .optional()?
        .ok_or(StoreError::NoMessage { chat_id, id })
}

fn read_summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary { id: row.get(0)?, title: row.get(1)?, updated_at_ms: row.get(2)?, n_messages: row.get(3)? })
}

fn read_message(row: &Row<'_>) -> rusqlite::Result<Message> {
    let stats: Option<String> = row.get(8)?;
    Ok(Message {
        id: row.get(0)?,
        parent: row.get(1)?,
        role: from_word(&row.get::<_, String>(2)?).unwrap_or(Role::System),
        text: row.get(3)?,
        reasoning: row.get(4)?,
        created_at_ms: row.get(5)?,
        model: row.get(6)?,
        end: row.get::<_, Option<String>>(7)?.map(|end| from_word(&end).unwrap_or(EndReason::Failed)),
        stats: stats.and_then(|json| serde_json::from_str::<GenerationStats>(&json).ok()),
    })
}

/// An enum's name as JSON has it, without the quotes: the columns read like the wire.
fn word<T: Serialize>(value: &T) -> Result<String, StoreError> {
    Ok(serde_json::to_string(value)?.trim_matches('"').to_owned())
}

fn from_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(word.into()).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn store() -> Store {
        Store::open(Path::new(":memory:")).unwrap().store
    }

    fn ask(text: &str) -> NewTurn {
        NewTurn { text: text.into(), title: text.into(), model: "m".into(), ..NewTurn::default() }
    }

    fn texts(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|m| m.text.as_str()).collect()
    }

    fn answer(store: &Store, turn: &Turn, text: &str) {
        let end = Some(EndReason::Complete);
        let stats = Some(GenerationStats { n_generated_tokens: 3, ..GenerationStats::default() });
        store.finish(&Message { text: text.into(), end, stats, ..turn.assistant.clone() }).unwrap();
    }

    #[test]
    fn a_turn_follows_the_leaf() {
        let store = store();
        let first = store.begin_turn(&NewTurn { system: "be brief".into(), ..ask("one") }).unwrap();
        assert_eq!((first.user.end, first.assistant.end), (Some(EndReason::Complete), None));
        answer(&store, &first, "1");
        let second = store.begin_turn(&NewTurn { chat_id: Some(first.chat.id), ..ask("two") }).unwrap();
        assert_eq!(second.user.parent, Some(first.assistant.id));
        assert_eq!((second.chat.title.as_str(), second.chat.n_messages), ("one", 4));
        let path = store.path(second.chat.id, second.assistant.id).unwrap();
        assert_eq!(texts(&path), ["be brief", "one", "1", "two", ""]);
        assert_eq!(path[2].stats.as_ref().unwrap().n_generated_tokens, 3);
    }

    #[test]
    fn answering_anew_makes_a_sibling() {
        let store = store();
        let first = store.begin_turn(&ask("one")).unwrap();
        answer(&store, &first, "a");
        let chat_id = Some(first.chat.id);
        let anew = NewTurn { chat_id, parent: Some(first.user.id), ..ask("") };
        let second = store.begin_turn(&anew).unwrap();
        assert_eq!((second.user.id, second.assistant.parent), (first.user.id, Some(first.user.id)));
        assert_eq!(store.chat(first.chat.id).unwrap().leaf, Some(second.assistant.id));
        let of_an_answer = NewTurn { chat_id, parent: Some(first.assistant.id), ..ask("") };
        assert!(matches!(store.begin_turn(&of_an_answer), Err(StoreError::NoMessage { .. })));
    }

    #[test]
    fn an_edited_question_is_another_branch_and_both_can_be_shown() {
        let store = store();
        let first = store.begin_turn(&ask("one")).unwrap();
        answer(&store, &first, "a");
        let chat_id = first.chat.id;
        let edited =
            store.begin_turn(&NewTurn { chat_id: Some(chat_id), parent: first.user.parent, ..ask("uno") }).unwrap();
        assert_eq!(texts(&store.path(chat_id, edited.assistant.id).unwrap()), ["", "uno", ""]);
        let chat = store.set_leaf(chat_id, first.user.id).unwrap();
        assert_eq!(chat.leaf, Some(first.assistant.id), "down to the newest leaf");
        assert_eq!(chat.messages.len(), 5);
        assert!(matches!(store.set_leaf(chat_id, 999), Err(StoreError::NoMessage { .. })));
    }

    #[test]
    fn a_deleted_chat_comes_back_whole() {
        let store = store();
        let turn = store.begin_turn(&ask("one")).unwrap();
        let before = store.chat(turn.chat.id).unwrap();
        store.delete_chat(turn.chat.id).unwrap();
        assert!(store.chats().unwrap().is_empty());
        assert!(matches!(store.chat(turn.chat.id), Err(StoreError::NoChat { .. })));
        assert!(matches!(store.rename_chat(turn.chat.id, "x"), Err(StoreError::NoChat { .. })));
        store.restore_chat(turn.chat.id).unwrap();
        assert_eq!(store.chat(turn.chat.id).unwrap(), before);
        assert!(matches!(store.delete_chat(999), Err(StoreError::NoChat { .. })));
    }

    #[test]
    fn interrupted_answers_are_ended() {
        let store = store();
        let written = store.begin_turn(&ask("one")).unwrap();
        store.save_part(written.assistant.id, "half", "").unwrap();
        let empty = store.begin_turn(&ask("two")).unwrap();
        assert_eq!(store.close_interrupted().unwrap(), 2);
        let end = |turn: &Turn| store.chat(turn.chat.id).unwrap().messages.last().unwrap().end;
        assert_eq!((end(&written), end(&empty)), (Some(EndReason::Stopped), Some(EndReason::Failed)));
        assert_eq!(store.close_interrupted().unwrap(), 0);
    }

    #[test]
    fn a_turn_of_an_unknown_chat_or_parent_stores_nothing() {
        let store = store();
        assert!(matches!(
            store.begin_turn(&NewTurn { chat_id: Some(5), ..ask("x") }),
            Err(StoreError::NoChat { id: 5 })
        ));
        let of_one = store.begin_turn(&ask("one")).unwrap();
        let of_two = store.begin_turn(&ask("two")).unwrap();
        let mixed = NewTurn { chat_id: Some(of_one.chat.id), parent: Some(of_two.user.id), ..ask("x") };
        assert!(matches!(store.begin_turn(&mixed), Err(StoreError::NoMessage { .. })));
        assert_eq!(store.chat(of_one.chat.id).unwrap().messages.len(), 3);
    }
}
