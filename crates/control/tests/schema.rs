//! The published schema of the protocol is that of the types.

use std::fs;
use std::path::Path;

use windtunnel_control::{PROTOCOL, json_schema};

#[test]
fn the_schema_checked_in_is_current() {
    let name = format!("schema/protocol-v{PROTOCOL}.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&name);
    if std::env::var_os("WINDTUNNEL_BLESS").is_some() {
        fs::write(&path, json_schema()).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == json_schema(),
        "run this test with WINDTUNNEL_BLESS=1 to write {name} anew"
    );
}
