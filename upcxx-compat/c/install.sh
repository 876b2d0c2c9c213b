#!/bin/sh
# Installs the C interface: headers, libraries, make fragments, pkg-config and CMake files, spawners.
#
#   install.sh --prefix DIR [--alias NAME]... [--library-folder DIR] [--destination DIR]
#
# --alias udp installs conduit tcp under the name udp, too, for clients whose build systems know a fixed list of conduits; a
# name that vgas has itself (smp, ibv) then means tcp.
# Without --library-folder the library is built first (cargo build --release). --destination puts everything under another
# root than the one it will run from (for packages). CC, CXX, AR, NM and OBJCOPY choose the tools; the compilers are remembered for
# clients. Debugging information is apart, in lib/debug.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix= library= root= aliases=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --library-folder | --destination)
        [ $# -gt 1 ] || { echo "install.sh: $1 needs a folder" >&2; exit 2; } ;;
    --alias)
        [ -n "${2-}" ] || { echo "install.sh: $1 needs the name of a conduit" >&2; exit 2; } ;;
    esac
    case $1 in
    --prefix) prefix=$2; shift 2 ;;
    --prefix=*) prefix=${1#*=}; shift ;;
    --library-folder) library=$2; shift 2 ;;
    --library-folder=*) library=${1#*=}; shift ;;
    --destination) root=$2; shift 2 ;;
    --destination=*) root=${1#*=}; shift ;;
    --alias) aliases="$aliases $2"; shift 2 ;;
    --alias=*) aliases="$aliases ${1#*=}"; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install.sh: no option $1 (see -h)" >&2; exit 2 ;;
    esac
done
case $prefix in
/*) ;;
'') echo "install.sh: where to? --prefix DIR" >&2; exit 2 ;;
*) prefix=$PWD/$prefix ;;
esac
# What conduits there are: those of vgas whose name no alias takes, and the aliases.
conduits='smp tcp ibv'
all_aliases=$aliases aliases=
for alias in $all_aliases; do
    case " $aliases " in *" $alias "*) continue ;; esac
    aliases="$aliases $alias"
    case $alias in
    tcp) echo "install.sh: --alias tcp: that is what an alias is installed for; name another conduit, such as udp" >&2; exit 2 ;;
    [!a-z]* | *[!a-z0-9]*) echo "install.sh: --alias $alias: a conduit's name is small letters and digits, such as udp" >&2; exit 2 ;;
    esac
    others=
    for conduit in $conduits; do
        [ "$conduit" = "$alias" ] || others="$others $conduit"
    done
    conduits="${others# } $alias"
done
: "${CC:=cc}" "${CXX:=c++}" "${AR:=ar}" "${NM:=nm}" "${OBJCOPY:=objcopy}"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")

if [ -z "$library" ]; then
    (cd "$here" && cargo build --release --package vgas-c)
    library=${CARGO_TARGET_DIR:-$here/../../target}/release
fi
[ -f "$library/libvgasnet.a" ] || { echo "install.sh: there is no libvgasnet.a in $library" >&2; exit 1; }

to=$root$prefix
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$to/bin" "$to/include" "$to/lib/debug" "$to/lib/pkgconfig" "$to/lib/cmake/vgas" "$to/lib/cmake/gasnet"

# A text as sed takes it for itself in a replacement.
literal() {
    printf '%s' "$1" | sed 's/[&|\\]/\\&/g'
}
# A file of this folder's install/ with the words between @ filled in.
filled() {
    sed -e "s|@PREFIX@|$(literal "$prefix")|g" -e "s|@VERSION@|$version|g" -e "s|@CC@|$(literal "$CC")|g" \
        -e "s|@CXX@|$(literal "$CXX")|g" \
        -e "s|@CONDUITS@|$conduits|g" -e "s/@ANY_CONDUIT@/$any_conduit/g" \
        -e "s/@ANY_OTHER_CONDUIT@/${any_other_conduit-}/g" \
        -e "s|@CONDUIT@|${conduit-}|g" -e "s|@CONDUIT_UPPER@|${conduit_upper-}|g" \
        -e "s|@MODE@|${mode-}|g" -e "s|@MODE_UPPER@|${mode_upper-}|g" -e "s|@THREAD_FLAGS@|${thread_flags-}|g" \
        -e "s|@SYSTEM_LIBRARIES@|$system_libraries|g" "$here/install/$1"
}
# The same at a place of its own. Written beside it and moved there, so that nobody ever sees a half.
fill() {
    filled "$1" >"$scratch/file"
    put "$scratch/file" "$2" "${3-644}"
}
put() {
    cp "$1" "$to/$2.new"
    chmod "${3-644}" "$to/$2.new"
    mv "$to/$2.new" "$to/$2"
}
# A condition for the preprocessor: that one of the conduits $1 other than $2 has been chosen.
chosen() {
    condition=
    for name in $1; do
        [ "$name" = "$2" ] || condition="$condition || defined(GASNET_CONDUIT_$(upper "$name"))"
    done
    echo "${condition# || }"
}
upper() { echo "$1" | tr '[:lower:]' '[:upper:]'; }
any_conduit=$(chosen "$conduits" "")

# What the static library needs of the system.
system_libraries="-lgcc_s -lpthread -lm -ldl -lrt"
# Compilers link what unwinds stacks by themselves, in static programs another one.
script_libraries=${system_libraries#-lgcc_s }

# What others may name of the library: the functions behind the headers, and what is GASNet's.
$NM --defined-only "$library/libvgasnet.a" 2>/dev/null |
    sed -n 's/^[0-9a-f]* [TDBRV] \(vgasi_.*\|gasnet.*\)$/-Wl,-u,\1/p' | sort -u >"$scratch/names"
# The library as one object with nothing but what these names lead to: most of the archive is there for programs in Rust, and a client
# would carry it. Linkers that cannot do that leave all of it in.
# shellcheck disable=SC2046 # a list of flags
if ! $CC -r -nostdlib -Wl,--gc-sections $(cat "$scratch/names") "$library/libvgasnet.a" -o "$scratch/vgas.o" 2>/dev/null ||
    # The standard library's bitcode, which would be mistaken for an object to be optimised.
    ! $OBJCOPY -R .llvmbc -R .llvmcmd "$scratch/vgas.o" ||
    ! $AR cr "$scratch/libvgas.a" "$scratch/vgas.o"; then
    cp "$library/libvgasnet.a" "$scratch/libvgas.a"
fi
$OBJCOPY --compress-debug-sections "$scratch/libvgas.a" "$scratch/debug.a" 2>/dev/null || cp "$scratch/libvgas.a" "$scratch/debug.a"
put "$scratch/debug.a" lib/debug/libvgas.a
$OBJCOPY --strip-debug "$scratch/libvgas.a"
put "$scratch/libvgas.a" lib/libvgas.a
for header in "$here"/include/*.h; do
    put "$header" "include/${header##*/}"
done
if [ -n "$aliases" ]; then
    cp "$here/include/vgasi_aliases.h" "$scratch/aliases"
    for conduit in $aliases; do
        conduit_upper=$(upper "$conduit") any_other_conduit=$(chosen "$conduits" "$conduit")
        filled alias.h.in >>"$scratch/aliases"
    done
    put "$scratch/aliases" include/vgasi_aliases.h
fi
fill vgasnet.pc.in lib/pkgconfig/vgasnet.pc
fill vgas-config.cmake.in lib/cmake/vgas/vgas-config.cmake
fill vgas-config-version.cmake.in lib/cmake/vgas/vgas-config-version.cmake
fill gasnet-config.cmake.in lib/cmake/gasnet/gasnet-config.cmake
fill gasnet-config-version.cmake.in lib/cmake/gasnet/gasnet-config-version.cmake

# The GASNet tools are a part of every library of GASNet and of the shared library, and a library of their own for programs
# without a job.
for source in "$here"/csrc/tools/*.c; do
    name=${source##*/}
    $CC -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -I"$here/include" -c "$source" -o "$scratch/tools_${name%.c}.o"
done
# What of the shared library others see: the functions behind the headers, and what GASNet's clients may name.
echo '{ global: vgasi_*; gasnet_*; gasnete_*; gasneti_*; gasnett_*; local: *; };' >"$scratch/exports"
# shellcheck disable=SC2086 # a list of flags
$CC -shared -o "$scratch/libvgas.so" -Wl,-soname,libvgas.so.0 -Wl,--version-script="$scratch/exports" -Wl,--gc-sections \
    -Wl,-z,defs -Wl,--whole-archive "$scratch/debug.a" -Wl,--no-whole-archive "$scratch"/tools_*.o $system_libraries
# Debuggers look for it beside the library, and in a folder `debug` there.
$OBJCOPY --only-keep-debug "$scratch/libvgas.so" "$scratch/libvgas.so.0.debug"
put "$scratch/libvgas.so.0.debug" lib/debug/libvgas.so.0.debug
$OBJCOPY --strip-all --add-gnu-debuglink="$scratch/libvgas.so.0.debug" "$scratch/libvgas.so"
put "$scratch/libvgas.so" lib/libvgas.so.0 755
ln -sf libvgas.so.0 "$to/lib/libvgas.so"
for mode in seq par; do
    mode_upper=$(upper $mode)
    thread_flags=
    [ $mode = seq ] || thread_flags="-pthread -D_REENTRANT -DGASNETT_THREAD_SAFE=1"
    rm -f "$scratch/library.a"
    $AR cr "$scratch/library.a" "$scratch"/tools_*.o
    put "$scratch/library.a" "lib/libgasnet_tools-$mode.a"
    fill tools-mode.mak.in "include/gasnet_tools-$mode.mak"
    fill gasnet_tools.pc.in "lib/pkgconfig/gasnet_tools-$mode.pc"
done
for conduit in $conduits; do
    conduit_upper=$(upper "$conduit")
    mkdir -p "$to/include/$conduit-conduit"
    fill gasnet_core.h.in "include/$conduit-conduit/gasnet_core.h"
    fill vgasi_conduit.h.in "include/$conduit-conduit/vgasi_conduit.h"
    fill gasnetrun.in "bin/gasnetrun_$conduit" 755
    for mode in seq parsync par; do
        mode_upper=$(upper $mode)
        thread_flags=
        [ $mode = seq ] || thread_flags="-pthread -D_REENTRANT"
        fill conduit-mode.mak.in "include/$conduit-conduit/$conduit-$mode.mak"
        fill gasnet.pc.in "lib/pkgconfig/gasnet-$conduit-$mode.pc"
        # A configuration's own: an object that names it, the names that configure scripts look for, and the tools. Everything else
        # is in libvgas.
        for source in configuration symbols; do
            $CC -O2 -fPIC "-DGASNET_CONDUIT_$conduit_upper" "-DGASNET_$mode_upper" -I"$to/include" \
                -c "$here/csrc/$source.c" -o "$scratch/$source.o"
        done
        rm -f "$scratch/library.a"
        $AR cr "$scratch/library.a" "$scratch/configuration.o" "$scratch/symbols.o" "$scratch"/tools_*.o
        put "$scratch/library.a" "lib/libvgas-$conduit-$mode.a"
        # The library that clients name, often as the only one: a script for the linker, which names the rest. A copy of libvgas
        # in each of them would be gigabytes.
        echo "/* GNU ld script */ INPUT(libvgas-$conduit-$mode.a libvgas.a $script_libraries)" >"$scratch/library.a"
        put "$scratch/library.a" "lib/libgasnet-$conduit-$mode.a"
    done
done
# The libraries over which GASNet has these conduits: clients that know its own link them, too.
for alias in $aliases; do
    case $alias in
    udp | mpi)
        rm -f "$scratch/library.a"
        $AR cr "$scratch/library.a"
        put "$scratch/library.a" "lib/libam$alias.a" ;;
    esac
done
echo "installed vgas $version in $prefix"
