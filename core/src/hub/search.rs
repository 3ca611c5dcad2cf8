//! Search: one page of repos that hold GGUF files.

use reqwest::Url;
use serde::Deserialize;

use super::Hub;
use super::error::HubError;
use super::http::About;
use crate::wire::{HubKind, HubModel, SearchPage, SearchRequest};

impl Hub {
    /// Searches for repos with GGUF files, the most downloaded first.
    pub async fn search(&self, request: &SearchRequest) -> Result<SearchPage, HubError> {
        let url = match (&request.cursor, self.kind) {
            (Some(cursor), _) => self.checked_cursor(cursor)?,
            (None, HubKind::HuggingFace) => self.search_url(&request.query),
            (None, HubKind::ModelScope) => self.modelscope_search_url(&request.query),
        };
        if self.kind == HubKind::ModelScope {
            return self.modelscope_search(url, &request.query).await;
        }
        let about = About { repo: &request.query, path: None };
        let named = async {
            let is_new = request.cursor.is_none();
            if is_new { self.named(search_words(&request.query)).await } else { None }
        };
        let (found, named) = tokio::join!(self.get_json(url, about), named);
        let (models, next): (Vec<ModelJson>, _) = found?;
        let mut models: Vec<HubModel> = models.into_iter().filter_map(ModelJson::into_model).collect();
        if let Some(named) = named.filter(|named| models.iter().all(|model| model.id != named.id)) {
            models.insert(0, named);
        }
        Ok(SearchPage { models, next: next.map(String::from) })
    }

    /// The repo that a query names outright: it is found even where it holds no GGUF file, so that its page can say so.
    async fn named(&self, words: &str) -> Option<HubModel> {
        let (publisher, name) = words.split_once('/').filter(|_| is_repo_name(words))?;
        let mut url = self.url(&["api", "models", publisher, name]);
        expand(&mut url);
        let found: Result<(ModelJson, _), HubError> = self.get_json(url, About { repo: words, path: None }).await;
        found.ok().and_then(|(model, _)| model.into_model())
    }

    /// GGUF versions that others have made of a model, the most downloaded first: by what they say they were made from, else
    /// by name.
    pub async fn gguf_versions(&self, model: &HubModel) -> Result<Vec<HubModel>, HubError> {
        let about = About { repo: &model.id, path: None };
        if self.kind == HubKind::HuggingFace {
            let mut url = self.search_url("");
            url.query_pairs_mut().append_pair("filter", &format!("base_model:quantized:{}", base_of(model)));
            let (found, _): (Vec<ModelJson>, _) = self.get_json(url, about).await?;
            let found: Vec<HubModel> = found.into_iter().filter_map(ModelJson::into_model).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let request = SearchRequest { query: plain_name(base_of(model)), cursor: None };
        Ok(self.search(&request).await?.models.into_iter().filter(|found| found.id != model.id).collect())
    }

    fn search_url(&self, query: &str) -> Url {
        let mut url = self.url(&["api", "models"]);
        let words = search_words(query);
        let mut pairs = url.query_pairs_mut();
        pairs.append_pair("filter", "gguf");
        if !words.is_empty() {
            pairs.append_pair("search", words);
        }
        pairs.append_pair("sort", "downloads").append_pair("limit", PAGE_SIZE);
        drop(pairs);
        expand(&mut url);
        url
    }

    /// A cursor is the hub's own URL of the next page; one of another origin is refused.
    fn checked_cursor(&self, cursor: &str) -> Result<Url, HubError> {
        let url = Url::parse(cursor).map_err(|_| HubError::BadCursor)?;
        let is_ours = self.is_own(&url)
            && url.path().ends_with(match self.kind {
                HubKind::HuggingFace => "/api/models",
                HubKind::ModelScope => "/openapi/v1/models",
            });
        if is_ours { Ok(url) } else { Err(HubError::BadCursor) }
    }
}

fn expand(url: &mut Url) {
    url.query_pairs_mut().extend_pairs(EXPANDED.iter().map(|field| ("expand", field)));
}

/// The model that a repo was quantised from, by its tags; else itself.
fn base_of(model: &HubModel) -> &str {
    let base = model.tags.iter().find_map(|tag| tag.strip_prefix("base_model:quantized:"));
    base.filter(|base| is_repo_name(base)).unwrap_or(&model.id)
}

/// A repo's name without publisher and without words for formats.
fn plain_name(repo: &str) -> String {
    let name = repo.rsplit('/').next().unwrap_or(repo);
    let is_format = |word: &&str| FORMAT_WORDS.iter().any(|format| word.eq_ignore_ascii_case(format));
    name.split('-').filter(|word| !is_format(word)).collect::<Vec<_>>().join("-")
}

const FORMAT_WORDS: &[&str] =
    &["gptq", "awq", "exl2", "exl3", "mlx", "onnx", "int4", "int8", "fp8", "4bit", "8bit", "hf", "bnb"];

/// What a person means who pastes a repo's address.
pub(super) fn search_words(query: &str) -> &str {
    let query = query.trim();
    let Some((_, rest)) = query.split_once("://") else { return query };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let name_end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    path[..name_end].split(['?', '#']).next().unwrap_or_default()
}

const PAGE_SIZE: &str = "30";
const EXPANDED: &[&str] = &["downloads", "likes", "gated", "lastModified", "tags", "gguf", "sha"];

/// A repo, as search and page tell it; what is of no use here is ignored.
#[derive(Debug, Deserialize)]
pub(super) struct ModelJson {
    id: String,
    #[serde(default)]
    downloads: Option<u64>,
    #[serde(default)]
    likes: Option<u64>,
    #[serde(default)]
    gated: serde_json::Value,
    #[serde(default, rename = "lastModified")]
    last_modified: Option<String>,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    gguf: Option<GgufJson>,
    #[serde(default)]
    pub(super) sha: Option<String>,
    #[serde(default)]
    pub(super) siblings: Option<Vec<SiblingJson>>,
}

#[derive(Debug, Deserialize)]
struct GgufJson {
    architecture: Option<String>,
    total: Option<u64>,
    context_length: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SiblingJson {
    pub(super) rfilename: String,
    #[serde(default)]
    pub(super) size: Option<u64>,
    #[serde(default)]
    pub(super) lfs: Option<SiblingLfsJson>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SiblingLfsJson {
    pub(super) sha256: String,
    pub(super) size: u64,
}

impl ModelJson {
    /// `None` for names that are not `publisher/name`: their files would have no folder here.
    pub(super) fn into_model(self) -> Option<HubModel> {
        if !is_repo_name(&self.id) {
            return None;
        }
        let tags = self.tags.unwrap_or_default();
        let license = tags.iter().find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned);
        let gguf = self.gguf.unwrap_or(GgufJson { architecture: None, total: None, context_length: None });
        Some(HubModel {
            id: self.id,
            downloads: self.downloads.unwrap_or(0),
            likes: self.likes.unwrap_or(0),
            gated: !matches!(self.gated, serde_json::Value::Null | serde_json::Value::Bool(false)),
            last_modified: self.last_modified,
            license,
            tags,
            architecture: gguf.architecture,
            n_params: gguf.total,
            context_length: gguf.context_length,
        })
    }
}

/// Whether a text is a repo's name: `publisher/name`, each of word characters, `-` and `.`, which no path can be made of.
pub(super) fn is_repo_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let ends = part.chars().next().zip(part.chars().next_back());
        part.len() <= 96
            && ends.is_some_and(|(first, last)| is_word(first) && (is_word(last) || last == '-'))
            && part.chars().all(|c| is_word(c) || c == '-' || c == '.')
            && !part.contains("..")
    };
    text.split_once('/').is_some_and(|(publisher, name)| is_part(publisher) && is_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repo_names_are_names_and_no_paths() {
        for name in ["unsloth/Qwen3.5-35B-A3B-GGUF", "a/b", "测试/模型", "TheBloke/x_y.z"] {
            assert!(is_repo_name(name), "{name}");
        }
        for name in ["", "gpt2", "a/b/c", "../x", "a/..", "a/.b", "a/b c", "a\\b/c", "/b", "a/", "a/b%2F", "C:/x"] {
            assert!(!is_repo_name(name), "{name}");
        }
    }

    #[test]
    fn a_pasted_address_is_searched_by_its_name() {
        let cases = [
            ("  qwen 3.5 ", "qwen 3.5"),
            ("https://huggingface.co/unsloth/Qwen-GGUF", "unsloth/Qwen-GGUF"),
            ("https://huggingface.co/unsloth/Qwen-GGUF/tree/main", "unsloth/Qwen-GGUF"),
            ("https://huggingface.co/unsloth/Qwen-GGUF?show=1", "unsloth/Qwen-GGUF"),
            ("https://huggingface.co", ""),
        ];
        for (typed, words) in cases {
            assert_eq!(search_words(typed), words);
        }
    }

    #[test]
    fn a_packed_model_leads_to_the_one_it_was_made_from() {
        let model = |id: &str, tags: &[&str]| {
            let json = serde_json::json!({ "id": id, "tags": tags });
            serde_json::from_value::<ModelJson>(json).unwrap().into_model().unwrap()
        };
        let packed = model("x/M-AWQ", &["base_model:a/M", "base_model:quantized:a/M", "awq"]);
        assert_eq!(base_of(&packed), "a/M");
        assert_eq!(base_of(&model("a/M", &["base_model:finetune:a/Base"])), "a/M");
        assert_eq!(base_of(&model("a/M", &["base_model:quantized:../etc"])), "a/M");
        assert_eq!(plain_name("Qwen/Qwen3-8B-GPTQ-Int4"), "Qwen3-8B");
    }

    #[test]
    fn odd_entries_are_left_out_and_odd_fields_ignored() {
        let text = r#"[{"id":"no-publisher"},{"id":"a/b","gated":"auto","downloads":null,"tags":null,"new":[1]},
            {"id":"c/d","gated":false,"likes":3,"tags":["gguf","license:mit"],"gguf":{"total":5,"architecture":"llama"}}]"#;
        let models: Vec<ModelJson> = serde_json::from_str(text).unwrap();
        let models: Vec<HubModel> = models.into_iter().filter_map(ModelJson::into_model).collect();
        assert_eq!(
            models.iter().map(|model| (model.id.as_str(), model.gated)).collect::<Vec<_>>(),
            [("a/b", true), ("c/d", false)]
        );
        assert_eq!((models[1].license.as_deref(), models[1].n_params), (Some("mit"), Some(5)));
    }
}
