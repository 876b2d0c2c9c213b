#!/bin/sh
# Installs the C interface: headers, libraries, make fragments, pkg-config and CMake files, spawners.
#
#   install.sh --prefix DIR [--library-folder DIR] [--destination DIR]
#
# Without --library-folder the library is built first (cargo build --release). --destination puts everything under another
# root than the one it will run from (for packages). CC, CXX and AR choose the tools; they are remembered for clients.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix= library= root=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --library-folder | --destination)
        [ $# -gt 1 ] || { echo "install.sh: $1 needs a folder" >&2; exit 2; } ;;
    esac
    case $1 in
    --prefix) prefix=$2; shift 2 ;;
    --prefix=*) prefix=${1#*=}; shift ;;
    --library-folder) library=$2; shift 2 ;;
    --library-folder=*) library=${1#*=}; shift ;;
    --destination) root=$2; shift 2 ;;
    --destination=*) root=${1#*=}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install.sh: no option $1 (see -h)" >&2; exit 2 ;;
    esac
done
case $prefix in
/*) ;;
'') echo "install.sh: where to? --prefix DIR" >&2; exit 2 ;;
*) prefix=$PWD/$prefix ;;
esac
: "${CC:=cc}" "${CXX:=c++}" "${AR:=ar}"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")

if [ -z "$library" ]; then
    (cd "$here" && cargo build --release --package vgas-c)
    library=${CARGO_TARGET_DIR:-$here/../../target}/release
fi
[ -f "$library/libvgasnet.a" ] || { echo "install.sh: there is no libvgasnet.a in $library" >&2; exit 1; }

to=$root$prefix
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$to/bin" "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/vgas" "$to/lib/cmake/gasnet"

# A text as sed takes it for itself in a replacement.
literal() {
    printf '%s' "$1" | sed 's/[&|\\]/\\&/g'
}
# A file of this folder's install/ with the words between @ filled in. Written beside its place and moved there, so that
# nobody ever sees a half.
fill() {
    sed -e "s|@PREFIX@|$(literal "$prefix")|g" -e "s|@VERSION@|$version|g" -e "s|@CC@|$(literal "$CC")|g" \
        -e "s|@CXX@|$(literal "$CXX")|g" \
        -e "s|@CONDUIT@|${conduit-}|g" -e "s|@CONDUIT_UPPER@|${conduit_upper-}|g" \
        -e "s|@MODE@|${mode-}|g" -e "s|@MODE_UPPER@|${mode_upper-}|g" -e "s|@THREAD_FLAGS@|${thread_flags-}|g" \
        -e "s|@SYSTEM_LIBRARIES@|$system_libraries|g" "$here/install/$1" >"$scratch/file"
    put "$scratch/file" "$2" "${3-644}"
}
put() {
    cp "$1" "$to/$2.new"
    chmod "${3-644}" "$to/$2.new"
    mv "$to/$2.new" "$to/$2"
}
upper() { echo "$1" | tr '[:lower:]' '[:upper:]'; }

# What the static library needs of the system.
system_libraries="-lgcc_s -lpthread -lm -ldl -lrt"
# Compilers link what unwinds stacks by themselves, in static programs another one.
script_libraries=${system_libraries#-lgcc_s }

put "$library/libvgasnet.a" lib/libvgas.a
for header in "$here"/include/*.h; do
    put "$header" "include/${header##*/}"
done
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
    -Wl,-z,defs -Wl,--whole-archive "$library/libvgasnet.a" -Wl,--no-whole-archive "$scratch"/tools_*.o $system_libraries
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
for conduit in smp tcp ibv; do
    conduit_upper=$(upper $conduit)
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
        # What a configuration has of its own: an object that says which it is, and the tools. Everything else is in libvgas.
        $CC -O2 -fPIC "-DGASNET_CONDUIT_$conduit_upper" "-DGASNET_$mode_upper" -I"$here/include" \
            -c "$here/csrc/configuration.c" -o "$scratch/configuration.o"
        rm -f "$scratch/library.a"
        $AR cr "$scratch/library.a" "$scratch/configuration.o" "$scratch"/tools_*.o
        put "$scratch/library.a" "lib/libvgas-$conduit-$mode.a"
        # The library that clients name, often as the only one: a script for the linker, which names the rest. A copy of libvgas
        # in each of them would be gigabytes.
        echo "/* GNU ld script */ INPUT(libvgas-$conduit-$mode.a libvgas.a $script_libraries)" >"$scratch/library.a"
        put "$scratch/library.a" "lib/libgasnet-$conduit-$mode.a"
    done
done
echo "installed vgas $version in $prefix"
