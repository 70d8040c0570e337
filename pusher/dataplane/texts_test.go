package dataplane

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// read returns a text as a client reads it.
func (t *Texts) read(body io.Reader, expected int) (Text, error) {
	r := &textReader{texts: t, expected: expected}
	_, _, err := call{text: r}.read(body, true)
	return r.text(), err
}

const manyLines = 5000 // of the text, which a reader gets in some pieces

// A text is what came, however it came, whatever text came before, and whoever is ahead. Equal texts have the same
// memory.
func TestTextIsWhatCame(t *testing.T) {
	head := "# _version=7\n# hapsnap pusher a b follows 6\n"
	body := strings.Repeat("    server s1 10.0.0.1:80\n", manyLines)
	piece := 32 << 10 // that io.Copy reads
	texts := map[string]string{
		"equal":                           head + body,
		"with another head":               "# _version=12345\n" + body,
		"without a head":                  body,
		"shorter":                         head + body[:len(body)-1],
		"shorter by a piece":              head + body[:piece],
		"a byte":                          head + body[:1],
		"longer":                          head + body + "x",
		"longer by pieces":                head + body + body,
		"another first byte":              head + "x" + body[1:],
		"another last byte":               head + body[:len(body)-1] + "x",
		"another byte before a piece":     body[:piece-1] + "x" + body[piece:],
		"another byte at a piece":         body[:piece] + "x" + body[piece+1:],
		"only a head":                     head,
		"a head that does not end":        strings.TrimSuffix(head, "\n"),
		"nothing":                         "",
		"a head that ends with a piece":   "#" + strings.Repeat("-", piece-2) + "\n" + body,
		"a head of many pieces":           strings.Repeat("#"+strings.Repeat("-", piece/2)+"\n", 9) + body,
		"a comment that begins otherwise": " # a\n" + head + body,
		"an empty line":                   "\n" + head + body,
	}
	ways := map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"in halves":    iotest.HalfReader,
		"with its end": iotest.DataErrReader,
		"in bytes":     func(r io.Reader) io.Reader { return iotest.OneByteReader(r) },
	}
	for name, text := range texts {
		for way, through := range ways {
			for _, expected := range []int{0, 1, len(text) - 1, len(text), 3 * len(text)} {
				pool := &Texts{}
				first, err := pool.read(strings.NewReader(head+body), expected)
				if err != nil {
					t.Fatal(err)
				}
				got, err := pool.read(through(strings.NewReader(text)), max(0, expected))
				if err != nil || got.String() != text || first.String() != head+body {
					t.Fatalf("%s, %s, expected %d: read %d bytes of %d, and the first is %d: %v", name, way, expected, got.Len(), len(text), first.Len(), err)
				}
				whole := Split([]byte(text))
				if !bytes.Equal(whole.Head, got.Head) || !bytes.Equal(whole.Body, got.Body) {
					t.Errorf("%s, %s: head %.40q and body %.40q, want %.40q and %.40q", name, way, got.Head, got.Body, whole.Head, whole.Body)
				}
				if got.Checksum() != Checksum([]byte(text)) || whole.Checksum() != got.Checksum() {
					t.Errorf("%s: another checksum", name)
				}
				if len(got.Body) > 0 && strings.HasPrefix(body, string(got.Body)) && &got.Body[0] != &first.Body[0] {
					t.Errorf("%s, %s: it has memory of its own", name, way)
				}
			}
		}
	}
}

// Of several texts, the one that came is returned, also if they have much in common.
func TestOneOfSeveralTexts(t *testing.T) {
	pool := &Texts{}
	body := strings.Repeat("    server s1 10.0.0.1:80\n", manyLines)
	var texts []string
	for n := range 2 * mostTexts {
		at := n * len(body) / (2 * mostTexts)
		texts = append(texts, body[:at]+fmt.Sprint("x", n)+body[at:])
	}
	var kept []Text
	for range 2 {
		for _, text := range texts {
			got, err := pool.read(strings.NewReader(text), 0)
			if err != nil || got.String() != text {
				t.Fatalf("read %d bytes, want %d: %v", got.Len(), len(text), err)
			}
			kept = append(kept, got)
		}
	}
	for n, got := range kept {
		if got.String() != texts[n%len(texts)] {
			t.Errorf("text %d has changed", n)
		}
	}
	if len(pool.list) > mostTexts {
		t.Errorf("%d texts are compared", len(pool.list))
	}
}

// An answer that is cut, or too long, is an error, whatever text it equals so far.
func TestTextsThatAreNoAnswers(t *testing.T) {
	pool := &Texts{}
	body := strings.Repeat("    server s1 10.0.0.1:80\n", manyLines)
	first, err := pool.read(strings.NewReader(body), len(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(body) / 2, len(body)} {
		cut := io.MultiReader(strings.NewReader(body[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))
		if got, err := pool.read(cut, len(body)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %d bytes, %v", n, got.Len(), err)
		}
	}
	for _, begins := range []string{"", "#"} {
		if _, err := pool.read(io.MultiReader(strings.NewReader(begins), &fullOf{left: LargestAnswer + 1 - len(begins)}), 0); err == nil {
			t.Errorf("%q: an answer over the limit was read", begins)
		}
	}
	if first.String() != body {
		t.Error("the first has changed")
	}
}

// fullOf gives so many equal bytes.
type fullOf struct{ left int }

func (e *fullOf) Read(p []byte) (int, error) {
	n := min(e.left, len(p))
	for i := range n {
		p[i] = 'x'
	}
	e.left -= n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Many instances send at the same time what they have, in pieces, and some of them another text.
func TestManySendTexts(t *testing.T) {
	pool := &Texts{}
	body := strings.Repeat("    server s1 10.0.0.1:80\n", manyLines)
	var all sync.WaitGroup
	got := make([]Text, 40)
	text := func(n int) string {
		if n%10 == 9 {
			return body[:n*1000] + "other" + body[n*1000:]
		}
		return body
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var n int
		_, _ = fmt.Sscan(q.FormValue("n"), &n)
		if q.URL.Path == "/whole" {
			w.Header().Set("Content-Length", fmt.Sprint(len(text(n))))
		}
		for piece := range bytes.Lines([]byte(text(n))) { // chunks, unless it says how long it is
			_, _ = w.Write(piece)
		}
	}))
	defer server.Close()
	for n := range got {
		all.Go(func() {
			resp, err := http.Get(fmt.Sprintf("%s/%s?n=%d", server.URL, []string{"whole", "chunks"}[n%2], n))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got[n], err = pool.read(resp.Body, len(body)/2); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for n := range got {
		if got[n].String() != text(n) {
			t.Errorf("instance %d sent something else", n)
		}
	}
}

// The memory that it takes to read a text which somebody has does not grow with the text.
func TestEqualTextsTakeNoMemory(t *testing.T) {
	reading := func(lines int) uint64 {
		pool, text := &Texts{}, []byte("# _version=1\n"+strings.Repeat("    server s1 10.0.0.1:80\n", lines))
		first, err := pool.read(bytes.NewReader(text), len(text))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			if _, err := pool.read(bytes.NewReader(text), len(text)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(first)
		return after.TotalAlloc - before.TotalAlloc
	}
	little, much := reading(2000), reading(200_000)
	if much > little+little/4 {
		t.Errorf("20 texts took %d bytes, and 20 that are 100 times as long %d", little, much)
	}
}

// A text is not kept for later.
func TestTextsAreForgotten(t *testing.T) {
	pool, text := &Texts{}, strings.Repeat("    server s1 10.0.0.1:80\n", manyLines)
	got, err := pool.read(strings.NewReader(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if n := len(pool.live()); n != 1 {
		t.Errorf("%d texts are known while one is used", n)
	}
	if sum := md5.Sum(got.Body); sum != md5.Sum([]byte(text)) {
		t.Error("it has changed")
	}
	runtime.GC()
	if n := len(pool.live()); n != 0 {
		t.Errorf("%d texts are known that nobody uses", n)
	}
}

// Clients that share texts share those of posts and of reads.
func TestClientsShareTexts(t *testing.T) {
	const body = "global\n  node a\n"
	version := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		version++
		if q.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = fmt.Fprintf(w, "# _version=%d\n%s", version, body)
	}))
	defer server.Close()
	texts := &Texts{}
	var bodies []Text
	for range 2 {
		c, err := New(Options{URL: server.URL, Texts: texts})
		if err != nil {
			t.Fatal(err)
		}
		posted, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{SkipReload: true})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Raw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, posted.Config, raw.Config)
	}
	for n, b := range bodies {
		if want := fmt.Sprintf("# _version=%d\n%s", n+1, body); b.String() != want || &b.Body[0] != &bodies[0].Body[0] {
			t.Errorf("answer %d is %q, want %q in the same memory", n, b.String(), want)
		}
	}
}
