//! What the test hub serves: repos made of files in memory or on disk, with the hashes a hub tells about them.
//! No HTTP here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A model repo of the test hub.
#[derive(Clone, Debug)]
pub struct Repo {
    pub(super) id: String,
    pub(super) files: BTreeMap<String, Arc<Blob>>,
    pub(super) access: Access,
    pub(super) tags: Vec<String>,
    pub(super) downloads: u64,
    pub(super) likes: u64,
    pub(super) last_modified: String,
    pub(super) gguf: Option<GgufCard>,
}

/// Who may fetch files.
#[derive(Clone, Debug)]
pub(super) enum Access {
    Open,
    /// Tokens whose owners accepted the licence.
    Gated {
        accepted: Vec<String>,
    },
}

/// What the hub tells about a repo's GGUF from its own parse.
#[derive(Clone, Debug)]
pub(super) struct GgufCard {
    pub(super) architecture: String,
    pub(super) n_params: u64,
    pub(super) context_length: u64,
}

impl Repo {
    /// An open, empty repo called `publisher/name`.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            files: BTreeMap::new(),
            access: Access::Open,
            tags: Vec::new(),
            downloads: 0,
            likes: 0,
            last_modified: "2025-01-01T00:00:00.000Z".to_owned(),
            gguf: None,
        }
    }

    /// `publisher/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Adds a file from memory.
    #[must_use]
    pub fn file(mut self, path: &str, bytes: impl Into<Bytes>) -> Self {
        self.files.insert(path.to_owned(), Arc::new(Blob::memory(bytes.into())));
        self
    }

    /// Adds a file from disk; it is read when it is asked for.
    pub fn file_at(mut self, path: &str, on_disk: &Path) -> io::Result<Self> {
        self.files.insert(path.to_owned(), Arc::new(Blob::on_disk(on_disk)?));
        Ok(self)
    }

    /// Adds every file below a folder under its relative path, or one file under its own name.
    pub fn tree(mut self, root: &Path) -> io::Result<Self> {
        if root.is_file() {
            let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return self.file_at(&name, root);
        }
        let mut folders = vec![(root.to_owned(), String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
                if entry.path().is_dir() {
                    folders.push((entry.path(), format!("{path}/")));
                } else {
                    self = self.file_at(&path, &entry.path())?;
                }
            }
        }
        Ok(self)
    }

    /// Reads all files into memory, so that serving them costs as little as it can.
    pub fn into_memory(mut self) -> io::Result<Self> {
        for blob in self.files.values_mut() {
            if let Content::Disk(path) = &blob.content {
                *blob = Arc::new(Blob::memory(std::fs::read(path)?.into()));
            }
        }
        Ok(self)
    }

    /// Adds a tag, such as `license:mit`.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }

    /// Sets downloads and likes.
    #[must_use]
    pub fn popularity(mut self, downloads: u64, likes: u64) -> Self {
        self.downloads = downloads;
        self.likes = likes;
        self
    }

    /// Sets what the hub tells from its own parse of a GGUF.
    #[must_use]
    pub fn gguf(mut self, architecture: &str, n_params: u64, context_length: u64) -> Self {
        self.gguf = Some(GgufCard { architecture: architecture.to_owned(), n_params, context_length });
        self
    }

    /// Asks for an accepted licence; these tokens have accepted it.
    #[must_use]
    pub fn gated(mut self, accepted: &[&str]) -> Self {
        self.access = Access::Gated { accepted: accepted.iter().map(|&token| token.to_owned()).collect() };
        self
    }

    /// Commit that the files as they are now belong to.
    pub(super) fn commit(&self) -> String {
        let mut hasher = Sha1::new();
        for (path, blob) in &self.files {
            hasher.update(path.as_bytes());
            hasher.update(blob.sha256().as_bytes());
        }
        hex(&hasher.finalize())
    }

    /// All tags, with those the hub derives.
    pub(super) fn all_tags(&self) -> Vec<String> {
        let mut tags = self.tags.clone();
        for kind in ["gguf", "safetensors"] {
            if self.files.keys().any(|path| path.ends_with(&format!(".{kind}"))) {
                tags.push(kind.to_owned());
            }
        }
        tags
    }
}

/// One file's content and hashes; the hashes are computed once, when first asked for.
#[derive(Debug)]
pub(super) struct Blob {
    content: Content,
    pub(super) size_bytes: u64,
    sha256: OnceLock<String>,
    git_oid: OnceLock<String>,
}

#[derive(Debug)]
enum Content {
    Memory(Bytes),
    Disk(PathBuf),
}

impl Blob {
    pub(super) fn memory(bytes: Bytes) -> Self {
        let size_bytes = bytes.len() as u64;
        Self { content: Content::Memory(bytes), size_bytes, sha256: OnceLock::new(), git_oid: OnceLock::new() }
    }

    fn on_disk(path: &Path) -> io::Result<Self> {
        let size_bytes = std::fs::metadata(path)?.len();
        let content = Content::Disk(path.to_owned());
        Ok(Self { content, size_bytes, sha256: OnceLock::new(), git_oid: OnceLock::new() })
    }

    /// SHA256 in hex.
    pub(super) fn sha256(&self) -> &str {
        self.sha256.get_or_init(|| self.digest(Sha256::new()))
    }

    /// Git's name for what is in the repo under `path`: the content, or the pointer to a large file.
    pub(super) fn git_oid(&self, path: &str) -> &str {
        self.git_oid.get_or_init(|| {
            let mut hasher = Sha1::new();
            if is_large_file(path) {
                let pointer = self.pointer();
                hasher.update(format!("blob {}\0{pointer}", pointer.len()));
                return hex(&hasher.finalize());
            }
            hasher.update(format!("blob {}\0", self.size_bytes));
            self.digest(hasher)
        })
    }

    /// What Git keeps in place of a large file.
    pub(super) fn pointer(&self) -> String {
        let (sha256, size) = (self.sha256(), self.size_bytes);
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n")
    }

    /// Bytes `at..at + n`, as many as there are.
    pub(super) fn read(&self, at: u64, n: usize) -> io::Result<Bytes> {
        match &self.content {
            Content::Memory(bytes) => {
                let from = bytes.len().min(at as usize);
                Ok(bytes.slice(from..bytes.len().min(from + n)))
            }
            Content::Disk(path) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(at))?;
                let mut chunk = Vec::with_capacity(n);
                file.take(n as u64).read_to_end(&mut chunk)?;
                Ok(chunk.into())
            }
        }
    }

    fn digest<D: Digest>(&self, mut hasher: D) -> String {
        const STEP_BYTES: usize = 1 << 20;
        let mut at = 0;
        while at < self.size_bytes {
            let chunk = self.read(at, STEP_BYTES).expect("a served file can be read");
            assert!(!chunk.is_empty(), "a served file shrank");
            hasher.update(&chunk);
            at += chunk.len() as u64;
        }
        hex(&hasher.finalize())
    }
}

/// Whether the hub keeps a file of this name in large-file storage, behind the redirect.
pub(super) fn is_large_file(path: &str) -> bool {
    [".gguf", ".safetensors", ".bin", ".part"].iter().any(|ending| path.ends_with(ending))
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
