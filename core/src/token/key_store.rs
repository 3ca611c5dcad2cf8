//! The system's key store, asked on a thread of its own with a time limit: it may want a password first, or hang.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::TokenError;

/// Keeps one secret text.
pub trait KeyStore: Debug + Send + Sync {
    /// What is kept.
    fn read(&self) -> Result<Option<String>, String>;
    /// Keeps a text in place of what was there.
    fn write(&self, text: &str) -> Result<(), String>;
    /// Keeps nothing any more.
    fn remove(&self) -> Result<(), String>;
}

/// Keychain on macOS, Credential Manager on Windows, Secret Service elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct SystemKeyStore;

impl SystemKeyStore {
    fn entry() -> Result<keyring::Entry, String> {
        keyring::Entry::new(SERVICE, ACCOUNT).map_err(|error| error.to_string())
    }
}

impl KeyStore for SystemKeyStore {
    fn read(&self) -> Result<Option<String>, String> {
        match Self::entry()?.get_password() {
            Ok(text) => Ok(Some(text)),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn write(&self, text: &str) -> Result<(), String> {
        Self::entry()?.set_password(text).map_err(|error| error.to_string())
    }

    fn remove(&self) -> Result<(), String> {
        match Self::entry()?.delete_credential() {
            Ok(()) | Err(keyring::Error::NoEntry) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Runs a request to a key store; gives up waiting, not the request, when it takes too long.
pub(super) fn ask<T: Send + 'static>(
    store: &Arc<dyn KeyStore>,
    request: impl FnOnce(&dyn KeyStore) -> Result<T, String> + Send + 'static,
) -> Result<T, TokenError> {
    let (answer, answered) = channel();
    let store = Arc::clone(store);
    let run = move || {
        // Whoever asked may have stopped waiting.
        let _ = answer.send(request(&*store));
    };
    let unable = |detail: String| TokenError::NoKeyStore { detail };
    std::thread::Builder::new().name("tandem-key-store".to_owned()).spawn(run).map_err(|e| unable(e.to_string()))?;
    match answered.recv_timeout(PATIENCE) {
        Ok(answer) => answer.map_err(unable),
        Err(_) => Err(unable("no answer in time".to_owned())),
    }
}

const SERVICE: &str = "Tandem";
const ACCOUNT: &str = "huggingface.co";
/// Long enough for a person to type the password of the key store.
const PATIENCE: Duration = Duration::from_secs(60);
