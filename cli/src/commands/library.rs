//! `tandem add`, `verify` and `remove`: what a person does with models that are here already.
use std::path::{Path, PathBuf};

use tandem_core::api;
use tandem_core::error::size;
use tandem_core::wire::{Integrity, LibraryModel, Program, RemoveRequest, Text, VerifyProgress};
use tandem_engine::Flow;

use crate::args::{self, Args};
use crate::exit::{bad_request, refused};
use crate::open::{self, Opened};
use crate::terminal::{Bar, Terminal};

/// Takes files and folders in where they lie.
pub(crate) fn add(args: &args::Add, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(global)?;
    let paths = args.paths.iter().map(|path| absolute(path)).collect();
    let added = opened.wait(api::add_paths(&opened.app, paths))?;
    if terminal.is_json() {
        terminal.print_json(&added)?;
    } else {
        for model in &added.models {
            terminal.print_line(&format!("{}  {}", model.name, model.path))?;
        }
        for folder in &added.folders {
            let (program, path, n) = (folder.program.name(), &folder.path, folder.n_models);
            let text = Text::new(format!("{n} models, used in place"), format!("{n} 个模型，就地使用"));
            terminal.print_line(&format!("{program}  {path}  {}", terminal.say(&text)))?;
            for problem in &folder.problems {
                terminal.note(&format!("! {}", terminal.say(&problem.message)));
            }
        }
    }
    match added.failures.into_iter().next() {
        Some(failure) => Err(refused(failure)),
        None => Ok(()),
    }
}

/// Computes a model's hashes and compares them.
pub(crate) fn verify(args: &args::Verify, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(global)?;
    let model = opened.model(&args.model)?;
    let (app, id) = (opened.app.clone(), model.id.clone());
    ctrlc::set_handler(move || app.stop_verify(&id))?;
    let checked = checked(&opened, &model, terminal)?;
    if terminal.is_json() {
        terminal.print_json(&checked)?;
    } else {
        for file in &checked.files {
            terminal.print_line(&format!("{}  {}", file.sha256.as_deref().unwrap_or("?"), file.path))?;
        }
        terminal.note(terminal.say(&outcome(&checked)));
    }
    if checked.integrity == Integrity::Mismatched { Err(refused(damaged(&checked))) } else { Ok(()) }
}

/// A model after its files were read and compared.
pub(crate) fn checked(opened: &Opened, model: &LibraryModel, terminal: &Terminal) -> anyhow::Result<LibraryModel> {
    let bar = terminal.bar(model.files.iter().map(|file| file.size_bytes).sum(), Bar::Bytes);
    bar.set_message(model.name.clone());
    let shown = bar.clone();
    let follow = Box::new(move |progress: VerifyProgress| {
        shown.set_position(progress.done_bytes);
        Flow::Continue
    });
    let checked = opened.wait(api::verify_model(&opened.app, model.id.clone(), follow))?;
    bar.finish_and_clear();
    Ok(checked)
}

/// Takes a model out of the library, or a folder out of use.
pub(crate) fn remove(args: &args::Remove, global: &Args, terminal: &Terminal) -> anyhow::Result<()> {
    let opened = open::app(global)?;
    if Path::new(&args.model).is_dir() {
        return opened.wait(api::drop_folder(&opened.app, absolute(Path::new(&args.model))));
    }
    let model = opened.model(&args.model)?;
    let of_programs: Vec<Program> = args.of.iter().map(|program| (*program).into()).collect();
    require_one_name(&args.model, &model, &of_programs)?;
    let removal = opened.wait(api::remove_model(&opened.app, RemoveRequest { model_id: model.id, of_programs }))?;
    if terminal.is_json() {
        return terminal.print_json(&removal);
    }
    for file in &removal.files {
        terminal.print_line(file)?;
    }
    let (n, freed) = (removal.files.len(), size(removal.freed_bytes));
    let text = match n {
        0 => Text::new("Out of the library; its file stays where it is.", "已移出模型库；文件保留在原处。"),
        _ => Text::new(
            format!("{n} files moved to the trash; {freed} are free once it is emptied."),
            format!("已将 {n} 个文件移到回收站；清空后可腾出 {freed}。"),
        ),
    };
    terminal.note(terminal.say(&text));
    Ok(())
}

/// Refuses to take a model away by one of the names that a program has for it: the others would go with it.
fn require_one_name(named: &str, model: &LibraryModel, of_programs: &[Program]) -> anyhow::Result<()> {
    let places = model.places.iter().filter(|place| of_programs.contains(&place.program));
    let titles: Vec<&str> = places.filter_map(|place| place.title.as_deref()).collect();
    if titles.len() < 2 || !titles.iter().any(|title| title.eq_ignore_ascii_case(named)) {
        return Ok(());
    }
    let all = titles.join(", ");
    Err(bad_request(
        Text::new(
            format!("`{named}` shares its files with other names, which would go too: {all}"),
            format!("`{named}` 与其他名称共用文件，删除会一并移除：{all}"),
        ),
        Text::new(
            format!("remove the one name in that program itself, or all of them here by `{}`", model.id),
            format!("在该程序中单独删除此名称，或者用 `{}` 在此全部删除", model.id),
        ),
    ))
}

fn outcome(model: &LibraryModel) -> Text {
    match model.integrity {
        Integrity::Verified => Text::new("The files are what was promised.", "文件与承诺的一致。"),
        Integrity::Unverified => {
            Text::new("Nothing to compare with; the hashes are kept.", "没有可对照的哈希；已记录计算结果。")
        }
        Integrity::Mismatched => Text::new("A file is not what was promised.", "有文件与承诺的不一致。"),
    }
}

fn damaged(model: &LibraryModel) -> tandem_core::wire::Failure {
    let wrong = model.files.iter().find(|file| file.sha256 != file.expected_sha256).map(|file| file.path.as_str());
    let path = wrong.unwrap_or(&model.path);
    tandem_core::wire::Failure::new(
        tandem_core::wire::ErrorCode::ChecksumMismatch,
        Text::new(format!("`{path}` is not what was promised"), format!("`{path}` 与承诺的不一致")),
        Text::new("fetch the model again", "重新下载该模型"),
    )
}

/// A path that means the same to whoever reads it; one that cannot be made absolute is passed on as it is.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    path.to_string_lossy().into_owned()
}
