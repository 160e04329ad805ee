"""Fakes of software for GPUs and EFA on a test node: a driver of NVIDIA, PyTorch, and libfabric.

Placeholder packages have the names and versions of Ubuntu's archive. Their nvidia-smi counts files in /dev, and
`modprobe` and `uname`, first in PATH, pretend that Ubuntu's kernel loads the module.
"""

from roles.frameworks.role import DIGEST, FOLDER, torch_version

_SCRIPT = r"""
set -e
pack() { # NAME VERSION: packs /srv/pack
  mkdir -p /srv/pack/DEBIAN /srv/archive
  printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: lab' 'Description: -' \
    >/srv/pack/DEBIAN/control
  dpkg-deb --build /srv/pack "/srv/archive/$1_${2#*:}.deb" >/dev/null
  rm -r /srv/pack
}
unit() { # NAME COMMAND
  mkdir -p /srv/pack/usr/lib/systemd/system /srv/pack/usr/bin
  printf '%s\n' '[Service]' "ExecStart=$2" '[Install]' WantedBy=multi-user.target \
    >"/srv/pack/usr/lib/systemd/system/$1.service"
}
for version in 580.95.05 595.71.05; do
  branch=${version%%.*} release=$version-0ubuntu1
  mkdir -p /srv/pack/usr/bin
  cat >/srv/pack/usr/bin/nvidia-smi <<'SMI'
#!/bin/bash
shopt -s nullglob
for gpu in /dev/nvidia?; do
  case $1 in
  *driver_version) cat /sys/module/nvidia/version ;;
  *name) echo "NVIDIA $(cat /etc/fake-gpu)" ;;
  *display_active) echo "GPU-${gpu#/dev/nvidia}, ${gpu#/dev/nvidia}, [N/A], Disabled" ;;
  -q) xml+="<gpu id='$gpu'><product_name>NVIDIA $(cat /etc/fake-gpu)</product_name>"
    xml+="<fb_memory_usage><total>$(cat /etc/fake-memory) MiB</total></fb_memory_usage></gpu>" ;;
  *persistence_mode) if systemctl --quiet is-active nvidia-persistenced; then echo Enabled; else echo Disabled; fi ;;
  esac
done
[[ $1 != -q ]] ||
  echo "<nvidia_smi_log><driver_version>$(cat /sys/module/nvidia/version)</driver_version>${xml-}</nvidia_smi_log>"
SMI
  chmod 755 /srv/pack/usr/bin/nvidia-smi
  pack nvidia-utils-$branch-server $release
  unit nvidia-persistenced '/usr/bin/nvidia-persistenced --no-persistence-mode'
  printf '#!/bin/sh\n[ "$3" = --persistence-mode ] && exec sleep infinity\n' >/srv/pack/usr/bin/nvidia-persistenced
  chmod 755 /srv/pack/usr/bin/nvidia-persistenced
  cp -r /srv/pack /srv/closed
  pack nvidia-headless-no-dkms-$branch-server-open $release
  mv /srv/closed /srv/pack
  pack nvidia-headless-no-dkms-$branch-server $release
  unit nvidia-fabricmanager '/usr/bin/sleep infinity'
  pack nvidia-fabricmanager-$branch $release
  mkdir -p /srv/pack/usr/share/nvidia-module; echo $version >/srv/pack/usr/share/nvidia-module/version
  cp -r /srv/pack /srv/module
  pack linux-modules-nvidia-$branch-server-open-generic-hwe-24.04 $release
  cp -r /srv/module /srv/pack
  pack linux-modules-nvidia-$branch-server-generic-hwe-24.04 $release
  mv /srv/module /srv/pack
  pack linux-modules-nvidia-$branch-server-open-aws $release
  pack libnvidia-compute-$branch-server $release
done
unit nvidia-fabricmanager '/usr/bin/sleep infinity'; pack nvidia-fabricmanager-580 580.126.20-0ubuntu1
for name in cuda13 proprietary proprietary-cuda13; do pack datacenter-gpu-manager-4-$name 1:4.7.0-1; done
unit nvidia-dcgm '/usr/bin/sleep infinity'
cat >/srv/pack/usr/bin/dcgmi <<'DCGMI'
#!/bin/sh
[ "$1" != diag ] || exec echo '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
  {"name": "memory", "results": [{"status": "Pass"}]}]}]}}'
systemctl --quiet is-active nvidia-dcgm && set -- /dev/nvidia? && echo "$# GPUs found."
DCGMI
chmod 755 /srv/pack/usr/bin/dcgmi
pack datacenter-gpu-manager-4-core 1:4.7.0-1
unit nvidia-dcgm-exporter '/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv'
cat >/srv/pack/usr/bin/dcgm-exporter <<'EXPORTER'
#!/usr/bin/python3
import argparse, glob, http.server, json, ssl
parser = argparse.ArgumentParser()
parser.add_argument("--kubernetes", action="store_true")
for name in ("remote-hostengine-info", "collect-interval", "collectors", "address", "web-config-file"):
    parser.add_argument(f"--{name}", required=True)
options = parser.parse_args()
names = [line.split(",")[0] for line in open(options.collectors) if line.startswith("DCGM_")]

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        gpus = [path[-1] for path in glob.glob("/dev/nvidia?")]
        rows = [f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="here"}} 0\n' for name in names for gpu in gpus]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("# fake\n" + "".join(rows)).encode())

tls = json.load(open(options.web_config_file))["tls_server_config"]
address, _, port = options.address.rpartition(":")
server = http.server.ThreadingHTTPServer((address, int(port)), Page)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(tls["cert_file"], tls["key_file"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
EXPORTER
chmod 755 /srv/pack/usr/bin/dcgm-exporter
pack datacenter-gpu-manager-exporter 4.8.2-1
cd /srv/archive; apt-ftparchive packages . >Packages; apt-ftparchive release . >../Release; mv ../Release .
export GNUPGHOME=/srv/keys; install -d -m 0700 $GNUPGHOME
gpg --batch --quiet --passphrase '' --quick-generate-key drivers@lab.example ed25519 sign never
gpg --export >/usr/share/keyrings/drivers.gpg
gpg --batch --clearsign --output InRelease Release
echo 'deb [signed-by=/usr/share/keyrings/drivers.gpg] file:/srv/archive ./' >/etc/apt/sources.list.d/archive.list
printf '%s\n' 'Package: nvidia-fabricmanager-580' 'Pin: version 580.95.*' 'Pin-Priority: 1001' \
  >/etc/apt/preferences.d/archive
apt-get --quiet update >/dev/null
printf '%s\n' '#!/bin/sh' '[ "$*" = -r ] && echo 6.17.0-8-generic || exec /usr/bin/uname "$@"' >/usr/local/sbin/uname
printf '%s\n' '#!/bin/sh' 'cat /usr/share/nvidia-module/version' >/usr/local/sbin/modinfo
cat >/usr/local/sbin/modprobe <<'MODPROBE'
#!/bin/sh
case "$*" in
nvidia) mkdir -p /sys/module/nvidia && cp /usr/share/nvidia-module/version /sys/module/nvidia/ ;;
"-r nvidia") rm -r /sys/module/nvidia ;;
*) exec /usr/sbin/modprobe "$@" ;;
esac
MODPROBE
chmod 755 /usr/local/sbin/uname /usr/local/sbin/modinfo /usr/local/sbin/modprobe
"""
_HARDWARE = r"""
for folder in /sys/module /sys/bus/pci/devices; do mount -t tmpfs tmpfs $folder; done
mkdir /sys/bus/pci/devices/0000:01:00.0
echo 0x10de >/sys/bus/pci/devices/0000:01:00.0/vendor; echo 0x030200 >/sys/bus/pci/devices/0000:01:00.0/class
"""
_SWITCH = r"""
mkdir /sys/bus/pci/devices/0000:02:00.0
echo 0x10de >/sys/bus/pci/devices/0000:02:00.0/vendor; echo 0x068000 >/sys/bus/pci/devices/0000:02:00.0/class
"""
_SWITCHED = 8


def fake_driver(model: str, count: int, memory: int = 0) -> str:
    """Return a shell script that gives a node an archive of driver packages, and GPUs with this memory in MiB."""
    return _SCRIPT + fake_gpus(model, count, memory)


def fake_gpus(model: str, count: int, memory: int = 0) -> str:
    """Return a shell script that gives a node with that archive GPUs, until a reboot."""
    devices = "".join(f"touch /dev/nvidia{number}\n" for number in range(count))
    switch = _SWITCH if count >= _SWITCHED else ""
    return f"{_HARDWARE}{switch}{devices}echo '{model}' >/etc/fake-gpu\necho {memory} >/etc/fake-memory\n"


# What udev does at boot: the module, and the service that its rule starts.
LOADED = """if [ -e /usr/share/nvidia-module/version ]; then
  modprobe nvidia; systemctl --no-block start nvidia-persistenced
fi
"""


# An installed PyTorch, which takes gigabytes.
FAKE_PYTORCH = rf"""
mkdir -p {FOLDER}/{DIGEST}/bin; ln -s {DIGEST} {FOLDER}/current; echo {DIGEST} >{FOLDER}/current/complete
cat >{FOLDER}/current/bin/python <<'PYTHON'
#!/bin/sh
case "$2" in *device_count*) set -- /dev/nvidia?; echo $# ;; *) echo {torch_version()}+cu130 ;; esac
PYTHON
chmod 755 {FOLDER}/current/bin/python
"""
# What AWS's installer of EFA leaves behind; VERSION is that of the stack.
FAKE_EFA = r"""
mkdir -p /opt/amazon/efa/bin
echo '# EFA installer version: VERSION' >/opt/amazon/efa_installed_packages
cat >/opt/amazon/efa/bin/fi_info <<'INFO'
#!/bin/sh
printf 'provider: efa\n    domain: rdmap0s6-rdm\n'
ls /sys/class/infiniband 2>/dev/null | sed -n '2,$s/.*/provider: efa\n    domain: &-rdm/p'
INFO
chmod 755 /opt/amazon/efa/bin/fi_info
"""
