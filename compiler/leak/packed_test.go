package leak_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"runtime"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/leak"
)

// A tenant's short text may unpack to any size. It costs little, and is reported: the compiler must not run out
// of memory because of it, and an unchecked text does not count as harmless.
func TestTextsThatUnpackToTooMuch(t *testing.T) {
	large := []byte(strings.Repeat(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("no key", 1000)))+"\n", 50<<20/8000))
	once := packed(t, large)
	for name, data := range map[string][]byte{
		"gzip":              once,
		"gzip in gzip":      packed(t, once),
		"many small pieces": bytes.Repeat(packed(t, []byte("a")), 2000),
		"only beginnings":   bytes.Repeat([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), 20_000),
	} {
		for form, text := range map[string]string{
			"as it is": string(data), "base64": "ok\nkey " + base64.StdEncoding.EncodeToString(data) + "\n",
		} {
			t.Run(name+", "+form, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				found := (*leak.Index)(nil).Find([]byte(text))
				runtime.ReadMemStats(&after)
				if len(found) != 1 || !strings.Contains(found[0].What, "compressed data") {
					t.Errorf("found %+v, want that it unpacks to too much", found)
				}
				if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
					t.Errorf("%d bytes of text took %d MiB", len(text), used>>20)
				}
			})
		}
	}
}

func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
