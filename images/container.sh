# A hook of mmdebstrap, which runs it with the root folder of a container image: puts /wheels where Debian's Python and
# shells find them, and packs them as /wheels.tar, a layer of their own. Equal wheels make equal bytes.
# shellcheck shell=sh
set -eu
cd "$1"
packages=usr/local/lib/python3.13/dist-packages
chown -R 0:0 wheels
chmod -R u=rwX,go=rX wheels
# They have hashes of the programs, which pip wrote for the Python of the operator's machine.
find wheels -path '*.dist-info/*' \( -name RECORD -o -name INSTALLER -o -name REQUESTED -o -name direct_url.json \) -delete
grep -lIZ '^#!' wheels/bin/* | xargs -0r sed -i -e '1s|^#!.*python.*|#!/usr/bin/python3|' \
  -e "1{/^#!.bin.sh$/{N;N;s|^#!.bin.sh\n'''exec' .*|#!/usr/bin/python3|}}"
mkdir -p "$packages" usr/local/bin
mv wheels/bin/* usr/local/bin/
rmdir wheels/bin
mv wheels/* "$packages/"
rmdir wheels
# Without times: those of a layer change. Some packages have files of Python 2.
chroot . python3 -m compileall -q --invalidation-mode unchecked-hash "/$packages" >&2 || true
tar --sort=name --mtime=@0 -cf wheels.tar usr/local
rm -rf usr/local/bin/* usr/local/lib/python3.13
# Host keys would be the same in each container.
rm -f etc/ssh/ssh_host_*
# mmdebstrap has put the name, the resolver and the mirror of the operator's machine there.
rm -rf etc/hostname etc/resolv.conf etc/apt/sources.list.d/*
signed='deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian'
printf '%s main\n' "$signed trixie" "$signed trixie-updates" "$signed-security trixie-security" > etc/apt/sources.list
