#!/usr/bin/env bash
# What the README promises of a bare machine: in a fresh clone of what is committed, with nothing in PATH but Node, npm, git, tar, a shell
# (npm's scripts need one), coreutils and the C library's getconf, `npm ci && npm start` serves and makes a document Created, and
# `npm ci && npm test` passes.
#   .ci/bare.sh [options of Jest for npm test]
# Its log goes to stderr and begins with all that PATH has.
set -eu -o pipefail
exec >&2
cd "$(dirname "$0")/.."
repository=$PWD
work=$(mktemp -d)
group=
finish() {
  [ -z "$group" ] || kill -KILL -- "-$group" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

COREUTILS='arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum comm cp csplit cut date dd df dir dircolors dirname du
  echo env expand expr factor false fmt fold groups head hostid id install join link ln logname ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup
  nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum
  shred shuf sleep sort split stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink users
  vdir wc who whoami yes'
mkdir "$work/bin" "$work/home"
for name in node npm npx git tar sh getconf $COREUTILS; do
  program=$(type -P "$name") && ln -s "$program" "$work/bin/$name"
done
# npm's mirrors, certificates and downloads are the machine's; nothing else comes from its user or from the environment.
npm_config_userconfig=$(npm config get userconfig) npm_config_cache=$(npm config get cache)
export npm_config_userconfig npm_config_cache HOME="$work/home" CI=true
for name in ${!PHASELOCK_@} ${!MONGOMS_@} ${!XDG_@} MONGODB_URI KUBERNETES_SERVICE_HOST KUBECONFIG NODE_ENV; do unset "$name"; done
# The embedded engine was built for glibc 2.38 (docs/database.md): on a Debian or Ubuntu with an older one it fetches newer C libraries
# with the system's apt, which calls programs of the system.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
if [ -n "$glibc" ] && [ "$(printf '%s\n' 'glibc 2.38' "$glibc" | sort -V | head -n 1)" != 'glibc 2.38' ]; then
  for name in apt-get dpkg-deb; do
    printf '#!/bin/sh\nPATH=%s exec %s "$@"\n' /usr/sbin:/usr/bin:/sbin:/bin "$(type -P "$name")" >"$work/bin/$name"
    chmod +x "$work/bin/$name"
  done
fi
export PATH="$work/bin"

echo "=== PATH has: $(echo $(ls "$PATH"))"
echo "=== node $(node --version), npm $(npm --version), $(git --version), ${glibc:-no glibc}"
git clone -q "$repository" "$work/phaselock"
cd "$work/phaselock"
echo "=== a clone of $(git log -1 --format='%h %s')"

echo '=== npm ci && npm start'
npm ci
set -m
npm start >"$work/started" 2>&1 &
group=$!
set +m

# until_true SECONDS WHAT COMMAND...: fails with what was printed when the command doesn't succeed in time.
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ $SECONDS -ge $end ] || ! kill -0 "$group" 2>/dev/null; then
      cat "$work/started"
      echo "=== expected $what, got what is above"
      exit 1
    fi
    sleep 1
  done
}
pasted=
finds_what_to_paste() {
  local line before=
  while IFS= read -r line; do
    case $before in *'In another terminal:') pasted=${line#"${line%%[! ]*}"} && return ;; esac
    before=$line
  done <"$work/started"
  false
}
ready() {
  node -e '
    const [, url] = /http +(http:\S+)\/livez/.exec(require("fs").readFileSync(process.argv[1], "utf8")) ?? []
    fetch(url + "/readyz").then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))' "$work/started"
}
is_created() {
  list=$(sh -c "${pasted##*&& }" 2>/dev/null) && case $list in *' Created'*) ;; *) false ;; esac
}
until_true 300 'a line to paste in another terminal' finds_what_to_paste
until_true 60 'a replica that is ready' ready
cat "$work/started"
echo "=== pasted: $pasted"
sh -c "$pasted"
until_true 60 'a document that is Created' is_created
echo "$list"
kill -TERM -- "-$group"
wait "$group" || true
group=
echo '=== npm ci && npm test'
npm ci
npm test -- "$@"
