# What a node does by itself when it first starts: the steps in STEPS, one after another, and nothing after one fails.
# Needs what Ubuntu's own image has (bash, curl 8, sed, systemd); there is no AWS CLI on it. Never prints a credential.
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit

readonly PAUSE=${PAUSE:-3} TRIES=${TRIES:-20} ROOT=${ROOT:-}
readonly IMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest
step=start instance='' region='' claimed=''
declare -A owner=() stood=()

say() { printf 'bedplate: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Wait longer each time, and never in step with other nodes.
rest() { sleep "$((PAUSE * $1)).$RANDOM"; }

metadata() {
  local token
  token=$(curl --silent --show-error --fail --noproxy '*' --retry 5 --retry-connrefused --request PUT \
    --header 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$IMDS/api/token")
  curl --silent --show-error --fail --noproxy '*' --config - "$IMDS/meta-data/$1" <<<"header = \"X-aws-ec2-metadata-token: $token\""
}

# word NAME TEXT: the text of that name in a JSON document.
word() { grep -o "\"$1\" *: *\"[^\"]*\"" <<<"$2" | sed 's/.*: *"\(.*\)"/\1/'; }

# signed SERVICE REGION HOST PATH [OPTION...]: one call with the node's own credentials; they never are arguments.
signed() {
  local service=$1 where=$2 host=$3 path=$4 role keys told status=0
  shift 4
  role=$(metadata iam/security-credentials/) && keys=$(metadata "iam/security-credentials/$role") || return
  told=$(
    curl --silent --show-error --fail-with-body --max-time 60 --retry 5 --retry-connrefused --config - "$@" \
      "${AWS_ENDPOINT_URL:-https://$host}$path" <<END
user = "$(word AccessKeyId "$keys"):$(word SecretAccessKey "$keys")"
header = "X-Amz-Security-Token: $(word Token "$keys")"
aws-sigv4 = "aws:amz:$where:$service"
END
  ) || status=$?
  ((status == 0)) || say "$service: $told"
  printf '%s' "$told"
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
  local told
  told=$(signed ssm "$HOME_REGION" "ssm.$HOME_REGION.amazonaws.com" / \
    --header 'X-Amz-Target: AmazonSSM.GetParameter' --header 'Content-Type: application/x-amz-json-1.1' \
    --data "{\"Name\":\"/$FLEET/$1\",\"WithDecryption\":true}") || return
  word Value "$told"
}

complete() {
  query autoscaling 2011-01-01 CompleteLifecycleAction "AutoScalingGroupName=$SCALING_GROUP" \
    "LifecycleHookName=$1" "LifecycleActionResult=$2" "InstanceId=$instance"
}

# report HOOK RESULT: a wait that is over already needs no report.
report() {
  local told
  told=$(complete "$1" "$2") || [[ $told == *'No active Lifecycle Action'* ]] || fail "the hook $1 could not be told"
}

report_ready() { report ready CONTINUE; }

# --- logins ----------------------------------------------------------------------------------------------------------

# add_admin NAME UID KEY: as the roles have it, which keep it from then on. Without a home: that may lie on a server.
add_admin() {
  local keys=$ROOT/etc/ssh/authorized_keys.d/$1
  getent group "$1" >/dev/null || groupadd --gid "$2" "$1"
  getent passwd "$1" >/dev/null || useradd --uid "$2" --gid "$2" --home-dir "/home/$1" --no-create-home \
    --shell /bin/bash --no-log-init --password '*' "$1"
  grep -qsxF "$3" "$keys" || printf '%s\n' "$3" >>"$keys"
}

# Let the fleet's administrators log in by their keys and become root, so that somebody can configure this machine.
let_admins_in() {
  local told name uid key sudoers='' drop_in=$ROOT/etc/ssh/sshd_config.d/00-bedplate.conf try=0
  # sshd reads keys as the person.
  umask 022
  until told=$(parameter admins); do
    ((++try < TRIES)) || fail "nobody tells who the administrators are"
    rest "$try"
  done
  install -d -m 0755 "$ROOT/etc/ssh/authorized_keys.d"
  while read -r name uid key; do
    [[ -n $key ]] || continue
    add_admin "$name" "$uid" "$key"
    [[ $sudoers == *"$name ALL="* ]] || sudoers+="$name ALL=(ALL:ALL) NOPASSWD: ALL"$'\n'
  done < <(tr ',' '\n' <<<"$told")
  [[ -n $sudoers ]] || return 0
  install -m 0440 /dev/stdin "$ROOT/etc/sudoers.d/50-bedplate-people" <<<"$sudoers"
  # An image that was configured before has its own.
  [[ -e $drop_in ]] || printf 'AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%%u\n' >"$drop_in"
  systemctl try-reload-or-restart ssh.service
}

# --- names -----------------------------------------------------------------------------------------------------------

zone_call() { signed route53 us-east-1 route53.amazonaws.com "/2013-04-01/hostedzone/$zone/rrset$1" "${@:2}"; }

inner() { sed -n "s|.*<$1>\([^<]*\)</$1>.*|\1|p" <<<"$2"; }

# Note who has which number, and what takes it from them. Records come in the order of names, not of numbers.
read_names() {
  local from="name=$LABEL-1.$PLACE&type=A" page set number type value
  owner=() stood=()
  while [[ -n $from ]]; do
    page=$(zone_call "?maxitems=300&$from" | tr -d '\n' | sed 's/<ResourceRecordSet>/\n&/g') || return
    while read -r set; do
      number=$(inner Name "$set")
      number=${number%".$PLACE."}
      number=${number#"$LABEL-"}
      [[ $number =~ ^[1-9][0-9]*$ && $(inner Name "$set") == "$LABEL-$number.$PLACE." ]] || continue
      type=$(inner Type "$set") value=$(inner Value "$set")
      [[ $type =~ ^(A|SSHFP|TXT)$ ]] || continue
      stood[$number]+=$(change DELETE "$LABEL-$number.$PLACE" "$type" "$(inner TTL "$set")" "$value")
      value=${value//&quot;/}
      [[ $type != TXT ]] || owner[$number]=${value//\"/}
    done < <(tail -n +2 <<<"$page")
    from=$(inner NextRecordName "$page")
    [[ $from == "$LABEL-"*".$PLACE." ]] && from="name=$from&type=$(inner NextRecordType "$page")" || from=''
  done
}

# still_there INSTANCE...: those that have not ended. A filter bears ids that EC2 has forgotten; a list of ids does not.
still_there() {
  local fields=(Filter.1.Name=instance-id Filter.2.Name=instance-state-name) count=0 state
  for state in pending running stopping stopped; do fields+=("Filter.2.Value.$((++count))=$state"); done
  for ((count = 1; count <= $#; count++)); do fields+=("Filter.1.Value.$count=${!count}"); done
  (($# == 0)) || query ec2 2016-11-15 DescribeInstances "${fields[@]}" | tr '<' '\n' | sed -n 's|^instanceId>||p'
}

# Print the lowest number that nobody has whose machine is still there; our own, where we have one.
lowest_free() {
  local number there
  for number in "${!owner[@]}"; do [[ ${owner[$number]} != "$instance" ]] || { echo "$number" && return; }; done
  # Not to know who is there is no reason to take a name from anybody.
  there=" $(each_still_there | tr '\n' ' ')" || fail "EC2 does not tell whose machines are still there"
  for ((number = 1; number <= HIGHEST; number++)); do
    # What stands there without an owner was not written by a node.
    [[ -n ${stood[$number]-} && -z ${owner[$number]-} ]] && continue
    [[ -n ${owner[$number]-} && $there == *" ${owner[$number]} "* ]] || { echo "$number" && return; }
  done
}

# By the hundred: a filter takes 200 values.
each_still_there() {
  local some
  printf '%s\n' "${owner[@]}" | xargs -r -n 100 | while read -r -a some; do still_there "${some[@]}" || exit; done
}

change() {
  printf '<Change><Action>%s</Action><ResourceRecordSet><Name>%s</Name><Type>%s</Type><TTL>%s</TTL><ResourceRecords>' "${@:1:4}"
  printf '<ResourceRecord><Value>%s</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></Change>' "$5"
}

# The machine's host key as an SSHFP record tells it: 4 is Ed25519 (RFC 7479), 2 is SHA-256 (RFC 6594).
host_key() {
  local kind='' key='' sum
  read -r kind key _ <"$ROOT/etc/ssh/ssh_host_ed25519_key.pub" || true
  [[ $kind == ssh-ed25519 ]] || fail "there is no Ed25519 host key"
  sum=$(base64 --decode <<<"$key" | sha256sum)
  printf '4 2 %s' "${sum%% *}"
}

# All changes come about, or none; Route 53 refuses to delete what does not stand there any more.
submit() {
  local opening='<ChangeResourceRecordSetsRequest xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeBatch><Changes>'
  zone_call / --header 'Content-Type: text/xml' --data "$opening$1</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
}

take() {
  local name=$LABEL-$1.$PLACE own new
  own=$(metadata local-ipv4) || return
  new="$(change CREATE "$name" A 60 "$own")$(change CREATE "$name" SSHFP 60 "$key")"
  submit "${stood[$1]-}$new$(change CREATE "$name" TXT 60 "\"$instance\"")"
}

# A machine that ends may hold its name for minutes: whoever comes in its place waits for it.
claim_name() {
  local zone number key reason="no name could be taken"
  key=$(host_key)
  for ((try = 1; try <= TRIES; try++)); do
    if zone=$(parameter zone) && read_names; then
      number=$(lowest_free)
      if [[ -z $number ]]; then
        reason="all $HIGHEST names of $LABEL in $PLACE belong to machines that are still there"
        say "$reason"
        rest "$try"
        continue
      fi
      claimed=$LABEL-$number.$PLACE
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
    [[ ${owner[$number]} != "$instance" ]] || submit "${stood[$number]}" >/dev/null
  done
  report drained CONTINUE
}

# set_host_name NAME FULL
set_host_name() {
  hostnamectl set-hostname "$1"
  printf '127.0.1.1 %s %s\n' "$2" "${2%%.*}" >>"$ROOT/etc/hosts"
  printf 'preserve_hostname: true\n' >"$ROOT/etc/cloud/cloud.cfg.d/99-bedplate.cfg"
}

# Linux takes 64 characters, and a whole name may have more.
take_claimed_name() { set_host_name "${claimed%%.*}" "$claimed"; }
take_fixed_name() { set_host_name "${HOST_NAME%%.*}" "$HOST_NAME"; }

# The AWS cloud controller knows a node by the name that EC2 gave it.
take_ec2_name() {
  local name
  name=$(metadata local-hostname)
  set_host_name "${name%% *}" "${name%% *}"
}

watch_for_end() {
  install -D -m 0700 "$0" "$ROOT/usr/local/lib/bedplate/first-boot"
  cat >"$ROOT/etc/systemd/system/bedplate-end.service" <<'END'
[Unit]
Description=Give back this machine's name when its group ends it
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

# Where a volume appears, whatever number the kernel gives it.
device() { echo "$ROOT/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${VOLUME/-/}"; }

# The machine before this one may not have let go of it yet.
attach_volume() {
  local told
  for try in {1..20}; do
    [[ ! -e $(device) ]] || return 0
    told=$(query ec2 2016-11-15 AttachVolume "VolumeId=$VOLUME" "InstanceId=$instance" Device=/dev/sdf) ||
      [[ $told == *VolumeInUse* || $told == *IncorrectState* ]] || fail "$VOLUME cannot be attached"
    rest "$try"
  done
  fail "$VOLUME did not come"
}

# Only what is surely blank is formatted: 2 is how blkid says that it found nothing.
mount_volume() {
  local found=0 device unit
  device=$(device)
  blkid --probe "$device" >/dev/null || found=$?
  case $found in
    0) ;;
    2) mkfs.ext4 -q -L etcd "$device" </dev/null ;;
    *) fail "blkid cannot tell what is on $VOLUME ($found)" ;;
  esac
  install -d -m 0700 "$ROOT/var/lib/etcd"
  # While the volume is not mounted, nothing can write to the root disk in its place.
  chattr +i "$ROOT/var/lib/etcd"
  # Without `nofail`, boot waits for the volume. With it, systemd orders no service after the mount.
  printf '%s /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300 0 2\n' "$device" >>"$ROOT/etc/fstab"
  for unit in containerd kubelet; do
    install -d "$ROOT/etc/systemd/system/$unit.service.d"
    printf '[Unit]\nRequiresMountsFor=/var/lib/etcd\n' >"$ROOT/etc/systemd/system/$unit.service.d/60-bedplate-etcd.conf"
  done
  systemctl daemon-reload
  mount "$ROOT/var/lib/etcd"
}

# --- all of it -------------------------------------------------------------------------------------------------------

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
  say "$step failed ($status): this machine is given up"
  complete ready ABANDON >/dev/null || say "its group could not be told"
}

# With arguments it runs these steps alone, later on.
if (($#)); then
  run "$@"
else
  trap abandon EXIT
  read -r -a all <<<"$STEPS"
  run "${all[@]}"
fi
