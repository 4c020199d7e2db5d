//! Client of a hub: lists a repository, and reads a file of it from an offset.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, RANGE, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;

use crate::error::Error;
use crate::listing::Listing;
use crate::name::Name;

pub struct HubClient {
    client: Client,
    /// Client for what is sent: an answer may come long after the request began.
    uploads: Client,
    url: String,
    options: HubOptions,
}

#[derive(Clone, Debug)]
pub struct HubOptions {
    pub url: String,
    pub token: Option<String>,
    pub token_env: String,
    pub connect: Duration,
    pub silence: Duration,
    pub retries: u32,
    /// Pause before the first retry; it doubles for each next one.
    pub retry: Duration,
    pub listing_bytes: usize,
    pub on_failure: fn(&str),
}

const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) enum FailedTry {
    Again { why: String, after: Option<Duration> },
    Final(Error),
}

impl HubClient {
    pub fn new(options: HubOptions) -> Result<HubClient, Error> {
        let url = options.url.trim_end_matches('/').to_owned();
        let wrong = |why: String| Error::Address { url: url.clone(), why };
        Url::parse(&url).map_err(|error| wrong(error.to_string()))?;
        // Once for the process; a second call has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let uploads = Client::builder().connect_timeout(options.connect);
        let client = Client::builder().connect_timeout(options.connect).read_timeout(options.silence);
        let [client, uploads] = [client.build(), uploads.build()];
        let client = client.map_err(|error| wrong(chain(&error)))?;
        let uploads = uploads.map_err(|error| wrong(chain(&error)))?;
        Ok(HubClient { client, uploads, url, options })
    }

    pub async fn list(&self, name: &Name) -> Result<Listing, Error> {
        let revision = name.revision.as_deref().unwrap_or("main");
        let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", self.url, name.repo);
        let mut tries = Tries::new(&self.options);
        loop {
            let failure = match self.listed(&url, name, revision).await {
                Ok(listing) => return Ok(listing),
                Err(failure) => failure,
            };
            tries.wait(&name.repo, failure).await?;
        }
    }

    async fn listed(&self, url: &str, name: &Name, revision: &str) -> Result<Listing, FailedTry> {
        let response = self.send(self.client.get(url), name, revision).await?;
        let answer = self.read(response).await?;
        Listing::parse(&answer).map_err(|why| FailedTry::Final(self.no_hub(&why)))
    }

    /// Requests the file's bytes from `start` on. The answer says if it begins there or, from a hub without ranges, at
    /// 0.
    pub(crate) async fn get(&self, name: &Name, commit: &str, file: &str, start: u64) -> Result<Response, FailedTry> {
        let url = format!("{}/{}/resolve/{commit}/{}", self.url, name.repo, file.replace(' ', "%20"));
        let mut request = self.client.get(url);
        if start > 0 {
            request = request.header(RANGE, format!("bytes={start}-"));
        }
        self.send(request, name, commit).await
    }

    /// Sends a request with the token, which the hub gets and no server that it redirects to.
    pub(crate) async fn send(
        &self,
        request: RequestBuilder,
        name: &Name,
        revision: &str,
    ) -> Result<Response, FailedTry> {
        let request = match &self.options.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let response = request.send().await.map_err(|error| again(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
            let why = format!("the hub answered {}", status.as_u16());
            return Err(FailedTry::Again { why, after: retry_after(&response) });
        }
        Err(FailedTry::Final(self.refused(&response, name, revision)))
    }

    fn refused(&self, response: &Response, name: &Name, revision: &str) -> Error {
        let (repo, hub, token) = (name.repo.clone(), self.url.clone(), self.options.token_env.clone());
        let code = text_of(response.headers(), &HeaderName::from_static("x-error-code")).unwrap_or_default();
        match (response.status(), code) {
            (StatusCode::UNAUTHORIZED, "") if self.options.token.is_some() => Error::Token { hub, token },
            (_, "GatedRepo") => Error::Gated { repo, hub, token },
            (_, "RevisionNotFound") => Error::NoRevision { repo, revision: revision.to_owned() },
            // The hub gives the same answer if the token may not see the repository.
            (_, "RepoNotFound") | (StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND, "") => {
                Error::NoRepo { repo, hub, token }
            }
            (status, _) => {
                let why = text_of(response.headers(), &HeaderName::from_static("x-error-message"));
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                Error::Refused { what: repo, status: status.as_u16(), why }
            }
        }
    }

    pub(crate) async fn post(&self, url: &str, name: &Name, body: &Value) -> Result<Response, FailedTry> {
        self.send(self.client.post(url).json(body), name, name.revision.as_deref().unwrap_or("main")).await
    }

    pub(crate) async fn again_and_again(&self, url: &str, name: &Name, body: &Value) -> Result<Value, Error> {
        let mut tries = Tries::new(&self.options);
        loop {
            let answer = match self.post(url, name, body).await {
                Ok(response) => self.read_json(response).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => tries.wait(&name.repo, failure).await?,
            }
        }
    }

    pub(crate) async fn read_json(&self, response: Response) -> Result<Value, FailedTry> {
        let answer = self.read(response).await?;
        serde_json::from_slice(&answer).map_err(|error| FailedTry::Final(self.no_hub(&error.to_string())))
    }

    /// Reads an answer that is no longer than a list of files.
    pub(crate) async fn read(&self, mut response: Response) -> Result<Vec<u8>, FailedTry> {
        let mut answer = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| again(&error))? {
            if answer.len() + piece.len() > self.options.listing_bytes {
                let why = format!("its list of files has more than {} bytes", self.options.listing_bytes);
                return Err(FailedTry::Final(self.no_hub(&why)));
            }
            answer.extend_from_slice(&piece);
        }
        Ok(answer)
    }

    pub(crate) fn no_hub(&self, why: &str) -> Error {
        Error::NoHub { url: self.url.clone(), why: why.to_owned() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn uploads(&self) -> &Client {
        &self.uploads
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn options(&self) -> &HubOptions {
        &self.options
    }
}

pub(crate) struct Tries<'o> {
    options: &'o HubOptions,
    failed: u32,
}

impl<'o> Tries<'o> {
    pub fn new(options: &'o HubOptions) -> Tries<'o> {
        Tries { options, failed: 0 }
    }

    pub fn reset(&mut self) {
        self.failed = 0;
    }

    /// Pauses before the next try, or returns the reason why there is none.
    pub async fn wait(&mut self, what: &str, failure: FailedTry) -> Result<(), Error> {
        let (why, after) = match failure {
            FailedTry::Final(error) => return Err(error),
            FailedTry::Again { why, after } => (why, after),
        };
        if self.failed >= self.options.retries {
            return Err(Error::Unreachable { what: what.to_owned(), why });
        }
        (self.options.on_failure)(&format!("{what}: {why}; trying again"));
        let own = self.options.retry.saturating_mul(1 << self.failed.min(16)).min(LONGEST_WAIT);
        self.failed += 1;
        tokio::time::sleep(after.unwrap_or(own).min(LONGEST_WAIT)).await;
        Ok(())
    }
}

pub(crate) fn again(error: &reqwest::Error) -> FailedTry {
    let why = chain(error);
    // These would fail the same way again.
    if error.is_builder() || error.is_redirect() {
        let url = error.url().map(ToString::to_string).unwrap_or_default();
        return FailedTry::Final(Error::Address { url, why });
    }
    FailedTry::Again { why, after: None }
}

/// Words an error with all its causes: the outermost alone says only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    text_of(response.headers(), &RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
}

fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
