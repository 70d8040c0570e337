package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	front "github.com/hapsnap/hapsnap/hapsnap/cli"
	"github.com/hapsnap/hapsnap/internal/process"
)

// TestMain makes the test's own binary act as hapsnap, under its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == front.Name {
		root, args := front.FromArgs(os.Args)
		root.SetArgs(args)
		os.Exit(process.Main(root))
	}
	os.Exit(m.Run())
}

// forge stands in for gh and curl. It keeps its arguments and what is posted, and answers with the file answer.
const forge = `#!/bin/sh
printf '%s\n' "$*" >> "$FORGE/calls"
output=
while [ $# -gt 0 ]; do
  case "$1" in
  --output) output="$2"; shift ;;
  --config) cp "$2" "$FORGE/config"; shift ;;
  body=@*) cp "${1#body=@}" "$FORGE/body" ;;
  body@*) cp "${1#body@}" "$FORGE/body" ;;
  esac
  shift
done
if [ -e "$FORGE/answer" ]; then
  if [ -n "$output" ] && [ "$output" != /dev/null ]; then cat "$FORGE/answer" > "$output"; elif [ -z "$output" ]; then cat "$FORGE/answer"; fi
fi
`

// pipeline is a repository with a change, in which the steps of a pipeline run.
type pipeline struct {
	dir, forge string
	env        []string
}

func newPipeline(t *testing.T, change string) pipeline {
	t.Helper()
	p := pipeline{dir: filepath.Join(t.TempDir(), "repository"), forge: t.TempDir()}
	bin := t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, filepath.Join(bin, front.Name)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gh", "curl"} {
		write(t, filepath.Join(bin, name), forge)
	}
	p.env = append(os.Environ(),
		"PATH="+bin+":"+os.Getenv("PATH"), "FORGE="+p.forge, "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "KUBECONFIG=",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	)
	write(t, filepath.Join(p.dir, "config.yaml"), "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {maxconn: 1000}\n")
	write(t, filepath.Join(p.dir, "manifests", "web.yaml"), ingress("web", "/"))
	p.run(t, "git init -q -b main . && git add . && git commit -q -m first && git update-ref refs/remotes/origin/main HEAD")
	write(t, filepath.Join(p.dir, "manifests", "more.yaml"), change)
	p.run(t, "git add . && git commit -q -m second")
	return p
}

func ingress(name, path string) string {
	return `apiVersion: v1
kind: Service
metadata: {namespace: shop, name: ` + name + `}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: ` + name + `}
spec:
  ingressClassName: hapsnap
  rules: [{host: ` + name + `.example.com, http: {paths: [{path: "` + path + `", pathType: Prefix, backend: {service: {name: ` + name + `, port: {number: 80}}}}]}}]
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // some are run
		t.Fatal(err)
	}
}

// try runs a step as a runner would, and returns why it failed.
func (p pipeline) try(t *testing.T, script string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = p.dir, append(p.env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p pipeline) run(t *testing.T, script string, env ...string) {
	t.Helper()
	if out, err := p.try(t, script, env...); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
}

// kept returns what the forge got.
func (p pipeline) kept(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.forge, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run, If, Uses string }
		}
	}
	text, err := os.ReadFile("github.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	steps := map[string]string{}
	for _, s := range workflow.Jobs["diff"].Steps {
		steps[s.Name] = s.Run
	}
	env := func(p pipeline) []string {
		return []string{"RUNNER_TEMP=" + filepath.Dir(p.dir), "GITHUB_BASE_REF=main", "GITHUB_REPOSITORY=shop/edge", "PULL_REQUEST=7", "GITHUB_STEP_SUMMARY=" + filepath.Join(p.forge, "summary")}
	}
	p := newPipeline(t, ingress("sale", "/"))
	p.run(t, steps["Compare"], env(p)...)
	p.run(t, steps["Comment"], env(p)...)
	p.run(t, steps["Check"], env(p)...)
	checkComment(t, p.kept(t, "body"))
	if p.kept(t, "summary") != p.kept(t, "body") || !strings.Contains(p.kept(t, "calls"), "--method POST repos/shop/edge/issues/7/comments") {
		t.Errorf("the forge was called with\n%s", p.kept(t, "calls"))
	}
	// The second time, the comment exists.
	write(t, filepath.Join(p.forge, "answer"), "4711\n4712\n")
	p.run(t, steps["Comment"], env(p)...)
	if !strings.Contains(p.kept(t, "calls"), "--method PATCH repos/shop/edge/issues/comments/4711 ") {
		t.Errorf("the forge was called with\n%s", p.kept(t, "calls"))
	}
	// A problem is in the comment, and fails the check.
	bad := newPipeline(t, ingress("sale", "/a b"))
	bad.run(t, steps["Compare"], env(bad)...)
	bad.run(t, steps["Comment"], env(bad)...)
	if !strings.Contains(bad.kept(t, "body"), `Ingress shop/sale: path "/a b" holds a space`) {
		t.Errorf("the comment is\n%s", bad.kept(t, "body"))
	}
	if out, err := bad.try(t, steps["Check"], env(bad)...); err == nil || !strings.Contains(out, "manifests/more.yaml:11:") {
		t.Errorf("the check says %v\n%s", err, out)
	}
}

func checkComment(t *testing.T, body string) {
	t.Helper()
	for _, want := range []string{"<!-- hapsnap-diff -->\n### hapsnap: this needs a reload\n", "+backend shop_sale_80 from main\n", "```diff\n", "</details>\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("the comment lacks %q:\n%s", want, body)
		}
	}
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	var template struct {
		Hapsnap struct {
			Script []string
		}
	}
	text, err := os.ReadFile("gitlab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	script := strings.Join(template.Hapsnap.Script, "\n")
	env := []string{"CI_MERGE_REQUEST_DIFF_BASE_SHA=origin/main", "CI_API_V4_URL=https://git.example/api/v4", "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=9"}

	quiet := newPipeline(t, ingress("sale", "/"))
	quiet.run(t, script, env...)
	if _, err := os.Stat(filepath.Join(quiet.forge, "calls")); err == nil {
		t.Error("without a token the forge was called")
	}
	token := append(env, "HAPSNAP_TOKEN=glpat-secret")
	p := newPipeline(t, ingress("sale", "/"))
	write(t, filepath.Join(p.forge, "answer"), `[{"id":1,"type":null,"body":"see hapsnap-diff below","author":{"id":2}}]`)
	p.run(t, script, token...)
	checkComment(t, p.kept(t, "body"))
	calls := p.kept(t, "calls")
	if strings.Contains(calls, "--request PUT") || !strings.Contains(calls, "body@comment.md https://git.example/api/v4/projects/3/merge_requests/9/notes\n") {
		t.Errorf("the forge was called with\n%s", calls)
	}
	if strings.Contains(calls, "glpat-secret") || p.kept(t, "config") != "header = \"PRIVATE-TOKEN: glpat-secret\"\n" {
		t.Error("the token is on the command line, or not used")
	}
	again := newPipeline(t, ingress("sale", "/"))
	write(t, filepath.Join(again.forge, "answer"), `[{"id":1,"type":null,"body":"hello"},{"id":42,"type":null,"body":"\u003c!-- hapsnap-diff --\u003e\n###"}]`)
	again.run(t, script, token...)
	if !strings.Contains(again.kept(t, "calls"), "--request PUT --data-urlencode body@comment.md https://git.example/api/v4/projects/3/merge_requests/9/notes/42\n") {
		t.Errorf("the forge was called with\n%s", again.kept(t, "calls"))
	}
}
