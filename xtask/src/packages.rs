//! System packages: found by what they provide, installed with apt where that is allowed, and named where it is not.
//!
//! A requirement is met when its probe answers, however the thing got there; so a system without apt goes on as soon as
//! everything is in place.

use std::process::Stdio;

use anyhow::{Result, bail};

use crate::command::{command, is_on_path, output, works};

/// What the machine must provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To build the app and fetch models.
    Build,
    /// To open its window without a display, and look at it.
    Screen,
}

struct Requirement {
    what: &'static str,
    purpose: Purpose,
    probe: Probe,
    /// Packages of Debian and Ubuntu, Fedora, Arch.
    debian: &'static str,
    fedora: &'static str,
    arch: &'static str,
}

enum Probe {
    /// A program on the search path.
    Program(&'static str),
    /// A library with headers, as pkg-config sees it.
    Library(&'static str),
    /// Python that can make virtual environments with pip inside.
    PythonWithVenv,
    /// A font that covers a language.
    FontFor(&'static str),
}

/// Everything, as rows. Names for systems other than Debian and Ubuntu come from their package lists and are not installed by us.
const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        what: "a C compiler and linker",
        purpose: Purpose::Build,
        probe: Probe::Program("cc"),
        debian: "build-essential",
        fedora: "gcc gcc-c++",
        arch: "base-devel",
    },
    Requirement {
        what: "pkg-config",
        purpose: Purpose::Build,
        probe: Probe::Program("pkg-config"),
        debian: "pkg-config",
        fedora: "pkgconf-pkg-config",
        arch: "pkgconf",
    },
    Requirement {
        what: "WebKitGTK 4.1 with headers",
        purpose: Purpose::Build,
        probe: Probe::Library("webkit2gtk-4.1"),
        debian: "libwebkit2gtk-4.1-dev",
        fedora: "webkit2gtk4.1-devel",
        arch: "webkit2gtk-4.1",
    },
    Requirement {
        what: "Python 3 with venv",
        purpose: Purpose::Build,
        probe: Probe::PythonWithVenv,
        debian: "python3 python3-venv",
        fedora: "python3",
        arch: "python",
    },
    Requirement {
        what: "Xvfb, a display without a screen",
        purpose: Purpose::Screen,
        probe: Probe::Program("Xvfb"),
        debian: "xvfb",
        fedora: "xorg-x11-server-Xvfb",
        arch: "xorg-server-xvfb",
    },
    Requirement {
        what: "WebKit's WebDriver",
        purpose: Purpose::Screen,
        probe: Probe::Program("WebKitWebDriver"),
        debian: "webkit2gtk-driver",
        fedora: "webkit2gtk-driver",
        arch: "webkit2gtk-4.1",
    },
    Requirement {
        what: "a Chinese font",
        purpose: Purpose::Screen,
        probe: Probe::FontFor("zh-cn"),
        debian: "fontconfig fonts-noto-cjk",
        fedora: "google-noto-sans-cjk-fonts",
        arch: "noto-fonts-cjk",
    },
    Requirement {
        what: "an emoji font",
        purpose: Purpose::Screen,
        probe: Probe::FontFor("und-zsye"),
        debian: "fonts-noto-color-emoji",
        fedora: "google-noto-color-emoji-fonts",
        arch: "noto-fonts-emoji",
    },
];

/// Sees to it that everything for these purposes is there.
///
/// Errors   names what is missing and the command that installs it
pub(crate) fn provide(purposes: &[Purpose]) -> Result<()> {
    let missing = missing(purposes);
    if missing.is_empty() {
        eprintln!("     nothing is missing");
        return Ok(());
    }
    if !is_on_path("apt-get") {
        bail!(advice(&missing));
    }
    let Some(mut as_root) = root_prefix() else { bail!(advice(&missing)) };
    as_root.push("apt-get");
    let apt_get = |args: &[&str]| {
        let mut command = command(as_root[0]);
        // Someone may have to type a password; apt itself must not ask anything.
        command.stdin(Stdio::inherit()).args(&as_root[1..]).args(args).env("DEBIAN_FRONTEND", "noninteractive");
        // Thousands of lines that matter only when it fails.
        output(&mut command).map(drop)
    };
    eprintln!("     installs what is missing: {}", names(&missing));
    apt_get(&["update"])?;
    let packages = missing.iter().flat_map(|requirement| requirement.debian.split(' '));
    let install = ["install", "--yes", "--no-install-recommends"];
    apt_get(&install.into_iter().chain(packages).collect::<Vec<_>>())?;
    let still = self::missing(purposes);
    if !still.is_empty() {
        bail!("installed, and yet not there: {}", names(&still));
    }
    Ok(())
}

fn missing(purposes: &[Purpose]) -> Vec<&'static Requirement> {
    let wanted = REQUIREMENTS.iter().filter(|requirement| purposes.contains(&requirement.purpose));
    wanted.filter(|requirement| !requirement.probe.answers()).collect()
}

impl Probe {
    fn answers(&self) -> bool {
        match self {
            // Elsewhere Python is all that is asked for: web view and compiler come with the system's developer tools.
            Self::Program(_) | Self::Library(_) | Self::FontFor(_) if !cfg!(target_os = "linux") => true,
            Self::Program(name) => is_on_path(name),
            Self::Library(name) => works("pkg-config", &["--exists", name]),
            Self::PythonWithVenv => works(crate::python::SYSTEM_PYTHON, &["-c", "import venv, ensurepip"]),
            Self::FontFor(language) => {
                output(command("fc-list").arg(format!(":lang={language}"))).is_ok_and(|fonts| !fonts.is_empty())
            }
        }
    }
}

/// What comes before `apt-get`: nothing for root, sudo where there is one, `None` where neither.
fn root_prefix() -> Option<Vec<&'static str>> {
    if output(command("id").arg("-u")).is_ok_and(|id| id == "0") {
        Some(vec!["env"])
    } else if is_on_path("sudo") {
        // Without a terminal nobody can type a password: then sudo must work without one, or fail.
        let has_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        Some(if has_terminal { vec!["sudo"] } else { vec!["sudo", "--non-interactive"] })
    } else {
        None
    }
}

fn names(requirements: &[&Requirement]) -> String {
    requirements.iter().map(|requirement| requirement.what).collect::<Vec<_>>().join(", ")
}

fn advice(missing: &[&Requirement]) -> String {
    let list = |of: fn(&Requirement) -> &'static str| missing.iter().map(|each| of(each)).collect::<Vec<_>>().join(" ");
    format!(
        "this machine still needs: {}. Install it and start again:\n\
         \n    Debian, Ubuntu   sudo apt-get install --no-install-recommends {}\
         \n    Fedora           sudo dnf install {}\
         \n    Arch             sudo pacman -S {}\
         \n    others           the packages of the same purpose; they are found by what they provide",
        names(missing),
        list(|each| each.debian),
        list(|each| each.fedora),
        list(|each| each.arch),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_every_missing_thing_and_a_command_for_it() {
        let all: Vec<&Requirement> = REQUIREMENTS.iter().collect();
        let advice = advice(&all);
        for requirement in REQUIREMENTS {
            assert!(advice.contains(requirement.what), "{}", requirement.what);
            for packages in [requirement.debian, requirement.fedora, requirement.arch] {
                assert!(advice.contains(packages), "{packages}");
            }
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missing() {
        assert!(!Probe::Program("no-such-program-anywhere").answers() || !cfg!(target_os = "linux"));
    }
}
