//! ModelScope: its search, its listing of files, and where a file's bytes are.
//!
//! It tells a SHA256 with every file and names no commit for a whole repo: files are asked for on its default branch, and
//! their hashes say whether they are still the same. It never sees a Hugging Face token.

use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, StatusCode, Url};
use serde::{Deserialize, Deserializer};

use super::error::{HubError, Oddity};
use super::http::{About, Pointers, is_html, redirect_target};
use super::listing::{is_sha256, split_name};
use super::resolve::{Resolved, asking_for, bare_etag};
use super::search::{is_repo_name, search_words};
use super::{Hub, RepoListing};
use crate::wire::{HubModel, RepoFile, SearchPage};

impl Hub {
    /// Its search knows no filter for GGUF: the word goes into the query, and what is something else is left out here.
    pub(super) fn modelscope_search_url(&self, query: &str) -> Url {
        let words = search_words(query);
        let has_mark = words.to_ascii_lowercase().contains("gguf");
        let words = if has_mark { words.to_owned() } else { format!("{words} GGUF").trim_start().to_owned() };
        let mut url = self.url(&["openapi", "v1", "models"]);
        let mut pairs = url.query_pairs_mut();
        pairs.append_pair("search", &words).append_pair("sort", "downloads");
        pairs.append_pair("page_number", "1").append_pair("page_size", &PAGE_SIZE.to_string());
        drop(pairs);
        url
    }

    pub(super) async fn modelscope_search(&self, url: Url, query: &str) -> Result<SearchPage, HubError> {
        let about = About { repo: query, path: None };
        let page: ModelsJson = self.modelscope_data(url.clone(), about).await?;
        let number = number_of(&url);
        let has_more = number * PAGE_SIZE < page.total_count && !page.models.is_empty();
        let next = has_more.then(|| with_number(&url, number + 1));
        let models = page.models.into_iter().filter_map(ModelJson::into_model).filter(is_gguf).collect();
        Ok(SearchPage { models, next })
    }

    pub(super) async fn modelscope_model(&self, repo: &str) -> Result<RepoListing, HubError> {
        let (publisher, name) = split_name(repo)?;
        let mut url = self.url(&["api", "v1", "models", publisher, name, "repo", "files"]);
        url.query_pairs_mut().append_pair("Revision", BRANCH).append_pair("Recursive", "True");
        let about = About { repo, path: None };
        let page = self.modelscope_data::<ModelJson>(self.url(&["openapi", "v1", "models", publisher, name]), about);
        let (page, files) = tokio::join!(page, self.modelscope_data::<FilesJson>(url, about));
        let files = files?.files.into_iter().filter(|file| file.kind == "blob");
        let files = files.map(|file| self.repo_file(repo, BRANCH, file.path, file.size, file.sha256));
        // A page that cannot be read keeps nobody from the files.
        let model = page.ok().and_then(ModelJson::into_model).unwrap_or_else(|| bare_model(repo));
        let model = HubModel { id: repo.to_owned(), ..model };
        Ok(RepoListing { model, commit: BRANCH.to_owned(), files: files.collect() })
    }

    /// The answer points to another host, or is the file itself.
    pub(super) async fn modelscope_resolve(&self, file: &RepoFile) -> Result<Resolved, HubError> {
        let (publisher, name) = split_name(&file.repo)?;
        let mut url = self.url(&["api", "v1", "models", publisher, name, "repo"]);
        url.query_pairs_mut().append_pair("Revision", BRANCH).append_pair("FilePath", &file.path);
        let response = self.follow(Method::GET, url, &[asking_for(0..1)].into_iter().collect(), Pointers::Stop).await?;
        let elsewhere = redirect_target(&response);
        if elsewhere.is_none() && !response.status().is_success() {
            return Err(self.refusal(&response, About { repo: &file.repo, path: Some(&file.path) }));
        }
        if elsewhere.is_none() && is_html(response.headers()) {
            return Err(HubError::odd(response.url(), Oddity::Html));
        }
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let linked = text("x-linked-etag").map(bare_etag).filter(|etag| is_sha256(etag)).map(str::to_ascii_lowercase);
        let total = match response.status() {
            StatusCode::PARTIAL_CONTENT => text(CONTENT_RANGE.as_str()).and_then(|range| range.rsplit('/').next()),
            StatusCode::OK => text("content-length"),
            _ => None,
        };
        let sha256 = match linked {
            Some(sha256) => Some(sha256),
            // Where the pointer names no hash, only the listing tells whether the file is still the same.
            None => self.modelscope_listed(file).await?.or_else(|| file.sha256.clone()),
        };
        Ok(Resolved {
            size_bytes: total.and_then(|total| total.parse().ok()).unwrap_or(file.size_bytes),
            url: elsewhere.unwrap_or_else(|| response.url().clone()),
            commit: BRANCH.to_owned(),
            etag: sha256.clone().unwrap_or_default(),
            sha256,
        })
    }

    /// SHA256 that the listing names now.
    async fn modelscope_listed(&self, file: &RepoFile) -> Result<Option<String>, HubError> {
        let listing = self.modelscope_model(&file.repo).await?;
        Ok(listing.files.into_iter().find(|listed| listed.path == file.path).and_then(|listed| listed.sha256))
    }

    /// What lies in its envelope.
    async fn modelscope_data<T: serde::de::DeserializeOwned>(&self, url: Url, about: About<'_>) -> Result<T, HubError> {
        let (envelope, _): (Envelope<T>, _) = self.get_json(url.clone(), about).await?;
        let detail = || envelope.message.clone().unwrap_or_else(|| "no data".to_owned());
        match envelope.data {
            Some(data) => Ok(data),
            None => Err(HubError::odd(&url, Oddity::BadJson { detail: detail() })),
        }
    }
}

/// The branch that has a repo's files.
const BRANCH: &str = "master";
const PAGE_SIZE: u64 = 30;
const PAGE_NUMBER: &str = "page_number";

/// The older interface writes its keys large, the newer one small.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: serde::de::DeserializeOwned")]
struct Envelope<T> {
    #[serde(default = "none", alias = "Data", deserialize_with = "data_if_any")]
    data: Option<T>,
    #[serde(default, alias = "Message")]
    message: Option<String>,
}

fn none<T>() -> Option<T> {
    None
}

/// A refusal may carry data of any form.
fn data_if_any<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

#[derive(Debug, Deserialize)]
struct ModelsJson {
    #[serde(default)]
    models: Vec<ModelJson>,
    #[serde(default)]
    total_count: u64,
}

#[derive(Debug, Deserialize)]
struct ModelJson {
    id: String,
    #[serde(default)]
    downloads: Option<u64>,
    #[serde(default)]
    likes: Option<u64>,
    #[serde(default)]
    license: Option<String>,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    last_modified: Option<String>,
    #[serde(default)]
    params: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct FilesJson {
    #[serde(default, rename = "Files")]
    files: Vec<FileJson>,
}

#[derive(Debug, Deserialize)]
struct FileJson {
    #[serde(rename = "Path")]
    path: String,
    #[serde(rename = "Type")]
    kind: String,
    #[serde(default, rename = "Size")]
    size: u64,
    #[serde(default, rename = "Sha256")]
    sha256: Option<String>,
}

impl ModelJson {
    fn into_model(self) -> Option<HubModel> {
        is_repo_name(&self.id).then(|| HubModel {
            downloads: self.downloads.unwrap_or(0),
            likes: self.likes.unwrap_or(0),
            last_modified: self.last_modified,
            tags: self.tags.unwrap_or_default(),
            license: self.license.filter(|license| !license.is_empty()).map(|license| license.to_lowercase()),
            n_params: self.params.filter(|&params| params > 0),
            ..bare_model(&self.id)
        })
    }
}

fn bare_model(repo: &str) -> HubModel {
    HubModel {
        id: repo.to_owned(),
        downloads: 0,
        likes: 0,
        gated: false,
        last_modified: None,
        tags: Vec::new(),
        license: None,
        architecture: None,
        n_params: None,
        context_length: None,
    }
}

fn is_gguf(model: &HubModel) -> bool {
    let says_so = |text: &String| text.to_ascii_lowercase().contains("gguf");
    says_so(&model.id) || model.tags.iter().any(says_so)
}

fn number_of(url: &Url) -> u64 {
    let number = url.query_pairs().find(|(name, _)| name == PAGE_NUMBER).and_then(|(_, number)| number.parse().ok());
    number.unwrap_or(1)
}

fn with_number(url: &Url, number: u64) -> String {
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| name != PAGE_NUMBER)
        .map(|(n, v)| (n.into_owned(), v.into_owned()))
        .collect();
    let mut next = url.clone();
    next.query_pairs_mut().clear().extend_pairs(kept).append_pair(PAGE_NUMBER, &number.to_string());
    next.into()
}
