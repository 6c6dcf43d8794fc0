# The toolchain of the published packages: zig's clang and libc++, for glibc 2.28 and later, whatever this machine has.
# MUSTER_MACHINE is x86_64 or aarch64; MUSTER_ZIG and MUSTER_SYSROOT are folders that `./dev wheel` makes: the compilers, and
# Debian's packages of the libraries that we compile in.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MUSTER_MACHINE MUSTER_ZIG MUSTER_SYSROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MUSTER_MACHINE})
set(CMAKE_LIBRARY_ARCHITECTURE ${MUSTER_MACHINE}-linux-gnu)
set(CMAKE_CXX_COMPILER ${MUSTER_ZIG}/${MUSTER_MACHINE}/clang++)
set(CMAKE_FIND_ROOT_PATH ${MUSTER_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${MUSTER_SYSROOT}/usr/include)
# Stripped by the compiler, since strip knows only the machine that it runs on. zig compiles its libc++ once for each set of flags
# like these, so CMake's own tests get them too. The packages do not name folders of this machine, nor relative ones, which ccache
# gives the compiler: they have the same bytes without it.
set(CMAKE_CXX_FLAGS_INIT "-O2 -s -fmacro-prefix-map=${MUSTER_SYSROOT}/=/ -fmacro-prefix-map=../../=")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,--as-needed)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,--as-needed)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--as-needed -pie")
# zig takes -Og for -O0 with its checks of undefined behaviour, and -O1 for -O2.
set(MUSTER_OPTIMIZE_REST -Os)
if(MUSTER_MACHINE STREQUAL aarch64)
  # Atomics of ARMv8.1 where the processor has them. zig's own functions for that never ask the processor; libgcc's do.
  string(APPEND CMAKE_CXX_FLAGS_INIT " -moutline-atomics")
  set(CMAKE_CXX_STANDARD_LIBRARIES_INIT ${MUSTER_SYSROOT}/usr/lib/gcc/aarch64-linux-gnu/12/libgcc.a)
endif()
