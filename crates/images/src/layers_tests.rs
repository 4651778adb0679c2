//! Layers, and archives that mean harm.

use proptest::prelude::*;
use tar::{Builder, Header};

use super::*;

/// What a tar is made of: path, and what it is.
#[derive(Clone, Debug)]
enum Part {
    Dir(u32),
    File(&'static str),
    Link(String),
    Hard(String),
    Device,
}

fn raw_path(header: &mut Header, path: &str) {
    // `set_path` would refuse what is to be tested here.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
}

fn tar(parts: &[(&str, Part)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, part) in parts {
        let mut header = Header::new_gnu();
        raw_path(&mut header, path);
        header.set_mode(0o640);
        header.set_uid(33);
        header.set_gid(44);
        header.set_mtime(7);
        header.set_size(0);
        let mut data: &[u8] = b"";
        let link = |header: &mut Header, kind, target: &str| {
            header.set_entry_type(kind);
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        };
        match part {
            Part::Dir(mode) => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(*mode);
            }
            Part::File(text) => {
                data = text.as_bytes();
                header.set_size(data.len() as u64);
            }
            Part::Link(target) => link(&mut header, EntryType::Symlink, target),
            Part::Hard(target) => link(&mut header, EntryType::Link, target),
            Part::Device => header.set_entry_type(EntryType::Char),
        }
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// The tree as lines: path, mode, and text, target or nothing.
fn shown(layers: Layers<'_>) -> Vec<String> {
    let contents = layers.contents.clone();
    let (entries, _) = layers.finish();
    let mut paths: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for entry in &entries {
        let name = String::from_utf8_lossy(&entry.name);
        let parent = paths.get(entry.parent as usize).cloned().unwrap_or_default();
        let path = if paths.is_empty() {
            String::new()
        } else {
            format!("{parent}/{name}")
        };
        let what = match &entry.data {
            Data::Directory => "/".to_owned(),
            Data::File { content, .. } => std::fs::read_to_string(contents.join(content.to_string())).unwrap(),
            Data::Link(target) => format!("-> {}", String::from_utf8_lossy(target)),
        };
        lines.push(format!("{path} {:o} {what}", entry.permissions));
        paths.push(path);
    }
    lines.remove(0);
    lines
}

static GO_ON: AtomicBool = AtomicBool::new(false);

fn stack(layers: &[&[(&str, Part)]]) -> Result<Vec<String>, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Layers::new(folder.path().into(), &GO_ON);
    for layer in layers {
        all.apply(&mut &tar(layer)[..], Names::Layer)?;
    }
    Ok(shown(all))
}

fn text(text: &'static str) -> Part {
    Part::File(text)
}

fn link(target: &str) -> Part {
    Part::Link(target.into())
}

fn hard(target: &str) -> Part {
    Part::Hard(target.into())
}

const DIR: Part = Part::Dir(0o750);

#[test]
fn upper_layers_replace_and_take_away() {
    let lower: &[(&str, Part)] = &[
        ("a/", DIR),
        ("a/keep", text("1")),
        ("a/gone", text("1")),
        ("a/changed", text("1")),
        ("tree/deep/file", text("1")),
        ("over", text("1")),
        ("under/x", text("1")),
    ];
    let upper: &[(&str, Part)] = &[
        ("./a/.wh.gone", text("")),
        ("a/changed", text("2")),
        (".wh.tree", text("")),
        ("over/new", text("2")),
        ("under", text("2")),
        ("a/.wh.never-there", text("")),
        (".wh..wh.plnk/17.4", text("")),
    ];
    // A folder in place of a file has to say so.
    assert!(
        stack(&[lower, upper])
            .unwrap_err()
            .to_string()
            .contains("`over`, which is a file")
    );
    let upper: Vec<_> = upper.iter().filter(|(path, _)| *path != "over/new").cloned().collect();
    let upper = [&upper[..], &[("over", DIR), ("over/new", text("2"))]].concat();
    assert_eq!(
        stack(&[lower, &upper]).unwrap(),
        [
            "/a 750 /",
            "/a/changed 640 2",
            "/a/keep 640 1",
            "/over 750 /",
            "/over/new 640 2",
            "/under 640 2"
        ]
    );
}

#[test]
fn whiteouts_strike_lower_layers_only_wherever_they_stand() {
    let lower: &[(&str, Part)] = &[
        ("d", DIR),
        ("d/old", text("1")),
        ("d/sub", DIR),
        ("d/sub/old", text("1")),
    ];
    let opaque = ("d/.wh..wh..opq", text(""));
    let news = [("d", Part::Dir(0o700)), ("d/new", text("2")), ("d/sub/new", text("2"))];
    let first = [&[opaque.clone()][..], &news].concat();
    let last = [&news[..], &[opaque]].concat();
    let expected = ["/d 700 /", "/d/new 640 2", "/d/sub 755 /", "/d/sub/new 640 2"];
    assert_eq!(stack(&[lower, &first]).unwrap(), expected);
    assert_eq!(stack(&[lower, &last]).unwrap(), expected);
    for upper in [
        [("d/.wh.old", text("")), ("d/old", text("2"))],
        [("d/old", text("2")), ("d/.wh.old", text(""))],
    ] {
        let found = stack(&[&lower[..2], &upper]).unwrap();
        assert_eq!(found, ["/d 750 /", "/d/old 640 2"]);
    }
    let later: &[(&str, Part)] = &[("e", text("3"))];
    assert_eq!(stack(&[lower, &[(".wh.d", text(""))], later]).unwrap(), ["/e 640 3"]);
}

#[test]
fn a_plain_root_has_no_whiteouts() {
    let folder = tempfile::tempdir().unwrap();
    let mut layers = Layers::new(folder.path().into(), &GO_ON);
    layers
        .apply(&mut &tar(&[("a", text("1")), (".wh.a", text(""))])[..], Names::Plain)
        .unwrap();
    assert_eq!(shown(layers), ["/.wh.a 640 ", "/a 640 1"]);
}

#[test]
fn links_are_kept_and_lead_to_places_in_the_tree() {
    let lower: &[(&str, Part)] = &[
        ("usr/lib", DIR),
        ("lib", link("usr/lib")),
        ("abs", link("/usr")),
        ("out", link("../../../../../../tmp")),
        ("lib/one", text("1")),
        ("abs/two", hard("lib/one")),
        ("three", hard("/out-of-date/../usr/lib/one")),
    ];
    let found = stack(&[&lower[..6], &[("out/inside", text("2")), ("usr/lib/one", text("3"))]]).unwrap();
    assert_eq!(
        found,
        [
            "/abs 640 -> /usr",
            "/lib 640 -> usr/lib",
            "/out 640 -> ../../../../../../tmp",
            "/tmp 755 /",
            "/tmp/inside 640 2",
            "/usr 755 /",
            "/usr/lib 750 /",
            "/usr/lib/one 640 3",
            "/usr/two 640 1",
        ]
    );
    assert!(
        stack(&[lower])
            .unwrap_err()
            .to_string()
            .contains("leads out of the archive")
    );
    let loops: &[(&str, Part)] = &[("a", link("b")), ("b", link("a")), ("a/x", text(""))];
    assert!(
        stack(&[loops])
            .unwrap_err()
            .to_string()
            .contains("too many symbolic links")
    );
    let nothing: &[(&str, Part)] = &[("a", hard("b"))];
    let error = stack(&[nothing]).unwrap_err().to_string();
    assert_eq!(error, "`a` is a hard link to `b`, which is not there");
}

#[test]
fn names_that_lead_out_are_refused() {
    for path in ["../x", "a/../../x", "/../x", ".."] {
        let error = stack(&[&[(path, text("x"))]]).unwrap_err().to_string();
        assert_eq!(error, format!("the path `{path}` leads out of the archive"));
    }
    assert_eq!(
        stack(&[&[("/etc/passwd", text("x"))]]).unwrap(),
        ["/etc 755 /", "/etc/passwd 640 x"]
    );
}

#[test]
fn owners_dates_and_root_are_as_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut layers = Layers::new(folder.path().into(), &GO_ON);
    let mut builder = Builder::new(Vec::new());
    builder
        .append_pax_extensions([("mtime", &b"12.000000034"[..]), ("uid", b"3000000")])
        .unwrap();
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Directory);
    raw_path(&mut header, "./");
    header.set_mode(0o1777);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, &b""[..]).unwrap();
    layers
        .apply(&mut &builder.into_inner().unwrap()[..], Names::Plain)
        .unwrap();
    let (entries, _) = layers.finish();
    let root = &entries[0];
    assert_eq!(
        (root.permissions, root.uid, root.gid, root.mtime_ns),
        (0o1777, 3_000_000, 2, 12_000_000_034)
    );
}

#[test]
fn what_is_cut_off_is_an_error() {
    let bytes = tar(&[("a", text("some text")), ("b", text("more"))]);
    let folder = tempfile::tempdir().unwrap();
    let mut layers = Layers::new(folder.path().into(), &GO_ON);
    let error = layers.apply(&mut &bytes[..515], Names::Plain).unwrap_err().to_string();
    assert!(error.contains("cut off") || error.contains("cannot be read"), "{error}");
}

#[test]
fn a_stop_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(true);
    let mut layers = Layers::new(folder.path().into(), &stop);
    let result = layers.apply(&mut &tar(&[("a", text("1"))])[..], Names::Plain);
    assert!(matches!(result, Err(ImageError::Interrupted)));
}

fn any_path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "..", ".", "", ".wh.a", ".wh..wh..opq", "x"]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(DIR),
        Just(text("t")),
        any_path().prop_map(Part::Link),
        any_path().prop_map(|path| Part::Link(format!("/{path}"))),
        any_path().prop_map(Part::Hard),
        Just(Part::Device),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever an archive says: files come into being only in the folder of contents, under numbers, and the tree is
    /// one that can be stored.
    #[test]
    fn nothing_is_written_elsewhere(
        layers in prop::collection::vec(prop::collection::vec((any_path(), any_part()), 0..8), 1..4),
        flip in prop::option::of((0_usize..4096, 1_u8..=255)),
    ) {
        let outside = tempfile::tempdir().unwrap();
        let contents = outside.path().join("deep/er/files");
        std::fs::create_dir_all(&contents).unwrap();
        let mut all = Layers::new(contents.clone(), &GO_ON);
        for layer in &layers {
            let parts: Vec<(&str, Part)> = layer.iter().map(|(path, part)| (path.as_str(), part.clone())).collect();
            let mut bytes = tar(&parts);
            if let Some((at, bits)) = flip {
                let at = at % bytes.len();
                bytes[at] ^= bits;
            }
            // An error is as good: it must only do no harm.
            let _ = all.apply(&mut &bytes[..], Names::Layer);
        }
        let (entries, _) = all.finish();
        for (index, entry) in entries.iter().enumerate().skip(1) {
            prop_assert!((entry.parent as usize) < index);
            prop_assert!(!entry.name.is_empty() && *entry.name != *b".." && !entry.name.contains(&b'/'));
        }
        let names = |path: &std::path::Path| -> Vec<String> {
            let entries = std::fs::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        prop_assert!(names(&contents).iter().all(|name| name.parse::<u32>().is_ok()));
        prop_assert_eq!(names(outside.path()), ["deep"]);
        prop_assert_eq!(names(&outside.path().join("deep")), ["er"]);
        prop_assert_eq!(names(&outside.path().join("deep/er")), ["files"]);
    }
}
