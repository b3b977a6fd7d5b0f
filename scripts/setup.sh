#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: a linker, make, git, and PostgreSQL's server
# programs. Works as root or through `sudo -n`, with apt; otherwise it says what to run. Installs nothing that is
# there, and starts no database server: tests run a private one.
set -euo pipefail

oldest=15 newest=18

say() { printf 'setup: %s\n' "$*" >&2; }

# True when a supported PostgreSQL server is installed, whoever installed it.
have_postgres() {
    local dir program version
    for dir in "$(pg_config --bindir 2>/dev/null || true)" /usr/lib/postgresql/*/bin; do
        for program in initdb postgres psql pg_isready; do
            [ -n "$dir" ] && [ -x "$dir/$program" ] || continue 2
        done
        version=$("$dir/postgres" --version 2>/dev/null | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
        if [ "${version:-0}" -ge "$oldest" ] && [ "$version" -le "$newest" ]; then return 0; fi
    done
    return 1
}

# The newest supported server package that apt can install.
postgres_package() {
    local version policy
    for version in $(seq "$newest" -1 "$oldest"); do
        # Read whole before it is searched: a search that ends early would end apt-cache with an error.
        policy=$(LC_ALL=C apt-cache policy "postgresql-$version" 2>/dev/null || true)
        if grep -Eq '^ *Candidate: *[^( ]' <<<"$policy"; then
            echo "postgresql-$version"
            return 0
        fi
    done
    return 1
}

# Debian's package makes and starts a cluster called "main" unless this file says otherwise. It is put back at the end.
conf=/etc/postgresql-common/createcluster.conf
restore() {
    if [ -n "${kept:-}" ]; then as_root cp -p "$kept" "$conf" && as_root rm -f "$kept"; fi
}
no_main_cluster() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install postgresql-common </dev/null
    kept=$(mktemp)
    as_root cp -p "$conf" "$kept"
    trap restore EXIT
    as_root sed -i -E '/^[# ]*create_main_cluster/d' "$conf"
    echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null
}

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
command -v git >/dev/null || missing+=(git)
needs_postgres=no
have_postgres || needs_postgres=yes

if [ ${#missing[@]} -eq 0 ] && [ "$needs_postgres" = no ]; then exit 0; fi

wanted=("${missing[@]}")
[ "$needs_postgres" = no ] || wanted+=("PostgreSQL $oldest to $newest (server)")
if ! command -v apt-get >/dev/null; then
    say "please install with your system's tools: ${wanted[*]}"
    exit 3
fi
if [ "$(id -u)" = 0 ]; then
    as_root() { "$@"; }
elif sudo -n true 2>/dev/null; then
    as_root() { sudo -n "$@"; }
else
    [ "$needs_postgres" = no ] || missing+=(postgresql)
    say "this needs root. Please run: sudo apt-get install ${missing[*]}"
    exit 3
fi

apt_options=(-y -q --no-install-recommends -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0)
say "installing: ${wanted[*]}"
as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null >&2
if [ ${#missing[@]} -gt 0 ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install "${missing[@]}" </dev/null >&2
fi
if [ "$needs_postgres" = yes ]; then
    if ! package=$(postgres_package); then
        say "this system's packages have no PostgreSQL $oldest to $newest. See https://www.postgresql.org/download/ and run this again"
        exit 3
    fi
    no_main_cluster >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install "$package" </dev/null >&2
    have_postgres || { say "$package was installed and its programs were not found"; exit 3; }
fi
say "done"
