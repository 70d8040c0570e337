package agent

import (
	"encoding/base64"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/corazawaf/coraza-coreruleset/v4/tests"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/types"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/waf/policy"
	"github.com/hapsnap/hapsnap/waf/spop"
)

var update = flag.Bool("update", false, "rewrite what is generated")

// ruleTests is a file of the tests of the Core Rule Set, in the format of go-ftw.
type ruleTests struct {
	RuleID int `json:"rule_id"`
	Tests  []struct {
		ID     int         `json:"test_id"`
		Stages []ruleStage `json:"stages"`
	} `json:"tests"`
}

// A ruleStage is a request, with the rules that have to match it.
type ruleStage struct {
	Input  ruleInput `json:"input"`
	Output struct {
		Status int `json:"status"`
		Log    struct {
			Expect   []int  `json:"expect_ids"`
			NoExpect []int  `json:"no_expect_ids"`
			Match    string `json:"match_regex"` // of a log that the agent does not write
		} `json:"log"`
		Error bool `json:"expect_error"`
	} `json:"output"`
}

func (s ruleStage) passes(engine coraza.WAF, p policy.Policy) bool {
	m, ok := s.Input.asked()
	if !ok {
		return s.Output.Status == http.StatusBadRequest || s.Output.Error
	}
	f, err := inspect(engine, p, &m)
	if err != nil || s.Output.Log.Match != "" {
		return false
	}
	found := func(id int) bool {
		return slices.ContainsFunc(f.rules, func(r types.MatchedRule) bool { return r.Rule().ID() == id })
	}
	for _, id := range s.Output.Log.Expect {
		if !found(id) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Output.Log.NoExpect, found)
}

type ruleInput struct {
	Method  string            `json:"method"`
	URI     string            `json:"uri"`
	Version string            `json:"version"`
	Headers map[string]string `json:"headers"`
	Data    string            `json:"data"`
	Encoded string            `json:"encoded_request"`
	Auto    *bool             `json:"autocomplete_headers"`
}

// asked returns the request of a test as HAProxy would send it, or false if HAProxy would refuse it: some tests
// have requests that no HTTP server accepts.
func (in ruleInput) asked() (message, bool) {
	if in.Encoded != "" {
		raw, err := base64.StdEncoding.DecodeString(in.Encoded)
		if err != nil {
			return message{}, false
		}
		head, body, ok := strings.Cut(string(raw), "\r\n\r\n")
		line, headers, _ := strings.Cut(head, "\r\n")
		words := strings.Split(line, " ")
		if !ok || len(words) != 3 {
			return message{}, false
		}
		return question(words[0], words[1], words[2], headers, body), true
	}
	method, uri, version := in.Method, in.URI, in.Version
	if method == "" {
		method = http.MethodGet
	}
	if uri == "" {
		uri = "/"
	}
	if version == "" {
		version = "HTTP/1.1"
	}
	var lines []string
	for name, value := range in.Headers {
		lines = append(lines, name+": "+value)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(strings.ToLower(l), name+":") })
	}
	if in.Auto == nil || *in.Auto {
		if in.Data != "" && !has("content-type") {
			lines = append(lines, "Content-Type: application/x-www-form-urlencoded")
		}
		if in.Data != "" && !has("content-length") {
			lines = append(lines, "Content-Length: "+strconv.Itoa(len(in.Data)))
		}
	}
	slices.Sort(lines)
	return question(method, uri, version, strings.Join(lines, "\r\n"), in.Data), true
}

func question(method, uri, version, headers, body string) message {
	path, query, _ := strings.Cut(uri, "?")
	return message{
		method: spop.Text(method), path: spop.Text(path), query: spop.Text(query), version: spop.Text(strings.TrimPrefix(version, "HTTP/")),
		headers: spop.Text(headers), body: spop.Text(body), src: spop.Text("192.0.2.1"),
	}
}

// The Core Rule Set's own tests about requests pass, except for those that are listed with this test. A listed
// test that passes is an error too. With the race detector, which makes an inspection several times as slow,
// only every eighth file is tested: the other files run the same code.
func TestCoreRuleSet(t *testing.T) {
	t.Parallel()
	p := policy.Policy{Paranoia: 4, Threshold: policy.MaxThreshold}
	engine, err := ruleSets[0].engine(p)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(tests.FS, "REQUEST-9*/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatal(len(files), err)
	}
	var lock sync.Mutex
	var failed []string
	tested := map[string]bool{}
	var work sync.WaitGroup
	next := make(chan string)
	for range 2 {
		work.Go(func() {
			for file := range next {
				text, err := fs.ReadFile(tests.FS, file)
				var set ruleTests
				if err == nil {
					err = yaml.Unmarshal(text, &set)
				}
				if err != nil {
					t.Error(file, err)
					continue
				}
				for _, test := range set.Tests {
					good := true
					for _, stage := range test.Stages {
						good = good && stage.passes(engine, p)
					}
					name := fmt.Sprintf("%d-%d", set.RuleID, test.ID)
					lock.Lock()
					tested[name] = true
					if !good {
						failed = append(failed, name)
					}
					lock.Unlock()
				}
			}
		})
	}
	for i, file := range files {
		if !race.Enabled || i%8 == 0 {
			next <- file
		}
	}
	close(next)
	work.Wait()
	slices.Sort(failed)
	const list = "testdata/coreruleset-failures.txt"
	text := fmt.Sprintf("# Of %d tests of the Core Rule Set %s about requests, these %d fail here.\n%s\n", len(tested), policy.RulesVersion, len(failed), strings.Join(failed, "\n"))
	if *update && !race.Enabled {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if !race.Enabled && string(listed) != text {
		t.Errorf("other tests fail than those listed in %s:\n%s", list, text)
	}
	want := slices.DeleteFunc(strings.Fields(string(listed)), func(name string) bool { return !tested[name] })
	if len(tested) < 200 || !slices.Equal(want, failed) {
		t.Errorf("of %d tests %v fail, and %v are listed in %s", len(tested), failed, want, list)
	}
}
