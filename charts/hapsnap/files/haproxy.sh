# Runs HAProxy. The kubelet ends a container with the signal of its image, mostly SIGTERM,
# at which HAProxy would cut off what it serves. It gets SIGUSR1 instead: it takes no
# more connections, and ends with the last one, or after hard-stop-after.
set -u
rm -f "$MASTER_SOCKET"
"$HAPROXY" -W -db -S "$MASTER_SOCKET,mode,600,level,admin" -f "$CONFIG_DIR/haproxy.cfg" &
haproxy=$!
# A HAProxy that has just started may miss a signal, so it gets three.
end() { for _ in 1 2 3; do kill -USR1 "$haproxy" 2>/dev/null && sleep 1; done & }
trap end TERM USR1 INT
while :; do
	wait "$haproxy"
	status=$?
	# A signal ends the wait, and not HAProxy.
	kill -0 "$haproxy" 2>/dev/null || exit "$status"
done
