#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_X86_LOOPS)

#define MUSTER_LOOPS avx512
#define MUSTER_ONLY_BF16
#if defined(__clang__) && __clang_major__ >= 18 && __clang_major__ <= 20
// To these compilers registers of 512 bits are a feature of their own.
#define MUSTER_TARGET [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,evex512")]]
#else
#define MUSTER_TARGET [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]
#endif

#include "worker_lib/reduction/reduce_loops.h"

#endif
