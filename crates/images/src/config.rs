//! What an image says of its programs.

use serde::{Deserialize, Serialize};

use crate::error::ImageError;

/// The part of an image's configuration that is about its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// `ENV`: names and values, in order.
    pub env: Vec<(String, String)>,
    /// `USER`, as written: a name or user id, with a group behind a colon if there is one.
    pub user: Option<String>,
    /// `WORKDIR`, absolute.
    pub working_dir: Option<String>,
    /// `ENTRYPOINT`.
    pub entrypoint: Vec<String>,
    /// `CMD`: what the entrypoint is given, or the program where there is none.
    pub cmd: Vec<String>,
}

/// The JSON of the OCI image specification (config.md), which Docker's is alike.
#[derive(Debug, Deserialize)]
struct Document {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<Programs>,
    rootfs: Option<RootFs>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Programs {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// What a configuration says: of programs, and the digests of the plain layers in order.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Config, Vec<String>), ImageError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| ImageError::format(format!("its configuration is not as specified: {error}")))?;
    let (os, architecture) = (document.os.as_deref(), document.architecture.as_deref());
    check_platform(os.unwrap_or_default(), architecture.unwrap_or_default())?;
    let programs = document.config.unwrap_or_default();
    let pairs = programs
        .env
        .unwrap_or_default()
        .into_iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (pair, String::new()),
        });
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let working_dir = given(programs.working_dir).map(|dir| match dir.starts_with('/') {
        true => dir,
        false => format!("/{dir}"),
    });
    let config = Config {
        env: pairs.collect(),
        user: given(programs.user),
        working_dir,
        entrypoint: programs.entrypoint.unwrap_or_default(),
        cmd: programs.cmd.unwrap_or_default(),
    };
    Ok((
        config,
        document.rootfs.map(|rootfs| rootfs.diff_ids).unwrap_or_default(),
    ))
}

/// Empty: not told, as builders from scratch leave it.
fn check_platform(os: &str, architecture: &str) -> Result<(), ImageError> {
    if matches!(os, "" | "linux") && matches!(architecture, "" | "amd64") {
        return Ok(());
    }
    Err(ImageError::Platform {
        found: format!("{os}/{architecture}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_docker_writes() {
        let text = r#"{"architecture":"amd64","os":"linux","created":"2026-01-01T00:00:00Z",
            "config":{"Hostname":"","User":"nginx","Env":["PATH=/usr/bin:/bin","EMPTY=","A=b=c"],"Cmd":["nginx","-g"],
            "WorkingDir":"srv","Entrypoint":null,"Labels":{}},"rootfs":{"type":"layers","diff_ids":["sha256:00"]}}"#;
        let (config, layers) = parse(text.as_bytes()).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            config.env,
            [pair("PATH", "/usr/bin:/bin"), pair("EMPTY", ""), pair("A", "b=c")]
        );
        assert_eq!(
            (config.user.as_deref(), config.working_dir.as_deref()),
            (Some("nginx"), Some("/srv"))
        );
        assert_eq!(
            (config.entrypoint.len(), config.cmd.join(" ")),
            (0, "nginx -g".to_owned())
        );
        assert_eq!(layers, ["sha256:00"]);
    }

    #[test]
    fn foreign_machines_are_named() {
        let error = parse(br#"{"architecture":"arm64","os":"linux"}"#).unwrap_err();
        assert_eq!(error.to_string(), "it is for linux/arm64; nodes run linux/amd64");
        assert!(error.hint().unwrap().contains("--platform linux/amd64"));
        assert!(parse(b"{}").is_ok(), "an image from scratch may not say");
        assert!(parse(b"[").is_err());
    }
}
