//! The JSON Schema of a scenario file, made from the types that read it.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::document::Document;

/// The JSON Schema (draft 2020-12) of scenario files, for editors. It covers names, shapes and units; what needs the
/// whole file (known nodes, address clashes) only [`crate::Scenario::parse`] finds. Ends with a line feed.
pub fn json_schema() -> String {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Document>();
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

/// Declares stand-ins for texts of a certain form, to be named in `schemars(with = ...)`.
macro_rules! text_schema {
    ($($name:ident: $pattern:literal, $description:literal;)*) => {$(
        pub(crate) struct $name;
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schemars::json_schema!({"type": "string", "pattern": $pattern, "description": $description})
            }
        }
    )*};
}

text_schema! {
    DurationText: r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|min|h)$", "A span of virtual time, for instance 5ms.";
    RateText: r"^[0-9]+(\.[0-9]+)?(bit|kbit|Mbit|Gbit|Tbit)$", "Bits per second, for instance 10Mbit.";
    ByteCostText: r"^[0-9]+(\.[0-9]+)?(ps/B|ns/B|us/B)$", "Time per byte, for instance 0.1ns/B.";
    SizeText: r"^[0-9]+(\.[0-9]+)?(B|kB|MB|GB|KiB|MiB|GiB)$", "An amount of data, for instance 64MiB.";
    ProbabilityText: r"^[0-9]+(\.[0-9]+)?(%|ppm|ppb)$", "A probability, for instance 0.01%.";
    QueueText: r"^(nic|[0-9]+p|[0-9]+(\.[0-9]+)?(B|kB|MB|GB|KiB|MiB|GiB))$",
        "nic (the sender's own queue), packets as in 100p, or bytes as in 64kB.";
    EndpointText: r"^[^:]+(:[^:]+)?$", "An interface of a node, for instance h1:eth0, or the name of a port.";
    EpochText: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$",
        "A date, or date and time in UTC: 2026-01-01 or 2026-01-01T12:00:00Z.";
    MacText: r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$", "An Ethernet address, for instance 02:00:00:00:00:01.";
}

/// A number or a text: for values that are written either way.
pub(crate) struct Scalar;

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": ["string", "number"]})
    }
}
