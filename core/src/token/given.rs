//! Tokens that are there before the app: in the environment, or in the file that Hugging Face's own tools keep.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::secret::Secret;
use crate::wire::TokenPlace;

/// A token that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenToken {
    /// The token.
    pub secret: Secret,
    /// Where it was found.
    pub place: TokenPlace,
}

impl GivenToken {
    /// Looks where Hugging Face's own tools look, in their order.
    ///
    /// variable  reads an environment variable
    /// home      the user's home folder
    pub fn find(variable: impl Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Option<Self> {
        let in_variable = |name: &&str| {
            let secret = Secret::new(variable(name)?.to_str()?)?;
            Some(Self { secret, place: TokenPlace::Environment { name: (*name).to_owned() } })
        };
        VARIABLES.iter().find_map(in_variable).or_else(|| {
            let path = token_file(|name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from), home)?;
            let secret = Secret::new(&std::fs::read_to_string(&path).ok()?)?;
            Some(Self { secret, place: TokenPlace::HubFile { path: path.display().to_string() } })
        })
    }
}

fn token_file(folder: impl Fn(&str) -> Option<PathBuf>, home: Option<&Path>) -> Option<PathBuf> {
    let in_cache = |cache: PathBuf| cache.join("huggingface");
    let hub_home = || {
        folder("HF_HOME")
            .or_else(|| folder("XDG_CACHE_HOME").map(in_cache))
            .or_else(|| home.map(|home| in_cache(home.join(".cache"))))
    };
    folder("HF_TOKEN_PATH").or_else(|| Some(hub_home()?.join("token")))
}

const VARIABLES: &[&str] = &["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &Path)], home: &Path) -> Option<(String, TokenPlace)> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str().to_owned())
        };
        GivenToken::find(variable, Some(home)).map(|given| (given.secret.reveal().to_owned(), given.place))
    }

    #[test]
    fn tokens_are_found_where_the_official_tools_look() {
        let home = tempfile::tempdir().unwrap();
        let [standard, hf_home, xdg] = [".cache/huggingface", "hf", "xdg/huggingface"].map(|dir| home.path().join(dir));
        assert_eq!(find(&[], home.path()), None);
        for (folder, token) in [(&standard, "hf_standard\n"), (&hf_home, " hf_home "), (&xdg, "hf_xdg")] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("token"), token).unwrap();
        }
        std::fs::write(home.path().join("own"), "hf_own").unwrap();
        let xdg_root = home.path().join("xdg");
        let own = home.path().join("own");
        let token = |variables: &[(&str, &Path)]| find(variables, home.path()).unwrap().0;
        assert_eq!(token(&[]), "hf_standard");
        assert_eq!(token(&[("XDG_CACHE_HOME", &xdg_root)]), "hf_xdg");
        assert_eq!(token(&[("XDG_CACHE_HOME", &xdg_root), ("HF_HOME", &hf_home)]), "hf_home");
        assert_eq!(token(&[("HF_HOME", &hf_home), ("HF_TOKEN_PATH", &own)]), "hf_own");
        assert_eq!(token(&[("HF_TOKEN_PATH", &own), ("HUGGING_FACE_HUB_TOKEN", Path::new("hf_old"))]), "hf_old");
        let both = [("HUGGING_FACE_HUB_TOKEN", Path::new("hf_old")), ("HF_TOKEN", Path::new("hf_new"))];
        let found = find(&both, home.path());
        assert_eq!(found, Some(("hf_new".into(), TokenPlace::Environment { name: "HF_TOKEN".into() })));
        assert_eq!(token(&[("HF_TOKEN", Path::new(" "))]), "hf_standard", "an empty variable is none");
    }
}
