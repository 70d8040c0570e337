package spop

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"net"
	"testing"
	"time"
)

// Numbers are read back as they were written, at the limits of each length.
func TestVarint(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{0, 1, 239, 240, 2287, 2288, 264431, 264432, 33818863, 33818864, 1 << 40, math.MaxInt64, math.MaxUint64} {
		d := decoder{rest: appendVarint(nil, n)}
		if got := d.varint(); got != n || d.err != nil || len(d.rest) != 0 {
			t.Errorf("%d became %d: %v", n, got, d.err)
		}
	}
	if got := appendVarint(nil, 2288); !bytes.Equal(got, []byte{0xf0, 0x80, 0x00}) {
		t.Errorf("%x", got) // by the table of SPOE.txt, 3.1
	}
	for _, long := range [][]byte{{0xff}, bytes.Repeat([]byte{0xff}, 12), append(bytes.Repeat([]byte{0xff}, 10), 0x7f)} {
		d := decoder{rest: long}
		if d.varint(); d.err == nil {
			t.Errorf("%x is a number", long)
		}
	}
}

// notify returns a NOTIFY frame with its length.
func notify(name string, args ...Variable) []byte {
	out := appendFrame(nil, typeNotify, 7, 1)
	out = append(appendText(out, name), byte(len(args)))
	for _, a := range args {
		out = appendValue(appendText(out, a.Name), a.Value)
	}
	return endFrame(out)
}

func hello(size uint64, extra ...Variable) []byte {
	out := appendFrame(nil, typeHAProxyHello, 0, 0)
	for _, v := range append([]Variable{{"supported-versions", Text("2.0")}, {"max-frame-size", Value{Kind: Uint32, number: size}}, {"capabilities", Text("pipelining,async")}}, extra...) {
		out = appendValue(appendText(out, v.Name), v.Value)
	}
	return endFrame(out)
}

// peer is HAProxy's side of a connection to a server that answers with the value of the argument "q".
type peer struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T) peer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Handle: func(r *Request) {
			for _, m := range r.Messages {
				for _, a := range m.Args {
					r.Answer(Variable{"q", Text(a.Value.Text())})
				}
			}
		},
		Refuse: func(r *Request) { r.Answer(Variable{"q", Text("busy")}) }, MaxFrame: 4096, MaxRequests: 8, MaxConnections: 8, Grace: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil || s.Connections() != 0 || s.Requests() != 0 {
			t.Errorf("%v; %d connections and %d requests are left", err, s.Connections(), s.Requests())
		}
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return peer{t, conn}
}

func (p peer) send(data []byte) {
	p.t.Helper()
	if _, err := p.Write(data); err != nil {
		p.t.Fatal(err)
	}
}

// frame returns the next frame, or false at the end.
func (p peer) frame() (frame, bool) {
	p.t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return frame{}, false
	}
	data := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p, data); err != nil {
		p.t.Fatal(err)
	}
	f, err := decodeFrame(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return f, true
}

// A request is answered, a health check gets its HELLO and the end, and frames are no longer than the smaller
// side accepts.
func TestServer(t *testing.T) {
	t.Parallel()
	p := dial(t)
	p.send(hello(16380))
	f, _ := p.frame()
	said := (&decoder{rest: f.payload}).pairs()
	if f.kind != typeAgentHello || said["version"].Text() != "2.0" || said["max-frame-size"].Int() != 4096 || said["capabilities"].Text() != "pipelining" {
		t.Errorf("%d %v", f.kind, said)
	}
	p.send(append(notify("a", Variable{"q", Text("one")}), notify("a", Variable{"q", Number(-3)})...))
	for range 2 {
		f, _ = p.frame()
		if f.kind != typeAck || f.stream != 7 || f.number != 1 || !bytes.Contains(f.payload, []byte("one")) && !bytes.Contains(f.payload, []byte("-3")) {
			t.Errorf("%+v", f)
		}
	}
	p.send(endFrame(appendFrame(nil, typeHAProxyDisconnect, 0, 0)))
	if f, _ = p.frame(); f.kind != typeAgentDisconnect {
		t.Errorf("%+v", f)
	}
	if _, more := p.frame(); more {
		t.Error("the connection goes on")
	}

	check := dial(t)
	check.send(hello(16380, Variable{"healthcheck", Value{Kind: Bool, number: 1}}))
	if f, _ := check.frame(); f.kind != typeAgentHello {
		t.Errorf("%+v", f)
	}
	if _, more := check.frame(); more {
		t.Error("a check goes on")
	}
}

// A peer that breaks the protocol gets the reason, and loses only its own connection.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	raw := func(kind, flags byte, payload ...byte) []byte {
		return endFrame(append([]byte{0, 0, 0, 0, kind, 0, 0, 0, flags, 0, 0}, payload...))
	}
	for name, c := range map[string]struct {
		frames [][]byte
		status int64
	}{
		"no frame":             {[][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}, statusTooBig},
		"length 0":             {[][]byte{{0, 0, 0, 0}}, statusInvalid},
		"too long":             {[][]byte{{0xff, 0xff, 0xff, 0xff}}, statusTooBig},
		"notify first":         {[][]byte{notify("a")}, statusInvalid},
		"no version":           {[][]byte{raw(typeHAProxyHello, flagFin)}, statusNoVersion},
		"version 1":            {[][]byte{endFrame(appendValue(appendText(appendFrame(nil, typeHAProxyHello, 0, 0), "supported-versions"), Text("1.0, 20.1")))}, statusBadVersion},
		"tiny":                 {[][]byte{hello(10)}, statusBadSize},
		"hello twice":          {[][]byte{hello(4096), hello(4096)}, statusInvalid},
		"fragment":             {[][]byte{hello(4096), raw(typeNotify, 0)}, statusFragmentation},
		"message without end":  {[][]byte{hello(4096), raw(typeNotify, flagFin, 200)}, statusInvalid},
		"argument too many":    {[][]byte{hello(4096), raw(typeNotify, flagFin, 1, 'a', 255)}, statusInvalid},
		"length of an address": {[][]byte{hello(4096), raw(typeNotify, flagFin, 1, 'a', 1, 1, 'q', byte(IPv6), 1, 2)}, statusInvalid},
		"type of a value":      {[][]byte{hello(4096), raw(typeNotify, flagFin, 1, 'a', 1, 1, 'q', 15)}, statusInvalid},
		"messages too many":    {[][]byte{hello(4096), raw(typeNotify, flagFin, make([]byte, 2000)...)}, statusInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dial(t)
			for _, frame := range c.frames {
				p.send(frame)
			}
			f, _ := p.frame()
			if len(c.frames) == 2 {
				f, _ = p.frame()
			}
			if got := (&decoder{rest: f.payload}).pairs()["status-code"]; f.kind != typeAgentDisconnect || got.Int() != c.status {
				t.Errorf("frame %d with status %d, want %d", f.kind, got.Int(), c.status)
			}
		})
	}
}

// No frame makes the server panic or read beyond the frame's end.
func FuzzFrame(f *testing.F) {
	f.Add(notify("request", Variable{"policy", Text("{}")}, Variable{"src", Value{Kind: IPv4, bytes: []byte{127, 0, 0, 1}}}, Variable{"port", Number(80)})[4:])
	f.Add(hello(16380)[4:])
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeFrame(data)
		if err != nil {
			return
		}
		pairs := decoder{rest: got.payload}
		for _, v := range pairs.pairs() {
			_, _, _ = v.Text(), v.Int(), v.Bytes()
		}
		d := decoder{rest: got.payload}
		messages := d.messages(nil)
		if d.err != nil {
			return
		}
		var out []byte
		for _, m := range messages {
			out = append(appendText(out, string(m.Name)), byte(len(m.Args)))
			for _, a := range m.Args {
				out = appendValue(appendText(out, string(a.Name)), a.Value)
			}
		}
		again := decoder{rest: out}
		if got := again.messages(nil); again.err != nil || len(got) != len(messages) {
			t.Fatalf("%x does not read back: %v", out, again.err)
		}
	})
}
