package routingtest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quic-go/quic-go/http3"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
)

// speaksQUIC reports whether HAProxy was built with QUIC. The one of `make haproxy-3.0` was, that of Debian
// (2.6) was not.
func speaksQUIC(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command(haproxy(), "-vv").Output()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(out, []byte(" +QUIC "))
}

// http3 sends a request over HTTP/3, with host as :authority and as SNI.
func (e edge) http3(t *testing.T, method, host, target, body string) (*http.Response, string) {
	t.Helper()
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host}}
	defer transport.Close()
	client := http.Client{
		Transport: transport, Timeout: deadline,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+e.https+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s of %s over HTTP/3: %v", method, target, host, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// If HAProxy has QUIC, HTTP/3 is served like any other HTTPS. Otherwise the compiler reports the setting.
func TestHTTP3(t *testing.T) {
	t.Parallel()
	if !speaksQUIC(t) {
		refusesHTTP3(t)
		return
	}
	ca := newAuthority(t, "ca")
	i := optioned("a", "ssl-redirect", "true")
	i.rules, i.tls = []string{"shop.example P / mirror"}, []string{"web shop.example"}
	objects := serviceYAML("shop", "mirror", mirror(t, "mirror", nil)) + ca.secret(t, "", "web", "shop.example") +
		ca.secret(t, "", "standard", "standard.example") + i.yaml()
	e := startWith(t, objects, func(cfg *config.Config) {
		cfg.HTTPS.HTTP3.Enabled, cfg.HTTPS.DefaultCertificate = true, "shop/standard"
	})
	clean(t, e)

	response, body := e.http3(t, "GET", "shop.example", "/x?y", "")
	var got seen
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %s %s", err, response.Status, body)
	}
	if response.Proto != "HTTP/3.0" || got.Target != "/x?y" || got.Host != "shop.example" {
		t.Errorf("%s, %+v", response.Proto, got)
	}
	if got.Header.Get("X-Forwarded-Proto") != "https" || got.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("forwarded as %v", got.Header)
	}
	for host, want := range map[string]string{"shop.example": "web", "other.example": "standard"} {
		response, _ := e.http3(t, "POST", host, "/", strings.Repeat("x", 100_000))
		if name := response.TLS.PeerCertificates[0].Subject.CommonName; name != want {
			t.Errorf("%s: certificate of %s, want %s", host, name, want)
		}
	}
}

// A host with ssl-passthrough is not served over HTTP/3, which would end TLS in HAProxy.
func TestHTTP3AndPassthrough(t *testing.T) {
	t.Parallel()
	if !speaksQUIC(t) {
		refusesHTTP3(t)
		return
	}
	inside, _ := ownTLS(t, "inside", "pass.example")
	objects := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "inside", inside) + all([]ingress{
		passed("pass", "pass.example P / inside"), passed("wild", "*.wild.example P / inside"),
		{name: "ended", rules: []string{"ended.example P / a", "a.wild.example P / a"}},
	})
	e := startWith(t, objects, func(cfg *config.Config) { cfg.HTTPS.HTTP3.Enabled = true })
	clean(t, e)
	for host, want := range map[string]int{"pass.example": 421, "b.wild.example": 421, "a.wild.example": 200, "ended.example": 200} {
		if response, body := e.http3(t, "GET", host, "/", ""); response.StatusCode != want {
			t.Errorf("%s over HTTP/3: %s %s, want %d", host, response.Status, body, want)
		}
	}
	if got, _ := e.visit(t, "127.0.0.7", "pass.example", nil, nil); got != "inside" {
		t.Errorf("over TCP: %s", got)
	}
}

// refusesHTTP3 checks that the compiler reports a HAProxy without QUIC.
func refusesHTTP3(t *testing.T) {
	t.Helper()
	check, err := validate.Find(t.Context(), haproxy())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.HTTPS.HTTP3.Enabled = true
	faults, err := check.Settings(t.Context(), cfg)
	if err != nil || len(faults) != 1 || strings.Join(faults[0].Path, ".") != "https.http3.enabled" || !strings.Contains(faults[0].Message, "built without QUIC") {
		t.Errorf("%v, %v", err, faults)
	}
}

// Answers over HTTPS advertise HTTP/3, answers over HTTP do not.
func TestHTTP3IsAdvertised(t *testing.T) {
	t.Parallel()
	if !speaksQUIC(t) {
		refusesHTTP3(t)
		return
	}
	i := ingress{rules: []string{"shop.example P / a"}}
	for _, advertised := range []int{0, 443} {
		e := startWith(t, common(t)+i.yaml(), func(cfg *config.Config) {
			cfg.HTTPS.HTTP3 = config.HTTP3{Enabled: true, AdvertisedPort: advertised}
		})
		_, port, err := net.SplitHostPort(e.https)
		if err != nil {
			t.Fatal(err)
		}
		if advertised != 0 {
			port = fmt.Sprint(advertised)
		}
		want := fmt.Sprintf(`h3=":%s"; ma=900`, port)
		for _, path := range []string{"shop.example", "other.example"} {
			if got := e.getTLS(t, path, "/").Header.Get("Alt-Svc"); got != want {
				t.Errorf("%s: Alt-Svc: %s, want %s", path, got, want)
			}
		}
		if got := e.get(t, "shop.example", "/").Header.Get("Alt-Svc"); got != "" {
			t.Errorf("Alt-Svc over HTTP: %s", got)
		}
	}
}

// HAProxy listens for QUIC on every form of address without a warning.
func TestHTTP3OnEveryAddress(t *testing.T) {
	t.Parallel()
	if !speaksQUIC(t) {
		refusesHTTP3(t)
		return
	}
	cfg := config.Default()
	cfg.HTTPS.HTTP3.Enabled = true
	cfg.Bind.Addresses = []string{"*", "::", "::1", "10.0.0.1", "${POD_IP}"}
	result, _ := compile(t, common(t), cfg)
	if len(result.Diagnostics) > 0 {
		t.Error(result.Diagnostics)
	}
	var got strings.Builder
	for line := range strings.Lines(string(snapshots.Snapshot{Files: result.Draft.Files}.Config())) {
		if strings.Contains(line, "quic") || strings.Contains(line, "Alt-Svc") {
			got.WriteString(line)
		}
	}
	want := `    limited-quic
    bind quic4@*:443 ssl crt-list files/https.crtlist alpn h3
    bind quic6@[::]:443 v6only ssl crt-list files/https.crtlist alpn h3
    bind quic6@[::1]:443 ssl crt-list files/https.crtlist alpn h3
    bind quic4@10.0.0.1:443 ssl crt-list files/https.crtlist alpn h3
    bind "quic4@${POD_IP}:443" ssl crt-list files/https.crtlist alpn h3
    http-after-response set-header Alt-Svc 'h3=":443"; ma=900'
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}
