package leak_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/leak"
)

// encodings are what may happen to a value on its way into a file.
func encodings() []func(*rand.Rand, string) string {
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	wrap := func(s string) string {
		var b strings.Builder
		for part := range slices.Chunk([]byte(s), 64) {
			b.WriteString("    " + string(part) + "\n")
		}
		return b.String()
	}
	words := func(r *rand.Rand) string { return strings.Repeat("word ", r.IntN(40)) }
	return []func(*rand.Rand, string) string{
		func(_ *rand.Rand, s string) string { return s },
		func(_ *rand.Rand, s string) string { return quote(s) },
		func(_ *rand.Rand, s string) string { return url.QueryEscape(s) },
		func(_ *rand.Rand, s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		func(_ *rand.Rand, s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		func(_ *rand.Rand, s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		func(r *rand.Rand, s string) string {
			return wrap(base64.StdEncoding.EncodeToString([]byte(words(r) + s + words(r))))
		},
		func(r *rand.Rand, s string) string {
			return base64.StdEncoding.EncodeToString([]byte(words(r) + s + words(r)))
		},
	}
}

// randomValue returns a value like a generated password.
func randomValue(r *rand.Rand) string {
	for {
		b := make([]byte, 12+r.IntN(20))
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!@"[r.IntN(67)]
		}
		changes := 0
		for i := 1; i < len(b); i++ {
			if isLetter(b[i]) && isLetter(b[i-1]) && b[i]&0x20 == 0 && b[i-1]&0x20 != 0 || isDigit(b[i]) && isLetter(b[i-1]) {
				changes++
			}
		}
		if changes >= 3 {
			return string(b)
		}
	}
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// A random value with random encodings at a random place is always found. Nothing is found if there is none.
func FuzzEmbeddedValueIsFound(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		value := randomValue(r)
		s := secret("x", corev1.SecretTypeOpaque, map[string]string{"key": value})
		var memo leak.Memo
		x := memo.Index([]*corev1.Secret{s}, leak.Public{})

		carried, how := value, []int(nil)
		for range 1 + r.IntN(3) {
			k := r.IntN(len(encodings()))
			carried, how = encodings()[k](r, carried), append(how, k)
		}
		lines := []string{"# a file", "backend shop_web_http", "    http-request set-header X-A b", "a.example|/ shop_web_http"}
		at := r.IntN(len(lines) + 1)
		text := strings.Join(slices.Insert(slices.Clone(lines), at, "    x "+carried+" y"), "\n")
		found := x.Find([]byte(text))
		if len(found) == 0 {
			t.Fatalf("%q is not found by %v in\n%s", value, how, text)
		}
		if line := strings.Count(text[:found[0].At], "\n"); line < at || line > at+strings.Count(carried, "\n") {
			t.Errorf("found on line %d, not %d", line, at)
		}
		if found := x.Find([]byte(strings.Join(lines, "\n"))); len(found) > 0 {
			t.Errorf("found in nothing: %v", found)
		}
	})
}
