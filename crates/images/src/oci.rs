//! Which layers an image has: `manifest.json` of `docker save`, and the index of an OCI image layout.

use serde::Deserialize;

use crate::archive::Parts;
use crate::config::{self, Config};
use crate::digest;
use crate::error::ImageError;
use crate::tree::Kind;

const DOCKER: &str = "manifest.json";
const OCI_MARK: &str = "oci-layout";
const OCI: &str = "index.json";
/// Indexes of indexes of indexes.
const DEPTH_MAX: usize = 4;
/// Keys of names in an OCI index; the first is specified, the second containerd's.
const NAME_KEYS: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// An image that is there, its layers not looked at yet.
#[derive(Debug)]
pub(crate) struct Plan {
    pub kind: Kind,
    /// Digest of the configuration.
    pub id: String,
    pub config: Config,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

/// A layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Name of the part.
    pub part: String,
    /// Digest of the part as it is stored; none: the image does not say.
    pub stored: Option<String>,
    /// Digest of the plain tar.
    pub plain: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Debug, Deserialize)]
struct OciIndex {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// The image called `name`, or the only one; none: these parts are no image, but may be a root.
pub(crate) fn find(parts: &Parts, name: Option<&str>) -> Result<Option<Plan>, ImageError> {
    if parts.has(DOCKER)
        && let Ok(images) = serde_json::from_slice(&parts.document(DOCKER)?)
    {
        return docker(parts, images, name).map(Some);
    }
    if parts.has(OCI_MARK) && parts.has(OCI) {
        return oci(parts, name).map(Some);
    }
    Ok(None)
}

fn docker(parts: &Parts, images: Vec<DockerImage>, name: Option<&str>) -> Result<Plan, ImageError> {
    let named = images
        .into_iter()
        .map(|image| (image.repo_tags.clone().unwrap_or_default(), image));
    let image = choose(named.collect(), name)?;
    let bytes = parts.document(&image.config)?;
    let id = digest::sha256(&bytes);
    // The configuration is called by its digest: HEX.json, or blobs/sha256/HEX.
    let stem = image
        .config
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".json");
    if digest::is_hex(stem) {
        digest::expect("its configuration", stem, id.clone())?;
    }
    let layers = image.layers.into_iter().map(|part| {
        let stored = part
            .strip_prefix("blobs/sha256/")
            .filter(|hex| digest::is_hex(hex))
            .map(str::to_owned);
        (part, stored)
    });
    plan(Kind::Docker, id, &bytes, layers.collect())
}

fn oci(parts: &Parts, name: Option<&str>) -> Result<Plan, ImageError> {
    let index: OciIndex = json(OCI, &parts.document(OCI)?)?;
    let named = index.manifests.into_iter().map(|found| {
        let names = NAME_KEYS.iter().filter_map(|key| found.annotations.get(*key).cloned());
        (names.collect::<Vec<_>>(), found)
    });
    let named: Vec<_> = named.collect();
    // Without a name, one image for several platforms may be there as several.
    let chosen = match (name, named.len()) {
        (None, 2..) if named.iter().all(|(_, found)| found.platform.is_some()) => {
            let all = named.into_iter().map(|(_, found)| found).collect();
            for_our_platform(all)?
        }
        _ => choose(named, name)?,
    };
    let manifest = manifest(parts, chosen, 0)?;
    let bytes = blob(parts, &manifest.config.digest, "its configuration")?;
    let layers = manifest.layers.into_iter().map(|layer| {
        let hex = digest::parse(&layer.digest)?;
        Ok((format!("blobs/sha256/{hex}"), Some(hex.to_owned())))
    });
    let layers = layers.collect::<Result<Vec<_>, ImageError>>()?;
    plan(
        Kind::Oci,
        digest::parse(&manifest.config.digest)?.to_owned(),
        &bytes,
        layers,
    )
}

/// The manifest that a descriptor leads to, maybe by way of an index of platforms.
fn manifest(parts: &Parts, from: Descriptor, depth: usize) -> Result<OciManifest, ImageError> {
    let bytes = blob(parts, &from.digest, "its manifest")?;
    let is_index = from.media_type.contains("index") || from.media_type.contains("manifest.list");
    if !is_index {
        return json("its manifest", &bytes);
    }
    if depth == DEPTH_MAX {
        return Err(ImageError::format("its index leads to indexes without end"));
    }
    let index: OciIndex = json("its index", &bytes)?;
    manifest(parts, for_our_platform(index.manifests)?, depth + 1)
}

/// The one for linux/amd64. One that does not say is judged by its configuration.
fn for_our_platform(manifests: Vec<Descriptor>) -> Result<Descriptor, ImageError> {
    let name = |platform: &Platform| format!("{}/{}", platform.os, platform.architecture);
    let mut others = Vec::new();
    for found in manifests {
        match &found.platform {
            Some(platform) if name(platform) != "linux/amd64" => {
                // Attestations of builders are filed under this.
                if name(platform) != "unknown/unknown" {
                    others.push(name(platform));
                }
            }
            _ => return Ok(found),
        }
    }
    Err(match others.is_empty() {
        true => ImageError::format("its index is empty"),
        false => ImageError::Platform {
            found: others.join(", "),
        },
    })
}

fn choose<T>(mut images: Vec<(Vec<String>, T)>, name: Option<&str>) -> Result<T, ImageError> {
    let names = || -> Vec<String> { images.iter().flat_map(|(names, _)| names.clone()).collect() };
    let Some(wanted) = name else {
        return match images.len() {
            0 => Err(ImageError::format("it holds no image")),
            1 => Ok(images.remove(0).1),
            _ if names().is_empty() => Err(ImageError::format("it holds several images, and none has a name")),
            _ => Err(ImageError::Several { names: names() }),
        };
    };
    let at = images
        .iter()
        .position(|(names, _)| names.iter().any(|name| is_called(name, wanted)));
    match at {
        Some(at) => Ok(images.remove(at).1),
        None => Err(ImageError::NoSuchName {
            name: wanted.into(),
            names: names(),
        }),
    }
}

/// `web` means `web:latest`, and docker.io/library/web:1 is called web:1 for short, as Docker has it.
fn is_called(name: &str, wanted: &str) -> bool {
    let full = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        let name = name.strip_prefix("library/").unwrap_or(name);
        let tagged = name.rsplit('/').next().is_some_and(|last| last.contains(':'));
        if tagged {
            name.to_owned()
        } else {
            format!("{name}:latest")
        }
    };
    name == wanted || full(name) == full(wanted)
}

fn plan(kind: Kind, id: String, config: &[u8], layers: Vec<(String, Option<String>)>) -> Result<Plan, ImageError> {
    let (config, plain) = config::parse(config)?;
    if plain.len() != layers.len() {
        let text = format!(
            "its configuration tells of {} layers, its manifest of {}",
            plain.len(),
            layers.len()
        );
        return Err(ImageError::format(text));
    }
    let layer = |((part, stored), plain): ((String, Option<String>), String)| {
        let plain = digest::parse(&plain)?.to_owned();
        Ok(Layer { part, stored, plain })
    };
    let layers = layers
        .into_iter()
        .zip(plain)
        .map(layer)
        .collect::<Result<_, ImageError>>()?;
    Ok(Plan {
        kind,
        id,
        config,
        layers,
    })
}

/// A small blob, its digest checked.
fn blob(parts: &Parts, digest: &str, what: &str) -> Result<Vec<u8>, ImageError> {
    let hex = digest::parse(digest)?;
    let bytes = parts.document(&format!("blobs/sha256/{hex}"))?;
    digest::expect(what, hex, digest::sha256(&bytes))?;
    Ok(bytes)
}

fn json<T: for<'de> Deserialize<'de>>(what: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::format(format!("{what} is not as specified: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_docker_s() {
        for (name, wanted) in [
            ("web:1", "web:1"),
            ("web:latest", "web"),
            ("docker.io/library/web:1", "web:1"),
            ("1", "1"),
        ] {
            assert!(is_called(name, wanted), "{name} {wanted}");
        }
        assert!(!is_called("web:1", "web"));
        assert!(!is_called("localhost:5000/web", "localhost"));
    }
}
