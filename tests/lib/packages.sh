# What the project needs from Debian, and how it is installed. Sourced by run, test and .ci/run.
# Nothing is printed and nothing is asked of the network when everything is there.

BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config libmicrohttpd-dev libcurl4-openssl-dev
    libssl-dev liblmdb-dev libcjson-dev zlib1g-dev libyaml-dev ca-certificates)
TEST_PACKAGES=(libcriterion-dev python3-venv python3-pip python3-yaml)
# Tools that need not be Debian's own: "command package".
BUILD_TOOLS=()
TEST_TOOLS=("python3 python3" "curl curl" "skopeo skopeo")
CI_PACKAGES=(clang-14 clang-format-14 clang-tidy-14)
# The last four are daemons, or bring one along: nothing that ./test alone should install.
CI_TOOLS=("git git" "node nodejs" "npm npm" "dockerd docker.io" "ctr containerd" "podman podman"
    "docker-registry docker-registry" "g++ g++")
BENCH_PACKAGES=()
BENCH_TOOLS=("nginx nginx-light" "wrk wrk" "docker-registry docker-registry" "openssl openssl"
    "curl curl")
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps servers

die() {
    echo "$*" >&2
    exit 1
}

# missing_packages PACKAGE...: those that dpkg does not know as installed.
missing_packages() {
    local have
    # It fails when it knows none of one; what it knows of the others is what counts.
    have=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package} ' "$@" 2>/dev/null || true) "
    local package
    for package in "$@"; do
        [[ $have == *"i $package "* ]] || echo "$package"
    done
}

# missing_tools "COMMAND PACKAGE"...: the packages of commands that are not on the path.
missing_tools() {
    local tool command package
    for tool in "$@"; do
        read -r command package <<<"$tool"
        command -v "$command" >/dev/null || echo "$package"
    done
}

# install_packages PACKAGE...
install_packages() {
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "These packages are missing and there is no sudo to install them with: $*
Install them as root: apt-get install $*"
        as_root=(sudo)
    fi
    echo "installing $*" >&2
    # Standard output belongs to the server (./run) and to the summary (./test).
    "${as_root[@]}" apt-get update -q >&2 ||
        echo "apt-get update failed; trying with the lists that are there" >&2
    (
        start_no_services
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
            --no-install-recommends "$@" >&2 </dev/null
    ) || die "apt-get could not install: $*"
}

# start_no_services: until this subshell ends, packages do not start the servers that they hold.
# We want the programs: whoever needs a server here starts it, and ends it.
start_no_services() {
    local policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0 # the machine has a policy of its own
    trap '"${as_root[@]}" rm -f '"$policy" EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
}

# need GROUP...: installs what is missing of BUILD, TEST, CI or BENCH.
need() {
    local group packages=() missing
    for group in "$@"; do
        local -n listed="${group}_PACKAGES" tools="${group}_TOOLS"
        if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
            mapfile -t missing < <(missing_packages "${listed[@]}"; missing_tools "${tools[@]}")
            packages+=("${missing[@]}")
        else
            NOT_DEBIAN+=("${listed[@]}" "${tools[@]##* }")
        fi
    done
    [ ${#packages[@]} = 0 ] || install_packages "${packages[@]}"
}
NOT_DEBIAN=()

# configure PRESET: cmake when there is no build folder yet; ninja looks after it from then on.
configure() {
    [ -f "build/$1/build.ninja" ] && return
    if [ ${#NOT_DEBIAN[@]} != 0 ]; then
        echo "This is not Debian (no apt-get), so nothing is installed for you. If the build" >&2
        echo "stops, install what these Debian packages hold: ${NOT_DEBIAN[*]}" >&2
        command -v cmake >/dev/null && command -v ninja >/dev/null ||
            die "cmake and ninja are needed first."
    fi
    mkdir -p build
    cmake --preset "$1" >"build/$1-cmake.log" 2>&1 || {
        cat "build/$1-cmake.log" >&2
        rm -f "build/$1/build.ninja"
        die "cmake --preset $1 failed."
    }
}
