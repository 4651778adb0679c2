//! Network interface controllers: what kinds there are, and what an interface says in their place.
//!
//! Numbers are those of Linux 6.12's drivers as they are loaded; docs/nics.md says where each stands.

use windtunnel_base::{ByteSize, SimDuration};

use super::leaf;
use crate::document::InterfaceDoc;
use crate::error::Problem;
use crate::model::{Nic, NicModel, Offload};
use crate::text::Text;

const MODELS: [NicModel; 5] = [
    NicModel::Ideal,
    NicModel::Virtio,
    NicModel::E1000e,
    NicModel::Igb,
    NicModel::Mlx5,
];

/// What the engine keeps departure times for (WT_NIC_RING in kernel/include/windtunnel/boundary.h).
const TX_RING_MAX: u64 = 1024;
/// The longest ring that a driver of a model takes, mlx5's; WT_NIC_RX_RING_MAX.
const RX_RING_MAX: u64 = 8192;
/// Longer would be a mistake; WT_NIC_GAP_MAX.
const GAP_MAX: SimDuration = SimDuration::from_ms(100);
/// A kernel's page takes more than any frame; what is beyond would be a mistake.
const RX_BUFFER_MAX: ByteSize = ByteSize(1 << 16);
/// From a few segments to what Linux makes without BIG TCP.
const GSO_SIZES: std::ops::RangeInclusive<ByteSize> = ByteSize(4096)..=ByteSize(1 << 16);

/// A model as its driver sets it up.
fn preset(model: NicModel) -> Nic {
    use Offload::{Absent, Off, On};
    let plain = Nic {
        model,
        rx_ring: Some(256),
        tx_ring: 256,
        bql: true,
        rx_buffer: 0,
        rx_copybreak: 0,
        tx_checksum: On,
        rx_checksum: On,
        tso: On,
        tso_ecn: Absent,
        tso_mangleid: Absent,
        uso: On,
        fraglist: Absent,
        gso: true,
        gro: true,
        gso_max_size: None,
        interrupt_gap: SimDuration::ZERO,
        interrupt_frames: None,
    };
    match model {
        NicModel::Ideal => Nic {
            rx_ring: None,
            tso_ecn: On,
            tso_mangleid: On,
            fraglist: On,
            ..plain
        },
        NicModel::Virtio => Nic {
            rx_buffer: 2816,
            rx_copybreak: 1204,
            tso_ecn: On,
            uso: Off,
            ..plain
        },
        NicModel::E1000e => Nic {
            rx_buffer: 2176,
            rx_copybreak: 255,
            uso: Absent,
            interrupt_gap: SimDuration::from_us(50),
            ..plain
        },
        NicModel::Igb => Nic {
            rx_buffer: 2304,
            interrupt_gap: SimDuration::from_us(49),
            ..plain
        },
        NicModel::Mlx5 => Nic {
            rx_ring: Some(1024),
            tx_ring: 1024,
            interrupt_gap: SimDuration::from_us(8),
            interrupt_frames: Some(128),
            ..plain
        },
    }
}

/// The NIC of an interface: its own model, else the default one, with what the interface says in its place.
pub(super) fn nic(doc: &InterfaceDoc, default: Option<&Text>) -> Result<Nic, Problem> {
    let model = match doc.model.as_ref().or(default) {
        Some(text) => MODELS[leaf::one_of(text, "a model of a NIC", &MODELS.map(NicModel::name))?],
        None => NicModel::Ideal,
    };
    let mut nic = preset(model);
    if let Some(text) = &doc.rx_ring {
        nic.rx_ring = Some(leaf::number(text, "a length of a receive ring, in frames", 1..=RX_RING_MAX)? as u32);
    }
    if let Some(text) = &doc.tx_ring {
        nic.tx_ring = leaf::number(text, "a length of a transmit ring, in frames", 1..=TX_RING_MAX)? as u32;
    }
    if let Some(text) = &doc.rx_buffer {
        let none = ByteSize(0);
        nic.rx_buffer = size(text, "memory of a received frame", none..=RX_BUFFER_MAX)?;
    }
    if let Some(text) = &doc.rx_copybreak {
        let none = ByteSize(0);
        nic.rx_copybreak = size(text, "the length of a frame that is copied", none..=RX_BUFFER_MAX)?;
    }
    if let Some(text) = &doc.gso_max_size {
        nic.gso_max_size = Some(size(text, "the length of a packet to be cut", GSO_SIZES)?);
    }
    if let Some(text) = &doc.interrupt_gap {
        nic.interrupt_gap = leaf::quantity(text)?;
        if nic.interrupt_gap > GAP_MAX {
            let message = format!("`{}` is not a gap between interrupts", text.value);
            return Err(Problem::new(text.at, message).allowed(format!("at most {GAP_MAX}")));
        }
    }
    if let Some(text) = &doc.interrupt_frames {
        let frames = leaf::number(
            text,
            "a number of frames that do not wait for an interrupt",
            1..=RX_RING_MAX,
        )?;
        nic.interrupt_frames = Some(frames as u32);
    }
    nic.bql = doc.bql.unwrap_or(nic.bql);
    nic.gso = doc.gso.unwrap_or(nic.gso);
    nic.gro = doc.gro.unwrap_or(nic.gro);
    offloads(&mut nic, doc)?;
    Ok(nic)
}

/// Cutting needs checksums: of the pieces, the NIC alone knows them.
fn offloads(nic: &mut Nic, doc: &InterfaceDoc) -> Result<(), Problem> {
    if doc.tx_checksum.as_ref().is_some_and(|on| !on.value) {
        for (name, cuts) in [("tso", &doc.tso), ("uso", &doc.uso)] {
            if let Some(cuts) = cuts.as_ref().filter(|cuts| cuts.value) {
                let at = cuts.referenced.into();
                return Err(Problem::new(at, format!("`{name}: true` beside `tx_checksum: false`"))
                    .hint("a NIC that cuts packets fills in the checksums of the pieces: leave one of them out"));
            }
        }
        for cuts in [&mut nic.tso, &mut nic.tso_ecn, &mut nic.tso_mangleid, &mut nic.uso] {
            cuts.set(Some(false));
        }
    }
    nic.tx_checksum.set(doc.tx_checksum.as_ref().map(|on| on.value));
    nic.rx_checksum.set(doc.rx_checksum);
    let tso = doc.tso.as_ref().map(|on| on.value);
    nic.tso.set(tso);
    for kind in [&mut nic.tso_ecn, &mut nic.tso_mangleid] {
        // Without TSO there is none of its kinds; with it, those that the model has.
        kind.set(tso.filter(|on| !on));
    }
    nic.uso.set(doc.uso.as_ref().map(|on| on.value));
    Ok(())
}

fn size(text: &Text, what: &str, range: std::ops::RangeInclusive<ByteSize>) -> Result<u32, Problem> {
    let bytes = super::node::amount(Some(text), what, *range.start(), range)?;
    Ok(u32::try_from(bytes).expect("the range is below 4 GiB"))
}

impl Default for Nic {
    /// That of an interface of which the scenario says nothing.
    fn default() -> Self {
        preset(NicModel::Ideal)
    }
}
