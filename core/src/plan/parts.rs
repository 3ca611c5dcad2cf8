//! The parts of a plan: a line for each, with its reason, the bars of both memories, where each layer lives, and what the time
//! of a token goes to.
use super::Draft;
use super::place::Split;
use super::sizes::Layer;
use super::words::{size, tokens_short};
use crate::wire::{BarPart, CostKind, MemoryBar, Part, Place, PlanLayer, PlanLine, Text, TokenCost};

impl Draft<'_> {
    /// As the bars are now: without the card until that computes.
    pub(super) fn lines(&self) -> Vec<PlanLine> {
        let mut lines = Vec::new();
        if let Some(split) = self.split() {
            self.push_gpu_lines(split, &mut lines);
        }
        self.push_ram_lines(&mut lines);
        lines.push(self.file_line());
        lines.retain(|line| line.bytes > 0);
        lines
    }

    fn push_gpu_lines(&self, split: &Split, lines: &mut Vec<PlanLine>) {
        let place = Place::Gpu { index: split.gpu.index };
        let mut push = |part, what, bytes, why| lines.push(PlanLine { part, what, bytes, place, why });
        let left = split.gpu.vram_free_bytes.saturating_sub(split.bytes());
        let fits = || {
            let left = size(left);
            Text::new(format!("What fits and still leaves {left} free."), format!("放下这些后仍留 {left}。"))
        };
        let n_layers = self.sizes().n_layers();
        let is_whole = split.n_layers == n_layers;
        let every_token = || Text::new("Every token needs them.", "每个词元都要用。");
        let (what_en, what_zh) = self.dense_words();
        push(
            Part::Attention,
            of_layers(what_en, what_zh, split.n_layers, n_layers),
            split.dense_bytes,
            if is_whole { every_token() } else { fits() },
        );
        push(
            Part::Experts,
            of_layers("Experts", "专家", split.n_expert_layers, n_layers),
            split.experts_bytes,
            if split.n_expert_layers == n_layers { every_token() } else { fits() },
        );
        push(Part::Head, Text::new("Output head", "输出层"), split.head_bytes, every_token_needs_it());
        push(
            Part::Kv,
            self.kv_words(),
            split.kv_bytes,
            Text::new("It lies where its layers are.", "与所属的层放在一起。"),
        );
        push(
            Part::Buffers,
            Text::new("Buffers and driver", "缓冲区与驱动"),
            split.buffers_bytes,
            Text::new(
                format!("For {} tokens at a time.", split.n_batch),
                format!("一次处理 {} 个词元所需。", split.n_batch),
            ),
        );
    }

    /// What the split leaves in main memory; all of it without a card.
    fn push_ram_lines(&self, lines: &mut Vec<PlanLine>) {
        let sizes = self.sizes();
        let n_layers = sizes.n_layers();
        let ram = &self.layout().ram;
        let (n_dense, n_experts) = self.split().map_or((0, 0), |split| (split.n_layers, split.n_expert_layers));
        let mut push = |part, what, bytes: u64, why| lines.push(PlanLine { part, what, bytes, place: Place::Ram, why });
        let (what_en, what_zh) = self.dense_words();
        push(
            Part::Attention,
            of_layers(what_en, what_zh, n_layers - n_dense, n_layers),
            ram.dense_bytes,
            self.why_in_ram(),
        );
        push(
            Part::Experts,
            of_layers("Experts", "专家", n_layers - n_experts, n_layers),
            ram.experts_bytes,
            Text::new(
                format!("{} of {} are read per token.", sizes.n_experts_used, sizes.n_experts),
                format!("每个词元只读 {} 个中的 {} 个。", sizes.n_experts, sizes.n_experts_used),
            ),
        );
        push(Part::Kv, self.kv_words(), ram.kv_bytes, self.why_kv());
        push(
            Part::Embeddings,
            Text::new("Token embeddings", "词嵌入"),
            ram.embeddings_bytes,
            if sizes.head_is_tied && self.split().is_none() {
                Text::new("They serve as the output head too.", "同时用作输出层。")
            } else {
                Text::new("One row is read per token.", "每个词元只读一行。")
            },
        );
        push(Part::Head, self.head_words(), ram.head_bytes, every_token_needs_it());
        push(
            Part::Buffers,
            Text::new("Buffers", "缓冲区"),
            ram.buffers_bytes,
            Text::new(
                format!("For {} tokens at a time.", self.n_batch()),
                format!("一次处理 {} 个词元所需。", self.n_batch()),
            ),
        );
    }

    fn file_line(&self) -> PlanLine {
        let free = size(self.planner.hardware.disk.free_bytes);
        PlanLine {
            part: Part::File,
            what: Text::new("Model file", "模型文件"),
            bytes: self.outline.file_bytes,
            place: Place::Disk,
            why: Text::new(
                format!("{free} are free on the disk of the models folder."),
                format!("模型文件夹所在磁盘剩余 {free}。"),
            ),
        }
    }

    fn dense_words(&self) -> (&'static str, &'static str) {
        if self.sizes().has_experts() {
            ("Attention, router and shared weights", "注意力、路由与共享权重")
        } else {
            ("Attention and feed-forward", "注意力与前馈")
        }
    }

    /// Without a head of its own, what is left of it is a norm.
    fn head_words(&self) -> Text {
        if self.sizes().head_is_tied {
            Text::new("Output norm", "输出归一化")
        } else {
            Text::new("Output head", "输出层")
        }
    }

    fn why_in_ram(&self) -> Text {
        let has_card = !self.planner.hardware.gpus.is_empty();
        match self.split() {
            Some(_) if self.sizes().layers.iter().any(|layer| layer.is_dense_foreign) => {
                Text::new("The card has no program for all of them.", "显卡没有针对其中部分权重的计算程序。")
            }
            Some(_) => Text::new("No room left on the card.", "显卡上已放不下。"),
            None if self.with_card.is_some() && self.card_split().is_some() => {
                Text::new("The processor computes alone.", "仅由处理器计算。")
            }
            None if has_card && self.sizes().is_head_foreign => {
                Text::new("The card has no program for these weights.", "显卡没有针对这种权重的计算程序。")
            }
            None if has_card && self.planner.wishes.n_gpu_layers == Some(0) => {
                Text::new("As wished, nothing goes on the card.", "按你的设置，不使用显卡。")
            }
            None if has_card => Text::new("The card has too little free memory.", "显卡的空闲显存太少。"),
            None => Text::new("There is no NVIDIA card here.", "本机没有 NVIDIA 显卡。"),
        }
    }

    fn kv_words(&self) -> Text {
        let context = tokens_short(self.layout().context.length);
        Text::new(format!("KV cache, {context}"), format!("KV 缓存，{context}"))
    }

    fn why_kv(&self) -> Text {
        let (n_cached, n_layers) = (self.sizes().n_layers_with_cache(), self.sizes().layers.len());
        if n_cached < n_layers {
            Text::new(
                format!("Only {n_cached} of {n_layers} layers keep one."),
                format!("{n_layers} 层中只有 {n_cached} 层需要。"),
            )
        } else {
            let per_token = size(self.kv_bytes() / u64::from(self.layout().context.length.max(1)));
            Text::new(format!("{per_token} per token of context."), format!("上下文中每个词元占 {per_token}。"))
        }
    }

    /// Where each layer lives now.
    pub(super) fn layers(&self) -> Vec<PlanLayer> {
        let (layers, split) = (&self.sizes().layers, self.split());
        let place = |is_on_card: bool| match split {
            Some(split) if is_on_card => Place::Gpu { index: split.gpu.index },
            _ => Place::Ram,
        };
        let (n_dense, n_experts) = split.map_or((0, 0), |split| (split.n_layers, split.n_expert_layers));
        let with_place = |(i, layer): (usize, &Layer)| {
            let from_last = (layers.len() - i) as u32;
            let is_there = from_last <= n_dense;
            PlanLayer {
                keeps: layer.kv.keeps(),
                mixer: place(is_there),
                cache: place(is_there),
                experts: (layer.experts_bytes > 0).then(|| place(from_last <= n_experts)),
            }
        };
        layers.iter().enumerate().map(with_place).collect()
    }

    /// What the time of a token goes to, as it is now: without the card until that computes.
    pub(super) fn token_costs(&self) -> Vec<TokenCost> {
        let seconds = &self.layout().prediction.seconds;
        let split = self.split();
        let only_experts = split.is_some_and(|split| split.n_layers == self.sizes().n_layers());
        let n = seconds.n_hand_overs;
        let weights = match only_experts {
            true => Text::new("Reading experts from memory", "从内存读取专家"),
            false => Text::new("Reading weights from memory", "从内存读取权重"),
        };
        let costs = [
            (CostKind::Gpu, Text::new("Graphics card", "显卡"), seconds.card),
            (CostKind::Weights, weights, seconds.weights),
            (CostKind::Cache, Text::new("Reading the KV cache", "读取 KV 缓存"), seconds.cache),
            (CostKind::Layers, Text::new("Norms, and threads that meet", "归一化与线程同步"), seconds.layers),
            (
                CostKind::HandOver,
                match n {
                    1 => Text::new("Handing over, once", "设备间交接 1 次"),
                    _ => Text::new(format!("Handing over, {n} times"), format!("设备间交接 {n} 次")),
                },
                seconds.hand_overs,
            ),
            (CostKind::Disk, Text::new("Reading from disk", "从磁盘读取"), seconds.disk),
        ];
        let cost = |(kind, what, seconds)| TokenCost { kind, what, ms: seconds * 1e3 };
        costs.into_iter().filter(|(_, _, seconds)| *seconds > 0.0).map(cost).collect()
    }

    /// What lies in main memory now: the whole model, as long as the processor computes alone.
    pub(super) fn ram_bar(&self) -> MemoryBar {
        let (ram, hardware) = (&self.layout().ram, self.planner.hardware);
        MemoryBar {
            capacity_bytes: hardware.ram_total_bytes,
            others_bytes: hardware.ram_total_bytes.saturating_sub(hardware.ram_available_bytes),
            parts: parts([
                (Part::Attention, ram.dense_bytes),
                (Part::Experts, ram.experts_bytes),
                (Part::Kv, ram.kv_bytes),
                (Part::Embeddings, ram.embeddings_bytes),
                (Part::Head, ram.head_bytes),
                (Part::Buffers, ram.buffers_bytes),
            ]),
            shortfall_bytes: ram.missing_bytes(),
        }
    }

    /// The volume of the models folder once the whole file is there.
    pub(super) fn disk_bar(&self) -> MemoryBar {
        let (disk, file_bytes) = (&self.planner.hardware.disk, self.outline.file_bytes);
        MemoryBar {
            capacity_bytes: disk.total_bytes,
            others_bytes: disk.total_bytes.saturating_sub(disk.free_bytes),
            parts: parts([(Part::File, file_bytes)]),
            // A system that does not say how large a volume is does not say that it is full.
            shortfall_bytes: if disk.total_bytes > 0 { file_bytes.saturating_sub(disk.free_bytes) } else { 0 },
        }
    }

    /// Tokens of a prompt that are read at once.
    pub(super) fn n_batch(&self) -> u32 {
        self.split().map_or(self.planner.n_batch, |split| split.n_batch)
    }
}

/// What lies on the card when it is in use.
pub(super) fn gpu_bar(split: &Split) -> MemoryBar {
    let gpu = &split.gpu;
    MemoryBar {
        capacity_bytes: gpu.vram_total_bytes,
        others_bytes: gpu.vram_total_bytes.saturating_sub(gpu.vram_free_bytes),
        parts: parts([
            (Part::Attention, split.dense_bytes),
            (Part::Head, split.head_bytes),
            (Part::Experts, split.experts_bytes),
            (Part::Kv, split.kv_bytes),
            (Part::Buffers, split.buffers_bytes),
        ]),
        shortfall_bytes: 0,
    }
}

fn parts<const N: usize>(parts: [(Part, u64); N]) -> Vec<BarPart> {
    parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(part, bytes)| BarPart { part, bytes }).collect()
}

fn every_token_needs_it() -> Text {
    Text::new("Every token needs it.", "每个词元都要用。")
}

/// `Experts, 5 of 40 layers`; without the count when it is all of them.
fn of_layers(en: &str, zh: &str, n: u32, n_layers: u32) -> Text {
    if n == n_layers {
        Text::new(en, zh)
    } else {
        Text::new(format!("{en}, {n} of {n_layers} layers"), format!("{zh}，{n_layers} 层中的 {n} 层"))
    }
}
