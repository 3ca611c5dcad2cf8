//! What a person should know before they rely on a plan: wishes that could not be met, and what on this machine stands in the way.
use super::choose::ContextWhy;
use super::place::{self, Context};
use super::words::{about, grouped, size};
use super::{Draft, Engine, TIGHT_BYTES};
use crate::wire::{DiskKind, FileUse, GpuProbe, Hardware, Text};

/// Other programs' memory that is worth a word: a few of them closed give it back.
const MUCH_BYTES: u64 = 1 << 30;
/// The same on a card.
const MUCH_VRAM_BYTES: u64 = 256 << 20;
/// What a hard disk reads in one run, bytes per second. Source: 100 to 200 MB/s for disks of 1 to 8 TB.
const HARD_DISK_BYTES_PER_S: u64 = 120_000_000;
/// A load that takes longer is worth a word, seconds.
const LONG_LOAD_S: u64 = 30;

impl Draft<'_> {
    /// In plain words, what matters most first.
    pub(super) fn warnings(&self) -> Vec<Text> {
        [
            self.unmet_context(),
            self.unmet_kv_type(),
            self.unmet_layers(),
            self.unmet_threads(),
            self.unmet_copy(),
            self.read_from_disk(),
            self.others_in_memory(),
            self.swapping(),
            self.hard_disk(),
            self.others_on_card(),
            self.full_card(),
            self.foreign_types(),
            self.windows_margin(),
            self.one_module(),
            self.slow_cpu(),
            self.failing_driver(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn hardware(&self) -> &Hardware {
        self.planner.hardware
    }

    fn unmet_context(&self) -> Option<Text> {
        let got = self.layout().context.length;
        let wish = self.planner.wishes.context_length.filter(|wish| *wish != got)?;
        let is_beyond_model = wish > self.sizes().max_context && got == self.sizes().max_context;
        let (wish, got) = (grouped(wish), grouped(got));
        if is_beyond_model {
            return Some(Text::new(
                format!("The model itself takes no more than {got} tokens, not {wish}."),
                format!("该模型本身最多支持 {got} 个词元，而非 {wish} 个。"),
            ));
        }
        Some(Text::new(
            format!("A context of {wish} tokens does not work here; {got} does."),
            format!("{wish} 个词元的上下文在这里不可行，改为 {got} 个。"),
        ))
    }

    fn unmet_kv_type(&self) -> Option<Text> {
        let got = self.layout().context.kv_types.to_string();
        let wish = self.planner.wishes.kv_type.as_ref().filter(|wish| **wish != got)?;
        Some(Text::new(
            format!("This model's cache cannot be stored as {wish}; it is stored as {got}."),
            format!("该模型的缓存不能使用 {wish} 类型，改用 {got}。"),
        ))
    }

    fn unmet_layers(&self) -> Option<Text> {
        let wish = self.planner.wishes.n_gpu_layers.filter(|wish| *wish > 0)?;
        let Some(split) = self.card_split() else {
            return Some(Text::new(
                "No layers can go on a card here; all stay in memory.",
                "这里没有层可以放到显卡上，全部留在内存。",
            ));
        };
        let sizes = self.sizes();
        let got = split.n_gpu_layers(sizes);
        if got > wish.max(sizes.n_layers_ahead + 1) {
            return Some(Text::new(
                format!("With {wish} layers on the card memory is short; {got} work."),
                format!("显卡只放 {wish} 层时内存不足，改为 {got} 层。"),
            ));
        }
        (got < wish.min(sizes.n_layers() + sizes.n_layers_ahead + 1)).then(|| {
            Text::new(
                format!("{wish} layers do not fit on the card; {got} do."),
                format!("显卡放不下 {wish} 层，改为 {got} 层。"),
            )
        })
    }

    fn unmet_threads(&self) -> Option<Text> {
        let wish = self.planner.wishes.n_threads.filter(|wish| *wish != self.threads.n)?;
        let got = self.threads.n;
        Some(Text::new(
            format!("{wish} threads are not possible here; {got} are used."),
            format!("这里无法使用 {wish} 个线程，改为 {got} 个。"),
        ))
    }

    fn unmet_copy(&self) -> Option<Text> {
        let wished = self.planner.wishes.file_use == Some(FileUse::Copied);
        (wished && self.file_use() != FileUse::Copied).then(|| {
            Text::new(
                "There is too little memory for a copy of the file; it is mapped.",
                "内存不足以复制整个文件，改为映射。",
            )
        })
    }

    fn read_from_disk(&self) -> Option<Text> {
        let missing = self.layout().ram.missing_bytes();
        (missing > 0).then(|| {
            let missing = size(missing);
            Text::new(
                format!("{missing} of the model finds no room in memory and is read from disk again and again."),
                format!("模型有 {missing} 放不进内存，需要反复从磁盘读取。"),
            )
        })
    }

    /// Only where memory is short, and somebody else has some.
    fn others_in_memory(&self) -> Option<Text> {
        let hardware = self.hardware();
        let others = hardware.ram_total_bytes.saturating_sub(hardware.ram_available_bytes);
        let is_short = self.layout().ram.spare_bytes() < TIGHT_BYTES;
        // A shorter context has been chosen for want of room.
        let is_cut = matches!(self.chosen.context_why, ContextWhy::Room);
        ((is_short || is_cut) && others >= MUCH_BYTES).then(|| {
            let others = size(others);
            Text::new(
                format!("Other programs hold {others} of memory; what they give back, the model can use."),
                format!("其他程序占用了 {others} 内存；关闭一部分，模型就能用上。"),
            )
        })
    }

    fn swapping(&self) -> Option<Text> {
        let hardware = self.hardware();
        let used = hardware.swap_used_bytes;
        let is_short = self.layout().ram.spare_bytes() < TIGHT_BYTES;
        if used >= MUCH_BYTES {
            let used = size(used);
            return Some(Text::new(
                format!("The system has pushed {used} of other programs out to disk already; they will react slowly."),
                format!("系统已把其他程序的 {used} 换出到磁盘，它们的反应会变慢。"),
            ));
        }
        (is_short && hardware.swap_total_bytes > 0).then(|| {
            Text::new(
                "The system may push other programs out to disk while the model runs.",
                "模型运行时，系统可能会把其他程序换出到磁盘。",
            )
        })
    }

    fn hard_disk(&self) -> Option<Text> {
        if self.hardware().disk.kind != DiskKind::Rotating {
            return None;
        }
        if self.layout().ram.missing_bytes() > 0 {
            return Some(Text::new(
                "The models folder is on a hard disk, far too slow to read from at every token.",
                "模型文件夹位于机械硬盘，逐词元从中读取会非常慢。",
            ));
        }
        let seconds = self.outline.file_bytes / HARD_DISK_BYTES_PER_S;
        (seconds >= LONG_LOAD_S).then(|| {
            let minutes = seconds.div_ceil(60);
            Text::new(
                format!("The models folder is on a hard disk: loading takes up to {minutes} min."),
                format!("模型文件夹位于机械硬盘：载入最多需要 {minutes} 分钟。"),
            )
        })
    }

    /// What the card could take over if it were empty.
    fn others_on_card(&self) -> Option<Text> {
        let (planner, split) = (self.planner, self.split()?);
        let others = split.gpu.vram_total_bytes.saturating_sub(split.gpu.vram_free_bytes);
        if others < MUCH_VRAM_BYTES {
            return None;
        }
        let mut hardware = planner.hardware.clone();
        for gpu in &mut hardware.gpus {
            gpu.vram_free_bytes = if gpu.index == split.gpu.index { gpu.vram_total_bytes } else { 0 };
        }
        let emptied = super::Planner { hardware: &hardware, ..planner.clone() };
        let Context { length, kv_types } = self.layout().context;
        let layout = emptied.at(Context { length, kv_types });
        let whole = |split: &place::Split| split.n_whole_layers(planner.sizes);
        let more = layout.split.as_ref().map_or(0, whole).saturating_sub(whole(split));
        let gain = layout.prediction.generation.likely - self.layout().prediction.generation.likely;
        (more > 0).then(|| {
            let others = size(others);
            let (gain_en, gain_zh) = about(gain.max(0.0));
            let (layers_en, are) = if more == 1 { ("layer", "fits") } else { ("layers", "fit") };
            Text::new(
                format!(
                    "Other programs hold {others} of the card. Without them {more} more {layers_en} {are}: about {gain_en} more."
                ),
                format!("其他程序占用了 {others} 显存。腾出后可多放 {more} 层，每秒约快 {gain_zh}。"),
            )
        })
    }

    /// A card that computes, and on which others leave too little.
    fn full_card(&self) -> Option<Text> {
        let is_wanted = self.planner.engine == Engine::WithGpu && self.planner.wishes.n_gpu_layers != Some(0);
        let gpu = place::card(self.hardware()).filter(|_| is_wanted && self.split().is_none())?;
        let others = gpu.vram_total_bytes.saturating_sub(gpu.vram_free_bytes);
        (others >= MUCH_VRAM_BYTES).then(|| {
            let (others, free) = (size(others), size(gpu.vram_free_bytes));
            Text::new(
                format!("Other programs hold {others} of the card and leave {free}: too little to use it."),
                format!("其他程序占用了 {others} 显存，只剩 {free}，不足以使用显卡。"),
            )
        })
    }

    /// Weights that a card that computes has no program for.
    fn foreign_types(&self) -> Option<Text> {
        let types = &self.sizes().foreign_types;
        let is_wanted = self.planner.engine == Engine::WithGpu && self.planner.wishes.n_gpu_layers != Some(0);
        (is_wanted && !types.is_empty()).then(|| {
            let types = types.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Text::new(
                format!("Weights in {types} stay with the processor: the card has no program for them."),
                format!("{types} 类型的权重留给处理器：显卡没有对应的计算程序。"),
            )
        })
    }

    fn windows_margin(&self) -> Option<Text> {
        let hardware = self.hardware();
        let split = self.split().filter(|_| place::is_windows(hardware))?;
        let margin = size(place::margin(&split.gpu, hardware));
        Some(Text::new(
            format!("{margin} of the card stay free: on Windows a full card slows down without a word."),
            format!("显卡会留出 {margin}：在 Windows 上显存用满后会无提示地变慢。"),
        ))
    }

    fn one_module(&self) -> Option<Text> {
        let modules = self.hardware().ram_modules?;
        (modules.n == 1).then(|| {
            Text::new(
                "There is only one memory module; a second one about doubles the speed of what lies in memory.",
                "只装有一条内存；再加一条，内存中部分的速度约可翻倍。",
            )
        })
    }

    fn slow_cpu(&self) -> Option<Text> {
        (self.hardware().cpu.isa == "scalar").then(|| {
            Text::new(
                "This processor lacks AVX2: everything takes many times longer.",
                "此处理器不支持 AVX2，速度会慢很多倍。",
            )
        })
    }

    fn failing_driver(&self) -> Option<Text> {
        let GpuProbe::Failed { reason } = &self.hardware().gpu_probe else { return None };
        Some(Text::new(
            format!("The graphics driver answers with an error: {reason}"),
            format!("显卡驱动返回错误：{reason}"),
        ))
    }
}
