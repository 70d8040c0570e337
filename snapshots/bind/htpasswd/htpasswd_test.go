package htpasswd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd/htpasswdtest"
)

func TestParseHtpasswd(t *testing.T) {
	t.Parallel()
	cheap := htpasswdtest.Hashes["DES"]
	text := "# users of the shop\n\nalice:" + htpasswdtest.Hashes["bcrypt 2y"] + "\r\nbob@shop.example:" + cheap + ":Bob, of sales\nc+d=e~f!:" + cheap + "  \nalice:" + cheap + "\n"
	users, problems := Parse([]byte(text))
	want := []User{{"alice", htpasswdtest.Hashes["bcrypt 2y"]}, {"bob@shop.example", cheap}, {"c+d=e~f!", cheap}}
	if diff := cmp.Diff(want, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	if len(problems) != 1 || problems[0].Error() != "line 6: user alice is there twice; the first one counts" || problems[0].Usable {
		t.Errorf("problems: %v", problems)
	}
}

func TestHtpasswdProblems(t *testing.T) {
	t.Parallel()
	bcrypt := strings.TrimPrefix(htpasswdtest.Hashes["bcrypt 2y"], "$2y$05$")
	for name, c := range map[string]struct {
		line, want string
		usable     bool
	}{
		"no colon":           {"alice", "line 1 is not NAME:HASH", false},
		"no hash":            {"alice:", "line 1: user alice has no hash that HAProxy can check", false},
		"plain text":         {"alice:correct horse", "line 1: user alice has no hash that HAProxy can check", false},
		"Apache's":           {"alice:$apr1$abcdefgh$y6iHhJNbuC0xpbk0w9pm80", "has an Apache hash ($apr1$), which HAProxy cannot check", false},
		"SHA":                {"alice:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=", "has a hash of the {SHA} kind, which HAProxy cannot check", false},
		"salted SHA":         {"alice:{SSHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=", "has a hash of the {SHA} kind", false},
		"cut short":          {"alice:$2y$05$" + bcrypt[:40], "has no hash that HAProxy can check", false},
		"two words":          {"alice:$1$abcdefgh$y6iHhJNbuC0xpbk0w9pm8 groups x", "has no hash that HAProxy can check", false},
		"a comment":          {"alice:$1$abcdefgh$y6iHhJNbuC0xpbk0w9p#80", "has no hash that HAProxy can check", false},
		"name with a space":  {"al ice:" + htpasswdtest.Hashes["DES"], "line 1 has a user name that HAProxy cannot be told", false},
		"name with a quote":  {`al"ice:` + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"name with a hash":   {"al#ice:" + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"name with a slash":  {`al\ice:` + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"name with a dollar": {`al$ice:` + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"name with a bell":   {"al\aice:" + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"name with a letter": {"alicë:" + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"no name":            {":" + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"long name":          {strings.Repeat("a", 129) + ":" + htpasswdtest.Hashes["DES"], "line 1 has a user name", false},
		"bcrypt 7":           {"alice:$2y$07$" + bcrypt, "line 1: user alice has a hash that takes about 10ms to check", true},
		"bcrypt 10":          {"alice:" + htpasswdtest.Hashes["costly bcrypt"], "has a hash that takes about 82ms to check, at every request", true},
		"bcrypt 13":          {"alice:$2y$13$" + bcrypt, "has a hash that takes 655ms to check, and at most 500ms are possible", false},
		"bcrypt 31":          {"alice:$2y$31$" + bcrypt, "has a hash that takes 47h", false},
		"bcrypt 99":          {"alice:$2y$99$" + bcrypt, "has no hash", false},
		"many rounds":        {"alice:" + strings.Replace(htpasswdtest.Hashes["SHA-256 with rounds"], "1000", "50000", 1), "takes about 44ms", true},
		"no end of rounds":   {"alice:" + strings.Replace(htpasswdtest.Hashes["SHA-256 with rounds"], "1000", "999999999", 1), "has a hash that takes 14m", false},
		"too many digits":    {"alice:" + strings.Replace(htpasswdtest.Hashes["SHA-256 with rounds"], "1000", "9999999999", 1), "has no hash", false},
		"yescrypt":           {"alice:" + htpasswdtest.Hashes["yescrypt of mkpasswd"], "takes about 26ms", true},
		"yescrypt, large":    {"alice:" + strings.Replace(htpasswdtest.Hashes["yescrypt of mkpasswd"], "j9T", "jZT", 1), "and at most 500ms are possible", false},
		"yescrypt, odd":      {"alice:" + strings.Replace(htpasswdtest.Hashes["yescrypt of mkpasswd"], "j9T", "j9T/", 1), "has no hash", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			users, problems := Parse([]byte(c.line + "\n"))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) || problems[0].Hint == "" || problems[0].Usable != c.usable || len(users) == 1 != c.usable {
				t.Errorf("users %v, problems %v, want %q", users, problems, c.want)
			}
			_, hash, _ := strings.Cut(c.line, ":")
			if len(problems) == 1 && hash != "" && strings.Contains(problems[0].Error()+problems[0].Hint, hash) {
				t.Errorf("%v tells the hash", problems)
			}
		})
	}
}

func TestHtpasswdHasATimeToLoad(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "user%d:%s\n", i, htpasswdtest.Hashes["costly bcrypt"])
	}
	b.WriteString("cheap:" + htpasswdtest.Hashes["DES"] + "\n")
	users, problems := Parse([]byte(b.String()))
	cost, _ := hashCost(htpasswdtest.Hashes["costly bcrypt"])
	most := int(maxHashes / cost)
	if len(users) != most+1 || users[most].Name != "cheap" || most < 10 {
		t.Errorf("%d users, want %d", len(users), most+1)
	}
	if p := problems[most]; p.Usable || p.Message != "is one too many: HAProxy would take more than 5s to load all these hashes" {
		t.Errorf("the first that is too many: %v", p)
	}
}

func TestVeryManyProblems(t *testing.T) {
	t.Parallel()
	users, problems := Parse([]byte(strings.Repeat("x\n", 300_000) + "alice:" + htpasswdtest.Hashes["MD5"] + "\n" + strings.Repeat("x\n", 10)))
	if n := len(problems); len(users) != 1 || n != 101 || problems[100].Error() != "line 300011 is the last of 299910 more that have problems" {
		t.Errorf("%d users, %d problems, the last: %v", len(users), n, problems[n-1])
	}
}

func TestHashCosts(t *testing.T) {
	t.Parallel()
	for kind, hash := range htpasswdtest.Hashes {
		cost, err := hashCost(hash)
		costly := strings.Contains(kind, "costly") || strings.Contains(kind, "mkpasswd")
		if err != nil || (cost >= costlyHash) != costly || cost <= 0 || cost > time.Second {
			t.Errorf("%s: %v, %v", kind, cost, err)
		}
	}
}

// For any file, users are words of haproxy.cfg, and problems hold no hash.
func FuzzParseHtpasswd(f *testing.F) {
	f.Add([]byte("a:" + htpasswdtest.Hashes["bcrypt 2y"] + "\nb:x\n"))
	f.Add([]byte("a#b:$1$x$y:z\r\n'\"\\\n::\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		users, problems := Parse(data)
		lines := strings.Count(string(data), "\n") + 1
		if len(users) > lines || len(problems) > lines {
			t.Fatalf("%d users and %d problems in %d lines", len(users), len(problems), lines)
		}
		for _, u := range users {
			if err := Check(u); err != nil {
				t.Fatal(err)
			}
			if haproxycfg.CountWords([]byte("user "+u.Name+" password "+u.Hash)) != 4 {
				t.Fatalf("%q %q is more than two words", u.Name, u.Hash)
			}
		}
	})
}
