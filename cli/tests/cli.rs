//! The command line as scripts use it: the real program, a data folder of its own, the test hub, a real small model.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tandem_core::error::size;
use tandem_engine::gguf::Writer;
use tandem_tests::hub::{Repo, TestHub, tiny_gguf};
use tandem_tests::models::{gemma, smollm2};
use tandem_tests::nvml::FakeNvml;
use tandem_tests::small_disk::SmallDisk;

const REPO: &str = "tandem-demo/SmolLM2-135M-Instruct-GGUF";

/// The program with a data folder whose name is not plain.
struct Tandem {
    folder: tempfile::TempDir,
    hub_url: String,
}

impl Tandem {
    fn new() -> Self {
        // A port that nothing listens on: no test reaches a real hub.
        Self { folder: tempfile::tempdir().unwrap(), hub_url: "http://127.0.0.1:9".to_owned() }
    }

    fn with_hub(hub: &TestHub) -> Self {
        Self { hub_url: hub.url().to_owned(), ..Self::new() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        command
            .args(["--lang", "en", "--hub-url", &self.hub_url, "--nvml", "/nowhere/libnvidia-ml.so.1", "--data-dir"])
            .arg(self.folder.path().join("数据 é"))
            .args(args)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a run that succeeds.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Exit code and failure of a run that does not.
    fn failure(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(&[args, &["--json"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        let failure = error.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or(json!(error));
        (output.status.code().unwrap(), failure)
    }

    fn with_input(&self, args: &[&str], input: &str) -> Output {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_names_every_command_and_exit_code() {
    let help = Tandem::new().ok(&["--help"]);
    for word in
        ["pull", "list", "add", "verify", "remove", "plan", "run", "bench", "tokenize", "logits", "Exit codes", "130"]
    {
        assert!(help.contains(word), "{word}");
    }
    assert_eq!(Tandem::new().run(&["no-such-command"]).status.code(), Some(2));
}

/// Ids from llama.cpp: `Llama(…, vocab_only=True).tokenize(text, add_bos=False, special=…)` of llama-cpp-python 0.3.36.
#[test]
fn texts_become_the_ids_llama_cpp_gives() {
    let model = text(&smollm2());
    let lines = "{\"text\": \"Hello world\"}\n\n{\"text\": \"你好，世界 🙂\"}\n{\"text\": \"<|im_start|>user\\nHi<|im_end|>\"}\n";
    let chinese = json!({"ids": [18645, 250, 48392, 138, 12831, 7906, 240, 178, 239, 230, 47526]});
    let parsed = json!({"ids": [1, 4093, 198, 26843, 2]});
    let literal = json!({"ids": [44, 108, 306, 79, 3738, 108, 46, 4093, 198, 26843, 44, 108, 306, 79, 486, 108, 46]});
    for (flags, last) in [(&[][..], &parsed), (&["--special"], &parsed), (&["--no-special"], &literal)] {
        let output = Tandem::new().with_input(&[&["tokenize", &model], flags].concat(), lines);
        assert!(output.status.success());
        let answers: Vec<Value> =
            output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(answers, [json!({"ids": [19556, 905]}), chinese.clone(), last.clone()], "{flags:?}");
    }
}

#[test]
fn a_line_that_is_no_json_is_named() {
    let output = Tandem::new().with_input(&["tokenize", &text(&smollm2())], "{\"text\": \"a\"}\nplain text\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

#[test]
fn logits_do_not_depend_on_the_chunks() {
    let tandem = Tandem::new();
    let (model, dir) = (text(&smollm2()), tempfile::tempdir().unwrap());
    let ids: Vec<u32> = (0..40).map(|i| 100 + i * 37).collect();
    let tokens = dir.path().join("ids.json");
    std::fs::write(&tokens, serde_json::to_vec(&ids).unwrap()).unwrap();
    let logits = |name: &str, flags: &[&str]| -> Vec<f32> {
        let out = dir.path().join(name);
        tandem.ok(&[&["logits", &model, "--tokens", &text(&tokens), "--out", &text(&out)], flags].concat());
        let bytes = std::fs::read(out).unwrap();
        bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
    };
    let whole = logits("whole", &[]);
    assert_eq!(whole.len(), ids.len() * 49_152);
    assert!(whole.iter().all(|value| value.is_finite()));
    let cut = logits("cut", &["--chunks", "7,3,11", "--ctx", "64"]);
    let furthest = whole.iter().zip(&cut).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // One token and many take other tiles, whose sums round differently.
    assert!(furthest < 0.05, "{furthest}");
    assert_ne!(whole, logits("half", &["--kv", "f16"]), "another cache rounds differently");
    let small = logits("small", &["--kv", "q8_0/q4_0"]);
    assert_ne!(whole, small);
    assert_eq!(small, logits("apart", &["-ctk", "q8_0", "-ctv", "q4_0"]), "as llama.cpp says it");
}

#[test]
fn logits_that_cannot_be_had_leave_no_file() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let (tokens, out) = (dir.path().join("ids.json"), dir.path().join("out.f32"));
    std::fs::write(&tokens, "[1, 2, 999999]").unwrap();
    let args = ["logits", &text(&smollm2()), "--tokens", &text(&tokens), "--out", &text(&out)];
    let (code, failure) = tandem.failure(&args);
    assert_eq!((code, &failure["code"]), (1, &json!("bad_request")), "{failure}");
    assert!(!out.exists());
    std::fs::write(&out, "of somebody else").unwrap();
    assert_eq!(tandem.failure(&args).0, 1);
    assert_eq!(std::fs::read(&out).unwrap(), b"of somebody else", "what was there stays");
    std::fs::write(&tokens, "{\"not\": \"a list\"}").unwrap();
    let (code, failure) = tandem.failure(&args);
    assert_eq!((code, &failure["code"]), (1, &json!("bad_request")));
}

#[test]
fn logits_never_take_the_place_of_what_they_are_made_from() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let tokens = dir.path().join("ids.json");
    std::fs::write(&tokens, "[1, 2]").unwrap();
    let args = ["logits", &text(&smollm2()), "--tokens", &text(&tokens), "--out", &text(&tokens)];
    let (code, failure) = tandem.failure(&args);
    assert_eq!((code, &failure["code"]), (1, &json!("bad_request")));
    assert_eq!(std::fs::read(&tokens).unwrap(), b"[1, 2]");
}

#[test]
fn a_file_that_is_no_model_is_refused_in_the_language_asked() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let page = dir.path().join("页面.gguf");
    std::fs::write(&page, "<!DOCTYPE html><html></html>").unwrap();
    let (code, failure) = tandem.failure(&["plan", &text(&page)]);
    assert_eq!((code, &failure["code"]), (5, &json!("not_gguf")));
    let output = tandem.run(&["plan", &text(&page), "--lang", "zh"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("错误：") && error.contains("not_gguf"), "{error}");
}

#[test]
fn a_broken_template_is_told_of_once_in_the_language_asked() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let model = dir.path().join("broken.gguf");
    let mut bytes = std::fs::read(smollm2()).unwrap();
    let template = b"{% for message in messages %}";
    let at = bytes.windows(template.len()).position(|window| window == template).unwrap();
    bytes[at..at + 6].copy_from_slice(b"{% fro");
    std::fs::write(&model, bytes).unwrap();
    let output = tandem.run(&["run", &text(&model), "hi", "-n", "1", "--lang", "zh"]);
    let aside = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{aside}");
    assert_eq!(aside.matches("该模型的聊天模板出错").count(), 1, "{aside}");
}

#[test]
fn what_does_not_chat_is_not_measured_either() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("mmproj.gguf");
    Writer::new("clip").meta("general.type", "mmproj").meta("clip.vision.block_count", 2_u32).write(&path).unwrap();
    for command in ["bench", "plan"] {
        let (code, failure) = tandem.failure(&[command, &text(&path)]);
        assert_eq!((code, &failure["code"]), (5, &json!("not_a_chat_model")), "{command}: {failure}");
    }
}

#[test]
fn one_of_several_names_takes_no_other_away() {
    let (tandem, dir) = (Tandem::new(), tempfile::tempdir().unwrap());
    let (models, hex, bytes) = (dir.path().join("models"), "ab".repeat(32), tiny_gguf("llama"));
    std::fs::create_dir_all(models.join("blobs")).unwrap();
    std::fs::write(models.join(format!("blobs/sha256-{hex}")), &bytes).unwrap();
    let layer = json!({ "mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{hex}"), "size": bytes.len() });
    let manifests =
        ["smollm/135m", "pirate/latest"].map(|name| models.join("manifests/registry.ollama.ai/library").join(name));
    for manifest in &manifests {
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        std::fs::write(manifest, json!({ "schemaVersion": 2, "layers": [layer] }).to_string()).unwrap();
    }
    tandem.ok(&["add", &text(&models)]);
    let (code, failure) = tandem.failure(&["remove", "smollm:135m", "--of", "ollama"]);
    assert_eq!((code, &failure["code"]), (1, &json!("bad_request")));
    assert!(failure["message"]["en"].as_str().unwrap().contains("pirate:latest"), "{failure}");
    assert!(manifests.iter().all(|manifest| manifest.is_file()), "nothing went");
}

#[test]
fn numbers_that_make_no_sense_are_wrong_usage() {
    let tandem = Tandem::new();
    for (option, value) in [
        ("--temperature", "nan"),
        ("--temperature", "-1"),
        ("--top-p", "2"),
        ("--min-p", "-0.1"),
        ("--threads", "0"),
        ("--ctx", "0"),
    ] {
        let (code, failure) = tandem.failure(&["run", "a", "b", &format!("{option}={value}")]);
        assert_eq!((code, &failure["code"]), (2, &json!("bad_request")), "{option} {value}: {failure}");
    }
    for option in ["-p", "-n", "-d", "-r", "-t"] {
        let (code, failure) = tandem.failure(&["bench", "a", option, "18446744073709551615"]);
        assert_eq!((code, &failure["code"]), (2, &json!("bad_request")), "{option}: {failure}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_a_failure_with_a_code() {
    let tandem = Tandem::new();
    let mut child = tandem
        .command(&["run", &text(&smollm2()), "--json"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe").unwrap();
    let error = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(error.contains("\"bad_request\"") && !error.contains('\u{1b}'), "{error}");
    #[cfg(target_os = "linux")]
    {
        for command in ["list", "--help", "--version"] {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let output = tandem.command(&[command, "--json"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(6), "{error}");
            assert!(error.contains("\"disk_full\""), "{error}");
        }
    }
}

#[test]
fn a_plan_shows_a_simulated_card_and_says_who_computes() {
    let fake = FakeNvml::new("card 6 GiB free 5.5 GiB name Simulated\n").unwrap();
    let (tandem, model, nvml) = (Tandem::new(), text(&smollm2()), text(fake.path()));
    let plan = tandem.json(&["plan", &model, "--json"]);
    assert_eq!((&plan["n_layers"], &plan["n_gpu_layers"]), (&json!(30), &json!(0)));
    let with_card = |args: &[&str]| tandem.ok(&[&["plan", model.as_str(), "--nvml", nvml.as_str()], args].concat());
    let shown: Value = serde_json::from_str(&with_card(&["--json"])).unwrap();
    assert_eq!(shown["n_gpu_layers"], json!(31));
    assert_eq!(shown["gpu_bar"]["capacity_bytes"], json!(6_u64 << 30));
    let said = with_card(&["--ctx", "4096"]);
    assert!(said.contains("4k\u{a0}context") && said.contains("GPU   [") && said.contains("processor"), "{said}");
    assert!(said.contains("llama-server -m SmolLM2-135M-Instruct.Q4_1.gguf -ngl 31 -c 4096"), "{said}");
}

/// A stub that some systems carry, or what is left of a driver.
#[test]
fn a_driver_without_its_functions_is_as_good_as_none() {
    let fake = FakeNvml::new("card 6 GiB free 5.5 GiB name Simulated\n").unwrap();
    let (tandem, model, nvml) = (Tandem::new(), text(&smollm2()), text(fake.path()));
    std::fs::copy(fake.path(), fake.path().with_file_name("libcuda.so")).unwrap();
    let mut plan = tandem.command(&["plan", &model, "--nvml", &nvml, "--json"]);
    let output = plan.env("LD_LIBRARY_PATH", fake.path().parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(shown["cpu_computes"]["en"].as_str().unwrap().contains("driver"), "{}", shown["cpu_computes"]);
}

#[test]
fn a_benchmark_reports_speed_memory_and_the_time_to_stop() {
    let sizes = ["-p", "64", "-n", "8", "-r", "3", "-d", "0,32", "-ctk", "q8_0"];
    let report = Tandem::new().json(&[&["bench", &text(&smollm2()), "--json"], &sizes[..]].concat());
    let tests = report["tests"].as_array().unwrap();
    let names: Vec<&Value> = tests.iter().map(|test| &test["name"]).collect();
    assert_eq!(names, ["pp64", "tg8", "pp64 @ d32", "tg8 @ d32"]);
    for test in tests {
        assert_eq!(test["samples_tokens_per_s"].as_array().unwrap().len(), 3);
        assert!(test["tokens_per_s"].as_f64().unwrap() > 0.0 && test["profile"].is_null(), "{test}");
    }
    assert!(tests[0]["reads"].is_null());
    let types: Vec<&Value> = report["kernels"].as_array().unwrap().iter().map(|row| &row["weights"]).collect();
    assert_eq!(types, ["Q4_1", "Q8_0"]);
    let cache = |test: &Value| test["reads"]["cache_bytes_per_token"].as_u64().unwrap();
    // 30 layers of 3 heads of 64 elements: keys in q8_0, values in f16.
    assert_eq!(cache(&tests[3]) - cache(&tests[1]), 32 * 30 * 3 * (2 * 34 + 2 * 64));
    assert_eq!((&report["quant"], &report["cache_type_k"]), (&json!("Q4_1"), &json!("q8_0")));
    for figure in [&report["cancel_ms"], &report["warm_load_ms"], &report["read"]["bytes_per_s"]] {
        assert!(figure.as_f64().unwrap() > 0.0, "{report}");
    }
    if cfg!(target_os = "linux") {
        assert!(report["memory"]["peak"].as_u64() > report["memory"]["file"].as_u64(), "{report}");
    }
}

/// The weights that operations say they multiplied are those that a token is said to read, but for the norms.
#[test]
fn a_profile_names_the_weights_of_a_token() {
    let args = ["bench", &text(&smollm2()), "-p", "0", "-n", "4", "-r", "1", "--profile"];
    let report = Tandem::new().json(&[&args[..], &["--json"]].concat());
    let test = &report["tests"][0];
    let rows = test["profile"].as_array().unwrap();
    let multiplied: u64 = rows.iter().map(|row| row["weights_bytes"].as_u64().unwrap()).sum::<u64>() / 4;
    let norms = 61 * 576 * 4;
    assert_eq!(test["reads"]["weights_bytes_per_token"], json!(multiplied + norms));
    let shares: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let printed = Tandem::new().ok(&args);
    for word in ["| tg4: part ", "| attend ", "| Q4_1 ", "between operations"] {
        assert!(printed.contains(word), "{word}\n{printed}");
    }
    assert_eq!(Tandem::new().failure(&["bench", &text(&smollm2()), "-p", "0", "-n", "0"]).0, 1);
}

#[test]
fn an_empty_library_is_an_empty_list() {
    let tandem = Tandem::new();
    assert_eq!(tandem.json(&["list", "--json"]), json!([]));
    assert_eq!(tandem.failure(&["run", "nothing", "hello"]), {
        let (code, failure) = tandem.failure(&["bench", "nothing"]);
        assert_eq!((code, &failure["code"]), (4, &json!("model_missing")));
        (code, failure)
    });
}

#[test]
fn a_model_is_planned_pulled_listed_and_asked() {
    let hub = TestHub::start(vec![Repo::new(REPO).file_at("SmolLM2-135M-Instruct.Q4_1.gguf", &smollm2()).unwrap()]);
    let tandem = Tandem::with_hub(&hub);
    let planned = tandem.ok(&["plan", REPO]);
    assert!(planned.starts_with("* Q4_1"), "{planned}");
    let (code, failure) = tandem.failure(&["pull", REPO, "--quant", "Q2_K"]);
    assert_eq!((code, failure["hint"]["en"].as_str()), (1, Some("choose one of Q4_1")));
    let pulled = tandem.json(&["pull", REPO, "--json"]);
    assert_eq!(pulled["quant"], "Q4_1");
    assert!(pulled["model_id"].is_string(), "{pulled}");
    let again = tandem.json(&["pull", REPO, "--json"]);
    assert_eq!(again, pulled);
    let listed = tandem.json(&["list", "--json"]);
    assert_eq!((listed[0]["id"].clone(), &listed[0]["integrity"]), (pulled["model_id"].clone(), &json!("verified")));

    let args = ["run", REPO, "--temperature", "0", "-n", "16", "--json"];
    let said = tandem.json(&[&args[..], &["Say", "hello"]].concat());
    assert_eq!((&said["end"], &said["stats"]["n_generated_tokens"]), (&json!("length"), &json!(16)));
    let piped = tandem.with_input(&args, "Say hello");
    let piped: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(piped["text"], said["text"], "greedy answers are the same");
    let plain = tandem.run(&["run", REPO, "--temperature", "0", "-n", "16", "Say hello"]);
    assert_eq!(String::from_utf8(plain.stdout).unwrap().trim_end(), said["text"].as_str().unwrap().trim_end());
    assert!(String::from_utf8(plain.stderr).unwrap().contains("16 tokens, "));
}

#[test]
fn what_the_hub_says_becomes_the_exit_code() {
    let hub = TestHub::start(tandem_tests::hub::demo_repos());
    let tandem = Tandem::with_hub(&hub);
    for (repo, exit, code) in [
        ("nobody/nothing", 4, "not_found"),
        ("tandem-demo/Tiny-Safetensors", 4, "no_gguf_in_repo"),
        ("tandem-demo/Tiny-Gated-GGUF", 4, "token_missing"),
        ("tandem-demo/Tiny-Unknown-GGUF", 5, "unknown_architecture"),
    ] {
        let (got, failure) = tandem.failure(&["pull", repo]);
        assert_eq!((got, &failure["code"]), (exit, &json!(code)), "{repo}: {failure}");
    }
    let (exit, failure) = Tandem::new().failure(&["pull", REPO]);
    assert_eq!((exit, &failure["code"]), (3, &json!("no_network")));
}

#[test]
fn logs_are_kept_without_what_was_asked() {
    let tandem = Tandem::new();
    let output = tandem.with_input(&["tokenize", &text(&smollm2()), "-vvv"], "{\"text\": \"a secret word\"}\n");
    assert!(output.status.success());
    let logs = tandem.folder.path().join("数据 é").join("logs");
    let file = std::fs::read_dir(logs).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read_to_string(file).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("started") && !log.contains("secret"), "{log}");
}

#[test]
fn a_full_disk_keeps_nobody_from_what_is_there() {
    let Some(disk) = SmallDisk::mount("a_full_disk_keeps_nobody_from_what_is_there") else { return };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let tandem = Tandem { folder, ..Tandem::new() };
    let model = disk.path().join("模型 🙂.gguf");
    std::fs::write(&model, tiny_gguf("llama")).unwrap();
    tandem.ok(&["add", &text(&model)]);
    let filler = disk.fill();
    let output = tandem.run(&["list"]);
    let (said, listed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success() && listed.contains("模型 🙂.gguf"), "{listed}{said}");
    assert!(said.contains("is full") && said.contains("free some space"), "{said}");
    assert_eq!(tandem.json(&["verify", &text(&model), "--json"])["integrity"], "unverified");
    std::fs::remove_file(filler).unwrap();
    let output = tandem.run(&["list"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn damage_to_what_is_here_is_found_named_and_mended_by_pulling_again() {
    let model = tiny_gguf("llama");
    let hub = TestHub::start(vec![Repo::new("pub/Tiny-GGUF").file("Tiny-Q8_0.gguf", model.clone())]);
    let mut damaged = model.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let tandem = Tandem::with_hub(&hub);
    let path = tandem.folder.path().join("数据 é/models/pub/Tiny-GGUF/Tiny-Q8_0.gguf");
    let pull = ["pull", "pub/Tiny-GGUF", "--quant", "Q8_0"];
    let listed = || tandem.json(&["list", "--json"])[0].clone();
    let has = |model: &Value, integrity| model["integrity"] == integrity && model["newer"] == Value::Null;

    // It lay there before anything was fetched: the name alone is no proof.
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, &damaged).unwrap();
    tandem.ok(&pull);
    assert_eq!(std::fs::read(&path).unwrap(), model);
    assert!(has(&listed(), "verified"), "{}", listed());

    std::fs::write(&path, &damaged).unwrap();
    assert!(has(&listed(), "unverified"), "{}", listed());
    let (code, failure) = tandem.failure(&["verify", &text(&path)]);
    assert_eq!((code, &failure["code"]), (5, &json!("checksum_mismatch")));
    assert!(has(&listed(), "mismatched"), "{}", listed());
    tandem.ok(&pull);
    assert_eq!(std::fs::read(&path).unwrap(), model);
    assert!(has(&listed(), "verified"), "{}", listed());

    // What is right is not fetched a second time, whoever put it there.
    let n_fetched = hub.fetches("Tiny-Q8_0.gguf").len();
    std::fs::write(&path, &model).unwrap();
    tandem.ok(&pull);
    assert_eq!(hub.fetches("Tiny-Q8_0.gguf").len(), n_fetched);
    assert!(has(&listed(), "verified"), "{}", listed());
}

/// The trash of the freedesktop specification, as file managers show it.
#[test]
#[cfg(target_os = "linux")]
fn a_removed_model_lies_in_the_trash_and_is_found_again_once_restored() {
    let model = tiny_gguf("llama");
    let hub = TestHub::start(vec![Repo::new("模型/Tiny-GGUF").file("子 目录/Tiny 🙂-Q8_0.gguf", model.clone())]);
    let tandem = Tandem::with_hub(&hub);
    tandem.ok(&["pull", "模型/Tiny-GGUF", "--quant", "Q8_0"]);
    let here = tandem.json(&["list", "--json"]);
    let path = PathBuf::from(here[0]["path"].as_str().unwrap());
    let data_home = tandem.folder.path().join("share");
    let removed = tandem.command(&["remove", &text(&path)]).env("XDG_DATA_HOME", &data_home).output().unwrap();
    let said = String::from_utf8_lossy(&removed.stderr);
    assert!(removed.status.success() && said.contains(&size(model.len() as u64)), "{said}");
    assert!(!path.exists() && !path.parent().unwrap().exists(), "no empty folders are left");
    assert_eq!(tandem.json(&["list", "--json"]), json!([]));

    let in_trash = data_home.join("Trash/files/Tiny 🙂-Q8_0.gguf");
    assert_eq!(std::fs::read(&in_trash).unwrap(), model);
    let info = std::fs::read_to_string(data_home.join("Trash/info/Tiny 🙂-Q8_0.gguf.trashinfo")).unwrap();
    let origin = info.lines().find_map(|line| line.strip_prefix("Path=")).unwrap();
    assert!(info.starts_with("[Trash Info]\n") && info.contains("\nDeletionDate="), "{info}");
    assert_eq!(percent_decode_str(origin).decode_utf8().unwrap(), text(&path), "a file manager knows where it was");

    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::rename(in_trash, &path).unwrap();
    let back = tandem.json(&["list", "--json"]);
    assert_eq!((&back[0]["path"], &back[0]["id"]), (&here[0]["path"], &here[0]["id"]));
    let verified = tandem.json(&["verify", &text(&path), "--json"]);
    assert_eq!((&back[0]["integrity"], &verified["integrity"]), (&json!("unverified"), &json!("verified")));
}

/// Memory is no matter of timing: it is the same on a busy machine.
#[test]
fn memory_is_predicted_within_a_twentieth() {
    let models = [smollm2(), gemma()];
    let paths = models.each_ref().map(|path| path.to_str().unwrap());
    let args = ["predictions", "--rounds", "0", "--check", paths[0], paths[1]];
    let rows = Tandem::new().json(&[&["--json"], &args[..]].concat());
    for row in rows.as_array().unwrap() {
        let [planned, resident] = ["planned_bytes", "resident_bytes"].map(|key| row[key].as_f64().unwrap());
        assert!((planned / resident - 1.0).abs() <= 0.05, "{}: {planned} planned, {resident} resident", row["model"]);
        assert!(row["generation"].is_null(), "nothing is timed");
    }
    let table = Tandem::new().ok(&args);
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(!table.contains('!'), "{table}");
}
