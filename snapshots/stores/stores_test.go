package stores

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestOpenNamesStores(t *testing.T) {
	t.Parallel()
	cluster := kubeconfig.Options{File: filepath.Join(t.TempDir(), "kubeconfig")}
	writeKubeconfig(t, cluster.File)
	for text, want := range map[string]string{
		"dir:/srv/snapshots":                       "dir:/srv/snapshots",
		"dir:snapshots/":                           "dir:snapshots",
		"/srv/snapshots":                           "dir:/srv/snapshots",
		"snapshots":                                "dir:snapshots",
		"./with:colon":                             "dir:with:colon",
		"git+file:///srv/a.git":                    "git+file:///srv/a.git?branch=main",
		"git+file:///srv/a%20b":                    "git+file:///srv/a%20b?branch=main",
		"git+file:///srv/a%3Fb":                    "git+file:///srv/a%3Fb?branch=main",
		"git+file:///srv/x:y":                      "git+file:///srv/x:y?branch=main",
		"git+file:///a?branch=b":                   "git+file:///a?branch=b",
		"git+file:///a?branch=b&review=c":          "git+file:///a?branch=b&review=c",
		"git+file:///a?branch=b&deliver=edge/shop": "git+file:///a?branch=b",
		"configmap:edge/shop.eu":                   "configmap:edge/shop.eu",
		"git+https://user@git.example:8443/shop/edge.git?branch=env/edge": "git+https://user@git.example:8443/shop/edge.git?branch=env%2Fedge",
		"git+http://localhost:3000/shop/edge.git":                         "git+http://localhost:3000/shop/edge.git?branch=main",
		"git+ssh://git@git.example/shop/edge.git":                         "git+ssh://git@git.example/shop/edge.git?branch=main",
	} {
		s, err := Open(t.Context(), text, Options{CacheDir: t.TempDir(), Credentials: gitstore.Credentials{SSHKeyFile: "key"}, Cluster: cluster})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if s.String() != want {
			t.Errorf("%s is %s, want %s", text, s, want)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", text, err)
		}
	}
}

func writeKubeconfig(t *testing.T, path string) {
	t.Helper()
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://a.example"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Which cluster a store is in must be known.
func TestOpenWithoutACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := Open(t.Context(), "configmap:edge/shop", Options{})
	if err == nil || process.Hint(err) != "name a kubeconfig file with --kubeconfig" {
		t.Errorf("%v, hint %q", err, process.Hint(err))
	}
}

func TestOpenRefusesWhatItCannotBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "no store is named",
		"dir:":                                `store "dir:" names no directory`,
		"s3:bucket":                           `store "s3:bucket": unknown scheme s3:`,
		"configmap:edge":                      `store "configmap:edge" is not configmap:NAMESPACE/NAME`,
		"configmap:edge/":                     `name ""`,
		"configmap:/edge":                     `namespace ""`,
		"configmap:edge/a/b":                  `name "a/b"`,
		"git+git://git.example/a":             "unknown scheme git+git:",
		"git+file://srv/a":                    "the path of git+file:// is absolute",
		"git+file:a":                          "the path of git+file:// is absolute",
		"git+https:///a":                      "host or path is missing",
		"git+https://git.example/":            "host or path is missing",
		"git+file:///a?brnch=edge":            "only ?branch=NAME can be given, once",
		"git+file:///a?branch=":               "only ?branch=NAME can be given, once",
		"git+file:///a?branch=a&branch=b":     "only ?branch=NAME can be given, once",
		"git+file:///a?deliver=":              "and deliver=NAMESPACE/NAME",
		"git+file:///a?deliver=edge":          `deliver: "edge" is not namespace/name`,
		"git+file:///a?deliver=edge/Shop":     `deliver: name "Shop"`,
		"git+file:///a?branch=%zz":            "the parameters after ? cannot be parsed",
		"git+file:///a?branch=a..b":           `branch "a..b"`,
		"git+file:///a?branch=a&review=a":     "branch a cannot be reviewed on itself",
		"git+file:///a?branch=a&review=a..b":  `branch "a..b"`,
		"git+file:///a?branch=a&review=":      "only ?branch=NAME can be given, once",
		"git+https://u:secret@[::1/a":         "the URL of the store cannot be parsed",
		"git+https://u:secret@git.example?x=": "host or path is missing",
	} {
		s, err := Open(t.Context(), text, Options{})
		if err == nil {
			t.Errorf("%q is %s", text, s)
			continue
		}
		if code := process.Code(t.Context(), err); code != process.ExitUsage {
			t.Errorf("%q: exit code %d", text, code)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, want %q in it", text, err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the password is in the error: %s", text, err)
		}
		if !strings.Contains(process.Hint(err), "git+file:///PATH?branch=NAME") {
			t.Errorf("%q: hint %q", text, process.Hint(err))
		}
	}
}

// Each kind of store works when it is opened by its URL, also in a folder whose name needs escaping.
func TestOpenedStoresWork(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b%20c:d?e")
	bare := filepath.Join(dir, "edge.git")
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", bare).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	escaped := strings.NewReplacer("%", "%25", "?", "%3F", " ", "%20").Replace(bare)
	for _, text := range []string{"dir:" + filepath.Join(dir, "store"), "git+file://" + escaped + "?branch=edge"} {
		s, err := Open(t.Context(), text, Options{CacheDir: filepath.Join(dir, "cache")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		id, published, err := s.Publish(t.Context(), storetest.Draft("web"))
		if err != nil || !published {
			t.Fatalf("%s: published %v, %v", s, published, err)
		}
		again, err := Open(t.Context(), s.String(), Options{CacheDir: filepath.Join(dir, "cache")})
		if err != nil {
			t.Fatalf("open %s: %v", s, err)
		}
		defer again.Close()
		if _, err := again.Get(t.Context(), id); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	}
	// Wrong credentials alone get a hint of their own.
	for text, want := range map[string]string{"git+http://git.example/a": "use git+https://", "git+ssh://git.example/a": "use --git-ssh-key FILE"} {
		if _, err := Open(t.Context(), text, Options{}); process.Code(t.Context(), err) != process.ExitUsage || process.Hint(err) != want {
			t.Errorf("open %s: %v, hint %q", text, err, process.Hint(err))
		}
	}
	// The repository itself is no directory of snapshots.
	_, err := Open(t.Context(), bare, Options{})
	if process.Code(t.Context(), err) != process.ExitUsage || process.Hint(err) != "write git+file://"+escaped+"?branch=NAME" {
		t.Errorf("open %s: %v, hint %q", bare, err, process.Hint(err))
	}
}

// A repository that is named in git's own way is neither a store nor a directory. The error shows the right
// form, and repeats no password.
func TestRepositoriesAsGitNamesThem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for text, want := range map[string]string{
		"git@git.example:shop/edge.git":         "write git+ssh://git@git.example/shop/edge.git?branch=NAME, with --git-ssh-key FILE",
		"git@git.example:/srv/edge":             "write git+ssh://git@git.example/srv/edge?branch=NAME, with --git-ssh-key FILE",
		"git.example:edge.git":                  "write git+ssh://git@git.example/edge.git?branch=NAME, with --git-ssh-key FILE",
		"ssh://git@git.example/edge":            "write git+ssh://git@git.example/edge?branch=NAME",
		"https://git.example/edge":              "write git+https://git.example/edge?branch=NAME",
		"https://u:secret@git.example/edge":     "write git+https://u@git.example/edge?branch=NAME",
		"file:///srv/edge":                      "write git+file:///srv/edge?branch=NAME",
		filepath.Join(folder, "edge.git"):       "write git+file://" + filepath.Join(folder, "edge.git") + "?branch=NAME",
		"git+https://u:secret@git.example/edge": "leave it out of the URL, and name a file that holds it with --git-token-file",
	} {
		_, err := Open(t.Context(), text, Options{})
		if process.Code(t.Context(), err) != process.ExitUsage || process.Hint(err) != want {
			t.Errorf("%s: %v, hint %q", text, err, process.Hint(err))
		}
		if strings.Contains(err.Error()+process.Hint(err), "secret") {
			t.Errorf("%s: the password is repeated: %v", text, err)
		}
	}
	for _, text := range []string{"./edge:git", "dir:edge.git", "edge", "configmap:edge/shop.git"} {
		if like := LikeGit(text); like != "" {
			t.Errorf("%s is taken for a git repository, %s", text, like)
		}
	}
}

// A person who looks for snapshots in the wrong place sees which stores exist there.
func TestNoSnapshots(t *testing.T) {
	t.Parallel()
	bare := filepath.Join(t.TempDir(), "edge.git")
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", bare).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	open := func(text string) Store {
		s, err := Open(t.Context(), text, Options{CacheDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	first := open("git+file://" + bare)
	want := "there is no snapshot in " + first.String()
	if got := NoSnapshots(t.Context(), first).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, branch := range []string{"prod", "edge"} {
		s := open("git+file://" + bare + "?branch=" + branch)
		if _, _, err := s.Publish(t.Context(), storetest.Draft("web")); err != nil {
			t.Fatal(err)
		}
		if err := s.UpdateChannel(t.Context(), "pause", time.Now(), func(c *channel.Channel) error {
			*c = c.Paused(channel.Pause{By: "ann"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := NoSnapshots(t.Context(), first).Error(); got != want+"; the branches are edge, prod" {
		t.Errorf("%q, want %q and the branches", got, want)
	}
	// The branch is only the default, and the repository belongs to somebody.
	_, _, err := first.Publish(t.Context(), storetest.Draft("web"))
	if hint := "the URL names no branch: add ?branch=NAME, also for a new one; the branches are edge, prod"; process.Hint(err) != hint {
		t.Errorf("published to a branch that nobody named: %v, hint %q", err, process.Hint(err))
	}
	if _, _, err := open("git+file://"+bare+"?branch=main").Publish(t.Context(), storetest.Draft("web")); err != nil {
		t.Errorf("a branch that was named: %v", err)
	}
	if _, _, err := first.Publish(t.Context(), storetest.Draft("api")); err != nil {
		t.Errorf("the usual branch is ours by now: %v", err)
	}
}

// A store that cannot sign refuses the options of signatures, so that nobody believes that it signs.
func TestSignaturesAreForGitAndConfigMaps(t *testing.T) {
	t.Parallel()
	key, allowed := signature.Key{File: "key"}, signature.Allowed{SignersFile: "signers"}
	for _, text := range []string{"dir:store", "store"} {
		for _, o := range []Options{{Key: key}, {Allowed: allowed}, {Allowed: signature.Allowed{KeyringFile: "ring"}}} {
			s, err := Open(t.Context(), text, o)
			if process.Code(t.Context(), err) != process.ExitUsage || !strings.HasPrefix(process.Hint(err), "leave out --signing-key") {
				t.Errorf("%s with %+v is %v, %v", text, o, s, err)
			}
		}
	}
	_, err := Open(t.Context(), "git+file:///a", Options{Key: signature.Key{PassphraseFile: "passphrase"}})
	if process.Hint(err) != "use --signing-key FILE" {
		t.Errorf("a passphrase without a key: %v", err)
	}
	s, err := Open(t.Context(), "git+file:///a", Options{Key: key, Allowed: allowed})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
}

// The compiler does not write to a branch into which people merge.
func TestPublishWhereItIsReviewed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"git+file:///a?review=staging":             "people merge into main",
		"git+file:///a?branch=live&review=staging": "people merge into live",
		"git+file:///a?branch=a&review=a..b":       "people merge into a",
	} {
		s, err := Open(t.Context(), text, Options{Publish: true})
		if process.Code(t.Context(), err) != process.ExitUsage || !strings.Contains(err.Error(), want) || !strings.Contains(process.Hint(err), "?branch=") {
			t.Errorf("%s: %v, %v, hint %q", text, s, err, process.Hint(err))
		}
	}
}
