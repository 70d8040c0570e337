package routing

import "testing"

// An expression that can match a path in the normal form is let be, and one that cannot is not.
func TestUnmatchable(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"/admin": "", "/a%20b": "", "/a;x": "", "/[^/]+": "", "/(a|b)/.*": "", "/caf%C3%A9": "", "/a%2Fb": "", `/a\.b`: "", "/+a": "", "/[|a]": "", "/x{2}": "", `/\.well-known`: "", "/(|a)": "", `/[\x00-\x7f]`: "",
		`/a\|b`: `'|'`, "/a[|]b": `'|'`, `/a\^b`: `'^'`, "/(a|b<c)": `'<'`, "/%61dmin": `"%61"`, "/(x|%2E)": `"%2E"`, "/a//b": `"//"`, `/\./a`: `"/./"`, `/a/\.\./b`: `"/../"`, "/[{}]+": `"[\\{\\}]"`,
	} {
		if got := unmatchable(expression); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}
