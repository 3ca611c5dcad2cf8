//! The access token: where it is kept, where else one is found, and which is in use. Never logged, never shown whole.
//!
//! One that a person enters comes before those found in the environment. The key store is asked only if something was
//! put there: a person who has no token is never asked for a password.

mod given;
mod key_store;
mod secret;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Explain, FileAction, FileError, bad_request};
use crate::wire::{ErrorCode, Failure, Text, TokenKeep, TokenPlace, TokenRequest, TokenState};

pub use given::GivenToken;
pub use key_store::{KeyStore, SystemKeyStore};
pub use secret::Secret;

/// Why a token is not kept.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// No token at all.
    #[error("not an access token")]
    BadToken,
    /// The system has no key store, or it does not open.
    #[error("no key store: {detail}")]
    NoKeyStore {
        /// What it said.
        detail: String,
    },
    /// The file for it cannot be written or removed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The access token of this app.
#[derive(Debug)]
pub struct Tokens {
    key_store: Arc<dyn KeyStore>,
    /// Holds the token itself, or says that the key store has it.
    file: PathBuf,
    given: Option<GivenToken>,
    own: Mutex<Option<GivenToken>>,
}

impl Tokens {
    /// Reads the token's own file. The key store is asked by [`Tokens::recall`].
    pub fn open(data_dir: &Path, key_store: Arc<dyn KeyStore>, given: Option<GivenToken>) -> Self {
        let file = data_dir.join(FILE);
        let own = fs::read_to_string(&file).ok().filter(|text| text.trim() != IN_KEY_STORE);
        let own = own.and_then(|text| Secret::new(&text)).map(|secret| {
            let place = TokenPlace::PrivateFile { path: file.display().to_string() };
            GivenToken { secret, place }
        });
        Self { key_store, file, given, own: Mutex::new(own) }
    }

    /// Whether the key store has something to be asked for.
    pub fn is_in_key_store(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|text| text.trim() == IN_KEY_STORE)
    }

    /// Fetches the token from the key store. Blocks; may ask the person for a password.
    pub fn recall(&self) -> Result<(), TokenError> {
        let kept = key_store::ask(&self.key_store, |store| store.read())?;
        if let Some(secret) = kept.as_deref().and_then(Secret::new) {
            *self.own() = Some(GivenToken { secret, place: TokenPlace::KeyStore });
        }
        Ok(())
    }

    /// The token in use.
    pub fn current(&self) -> Option<Secret> {
        self.in_use().map(|token| token.secret)
    }

    /// What may be shown of it.
    pub fn state(&self) -> TokenState {
        let token = self.in_use();
        TokenState {
            hint: token.as_ref().map(|token| token.secret.hint()).unwrap_or_default(),
            place: token.map(|token| token.place),
            account: None,
            failure: None,
        }
    }

    /// Uses a token from now on and keeps it. Blocks; the key store may ask the person for a password.
    pub fn set(&self, request: &TokenRequest) -> Result<(), TokenError> {
        let secret = Secret::new(&request.token).ok_or(TokenError::BadToken)?;
        let place = match request.keep {
            TokenKeep::KeyStore => {
                let text = secret.reveal().to_owned();
                key_store::ask(&self.key_store, move |store| store.write(&text))?;
                self.write_file(IN_KEY_STORE)?;
                TokenPlace::KeyStore
            }
            TokenKeep::PrivateFile => {
                self.forget_kept()?;
                self.write_file(secret.reveal())?;
                TokenPlace::PrivateFile { path: self.file.display().to_string() }
            }
            TokenKeep::Session => {
                self.forget_kept()?;
                TokenPlace::Session
            }
        };
        *self.own() = Some(GivenToken { secret, place });
        Ok(())
    }

    /// Forgets the token that was entered, wherever it is kept. One from the environment stays.
    pub fn remove(&self) -> Result<(), TokenError> {
        self.forget_kept()?;
        *self.own() = None;
        Ok(())
    }

    fn forget_kept(&self) -> Result<(), TokenError> {
        if self.is_in_key_store() {
            key_store::ask(&self.key_store, |store| store.remove())?;
        }
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(FileError::at(FileAction::Write, &self.file)(error).into())
            }
            _ => Ok(()),
        }
    }

    /// Writes a file that only this user can read, from its first byte on.
    fn write_file(&self, text: &str) -> Result<(), FileError> {
        let unfinished = self.file.with_extension("new");
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // One left over may have other rights.
        let _ = fs::remove_file(&unfinished);
        let written = options.open(&unfinished).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&unfinished, &self.file)).map_err(FileError::at(FileAction::Write, &self.file))
    }

    fn in_use(&self) -> Option<GivenToken> {
        self.own().clone().or_else(|| self.given.clone())
    }

    fn own(&self) -> MutexGuard<'_, Option<GivenToken>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Explain for TokenError {
    fn explain(&self) -> Failure {
        match self {
            Self::BadToken => bad_request("this is not an access token", "这不是访问令牌"),
            Self::NoKeyStore { .. } => Failure::new(
                ErrorCode::NoKeyStore,
                Text::new("the system has no key store, or it does not open", "系统没有密钥库，或者无法打开"),
                Text::new(
                    "use the token until Tandem is closed, or keep it in a file that only you can read",
                    "仅在 Tandem 关闭前使用此令牌，或保存到只有你能读取的文件中",
                ),
            ),
            Self::File(error) => error.explain(),
        }
    }
}

const FILE: &str = "access-token";
/// No token has a space.
const IN_KEY_STORE: &str = "in the system's key store";

#[cfg(test)]
mod tests;
