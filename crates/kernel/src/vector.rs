//! How much vector state a program thread has.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

/// XCR0 bits a kernel keeps for programs at most: x87, SSE, AVX and AVX-512. Without protection keys, which programs
/// do not get, and without AMX, whose 8 KiB a thread nobody asked for.
const KEPT: u64 = 0b1110_0111;
const CPUID_1_ECX_OSXSAVE: u32 = 1 << 27;

/// The vector state a kernel saves per program thread, for `wt_boot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorState {
    /// XCR0 bits; 0: FXSAVE only.
    pub mask: u64,
    /// Bytes of an XSAVEC area with that mask; 0 with mask 0.
    pub size_bytes: u64,
}

impl VectorState {
    /// x87 and SSE: all that programs see where cpuid faults.
    pub const FXSAVE_ONLY: Self = Self { mask: 0, size_bytes: 0 };

    /// Everything programs could use where a cpuid may reach the processor. Ask before cpuid faults on this thread.
    pub fn of_this_cpu() -> Self {
        if __cpuid(0).eax < 0xd || __cpuid(1).ecx & CPUID_1_ECX_OSXSAVE == 0 {
            return Self::FXSAVE_ONLY;
        }
        let xsavec = __cpuid_count(0xd, 1).eax & 0b10 != 0;
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE is set, so xgetbv may be used; it reads XCR0.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
        let mask = (u64::from(high) << 32 | u64::from(low)) & KEPT;
        if !xsavec || mask & !0b11 == 0 {
            return Self::FXSAVE_ONLY;
        }
        // Legacy area and header, then the components in order, packed (Intel SDM volume 1, 13.4.3).
        let mut size_bytes = 512 + 64;
        for component in (2..63).filter(|component| mask >> component & 1 == 1) {
            let leaf = __cpuid_count(0xd, component);
            if leaf.ecx & 0b10 != 0 {
                size_bytes = u64::next_multiple_of(size_bytes, 64);
            }
            size_bytes += u64::from(leaf.eax);
        }
        Self { mask, size_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_fits_the_mask() {
        let state = VectorState::of_this_cpu();
        assert_eq!(state.mask & !KEPT, 0);
        if state == VectorState::FXSAVE_ONLY {
            return;
        }
        // AVX is 256 bytes; AVX-512 adds 64 + 512 + 1024.
        let expected = 576 + 256 + if state.mask & 0xe0 == 0xe0 { 1600 } else { 0 };
        assert_eq!(state.size_bytes, expected);
    }
}
