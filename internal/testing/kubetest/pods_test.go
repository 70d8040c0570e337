package kubetest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The API server accepts the addresses of pods in EndpointSlices, and a server can listen on them. It would
// refuse the addresses that every machine has.
func TestPodAddresses(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	for name, address := range map[string]string{"v4": "10.244.3.7", "v6": "fd00:10:244::3:7"} {
		family := map[bool]string{true: "IPv4", false: "IPv6"}[netip.MustParseAddr(address).Is4()]
		server.Apply(t, endpointSlice(namespace, name, family, address))
		slice := &discoveryv1.EndpointSlice{}
		if err := server.Client().Get(t.Context(), key(namespace, name), slice); err != nil {
			t.Fatal(err)
		}
		echo(t, slice.Endpoints[0].Addresses[0])
	}
	if err := server.ApplyYAML(t.Context(), endpointSlice(namespace, "loopback", "IPv4", "127.0.0.1")); err == nil {
		t.Error("the API server takes 127.0.0.1 now: the ranges of pods are of no use any more")
	}
}

func endpointSlice(namespace, name, family, address string) string {
	return fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: %s},
addressType: %s, ports: [{port: 80}], endpoints: [{addresses: ["%s"]}]}`, name, namespace, family, address)
}

// echo starts a server on an address. It answers with what it receives.
func echo(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "80"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
		t.Errorf("%s answered %q, %v", address, answer, err)
	}
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
