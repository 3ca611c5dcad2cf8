//! Where other programs keep their models by default, on each system, and where their own settings say otherwise.
//!
//! Sources: the client libraries and settings of each program; `layouts` says what lies there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use directories::BaseDirs;

use super::layouts::small_text;
use crate::wire::Program;

/// What of this machine decides where programs keep things. `Default` knows nothing, so that nothing is found.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Whose conventions hold.
    pub os: Os,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// Environment variables.
    pub vars: BTreeMap<String, OsString>,
    /// What stands before folders of the whole machine: nothing but in tests.
    pub root: PathBuf,
}

/// A family of operating systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Os {
    /// Linux and its kin.
    #[default]
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl Environment {
    /// Those of this process. Reads the environment: for the app's entry only.
    pub fn of_process() -> Self {
        let os = if cfg!(windows) {
            Os::Windows
        } else if cfg!(target_os = "macos") {
            Os::MacOs
        } else {
            Os::Linux
        };
        let home = BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
        let vars = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
        Self { os, home, vars: vars.collect(), root: PathBuf::new() }
    }

    /// A folder that a variable names.
    fn var(&self, name: &str) -> Option<PathBuf> {
        self.vars.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn at_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// Where programs keep what is theirs and must not be lost.
    fn data(&self) -> Option<PathBuf> {
        match self.os {
            Os::Linux => self.var("XDG_DATA_HOME").or_else(|| self.at_home(".local/share")),
            Os::MacOs => self.at_home("Library/Application Support"),
            Os::Windows => self.var("APPDATA").or_else(|| self.at_home("AppData/Roaming")),
        }
    }

    /// Where programs keep what can be fetched again.
    fn cache(&self) -> Option<PathBuf> {
        match self.os {
            Os::Linux => self.var("XDG_CACHE_HOME").or_else(|| self.at_home(".cache")),
            Os::MacOs => self.at_home("Library/Caches"),
            Os::Windows => self.var("LOCALAPPDATA").or_else(|| self.at_home("AppData/Local")),
        }
    }
}

/// Folders of other programs that are there, each once.
pub(super) fn folders(around: &Environment) -> Vec<(Program, PathBuf)> {
    let all = [
        (Program::LmStudio, lm_studio(around)),
        (Program::Ollama, ollama(around)),
        (Program::HuggingFace, hugging_face(around)),
        (Program::LlamaCpp, llama_cpp(around)),
        (Program::Jan, jan(around)),
    ];
    let mut found: Vec<(Program, PathBuf)> = Vec::new();
    for (program, folders) in all {
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            let Ok(real) = dunce::canonicalize(folder) else { continue };
            if !found.iter().any(|(_, known)| *known == real) {
                found.push((program, real));
            }
        }
    }
    found
}

/// Source: `lms` of LM Studio: a pointer to its home, the older home, the present one; in it the settings name the folder.
fn lm_studio(around: &Environment) -> Vec<PathBuf> {
    let pointed = around.at_home(".lmstudio-home-pointer").and_then(|path| small_text(&path));
    let pointed = pointed.map(|text| PathBuf::from(text.trim())).filter(|path| path.is_absolute());
    let older = around.at_home(".cache/lm-studio").filter(|path| path.is_dir());
    let Some(home) = pointed.or(older).or_else(|| around.at_home(".lmstudio")) else { return Vec::new() };
    let older_settings = match around.os {
        Os::Linux => around.at_home(".config/LM Studio"),
        Os::MacOs | Os::Windows => around.data().map(|data| data.join("LM Studio")),
    };
    let settings = [Some(home.clone()), older_settings].into_iter().flatten();
    let chosen = settings.filter_map(|folder| setting(&folder.join("settings.json"), "downloadsFolder"));
    chosen.chain([home.join("models")]).collect()
}

/// Source: `envconfig/config.go` of Ollama, and its Linux service.
fn ollama(around: &Environment) -> Vec<PathBuf> {
    let service = match around.os {
        Os::Linux => Some(around.root.join(relative("/usr/share/ollama/.ollama/models", &around.root))),
        Os::MacOs | Os::Windows => None,
    };
    [around.var("OLLAMA_MODELS"), around.at_home(".ollama/models"), service].into_iter().flatten().collect()
}

/// Source: `constants.py` of huggingface_hub.
fn hugging_face(around: &Environment) -> Vec<PathBuf> {
    let hub = |folder: PathBuf| folder.join("hub");
    let named = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].iter().find_map(|name| around.var(name));
    let named = named.or_else(|| around.var("HF_HOME").map(hub));
    let named = named.or_else(|| around.var("XDG_CACHE_HOME").map(|cache| hub(cache.join("huggingface"))));
    [named, around.at_home(".cache/huggingface/hub")].into_iter().flatten().collect()
}

/// Source: `fs_get_cache_directory` of llama.cpp.
fn llama_cpp(around: &Environment) -> Vec<PathBuf> {
    [around.var("LLAMA_CACHE"), around.cache().map(|cache| cache.join("llama.cpp"))].into_iter().flatten().collect()
}

/// Source: `core/app/commands.rs` of Jan: a data folder that the settings may move.
fn jan(around: &Environment) -> Vec<PathBuf> {
    let Some(data) = around.data() else { return Vec::new() };
    let settings = ["jan.ai.app", "Jan"].map(|name| data.join(name).join("settings.json"));
    let chosen = settings.iter().filter_map(|path| setting(path, "data_folder"));
    let homes: Vec<PathBuf> = chosen.chain([data.join("Jan/data")]).chain(around.at_home("jan")).collect();
    homes.iter().flat_map(|home| [home.join("llamacpp/models"), home.join("models")]).collect()
}

/// A folder that a program's settings name.
fn setting(path: &Path, key: &str) -> Option<PathBuf> {
    let settings: serde_json::Value = serde_json::from_str(&small_text(path)?).ok()?;
    let folder = PathBuf::from(settings.get(key)?.as_str()?);
    folder.is_absolute().then_some(folder)
}

/// A path of the whole machine as it stands below `root`; below nothing it stays what it is.
fn relative(path: &str, root: &Path) -> PathBuf {
    if root.as_os_str().is_empty() { PathBuf::from(path) } else { PathBuf::from(path.trim_start_matches('/')) }
}

const VARIABLES: &[&str] = &[
    "APPDATA",
    "LOCALAPPDATA",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "OLLAMA_MODELS",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "LLAMA_CACHE",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A home with folders, and what is found in it, below the home.
    fn found(os: Os, vars: &[(&str, &str)], folders_there: &[&str], files: &[(&str, &str)]) -> Vec<(Program, String)> {
        let dir = tempfile::tempdir().unwrap();
        let home = dunce::canonicalize(dir.path()).unwrap().join("张 🙂");
        for folder in folders_there {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        for (path, text) in files {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("HOME", home.to_str().unwrap())).unwrap();
        }
        let vars = vars.iter().map(|(name, path)| ((*name).to_owned(), home.join(path).into_os_string())).collect();
        let around = Environment { os, home: Some(home.clone()), vars, root: home.clone() };
        let below = |path: PathBuf| path.strip_prefix(&home).unwrap().to_string_lossy().replace('\\', "/");
        folders(&around).into_iter().map(|(program, path)| (program, below(path))).collect()
    }

    #[test]
    fn usual_places_are_found_on_every_system() {
        use Program::{HuggingFace, Jan, LlamaCpp, LmStudio, Ollama};
        for (os, data, cache) in [
            (Os::Linux, ".local/share", ".cache"),
            (Os::MacOs, "Library/Application Support", "Library/Caches"),
            (Os::Windows, "AppData/Roaming", "AppData/Local"),
        ] {
            let jan = format!("{data}/Jan/data/llamacpp/models");
            let llama = format!("{cache}/llama.cpp");
            let there = [".lmstudio/models", ".ollama/models", ".cache/huggingface/hub", &llama, &jan, "unrelated"];
            let expected = [LmStudio, Ollama, HuggingFace, LlamaCpp, Jan].into_iter().zip(there.map(str::to_owned));
            assert_eq!(found(os, &[], &there, &[]), expected.collect::<Vec<_>>(), "{os:?}");
        }
        let service = "usr/share/ollama/.ollama/models";
        assert_eq!(found(Os::Linux, &[], &[service], &[]), [(Ollama, service.to_owned())]);
        assert_eq!(found(Os::Linux, &[], &[], &[]), []);
    }

    #[test]
    fn variables_move_them() {
        for (name, path, program, folder) in [
            ("OLLAMA_MODELS", "o", Program::Ollama, "o"),
            ("HF_HOME", "hf", Program::HuggingFace, "hf/hub"),
            ("HF_HUB_CACHE", "h", Program::HuggingFace, "h"),
            ("HUGGINGFACE_HUB_CACHE", "h", Program::HuggingFace, "h"),
            ("XDG_CACHE_HOME", "c", Program::HuggingFace, "c/huggingface/hub"),
            ("XDG_CACHE_HOME", "c", Program::LlamaCpp, "c/llama.cpp"),
            ("XDG_DATA_HOME", "d", Program::Jan, "d/Jan/data/models"),
            ("LLAMA_CACHE", "l", Program::LlamaCpp, "l"),
        ] {
            assert_eq!(found(Os::Linux, &[(name, path)], &[folder], &[]), [(program, folder.to_owned())], "{name}");
        }
    }

    #[test]
    fn settings_of_the_programs_move_them() {
        let lm_studio = [
            ("home/settings.json", r#"{"downloadsFolder":"HOME/big disk/models"}"#),
            (".lmstudio-home-pointer", "HOME/home\n"),
        ];
        let there = ["big disk/models", "home/models"];
        assert_eq!(
            found(Os::Linux, &[], &there, &lm_studio),
            there.map(|folder| (Program::LmStudio, folder.to_owned()))
        );
        let jan = [(".local/share/jan.ai.app/settings.json", r#"{"data_folder":"HOME/j"}"#)];
        assert_eq!(found(Os::Linux, &[], &["j/models"], &jan), [(Program::Jan, "j/models".to_owned())]);
        let nonsense = [(".lmstudio-home-pointer", "not a path"), (".local/share/Jan/settings.json", "{")];
        assert_eq!(found(Os::Linux, &[], &[], &nonsense), []);
    }

    #[test]
    fn a_folder_of_two_programs_is_found_once() {
        let vars = [("HF_HUB_CACHE", "shared"), ("LLAMA_CACHE", "shared")];
        assert_eq!(found(Os::Linux, &vars, &["shared"], &[]), [(Program::HuggingFace, "shared".to_owned())]);
    }
}
