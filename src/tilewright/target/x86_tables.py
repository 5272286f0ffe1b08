"""CPUs of x86 and their features, as LLVM knows them; made by ``tools/cpu_tables.py``.

A line of ``IMPLIED`` is a feature and what it brings, one of ``CPUS`` a CPU and what
it has that no other of its features brings. ``OTHERS`` are features that are not about
instructions, or about none that matter here.
"""

LLVM_VERSION = (22, 1, 0)

IMPLIED = """
64bit:
adx:
aes: sse2
amx-avx512: amx-tile
amx-bf16: amx-tile
amx-complex: amx-tile
amx-fp16: amx-tile
amx-fp8: amx-tile
amx-int8: amx-tile
amx-movrs: amx-tile
amx-tf32: amx-tile
amx-tile:
avx: sse4.2
avx10.1: avx512bf16 avx512bitalg avx512cd avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2
  avx512vl avx512vnni avx512vpopcntdq
avx10.1-512: avx10.1
avx10.2: avx10.1
avx10.2-512: avx10.2
avx2: avx
avx512bf16: avx512bw
avx512bitalg: avx512bw
avx512bw: avx512f
avx512cd: avx512f
avx512dq: avx512f
avx512f: avx2 f16c fma
avx512fp16: avx512bw
avx512ifma: avx512f
avx512vbmi: avx512bw
avx512vbmi2: avx512bw
avx512vl: avx512f
avx512vnni: avx512f
avx512vp2intersect: avx512f
avx512vpopcntdq: avx512f
avxifma: avx2
avxneconvert: avx2
avxvnni: avx2
avxvnniint16: avx2
avxvnniint8: avx2
bmi:
bmi2:
cldemote:
clflushopt:
clwb:
clzero:
cmov:
cmpccxadd:
crc32:
cx8:
enqcmd:
evex512:
f16c: avx
fma: avx
fma4: avx sse4a
fsgsbase:
fsrm:
fxsr:
gfni: sse2
hreset:
invpcid:
kl: sse2
lwp:
lzcnt:
mmx:
movbe:
movdir64b:
movdiri:
movrs:
mwaitx:
pclmul: sse2
pconfig:
pku:
popcnt:
prefetchi:
prfchw:
ptwrite:
raoint:
rdpid:
rdpru:
rdrnd:
rdseed:
rtm:
serialize:
sgx:
sha: sse2
sha512: avx2
shstk:
sm3: avx
sm4: avx2
sse:
sse2: sse
sse3: sse2
sse4.1: ssse3
sse4.2: sse4.1
sse4a: sse3
ssse3: sse3
tbm:
tsxldtrk:
usermsr:
vaes: aes avx2
vpclmulqdq: avx pclmul
waitpkg:
wbnoinvd:
widekl: kl
x87:
xop: fma4
xsave:
xsavec: xsave
xsaveopt: xsave
xsaves: xsave
"""

CPUS = """
alderlake: 64bit adx avxvnni bmi bmi2 clflushopt clwb cmov crc32 cx8 f16c fma fsgsbase fxsr gfni
  hreset invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd
  rdseed serialize sha shstk vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
amdfam10: 64bit cmov cx8 fxsr lzcnt popcnt prfchw sse4a x87
arrowlake: 64bit adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 clflushopt clwb cmov
  cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b
  movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk vaes vpclmulqdq
  waitpkg widekl x87 xsavec xsaveopt xsaves
arrowlake-s: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt
  clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512 shstk
  sm3 sm4 vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
arrowlake_s: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt
  clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512 shstk
  sm3 sm4 vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
athlon: cmov cx8 mmx prfchw x87
athlon-4: cmov cx8 fxsr mmx prfchw sse x87
athlon-fx: 64bit cmov cx8 fxsr mmx prfchw sse2 x87
athlon-mp: cmov cx8 fxsr mmx prfchw sse x87
athlon-tbird: cmov cx8 mmx prfchw x87
athlon-xp: cmov cx8 fxsr mmx prfchw sse x87
athlon64: 64bit cmov cx8 fxsr mmx prfchw sse2 x87
athlon64-sse3: 64bit cmov cx8 fxsr mmx prfchw sse3 x87
atom: 64bit cmov cx8 fxsr mmx movbe ssse3 x87
atom_sse4_2: 64bit cmov crc32 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sse4.2 x87
atom_sse4_2_movbe: 64bit aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw
  rdrnd rdseed sha sse4.2 x87 xsavec xsaveopt xsaves
barcelona: 64bit cmov cx8 fxsr lzcnt popcnt prfchw sse4a x87
bdver1: 64bit aes cmov crc32 cx8 fxsr lwp lzcnt mmx pclmul popcnt prfchw x87 xop xsave
bdver2: 64bit aes bmi cmov crc32 cx8 f16c fma fxsr lwp lzcnt mmx pclmul popcnt prfchw tbm x87 xop
  xsave
bdver3: 64bit aes bmi cmov crc32 cx8 f16c fma fsgsbase fxsr lwp lzcnt mmx pclmul popcnt prfchw tbm
  x87 xop xsaveopt
bdver4: 64bit aes avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr lwp lzcnt mmx movbe mwaitx
  pclmul popcnt prfchw rdrnd tbm x87 xop xsaveopt
bonnell: 64bit cmov cx8 fxsr mmx movbe ssse3 x87
broadwell: 64bit adx avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe
  pclmul popcnt prfchw rdrnd rdseed x87 xsaveopt
btver1: 64bit cmov cx8 fxsr lzcnt mmx popcnt prfchw sse4a ssse3 x87
btver2: 64bit aes bmi cmov crc32 cx8 f16c fxsr lzcnt mmx movbe pclmul popcnt prfchw sse4a x87
  xsaveopt
c3: mmx prfchw x87
c3-2: cmov cx8 fxsr mmx sse x87
cannonlake: 64bit adx aes avx512cd avx512dq avx512ifma avx512vbmi avx512vl bmi bmi2 clflushopt cmov
  crc32 cx8 fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed sha x87
  xsavec xsaveopt xsaves
cascadelake: 64bit adx aes avx512bw avx512cd avx512dq avx512vl avx512vnni bmi bmi2 clflushopt clwb
  cmov crc32 cx8 fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed x87
  xsavec xsaveopt xsaves
clearwaterforest: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cldemote
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt
  mmx movbe movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed
  serialize sha sha512 shstk sm3 sm4 usermsr vaes vpclmulqdq waitpkg x87 xsavec xsaveopt xsaves
cooperlake: 64bit adx aes avx512bf16 avx512cd avx512dq avx512vl avx512vnni bmi bmi2 clflushopt clwb
  cmov crc32 cx8 fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed x87
  xsavec xsaveopt xsaves
core-avx-i: 64bit cmov crc32 cx8 f16c fsgsbase fxsr mmx pclmul popcnt rdrnd x87 xsaveopt
core-avx2: 64bit avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul
  popcnt rdrnd x87 xsaveopt
core2: 64bit cmov cx8 fxsr mmx ssse3 x87
core_2_duo_sse4_1: 64bit cmov cx8 fxsr mmx sse4.1 x87
core_2_duo_ssse3: 64bit cmov cx8 fxsr mmx ssse3 x87
core_2nd_gen_avx: 64bit avx cmov crc32 cx8 fxsr mmx pclmul popcnt x87 xsaveopt
core_3rd_gen_avx: 64bit cmov crc32 cx8 f16c fsgsbase fxsr mmx pclmul popcnt rdrnd x87 xsaveopt
core_4th_gen_avx: 64bit avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe
  pclmul popcnt rdrnd x87 xsaveopt
core_4th_gen_avx_tsx: 64bit avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx
  movbe pclmul popcnt rdrnd x87 xsaveopt
core_5th_gen_avx: 64bit adx avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx
  movbe pclmul popcnt prfchw rdrnd rdseed x87 xsaveopt
core_5th_gen_avx_tsx: 64bit adx avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt
  mmx movbe pclmul popcnt prfchw rdrnd rdseed x87 xsaveopt
core_aes_pclmulqdq: 64bit cmov crc32 cx8 fxsr mmx pclmul popcnt sse4.2 x87
core_i7_sse4_2: 64bit cmov crc32 cx8 fxsr mmx popcnt sse4.2 x87
corei7: 64bit cmov crc32 cx8 fxsr mmx popcnt sse4.2 x87
corei7-avx: 64bit avx cmov crc32 cx8 fxsr mmx pclmul popcnt x87 xsaveopt
diamondrapids: 64bit adx amx-avx512 amx-bf16 amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs
  amx-tf32 avx10.2 avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cldemote
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe
  movdir64b movdiri movrs pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize
  sha sha512 shstk sm3 sm4 tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
emeraldrapids: 64bit adx amx-bf16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512dq avx512fp16
  avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote
  clflushopt clwb cmov crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b
  movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk tsxldtrk vaes
  vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
generic: 64bit cx8 x87
geode: cx8 mmx prfchw x87
goldmont: 64bit aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw rdrnd
  rdseed sha sse4.2 x87 xsavec xsaveopt xsaves
goldmont-plus: 64bit aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw
  ptwrite rdpid rdrnd rdseed sha sse4.2 x87 xsavec xsaveopt xsaves
goldmont_plus: 64bit aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw
  ptwrite rdpid rdrnd rdseed sha sse4.2 x87 xsavec xsaveopt xsaves
gracemont: 64bit adx avxvnni bmi bmi2 clflushopt clwb cmov crc32 cx8 f16c fma fsgsbase fxsr gfni
  hreset invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd
  rdseed serialize sha shstk vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
grandridge: 64bit adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cldemote clflushopt clwb
  cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk vaes
  vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
graniterapids: 64bit adx amx-bf16 amx-fp16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512dq
  avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2
  cldemote clflushopt clwb cmov crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize sha
  shstk tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
graniterapids-d: 64bit adx amx-bf16 amx-complex amx-fp16 amx-int8 avx512bf16 avx512bitalg avx512cd
  avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni
  bmi bmi2 cldemote clflushopt clwb cmov crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx
  movbe movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize
  sha shstk tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
graniterapids_d: 64bit adx amx-bf16 amx-complex amx-fp16 amx-int8 avx512bf16 avx512bitalg avx512cd
  avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni
  bmi bmi2 cldemote clflushopt clwb cmov crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx
  movbe movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize
  sha shstk tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
haswell: 64bit avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul
  popcnt rdrnd x87 xsaveopt
i386: x87
i486: x87
i586: cx8 x87
i686: cmov cx8 x87
icelake-client: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov crc32 cx8 fsgsbase fsrm fxsr gfni invpcid
  lzcnt mmx movbe pku popcnt prfchw rdpid rdrnd rdseed sha vaes vpclmulqdq x87 xsavec xsaveopt
  xsaves
icelake-server: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb cmov crc32 cx8 fsgsbase fsrm fxsr gfni
  invpcid lzcnt mmx movbe pconfig pku popcnt prfchw rdpid rdrnd rdseed sha vaes vpclmulqdq wbnoinvd
  x87 xsavec xsaveopt xsaves
icelake_client: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov crc32 cx8 fsgsbase fsrm fxsr gfni invpcid
  lzcnt mmx movbe pku popcnt prfchw rdpid rdrnd rdseed sha vaes vpclmulqdq x87 xsavec xsaveopt
  xsaves
icelake_server: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb cmov crc32 cx8 fsgsbase fsrm fxsr gfni
  invpcid lzcnt mmx movbe pconfig pku popcnt prfchw rdpid rdrnd rdseed sha vaes vpclmulqdq wbnoinvd
  x87 xsavec xsaveopt xsaves
ivybridge: 64bit cmov crc32 cx8 f16c fsgsbase fxsr mmx pclmul popcnt rdrnd x87 xsaveopt
k6: cx8 mmx x87
k6-2: cx8 mmx prfchw x87
k6-3: cx8 mmx prfchw x87
k8: 64bit cmov cx8 fxsr mmx prfchw sse2 x87
k8-sse3: 64bit cmov cx8 fxsr mmx prfchw sse3 x87
knl: 64bit adx aes avx512cd bmi bmi2 cmov crc32 cx8 fsgsbase fxsr lzcnt mmx movbe pclmul popcnt
  prfchw rdrnd rdseed x87 xsaveopt
knm: 64bit adx aes avx512cd avx512vpopcntdq bmi bmi2 cmov crc32 cx8 fsgsbase fxsr lzcnt mmx movbe
  pclmul popcnt prfchw rdrnd rdseed x87 xsaveopt
lakemont: cx8
lunarlake: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt clwb
  cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512 shstk
  sm3 sm4 vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
meteorlake: 64bit adx avxvnni bmi bmi2 clflushopt clwb cmov crc32 cx8 f16c fma fsgsbase fxsr gfni
  hreset invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd
  rdseed serialize sha shstk vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
mic_avx512: 64bit adx aes avx512cd bmi bmi2 cmov crc32 cx8 fsgsbase fxsr lzcnt mmx movbe pclmul
  popcnt prfchw rdrnd rdseed x87 xsaveopt
nehalem: 64bit cmov crc32 cx8 fxsr mmx popcnt sse4.2 x87
nocona: 64bit cmov cx8 fxsr mmx sse3 x87
novalake: 64bit adx avx10.2 avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri movrs pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize
  sha sha512 shstk sm3 sm4 vaes vpclmulqdq waitpkg x87 xsavec xsaveopt xsaves
opteron: 64bit cmov cx8 fxsr mmx prfchw sse2 x87
opteron-sse3: 64bit cmov cx8 fxsr mmx prfchw sse3 x87
pantherlake: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt
  clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512 shstk
  sm3 sm4 vaes vpclmulqdq waitpkg x87 xsavec xsaveopt xsaves
penryn: 64bit cmov cx8 fxsr mmx sse4.1 x87
pentium: cx8 x87
pentium-m: cmov cx8 fxsr mmx sse2 x87
pentium-mmx: cx8 mmx x87
pentium2: cmov cx8 fxsr mmx x87
pentium3: cmov cx8 fxsr mmx sse x87
pentium3m: cmov cx8 fxsr mmx sse x87
pentium4: cmov cx8 fxsr mmx sse2 x87
pentium4m: cmov cx8 fxsr mmx sse2 x87
pentium_4: cmov cx8 fxsr mmx sse2 x87
pentium_4_sse3: cmov cx8 fxsr mmx sse3 x87
pentium_ii: cmov cx8 fxsr mmx x87
pentium_iii: cmov cx8 fxsr mmx sse x87
pentium_iii_no_xmm_regs: cmov cx8 fxsr mmx sse x87
pentium_m: cmov cx8 fxsr mmx sse2 x87
pentium_mmx: cx8 mmx x87
pentium_pro: cmov cx8 x87
pentiumpro: cmov cx8 x87
prescott: cmov cx8 fxsr mmx sse3 x87
raptorlake: 64bit adx avxvnni bmi bmi2 clflushopt clwb cmov crc32 cx8 f16c fma fsgsbase fxsr gfni
  hreset invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd
  rdseed serialize sha shstk vaes vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
rocketlake: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov crc32 cx8 fsgsbase fsrm fxsr gfni invpcid
  lzcnt mmx movbe pku popcnt prfchw rdpid rdrnd rdseed sha vaes vpclmulqdq x87 xsavec xsaveopt
  xsaves
sandybridge: 64bit avx cmov crc32 cx8 fxsr mmx pclmul popcnt x87 xsaveopt
sapphirerapids: 64bit adx amx-bf16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512dq avx512fp16
  avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote
  clflushopt clwb cmov crc32 cx8 enqcmd fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b
  movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk tsxldtrk vaes
  vpclmulqdq waitpkg wbnoinvd x87 xsavec xsaveopt xsaves
sierraforest: 64bit adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cldemote clflushopt clwb
  cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk vaes
  vpclmulqdq waitpkg widekl x87 xsavec xsaveopt xsaves
silvermont: 64bit cmov crc32 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sse4.2 x87
skx: 64bit adx aes avx512bw avx512cd avx512dq avx512vl bmi bmi2 clflushopt clwb cmov crc32 cx8
  fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed x87 xsavec xsaveopt
  xsaves
skylake: 64bit adx aes avx2 bmi bmi2 clflushopt cmov crc32 cx8 f16c fma fsgsbase fxsr invpcid lzcnt
  mmx movbe pclmul popcnt prfchw rdrnd rdseed x87 xsavec xsaveopt xsaves
skylake-avx512: 64bit adx aes avx512bw avx512cd avx512dq avx512vl bmi bmi2 clflushopt clwb cmov
  crc32 cx8 fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed x87 xsavec
  xsaveopt xsaves
skylake_avx512: 64bit adx aes avx512bw avx512cd avx512dq avx512vl bmi bmi2 clflushopt clwb cmov
  crc32 cx8 fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed x87 xsavec
  xsaveopt xsaves
slm: 64bit cmov crc32 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sse4.2 x87
tigerlake: 64bit adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vp2intersect avx512vpopcntdq bmi bmi2 clflushopt clwb cmov crc32 cx8 fsgsbase
  fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri pku popcnt prfchw rdpid rdrnd rdseed sha
  shstk vaes vpclmulqdq x87 xsavec xsaveopt xsaves
tremont: 64bit aes clflushopt clwb cmov crc32 cx8 fsgsbase fxsr gfni mmx movbe pclmul popcnt prfchw
  ptwrite rdpid rdrnd rdseed sha sse4.2 x87 xsavec xsaveopt xsaves
westmere: 64bit cmov crc32 cx8 fxsr mmx pclmul popcnt sse4.2 x87
wildcatlake: 64bit adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt
  clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe
  movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512 shstk
  sm3 sm4 vaes vpclmulqdq waitpkg x87 xsavec xsaveopt xsaves
winchip-c6: mmx x87
winchip2: mmx prfchw x87
x86-64: 64bit cmov cx8 fxsr mmx sse2 x87
x86-64-v2: 64bit cmov crc32 cx8 fxsr mmx popcnt sse4.2 x87
x86-64-v3: 64bit avx2 bmi bmi2 cmov crc32 cx8 f16c fma fxsr lzcnt mmx movbe popcnt x87 xsave
x86-64-v4: 64bit avx512bw avx512cd avx512dq avx512vl bmi bmi2 cmov crc32 cx8 fxsr lzcnt mmx movbe
  popcnt x87 xsave
yonah: cmov cx8 fxsr mmx sse3 x87
znver1: 64bit adx aes avx2 bmi bmi2 clflushopt clzero cmov crc32 cx8 f16c fma fsgsbase fxsr lzcnt
  mmx movbe mwaitx pclmul popcnt prfchw rdrnd rdseed sha sse4a x87 xsavec xsaveopt xsaves
znver2: 64bit adx aes avx2 bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 f16c fma fsgsbase fxsr
  lzcnt mmx movbe mwaitx pclmul popcnt prfchw rdpid rdpru rdrnd rdseed sha sse4a wbnoinvd x87
  xsavec xsaveopt xsaves
znver3: 64bit adx bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 f16c fma fsgsbase fsrm fxsr
  invpcid lzcnt mmx movbe mwaitx pku popcnt prfchw rdpid rdpru rdrnd rdseed sha sse4a vaes
  vpclmulqdq wbnoinvd x87 xsavec xsaveopt xsaves
znver4: 64bit adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2
  avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 fsgsbase fsrm
  fxsr gfni invpcid lzcnt mmx movbe mwaitx pku popcnt prfchw rdpid rdpru rdrnd rdseed sha shstk
  sse4a vaes vpclmulqdq wbnoinvd x87 xsavec xsaveopt xsaves
znver5: 64bit adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2
  avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq avxvnni bmi bmi2 clflushopt clwb clzero
  cmov crc32 cx8 fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri mwaitx pku
  popcnt prefetchi prfchw rdpid rdpru rdrnd rdseed sha shstk sse4a vaes vpclmulqdq wbnoinvd x87
  xsavec xsaveopt xsaves
"""

OTHERS = """
allow-light-256-bit branch-hint branchfusion ccmp cf cx16 egpr ermsb false-deps-getmant
false-deps-lzcnt-tzcnt false-deps-mulc false-deps-mullq false-deps-perm false-deps-popcnt
false-deps-range fast-11bytenop fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd fast-gather
fast-hops fast-imm16 fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks
fast-shld-rotate fast-variable-crosslane-shuffle fast-variable-perlane-shuffle fast-vector-fsqrt
fast-vector-shift-masks faster-shift-than-shuffle harden-sls-ijmp harden-sls-ret idivl-to-divb
idivq-to-divl inline-asm-use-gpr32 lea-sp lea-uses-ag lvi-cfi lvi-load-hardening macrofusion ndd nf
no-bypass-delay no-bypass-delay-blend no-bypass-delay-mov no-bypass-delay-shuffle nopl
pad-short-functions ppx prefer-128-bit prefer-256-bit prefer-legacy-setcc prefer-mask-registers
prefer-movmsk-over-vtest prefer-no-gather prefer-no-scatter push2pop2 retpoline
retpoline-external-thunk retpoline-indirect-branches retpoline-indirect-calls sahf sbb-dep-breaking
seses slow-3ops-lea slow-incdec slow-lea slow-pmaddwd slow-pmulld slow-pmullq slow-shld
slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32 sse-unaligned-mem tagged-globals
tuning-fast-imm-vector-shift uintr use-glm-div-sqrt-costs use-slm-arith-costs vzeroupper zu
"""
