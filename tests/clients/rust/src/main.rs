//! What a program does that has the crate hf-hub in it, in each of the crate's three forms.
//!
//! argv[1] is JSON: {"api": "1.0" | "ureq" | "tokio", "repo": ..., "type": ..., "revision": ...,
//! "files": [...], "range": [path, first, end]}; without files, 1.0 takes a snapshot.
//! Endpoint and cache are the crate's own: HF_ENDPOINT and HF_HOME. Prints one JSON line: the
//! commit and the names that the repository's information has, and where each file is.

use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn strings(asked: &Value) -> Vec<String> {
    let list = asked.as_array().cloned().unwrap_or_default();
    list.iter().filter_map(|one| one.as_str().map(String::from)).collect()
}

fn said(sha: &str, names: Vec<String>, paths: Vec<(String, PathBuf)>) -> Value {
    let paths = paths.into_iter().map(|(name, path)| (name, json!(path)));
    json!({"sha": sha, "names": names, "paths": serde_json::Map::from_iter(paths)})
}

mod now {
    use super::*;
    use hf_hub::repository::RepoSibling;
    use hf_hub::{HFClient, HFRepository, RepoType, split_id};

    async fn fetch<T: RepoType>(
        repo: &HFRepository<T>,
        asked: &Value,
        sha: Option<String>,
        siblings: Option<Vec<RepoSibling>>,
    ) -> Outcome<Value> {
        let revision = asked["revision"].as_str().map(String::from);
        let names = siblings.unwrap_or_default().into_iter().map(|one| one.rfilename);
        let mut paths = Vec::new();
        for file in strings(&asked["files"]) {
            let download = repo.download_file().filename(file.clone());
            paths.push((file, download.maybe_revision(revision.clone()).send().await?));
        }
        if asked["files"].is_null() {
            let folder = repo.snapshot_download().maybe_revision(revision.clone()).send().await?;
            paths.push((".".into(), folder));
        }
        let mut answer = said(&sha.ok_or("no commit")?, names.collect(), paths);
        if let Some(path) = asked["range"][0].as_str() {
            let first = asked["range"][1].as_u64().ok_or("no start")?;
            let end = asked["range"][2].as_u64().ok_or("no end")?;
            let download = repo.download_file_to_bytes().filename(path).range(first..end);
            let bytes = download.maybe_revision(revision).send().await?;
            let home = std::env::var("HF_HOME")?;
            let part = Path::new(&home).join("part");
            std::fs::write(&part, bytes)?;
            answer["part"] = json!(part);
        }
        Ok(answer)
    }

    pub async fn run(asked: &Value) -> Outcome<Value> {
        let client = HFClient::new()?;
        let (owner, name) = split_id(asked["repo"].as_str().ok_or("no repository")?);
        let revision = asked["revision"].as_str().map(String::from);
        match asked["type"].as_str() {
            Some("dataset") => {
                let repo = client.dataset(owner, name);
                let info = repo.info().maybe_revision(revision).send().await?;
                fetch(&repo, asked, info.sha, info.siblings).await
            }
            Some("space") => {
                let repo = client.space(owner, name);
                let info = repo.info().maybe_revision(revision).send().await?;
                fetch(&repo, asked, info.sha, info.siblings).await
            }
            _ => {
                let repo = client.model(owner, name);
                let info = repo.info().maybe_revision(revision).send().await?;
                fetch(&repo, asked, info.sha, info.siblings).await
            }
        }
    }
}

mod before {
    use super::*;
    use hf_hub_before::api::RepoInfo;
    use hf_hub_before::api::{sync, tokio};
    use hf_hub_before::{Repo, RepoType};

    fn repository(asked: &Value) -> Outcome<Repo> {
        let kind = match asked["type"].as_str() {
            Some("dataset") => RepoType::Dataset,
            Some("space") => RepoType::Space,
            _ => RepoType::Model,
        };
        let name = asked["repo"].as_str().ok_or("no repository")?.to_string();
        let revision = asked["revision"].as_str().unwrap_or("main").to_string();
        Ok(Repo::with_revision(name, kind, revision))
    }

    fn names(info: &RepoInfo) -> Vec<String> {
        info.siblings.iter().map(|one| one.rfilename.clone()).collect()
    }

    pub fn run_ureq(asked: &Value) -> Outcome<Value> {
        let api = sync::ApiBuilder::from_env().with_progress(false).build()?;
        let repo = api.repo(repository(asked)?);
        let info = repo.info()?;
        let mut paths = Vec::new();
        for file in strings(&asked["files"]) {
            let path = repo.get(&file).map_err(|error| format!("{file}: {error}"))?;
            paths.push((file, path));
        }
        Ok(said(&info.sha, names(&info), paths))
    }

    /// In pieces of 10 MB, several at once.
    pub async fn run_tokio(asked: &Value) -> Outcome<Value> {
        let api = tokio::ApiBuilder::from_env().high().with_progress(false).build()?;
        let repo = api.repo(repository(asked)?);
        let info = repo.info().await?;
        let mut paths = Vec::new();
        for file in strings(&asked["files"]) {
            let path = repo.get(&file).await.map_err(|error| format!("{file}: {error}"))?;
            paths.push((file, path));
        }
        Ok(said(&info.sha, names(&info), paths))
    }
}

fn main() -> Outcome<()> {
    let asked: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("what?")?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let answer = match asked["api"].as_str() {
        Some("1.0") => runtime.block_on(now::run(&asked))?,
        Some("ureq") => before::run_ureq(&asked)?,
        Some("tokio") => runtime.block_on(before::run_tokio(&asked))?,
        _ => return Err("api is 1.0, ureq or tokio".into()),
    };
    println!("{answer}");
    Ok(())
}
