# shellcheck shell=bash
# build.sh - package installation and builds, shared by ./quickstart, ./run-tests and bench/run.
#
# Source it from the top of the source tree. Builds are in build/NAME, outside the sources.

say() { printf '%s\n' "$*"; }
die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Returns whether the contents of the Debian package $1 are installed. Looks for its files or
# commands, so that it works on other systems too.
have() {
    case $1 in
    libc6-dev) [[ -e /usr/include/stdio.h ]] ;;
    libevent-dev) pkg-config --exists libevent_core libevent_extra libevent_openssl libevent_pthreads ;;
    libhiredis-dev) pkg-config --exists hiredis ;;
    libyaml-dev) pkg-config --exists yaml-0.1 ;;
    libsystemd-dev) pkg-config --exists libsystemd ;;
    libssl-dev) pkg-config --exists openssl ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libpq-dev) pkg-config --exists libpq ;;
    libcurl4-openssl-dev) pkg-config --exists libcurl ;;
    libnghttp2-dev) pkg-config --exists libnghttp2 ;;
    libprotobuf-c-dev) pkg-config --exists libprotobuf-c ;;
    protobuf-c-compiler) command -v protoc-c ;;
    postgresql) [[ -n $(find /usr/lib/postgresql -name initdb -print -quit) ]] ;;
    libclang-rt-*-dev) [[ -n $(find "$(clang -print-resource-dir)" -name '*asan*.a' -print -quit) ]] ;;
    check) pkg-config --exists check ;;
    afl++) command -v afl-fuzz ;;
    groff-base) command -v groff ;;
    python3-flask) /usr/bin/python3 -c 'import flask, werkzeug' ;;
    python3-jwt) /usr/bin/python3 -c 'import jwt' ;;
    python3-cryptography) /usr/bin/python3 -c 'import cryptography' ;;
    nghttp2-client) command -v h2load ;;
    nghttp2-server) command -v nghttpd ;;
    python3-hypercorn) command -v hypercorn ;;
    python3-protobuf) /usr/bin/python3 -c 'import google.protobuf' ;;
    python3-grpcio) /usr/bin/python3 -c 'import grpc' ;;
    python3-hpack) /usr/bin/python3 -c 'import hpack' ;;
    python3-jsonschema) /usr/bin/python3 -c 'import jsonschema' ;;
    python3-yaml) /usr/bin/python3 -c 'import yaml' ;;
    chromium-driver) command -v chromedriver ;;
    fonts-dejavu-core) [[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]] ;;
    nginx-light) command -v nginx || [[ -x /usr/sbin/nginx ]] ;;
    haproxy) command -v haproxy || [[ -x /usr/sbin/haproxy ]] ;;
    prometheus) command -v promtool ;;
    dpkg-dev) command -v dpkg-buildpackage ;;
    debhelper) command -v dh ;;
    iproute2) command -v ip ;;
    systemd) command -v systemd-socket-activate ;;
    redis-tools) command -v redis-cli ;;
    xz-utils) command -v xz ;;
    tzdata) [[ -e /usr/share/zoneinfo/Europe/Berlin ]] ;;
    util-linux) command -v taskset ;;
    *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "This needs root, and there is no sudo: run as root: $*"
    fi
}

# Prevents packages from starting services when they are installed: weir starts its own Redis.
readonly policy_rc=/usr/sbin/policy-rc.d
hold_services() {
    [[ ! -e $policy_rc ]] || return 1
    # shellcheck disable=SC2016
    as_root sh -c 'printf "#!/bin/sh\nexit 101\n" >"$1" && chmod 755 "$1"' sh "$policy_rc"
}

# Waits while another process installs packages.
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

apt_install() {
    local held=no ok=yes
    ! hold_services || held=yes
    apt install -y --no-install-recommends "$@" || ok=no
    [[ $held == no ]] || as_root rm -f "$policy_rc"
    [[ $ok == yes ]]
}

# Returns whether apt can install the packages with its current package lists. A new machine has
# none.
is_known() { apt-get -qq install --simulate --no-install-recommends "$@" >/dev/null 2>&1 </dev/null; }

# Installs the packages. If this fails, updates the package lists and retries. Prints the output of
# apt only if the retry fails too.
install_packages() {
    local output
    if is_known "$@" && output=$(apt_install "$@" 2>&1); then
        return
    fi
    if output=$(apt update 2>&1) && output=$(apt_install "$@" 2>&1); then
        return
    fi
    say "$output" >&2
    die "apt-get could not install: $*"
}

# Installs missing Debian packages. If the system has no apt, prints their names and exits.
need() {
    local package missing=()
    for package in "$@"; do
        have "$package" || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null ||
        die "These are missing (by their Debian names): ${missing[*]}. Please install them, then run this again."
    ((EUID == 0)) || command -v sudo >/dev/null ||
        die "These packages are missing, and there is no sudo. Run as root: apt-get install -y --no-install-recommends ${missing[*]}
Then run this again."
    say "Installing ${missing[*]} ..."
    install_packages "${missing[@]}"
}

need_for_building() {
    need gcc libc6-dev make autoconf automake pkg-config libevent-dev libhiredis-dev libyaml-dev libsystemd-dev libssl-dev libjansson-dev libpq-dev libcurl4-openssl-dev libnghttp2-dev \
        libprotobuf-c-dev protobuf-c-compiler
}

# build NAME TARGETS [CONFIGURE-OPTION...]: makes the targets in build/NAME. Configures the directory
# first if it is new or its options have changed. Every step checks its own status, because bash
# ignores "set -e" in functions called with || or if.
build() {
    local where=build/$1 targets=$2
    shift 2
    local options="CC=${CC:-} $*"
    if [[ -e config.status ]]; then
        die "The source directory is configured. Run 'make distclean' in it first: builds in other directories would use its object files."
    fi
    if [[ ! -x configure || configure.ac -nt configure ]]; then
        mkdir -p build-aux && autoreconf -i || return
    fi
    mkdir -p "$where" || return
    if [[ ! -e $where/Makefile || $(cat "$where/options" 2>/dev/null) != "$options" ]]; then
        (cd "$where" && ../../configure --quiet "$@") || return
        printf '%s\n' "$options" >"$where/options"
    fi
    # shellcheck disable=SC2086
    make -s -C "$where" -j"$(nproc)" $targets
}

# The optimised build, also for benchmarks. Link-time optimisation saves 6 % of the instructions per
# request and does not lengthen the build.
build_release() { # TARGETS
    build release "$1" --enable-lto
}

# The build with AddressSanitizer, UndefinedBehaviorSanitizer and libFuzzer instrumentation, for
# tests and fuzzing. -O1 compiles faster than -O2 and runs hardly slower. -g1: line numbers for the
# reports. lld links the unit tests in a third of the time.
build_with_sanitizers() { # TARGETS
    CC=clang build asan "$1" --enable-sanitizers --enable-fuzzing --enable-werror 'CFLAGS=-O1 -g1' LDFLAGS=-fuse-ld=lld
}
# The build with ThreadSanitizer. Its few tests are hardly slower without optimisation.
build_with_thread_sanitizer() { # TARGETS
    CC=clang build tsan "$1" --enable-thread-sanitizer --enable-werror 'CFLAGS=-O0 -g1' LDFLAGS=-fuse-ld=lld
}
