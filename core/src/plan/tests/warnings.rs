//! Each warning at the threshold from which it is said, in both languages.
use super::*;
use crate::plan::place;
use crate::wire::{DiskKind, FileUse, GpuProbe, RamModules};

const MIB: u64 = 1 << 20;

fn llama() -> Outline {
    Outline::of(&facts("Llama-3.1-8B", LLAMA_8B, "Q4_K_M")).unwrap()
}

fn planned(outline: &Outline, hardware: &Hardware, wishes: &Wishes) -> Plan {
    plan_outline(outline, hardware, wishes, Engine::WithGpu).unwrap()
}

/// Whether a plan says this, in English and in Chinese; never in one of them alone.
fn says(plan: &Plan, en: &str, zh: &str) -> bool {
    let found = plan.warnings.iter().find(|text| text.en.contains(en));
    let found_zh = plan.warnings.iter().find(|text| text.zh.contains(zh));
    assert_eq!(found, found_zh, "{:?}", plan.warnings);
    found.is_some()
}

/// A machine on which exactly so much is left beside a model with a fixed context and cache.
fn with_spare(outline: &Outline, spare_bytes: i64, wishes: &Wishes) -> Hardware {
    let mut hardware = machine(None, 32.0, 30.0);
    let roomy = planned(outline, &hardware, wishes);
    let taken: u64 = roomy.ram_bar.parts.iter().map(|part| part.bytes).sum();
    hardware.ram_available_bytes = taken.checked_add_signed(spare_bytes).unwrap();
    hardware
}

fn fixed() -> Wishes {
    Wishes { context_length: Some(2048), kv_type: Some("q8_0".into()), ..Wishes::default() }
}

#[test]
fn swap_in_use_is_told_from_one_gib() {
    let outline = llama();
    for (used, expected) in [(0, false), (GIB - 1, false), (GIB, true)] {
        let hardware = Hardware { swap_total_bytes: 8 * GIB, swap_used_bytes: used, ..machine(None, 32.0, 28.0) };
        let plan = planned(&outline, &hardware, &Wishes::default());
        assert_eq!(says(&plan, "has pushed 1.0\u{a0}GB of other programs", "换出到磁盘"), expected, "{used}");
    }
}

#[test]
fn swapping_is_foretold_where_under_half_a_gib_is_left() {
    let (outline, wishes) = (llama(), fixed());
    for (spare, swap, expected) in [(512 * MIB, GIB, false), (512 * MIB - 1, GIB, true), (0, 0, false)] {
        let hardware =
            Hardware { swap_total_bytes: swap, ..with_spare(&outline, i64::try_from(spare).unwrap(), &wishes) };
        let plan = planned(&outline, &hardware, &wishes);
        assert_eq!(says(&plan, "may push other programs out", "可能会把其他程序换出"), expected, "{spare}");
    }
}

#[test]
fn other_programs_memory_is_told_where_it_is_short_and_they_hold_one_gib() {
    let (outline, wishes) = (llama(), fixed());
    for (spare, others, expected) in
        [(0, GIB, true), (0, GIB - 1, false), (512 * MIB, GIB, false), (512 * MIB - 1, GIB, true)]
    {
        let mut hardware = with_spare(&outline, i64::try_from(spare).unwrap(), &wishes);
        hardware.ram_total_bytes = hardware.ram_available_bytes + others;
        let plan = planned(&outline, &hardware, &wishes);
        assert_eq!(
            says(&plan, "Other programs hold 1.0\u{a0}GB of memory", "其他程序占用了"),
            expected,
            "{spare}, {others}"
        );
    }
}

#[test]
fn one_byte_that_finds_no_room_is_read_from_disk() {
    let (outline, wishes) = (llama(), fixed());
    for (spare, expected) in [(0, false), (-1, true)] {
        let plan = planned(&outline, &with_spare(&outline, spare, &wishes), &wishes);
        assert_eq!(says(&plan, "is read from disk again and again", "反复从磁盘读取"), expected, "{spare}");
        assert_eq!(plan.file_use == FileUse::AsNeeded, expected);
    }
}

#[test]
fn a_hard_disk_is_told_when_a_load_takes_half_a_minute() {
    let outline = llama();
    let mut hardware = machine(None, 32.0, 28.0);
    for (kind, bytes, expected) in [
        (DiskKind::Rotating, 30 * 120_000_000, true),
        (DiskKind::Rotating, 30 * 120_000_000 - 1, false),
        (DiskKind::Solid, 30 * 120_000_000, false),
        (DiskKind::Unknown, 30 * 120_000_000, false),
    ] {
        hardware.disk.kind = kind;
        let outline = Outline { file_bytes: bytes, ..outline.clone() };
        let plan = planned(&outline, &hardware, &Wishes::default());
        assert_eq!(
            says(&plan, "hard disk: loading takes up to 1 min", "机械硬盘：载入最多需要 1 分钟"),
            expected,
            "{bytes}"
        );
    }
}

#[test]
fn a_hard_disk_that_would_be_read_at_every_token_is_told() {
    let (outline, wishes) = (llama(), fixed());
    for (spare, expected) in [(0, false), (-1, true)] {
        let mut hardware = with_spare(&outline, spare, &wishes);
        hardware.disk.kind = DiskKind::Rotating;
        let plan = planned(&outline, &hardware, &wishes);
        assert_eq!(says(&plan, "far too slow to read from at every token", "逐词元从中读取会非常慢"), expected);
    }
}

#[test]
fn other_programs_on_the_card_are_told_from_a_quarter_of_a_gib() {
    let outline = llama();
    for (others, expected) in [(256 * MIB - 1, false), (256 * MIB, true)] {
        let mut hardware = machine(Some(6.0), 32.0, 28.0);
        hardware.gpus[0].vram_free_bytes = 6 * GIB - others;
        let plan = planned(&outline, &hardware, &Wishes::default());
        assert_eq!(says(&plan, "of the card. Without them", "显存。腾出后可多放"), expected, "{others}");
    }
    let mut whole = machine(Some(24.0), 32.0, 28.0);
    whole.gpus[0].vram_free_bytes -= GIB;
    assert!(!says(&planned(&outline, &whole, &Wishes::default()), "of the card. Without them", "显存。腾出后可多放"));
}

#[test]
fn windows_keeps_a_gib_or_a_twentieth_of_the_card_and_says_so() {
    let outline = llama();
    for (os, vram, expected, margin) in [
        ("Windows 11", 6.0, true, GIB),
        ("Windows 10", 32.0, true, 32 * GIB / 20),
        ("Linux", 6.0, false, 600 * MIB),
        ("Linux", 32.0, false, 32 * GIB / 20),
    ] {
        let hardware = Hardware { os: os.into(), ..machine(Some(vram), 32.0, 28.0) };
        assert_eq!(place::margin(&hardware.gpus[0], &hardware), margin, "{os}");
        let plan = planned(&outline, &hardware, &Wishes::default());
        assert_eq!(says(&plan, "on Windows a full card slows down", "在 Windows 上显存用满后"), expected, "{os}");
        let free = hardware.gpus[0].vram_free_bytes;
        let taken: u64 = plan.gpu_bar.iter().flat_map(|bar| &bar.parts).map(|part| part.bytes).sum();
        assert!(taken + margin <= free, "{os}: the margin is kept");
    }
    let no_card = Hardware { os: "Windows 11".into(), ..machine(None, 32.0, 28.0) };
    assert!(!says(&planned(&outline, &no_card, &Wishes::default()), "on Windows", "Windows"));
}

#[test]
fn one_memory_module_is_told_and_two_are_not() {
    let outline = llama();
    for (modules, expected) in [(None, false), (Some(1), true), (Some(2), false), (Some(4), false)] {
        let ram_modules = modules.map(|n| RamModules { n, mega_transfers_per_s: None });
        let plan = planned(&outline, &Hardware { ram_modules, ..machine(None, 32.0, 28.0) }, &Wishes::default());
        assert_eq!(says(&plan, "only one memory module", "只装有一条内存"), expected);
    }
}

#[test]
fn a_processor_without_avx2_and_a_driver_that_fails_are_told() {
    let outline = llama();
    let mut hardware = machine(None, 32.0, 28.0);
    assert!(planned(&outline, &hardware, &Wishes::default()).warnings.is_empty());
    hardware.cpu.isa = "scalar".into();
    hardware.gpu_probe = GpuProbe::Failed { reason: "code 9".into() };
    let plan = planned(&outline, &hardware, &Wishes::default());
    assert!(says(&plan, "lacks AVX2", "不支持 AVX2"));
    assert!(says(&plan, "answers with an error: code 9", "返回错误：code 9"));
}

#[test]
fn a_copy_of_the_file_is_made_only_where_half_a_gib_is_left() {
    let outline = llama();
    let wishes = Wishes { file_use: Some(FileUse::Copied), ..fixed() };
    for (spare, expected) in [(512 * MIB, FileUse::Copied), (512 * MIB - 1, FileUse::ReadAhead)] {
        let plan = planned(&outline, &with_spare(&outline, i64::try_from(spare).unwrap(), &wishes), &wishes);
        assert_eq!(plan.file_use, expected);
        let is_unmet = expected != FileUse::Copied;
        assert_eq!(says(&plan, "too little memory for a copy", "不足以复制整个文件"), is_unmet);
    }
}

#[test]
fn wishes_that_are_not_met_are_told_in_both_languages() {
    let outline = llama();
    let hardware = machine(Some(4.0), 14.5, 14.0);
    let wish = Wishes::default;
    for (wishes, en, zh) in [
        (Wishes { context_length: Some(131_073), ..wish() }, "takes no more than 131,072 tokens", "最多支持 131,072"),
        (Wishes { n_gpu_layers: Some(33), ..wish() }, "33 layers do not fit on the card", "显卡放不下 33 层"),
        (Wishes { n_threads: Some(13), ..wish() }, "13 threads are not possible here; 12", "无法使用 13 个线程"),
        (Wishes { kv_type: Some("q3_0".into()), ..wish() }, "cannot be stored as q3_0", "不能使用 q3_0"),
    ] {
        assert!(says(&planned(&outline, &hardware, &wishes), en, zh), "{en}");
    }
    for wishes in [
        Wishes { n_threads: Some(12), ..wish() },
        Wishes { kv_type: Some("q8_0".into()), ..wish() },
        Wishes { n_gpu_layers: Some(2), ..wish() },
    ] {
        let plan = planned(&outline, &hardware, &wishes);
        assert!(!plan.warnings.iter().any(|text| text.en.contains("not")), "{:?}", plan.warnings);
    }
    let small = machine(None, 8.0, 6.0);
    let plan = planned(&outline, &small, &Wishes { context_length: Some(131_072), ..wish() });
    assert!(says(&plan, "does not work here;", "在这里不可行"));
}
