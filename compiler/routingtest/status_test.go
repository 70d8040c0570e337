package routingtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// watched is a HAProxy with a status listener and a socket for operators.
type watched struct {
	status, socket string
}

// watch compiles the manifests and runs the result. The status listener has an address of its own.
func watch(t *testing.T, yaml string, edit func(*config.Status)) watched {
	t.Helper()
	return watchEdited(t, func(cfg *config.Config) string {
		edit(&cfg.Status)
		return yaml
	})
}

// watchEdited is watch for manifests that depend on the configuration.
func watchEdited(t *testing.T, edit func(*config.Config) (yaml string)) watched {
	t.Helper()
	cfg := config.Default()
	clients, watchers := ownAddress(), ownAddress()
	cfg.Bind.Addresses, cfg.Status.Addresses = []string{clients}, []string{watchers}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port = freePort(t, clients), 0, freePort(t, watchers)
	cfg.MaxConn = 100
	yaml := edit(&cfg)
	result, objects := compile(t, yaml, cfg)
	clean(t, edge{result: result})
	dir := t.TempDir()
	bound := bindDraft(t, dir, result.Draft, objects)
	w := watched{status: fmt.Sprint(watchers, ":", cfg.Status.Port), socket: filepath.Join(dir, "s")}
	bound.Config = bytes.Replace(bound.Config, []byte("global\n"), []byte("global\n    stats socket "+w.socket+" level admin\n"), 1)
	write(t, dir, bound)
	run(t, dir)
	if c, err := net.Dial("tcp", fmt.Sprint(clients, ":", cfg.Status.Port)); err == nil {
		c.Close()
		t.Error("the status listener is where clients are")
	}
	return w
}

// page requests a page of the status listener.
func (w watched) page(t *testing.T, path string) (status int, contentType, body string) {
	t.Helper()
	client := http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + w.status + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(text)
}

// becomes waits until /ready answers with this status and body.
func (w watched) becomes(t *testing.T, status int, body string) {
	t.Helper()
	await(t, func() error {
		if got, _, text := w.page(t, "/ready"); got != status || text != body {
			return fmt.Errorf("/ready: %d %q, want %d %q", got, text, status, body)
		}
		return nil
	})
}

// command sends a command to the socket.
func (w watched) command(t *testing.T, command string) {
	t.Helper()
	var c net.Conn
	await(t, func() (err error) { // the socket may open after the ports
		c, err = net.Dial("unix", w.socket)
		return err
	})
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, command+"\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || strings.TrimSpace(string(answer)) != "" {
		t.Fatalf("%s: %s %v", command, answer, err)
	}
}

func TestStatusPages(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", echo(t, "a")) + all([]ingress{{name: "a", rules: []string{"a.example P / a"}}})
	const (
		exporter = "haproxy_backend_status{proxy=\"shop_a_80\""
		page     = "Statistics Report for HAProxy"
	)
	for name, c := range map[string]struct {
		edit    func(*config.Status)
		metrics string // the path that serves them
		stats   string
		absent  []string
	}{
		"by default": {func(*config.Status) {}, "/metrics", "", []string{"/stats", "/", "/metrics/x", "/ready/x"}},
		"all elsewhere": {func(s *config.Status) {
			s.Prometheus.Path = "/haproxy/metrics"
			s.Stats = config.StatusPage{Enabled: true, Path: "/haproxy/stats"}
		}, "/haproxy/metrics", "/haproxy/stats", []string{"/metrics", "/stats"}},
		"none": {func(s *config.Status) { s.Prometheus.Enabled = false }, "", "", []string{"/metrics", "/stats"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, yaml, c.edit)
			for _, path := range []string{"/healthz", "/ready"} {
				if status, _, _ := w.page(t, path); status != 200 {
					t.Errorf("%s: %d", path, status)
				}
			}
			for path, want := range map[string]string{c.metrics: exporter, c.stats: page} {
				if path == "" {
					continue
				}
				if status, _, body := w.page(t, path); status != 200 || !strings.Contains(body, want) {
					t.Errorf("%s: %d without %q", path, status, want)
				}
			}
			for _, path := range c.absent {
				if status, _, _ := w.page(t, path); status != 404 {
					t.Errorf("%s: %d, want 404", path, status)
				}
			}
		})
	}
}

// The statistics page cannot be used to change a server.
func TestStatisticsChangeNothing(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", echo(t, "a")) + all([]ingress{{name: "a", rules: []string{"a.example P / a"}}})
	w := watch(t, yaml, func(s *config.Status) { s.Stats.Enabled = true })
	form := strings.NewReader("s=instance&action=drain&b=%232")
	client := http.Client{Timeout: deadline, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Post("http://"+w.status+"/stats", "application/x-www-form-urlencoded", form)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("Location"); !strings.Contains(got, "DENY") {
		t.Errorf("answered %d, Location %q", response.StatusCode, got)
	}
	w.becomes(t, 200, "ready")
}

// An operator drains the instance and takes it back, whatever other conditions /ready has.
func TestReadyFailsWhileDraining(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", echo(t, "a")) + all([]ingress{{name: "a", rules: []string{"a.example P / a"}}})
	for name, percent := range map[string]int{"alone": 0, "with a share of backends": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, yaml, func(s *config.Status) { s.Ready.MinBackendsPercent = percent })
			w.becomes(t, 200, "ready")
			for _, state := range []string{"drain", "maint"} {
				w.command(t, "set server hapsnap_ready/instance state "+state)
				if status, _, body := w.page(t, "/ready"); status != 503 || body != "draining" {
					t.Errorf("in %s: %d %q", state, status, body)
				}
				if status, _, _ := w.page(t, "/healthz"); status != 200 {
					t.Errorf("/healthz in %s: %d", state, status)
				}
				w.command(t, "set server hapsnap_ready/instance state ready")
				w.becomes(t, 200, "ready")
			}
		})
	}
}

// At first, four of the five backends that count have a usable server: "empty" has no endpoint. Then the server
// of "d" is taken out while HAProxy runs.
func TestReadyCountsBackends(t *testing.T) {
	t.Parallel()
	yaml := common(t) + all([]ingress{{name: "a", rules: []string{
		"a.example P / a", "b.example P / b", "c.example P / c", "d.example P / d", "e.example P / empty",
	}}})
	const few = "too few backends have a usable server"
	for percent, want := range map[int]int{60: 200, 61: 503, 100: 503} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			t.Parallel()
			w := watch(t, yaml, func(s *config.Status) { s.Ready.MinBackendsPercent = percent })
			if want == 200 {
				w.becomes(t, 200, "ready")
			}
			w.command(t, "set server shop_d_80/s1 state maint")
			body := map[int]string{200: "ready", 503: few}[want]
			w.becomes(t, want, body)
			if want == 200 {
				w.command(t, "set server shop_c_80/s1 state drain")
				w.becomes(t, 503, few)
				w.command(t, "set server shop_c_80/s1 state ready")
				w.becomes(t, 200, "ready")
			}
		})
	}
}

// The backends of TCP services and of ssl-passthrough count like those of requests. Those with an external name
// do not: HAProxy resolves it again after each reload, and a reload must not make an instance unready.
func TestReadyCountsConnections(t *testing.T) {
	t.Parallel()
	inside, _ := ownTLS(t, "inside", "pass.example")
	dns := newNameserver(t)
	const few = "too few backends have a usable server"
	w := watchEdited(t, func(cfg *config.Config) string {
		cfg.HTTPS.Port = freePort(t, cfg.Bind.Addresses[0])
		cfg.TCPServices = []config.TCPService{{Port: freePort(t, cfg.Bind.Addresses[0]), Service: "shop/db:80"}}
		cfg.DNS.Nameservers, cfg.DNS.Refresh = []string{dns.address}, "100ms"
		cfg.Status.Ready.MinBackendsPercent = 100
		return serviceYAML("shop", "db", echo(t, "db")) + serviceYAML("shop", "inside", inside) + passed("pass", "pass.example P / inside").yaml() +
			externalService("outside", "outside.partner.test", "", fmt.Sprint(echo(t, "outside")))
	})
	if status, _, body := w.page(t, "/ready"); status != 200 {
		t.Errorf("the first answer of a new worker: %d %q", status, body)
	}
	for _, server := range []string{"tcp_shop_db_80/s1", "tls_shop_inside_80.pass/s1", "shop_inside_80/s1"} {
		w.command(t, "set server "+server+" state maint")
		w.becomes(t, 503, few)
		w.command(t, "set server "+server+" state ready")
		w.becomes(t, 200, "ready")
	}
}

// One of the named Services has to have a usable server. "gone" has no backend, and does not count.
func TestReadyNeedsServices(t *testing.T) {
	t.Parallel()
	yaml := common(t) + all([]ingress{{name: "a", rules: []string{"a.example P / a", "b.example P / b", "c.example P / c", "e.example P / empty"}}})
	w := watch(t, yaml, func(s *config.Status) { s.Ready.Services = []string{"shop/a", "shop/b", "shop/empty", "shop/gone"} })
	if status, _, body := w.page(t, "/ready"); status != 200 { // each reload starts a new worker
		t.Errorf("the first answer of a new worker: %d %q", status, body)
	}
	w.command(t, "set server shop_a_80/s1 state maint")
	w.command(t, "set server shop_c_80/s1 state maint")
	w.becomes(t, 200, "ready")
	w.command(t, "set server shop_b_80/s1 state maint")
	w.becomes(t, 503, "no backend that is needed has a usable server")
	w.command(t, "set server shop_a_80/s1 state ready")
	w.becomes(t, 200, "ready")
	watch(t, yaml, func(s *config.Status) { s.Ready.Services = []string{"shop/gone"} }).becomes(t, 200, "ready")
}

// With too many requests in queues the instance is not ready. It is ready again when they are served.
func TestReadyFailsWithQueues(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := mirror(t, "slow", func(s *httptest.Server) {
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-release
			next.ServeHTTP(w, r)
		})
	})
	var clients string
	w := watchEdited(t, func(cfg *config.Config) string {
		clients = fmt.Sprint(cfg.Bind.Addresses[0], ":", cfg.HTTP.Port)
		cfg.Status.Ready.MaxQueued = 2
		limited := ingress{name: "slow", annotations: annotated("max-connections", "1", "timeout-queue", "1m"), rules: []string{"slow.example P / slow"}}
		return serviceYAML("shop", "slow", slow) + limited.yaml()
	})
	w.becomes(t, 200, "ready")
	ended := make(chan int, 5)
	ask := func() {
		request, _ := http.NewRequest(http.MethodGet, "http://"+clients+"/", nil)
		request.Host = "slow.example"
		client := http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err != nil {
			ended <- 0
			return
		}
		response.Body.Close()
		ended <- response.StatusCode
	}
	for range 5 { // one is with the server, four wait
		go ask()
	}
	w.becomes(t, 503, "too many requests wait")
	close(release)
	for range 5 {
		if status := <-ended; status != 200 {
			t.Errorf("a request that waited got %d", status)
		}
	}
	w.becomes(t, 200, "ready")
}

// If no backend counts, the instance is ready.
func TestReadyWithoutBackends(t *testing.T) {
	t.Parallel()
	yaml := "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: unused}\nspec: {ports: [{port: 80}]}\n"
	watch(t, yaml, func(s *config.Status) { s.Ready.MinBackendsPercent = 100 }).becomes(t, 200, "ready")
}

// The configuration before the first snapshot runs, and is not ready.
func TestBootstrapIsNotReady(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/bootstrap/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	ip := ownAddress()
	dir, address := t.TempDir(), fmt.Sprint(ip, ":", freePort(t, ip))
	for old, fresh := range map[string]string{"*:8404": address, "/run/haproxy/stats.sock": filepath.Join(dir, "s")} {
		if !bytes.Contains(text, []byte(old)) {
			t.Fatalf("%s is not there", old)
		}
		text = bytes.ReplaceAll(text, []byte(old), []byte(fresh))
	}
	if err := os.WriteFile(filepath.Join(dir, "haproxy.cfg"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir)
	w := watched{status: address}
	for path, want := range map[string]int{"/healthz": 200, "/ready": 503, "/": 503} {
		if status, _, _ := w.page(t, path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}
