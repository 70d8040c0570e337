# Runs the Dataplane API. Its file is written here, as it writes to it itself and cannot
# take the password from elsewhere. It looks for the master socket only when it starts, so
# that it has to start after HAProxy, before whose container this one comes.
set -eu
umask 077
quoted() { printf "'%s'" "$(sed "s/'/''/g" "$1")"; }
username=$(quoted "$CREDENTIALS_DIR/username")
password=$(quoted "$CREDENTIALS_DIR/password")
if [ -n "${TLS_DIR-}" ]; then
	listen="scheme: [https]
  tls:
    tls_host: '$POD_IP'
    tls_port: $API_PORT
    tls_certificate: $TLS_DIR/tls.crt
    tls_key: $TLS_DIR/tls.key"
else
	listen="host: '$POD_IP'
  port: $API_PORT"
fi
cat >"$API_DIR/dataplaneapi.yml" <<END
config_version: 2
name: '$POD_NAME'
dataplaneapi:
  $listen
  user:
  - name: $username
    password: $password
    insecure: true
  transaction:
    transaction_dir: $CONFIG_DIR/dataplane/transactions
    backups_dir: $CONFIG_DIR/dataplane/backups
    backups_number: 10
  resources:
    maps_dir: $CONFIG_DIR/maps
    ssl_certs_dir: $CONFIG_DIR/ssl
    general_storage_dir: $CONFIG_DIR/general
    dataplane_storage_dir: $CONFIG_DIR/dataplane/storage
haproxy:
  config_file: $CONFIG_DIR/haproxy.cfg
  haproxy_bin: $HAPROXY
  master_worker_mode: true
  master_runtime: $MASTER_SOCKET
  reload:
    reload_delay: 1
    reload_strategy: custom
    reload_cmd: /bin/false
    restart_cmd: /bin/false
END
until [ -S "$MASTER_SOCKET" ]; do sleep 0.2; done
exec "$DATAPLANEAPI" -f "$API_DIR/dataplaneapi.yml"
