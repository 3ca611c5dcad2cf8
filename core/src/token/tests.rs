//! Tokens kept in each place, found again by the next start, and removed without a trace.

use super::*;

/// A key store in memory; `None`: it does not open.
#[derive(Debug, Default)]
struct Memory(Mutex<Option<String>>);

impl KeyStore for Memory {
    fn read(&self) -> Result<Option<String>, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn write(&self, text: &str) -> Result<(), String> {
        *self.0.lock().unwrap() = Some(text.to_owned());
        Ok(())
    }

    fn remove(&self) -> Result<(), String> {
        *self.0.lock().unwrap() = None;
        Ok(())
    }
}

#[derive(Debug)]
struct Closed;

impl KeyStore for Closed {
    fn read(&self) -> Result<Option<String>, String> {
        Err("locked".into())
    }

    fn write(&self, _: &str) -> Result<(), String> {
        Err("no such service".into())
    }

    fn remove(&self) -> Result<(), String> {
        Err("locked".into())
    }
}

fn request(token: &str, keep: TokenKeep) -> TokenRequest {
    TokenRequest { token: token.into(), keep }
}

fn current(tokens: &Tokens) -> Option<String> {
    tokens.current().map(|secret| secret.reveal().to_owned())
}

#[test]
fn a_token_in_the_key_store_is_nowhere_else_and_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn KeyStore> = Arc::new(Memory::default());
    let tokens = Tokens::open(dir.path(), Arc::clone(&store), None);
    assert!(!tokens.is_in_key_store());
    tokens.set(&request(" hf_kept ", TokenKeep::KeyStore)).unwrap();
    assert_eq!((current(&tokens).as_deref(), tokens.state().place), (Some("hf_kept"), Some(TokenPlace::KeyStore)));
    assert!(!fs::read_to_string(dir.path().join(FILE)).unwrap().contains("hf_kept"));

    let next = Tokens::open(dir.path(), Arc::clone(&store), None);
    assert_eq!((current(&next), next.is_in_key_store()), (None, true), "the key store is not asked unbidden");
    next.recall().unwrap();
    assert_eq!(current(&next).as_deref(), Some("hf_kept"));
    next.remove().unwrap();
    assert_eq!((current(&next), store.read().unwrap(), dir.path().join(FILE).exists()), (None, None, false));
}

#[test]
fn without_a_key_store_a_person_chooses_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path(), Arc::new(Closed), None);
    let refused = tokens.set(&request("hf_a", TokenKeep::KeyStore)).unwrap_err().explain();
    assert_eq!((refused.code, current(&tokens)), (ErrorCode::NoKeyStore, None));
    tokens.set(&request("hf_a", TokenKeep::Session)).unwrap();
    assert_eq!((current(&tokens).as_deref(), tokens.state().place), (Some("hf_a"), Some(TokenPlace::Session)));
    assert!(!dir.path().join(FILE).exists());

    tokens.set(&request("hf_b", TokenKeep::PrivateFile)).unwrap();
    let path = dir.path().join(FILE);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);
    let next = Tokens::open(dir.path(), Arc::new(Closed), None);
    assert_eq!(current(&next).as_deref(), Some("hf_b"));
    next.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_token_that_was_entered_comes_before_one_that_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let place = TokenPlace::Environment { name: "HF_TOKEN".into() };
    let given = GivenToken { secret: Secret::new("hf_given").unwrap(), place: place.clone() };
    let tokens = Tokens::open(dir.path(), Arc::new(Memory::default()), Some(given));
    assert_eq!((current(&tokens).as_deref(), tokens.state().place), (Some("hf_given"), Some(place.clone())));
    tokens.set(&request("hf_own", TokenKeep::Session)).unwrap();
    assert_eq!(current(&tokens).as_deref(), Some("hf_own"));
    tokens.remove().unwrap();
    assert_eq!(tokens.state().place, Some(place));
    assert!(matches!(tokens.set(&request("two words", TokenKeep::Session)), Err(TokenError::BadToken)));
}
