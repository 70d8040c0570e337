package routingtest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// The rules of RFC 3986 as they are told in docs/reference/paths.md, one after the other, each by an
// expression and with no thought of cost: a second opinion on what the compiler and HAProxy
// do in one pass.
var (
	aloneForm   = regexp.MustCompile(`%($|[^0-9A-Fa-f]|[0-9A-Fa-f]($|[^0-9A-Fa-f]))`)
	codeForm    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	strangeForm = regexp.MustCompile(`[^-A-Za-z0-9._~!$&'()*+,=:@/;%]`)
	standsForm  = regexp.MustCompile(`^[-A-Za-z0-9._~!$&'()*+,=:@]$`)
	slashesForm = regexp.MustCompile(`//+`)
	dotForm     = regexp.MustCompile(`/\.(/|$)`)
	climbForm   = regexp.MustCompile(`^(.*?)(/[^/]*)?/\.\.(/|$)`)
)

// plainest returns the form of a path in which it is compared.
func plainest(path string) string {
	if path == "" || path == "-" {
		return path
	}
	for aloneForm.MatchString(path) {
		path = aloneForm.ReplaceAllString(path, "\x00$1") // what no path holds
	}
	var b strings.Builder
	for _, c := range []byte(path) { // an expression would take bytes for what they encode
		switch {
		case c == 0:
			b.WriteString("%25")
		case c > 0x7f || strangeForm.MatchString(string(rune(c))):
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	path = codeForm.ReplaceAllStringFunc(b.String(), func(code string) string {
		var c byte
		fmt.Sscanf(code[1:], "%02x", &c) //nolint:errcheck // it is a code
		if c < 0x80 && standsForm.MatchString(string(rune(c))) {
			return string(rune(c))
		}
		return strings.ToUpper(code)
	})
	path = slashesForm.ReplaceAllString(path, "/")
	for dotForm.MatchString(path) {
		path = dotForm.ReplaceAllString(path, "/")
	}
	for climbForm.MatchString(path) {
		path = climbForm.ReplaceAllString(path, "$1/")
	}
	return path
}

// strangePath returns a path of what means something in one, and of what does not.
func strangePath(r *rand.Rand) string {
	parts := []string{"/", "/", "/", ".", "..", "%", "%2", "%2f", "%2E", "%61", "%C3%A9", "%c3%a9", "%00", "%25", "%zz", "%7e", "%3B", "a", "b", "A", "x", "~", "'", "(", "|", "{", "\\", "<", "[", "@", "%40", "admin"}
	var b strings.Builder
	b.WriteByte('/')
	for range r.IntN(12) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// The compiler brings paths into the form that the plain rules lead to, and it stays as it is.
func TestNormalPathAgreesWithReference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		path := strangePath(r)
		got := routing.NormalPath(path, false)
		if want := plainest(path); got != want {
			t.Fatalf("%q: %q, want %q", path, got, want)
		}
		if again := routing.NormalPath(got, false); again != got {
			t.Fatalf("%q becomes %q, and that %q", path, got, again)
		}
	}
}

func FuzzNormalPath(f *testing.F) {
	for _, path := range []string{"/", "//a/../b/.", "/%61%2f%zz", "/caf\xc3\xa9", "/a;b/..;/c", "/%%%", "/.."} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.Contains(path, "\x00") || len(path) > 1000 {
			return // no path of a request or an object holds one; and the rules one by one take the square of its length
		}
		path = "/" + path
		if got, want := routing.NormalPath(path, false), plainest(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
		without := regexp.MustCompile(`;[^/]*`).ReplaceAllString(path, "")
		if got, want := routing.NormalPath(path, true), plainest(without); got != want {
			t.Errorf("%q without parameters: %q, want %q", path, got, want)
		}
	})
}
