package routingtest

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver is a name server on loopback. It knows addresses of IPv4, and
// answers every other question with NXDOMAIN.
type nameserver struct {
	address string

	mu    sync.Mutex
	names map[string]netip.Addr
	asked map[string]int // how often
}

// newNameserver starts a name server, which ends with the test.
func newNameserver(t *testing.T) *nameserver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	n := &nameserver{address: c.LocalAddr().String(), names: map[string]netip.Addr{}, asked: map[string]int{}}
	go n.serve(c)
	return n
}

// set gives a name an address.
func (n *nameserver) set(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name+"."] = netip.MustParseAddr(address)
}

// wasAsked fails until the name was asked for.
func (n *nameserver) wasAsked(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked[name+"."] == 0 {
		return fmt.Errorf("nobody asks for %s", name)
	}
	return nil
}

func (n *nameserver) serve(c net.PacketConn) {
	question := make([]byte, 4096)
	for {
		size, from, err := c.ReadFrom(question)
		if err != nil {
			return // the test is over
		}
		if answer, err := n.answer(question[:size]); err == nil {
			_, _ = c.WriteTo(answer, from) // who asked asks again
		}
	}
}

func (n *nameserver) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("not a question: %w", err)
	}
	q := m.Questions[0]
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[q.Name.String()]++
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true, RecursionDesired: true},
		Questions: m.Questions,
	}
	address, known := n.names[q.Name.String()]
	switch {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return reply.Pack()
}
