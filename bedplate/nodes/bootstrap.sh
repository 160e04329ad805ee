# Prepares a new Debian or Ubuntu machine for `bedplate node apply`: host name, first account, passwordless sudo, sshd.
# Run it as root at the machine's console. It can be run again.
# shellcheck shell=sh
set -eu

say() { printf 'bedplate: %s\n' "$*" >&2; }

[ "$(id -u)" = 0 ] || {
  say "this script must run as root"
  exit 1
}

missing=''
for program in sshd:openssh-server sudo:sudo python3:python3; do
  PATH=$PATH:/usr/sbin command -v "${program%%:*}" >/dev/null || missing="$missing ${program##*:}"
done
if [ -n "$missing" ]; then
  say "installing$missing"
  # shellcheck disable=SC2086  # several words are several packages
  DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq -y install --no-install-recommends "$@"' sh $missing >/dev/null
fi

printf '%s\n' "${FULL_NAME%%.*}" >/etc/hostname
hostname "${FULL_NAME%%.*}"
grep -qF "$FULL_NAME" /etc/hosts || printf '127.0.1.1 %s %s\n' "$FULL_NAME" "${FULL_NAME%%.*}" >>/etc/hosts

# The home directory is outside /home, which may later be mounted from a file server.
getent passwd "$ACCOUNT" >/dev/null || useradd --create-home --home-dir "/var/lib/$ACCOUNT" --shell /bin/bash "$ACCOUNT"
home=$(getent passwd "$ACCOUNT" | cut -d: -f6)
install -d -m 700 -o "$ACCOUNT" "$home/.ssh"
umask 077
# Each apply rewrites this file with the keys of the current administrators.
printf '%s\n' "$MARK" "$KEYS" >"$home/.ssh/authorized_keys"
chown "$ACCOUNT" "$home/.ssh/authorized_keys"

printf '%s ALL=(ALL) NOPASSWD:ALL\n' "$ACCOUNT" >/etc/sudoers.d/90-bedplate-first.new
visudo -cqf /etc/sudoers.d/90-bedplate-first.new
chmod 440 /etc/sudoers.d/90-bedplate-first.new
mv /etc/sudoers.d/90-bedplate-first.new /etc/sudoers.d/90-bedplate-first

ssh-keygen -A >/dev/null
systemctl enable --quiet --now ssh.service
say "$FULL_NAME accepts SSH logins of $ACCOUNT. Run these commands on the deployment machine:"
echo "bedplate node trust $NAME $(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2)"
# The first apply creates the administrators' accounts; until then only this account exists.
echo "bedplate node apply $NAME --user $ACCOUNT"
