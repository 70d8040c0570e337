package main

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/testing/browsertest"
)

var update = flag.Bool("update", false, "rewrite the demo's transcript in docs/start/demo.md")

// TestDocsShowTheDemo runs the demo, and compares its output with docs/start/demo.md and with the excerpt in
// the README. So readers see there what they would get.
func TestDocsShowTheDemo(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := options{
		haproxy: cmp.Or(os.Getenv("HAPROXY"), "haproxy"), shop: filepath.Join(root, "examples/shop"),
		compiler: build(t, root, "compiler"), pusher: build(t, root, "pusher"),
		limit: 15 * time.Minute, // for a machine that runs other tests too
	}
	var out viewer
	out.t, out.page = t, browsertest.Start(t).Page(t, browsertest.Options{})
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	page := filepath.Join(root, "docs/start/demo.md")
	before, shown, after := cutTranscript(t, page)
	if *update {
		if err := os.WriteFile(page, []byte(before+out.String()+after), 0o644); err != nil {
			t.Fatal(err)
		}
		shown = out.String()
	}
	if diff := gocmp.Diff(normal(shown), normal(out.String())); diff != "" {
		t.Errorf("docs/start/demo.md (-) does not show what the demo prints (+); run this test with -update:\n%s", diff)
	}
	_, excerpt, _ := cutTranscript(t, filepath.Join(root, "README.md"))
	rest := normal(out.String())
	for line := range strings.Lines(normal(excerpt) + "\n") {
		_, after, found := strings.Cut("\n"+rest+"\n", "\n"+line)
		if !found {
			t.Errorf("the README shows the line %q, and the demo does not print it there", line)
			continue
		}
		rest = after
	}
}

// viewer reads the output of the demo. Meanwhile it looks at the page of the fleet, in one window. The story
// continues once the page shows what happened.
type viewer struct {
	bytes.Buffer
	t    *testing.T
	page *browsertest.Page
}

func (v *viewer) Write(text []byte) (int, error) {
	has := func(words string) bool { return bytes.Contains(text, []byte(words)) }
	runs := func(snapshot string) {
		v.t.Helper()
		v.page.Wait("[...document.querySelectorAll('#fleet-cells .cell')].filter((c) => c.textContent.includes('" + snapshot + "')).length === 3")
	}
	switch {
	case has("\n4. "):
		v.page.Expect("ERR_") // after the end of the pusher
		v.page.Open("http://" + pageAddress + "/")
		v.page.Eval("window.sameWindow = true", nil)
		runs("r1")
		v.page.Eval(recordWaves, nil)
	case has("\n6. "):
		runs("r2")
		v.waves()
		v.page.Open("http://" + pageAddress + "/routes?scheme=http&method=GET&host=shop.example.com%3A18080&path=/")
		v.page.WaitText("#routes-ask", podThatLeaves)
	case has("\n7. "):
		v.page.Wait("((text) => text.includes('" + podThatComes + "') && !text.includes('" + podThatLeaves + "'))(document.querySelector('#routes-ask').textContent)")
		v.page.Open("http://" + pageAddress + "/")
		v.page.Eval("window.sameWindow = true", nil)
	case has("\n9. "):
		v.page.Wait("/undone|rejected/.test(document.querySelector('main').textContent)")
	case has("\nThat was hapsnap"):
		v.page.WaitText("main", "unpinned")
		if !v.page.Is("window.sameWindow === true") {
			v.t.Error("the page was loaded again")
		}
	}
	return v.Buffer.Write(text)
}

// These are the pod that step 6 replaces, and the new one.
const podThatLeaves, podThatComes = "127.0.10.11:", "127.0.10.13:"

// recordWaves makes the page record every change of a rollout's progress.
const recordWaves = `
window.seenWaves = []
new MutationObserver(() => {
	const waves = [...document.querySelectorAll('#fleet-rollout .wave')].map((w) => w.querySelector('progress').value)
	if (waves.length && String(waves) !== String(window.seenWaves.at(-1) ?? '')) window.seenWaves.push(waves)
}).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true})`

// waves checks what the page showed during a rollout: one instance first, then all three, and never fewer than
// before.
func (v *viewer) waves() {
	v.t.Helper()
	var seen [][]int
	v.page.Eval("window.seenWaves", &seen)
	last := []int{0, 0}
	for _, now := range seen {
		if len(now) != 2 || now[0] < last[0] || now[1] < last[1] || now[0] > 1 || now[1] > 3 || now[1] > 1 && now[0] < 1 {
			v.t.Errorf("the waves went so on the page: %v", seen)
		}
		last = now
	}
	if len(seen) == 0 {
		v.t.Error("the page showed no wave of a rollout that went on")
	}
}

// TestDemoLeavesNothingBehind ends the demo in the middle, as Ctrl-C does.
func TestDemoLeavesNothingBehind(t *testing.T) {
	w, err := newWorld(t.Context(), options{shop: "../shop"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.start(t.Context(), "sleeper", "sleep", "600"); err != nil {
		t.Fatal(err)
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if state := w.programs[0].cmd.ProcessState; state == nil || state.Success() {
		t.Errorf("the program is still running, or ended by itself: %v", state)
	}
	if _, err := os.Stat(w.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// build builds one of the programs.
func build(t *testing.T, root, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "./cmd/"+name)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, output)
	}
	return path
}

// cutTranscript splits a page at the transcript.
func cutTranscript(t *testing.T, page string) (before, shown, after string) {
	t.Helper()
	const begin, end = "<!-- demo -->\n```text\n", "```\n<!-- /demo -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	shown, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the transcript", page)
	}
	return head + begin, shown, end + tail
}

// varies matches what differs between runs: digests (which follow the templates), ages, the name of the user
// and the version of HAProxy.
var varies = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`r(\d{6})-[0-9a-f]{10}`), "r$1-DIGEST"},
	{regexp.MustCompile(`(?m)^( +)[0-9a-f]{7,} edge r`), "${1}COMMIT edge r"}, // it depends on the time
	{regexp.MustCompile(` +`), " "},                                           // the widths of columns vary
	{regexp.MustCompile(`(?m)^( r\d{6}-DIGEST) [0-9hms]+ `), "$1 AGE "},
	{regexp.MustCompile(`pinned by \S+:`), "pinned by USER:"},
	// HAProxy 3.0 says the same in a few more words.
	{regexp.MustCompile(`protocol tcpv4: (cannot bind socket .*\])\.`), "$1"},
}

func normal(s string) string {
	for _, v := range varies {
		s = v.pattern.ReplaceAllString(s, v.text)
	}
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(s)) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n")
}
