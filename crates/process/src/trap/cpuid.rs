//! The CPU that programs see: the x86-64-v2 baseline, the same on every host.
//!
//! Pure data. Leaves as in Intel's SDM volume 2, CPUID; the signature is that of a Westmere, the last family without
//! AVX, so that C libraries choose routines that fit.

/// Answer to `cpuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub eax: u32,
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
}

const fn leaf(eax: u32, ebx: u32, ecx: u32, edx: u32) -> Leaf {
    Leaf { eax, ebx, ecx, edx }
}

/// Family 6, model 0x2c, stepping 1.
const SIGNATURE: u32 = 0x0002_06c1;
/// CLFLUSH line of 64 bytes, one logical processor, APIC id 0.
const BRAND_AND_COUNT: u32 = 1 << 16 | 8 << 8;
/// SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT. Not: PCLMULQDQ, FMA, MOVBE, AES, XSAVE, OSXSAVE, AVX, F16C, RDRAND.
const FEATURES_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
/// FPU VME DE PSE TSC MSR PAE MCE CX8 APIC SEP MTRR PGE MCA CMOV PAT PSE36 CLFSH MMX FXSR SSE SSE2.
const FEATURES_EDX: u32 =
    0x1f | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 0x1f << 11 | 1 << 16 | 1 << 17 | 1 << 19 | 0xf << 23;
/// LAHF/SAHF in long mode.
const EXTENDED_ECX: u32 = 1;
/// SYSCALL, NX, RDTSCP, long mode.
const EXTENDED_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 27 | 1 << 29;

/// 48 bytes, NUL-padded.
const BRAND: [u8; 48] = {
    let text = b"Windtunnel virtual CPU";
    let mut brand = [0; 48];
    let mut i = 0;
    while i < text.len() {
        brand[i] = text[i];
        i += 1;
    }
    brand
};

/// The brand string's leaf `part` (0 to 2), as constants: handlers must not index with checks.
const fn brand(part: usize) -> Leaf {
    const fn word(at: usize) -> u32 {
        u32::from_le_bytes([BRAND[at], BRAND[at + 1], BRAND[at + 2], BRAND[at + 3]])
    }
    let at = part * 16;
    leaf(word(at), word(at + 4), word(at + 8), word(at + 12))
}
const BRAND_LEAVES: [Leaf; 3] = [brand(0), brand(1), brand(2)];

/// Leaf 4 for one cache. `kind`: 1 data, 2 instruction, 3 unified. Lines of 64 bytes, one partition, not shared.
const fn cache(kind: u32, level: u32, ways: u32, sets: u32) -> Leaf {
    const SELF_INITIALIZING: u32 = 1 << 8;
    leaf(
        kind | level << 5 | SELF_INITIALIZING,
        (ways - 1) << 22 | (64 - 1),
        sets - 1,
        0,
    )
}

/// What programs get for `cpuid` with these eax and ecx. Called by signal handlers: no panics, no memory but constants.
pub(crate) fn cpuid(eax: u32, ecx: u32) -> Leaf {
    match (eax, ecx) {
        // Highest leaf, "GenuineIntel".
        (0, _) => leaf(7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69),
        (1, _) => leaf(SIGNATURE, BRAND_AND_COUNT, FEATURES_ECX, FEATURES_EDX),
        // TLBs, and 0xff: caches are described by leaf 4.
        (2, _) => leaf(0x7603_6301, 0x00f0_b5ff, 0, 0x00c3_0000),
        (4, 0) => cache(1, 1, 8, 64),    // 32 KiB
        (4, 1) => cache(2, 1, 8, 64),    // 32 KiB
        (4, 2) => cache(3, 2, 8, 512),   // 256 KiB
        (4, 3) => cache(3, 3, 16, 8192), // 8 MiB
        (0x8000_0000, _) => leaf(0x8000_0008, 0, 0, 0),
        (0x8000_0001, _) => leaf(0, 0, EXTENDED_ECX, EXTENDED_EDX),
        (0x8000_0002, _) => BRAND_LEAVES[0],
        (0x8000_0003, _) => BRAND_LEAVES[1],
        (0x8000_0004, _) => BRAND_LEAVES[2],
        // L2: 256 KiB, 8-way (code 6), lines of 64 bytes.
        (0x8000_0006, _) => leaf(0, 0, 256 << 16 | 6 << 12 | 64, 0),
        // The time stamp counter has a constant rate.
        (0x8000_0007, _) => leaf(0, 0, 0, 1 << 8),
        // 48 bits of virtual and 46 of physical addresses.
        (0x8000_0008, _) => leaf(48 << 8 | 46, 0, 0, 0),
        // Everything else, leaf 7 among it, says "nothing".
        _ => leaf(0, 0, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_the_v2_baseline_and_no_more() {
        let features = cpuid(1, 0);
        for (name, bit) in [
            ("SSE3", 0),
            ("SSSE3", 9),
            ("CX16", 13),
            ("SSE4.1", 19),
            ("SSE4.2", 20),
            ("POPCNT", 23),
        ] {
            assert!(features.ecx >> bit & 1 == 1, "{name}");
        }
        for (name, bit) in [("FMA", 12), ("XSAVE", 26), ("OSXSAVE", 27), ("AVX", 28), ("RDRAND", 30)] {
            assert!(features.ecx >> bit & 1 == 0, "{name}");
        }
        for (name, bit) in [
            ("FPU", 0),
            ("TSC", 4),
            ("CX8", 8),
            ("CMOV", 15),
            ("MMX", 23),
            ("FXSR", 24),
            ("SSE", 25),
            ("SSE2", 26),
        ] {
            assert!(features.edx >> bit & 1 == 1, "{name}");
        }
        assert_eq!(features.edx >> 28 & 1, 0, "one logical processor");
        assert_eq!(cpuid(7, 0), leaf(0, 0, 0, 0), "no AVX2, no AVX-512, no RDSEED");
        assert_eq!(cpuid(0xd, 0), leaf(0, 0, 0, 0));
    }

    #[test]
    fn vendor_and_brand_read_as_text() {
        let vendor = cpuid(0, 0);
        let text: Vec<u8> = [vendor.ebx, vendor.edx, vendor.ecx]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(text, b"GenuineIntel");
        let brand: Vec<u8> = (0x8000_0002..=0x8000_0004)
            .map(|number| cpuid(number, 0))
            .flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx])
            .flat_map(u32::to_le_bytes)
            .collect();
        assert!(brand.starts_with(b"Windtunnel virtual CPU\0"));
    }

    #[test]
    fn cache_sizes_multiply_out_and_the_list_ends() {
        let size = |leaf: Leaf| {
            let (ways, line, sets) = ((leaf.ebx >> 22) + 1, (leaf.ebx & 0xfff) + 1, leaf.ecx + 1);
            u64::from(ways) * u64::from(line) * u64::from(sets)
        };
        let sizes: Vec<_> = (0..)
            .map(|i| cpuid(4, i))
            .take_while(|leaf| leaf.eax & 0x1f != 0)
            .map(size)
            .collect();
        assert_eq!(sizes, [32 << 10, 32 << 10, 256 << 10, 8 << 20]);
    }
}
