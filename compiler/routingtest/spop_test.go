package routingtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
)

// heard is a message that an agent got.
type heard struct {
	name      string
	arguments map[string]any
}

// text returns an argument as text, "" if it is not there.
func (m heard) text(name string) string {
	switch v := m.arguments[name].(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// agent is a program that HAProxy asks by SPOP: the protocol of doc/SPOE.txt of HAProxy, section 3.
type agent struct {
	network, address string
	// answers returns the variables to set, or nil for no answer at all.
	answers func(heard) map[string]any

	mu          sync.Mutex
	listener    net.Listener
	connections map[net.Conn]bool
	got         []heard
}

// newAgent starts an agent at a unix socket.
func newAgent(t *testing.T, answers func(heard) map[string]any) *agent {
	t.Helper()
	a := &agent{network: "unix", address: filepath.Join(t.TempDir(), "spop.sock"), answers: answers}
	a.start(t)
	return a
}

// newTCPAgent starts an agent at a port.
func newTCPAgent(t *testing.T, answers func(heard) map[string]any) (a *agent, port int) {
	t.Helper()
	a = &agent{network: "tcp", address: "127.0.0.1:0", answers: answers}
	a.start(t)
	address, _ := a.listener.Addr().(*net.TCPAddr)
	a.address = address.String()
	return a, address.Port
}

func (a *agent) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen(a.network, a.address)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.listener, a.connections = l, map[net.Conn]bool{}
	a.mu.Unlock()
	t.Cleanup(a.stop)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was stopped
			}
			a.mu.Lock()
			a.connections[c] = true
			a.mu.Unlock()
			go func() {
				defer c.Close()
				if err := a.serve(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Log("agent:", err)
				}
			}()
		}
	}()
}

// stop ends the agent, as if it were killed.
func (a *agent) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener.Close()
	for c := range a.connections {
		c.Close()
	}
	a.connections = map[net.Conn]bool{}
}

// messages returns what the agent was told, and forgets it.
func (a *agent) messages() []heard {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.got
	a.got = nil
	return out
}

// The types of frames.
const (
	frameHello, frameDisconnect, frameNotify             = 1, 2, 3
	frameAgentHello, frameAgentDisconnect, frameAgentAck = 101, 102, 103
)

func (a *agent) serve(c net.Conn) error {
	for {
		var size uint32
		if err := binary.Read(c, binary.BigEndian, &size); err != nil {
			return err
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(c, frame); err != nil {
			return err
		}
		r := &spopReader{Reader: bytes.NewReader(frame)}
		kind := r.byte()
		r.take(4) // flags
		head := appendVarint(appendVarint(nil, r.varint()), r.varint())
		var err error
		switch kind {
		case frameHello:
			var hello []byte
			hello = appendVariable(hello, "version", "2.0")
			hello = appendVariable(hello, "max-frame-size", uint32(1<<20))
			hello = appendVariable(hello, "capabilities", "pipelining")
			for r.Len() > 0 {
				if name, value := r.text(), r.value(); name == "max-frame-size" {
					hello = appendVariable(appendVariable(appendVariable(nil, "version", "2.0"), "max-frame-size", value), "capabilities", "pipelining")
				}
			}
			err = writeFrame(c, frameAgentHello, head, hello)
		case frameNotify:
			var actions []byte
			silent := false
			for r.Len() > 0 {
				m := heard{name: r.text(), arguments: map[string]any{}}
				for range r.byte() {
					name := r.text()
					m.arguments[name] = r.value()
				}
				a.mu.Lock()
				a.got = append(a.got, m)
				a.mu.Unlock()
				answer := a.answers(m)
				silent = silent || answer == nil
				for name, value := range answer {
					actions = append(actions, 1, 3, 2) // set a variable, of three arguments, for the transaction
					actions = appendVariable(actions, name, value)
				}
			}
			if !silent {
				err = writeFrame(c, frameAgentAck, head, actions)
			}
		case frameDisconnect:
			return writeFrame(c, frameAgentDisconnect, head, appendVariable(appendVariable(nil, "status-code", uint32(0)), "message", "bye"))
		}
		if err := errors.Join(err, r.err); err != nil {
			return err
		}
	}
}

func writeFrame(w io.Writer, kind byte, head, payload []byte) error {
	frame := append([]byte{kind, 0, 0, 0, 1}, head...)
	frame = append(frame, payload...)
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

func appendVarint(b []byte, v uint64) []byte {
	if v < 240 {
		return append(b, byte(v))
	}
	b = append(b, byte(v)|240)
	for v = (v - 240) >> 4; v >= 128; v = (v - 128) >> 7 {
		b = append(b, byte(v)|128)
	}
	return append(b, byte(v))
}

func appendVariable(b []byte, name string, value any) []byte {
	b = append(appendVarint(b, uint64(len(name))), name...)
	switch v := value.(type) {
	case string:
		return append(appendVarint(append(b, 8), uint64(len(v))), v...)
	case bool:
		if v {
			return append(b, 0x11)
		}
		return append(b, 1)
	case int:
		return appendVarint(append(b, 4), uint64(v))
	case uint32:
		return appendVarint(append(b, 3), uint64(v))
	case uint64:
		return appendVarint(append(b, 3), v)
	}
	panic(fmt.Sprintf("a value of type %T", value))
}

// spopReader reads the parts of a frame. Its first error stays.
type spopReader struct {
	*bytes.Reader
	err error
}

func (r *spopReader) byte() byte {
	b, err := r.ReadByte()
	r.err = errors.Join(r.err, err)
	return b
}

func (r *spopReader) take(n uint64) []byte {
	if n > uint64(r.Len()) {
		r.err = errors.Join(r.err, io.ErrUnexpectedEOF)
		n = uint64(r.Len())
	}
	out := make([]byte, n)
	_, _ = io.ReadFull(r, out)
	return out
}

func (r *spopReader) varint() uint64 {
	b := r.byte()
	v := uint64(b)
	if b < 240 {
		return v
	}
	for shift := 4; ; shift += 7 {
		b := r.byte()
		v += uint64(b) << shift
		if b < 128 || r.err != nil {
			return v
		}
	}
}

func (r *spopReader) text() string { return string(r.take(r.varint())) }

func (r *spopReader) value() any {
	switch kind := r.byte(); kind & 15 {
	case 0:
		return nil
	case 1:
		return kind&16 != 0
	case 2, 3, 4, 5:
		return r.varint()
	case 6:
		a, _ := netip.AddrFromSlice(r.take(4))
		return a
	case 7:
		a, _ := netip.AddrFromSlice(r.take(16))
		return a
	case 8, 9:
		return r.text()
	}
	r.err = errors.Join(r.err, errors.New("an unknown type"))
	return nil
}
