# Makes what HAProxy and the Dataplane API share. A configuration that is there already
# stays: pods keep it when they are set up again.
set -eu
umask 077
cd "$CONFIG_DIR"
mkdir -p maps ssl general dataplane/transactions dataplane/backups dataplane/storage
if [ ! -s haproxy.cfg ]; then
	cp "$FILES_DIR/bootstrap.cfg" haproxy.cfg.new
	mv haproxy.cfg.new haproxy.cfg
fi
