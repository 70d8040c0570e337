package runtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// madeSecret returns a Secret that the programs fill.
func (r *release) madeSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	if err := r.server.Client().Get(t.Context(), client.ObjectKey{Namespace: r.namespace, Name: charttest.Release + "-hapsnap-" + name}, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// dial returns the serial number of a server's certificate. It must be for a Service of the release, and signed
// by these authorities.
func (r *release) dial(t *testing.T, address, service string, authorities []byte) (serial string, err error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: fmt.Sprintf("%s-hapsnap-%s.%s.svc", charttest.Release, service, r.namespace)}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// webhookIsTrusted waits until each compiler serves a certificate that the API server trusts.
func (r *release) webhookIsTrusted(t *testing.T) {
	t.Helper()
	var refused error
	eventually.Holds(t, "the API server trusts the webhook", func() bool {
		var c admissionregistrationv1.ValidatingWebhookConfiguration
		if err := r.server.Client().Get(t.Context(), client.ObjectKey{Name: r.namespace + "-" + charttest.Release + "-hapsnap"}, &c); err != nil {
			t.Fatal(err)
		}
		pods := r.pods(t, "compiler")
		for _, pod := range pods {
			for _, w := range c.Webhooks {
				if _, refused = r.dial(t, pod.Status.PodIP+":9443", "compiler", w.ClientConfig.CABundle); refused != nil {
					return false
				}
			}
		}
		return len(pods) == 2
	})
}

// renewCredentials has the password and the certificate of the Dataplane API renewed during publishing and
// load. No request fails, and no snapshot is refused. A push fails only at the moment when an API restarts.
func (r *release) renewCredentials(t *testing.T, port string) {
	t.Helper()
	began := time.Now()
	load := r.load(t, "shop.example")
	leader := r.leader(t, "pusher")
	before := r.metrics(t, leader, "hapsnap_pusher_pushes_total{") // a push to a broken pod may have failed before
	publish := func(name string) {
		t.Helper()
		r.server.Apply(t, tenant(name, port))
		r.served(t, name+".example")
	}
	user, certificate := r.madeSecret(t, "dataplane"), r.madeSecret(t, "dataplane-certificate")
	for _, s := range []*corev1.Secret{user, certificate} {
		patch := client.MergeFrom(s.DeepCopy())
		s.Annotations[credentials.RenewAnnotation] = "asked for"
		if err := r.server.Client().Patch(t.Context(), s, patch); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Holds(t, "the next ones are made", func() bool {
		return len(r.madeSecret(t, "dataplane").Data["next-password"]) > 0 && len(r.madeSecret(t, "dataplane-certificate").Data["next.crt"]) > 0
	})
	publish("renewing")
	both := r.madeSecret(t, "dataplane").Data
	takes := func(username, password []byte) bool { return r.accepts(t, string(username), string(password)) }
	eventually.Holds(t, "the Dataplane APIs take both", func() bool {
		return takes(user.Data["username"], user.Data["password"]) && takes(both["next-username"], both["next-password"])
	})
	r.anHourLater(t)
	if s := r.madeSecret(t, "dataplane"); !bytes.Equal(s.Data["password"], both["next-password"]) || s.Annotations[credentials.RenewAnnotation] != "" {
		t.Error("the next password is not used")
	}
	publish("renewing2")
	eventually.Holds(t, "the Dataplane APIs have the new ones only", func() bool {
		s, now := r.madeSecret(t, "dataplane-certificate"), r.madeSecret(t, "dataplane").Data
		for _, pod := range r.pods(t, "haproxy") {
			serial, err := r.dial(t, pod.Status.PodIP+":5555", "haproxy", s.Data[credentials.CAKey])
			if err != nil || serial == serialOf(t, certificate.Data[corev1.TLSCertKey]) {
				return false
			}
		}
		return takes(now["username"], now["password"]) && !takes(user.Data["username"], user.Data["password"])
	})
	publish("renewed3")
	unharmed(t, load)
	for _, line := range r.metrics(t, leader, "hapsnap_pusher_pushes_total{") {
		if strings.Contains(line, `result="refused"`) && !slices.Contains(before, line) {
			t.Errorf("%s, before: %q", line, before)
		}
	}
	for _, line := range r.logged(leader, "push failed") {
		if at, err := time.Parse(`{"time":"2006-01-02T15:04:05.999999999Z"`, strings.SplitN(line, ",", 2)[0]); err != nil || at.After(began) && !interrupted.MatchString(line) {
			t.Error(err, line)
		}
	}
}

// interrupted matches the failure of a push that meets a restarting Dataplane API. The pusher repeats such a
// push.
var interrupted = regexp.MustCompile(`: (unreachable|api unavailable): .*(connection refused|connection reset|EOF)|: unknown outcome: `)

// logged returns the lines of a pusher's log that contain a text.
func (r *release) logged(pod corev1.Pod, text string) (lines []string) {
	for line := range strings.Lines(r.kubelet.Log(pod, "pusher")) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// anHourLater makes the change that the pusher would make after an hour.
func (r *release) anHourLater(t *testing.T) {
	t.Helper()
	c, err := kubernetes.NewForConfig(r.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	name := charttest.Release + "-hapsnap-"
	maker := credentials.New(credentials.Options{
		Namespace: r.namespace, Secrets: c.CoreV1().Secrets(r.namespace), Log: slog.New(slog.DiscardHandler),
		Wanted: func(context.Context) ([]credentials.Wanted, error) {
			return []credentials.Wanted{
				{Secret: name + "dataplane", Password: &credentials.Password{UsernameKey: "username", PasswordKey: "password"}},
				{Secret: name + "dataplane-certificate", Certificate: &credentials.Certificate{DNSNames: []string{fmt.Sprintf("%shaproxy.%s.svc", name, r.namespace)}}},
			}, nil
		},
	})
	if err := maker.Once(t.Context(), time.Now().Add(time.Hour+time.Second)); err != nil {
		t.Fatal(err)
	}
}

// serialOf returns the serial number of a certificate in PEM.
func serialOf(t *testing.T, certificate []byte) string {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatalf("no certificate: %s", certificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c.SerialNumber.String()
}

// metrics returns the lines of a pod's metrics with a prefix.
func (r *release) metrics(t *testing.T, pod corev1.Pod, prefix string) (lines []string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+pod.Status.PodIP+":8080/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		t.Errorf("there are no metrics %s", prefix)
	}
	return lines
}
