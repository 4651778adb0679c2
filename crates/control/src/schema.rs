//! The JSON Schema of the protocol, made from the types that speak it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::message::{PROTOCOL, Reply, Request};

/// All messages.
#[derive(JsonSchema)]
#[schemars(rename = "Message")]
#[expect(dead_code, reason = "only its schema is used")]
enum Message {
    /// From a client to the run.
    Request(Request),
    /// From the run to a client.
    Reply(Reply),
}

/// The JSON Schema (draft 2020-12) of all messages, from which clients in other languages are made. Ends with a line feed.
pub fn json_schema() -> String {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Message>();
    schema.insert("protocol".to_owned(), PROTOCOL.into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
