// Package spoptest is an agent for tests, which HAProxy asks about requests by SPOP: the protocol of
// doc/SPOE.txt of HAProxy, section 3. [LooksForAttacks] stands in for a web application firewall.
package spoptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/waf/policy"
)

// Message is a message to an agent.
type Message struct {
	Name      string
	Arguments map[string]any
}

// Text returns an argument as text, "" if it is not there.
func (m Message) Text(name string) string {
	switch v := m.Arguments[name].(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// Agent is a program that HAProxy asks.
type Agent struct {
	// Network is "unix" or "tcp", and Address the one on which it listens; after [Agent.Start] it has the port.
	Network, Address string
	// Answers returns the variables to set, in the scope txn, or nil for no answer at all.
	Answers func(Message) map[string]any

	mu          sync.Mutex
	listener    net.Listener
	connections map[net.Conn]bool
	got         []Message
}

// Start makes the agent listen until it is stopped.
func (a *Agent) Start() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), a.Network, a.Address)
	if err != nil {
		return fmt.Errorf("start an agent: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener, a.connections, a.Address = l, map[net.Conn]bool{}, l.Addr().String()
	go a.accept(l)
	return nil
}

func (a *Agent) accept(l net.Listener) {
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
			_ = a.serve(c) // HAProxy sees what is wrong, and so does the test
		}()
	}
}

// Stop ends the agent, as if it were killed.
func (a *Agent) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener == nil {
		return
	}
	a.listener.Close()
	for c := range a.connections {
		c.Close()
	}
	a.connections = map[net.Conn]bool{}
}

// Messages returns the messages so far, and forgets them.
func (a *Agent) Messages() []Message {
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

func (a *Agent) serve(c net.Conn) error {
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
				m := Message{Name: r.text(), Arguments: map[string]any{}}
				for range r.byte() {
					name := r.text()
					m.Arguments[name] = r.value()
				}
				a.mu.Lock()
				a.got = append(a.got, m)
				a.mu.Unlock()
				answer := a.Answers(m)
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

// LooksForAttacks answers like a web application firewall to which every request with the word "attack" in any
// part is an attack.
func LooksForAttacks(m Message) map[string]any {
	p, err := policy.Parse(m.Text("policy"))
	if err != nil || m.Text("rules") != policy.RulesVersion {
		return map[string]any{"action": "error"}
	}
	for _, part := range []string{"path", "query", "headers", "body"} {
		if !strings.Contains(m.Text(part), "attack") {
			continue
		}
		if p.Engine == policy.Block {
			return map[string]any{"action": "deny", "status": 403, "rule": 942100, "score": 5}
		}
		return map[string]any{"action": "detect", "rule": 942100, "score": 5}
	}
	return map[string]any{"action": "allow"}
}
