//! The report as a table in Markdown, with the columns of llama-bench and a few more, and what there is to say below it.
use std::fmt::Write as _;

use tandem_core::wire::Text;

use super::report::{Kernels, Operation, Report, Test, deviation};
use crate::terminal::Terminal;

/// Operations that take less than this share of a run are left out.
const MIN_SHARE: f64 = 0.002;

pub(super) fn of(report: &Report, terminal: &Terminal) -> String {
    let heads = [
        Text::new("model", "模型"),
        Text::new("size", "大小"),
        Text::new("params", "参数"),
        Text::new("threads", "线程"),
        Text::new("isa", "指令集"),
        Text::new("test", "测试"),
        Text::new("t/s", "词元/秒"),
        Text::new("MB/token", "MB/词元"),
        Text::new("GB/s", "GB/s"),
        Text::new("of read", "占读取"),
    ];
    let heads = heads.map(|head| terminal.say(&head).to_owned());
    let mut text = table(&heads, 1, report.tests.iter().map(|test| cells(report, test)));
    let _ = writeln!(text, "\n{}", terminal.say(&below(report)));
    for test in report.tests.iter().filter(|test| !test.profile.is_empty()) {
        let _ = write!(text, "\n{}", profile(test, terminal));
    }
    text
}

fn cells(report: &Report, test: &Test) -> Vec<String> {
    let reads = |cell: &dyn Fn(&super::report::Reads) -> String| test.reads.as_ref().map(cell).unwrap_or_default();
    vec![
        format!("{} {}", report.architecture, report.quant),
        format!("{:.2} MiB", report.size_bytes as f64 / f64::from(1 << 20)),
        format!("{:.2} M", report.n_params as f64 / 1e6),
        report.n_threads.to_string(),
        report.isa.clone(),
        test.name.clone(),
        format!("{:.2} ± {:.2}", test.tokens_per_s, deviation(&test.samples_tokens_per_s)),
        reads(&|reads| megabytes(reads.weights_bytes_per_token + reads.cache_bytes_per_token)),
        reads(&|reads| format!("{:.1}", reads.bytes_per_s / 1e9)),
        reads(&|reads| format!("{:.0} %", reads.share * 100.0)),
    ]
}

/// What concerns all tests.
fn below(report: &Report) -> Text {
    let Report { n_batch, cache_type_k, cache_type_v, load_ms, warm_load_ms, cancel_ms, memory, .. } = report;
    let read = report.read.bytes_per_s / 1e9;
    let (stated, kv) = (megabytes(memory.stated()), megabytes(memory.kv));
    let (file, buffers) = (megabytes(memory.file), megabytes(memory.buffers + memory.checkpoints));
    let peak = memory.peak.map_or("?".to_owned(), megabytes);
    let named = |kernels: &Kernels| format!("{} {} / {}", kernels.weights, kernels.generation, kernels.prompt);
    let kernels = report.kernels.iter().map(named).collect::<Vec<_>>().join(", ");
    let ratio = memory.peak.map_or("?".to_owned(), |peak| format!("{:.2}", peak as f64 / memory.stated() as f64));
    Text::new(
        format!(
            "read     {read:.1} GB/s, the same threads reading the same file from memory between the tests\n\
             memory   {peak} MB at most, {ratio} x {stated} MB (file {file}, cache {kv}, buffers {buffers})\n\
             load     {load_ms:.0} ms, again {warm_load_ms:.0} ms\n\
             stop     {cancel_ms:.1} ms at most until it is noticed\n\
             cache    {cache_type_k} keys, {cache_type_v} values; batches of {n_batch}\n\
             kernels  {kernels} (generation / prompt)"
        ),
        format!(
            "读取   {read:.1} GB/s：同样的线程在各测试之间从内存读同一文件\n\
             内存   最多 {peak} MB，是 {stated} MB 的 {ratio} 倍（文件 {file}，缓存 {kv}，缓冲区 {buffers}）\n\
             载入   {load_ms:.0} 毫秒，再次 {warm_load_ms:.0} 毫秒\n\
             停止   最多 {cancel_ms:.1} 毫秒后生效\n\
             缓存   键 {cache_type_k}，值 {cache_type_v}；每批 {n_batch} 个词元\n\
             内核   {kernels}（生成 / 提示）"
        ),
    )
}

fn profile(test: &Test, terminal: &Terminal) -> String {
    let n_tokens = (test.n_prompt + test.n_generate) as f64;
    let heads = [
        Text::new(format!("{}: part", test.name), format!("{}：部分", test.name)),
        Text::new("operation", "运算"),
        Text::new("weights", "权重"),
        Text::new("calls", "次数"),
        Text::new("µs/token", "µs/词元"),
        Text::new("share", "占比"),
        Text::new("GB/s", "GB/s"),
    ];
    let heads = heads.map(|head| terminal.say(&head).to_owned());
    let cells = |row: &Operation| {
        let rate = row.weights_bytes as f64 / 1e6 / row.time_ms.max(1e-9);
        vec![
            row.stage.to_owned(),
            row.operation.to_owned(),
            row.weights.join(" + "),
            row.n_calls.to_string(),
            format!("{:.1}", row.time_ms * 1e3 / n_tokens),
            format!("{:.1} %", row.share * 100.0),
            if row.weights_bytes > 0 { format!("{rate:.1}") } else { String::new() },
        ]
    };
    table(&heads, 3, test.profile.iter().filter(|row| row.share >= MIN_SHARE).map(cells))
}

/// Markdown; the first `n_left` columns begin at the left, the others end at the right.
fn table(heads: &[String], n_left: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = 0..heads.len();
    let longest = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = columns.clone().map(|column| longest(column).max(width(&heads[column]))).collect();
    let line = |cells: &[String]| {
        let cell = |column: usize| {
            let (cell, room) = (&cells[column], " ".repeat(widths[column] - width(&cells[column])));
            if column < n_left { format!("| {cell}{room} ") } else { format!("| {room}{cell} ") }
        };
        columns.clone().map(cell).collect::<String>() + "|\n"
    };
    let rule = |column: usize| {
        let dashes = "-".repeat(widths[column] + 1);
        if column < n_left { format!("|{dashes}-") } else { format!("|{dashes}:") }
    };
    let rule = columns.clone().map(rule).collect::<String>() + "|\n";
    line(heads) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// Columns that a text takes in a terminal: Chinese characters and punctuation take two.
fn width(text: &str) -> usize {
    text.chars().map(|c| if matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ff00}'..='\u{ff60}') { 2 } else { 1 }).sum()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_characters_take_two_columns() {
        assert_eq!((width("µs/token"), width("词元/秒"), width("tg64：部分")), (8, 7, 10));
    }

    #[test]
    fn tables_are_markdown_with_straight_columns() {
        let heads = ["model", "t/s"].map(str::to_owned);
        let rows = [vec!["a longer name".to_owned(), "7.1".to_owned()], vec!["b".to_owned(), "1234.5".to_owned()]];
        let expected = "\
| model         |    t/s |
|---------------|-------:|
| a longer name |    7.1 |
| b             | 1234.5 |
";
        assert_eq!(table(&heads, 1, rows.into_iter()), expected);
    }
}
