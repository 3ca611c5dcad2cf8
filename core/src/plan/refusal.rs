//! Why there is no plan, or one that must not be loaded.
use tandem_engine::error::EngineError;
use tandem_engine::gguf::GgufError;

use super::words::size;
use crate::error::Explain;
use crate::wire::{ErrorCode, Failure, Plan, Text, Verdict};

/// Why a model cannot run on a machine.
#[derive(Debug, thiserror::Error)]
pub enum PlanRefusal {
    /// The header lacks what a plan needs.
    #[error(transparent)]
    Header(#[from] GgufError),
    /// The engine cannot use the header.
    #[error(transparent)]
    Unsound(#[from] EngineError),
    /// The file holds no weights.
    #[error("the file holds no weights")]
    NoWeights,
    /// What cannot be read again from disk finds no room, even with the shortest context.
    #[error("a context of {context} tokens needs {needed_bytes} bytes, {missing_bytes} more than are free")]
    NoRoom {
        /// Context length that was tried last, tokens.
        context: u32,
        /// Cache and buffers.
        needed_bytes: u64,
        /// Beyond what is available.
        missing_bytes: u64,
    },
    /// It would be read from disk at every token.
    #[error("{missing_bytes} bytes more than are free are needed to run at a usable speed")]
    TooLarge {
        /// Beyond what is available.
        missing_bytes: u64,
    },
    /// A plan from elsewhere names a cache that the engine does not have.
    #[error("the engine has no KV cache of type `{kv_type}`")]
    KvType {
        /// As the plan says.
        kv_type: String,
    },
}

/// Refuses a plan that would only keep the disk busy. A merely slow one may be loaded: that is the person's choice.
pub fn check_loadable(plan: &Plan) -> Result<(), PlanRefusal> {
    match (plan.verdict, plan.ram_bar.shortfall_bytes) {
        (Verdict::TooLarge, missing_bytes) if missing_bytes > 0 => Err(PlanRefusal::TooLarge { missing_bytes }),
        _ => Ok(()),
    }
}

impl Explain for PlanRefusal {
    fn explain(&self) -> Failure {
        let close_programs = || {
            Text::new(
                "close other programs, or choose a smaller version of the model",
                "关闭其他程序，或者选择该模型的更小版本",
            )
        };
        match self {
            Self::Header(error) => error.explain(),
            Self::Unsound(error) => error.explain(),
            Self::NoWeights => Failure::new(
                ErrorCode::NotAChatModel,
                Text::new("the file holds no weights", "该文件不含模型权重"),
                Text::new("choose a file with the model itself", "选择包含模型本身的文件"),
            ),
            Self::NoRoom { context, missing_bytes, .. } => {
                let missing = size(*missing_bytes);
                Failure::new(
                    ErrorCode::OutOfMemory,
                    Text::new(
                        format!("memory is {missing} short, even for a context of {context} tokens"),
                        format!("即使上下文只有 {context} 个词元，内存也还差 {missing}"),
                    ),
                    close_programs(),
                )
            }
            Self::TooLarge { missing_bytes } => {
                let missing = size(*missing_bytes);
                Failure::new(
                    ErrorCode::OutOfMemory,
                    Text::new(
                        format!("the model is too large for this machine: memory is {missing} short"),
                        format!("模型太大，本机放不下：内存还差 {missing}"),
                    ),
                    close_programs(),
                )
            }
            Self::KvType { kv_type } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("the engine has no KV cache of type `{kv_type}`"),
                    format!("引擎不支持 `{kv_type}` 类型的 KV 缓存"),
                ),
                Text::new("choose f16 or f32", "选择 f16 或 f32"),
            ),
        }
    }
}
