// Package spop is the agent's side of the Stream Processing Offload Protocol, version 2.0, in which HAProxy asks agents
// about streams (doc/SPOE.txt of HAProxy): the codec of frames, and a server that answers them.
//
// The server bounds what a peer sends before it acts on it: the length of a frame before it allocates memory
// for it, the number of messages, and every length inside. It gives up a peer that stops in the middle of a
// frame or does not read its answers. Frames may be pipelined: a connection may have several requests at a
// time, and each is answered when it is done. Answers on other connections (async) and fragments of frames are
// not supported: HAProxy 3.1 has removed both.
//
// Decisions:
//   - The codec is our own. The library negasus/haproxy-spoe-go v1.0.7 trusts its peer. Malformed bytes end the
//     program: it slices by lengths that it has not compared (frame.Read, message.Decode, typeddata.Decode),
//     asserts types of received values, takes up to 4 GB for one frame, and none of its goroutines recovers. It
//     limits neither connections nor requests, sets no deadline, and copies every body.
//   - Names and values are slices of the frame. They are valid until the handler returns.
package spop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons for a disconnect (SPOE.txt, 3.3).
const (
	statusOK            = 0
	statusIO            = 1
	statusTooBig        = 3
	statusInvalid       = 4
	statusNoVersion     = 5
	statusNoSize        = 6
	statusBadVersion    = 8
	statusBadSize       = 9
	statusFragmentation = 10
)

// Time and size limits.
const (
	// helloTimeout is how long a new connection may be silent.
	helloTimeout = 10 * time.Second
	// frameTimeout is how long a frame may take after its first byte, and how long a write may take.
	frameTimeout = 5 * time.Second
	// minFrameSize is the smallest size that the server agrees upon.
	minFrameSize = 256
)

// A Server answers the frames of HAProxy.
type Server struct {
	// Handle answers a request. It is called in a goroutine of its own. If it does not answer, the server
	// answers without variables.
	Handle func(*Request)
	// Refuse answers a request that comes while MaxRequests are under way. It must not wait.
	Refuse func(*Request)
	// MaxFrame is how long a frame may be, in bytes. HAProxy offers its tune.bufsize minus 4; the smaller one
	// counts.
	MaxFrame int
	// MaxRequests and MaxConnections limit how many there are at a time.
	MaxRequests, MaxConnections int
	// Grace is how long requests may continue once the server has to end.
	Grace time.Duration
	Log   *slog.Logger

	requests, connections atomic.Int64
	buffers               sync.Pool
}

// Connections returns how many connections there are.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Requests returns how many requests are in progress.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// A Request is a NOTIFY frame.
type Request struct {
	Messages []Message

	conn           *connection
	stream, number uint64
	answered       atomic.Bool
	data           []byte
}

// Answer sends the answer, unless one was sent before, and reports whether it sent this one.
func (r *Request) Answer(variables ...Variable) bool {
	if !r.answered.CompareAndSwap(false, true) {
		return false
	}
	r.conn.write(appendAck(make([]byte, 0, 128), r.stream, r.number, variables))
	return true
}

// Serve accepts connections until ctx is done. It then waits for requests, tells each peer, and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close() // a connection may have arrived before that
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.Log.Warn("cannot accept a connection", "err", err)
			if !pause(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		if s.connections.Add(1) > int64(s.MaxConnections) {
			s.connections.Add(-1)
			conn.Close()
			continue
		}
		open.Go(func() {
			defer s.connections.Add(-1)
			s.serve(ctx, conn)
		})
	}
}

// pause waits, and returns false when ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// connection is one of HAProxy's.
type connection struct {
	conn  net.Conn
	lock  sync.Mutex // of writes
	under sync.WaitGroup
}

// write sends a frame. After a failure the connection is useless.
func (c *connection) write(frame []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(frameTimeout)); err != nil {
		return // it is closed
	}
	if _, err := c.conn.Write(frame); err != nil {
		c.conn.Close()
	}
}

// A disconnect is the reason why a connection is ended.
type disconnect struct {
	status uint32
	text   string
}

func (d disconnect) Error() string { return d.text }

func ending(status uint32, format string, args ...any) error {
	return disconnect{status, fmt.Sprintf(format, args...)}
}

// serve answers the frames of a connection until either side ends it.
func (s *Server) serve(ctx context.Context, raw net.Conn) {
	c := &connection{conn: raw}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetReadDeadline(time.Now()) })
	defer stop()
	err := s.read(ctx, c)
	var why disconnect
	switch {
	case errors.As(err, &why):
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return
	case ctx.Err() != nil:
		why = disconnect{statusOK, "the agent ends"}
	default:
		why = disconnect{statusIO, err.Error()}
	}
	if why.status != statusOK {
		s.Log.Debug("ending a connection", "peer", raw.RemoteAddr().String(), "err", why.text)
	}
	grace := time.AfterFunc(s.Grace, func() { raw.Close() })
	c.under.Wait()
	grace.Stop()
	out := appendFrame(nil, typeAgentDisconnect, 0, 0)
	out = appendValue(appendText(out, "status-code"), Value{Kind: Uint32, number: uint64(why.status)})
	out = appendValue(appendText(out, "message"), Text(why.text))
	c.write(endFrame(out))
}

// read answers frames, and returns the reason when there are no more.
func (s *Server) read(ctx context.Context, c *connection) error {
	in := bufio.NewReaderSize(c.conn, 4096)
	if err := c.conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	data, err := s.frame(c, in, s.MaxFrame)
	if err != nil {
		return err
	}
	size, check, err := s.hello(c, data)
	s.release(data)
	if err != nil {
		return err
	}
	if check {
		return io.EOF
	}
	for ctx.Err() == nil {
		if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break // the removed deadline was that of the end
		}
		data, err := s.frame(c, in, size)
		if err != nil {
			return err
		}
		if err := s.take(c, data); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// frame reads a frame. Its memory is given back with release.
func (s *Server) frame(c *connection, in *bufio.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	switch {
	case n < minFrame:
		return nil, ending(statusInvalid, "a frame of %d bytes", n)
	case n > int64(most):
		return nil, ending(statusTooBig, "a frame of %d bytes; the limit is %d", n, most)
	}
	if n > int64(in.Buffered()) {
		if err := c.conn.SetReadDeadline(time.Now().Add(frameTimeout)); err != nil {
			return nil, err
		}
	}
	data := s.buffer(int(n))
	if _, err := io.ReadFull(in, data); err != nil {
		s.release(data)
		return nil, err
	}
	return data, nil
}

func (s *Server) buffer(n int) []byte {
	if kept, ok := s.buffers.Get().(*[]byte); ok && cap(*kept) >= n {
		return (*kept)[:n]
	}
	return make([]byte, n, max(n, 16<<10))
}

func (s *Server) release(data []byte) { s.buffers.Put(&data) }

// hello answers the first frame. It returns the agreed size of frames, and whether the peer only checks the
// agent's health.
func (s *Server) hello(c *connection, data []byte) (size int, check bool, err error) {
	f, err := decodeFrame(data)
	if err != nil || f.kind != typeHAProxyHello || f.flags&flagFin == 0 {
		return 0, false, ending(statusInvalid, "the first frame is no HELLO of HAProxy")
	}
	d := decoder{rest: f.payload}
	said := d.pairs()
	versions, offered := said["supported-versions"], said["max-frame-size"]
	switch {
	case d.err != nil:
		return 0, false, ending(statusInvalid, "HELLO: %v", d.err)
	case versions.Kind != String:
		return 0, false, ending(statusNoVersion, "HELLO names no versions")
	case !speaks2(versions.Text()):
		return 0, false, ending(statusBadVersion, "the peer speaks versions %.32q, and the agent 2.0", versions.Text())
	case offered.Kind != Uint32:
		return 0, false, ending(statusNoSize, "HELLO names no size of frames")
	case offered.number < minFrameSize:
		return 0, false, ending(statusBadSize, "frames of %d bytes are too small", offered.number)
	}
	size = int(min(offered.number, uint64(s.MaxFrame)))
	out := appendFrame(nil, typeAgentHello, 0, 0)
	out = appendValue(appendText(out, "version"), Text("2.0"))
	out = appendValue(appendText(out, "max-frame-size"), Value{Kind: Uint32, number: uint64(size)})
	out = appendValue(appendText(out, "capabilities"), Text("pipelining"))
	c.write(endFrame(out))
	return size, said["healthcheck"].Kind == Bool && said["healthcheck"].number == 1, nil
}

// speaks2 reports whether a list of versions has a version 2.
func speaks2(versions string) bool {
	for version := range strings.SplitSeq(versions, ",") {
		if v := strings.TrimSpace(version); v == "2" || strings.HasPrefix(v, "2.") {
			return true
		}
	}
	return false
}

// take answers a frame, or starts a goroutine that does. It releases the memory of the frame.
func (s *Server) take(c *connection, data []byte) error {
	f, err := decodeFrame(data)
	switch {
	case err != nil:
		return ending(statusInvalid, "%v", err)
	case f.kind == typeHAProxyDisconnect:
		return ending(statusOK, "the peer ends")
	case f.kind == typeHAProxyHello:
		return ending(statusInvalid, "a second HELLO")
	case f.kind != typeNotify && f.kind != 0:
		s.release(data)
		return nil // according to SPOE.txt 3.2, unknown frames are skipped
	case f.flags&flagFin == 0 || f.kind == 0:
		return ending(statusFragmentation, "fragments are not supported")
	case f.flags&flagAbort != 0:
		s.release(data)
		return nil
	}
	r := &Request{conn: c, stream: f.stream, number: f.number, data: data}
	d := decoder{rest: f.payload}
	if r.Messages = d.messages(nil); d.err != nil {
		return ending(statusInvalid, "NOTIFY: %v", d.err)
	}
	if s.requests.Add(1) > int64(s.MaxRequests) {
		s.end(r, s.Refuse)
		return nil
	}
	c.under.Go(func() { s.end(r, s.Handle) })
	return nil
}

// end calls the handler of a request, and answers the request if the handler did not.
func (s *Server) end(r *Request, by func(*Request)) {
	defer s.requests.Add(-1)
	by(r)
	r.Answer()
	r.Messages = nil
	s.release(r.data)
}
