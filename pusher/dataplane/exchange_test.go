package dataplane

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// rawServer answers each request with what respond writes, until the client has enough.
func rawServer(t *testing.T, respond func(io.Writer) error) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for line, err := in.ReadString('\n'); err == nil && line != "\r\n"; {
					line, err = in.ReadString('\n')
				}
				go func() { _, _ = io.Copy(io.Discard, in) }() // the body of a post
				_ = respond(conn)
			}()
		}
	}()
	c, err := New(Options{URL: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	head200    = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	unmeasured = "Connection: close\r\n\r\n" // the body ends with the connection
)

// endless writes a head, and then the same text for ever.
func endless(head, again string) func(io.Writer) error {
	block := []byte(strings.Repeat(again, max(1, 64<<10/len(again))))
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for err == nil {
			_, err = w.Write(block)
		}
		return err
	}
}

func TestAnswersThatNeverEnd(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = io.CopyN(z, constant(' '), 200<<20)
	_ = z.Close()
	post := func(ctx context.Context, c *Client) error {
		_, err := c.PostRaw(ctx, []byte("global\n"), PostOptions{Version: 1, ForceReload: true})
		return err
	}
	get := func(ctx context.Context, c *Client) error { _, err := c.Raw(ctx); return err }
	ask := func(ctx context.Context, c *Client) error { _, err := c.RuntimeInfo(ctx); return err }
	list := func(ctx context.Context, c *Client) error { _, err := c.MapEntries(ctx, "a.map"); return err }
	samples := func(ctx context.Context, c *Client) error { _, err := c.BackendStatistics(ctx); return err }
	for _, tt := range []struct {
		name    string
		respond func(io.Writer) error
		call    func(context.Context, *Client) error
		want    error
		says    string
		bytes   uint64 // MiB that may be allocated
	}{
		{"a file", endless(head200+unmeasured, "x"), get, ErrUnavailable, "more than 65536 KiB", 500},
		{"a file that says how long", endless(head200+"Content-Length: 99999999999\r\n\r\n", "x"), get, ErrUnavailable, "more than 65536 KiB", 500},
		{"a file in chunks", endless(head200+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"), get, ErrUnavailable, "", 500},
		{"what is asked of each address", endless(head200+unmeasured, "x"), ask, ErrUnavailable, "more than 1024 KiB", 16},
		{"a list of nothing", endless(head200+unmeasured, "[{},"), list, ErrUnavailable, "more than 65536 KiB", 500},
		{"an error", endless("HTTP/1.1 503 No\r\n"+unmeasured, "no "), get, ErrUnavailable, "Service Unavailable", 16},
		{"an error to a post", endless("HTTP/1.1 400 No\r\n"+unmeasured+`{"code":400,"message":"validation error: `, `a\n`), post, ErrValidation, "validation error", 16},
		{"an answer to a post", endless("HTTP/1.1 201 Created\r\n"+unmeasured, "x"), post, ErrUnknownOutcome, "more than 65536 KiB", 500},
		{"a header", endless("HTTP/1.1 200 OK\r\n", "X-Nothing: of use\r\n"), ask, ErrUnavailable, "header", 16},
		{"early hints", endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), ask, ErrUnavailable, "", 16},
		{"what unfolds", func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", head200, bomb.Len())
			_, _ = w.Write(bomb.Bytes())
			return err
		}, get, ErrUnavailable, "more than 65536 KiB", 500},
		{"many small things", func(w io.Writer) error {
			_, err := io.WriteString(w, head200+unmeasured+`{"stats":[{}`+strings.Repeat(",{}", 10<<20)+"]}")
			return err
		}, samples, ErrUnavailable, "lists more than 1048576 things", 350},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rawServer(t, tt.respond)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			err := tt.call(t.Context(), c)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			checkClass(t, err, tt.want)
			if err == nil || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > LargestError+1000 {
				t.Errorf("error %.300v, want %q in it", err, tt.says)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > tt.bytes {
				t.Errorf("%d MiB were allocated, want %d at most", used, tt.bytes)
			}
			if took > time.Minute { // for a busy machine; an endless answer takes longer
				t.Errorf("it took %s", took)
			}
		})
	}
}

// constant is a reader of one byte for ever.
type constant byte

func (c constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

// An answer that comes byte by byte has no more time than others.
func TestAnswersThatDripAreNotWaitedForLonger(t *testing.T) {
	for name, head := range map[string]string{
		"an answer": head200 + unmeasured, "an error": "HTTP/1.1 500 No\r\n" + unmeasured, "a header": "HTTP/1.1 200 OK\r\nX: ",
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			drip := func(w io.Writer) error {
				_, err := io.WriteString(w, head)
				for tick := time.NewTicker(time.Millisecond); err == nil; <-tick.C {
					_, err = io.WriteString(w, "x")
				}
				return err
			}
			began := time.Now()
			c := rawServer(t, drip)
			c.readTimeout = 100 * time.Millisecond
			_, err := c.RuntimeInfo(t.Context())
			checkClass(t, err, ErrUnavailable)
			c = rawServer(t, func(w io.Writer) error { asked <- struct{}{}; return drip(w) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-asked; time.AfterFunc(100*time.Millisecond, cancel) }() // after it was sent, its outcome is unknown
			_, err = c.PostRaw(ctx, []byte("global\n"), PostOptions{Version: 1})
			if !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("a post: %v", err)
			}
			if took := time.Since(began); took > 30*time.Second { // the call returns in time
				t.Errorf("they were waited for %s", took)
			}
		})
	}
}

// Wherever an error is cut, it can still be classified.
func TestErrorsAreClassedWhereverTheyAreCut(t *testing.T) {
	message := `validation error: "a" \ ` + "\n\u2028\x01é😀" + ` end`
	whole, err := json.Marshal(map[string]any{"code": 400, "message": message})
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat(" ", 10)
	begins := bytes.Index(whole, []byte("validation error")) + len("validation error")
	for n := begins; n < len(whole)-len(`"}`); n++ {
		e := refused("post", 400, complete(append([]byte(pad), whole[:n]...)))
		if !errors.Is(e, ErrValidation) {
			t.Errorf("cut at %d, %q: %v", n, whole[:n], e)
		}
	}
}

// Large answers of the API are read.
func TestLargeAnswersAreRead(t *testing.T) {
	config := strings.Repeat("# a line of a configuration, of which there are many\n", 50<<20/53)
	c := rawServer(t, func(w io.Writer) error {
		_, err := io.Copy(w, iotest.OneByteReader(strings.NewReader(head200+unmeasured)))
		_, _ = io.WriteString(w, config)
		return err
	})
	raw, err := c.Raw(t.Context())
	if err != nil || raw.Config.String() != config {
		t.Errorf("%d bytes, want %d: %v", raw.Config.Len(), len(config), err)
	}
	entries := rawServer(t, func(w io.Writer) error {
		_, err := io.WriteString(w, head200+unmeasured+`[{"key":"a","value":"b"}`+strings.Repeat(`,{"key":"a,[","value":"b"}`, 200_000)+"]")
		return err
	})
	if got, err := entries.MapEntries(t.Context(), "a.map"); err != nil || len(got) != 200_001 {
		t.Errorf("%d entries: %v", len(got), err)
	}
}

func TestUnfolds(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"a":[1,2,{"b":[3]}],"c":","}`:                        true,
		strings.Repeat("[", deepest):                           true,
		strings.Repeat("[", deepest+1):                         false,
		"]]]],,,[":                                             true, // it is not JSON, which another check reports
		"[" + strings.Repeat("0,", largestList):                false,
		`["` + strings.Repeat(",", largestList) + `\",` + `"]`: true,
		"{" + strings.Repeat("0,", largestList) + "}":          true,
	} {
		if err := unfolds([]byte(text)); (err == nil) != ok {
			t.Errorf("unfolds(%.40q): %v, want ok=%v", text, err, ok)
		}
	}
}

// An API that stops closes connections that the client keeps, and accepts no more. The client repeats a read on
// a new connection, which fails. It does not repeat a write, which may have been read.
func TestAPIStopsBetweenTwoCalls(t *testing.T) {
	get := func(c *Client) error { _, err := c.Raw(t.Context()); return err }
	for name, tt := range map[string]struct {
		call func(*Client) error
		want error
	}{
		"a question": {get, ErrUnreachable},
		"a write": {func(c *Client) error {
			_, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{Version: 1})
			return err
		}, ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				for range 2 {
					request, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, request.Body)
					if listener.Close() == nil {
						_, _ = io.WriteString(conn, head200+"Content-Length: 7\r\n\r\nglobal\n")
					}
				}
			}()
			c, err := New(Options{URL: "http://" + listener.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			if err := get(c); err != nil {
				t.Fatal(err)
			}
			checkClass(t, tt.call(c), tt.want)
		})
	}
}

// A client expects what it posted, and later the haproxy.cfg that it has seen.
func TestClientExpectsItsText(t *testing.T) {
	const text = "global\n  node a\n"
	c := rawServer(t, func(w io.Writer) error {
		_, err := io.WriteString(w, "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n"+unmeasured+text)
		return err
	})
	if _, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{SkipReload: true}); err != nil || c.text.Load() != int64(len(text)) {
		t.Errorf("expects %d bytes after a post: %v", c.text.Load(), err)
	}
}

// The head of a post is a part of its body, whose length is known, and of a body that is sent again.
func TestHeadOfAPost(t *testing.T) {
	c := &Client{base: "http://127.0.0.1/v3"}
	q, err := c.request(t.Context(), call{method: http.MethodPost, path: rawPath, contentType: "text/plain", head: "# head\n", body: []byte("global\n")})
	if err != nil {
		t.Fatal(err)
	}
	again, err := q.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{q.Body, again} {
		if text, err := io.ReadAll(body); err != nil || string(text) != "# head\nglobal\n" || q.ContentLength != int64(len(text)) {
			t.Errorf("%q of %d bytes: %v", text, q.ContentLength, err)
		}
	}
}
