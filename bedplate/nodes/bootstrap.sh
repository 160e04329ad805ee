# Bootstrap of a machine, in the cloud or at a site: runs the steps in STEPS in order and stops at the first failure. The
# steps can be repeated, also after a kill. The machine keeps the script: the unit of the configuration run and that run
# call more steps. Uses only programs of the Ubuntu image (bash, curl 8, sed, systemd; no AWS CLI). Never prints credentials.
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit

readonly PAUSE=${PAUSE:-3} TRIES=${TRIES:-20} WAITS=${WAITS:-60} ROOT=${ROOT:-}
readonly IMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest
# A site has its files beside the script, as the bucket has them.
readonly SOURCE=${SOURCE:-$(dirname "$0")}
readonly PROGRAM=/usr/local/lib/bedplate/bootstrap STATE=$ROOT/var/lib/bedplate BUNDLES=$ROOT/opt/bedplate
step=start instance='' region='' claimed=''
declare -A owner=() deletions=()

say() { printf 'bedplate: %s\n' "$*" >&2; }

fail() {
  say "$*"
  install -d "$STATE"
  printf '%s\n' "$*" >"$STATE/reason"
  exit 1
}

# Wait longer each time, from half to one and a half of the pause: machines that start together must not meet again.
rest() { sleep "$((PAUSE * $1 / 2 + RANDOM % (PAUSE * $1 + 1))).$RANDOM"; }

# attempt WHAT COMMAND...: a command that may fail for a while; WHAT is the reason if it never succeeds.
attempt() {
  local what=$1 try=0
  shift
  until "$@"; do
    ((++try < TRIES)) || fail "$what"
    rest "$try"
  done
}

is_cloud() { [[ $PLATFORM == cloud ]]; }

# replace FILE: from stdin, and atomically.
replace() {
  install -d "${1%/*}"
  cat >"$1.new"
  mv -T "$1.new" "$1"
}

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
  local service=$1 where=$2 host=$3 path=$4 role keys reply status turn
  shift 4
  role=$(metadata iam/security-credentials/) && keys=$(metadata "iam/security-credentials/$role") || return
  for turn in {1..5}; do
    status=0
    reply=$(
      curl --silent --show-error --fail-with-body --max-time 60 --retry 5 --retry-connrefused --config - "$@" \
        "${AWS_ENDPOINT_URL:-https://$host}$path" <<END
user = "$(json_value AccessKeyId "$keys"):$(json_value SecretAccessKey "$keys")"
header = "X-Amz-Security-Token: $(json_value Token "$keys")"
aws-sigv4 = "aws:amz:$where:$service"
END
    ) || status=$?
    # Route 53 and SSM throttle with status 400, which curl does not repeat.
    [[ $status != 0 && $reply == *Throttling* ]] || break
    rest "$turn"
  done
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

# parameter_reply NAME REGION [PATH]
parameter_reply() {
  signed ssm "$2" "ssm.$2.amazonaws.com" / \
    --header 'X-Amz-Target: AmazonSSM.GetParameter' --header 'Content-Type: application/x-amz-json-1.1' \
    --data "{\"Name\":\"${3-/$FLEET}/$1\",\"WithDecryption\":true}"
}

# A parameter of the own region, which `links` may not have written yet; else of the home region.
parameter() {
  local reply
  reply=$(parameter_reply "$1" "$region") ||
    { [[ $region != "$HOME_REGION" ]] && reply=$(parameter_reply "$1" "$HOME_REGION"); } || return
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

report_ready() {
  ! is_cloud || report ready CONTINUE
  replace "$STATE/ready" <<<"$instance"
}

report_drained() { report drained CONTINUE; }

# The token of Kubernetes workers, which other nodes may not read.
print_join_token() {
  local reply
  reply=$(parameter_reply join "$HOME_REGION" "/$FLEET.workers") || return
  json_value Value "$reply"
}

report_failed() {
  is_cloud || return 0
  count_failed
  report ready ABANDON
}

# Count a failed machine, for the alarm of the group, and each check in CHECKS, which name the reason.
count_failed() {
  local check number=0 dimension data=()
  is_cloud || return 0
  for check in '' ${CHECKS:-roles}; do
    dimension=MetricData.member.$((++number))
    data+=("$dimension.MetricName=GateFailures" "$dimension.Value=1")
    dimension+=.Dimensions.member
    data+=("$dimension.1.Name=AutoScalingGroupName" "$dimension.1.Value=$SCALING_GROUP")
    [[ -z $check ]] || data+=("$dimension.2.Name=Check" "$dimension.2.Value=$check")
  done
  query monitoring 2010-08-01 PutMetricData "Namespace=$FLEET/nodes" "${data[@]}" >/dev/null ||
    say "cannot count the failure"
}

# Whether a gateway serves laptops, for its alarm, to which a missing value means that it does not.
count_serving() {
  local metric=MetricData.member.1 value
  value=$(sed -n 's/^bedplate_laptops_serving //p' "$ROOT/var/lib/prometheus/node-exporter/bedplate-vpn.prom")
  [[ -n $value ]] || return 0
  query monitoring 2010-08-01 PutMetricData "Namespace=$FLEET/nodes" "$metric.MetricName=Serving" "$metric.Value=$value" \
    "$metric.Dimensions.member.1.Name=AutoScalingGroupName" "$metric.Dimensions.member.1.Value=$SCALING_GROUP" >/dev/null
}

# The hook waits longer for a machine that sends heartbeats.
heartbeat() {
  ! is_cloud || query autoscaling 2011-01-01 RecordLifecycleActionHeartbeat "AutoScalingGroupName=$SCALING_GROUP" \
    LifecycleHookName=ready "InstanceId=$instance" >/dev/null || true
}

is_ready() { [[ -n $instance && $(cat "$STATE/ready" 2>/dev/null) == "$instance" ]]; }

# --- clock -----------------------------------------------------------------------------------------------------------

# With a wrong clock no certificate and no signature is valid. The metadata service needs neither.
set_clock() {
  local date offset
  is_cloud || return 0
  date=$(curl --silent --noproxy '*' --max-time 10 --retry 5 --retry-connrefused --output /dev/null \
    --dump-header - "$IMDS/" | tr -d '\r' | sed -n 's/^[Dd]ate: *//p')
  [[ -n $date ]] || return 0
  offset=$(($(date --date="$date" +%s) - $(date +%s)))
  ((${offset#-} < 60)) && return
  say "the clock is wrong by $offset s"
  date --set="$date" >/dev/null
}

# --- logins ----------------------------------------------------------------------------------------------------------

# add_admin NAME UID KEY: same account as the roles make. No home directory: it may be on a file server.
add_admin() {
  local keys=$ROOT/etc/ssh/authorized_keys.d/$1
  getent group "$1" >/dev/null || groupadd --gid "$2" "$1"
  getent passwd "$1" >/dev/null || useradd --uid "$2" --gid "$2" --home-dir "/home/$1" --no-create-home \
    --shell /bin/bash --no-log-init --password '*' "$1"
  grep -qsxF "$3" "$keys" || printf '%s\n' "$3" >>"$keys"
}

read_admins() { reply=$(parameter admins); }

# Allow administrators to log in with their keys and use sudo, to configure this machine.
let_admins_in() {
  local reply name uid key sudoers='' drop_in=$ROOT/etc/ssh/sshd_config.d/00-bedplate.conf
  # sshd reads the keys as the user.
  umask 022
  attempt "cannot read the parameter admins" read_admins
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

# Print our number if we have one, else the lowest without an existing owner; after a conflict any of these.
free_number() {
  local number there free=()
  for number in "${!owner[@]}"; do [[ ${owner[$number]} != "$instance" ]] || { echo "$number" && return; }; done
  # Without the list of instances, take no name.
  there=" $(existing_owners | tr '\n' ' ')" || fail "cannot list the instances that own names"
  for ((number = 1; number <= HIGHEST; number++)); do
    # Records without an owner are not from a node.
    [[ -n ${deletions[$number]-} && -z ${owner[$number]-} ]] && continue
    [[ -n ${owner[$number]-} && $there == *" ${owner[$number]} "* ]] || free+=("$number")
  done
  ((${#free[@]} == 0)) || echo "${free[$1 == 1 ? 0 : RANDOM % ${#free[@]}]}"
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
      number=$(free_number "$try")
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
  until [[ $(metadata autoscaling/target-lifecycle-state 2>/dev/null || true) == Terminated ]]; do rest 2; done
  release_name
  report drained CONTINUE
}

release_name() {
  local zone number
  zone=$(parameter zone)
  read_names
  for number in "${!owner[@]}"; do
    [[ ${owner[$number]} != "$instance" ]] || submit "${deletions[$number]}" >/dev/null
  done
}

# set_host_name NAME FULL
set_host_name() {
  hostnamectl set-hostname "$1"
  grep -qsF " $2 " "$ROOT/etc/hosts" || printf '127.0.1.1 %s %s\n' "$2" "${2%%.*}" >>"$ROOT/etc/hosts"
  [[ ! -d $ROOT/etc/cloud ]] || replace "$ROOT/etc/cloud/cloud.cfg.d/99-bedplate.cfg" <<<'preserve_hostname: true'
}

# Linux allows 64 characters; a full name may have more.
take_claimed_name() { set_host_name "${claimed%%.*}" "$claimed"; }
take_fixed_name() { set_host_name "${HOST_NAME%%.*}" "$HOST_NAME"; }

# A worker claims no name: it has that of its node, of its group and the end of its instance's id (ADR 23).
take_worker_name() {
  claimed=$LABEL-${instance: -8}.$DOMAIN
  take_claimed_name
}

watch_for_end() {
  keep_script
  replace "$ROOT/etc/systemd/system/bedplate-end.service" <<END
[Unit]
Description=Release the name of this machine at termination
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=$PROGRAM give_back_name
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
END
  systemctl enable --now --no-block bedplate-end.service
}

# --- the volume that outlives the machine ------------------------------------------------------------------------------

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
  fail "$VOLUME does not appear: is it attached to another machine?"
}

# Format only a blank volume: blkid exits with 2 when it finds nothing. FOLDERS are bound to folders of the volume.
mount_volume() {
  local found=0 device folder unit
  device=$(device)
  blkid --probe "$device" >/dev/null || found=$?
  case $found in
    0) ;;
    2) mkfs.ext4 -q -L "${MOUNT##*/}" "$device" </dev/null ;;
    *) fail "blkid cannot read $VOLUME ($found)" ;;
  esac
  for unit in $SERVICES; do
    install -d "$ROOT/etc/systemd/system/$unit.service.d"
    printf '[Unit]\nRequiresMountsFor=%s\n' "$MOUNT${FOLDERS:+ $FOLDERS}" \
      >"$ROOT/etc/systemd/system/$unit.service.d/60-bedplate-${MOUNT##*/}.conf"
  done
  mount_at "$device" "$MOUNT" ext4 noatime,x-systemd.device-timeout=300,x-systemd.growfs 0 2
  for folder in $FOLDERS; do
    install -d -m 0700 "$ROOT$MOUNT/${folder##*/}"
    mount_at "$ROOT$MOUNT/${folder##*/}" "$folder" none bind 0 0
  done
}

# mount_at SOURCE FOLDER TYPE OPTIONS DUMP PASS
mount_at() {
  install -d -m 0700 "$ROOT$2"
  # Immutable: without the mount, nothing can write to the root disk here.
  mountpoint -q "$ROOT$2" || chattr +i "$ROOT$2"
  # No `nofail`: boot waits for the volume, and services start after the mount.
  grep -qsF "$1 $2 " "$ROOT/etc/fstab" || printf '%s\n' "$*" >>"$ROOT/etc/fstab"
  systemctl daemon-reload
  mountpoint -q "$ROOT$2" || mount "$ROOT$2"
}

# Operators trust the Ed25519 host key of the first machine: each replacement gets it.
keep_host_key() {
  local kept=$ROOT$MOUNT/ssh
  if [[ ! -d $kept ]]; then
    install -d -m 0700 "$kept.new"
    cp -p "$ROOT"/etc/ssh/ssh_host_ed25519_key* "$kept.new"
    sync --file-system "$kept.new"
    mv -T "$kept.new" "$kept"
  fi
  cp -p "$kept"/* "$ROOT/etc/ssh"
  systemctl try-reload-or-restart ssh.service
}

# --- a site's machine -------------------------------------------------------------------------------------------------

install_programs() {
  local program missing=()
  for program in sshd:openssh-server sudo:sudo python3:python3; do
    PATH=$PATH:/usr/sbin command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update && apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
}

# The host name as a file and now: a machine of a site may lack systemd-hostnamed.
take_site_name() {
  replace "$ROOT/etc/hostname" <<<"${HOST_NAME%%.*}"
  hostname "${HOST_NAME%%.*}"
  grep -qsF " $HOST_NAME " "$ROOT/etc/hosts" ||
    printf '127.0.1.1 %s %s\n' "$HOST_NAME" "${HOST_NAME%%.*}" >>"$ROOT/etc/hosts"
}

# The account of the first apply. Its home directory is outside /home, which may later be mounted from a file server.
add_first_account() {
  local home sudoers=$ROOT/etc/sudoers.d/90-bedplate-first
  getent passwd "$ACCOUNT" >/dev/null || useradd --create-home --home-dir "/var/lib/$ACCOUNT" --shell /bin/bash "$ACCOUNT"
  home=$(getent passwd "$ACCOUNT" | cut -d: -f6)
  install -d -m 0700 -o "$ACCOUNT" "$home/.ssh"
  # Each apply rewrites this file with the keys of the current administrators.
  install -m 0600 -o "$ACCOUNT" /dev/stdin "$home/.ssh/authorized_keys" <<<"$ADMIN_KEYS"
  install -m 0440 /dev/stdin "$sudoers.new" <<<"$ACCOUNT ALL=(ALL) NOPASSWD:ALL"
  visudo -cqf "$sudoers.new"
  mv "$sudoers.new" "$sudoers"
  ssh-keygen -A >/dev/null
  systemctl enable --quiet --now ssh.service
}

print_commands() {
  say "$HOST_NAME accepts SSH logins of $ACCOUNT. Run these commands on the deployment machine:"
  echo "bedplate node trust $DOCUMENT $(ssh-keygen -lf "$ROOT/etc/ssh/ssh_host_ed25519_key.pub" | cut -d' ' -f2)"
  # The first apply creates the administrators' accounts; until then only this account exists.
  echo "bedplate node apply $DOCUMENT --user $ACCOUNT"
}

# --- the bundle ------------------------------------------------------------------------------------------------------

has_bundle() { is_cloud || [[ -e $SOURCE/rings/$RING.json ]]; }

# object KEY FILE: copy an object of the bucket, or of a site's folder.
object() {
  if is_cloud; then
    s3 "$1" --output "$2"
  else
    cp "$SOURCE/$1" "$2"
  fi
}

# s3 KEY [OPTION...]. The key is encoded.
s3() { signed s3 "$region" "s3.$region.amazonaws.com" "/$BUCKET/$1" "${@:2}"; }

# download KEY SHA256 FILE
download() {
  object "$1" "$3" || return
  [[ $(sha256sum <"$3") == "$2  -" ]] || {
    say "$1 does not have the SHA-256 $2"
    return 1
  }
}

read_ring() {
  local reply
  if is_cloud; then
    reply=$(parameter_reply "nodes/$RING" "$region") || return
  else
    reply=$(<"$SOURCE/rings/$RING.json") || return
  fi
  reply=${reply//\\/}
  bundle=$(json_value bundle "$reply") && sequence=$(json_number sequence "$reply") || return
  [[ $bundle =~ ^[0-9a-f]{64}$ ]]
}

json_number() { grep -o "\"$1\" *: *[0-9]*" <<<"$2" | grep -o '[0-9]*$'; }

# A new machine is not at fault if its region has no bundle yet: its hook waits too, for an hour.
await_ring() {
  local wait=0
  is_cloud && ! is_ready || return 0
  until ((wait == WAITS)) || [[ $(parameter_reply "nodes/$RING" "$region") != *ParameterNotFound* ]]; do
    ((wait++)) || say "the ring $RING names no bundle yet: waiting for bedplate up"
    heartbeat
    sleep "$((PAUSE * 20))"
  done
}

# Whether the bucket, or a site's folder, can be read.
check_source() {
  local bundle sequence
  ! is_cloud || read_ring
}

# The program of Python and the architecture, as in the bundle.
platform_tag() { echo "cp$(python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')-$(uname -m)"; }

# Unpack a bundle. Its folder gets its name when it is complete.
unpack() {
  local work=$BUNDLES/.new manifest blob part key=code
  [[ ! -d $BUNDLES/$1 ]] || return 0
  rm -rf "$work"
  install -d "$work/code" "$work/wheels"
  attempt "cannot fetch the bundle $1" download "bundles/$1.json" "$1" "$BUNDLES/.manifest"
  manifest=$(<"$BUNDLES/.manifest")
  for part in code wheels; do
    [[ $part == code ]] || key=$(platform_tag)
    blob=$(json_value "$key" "$manifest") || fail "the bundle $1 has no $part for $key"
    attempt "cannot fetch $part of the bundle $1" download "blobs/$blob" "$blob" "$BUNDLES/.blob"
    tar -xzf "$BUNDLES/.blob" --no-same-owner -C "$work/$part"
  done
  rm "$BUNDLES/.blob" "$BUNDLES/.manifest"
  sync --file-system "$work"
  mv -T "$work" "$BUNDLES/$1"
}

# Remove all bundles but these two.
remove_others() {
  local folder
  for folder in "$BUNDLES"/*; do
    [[ -L $folder || ${folder##*/} == "$1" || ${folder##*/} == "$2" ]] || rm -rf "$folder"
  done
}

# Fetch what the ring names: code and wheels, and the document of this machine.
fetch() {
  local bundle='' sequence='' accepted former
  has_bundle || return 0
  await_ring
  attempt "cannot read the ring $RING" read_ring
  accepted=$(json_number sequence "$(cat "$STATE/node.json" 2>/dev/null)") || accepted=0
  ((sequence >= accepted)) || fail "the ring $RING has sequence $sequence; this machine has accepted $accepted"
  install -d "$STATE" "$BUNDLES"
  unpack "$bundle"
  attempt "cannot fetch the document $DOCUMENT" object "nodes/$DOCUMENT.json" "$STATE/document.json.new"
  mv -T "$STATE/document.json.new" "$STATE/document.json"
  former=$(basename "$(readlink "$BUNDLES/current")" 2>/dev/null) || former=''
  ln -sfn "$bundle" "$BUNDLES/.current"
  mv -T "$BUNDLES/.current" "$BUNDLES/current"
  replace "$STATE/node.json" <<<"{\"bundle\": \"$bundle\", \"sequence\": $sequence}"
  [[ $former == "$bundle" ]] || remove_others "$bundle" "$former"
}

# Each machine writes below its own id only. STATUS is the name of one file.
put_status() {
  local id file sum
  is_cloud || return 0
  id=$(xml_value UserId "$(query sts 2011-06-15 GetCallerIdentity | tr -d '\n')")
  for file in "$STATE"/status/${STATUS-*}.json; do
    sum=$(sha256sum <"$file")
    s3 "status/${id/:/%3A}/${file##*/}" --request PUT --data-binary "@$file" --header 'Content-Type: application/json' \
      --header "X-Amz-Content-Sha256: ${sum%% *}" >/dev/null
  done
}

put_snapshot() {
  FILE=$(find "$ROOT/var/lib/etcd/snapshots" -name '*.db' | sort | tail -n 1)
  FOLDER=etcd
  put_file
}

# FILE into FOLDER, below the name of this machine. One object of S3 has at most 5 GB in one call.
put_file() {
  local sum
  is_cloud || return 0
  sum=$(sha256sum <"$FILE")
  s3 "$FOLDER/$DOCUMENT/${FILE##*/}" --max-time 900 --request PUT --upload-file "$FILE" \
    --header "X-Amz-Content-Sha256: ${sum%% *}" >/dev/null
}

# --- the configuration run -------------------------------------------------------------------------------------------

keep_script() { cmp -s "$0" "$ROOT$PROGRAM" || install -D -m 0700 "$0" "$ROOT$PROGRAM"; }

# A site's machine runs it once: later its administrators apply. In the cloud a timer repeats it. The limit of starts ends
# retries of a failing run; one that succeeds is not counted. multi-user.target precedes cloud-final.service, so it must also
# precede this service: to break the cycle at boot, systemd would leave out the run.
start_configuration() {
  local units=$ROOT/etc/systemd/system condition='' enabled=bedplate-node.timer
  has_bundle || return 0
  keep_script
  is_cloud || condition=ConditionPathExists=!/var/lib/bedplate/ready enabled=bedplate-node.service
  replace "$units/bedplate-node.service" <<END
[Unit]
Description=Configure this machine as planned
After=network-online.target multi-user.target cloud-final.service
Wants=network-online.target
StartLimitIntervalSec=30min
StartLimitBurst=4
$condition

[Service]
Type=oneshot
ExecStart=$PROGRAM service
ExecStartPost=-systemctl reset-failed bedplate-node.service
Restart=on-failure
RestartSec=30
TimeoutStartSec=2h
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
END
  replace "$units/bedplate-node.timer" <<'END'
[Unit]
Description=Configure this machine as planned, at least once an hour

[Timer]
OnBootSec=1min
OnUnitInactiveSec=45min
RandomizedDelaySec=10min

[Install]
WantedBy=timers.target
END
  systemctl daemon-reload
  systemctl enable --quiet "$enabled"
  systemctl start --no-block bedplate-node.service "$enabled"
}

configure() { start_program "bedplate.machine${STAGE:+.freeze}" "$(is_ready && echo ready || echo new)"; }

# For `bedplate node upgrade`.
upgrade_wait() { start_program bedplate.machine.upgrade wait; }
upgrade_now() { start_program bedplate.machine.upgrade now; }
upgrade_end() { start_program bedplate.machine.upgrade end; }

start_program() {
  local bundle
  bundle=$(readlink -e "$BUNDLES/current") || fail "this machine has no bundle"
  PYTHONPATH=$bundle/code:$bundle/wheels exec python3 -m "$@"
}

# --- main ------------------------------------------------------------------------------------------------------------

run() {
  if is_cloud; then
    instance=$(metadata instance-id)
    region=$(metadata placement/region)
  else
    instance=$DOCUMENT
  fi
  rm -f "$STATE/reason"
  for step in "$@"; do
    say "$step"
    "$step"
  done
}

# A machine that was ready stays as it is. A new one is terminated, and its group starts another.
abandon() {
  local status=$? reason
  ((status == 0)) && return
  reason=$(cat "$STATE/reason" 2>/dev/null) || reason="status $status"
  rm -f "$STATE/reason"
  replace "$STATE/status/run.json" <<END
{"version": 1, "ok": false, "time": $(date +%s), "sentence": "$step failed: ${reason//[\"\\]/}"}
END
  put_status || say "cannot write the status"
  is_ready && return
  say "$step failed ($status): terminating this machine"
  CHECKS=bootstrap count_failed
  ! is_cloud || complete ready ABANDON >/dev/null || say "cannot complete the lifecycle hook"
}

# Arguments are steps to run later.
case ${1-} in
  '')
    trap abandon EXIT
    read -r -a all <<<"$STEPS"
    run "${all[@]}"
    ;;
  service)
    trap abandon EXIT
    if is_cloud; then run set_clock fetch configure; else run configure; fi
    ;;
  *) run "$@" ;;
esac
