#!/usr/bin/env bash
# Prepares a machine to become an image: removes what belongs to this machine only, then checks that nothing of it is
# left. The checks print a line for each defect; the exit status is then 1. ROOT is the root folder of the machine.
# Usage: freeze.sh clean|check|all
set -euo pipefail
shopt -s nullglob dotglob extglob

readonly ROOT=${ROOT:-}
readonly HOMES=("$ROOT"/root "$ROOT"/home/* "$ROOT"/var/lib/*)
# In a home: what logs in to other services.
readonly CREDENTIALS=(.aws .azure .config/gcloud .docker .git-credentials .cache/huggingface/token .kube .netrc .npmrc .pgpass .pypirc)
# Keys and ids of this machine; it is a node of the cluster only after its own request.
readonly OWN=("$ROOT"/etc/kubernetes/{kubelet,bootstrap-kubelet,admin}.conf "$ROOT"/etc/kubernetes/pki/*.key
  "$ROOT"/var/lib/kubelet/pki/* "$ROOT"/etc/ssl/private/*.key "$ROOT"/etc/nvme/host{id,nqn}
  "$ROOT"/var/lib/NetworkManager/secret_key)
defects=0

# --- clean -----------------------------------------------------------------------------------------------------------

# What the next machine makes again: host keys, its identity, the state of cloud-init, of bedplate and of the network.
# A note about a program that could not be downloaded stays: the machine tries it again a day later.
remove_identity() {
  rm -rf "$ROOT"/etc/ssh/ssh_host_*_key{,.pub} "$ROOT"/etc/netplan/50-cloud-init.yaml \
    "$ROOT"/var/lib/cloud/* "$ROOT"/var/lib/dhcp/* "$ROOT"/var/lib/systemd/{random-seed,credential.secret} \
    "$ROOT"/var/lib/bedplate/!(*.unreached)
  : >"$ROOT/etc/machine-id"
  rm -rf "$ROOT/var/lib/dbus/machine-id" "${OWN[@]}"
  # The service of iSCSI writes a name in place of this line.
  [[ ! -e $ROOT/etc/iscsi/initiatorname.iscsi ]] || echo 'GenerateName=yes' >"$ROOT/etc/iscsi/initiatorname.iscsi"
  [[ ! -e $ROOT/etc/hostname ]] || : >"$ROOT/etc/hostname"
  [[ ! -e $ROOT/etc/hosts ]] || sed -i '/^127\.0\.1\.1 /d' "$ROOT/etc/hosts"
  # The arrays of this machine's disks.
  [[ ! -e $ROOT/etc/mdadm/mdadm.conf ]] || sed -i '/^ARRAY /d' "$ROOT/etc/mdadm/mdadm.conf"
}

# The bootstrap of the bake would install again instead of configuring.
remove_bootstrap() {
  rm -rf "$ROOT"/usr/local/lib/bedplate/bootstrap "$ROOT"/etc/systemd/system/bedplate-node.{service,timer} \
    "$ROOT"/etc/systemd/system/*.wants/bedplate-node.{service,timer}
}

# Keys and what people have typed.
remove_traces() {
  local home
  for home in "${HOMES[@]}"; do
    rm -rf "$home"/.ssh/{authorized_keys{,2},known_hosts} "$home"/.*_history "$home"/.{lesshst,viminfo,wget-hsts} \
      "${CREDENTIALS[@]/#/$home/}"
  done
  rm -rf "$ROOT"/etc/ssh/authorized_keys.d/* \
    "$ROOT"/etc/sudoers.d/{50-bedplate-people,90-bedplate-first,90-cloud-init-users}
}

# Logs keep their files, so that modes and owners stay.
remove_logs() {
  rm -rf "$ROOT"/var/log/journal/* "$ROOT"/var/crash/* "$ROOT"/var/lib/systemd/coredump/* "$ROOT"/var/mail/* \
    "$ROOT"/var/cache/apt/archives/*.deb "$ROOT"/tmp/* "$ROOT"/var/tmp/*
  [[ -d $ROOT/var/log ]] || return 0
  find "$ROOT/var/log" -type f \( -name '*.gz' -o -name '*.[0-9]' -o -name '*.old' \) -delete
  find "$ROOT/var/log" -type f -exec truncate --size=0 {} +
}

# The packages of the image, for an inventory without a boot.
list_packages() {
  local file=$ROOT/usr/share/bedplate/packages.txt
  install -d "${file%/*}"
  # shellcheck disable=SC2016  # dpkg-query replaces these
  dpkg-query --admindir="$ROOT/var/lib/dpkg" --show --showformat '${Package} ${Version} ${Architecture}\n' >"$file"
}

# --- check -----------------------------------------------------------------------------------------------------------

defect() {
  printf '%s\n' "$*"
  defects=1
}

# absent WHAT FILE...: no file may exist.
absent() {
  local what=$1 file
  shift
  for file in "$@"; do
    [[ ! -e $file && ! -L $file ]] || defect "$what: ${file#"$ROOT"}"
  done
}

check_identity() {
  absent 'host key' "$ROOT"/etc/ssh/ssh_host_*
  absent 'state of cloud-init' "$ROOT"/var/lib/cloud/*
  absent 'state of this machine' "$ROOT"/var/lib/bedplate/!(*.unreached)
  absent 'key or id of this machine' "${OWN[@]}"
  ! grep -qs '^InitiatorName=' "$ROOT/etc/iscsi/initiatorname.iscsi" || defect 'iSCSI name of this machine'
  absent 'bootstrap of the bake' "$ROOT"/usr/local/lib/bedplate/bootstrap "$ROOT"/etc/systemd/system/bedplate-node.*
  [[ -e $ROOT/etc/machine-id && ! -s $ROOT/etc/machine-id ]] || defect 'machine id: /etc/machine-id must be an empty file'
}

check_keys() {
  local home file
  for home in "${HOMES[@]}"; do
    absent 'authorised key' "$home"/.ssh/authorized_keys{,2}
    absent 'history' "$home"/.*_history
    absent 'credentials' "${CREDENTIALS[@]/#/$home/}"
  done
  absent 'authorised key' "$ROOT"/etc/ssh/authorized_keys.d/*
  absent 'rights of the first login' "$ROOT"/etc/sudoers.d/90-bedplate-first
  while read -r file; do
    defect "private key: ${file#"$ROOT"}"
  done < <(grep -rlsI -e '-----BEGIN [A-Z ]*PRIVATE KEY-----' "$ROOT/root" "$ROOT/home" "$ROOT/etc/ssh" || true)
}

check_logs() {
  local file
  while read -r file; do
    defect "log: ${file#"$ROOT"}"
  done < <(find "$ROOT/var/log" -type f -size +0 2>/dev/null)
}

# Until the configuration of the next boot, which also confirms the packet filter.
check_filter() {
  local unit=bedplate-shut.service
  [[ -s $ROOT/etc/bedplate/emergency.nft && -L $ROOT/etc/systemd/system/sysinit.target.wants/$unit ]] ||
    defect "open packet filter: $unit is not enabled"
}

# What the first boot needs.
check_boot() {
  local kernels=("$ROOT"/boot/vmlinuz-*) kernel
  ((${#kernels[@]})) || defect 'no kernel in /boot'
  for kernel in "${kernels[@]}"; do
    [[ -s ${kernel/vmlinuz/initrd.img} ]] || defect "no initial ram disk for ${kernel#"$ROOT"}"
  done
  [[ -x $ROOT/usr/bin/cloud-init ]] || defect 'cloud-init is not installed'
  [[ -d $ROOT/opt/bedplate/current/ ]] || defect 'no bundle at /opt/bedplate/current'
  [[ -z $(dpkg --admindir="$ROOT/var/lib/dpkg" --audit 2>&1) ]] || defect 'packages are not configured: run dpkg --audit'
}

case ${1:?clean, check or all} in
  clean | all)
    remove_identity
    remove_bootstrap
    remove_traces
    list_packages
    remove_logs
    ;;&
  check | all)
    check_identity
    check_keys
    check_logs
    check_filter
    check_boot
    ;;
esac
exit "$defects"
