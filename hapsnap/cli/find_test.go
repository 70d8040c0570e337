package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
)

// TestMain keeps the user's own settings out of the tests.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "hapsnap-home-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "HAPSNAP_") || name == "KUBECONFIG" || name == "XDG_CONFIG_HOME" || name == "KUBERNETES_SERVICE_HOST" {
			os.Unsetenv(name)
		}
	}
	os.Setenv("HOME", home)
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// finding is a finder with the surroundings of a test.
type finding struct {
	env      map[string]string
	config   string   // of contexts
	found    settings // in the cluster
	asked    int
	findable error
	unread   error // why no state can be read
}

func (f *finding) finder(t *testing.T) *finder {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if f.config != "" {
		if err := os.WriteFile(path, []byte(f.config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &finder{
		environment: func(name string) (string, bool) { value, ok := f.env[name]; return value, ok },
		contexts:    &contextFile{path: path},
		discover: func(context.Context, cluster) (settings, error) {
			f.asked++
			return f.found, f.findable
		},
		readable: func(context.Context, kubeconfig.Options, string) error { return f.unread },
	}
}

const twoContexts = `
current: edge
contexts:
  edge: {store: "dir:/edge", state: /edge.json, git-token-file: /token}
  kube: {kubeconfig: /kube, context: blue}
`

// A flag comes before the environment, then comes the context, then the cluster. A store and a state come from
// the same place.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	inCluster := settings{"store": "configmap:edge/shop", "state": "secret:edge/pusher"}
	for name, c := range map[string]struct {
		finding
		verb  string
		args  []string
		want  map[string]string
		asked int
	}{
		"a flag": {finding{env: map[string]string{"HAPSNAP_STORE": "dir:/env"}, config: twoContexts}, "pin", []string{"--store", "dir:/flag"},
			map[string]string{"store": "dir:/flag"}, 0},
		"the environment": {finding{env: map[string]string{"HAPSNAP_STORE": "dir:/env", "HAPSNAP_REASON": "night"}, config: twoContexts}, "rollback", nil,
			map[string]string{"store": "dir:/env", "reason": "night", "state": "", "git-token-file": ""}, 0},
		"the context": {finding{config: twoContexts, found: inCluster}, "rollback", nil,
			map[string]string{"store": "dir:/edge", "state": "/edge.json", "git-token-file": "/token"}, 0},
		"an installation that a flag chooses": {finding{config: twoContexts, found: inCluster}, "rollback", []string{"--installation", "edge/client", "--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "secret:edge/pusher"}, 1},
		"an installation that a namespace chooses": {finding{env: map[string]string{"HAPSNAP_STORE": "dir:/env", "HAPSNAP_INSTALLATION": "a/b"}, config: twoContexts, found: inCluster}, "rollback", []string{"-n", "edge", "--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "secret:edge/pusher", "installation": ""}, 1},
		"an installation that the environment chooses": {finding{env: map[string]string{"HAPSNAP_NAMESPACE": "edge"}, config: twoContexts, found: inCluster}, "rollback", []string{"--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "secret:edge/pusher", "git-token-file": "/token"}, 1},
		"the same store": {finding{config: twoContexts}, "rollback", []string{"--store", "dir:/edge", "--git-token-file", "/mine"},
			map[string]string{"state": "/edge.json", "git-token-file": "/mine"}, 0},
		"the cluster": {finding{found: inCluster}, "rollback", []string{"--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "secret:edge/pusher"}, 1},
		"a cluster of a context": {finding{config: twoContexts, found: inCluster}, "rollback", []string{"--context", "kube"},
			map[string]string{"store": "configmap:edge/shop", "kubeconfig": "/kube", "context": "blue"}, 1},
		"a context of the kubeconfig": {finding{config: twoContexts, found: inCluster}, "rollback", []string{"--context", "green", "--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "context": "green"}, 1},
		"no cluster for a store of one's own": {finding{found: inCluster}, "history", []string{"--kubeconfig", "/k", "--store", "dir:/flag"},
			map[string]string{"store": "dir:/flag", "state": ""}, 0},
		"no state of another store": {finding{found: inCluster}, "gc", []string{"--kubeconfig", "/k", "--store", "dir:/flag"},
			map[string]string{"store": "dir:/flag", "state": "[]"}, 1},
		"the state of a store": {finding{found: inCluster}, "gc", []string{"--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "[secret:edge/pusher]"}, 1},
		"a state that is not for everybody": {finding{found: inCluster, unread: errors.New("forbidden")}, "rollback", []string{"--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": ""}, 1},
		"a state that is needed": {finding{found: inCluster, unread: errors.New("forbidden")}, "gc", []string{"--kubeconfig", "/k"},
			map[string]string{"store": "configmap:edge/shop", "state": "[secret:edge/pusher]"}, 1},
		"a state that was given": {finding{found: inCluster, unread: errors.New("forbidden")}, "rollback", []string{"--kubeconfig", "/k", "--state", "/mine"},
			map[string]string{"store": "", "state": "/mine"}, 1},
		"files and a context with a cluster": {finding{config: "current: a\ncontexts: {a: {kubeconfig: /k}}\n", found: inCluster}, "render", []string{"-f", "manifests", "-o", "out"},
			map[string]string{"kubeconfig": ""}, 0},
		"files for a store in the cluster": {finding{config: "current: a\ncontexts: {a: {kubeconfig: /k}}\n", found: inCluster}, "render", []string{"-f", "manifests", "-o", "configmap:a/b"},
			map[string]string{"kubeconfig": "/k"}, 0},
		"files": {finding{env: map[string]string{"HAPSNAP_HTTP_PORT": "8080", "HAPSNAP_KUBECONFIG": "/k"}, found: inCluster}, "render", []string{"-f", "manifests"},
			map[string]string{"http-port": "8080", "kubeconfig": ""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := halfVerbs()[c.verb]
			f := c.finder(t)
			f.attach(cmd)
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			cmd.SetContext(t.Context())
			cmd.SetErr(io.Discard)
			if err := f.fill(cmd, nil); err != nil {
				t.Fatal(err)
			}
			for flag, want := range c.want {
				if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
					t.Errorf("--%s is %q, want %q", flag, got, want)
				}
			}
			if c.finding.asked != c.asked {
				t.Errorf("the cluster was asked %d times, want %d", c.finding.asked, c.asked)
			}
		})
	}
}

// A token goes to no server that only a ConfigMap names, which anybody may have made. It goes where the user chose the store,
// the ConfigMap or its namespace.
func TestTokensGoWhereTheUserSaid(t *testing.T) {
	t.Parallel()
	evil := settings{"store": "git+https://evil.example/x.git?branch=edge", "state": "secret:tenant/x", foundIn: "tenant/mine"}
	token := map[string]string{"HAPSNAP_GIT_TOKEN_FILE": "/token"}
	for name, c := range map[string]struct {
		finding
		args    []string
		refused bool
	}{
		"a token of the environment":        {finding{found: evil, env: token}, nil, true},
		"a token of a flag":                 {finding{found: evil}, []string{"--git-token-file", "/token"}, true},
		"a token of a context":              {finding{found: evil, config: "current: a\ncontexts: {a: {git-token-file: /token}}\n"}, nil, true},
		"no token":                          {finding{found: evil}, nil, false},
		"a ConfigMap that the user chose":   {finding{found: evil, env: token}, []string{"--installation", "tenant/mine"}, false},
		"a namespace that the user chose":   {finding{found: evil, env: token}, []string{"-n", "tenant"}, false},
		"one that a context chose":          {finding{found: evil, env: token, config: "current: a\ncontexts: {a: {installation: tenant/mine}}\n"}, nil, false},
		"a store that the user chose":       {finding{found: evil, env: token}, []string{"--store", "git+https://git.example/edge.git"}, false},
		"a store that needs no token":       {finding{found: settings{"store": "configmap:edge/shop", foundIn: "edge/client"}, env: token}, nil, false},
		"a key, which is not sent to hosts": {finding{found: settings{"store": "git+ssh://git@evil.example/x", foundIn: "tenant/mine"}, env: map[string]string{"HAPSNAP_GIT_SSH_KEY": "/key"}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := halfVerbs()["gc"] // it also needs a state, so that the cluster is asked when the store was given
			c.finder(t).attach(cmd)
			if err := cmd.ParseFlags(append([]string{"--kubeconfig", "/k"}, c.args...)); err != nil {
				t.Fatal(err)
			}
			cmd.SetContext(t.Context())
			cmd.SetErr(io.Discard)
			err := c.finder(t).fill(cmd, nil)
			if refused := err != nil; refused != c.refused {
				t.Fatalf("refused: %t (%v), want %t", refused, err, c.refused)
			}
			if err != nil && (!strings.Contains(err.Error(), "the token of /token is not sent there") || !strings.Contains(process.Hint(err), "--installation tenant/mine")) {
				t.Errorf("it says %v, with the hint %q", err, process.Hint(err))
			}
			if store := cmd.Flags().Lookup("store").Value.String(); c.refused && store != "" {
				t.Errorf("the store is %s", store)
			}
		})
	}
}

// An error about a place names it.
func TestPlacesThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		finding
		verb, want string
	}{
		{finding{env: map[string]string{"HAPSNAP_LIMIT": "many"}}, "history", "HAPSNAP_LIMIT: "},
		{finding{config: "current: gone\n"}, "history", "says to use the context gone, which is not there"},
		{finding{config: "contxts: {}\n"}, "history", `unknown field "contxts"`},
		{finding{env: map[string]string{"HAPSNAP_NAMESPACE": "edge"}}, "history", "no cluster is named in which to look"},
		{finding{env: map[string]string{"HAPSNAP_CONTEXT": "nope"}, config: twoContexts}, "history", "there is no context nope"},
	} {
		cmd := halfVerbs()[c.verb]
		f := c.finder(t)
		f.attach(cmd)
		cmd.SetContext(t.Context())
		if err := f.fill(cmd, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// The flag for the number of lines stays, and -n is the namespace as in kubectl.
func TestShorthandOfNamespaces(t *testing.T) {
	t.Parallel()
	history := halfVerbs()["history"]
	new(finding).finder(t).attach(history)
	if err := history.ParseFlags([]string{"-n", "edge", "--limit", "5", "-o", "json"}); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"namespace": "edge", "limit": "5", "output": "json"} {
		if got := history.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
}

func installation(namespace, name, store string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clientLabel: "true"}},
		Data:       map[string]string{"store": store, "state": "secret:x/y", "git-token-file": "/etc/passwd"},
	}
}

// A single installation is found wherever it is. If there are several, one has to be named. An error about
// missing permissions says which are needed.
func TestInstallations(t *testing.T) {
	t.Parallel()
	one, two := installation("edge-store", "a", "configmap:edge-store/a"), installation("tenant", "b", "git+https://evil.example/x.git")
	unlabelled := one.DeepCopy()
	unlabelled.Labels, unlabelled.Name = nil, "other"
	for name, c := range map[string]struct {
		objects   []runtime.Object
		at        cluster
		forbidden string // the namespace that may not be listed, "*" for listing all at once
		want      string // the store, or a part of the error
		hint      string
	}{
		"one":                   {[]runtime.Object{one, unlabelled}, cluster{}, "-", "configmap:edge-store/a", ""},
		"none":                  {[]runtime.Object{unlabelled}, cluster{}, "-", "no ConfigMap of the cluster has the label", "HAPSNAP_STORE"},
		"two":                   {[]runtime.Object{one, two}, cluster{}, "-", "there are 2 installations:\n\tedge-store/a (configmap:edge-store/a)\n\ttenant/b (", "--installation"},
		"two, and a namespace":  {[]runtime.Object{one, two}, cluster{namespace: "edge-store"}, "-", "configmap:edge-store/a", ""},
		"two, and one named":    {[]runtime.Object{one, two}, cluster{installation: "edge-store/a"}, "-", "configmap:edge-store/a", ""},
		"named, and not there":  {[]runtime.Object{one}, cluster{installation: "edge/z"}, "-", `read ConfigMap edge/z: configmaps "z" not found`, "--store"},
		"no name":               {nil, cluster{installation: "a"}, "-", "--installation: ", ""},
		"only one's own":        {[]runtime.Object{installation("default", "a", "configmap:default/a"), two}, cluster{}, "", "configmap:default/a", ""},
		"no rights":             {[]runtime.Object{one}, cluster{}, "*", "look for ConfigMaps in all namespaces, or in namespace default: ", "viewer"},
		"no rights there":       {[]runtime.Object{one}, cluster{namespace: "edge-store"}, "*", "look for ConfigMaps in namespace edge-store: ", "viewer"},
		"one that names no one": {[]runtime.Object{installation("edge", "a", "")}, cluster{}, "-", "ConfigMap edge/a names no store", "--store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(c.objects...)
			client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if c.forbidden == "*" || a.GetNamespace() == c.forbidden {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", fmt.Errorf("no"))
				}
				return false, nil, nil
			})
			all, err := installations(t.Context(), client, c.at)
			var found settings
			if err == nil {
				found, err = chosen(all, c.at)
			}
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || !strings.Contains(process.Hint(err), c.hint) {
					t.Errorf("%v, hint %q; want %q, %q", err, process.Hint(err), c.want, c.hint)
				}
				return
			}
			if found["store"] != c.want || found["state"] != "secret:x/y" || len(found) != 3 || found[foundIn] == "" {
				t.Errorf("found %v, want the store %s", found, c.want)
			}
		})
	}
}

// However many ConfigMaps somebody makes that look like installations, and whatever they say, the answer is short.
func TestManyInstallations(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	for i := range 200 {
		objects = append(objects, installation(fmt.Sprintf("t%03d", i), "a", strings.Repeat("é", 10_000)))
	}
	all, err := installations(t.Context(), fake.NewClientset(objects...), cluster{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = chosen(all, cluster{})
	if err == nil || !strings.HasPrefix(err.Error(), "there are more than 20 installations:\n\tt000/a (éé") || len(err.Error()) > 6000 {
		t.Errorf("it says %.200v", err)
	}
}

// Contexts can be added, used, listed and removed. Their paths have the same meaning in another folder.
func TestContexts(t *testing.T) {
	t.Parallel()
	file := &contextFile{path: filepath.Join(t.TempDir(), "hapsnap", "config.yaml")}
	do := func(args ...string) (code int, said string) {
		var out strings.Builder
		cmd := contextCommand(file, Name)
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		code = process.Main(cmd)
		return code, out.String()
	}
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"list", 0, "there is no context\n"},
		{"use edge", 2, "there is no context edge\n\thint: add one with hapsnap context add\n"},
		{"add edge", 2, "the context edge would say nothing"},
		{"add edge --store dir:snapshots --git-token-file token", 0, "context edge is added and in use\n"},
		{"add prod --store git+https://me:pw@git.example/x", 2, "holds a password"},
		{"add prod --store git+https://me@git.example/x?branch=b --state secret:a/b", 0, "context prod is added\n"},
		{"list", 0, "CURRENT  NAME  LEADS TO\n*        edge  dir:" + folder + "/snapshots\n         prod  git+https://me@git.example/x?branch=b\n"},
		{"use pord", 2, "hint: did you mean prod?"},
		{"use prod", 0, "context prod is in use\n"},
		{"add prod --store /srv/x", 0, "context prod is replaced and in use\n"},
		{"remove prod", 0, "context prod is removed\n"},
		{"list -o json", 0, `"git-token-file": "` + folder + `/token"`},
		{"use", 2, "name a context, or use --none"},
		{"use --none", 0, "no context is in use\n"},
	} {
		if code, said := do(strings.Fields(c.line)...); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d, said %q, want %q", c.line, code, said, c.want)
		}
	}
	if info, err := os.Stat(file.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info, err)
	}
}

// Two processes that add contexts at the same time lose none.
func TestContextsAtOnce(t *testing.T) {
	t.Parallel()
	file := &contextFile{path: filepath.Join(t.TempDir(), "config.yaml")}
	const n = 20
	errs := make(chan error, n)
	for i := range n {
		go func() {
			errs <- file.change(t.Context(), func(c *userConfig) error {
				c.Contexts[fmt.Sprint(i)] = settings{"store": "dir:/x"}
				return nil
			})
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if c, err := file.read(); err != nil || len(c.Contexts) != n {
		t.Errorf("%d of %d contexts are there, %v", len(c.Contexts), n, err)
	}
}
