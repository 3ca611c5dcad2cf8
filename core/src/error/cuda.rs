//! What a GPU's errors mean to a person. All of them leave the same way on: the processor.

use tandem_engine::cuda::{CudaError, DriverState};

use super::{Explain, detail, size};
use crate::wire::{ErrorCode, Failure, Text};

impl Explain for CudaError {
    fn explain(&self) -> Failure {
        let message = match self {
            Self::Unavailable { state, .. } => return Failure::new(ErrorCode::GpuFailed, unavailable(state), go_on()),
            Self::CardTooOld { name, .. } => Text::new(
                format!(
                    "the graphics card `{name}` is too old to compute here: GeForce GTX 16, RTX 20 and newer ones can"
                ),
                format!("显卡 `{name}` 太旧，无法在此计算：支持 GeForce GTX 16、RTX 20 及更新的显卡"),
            ),
            Self::Busy { .. } => Text::new(
                "another program has the graphics card to itself, or has taken all of its memory",
                "其他程序独占了显卡，或占满了显存",
            ),
            Self::OutOfMemory { needed_bytes, free_bytes, .. } => {
                let (needed, free) = (size(*needed_bytes), size(*free_bytes));
                return Failure::new(
                    ErrorCode::OutOfMemory,
                    Text::new(
                        format!("the graphics card has {free} of memory left, another {needed} are needed"),
                        format!("显存剩余 {free}，还需要 {needed}"),
                    ),
                    Text::new(
                        "close programs that use the graphics card, or choose a shorter context",
                        "关闭占用显卡的程序，或选择较短的上下文",
                    ),
                );
            }
            Self::KernelsRefused { reason, .. } => Text::new(
                format!("the graphics driver does not take Tandem's programs: {reason}"),
                format!("显卡驱动不接受 Tandem 的计算程序{}", detail(reason)),
            ),
            Self::WrongResult { what, .. } => Text::new(
                format!("the graphics card does not compute what the processor does ({what})"),
                format!("显卡的计算结果与处理器不一致{}", detail(what)),
            ),
            Self::Lost { reason, .. } => Text::new(
                format!("the graphics card or its driver is gone: {reason}"),
                format!("显卡或其驱动已断开{}", detail(reason)),
            ),
            Self::Failed { what, reason, .. } => Text::new(
                format!("the graphics card failed ({what}): {reason}"),
                format!("显卡出错{}", detail(&format!("{what}: {reason}"))),
            ),
            other => Text::new(format!("the graphics card failed: {other}"), format!("显卡出错{}", detail(other))),
        };
        Failure::new(ErrorCode::GpuFailed, message, go_on())
    }
}

/// The card that is not to be used again before the app starts anew, if the error means that: what was busy or full may be free
/// the next time.
pub(crate) fn spoiled_card(error: &CudaError) -> Option<u32> {
    match error {
        CudaError::CardTooOld { index, .. }
        | CudaError::KernelsRefused { index, .. }
        | CudaError::WrongResult { index, .. }
        | CudaError::Lost { index, .. }
        | CudaError::Failed { index, .. } => Some(*index),
        _ => None,
    }
}

fn unavailable(state: &DriverState) -> Text {
    match state {
        DriverState::NoDriver => Text::new("no NVIDIA driver is installed", "未安装 NVIDIA 驱动"),
        DriverState::DriverTooOld { version } => {
            let cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
            Text::new(
                format!("the NVIDIA driver is too old (CUDA {cuda}): 525 or newer is needed"),
                format!("NVIDIA 驱动太旧（CUDA {cuda}），需要 525 或更新的版本"),
            )
        }
        DriverState::NoDevice => Text::new("the NVIDIA driver sees no graphics card", "NVIDIA 驱动未发现显卡"),
        DriverState::Failed { reason } => Text::new(
            format!("the NVIDIA driver does not start: {reason}"),
            format!("NVIDIA 驱动无法启动{}", detail(reason)),
        ),
        DriverState::Ready { .. } => {
            Text::new("the graphics card that was planned for is not there", "计划使用的显卡不存在")
        }
    }
}

fn go_on() -> Text {
    Text::new("go on with the processor alone: slower, and nothing is lost", "改用处理器继续：速度较慢，但不会丢失内容")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_card_says_what_to_do_and_none_names_an_index() {
        let ready = DriverState::Ready { devices: Vec::new() };
        let failed = DriverState::Failed { reason: "broken".to_owned() };
        let states = [
            DriverState::NoDriver,
            DriverState::DriverTooOld { version: 11_080 },
            DriverState::NoDevice,
            failed,
            ready,
        ];
        let reason = || "CUDA_ERROR_UNKNOWN".to_owned();
        let errors = states.map(|state| CudaError::Unavailable { index: 0, state }).into_iter().chain([
            CudaError::CardTooOld { index: 0, name: "GeForce GTX 1060".to_owned() },
            CudaError::Busy { index: 0 },
            CudaError::OutOfMemory { index: 0, needed_bytes: 3 << 30, free_bytes: 1 << 30 },
            CudaError::KernelsRefused { index: 0, reason: reason() },
            CudaError::WrongResult { index: 0, what: "attention of 1".to_owned() },
            CudaError::Lost { index: 0, reason: reason() },
            CudaError::Failed { index: 0, what: "matvec_q4_K", reason: reason() },
        ]);
        for error in errors {
            let failure = error.explain();
            assert!(!failure.message.en.contains("cuda0"), "{}", failure.message.en);
            assert!(!failure.message.zh.is_empty() && !failure.hint.zh.is_empty(), "{error}");
            let is_memory = matches!(error, CudaError::OutOfMemory { .. });
            let may_pass = matches!(error, CudaError::Unavailable { .. } | CudaError::Busy { .. }) || is_memory;
            assert_eq!(spoiled_card(&error), (!may_pass).then_some(0), "{error}");
            assert_eq!(failure.code == ErrorCode::OutOfMemory, is_memory, "{error}");
        }
    }

    #[test]
    fn an_old_driver_is_named_by_what_it_knows() {
        let state = DriverState::DriverTooOld { version: 11_080 };
        let failure = CudaError::Unavailable { index: 0, state }.explain();
        assert_eq!(failure.message.en, "the NVIDIA driver is too old (CUDA 11.8): 525 or newer is needed");
    }
}
