//! From a file as written to a scenario with everything checked and filled in.

mod address;
mod leaf;
mod link;
mod nic;
mod node;
mod plan;
mod port;
mod process;

pub(crate) use node::memory_for_interfaces;

use std::ops::RangeInclusive;
use std::path::Path;

use sha2::{Digest, Sha256};
use windtunnel_base::{ByteSize, SimDuration, SimTime};

use crate::document::{DefaultsDoc, Document, MeasureDoc, RunDoc};
use crate::error::{ChangeError, Mark, Problem, ScenarioError};
use crate::model::{Action, Measures, Preempt, Realtime, Run, Scenario};
use crate::reader;
use crate::text::{Flexible, ShortOr, Text};

/// Kernel series that can be asked for.
const KERNELS: &[&str] = &["6.12"];

/// Seed of a run that gives none.
const DEFAULT_SEED: u64 = 1;

/// 2106-02-07T06:28:15Z: the last second of pcap files. (Kernels count to 2232, their own nanoseconds for 292 years.)
const LAST_S: u64 = u32::MAX as u64;

/// 2026-01-01T00:00:00Z.
const DEFAULT_EPOCH_S: u64 = 1_767_225_600;

/// Of each file that a program's output goes to.
const DEFAULT_OUTPUT_LIMIT: ByteSize = ByteSize::from_mib(1 << 10);
const OUTPUT_LIMIT_RANGE: RangeInclusive<ByteSize> = ByteSize(4096)..=ByteSize::from_mib(1 << 20);

impl Scenario {
    /// Reads a scenario file. `path` names it in errors; relative sources of files count from its folder.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        reader::read(text)
            .and_then(|document| resolve(&document, text, path))
            .map_err(|problem| problem.in_file(path, text))
    }

    /// A change of a link that comes while the scenario runs: the keys and values of an entry of `events`, without `at`, in JSON.
    ///
    /// # Errors
    /// What is wrong with it, what is allowed instead, and a hint.
    pub fn link_change(&self, json: &serde_json::Map<String, serde_json::Value>) -> Result<Action, ChangeError> {
        let mut event = json.clone();
        let mut read = || {
            if event.insert("at".to_owned(), "0s".into()).is_some() {
                return Err(Problem::new(
                    Mark::default(),
                    "the change has a time (`at`): it happens now",
                ));
            }
            let text = serde_json::Value::Object(event.clone()).to_string();
            link::change_alone(&reader::read_event(&text)?, &self.nodes, &self.links)
        };
        read().map_err(Problem::alone)
    }
}

fn resolve(document: &Document, text: &str, path: &Path) -> Result<Scenario, Problem> {
    if document.version.value != "1" {
        return Err(Problem::new(
            document.version.at,
            format!("version `{}` of the format is unknown", document.version.value),
        )
        .allowed("1"));
    }
    if document.nodes.value.0.is_empty() {
        let at = document.nodes.referenced.into();
        return Err(Problem::new(at, "the scenario has no nodes").hint("add at least one, as in `nodes: {h1: {}}`"));
    }
    let (run, capture_all) = run(&document.run)?;
    let defaults = DefaultsDoc::default();
    let defaults = document.defaults.as_ref().unwrap_or(&defaults);
    document
        .nodes
        .value
        .0
        .iter()
        .try_for_each(|(name, _)| node::check_name(name))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let ends = link::ends(document, port::all(document, folder)?)?;
    let settings = node::Settings {
        defaults: defaults.node.as_ref(),
        capture_all,
        folder,
        ends: &ends,
    };
    let mut nodes = node::all(&document.nodes.value, &settings)?;
    let (links, ports) = link::all(&document.links, defaults.link.as_ref(), &ends)?;
    let events = link::events(&document.events, &mut nodes, (&links, &ports), &run)?;
    plan::fill_in(document, &mut nodes, &links, &ports)?;
    let mut warnings = address::check_clashes(&document.nodes.value, &nodes, &links, &ports)?;
    warnings.extend(plan::ring_of_switches(&nodes, &links));
    process::check_times(document, &nodes, SimTime::ZERO + run.stop)?;
    let name = match &document.name {
        Some(name) => name.value.clone(),
        None => path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default(),
    };
    let sha256 = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Scenario {
        name,
        run,
        nodes,
        links,
        ports,
        events,
        warnings,
        sha256,
    })
}

impl Run {
    /// Has everything measured after each `interval`, whatever the file says.
    ///
    /// # Errors
    /// A text, when that is too short.
    pub fn set_measure(&mut self, interval: SimDuration) -> Result<(), String> {
        if interval < INTERVAL_MIN {
            return Err(format!(
                "`{interval}` is no interval for measurements; allowed: at least {INTERVAL_MIN}"
            ));
        }
        self.measure = Measures::all(interval);
        Ok(())
    }

    /// Whether all its dates can be written.
    pub fn ends_in_time(&self) -> bool {
        self.epoch_s + self.stop.as_ns() / 1_000_000_000 < LAST_S
    }
}

/// Of measurements: a shorter one would be measuring single frames, which captures do.
const INTERVAL_MIN: SimDuration = SimDuration::from_us(1);

fn interval(text: &Text) -> Result<SimDuration, Problem> {
    let interval: SimDuration = leaf::quantity(text)?;
    if interval < INTERVAL_MIN {
        return Err(
            Problem::new(text.at, format!("`{}` is no interval for measurements", text.value))
                .allowed(format!("at least {INTERVAL_MIN}"))
                .hint("`capture: all` records every frame"),
        );
    }
    Ok(interval)
}

fn measures(doc: &Flexible<MeasureDoc>) -> Result<Measures, Problem> {
    let each = |text: &Option<Text>| text.as_ref().map(interval).transpose();
    match &doc.shape {
        ShortOr::Short(value) => {
            let text = Text {
                value: value.clone(),
                at: doc.at,
            };
            interval(&text).map(Measures::all)
        }
        ShortOr::Long(doc) => Ok(Measures {
            links: each(&doc.links)?,
            tcp: each(&doc.tcp)?,
            mptcp: each(&doc.mptcp)?,
            qdiscs: each(&doc.qdiscs)?,
        }),
    }
}

/// Longest busy wait: a longer one would be a processor of its own, which the scheduler does not give for ever.
const SPIN_MAX: SimDuration = SimDuration::from_ms(1);

fn realtime(doc: &RunDoc, stop: SimDuration) -> Result<Realtime, Problem> {
    let mode = doc.mode.as_ref();
    let mode = mode.map(|mode| leaf::one_of(mode, "a mode that exists", &["virtual", "realtime"]));
    let wanted = mode.transpose()?.map(|mode| mode == 1);
    let usual = Realtime::default();
    let live_at: SimDuration = leaf::optional(&doc.live_at)?.unwrap_or(usual.live_at);
    if let Some(text) = &doc.live_at {
        if wanted == Some(false) {
            return Err(
                Problem::new(text.at, "a run in virtual time never goes with the wall clock")
                    .hint("leave out `mode: virtual`"),
            );
        }
        if live_at >= stop {
            return Err(
                Problem::new(text.at, format!("`{}` is not before the end of the run", text.value))
                    .allowed(format!("less than `stop`, {stop}")),
            );
        }
    }
    let spin: SimDuration = leaf::optional(&doc.spin)?.unwrap_or(usual.spin);
    if let Some(text) = doc.spin.as_ref().filter(|_| spin > SPIN_MAX) {
        return Err(
            Problem::new(text.at, format!("`{}` is too long to wait awake", text.value))
                .allowed(format!("at most {SPIN_MAX}")),
        );
    }
    Ok(Realtime {
        wanted: wanted.unwrap_or(doc.live_at.is_some()),
        live_at,
        late_limit: leaf::optional(&doc.late_limit)?.unwrap_or(usual.late_limit),
        spin,
        priority: doc.priority.unwrap_or(usual.priority),
        record: doc.record.unwrap_or(usual.record),
    })
}

/// The run, and whether all interfaces are captured.
fn run(doc: &RunDoc) -> Result<(Run, bool), Problem> {
    let stop: SimDuration = leaf::quantity(&doc.stop)?;
    let seed = match &doc.seed {
        Some(seed) => leaf::number(seed, "a seed", 0..=u64::MAX)?,
        None => DEFAULT_SEED,
    };
    let epoch_s = doc
        .epoch
        .as_ref()
        .map(leaf::epoch)
        .transpose()?
        .unwrap_or(DEFAULT_EPOCH_S);
    let preempt = match &doc.preempt {
        Some(preempt) => {
            let choice = leaf::one_of(preempt, "a choice of preemption", &["auto", "spin", "off"])?;
            [Preempt::Auto, Preempt::Spin, Preempt::Off][choice]
        }
        None => Preempt::default(),
    };
    let run = Run {
        measure: doc.measure.as_ref().map(measures).transpose()?.unwrap_or_default(),
        stop,
        seed,
        epoch_s,
        epoch_ns: 0,
        output_limit_bytes: node::amount(
            doc.output_limit.as_ref(),
            "a limit for a program's output",
            DEFAULT_OUTPUT_LIMIT,
            OUTPUT_LIMIT_RANGE,
        )?,
        preempt,
        pcapng: doc.pcapng.unwrap_or(false),
        isolate: doc.isolate.unwrap_or(false),
        realtime: realtime(doc, stop)?,
    };
    if !run.ends_in_time() {
        let text = doc.epoch.as_ref().unwrap_or(&doc.stop);
        return Err(
            Problem::new(text.at, "the run would go on after the last date of pcap files")
                .allowed("`epoch` and `stop` that add up to 2106-02-07 at most"),
        );
    }
    let capture = match &doc.capture {
        Some(capture) => leaf::one_of(capture, "a choice of captures", &["none", "all"])? == 1,
        None => false,
    };
    Ok((run, capture))
}
