/* Uniform names for the compiler, the operating system and the architecture, as GASNet clients test them:
 *
 *     #if PLATFORM_COMPILER_GNU && PLATFORM_OS_LINUX && PLATFORM_ARCH_X86_64
 *
 * A name is either defined to 1 or not defined. vgas runs on Linux, with compilers that speak GNU C, on 64-bit
 * little-endian processors; a compilation anywhere else ends here.
 */
#ifndef _PORTABLE_PLATFORM_H
#define _PORTABLE_PLATFORM_H

/* Compiler: PLATFORM_COMPILER_<FAMILY>, with _C or _CXX for the language, a version as one number and as a string. */
#define _PLATFORM_STRING_(text) #text
#define _PLATFORM_STRING(text) _PLATFORM_STRING_(text)
#define PLATFORM_COMPILER_VERSION_INT(major, minor, patch) (((major) << 16) | ((minor) << 8) | (patch))

#if defined(__clang__)
    #define PLATFORM_COMPILER_CLANG 1
    #define PLATFORM_COMPILER_FAMILYNAME CLANG
    #define PLATFORM_COMPILER_FAMILYID 19
    #define PLATFORM_COMPILER_VERSION \
        PLATFORM_COMPILER_VERSION_INT(__clang_major__, __clang_minor__, __clang_patchlevel__)
    #define PLATFORM_COMPILER_VERSION_STR __clang_version__
    #ifdef __cplusplus
        #define PLATFORM_COMPILER_CLANG_CXX 1
        #define PLATFORM_COMPILER_ID 2
    #else
        #define PLATFORM_COMPILER_CLANG_C 1
        #define PLATFORM_COMPILER_ID 1
    #endif
#elif defined(__GNUC__)
    #define PLATFORM_COMPILER_GNU 1
    #define PLATFORM_COMPILER_FAMILYNAME GNU
    #define PLATFORM_COMPILER_FAMILYID 1
    #define PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION_INT(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
    #define PLATFORM_COMPILER_VERSION_STR \
        _PLATFORM_STRING(__GNUC__) "." _PLATFORM_STRING(__GNUC_MINOR__) "." _PLATFORM_STRING(__GNUC_PATCHLEVEL__)
    #ifdef __cplusplus
        #define PLATFORM_COMPILER_GNU_CXX 1
        #define PLATFORM_COMPILER_ID 2
    #else
        #define PLATFORM_COMPILER_GNU_C 1
        #define PLATFORM_COMPILER_ID 1
    #endif
#else
    #error "vgas needs a compiler that speaks GNU C (gcc, clang)"
#endif

#define PLATFORM_COMPILER_IDSTR \
    "|COMPILER_FAMILY:" _PLATFORM_STRING(PLATFORM_COMPILER_FAMILYNAME) \
    "|COMPILER_VERSION:" PLATFORM_COMPILER_VERSION_STR "|"
#define PLATFORM_COMPILER_VERSION_GT(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION > PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_GE(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION >= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_EQ(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LE(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION <= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LT(major, minor, patch) \
    (PLATFORM_COMPILER_VERSION < PLATFORM_COMPILER_VERSION_INT(major, minor, patch))

/* Operating system */
#if defined(__linux__)
    #define PLATFORM_OS_LINUX 1
    #define PLATFORM_OS_FAMILYNAME LINUX
#else
    #error "vgas runs on Linux"
#endif

/* Architecture */
#if defined(__x86_64__)
    #define PLATFORM_ARCH_X86_64 1
    #define PLATFORM_ARCH_FAMILYNAME X86_64
#elif defined(__aarch64__)
    #define PLATFORM_ARCH_AARCH64 1
    #define PLATFORM_ARCH_FAMILYNAME AARCH64
#elif defined(__riscv)
    #define PLATFORM_ARCH_RISCV 1
    #define PLATFORM_ARCH_FAMILYNAME RISCV
#else
    #define PLATFORM_ARCH_FAMILYNAME UNKNOWN
#endif

#if __SIZEOF_POINTER__ != 8
    #error "vgas runs on 64-bit processors"
#endif
#define PLATFORM_ARCH_64 1

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "vgas runs on little-endian processors"
#endif
#define PLATFORM_ARCH_LITTLE_ENDIAN 1

#endif
