"""CPUs of aarch64 and their features, as LLVM knows them; made by ``tools/cpu_tables.py``.

A line of ``IMPLIED`` is a feature and what it brings, one of ``CPUS`` a CPU and what
it has that no other of its features brings. ``OTHERS`` are features that are not about
instructions, or about none that matter here.
"""

LLVM_VERSION = (22, 1, 0)

IMPLIED = """
aes: neon
bf16: neon
complxnum: neon
crc:
crypto: aes sha2
cssc:
dotprod: neon
f16f32dot: fullfp16 neon
f16f32mm: fullfp16 neon
f16mm: fullfp16
f32mm: sve
f64mm: sve
faminmax: neon
flagm:
fp-armv8:
fp16fml: fullfp16 neon
fp8: neon
fp8dot2: fp8
fp8dot4: fp8
fp8fma: fp8
fptoint: fp-armv8
fullfp16: fp-armv8
i8mm: neon
jsconv: fp-armv8
lse:
lse128: lse
lse2:
lut: neon
mops:
mops-go: mops
neon: fp-armv8
rcpc:
rcpc-immo: rcpc
rcpc3: rcpc-immo
rdm: neon
sha2: neon
sha3: sha2
sm4: neon
sme: bf16 fullfp16
sme-b16b16: sme2 sve-b16b16
sme-f16f16: sme2
sme-f64f64: sme
sme-f8f16: fp8 sme2
sme-f8f32: fp8 sme2
sme-fa64: sme sve2
sme-i16i64: sme
sme-lutv2: sme2
sme-mop4: sme2
sme-tmop: sme2
sme2: sme
sme2p1: sme2
sme2p2: sme2p1
sme2p3: sme2p2
ssve-aes: sme2 sve-aes
ssve-bitperm: sme2 sve-bitperm
ssve-fexpa: sme2
ssve-fp8dot2: fp8 sme2
ssve-fp8dot4: fp8 sme2
ssve-fp8fma: fp8 sme2
sve: fullfp16
sve-aes: aes
sve-aes2:
sve-b16b16:
sve-b16mm: sve
sve-bfscale:
sve-bitperm:
sve-f16f32mm: sve
sve-sha3: sha3
sve-sm4: sm4
sve2: sve
sve2-aes: sve-aes sve2
sve2-bitperm: sve-bitperm sve2
sve2-sha3: sve-sha3 sve2
sve2-sm4: sve-sm4 sve2
sve2p1: sve2
sve2p2: sve2p1
sve2p3: sve2p2
v8.1a: crc lse rdm v8a
v8.2a: v8.1a
v8.3a: complxnum jsconv rcpc v8.2a
v8.4a: dotprod flagm lse2 rcpc-immo v8.3a
v8.5a: fptoint v8.4a
v8.6a: bf16 i8mm v8.5a
v8.7a: v8.6a
v8.8a: mops v8.7a
v8.9a: cssc v8.8a
v8a:
v9.1a: v8.6a v9a
v9.2a: v8.7a v9.1a
v9.3a: v8.8a v9.2a
v9.4a: v8.9a v9.3a
v9.5a: v9.4a
v9.6a: v9.5a
v9.7a: sve2p3 v9.6a
v9a: v8.5a
"""

CPUS = """
a64fx: aes complxnum sha2 sve v8.2a
ampere1: aes fullfp16 sha3 v8.6a
ampere1a: aes fullfp16 sha3 sm4 v8.6a
ampere1b: aes cssc fullfp16 sha3 sm4 v8.7a
ampere1c: cssc faminmax fp16fml fp8fma lut sve-aes sve-b16b16 sve-sha3 sve-sm4 sve2 v9.2a
apple-a10: aes crc rdm sha2 v8a
apple-a11: aes fullfp16 sha2 v8.2a
apple-a12: aes fullfp16 sha2 v8.3a
apple-a13: aes fp16fml sha3 v8.4a
apple-a14: aes fp16fml fptoint sha3 v8.4a
apple-a15: aes fp16fml sha3 v8.6a
apple-a16: aes fp16fml sha3 v8.6a
apple-a17: aes fp16fml sha3 v8.6a
apple-a18: aes fp16fml sha3 sme-f64f64 sme-i16i64 sme2 v8.7a
apple-a19: aes cssc fp16fml sha3 sme-b16b16 sme-f16f16 sme-f64f64 sme-i16i64 sme2p1 v8.7a
apple-a7: aes sha2 v8a
apple-a8: aes sha2 v8a
apple-a9: aes sha2 v8a
apple-m1: aes fp16fml fptoint sha3 v8.4a
apple-m2: aes fp16fml sha3 v8.6a
apple-m3: aes fp16fml sha3 v8.6a
apple-m4: aes fp16fml sha3 sme-f64f64 sme-i16i64 sme2 v8.7a
apple-m5: aes cssc fp16fml sha3 sme-b16b16 sme-f16f16 sme-f64f64 sme-i16i64 sme2p1 v8.7a
apple-s10: aes fp16fml sha3 v8.6a
apple-s4: aes fullfp16 sha2 v8.3a
apple-s5: aes fullfp16 sha2 v8.3a
apple-s6: aes fp16fml sha3 v8.4a
apple-s7: aes fp16fml sha3 v8.4a
apple-s8: aes fp16fml sha3 v8.4a
apple-s9: aes fp16fml sha3 v8.6a
c1-nano: fp16fml rcpc3 sme2 sve-bitperm sve2 v9.3a
c1-premium: fp16fml rcpc3 sme2 sve-bitperm sve2 v9.3a
c1-pro: fp16fml rcpc3 sme2 sve-bitperm sve2 v9.3a
c1-ultra: fp16fml rcpc3 sme2 sve-bitperm sve2 v9.3a
carmel: aes fullfp16 sha2 v8.2a
cobalt-100: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-a320: fp16fml sve-bitperm sve2 v9.2a
cortex-a34: aes crc sha2 v8a
cortex-a35: aes crc sha2 v8a
cortex-a510: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-a520: fp16fml sve-bitperm sve2 v9.2a
cortex-a520ae: fp16fml sve-bitperm sve2 v9.2a
cortex-a53: aes crc sha2 v8a
cortex-a55: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a57: aes crc sha2 v8a
cortex-a65: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a65ae: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a710: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-a715: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-a72: aes crc sha2 v8a
cortex-a720: fp16fml sve-bitperm sve2 v9.2a
cortex-a720ae: fp16fml sve-bitperm sve2 v9.2a
cortex-a725: fp16fml sve-bitperm sve2 v9.2a
cortex-a73: aes crc sha2 v8a
cortex-a75: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a76: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a76ae: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a77: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a78: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a78ae: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-a78c: aes dotprod flagm fullfp16 rcpc sha2 v8.2a
cortex-r82: complxnum crc dotprod flagm fp16fml jsconv lse rcpc-immo rdm
cortex-r82ae: complxnum crc dotprod flagm fp16fml jsconv lse rcpc-immo rdm
cortex-x1: aes dotprod fullfp16 rcpc sha2 v8.2a
cortex-x1c: aes dotprod flagm fullfp16 lse2 rcpc-immo sha2 v8.2a
cortex-x2: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-x3: bf16 fp16fml i8mm sve-bitperm sve2 v9a
cortex-x4: fp16fml sve-bitperm sve2 v9.2a
cortex-x925: fp16fml sve-bitperm sve2 v9.2a
cyclone: aes sha2 v8a
exynos-m3: aes crc sha2 v8a
exynos-m4: aes dotprod fullfp16 sha2 v8.2a
exynos-m5: aes dotprod fullfp16 sha2 v8.2a
falkor: aes crc rdm sha2 v8a
fujitsu-monaka: faminmax fp16fml fp8dot2 fp8dot4 fp8fma lut sve-aes sve-bitperm sve-sha3 sve-sm4
  sve2 v9.3a
gb10: fp16fml sve-aes sve-bitperm sve-sha3 sve-sm4 sve2 v9.2a
generic: neon
grace: bf16 fp16fml i8mm sve-aes sve-bitperm sve-sha3 sve-sm4 sve2 v9a
kryo: aes crc sha2 v8a
neoverse-512tvb: aes bf16 fp16fml i8mm sha3 sm4 sve v8.4a
neoverse-e1: aes dotprod fullfp16 rcpc sha2 v8.2a
neoverse-n1: aes dotprod fullfp16 rcpc sha2 v8.2a
neoverse-n2: bf16 fp16fml i8mm sve-bitperm sve2 v9a
neoverse-n3: fp16fml sve-bitperm sve2 v9.2a
neoverse-v1: aes bf16 fp16fml i8mm sha3 sm4 sve v8.4a
neoverse-v2: bf16 fp16fml i8mm sve-bitperm sve2 v9a
neoverse-v3: fp16fml sve-bitperm sve2 v9.2a
neoverse-v3ae: fp16fml sve-bitperm sve2 v9.2a
olympus: faminmax fp16fml fp8dot2 fp8dot4 fp8fma lut sve-aes sve-bitperm sve-sha3 sve-sm4 sve2
  v9.2a
oryon-1: aes fp16fml sha3 sm4 v8.6a
saphira: aes sha2 v8.4a
thunderx: aes crc sha2 v8a
thunderx2t99: aes sha2 v8.1a
thunderx3t110: aes sha2 v8.3a
thunderxt81: aes crc sha2 v8a
thunderxt83: aes crc sha2 v8a
thunderxt88: aes crc sha2 v8a
tsv110: aes complxnum dotprod fp16fml jsconv sha2 v8.2a
"""

OTHERS = """
CONTEXTIDREL2 a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae a73 a75 a76
a77 a78 a78ae a78c addr-lsl-slow-14 aggressive-fma aggressive-interleaving all
alternate-sextload-cvt-f32-pattern altnzcv alu-lsl-fast am ampere1 ampere1a ampere1b ampere1c amvs
apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15 apple-a16 apple-a17 apple-a7 apple-m4
apple-m5 arith-bcc-fusion arith-cbz-fusion ascend-store-address avoid-ldapur balance-fp-ops brbe
bti btie c1-nano c1-premium c1-pro c1-ultra call-saved-x10 call-saved-x11 call-saved-x12
call-saved-x13 call-saved-x14 call-saved-x15 call-saved-x18 call-saved-x8 call-saved-x9 carmel ccdp
ccidx ccpp chk clrbhb cmh cmp-bcc-fusion cmpbr cortex-a725 cortex-r82 cortex-r82ae cortex-x1
cortex-x2 cortex-x3 cortex-x4 cortex-x925 cpa d128 disable-fast-inc-vl
disable-latency-sched-heuristic disable-ldp disable-maximize-scalable-bandwidth disable-stp
disable-unpredicated-ld-st-lower dit ecv el2vmsa el3 enable-select-opt ete execute-only
exynos-cheap-as-move exynosm3 exynosm4 f8f16mm f8f32mm falkor fgt fix-cortex-a53-835769 fmv
force-32bit-jump-tables fpac fprcvt fujitsu-monaka fuse-address fuse-addsub-2reg-const1
fuse-adrp-add fuse-aes fuse-arith-logic fuse-crypto-eor fuse-csel fuse-cset fuse-literals gcie gcs
harden-sls-blr harden-sls-nocomdat harden-sls-retbr hbc hcx ite kryo ldp-aligned-only lor ls64 lscp
lsfe lsui max-interleave-factor-4 mec mpam mpamv2 mte mtetc neoverse512tvb neoversee1 neoversen1
neoversen2 neoversen3 neoversev1 neoversev2 neoversev3 neoversev3AE nmi no-bti-at-return-twice
no-neg-immediates no-sve-fp-ld1r no-zcz-fpr64 nv occmo olympus oryon-1 outline-atomics pan pan-rwv
pauth pauth-lr pcdphint perfmon poe2 pops predictable-select-expensive predres prfm-slc-target rand
ras rasv2 reserve-lr-for-ra reserve-x1 reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14
reserve-x15 reserve-x18 reserve-x2 reserve-x20 reserve-x21 reserve-x22 reserve-x23 reserve-x24
reserve-x25 reserve-x26 reserve-x27 reserve-x28 reserve-x3 reserve-x4 reserve-x5 reserve-x6
reserve-x7 reserve-x9 rme saphira sb sel2 slow-misaligned-128store slow-paired-128
slow-strqro-store spe spe-eef specres2 specrestrict ssbs store-pair-suppress stp-aligned-only
strict-align tagged-globals tev the thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83
thunderxt88 tlb-rmi tlbid tlbiw tpidr-el1 tpidr-el2 tpidr-el3 tpidrro-el0 tracev8.4 trbe tsv110
uaops use-experimental-zeroing-pseudos use-fixed-over-scalable-if-equal-cost use-postra-scheduler
use-reciprocal-square-root use-wzr-to-vec-move v8r vh wfxt xs zcm-fpr128 zcm-fpr32 zcm-fpr64
zcm-gpr32 zcm-gpr64 zcz-fp-workaround zcz-fpr128 zcz-gpr32 zcz-gpr64
"""
