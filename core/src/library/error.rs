//! Why the library did not do what it was asked.

use std::path::PathBuf;

use tandem_engine::gguf::GgufError;

use crate::error::{self, Explain, FileError};
use crate::store::StoreError;
use crate::wire::{ErrorCode, Failure, Program, Text};

/// Why the library did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The file cannot be reached, or not be moved.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is no model.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The path is not Unicode, so that it cannot be shown or kept.
    #[error("path is not Unicode: `{}`", path.display())]
    PathNotUnicode {
        /// Which path.
        path: PathBuf,
    },
    /// No model of this identifier.
    #[error("no model `{id}` in the library")]
    Unknown {
        /// What was asked for.
        id: String,
    },
    /// The system's trash does not take the file.
    #[error("cannot move `{}` to the trash: {source}", path.display())]
    Trash {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: trash::Error,
    },
    /// It lies in folders of other programs, which nobody allowed to be touched.
    #[error("`{name}` is a file of other programs")]
    OfOthers {
        /// The model.
        name: String,
        /// Whose files they are.
        programs: Vec<Program>,
    },
    /// Another place leads by a link to a file that would go, and nobody allowed it to be touched.
    #[error("`{path}` is a link to what would go")]
    LinkedFrom {
        /// The model's first file in that place.
        path: String,
        /// Whose place it is.
        program: Program,
    },
    /// Somebody wrote to the file while it was being checked.
    #[error("`{}` changed while it was read", path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// The check was stopped.
    #[error("the check was stopped")]
    Cancelled,
    /// The model is being checked already.
    #[error("the model is being checked already")]
    Busy,
    /// It could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Explain for LibraryError {
    fn explain(&self) -> Failure {
        match self {
            Self::File(error) => error.explain(),
            Self::Gguf(error) => error.explain(),
            Self::Store(error) => error.explain(),
            Self::PathNotUnicode { path } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("the name `{}` holds bytes that are no text", path.display()),
                    format!("名称 `{}` 含有无法识别的字节", path.display()),
                ),
                Text::new("rename the file or its folder", "重命名该文件或其文件夹"),
            ),
            Self::Unknown { .. } => Failure::new(
                ErrorCode::ModelMissing,
                Text::new("this model is not in the library any more", "该模型已不在模型库中"),
                Text::new("choose another model, or add its file again", "选择其他模型，或者重新添加文件"),
            ),
            Self::OfOthers { name, programs } => {
                let names: Vec<&str> = programs.iter().map(|program| program.name()).collect();
                let names = names.join(", ");
                Failure::new(
                    ErrorCode::BadRequest,
                    Text::new(
                        format!("`{name}` lies in a folder of {names} and is used in place"),
                        format!("`{name}` 位于 {names} 的文件夹中，就地使用"),
                    ),
                    Text::new(
                        "stop using the folder, or allow its files to be deleted there",
                        "停止使用该文件夹，或者允许在那里删除其文件",
                    ),
                )
            }
            Self::LinkedFrom { path, program } => {
                let of = program.name();
                Failure::new(
                    ErrorCode::BadRequest,
                    Text::new(
                        format!("`{path}` ({of}) is a link to a file that would go: the model would be gone there too"),
                        format!("`{path}`（{of}）是指向待删除文件的链接：删除后那里的模型也会失效"),
                    ),
                    Text::new(
                        "allow the files there to be deleted too, or put a copy in place of the link",
                        "允许同时删除那里的文件，或者用副本替换该链接",
                    ),
                )
            }
            Self::Changed { path } => Failure::new(
                ErrorCode::Busy,
                Text::new(
                    format!("`{}` changed while it was read", path.display()),
                    format!("读取期间 `{}` 发生了变化", path.display()),
                ),
                Text::new("let the other program finish, then check again", "等待其他程序完成后再校验"),
            ),
            Self::Cancelled => error::cancelled(),
            Self::Busy => Failure::new(
                ErrorCode::Busy,
                Text::new("this model is being checked already", "该模型正在校验"),
                Text::new("wait until that is done", "请等待校验完成"),
            ),
            Self::Trash { path, source } => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!("`{}` cannot be moved to the trash: {source}", path.display()),
                    format!("无法将 `{}` 移到回收站{}", path.display(), error::detail(source)),
                ),
                Text::new("delete the file in the file manager", "在文件管理器中删除该文件"),
            ),
        }
    }
}
