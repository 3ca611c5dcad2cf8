//! Lets Tauri read its configuration, and sees to it that the folder with the built interface exists.
//!
//! Tauri embeds `../ui/dist` and does not compile without it. An empty folder is enough to check and lint this crate
//! on a clean clone; such a window would be empty, so the build says it.

fn main() -> std::io::Result<()> {
    let dist = std::path::Path::new("../ui/dist");
    if !dist.join("index.html").is_file() {
        std::fs::create_dir_all(dist)?;
        println!("cargo::warning=the interface is not built, the window will be empty; `cargo xtask run` builds it");
    }
    tauri_build::build();
    Ok(())
}
