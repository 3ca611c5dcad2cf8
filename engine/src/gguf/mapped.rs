//! A model's files in memory: header read, every tensor's bytes at hand. Mapped, so that nothing is copied; or, where somebody
//! wants that, copied once into memory of their own.

use std::fs::File;
use std::path::Path;

use memmap2::{Mmap, MmapMut};

use super::error::GgufError;
use super::facts::{ModelFacts, Prefix, TensorFacts};
use super::shards::{self, ShardName};
use crate::Flow;
use crate::error::EngineError;

/// Copied between two reports; a slow disk reads this in about 40 ms.
const COPIED_AT_ONCE: usize = 4 << 20;

/// All files of a model, read-only.
#[derive(Debug)]
pub struct MappedModel {
    /// What the headers say.
    pub facts: ModelFacts,
    /// One per file, of the file or of a copy; none if only the header is at hand.
    maps: Vec<Mmap>,
}

/// Some bytes of one of a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the file.
    pub file: usize,
    /// Where they begin, from the start of the file.
    pub offset_bytes: u64,
    /// How many.
    pub n_bytes: u64,
}

impl MappedModel {
    /// Maps a file, and all others if the model comes in several; any of them may be named.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let name = file_name(path);
        let names = match ShardName::parse(&name) {
            Some(shard) => shard.all().collect(),
            None => vec![name],
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let missing: Vec<String> = names.iter().filter(|name| !folder.join(name).exists()).cloned().collect();
        if names.len() > 1 && !missing.is_empty() {
            return Err(GgufError::MissingShards { missing, count: names.len() as u32 });
        }
        let is_alone = names.len() == 1;
        let mut headers = Vec::new();
        let mut maps = Vec::new();
        for name in names {
            let (facts, map) = open_one(&folder.join(&name)).map_err(|source| match source {
                GgufError::Io { .. } | GgufError::NotAFile { .. } => source,
                _ if is_alone => source,
                _ => GgufError::InShard { file: name.clone(), source: Box::new(source) },
            })?;
            headers.push((name, facts));
            maps.push(map);
        }
        Ok(Self { facts: shards::merge(headers)?, maps })
    }

    /// A model of which only the header is at hand: its tensors can be looked up, not read.
    pub fn header_only(facts: ModelFacts) -> Self {
        Self { facts, maps: Vec::new() }
    }

    /// The same in memory of its own, in large pages where the system has them: addresses are found quicker, and no other
    /// program can have the memory back.
    ///
    /// on       called with the part that is done, 0 to 1; `Break` cancels
    /// Errors   `OutOfMemory`, `Cancelled`
    pub fn copied(&self, on: &mut dyn FnMut(f32) -> Flow) -> Result<Self, EngineError> {
        let total: usize = self.maps.iter().map(|map| map.len()).sum();
        let mut n_done = 0;
        let mut maps = Vec::with_capacity(self.maps.len());
        for map in &self.maps {
            let refused = |_| EngineError::OutOfMemory { what: "a copy of the file", bytes: map.len() as u64 };
            let mut copy = MmapMut::map_anon(map.len()).map_err(refused)?;
            large_pages(&copy);
            for (to, from) in copy.chunks_mut(COPIED_AT_ONCE).zip(map.chunks(COPIED_AT_ONCE)) {
                to.copy_from_slice(from);
                n_done += from.len();
                if on(n_done as f32 / total as f32) == Flow::Break {
                    return Err(EngineError::Cancelled);
                }
            }
            maps.push(copy.make_read_only().map_err(refused)?);
        }
        Ok(Self { facts: self.facts.clone(), maps })
    }

    /// The bytes of a tensor of this model, unless only its header is at hand.
    pub fn tensor_bytes_if_there(&self, tensor: &TensorFacts) -> Option<&[u8]> {
        (!self.maps.is_empty()).then(|| self.tensor_bytes(tensor))
    }

    /// The bytes of a tensor of this model.
    ///
    /// tensor   one of `self.facts.tensors`
    /// Errors   none; panics if the tensor is of another model and lies outside this one's files
    /// Cost     none; the first touch of a page reads it from disk
    pub fn tensor_bytes(&self, tensor: &TensorFacts) -> &[u8] {
        self.bytes(Piece { file: tensor.file, offset_bytes: tensor.offset_bytes, n_bytes: tensor.n_bytes })
    }

    /// Some bytes, most often part of a tensor's.
    ///
    /// Errors   none; panics if they lie outside the files
    pub fn bytes(&self, piece: Piece) -> &[u8] {
        let start = piece.offset_bytes as usize;
        &self.maps[piece.file][start..start + piece.n_bytes as usize]
    }
}

#[cfg(target_os = "linux")]
fn large_pages(map: &MmapMut) {
    // A system without them keeps to small ones.
    let _ = map.advise(memmap2::Advice::HugePage);
}

#[cfg(not(target_os = "linux"))]
fn large_pages(_: &MmapMut) {}

fn open_one(path: &Path) -> Result<(ModelFacts, Mmap), GgufError> {
    let io = |source| GgufError::Io { path: path.to_owned(), source };
    // Before opening: to open a pipe would wait for a writer.
    if !path.metadata().map_err(io)?.is_file() {
        return Err(GgufError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: the map is read-only and private to this struct. Another process that shortens the file while it is mapped
    // can make a read fault; model files are written once, under another name, and only then renamed to theirs.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    match ModelFacts::from_prefix(&map, map.len() as u64)? {
        Prefix::Complete(facts) => Ok((facts.with_file_name(&file_name(path)), map)),
        Prefix::NeedMore { at_least_bytes } => {
            Err(GgufError::Truncated { what: "its header", needed_bytes: at_least_bytes, file_bytes: map.len() as u64 })
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
