# First boot of a node: runs the steps in STEPS in order and stops at the first failure. Uses only programs of the Ubuntu
# image (bash, curl 8, sed, systemd; no AWS CLI). Never prints credentials.
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit

readonly PAUSE=${PAUSE:-3} TRIES=${TRIES:-20} ROOT=${ROOT:-}
readonly IMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest
step=start instance='' region='' claimed=''
declare -A owner=() deletions=()

say() { printf 'bedplate: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Wait longer each time, with a random part.
rest() { sleep "$((PAUSE * $1)).$RANDOM"; }

metadata() {
  local token
  token=$(curl --silent --show-error --fail --noproxy '*' --retry 5 --retry-connrefused --request PUT \
    --header 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$IMDS/api/token")
  curl --silent --show-error --fail --noproxy '*' --config - "$IMDS/meta-data/$1" <<<"header = \"X-aws-ec2-metadata-token: $token\""
}

# json_value NAME JSON: the string value of NAME.
json_value() { grep -o "\"$1\" *: *\"[^\"]*\"" <<<"$2" | sed 's/.*: *"\(.*\)"/\1/'; }

# signed SERVICE REGION HOST PATH [OPTION...]: one call with the credentials of the node, not passed as arguments.
signed() {
  local service=$1 where=$2 host=$3 path=$4 role keys reply status=0
  shift 4
  role=$(metadata iam/security-credentials/) && keys=$(metadata "iam/security-credentials/$role") || return
  reply=$(
    curl --silent --show-error --fail-with-body --max-time 60 --retry 5 --retry-connrefused --config - "$@" \
      "${AWS_ENDPOINT_URL:-https://$host}$path" <<END
user = "$(json_value AccessKeyId "$keys"):$(json_value SecretAccessKey "$keys")"
header = "X-Amz-Security-Token: $(json_value Token "$keys")"
aws-sigv4 = "aws:amz:$where:$service"
END
  ) || status=$?
  ((status == 0)) || say "$service: $reply"
  printf '%s' "$reply"
  return "$status"
}

# query SERVICE VERSION ACTION [NAME=VALUE...]
query() {
  local service=$1 fields=(--data-urlencode "Version=$2" --data-urlencode "Action=$3")
  shift 3
  while (($#)); do
    fields+=(--data-urlencode "$1")
    shift
  done
  signed "$service" "$region" "$service.$region.amazonaws.com" / "${fields[@]}"
}

parameter() {
  local reply
  reply=$(signed ssm "$HOME_REGION" "ssm.$HOME_REGION.amazonaws.com" / \
    --header 'X-Amz-Target: AmazonSSM.GetParameter' --header 'Content-Type: application/x-amz-json-1.1' \
    --data "{\"Name\":\"/$FLEET/$1\",\"WithDecryption\":true}") || return
  json_value Value "$reply"
}

complete() {
  query autoscaling 2011-01-01 CompleteLifecycleAction "AutoScalingGroupName=$SCALING_GROUP" \
    "LifecycleHookName=$1" "LifecycleActionResult=$2" "InstanceId=$instance"
}

# report HOOK RESULT: an expired hook is no error.
report() {
  local reply
  reply=$(complete "$1" "$2") || [[ $reply == *'No active Lifecycle Action'* ]] || fail "cannot complete the lifecycle hook $1"
}

report_ready() { report ready CONTINUE; }

# --- logins ----------------------------------------------------------------------------------------------------------

# add_admin NAME UID KEY: same account as the roles make. No home directory: it may be on a file server.
add_admin() {
  local keys=$ROOT/etc/ssh/authorized_keys.d/$1
  getent group "$1" >/dev/null || groupadd --gid "$2" "$1"
  getent passwd "$1" >/dev/null || useradd --uid "$2" --gid "$2" --home-dir "/home/$1" --no-create-home \
    --shell /bin/bash --no-log-init --password '*' "$1"
  grep -qsxF "$3" "$keys" || printf '%s\n' "$3" >>"$keys"
}

# Allow administrators to log in with their keys and use sudo, to configure this machine.
let_admins_in() {
  local reply name uid key sudoers='' drop_in=$ROOT/etc/ssh/sshd_config.d/00-bedplate.conf try=0
  # sshd reads the keys as the user.
  umask 022
  until reply=$(parameter admins); do
    ((++try < TRIES)) || fail "cannot read the parameter admins"
    rest "$try"
  done
  install -d -m 0755 "$ROOT/etc/ssh/authorized_keys.d"
  while read -r name uid key; do
    [[ -n $key ]] || continue
    add_admin "$name" "$uid" "$key"
    [[ $sudoers == *"$name ALL="* ]] || sudoers+="$name ALL=(ALL:ALL) NOPASSWD: ALL"$'\n'
  done < <(tr ',' '\n' <<<"$reply")
  [[ -n $sudoers ]] || return 0
  install -m 0440 /dev/stdin "$ROOT/etc/sudoers.d/50-bedplate-people" <<<"$sudoers"
  # A configured image has this file already.
  [[ -e $drop_in ]] || printf 'AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%%u\n' >"$drop_in"
  systemctl try-reload-or-restart ssh.service
}

# --- names -----------------------------------------------------------------------------------------------------------

zone_call() { signed route53 us-east-1 route53.amazonaws.com "/2013-04-01/hostedzone/$zone/rrset$1" "${@:2}"; }

xml_value() { sed -n "s|.*<$1>\([^<]*\)</$1>.*|\1|p" <<<"$2"; }

# Read the owner of each number, and the changes that delete its records. Records are sorted by name, not number.
read_names() {
  local from="name=$LABEL-1.$DOMAIN&type=A" page set number type value
  owner=() deletions=()
  while [[ -n $from ]]; do
    page=$(zone_call "?maxitems=300&$from" | tr -d '\n' | sed 's/<ResourceRecordSet>/\n&/g') || return
    while read -r set; do
      number=$(xml_value Name "$set")
      number=${number%".$DOMAIN."}
      number=${number#"$LABEL-"}
      [[ $number =~ ^[1-9][0-9]*$ && $(xml_value Name "$set") == "$LABEL-$number.$DOMAIN." ]] || continue
      type=$(xml_value Type "$set") value=$(xml_value Value "$set")
      [[ $type =~ ^(A|SSHFP|TXT)$ ]] || continue
      deletions[$number]+=$(change DELETE "$LABEL-$number.$DOMAIN" "$type" "$(xml_value TTL "$set")" "$value")
      value=${value//&quot;/}
      [[ $type != TXT ]] || owner[$number]=${value//\"/}
    done < <(tail -n +2 <<<"$page")
    from=$(xml_value NextRecordName "$page")
    [[ $from == "$LABEL-"*".$DOMAIN." ]] && from="name=$from&type=$(xml_value NextRecordType "$page")" || from=''
  done
}

# existing INSTANCE...: those that exist. Unlike a list of ids, a filter accepts ids that EC2 has forgotten.
existing() {
  local fields=(Filter.1.Name=instance-id Filter.2.Name=instance-state-name) count=0 state
  for state in pending running stopping stopped; do fields+=("Filter.2.Value.$((++count))=$state"); done
  for ((count = 1; count <= $#; count++)); do fields+=("Filter.1.Value.$count=${!count}"); done
  (($# == 0)) || query ec2 2016-11-15 DescribeInstances "${fields[@]}" | tr '<' '\n' | sed -n 's|^instanceId>||p'
}

# Print our number if we have one, else the lowest without an existing owner.
lowest_free() {
  local number there
  for number in "${!owner[@]}"; do [[ ${owner[$number]} != "$instance" ]] || { echo "$number" && return; }; done
  # Without the list of instances, take no name.
  there=" $(existing_owners | tr '\n' ' ')" || fail "cannot list the instances that own names"
  for ((number = 1; number <= HIGHEST; number++)); do
    # Records without an owner are not from a node.
    [[ -n ${deletions[$number]-} && -z ${owner[$number]-} ]] && continue
    [[ -n ${owner[$number]-} && $there == *" ${owner[$number]} "* ]] || { echo "$number" && return; }
  done
}

# In batches of 100: a filter takes 200 values.
existing_owners() {
  local some
  printf '%s\n' "${owner[@]}" | xargs -r -n 100 | while read -r -a some; do existing "${some[@]}" || exit; done
}

change() {
  printf '<Change><Action>%s</Action><ResourceRecordSet><Name>%s</Name><Type>%s</Type><TTL>%s</TTL><ResourceRecords>' "${@:1:4}"
  printf '<ResourceRecord><Value>%s</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></Change>' "$5"
}

# The host key as an SSHFP record: 4 is Ed25519 (RFC 7479), 2 is SHA-256 (RFC 6594).
host_key() {
  local kind='' key='' sum
  read -r kind key _ <"$ROOT/etc/ssh/ssh_host_ed25519_key.pub" || true
  [[ $kind == ssh-ed25519 ]] || fail "there is no Ed25519 host key"
  sum=$(base64 --decode <<<"$key" | sha256sum)
  printf '4 2 %s' "${sum%% *}"
}

# Atomic: Route 53 applies all changes or none, and refuses to delete a missing record.
submit() {
  local opening='<ChangeResourceRecordSetsRequest xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeBatch><Changes>'
  zone_call / --header 'Content-Type: text/xml' --data "$opening$1</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
}

take() {
  local name=$LABEL-$1.$DOMAIN own new
  own=$(metadata local-ipv4) || return
  new="$(change CREATE "$name" A 60 "$own")$(change CREATE "$name" SSHFP 60 "$key")"
  submit "${deletions[$1]-}$new$(change CREATE "$name" TXT 60 "\"$instance\"")"
}

# An ending machine may keep its name for minutes: its replacement waits.
claim_name() {
  local zone number key reason="cannot register a name"
  key=$(host_key)
  for ((try = 1; try <= TRIES; try++)); do
    if zone=$(parameter zone) && read_names; then
      number=$(lowest_free)
      if [[ -z $number ]]; then
        reason="all $HIGHEST names of $LABEL in $DOMAIN belong to existing machines"
        say "$reason"
        rest "$try"
        continue
      fi
      claimed=$LABEL-$number.$DOMAIN
      [[ ${owner[$number]-} != "$instance" ]] || return 0
      if take "$number" >/dev/null; then
        say "this is $claimed"
        return 0
      fi
    fi
    rest "$try"
  done
  fail "$reason"
}

give_back_name() {
  local zone number
  until [[ $(metadata autoscaling/target-lifecycle-state 2>/dev/null || true) == Terminated ]]; do rest 2; done
  zone=$(parameter zone)
  read_names
  for number in "${!owner[@]}"; do
    [[ ${owner[$number]} != "$instance" ]] || submit "${deletions[$number]}" >/dev/null
  done
  report drained CONTINUE
}

# set_host_name NAME FULL
set_host_name() {
  hostnamectl set-hostname "$1"
  printf '127.0.1.1 %s %s\n' "$2" "${2%%.*}" >>"$ROOT/etc/hosts"
  printf 'preserve_hostname: true\n' >"$ROOT/etc/cloud/cloud.cfg.d/99-bedplate.cfg"
}

# Linux allows 64 characters; a full name may have more.
take_claimed_name() { set_host_name "${claimed%%.*}" "$claimed"; }
take_fixed_name() { set_host_name "${HOST_NAME%%.*}" "$HOST_NAME"; }

# The AWS cloud controller finds a node by its EC2 name.
take_ec2_name() {
  local name
  name=$(metadata local-hostname)
  set_host_name "${name%% *}" "${name%% *}"
}

watch_for_end() {
  install -D -m 0700 "$0" "$ROOT/usr/local/lib/bedplate/first-boot"
  cat >"$ROOT/etc/systemd/system/bedplate-end.service" <<'END'
[Unit]
Description=Release the name of this machine at termination
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/local/lib/bedplate/first-boot give_back_name
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
END
  systemctl enable --now --no-block bedplate-end.service
}

# --- the control plane's volume --------------------------------------------------------------------------------------

# Stable path of the volume.
device() { echo "$ROOT/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${VOLUME/-/}"; }

# The previous machine may still have the volume.
attach_volume() {
  local reply
  for try in {1..20}; do
    [[ ! -e $(device) ]] || return 0
    reply=$(query ec2 2016-11-15 AttachVolume "VolumeId=$VOLUME" "InstanceId=$instance" Device=/dev/sdf) ||
      [[ $reply == *VolumeInUse* || $reply == *IncorrectState* ]] || fail "$VOLUME cannot be attached"
    rest "$try"
  done
  fail "$VOLUME does not appear"
}

# Format only a blank volume: blkid exits with 2 when it finds nothing.
mount_volume() {
  local found=0 device unit
  device=$(device)
  blkid --probe "$device" >/dev/null || found=$?
  case $found in
    0) ;;
    2) mkfs.ext4 -q -L etcd "$device" </dev/null ;;
    *) fail "blkid cannot read $VOLUME ($found)" ;;
  esac
  install -d -m 0700 "$ROOT/var/lib/etcd"
  # Immutable: without the mount, nothing can write to the root disk here.
  chattr +i "$ROOT/var/lib/etcd"
  # No `nofail`: boot waits for the volume, and services start after the mount.
  printf '%s /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300 0 2\n' "$device" >>"$ROOT/etc/fstab"
  for unit in containerd kubelet; do
    install -d "$ROOT/etc/systemd/system/$unit.service.d"
    printf '[Unit]\nRequiresMountsFor=/var/lib/etcd\n' >"$ROOT/etc/systemd/system/$unit.service.d/60-bedplate-etcd.conf"
  done
  systemctl daemon-reload
  mount "$ROOT/var/lib/etcd"
}

# --- main ------------------------------------------------------------------------------------------------------------

run() {
  instance=$(metadata instance-id)
  region=$(metadata placement/region)
  for step in "$@"; do
    say "$step"
    "$step"
  done
}

abandon() {
  local status=$?
  ((status == 0)) && return
  say "$step failed ($status): terminating this machine"
  complete ready ABANDON >/dev/null || say "cannot complete the lifecycle hook"
}

# Arguments are steps to run later.
if (($#)); then
  run "$@"
else
  trap abandon EXIT
  read -r -a all <<<"$STEPS"
  run "${all[@]}"
fi
