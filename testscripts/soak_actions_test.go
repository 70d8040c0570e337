package testscripts

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// soakActions are the random actions by name. Each returns what it did.
func soakActions() map[string]func(*soak) string {
	return map[string]func(*soak) string{
		"endpoints":       (*soak).changeEndpoints,
		"more endpoints":  (*soak).changeEndpoints, // twice as often
		"publish":         (*soak).change,
		"fail":            (*soak).fail,
		"pin":             (*soak).pin,
		"unpin":           func(s *soak) string { return s.say("unpin") },
		"certificate":     func(s *soak) string { s.renew(); return "renewed" },
		"kill pusher":     func(s *soak) string { return s.kill("pusher") },
		"kill compiler":   func(s *soak) string { return s.kill("compiler") },
		"restart haproxy": (*soak).restart,
		"restart api":     (*soak).restartAPI,
		"fault":           (*soak).inject,
		"more faults":     (*soak).inject,
	}
}

func (s *soak) anInstance() *instance { return s.w.instances[s.random.IntN(len(s.w.instances))] }

// changeEndpoints gives a Service other pods. The others continue until no instance uses them, see retire.
func (s *soak) changeEndpoints() string {
	service := []string{"web", "api"}[s.random.IntN(2)]
	// Half of the pods belong to each Service. Otherwise one Service could answer for the other.
	first := map[string]int{"web": 0, "api": soakPods / 2}[service]
	chosen := s.random.Perm(soakPods / 2)[:1+s.random.IntN(6)]
	for n := range chosen {
		chosen[n] += first
	}
	s.serve(service, chosen...)
	return fmt.Sprint(service, " ", chosen)
}

// change publishes something new and valid.
func (s *soak) change() string {
	s.version++
	s.publish()
	return fmt.Sprintf("version %d", s.version)
}

// fail publishes a snapshot whose reload fails on the first instance that gets it. A port in use would have the
// same effect, but HAProxy stops listening on all others while it tries to bind it.
func (s *soak) fail() string {
	for _, i := range s.w.instances {
		i.Inject(dataplanetest.FailReload("cannot bind socket").On(http.MethodPost, "/configuration/raw").Times(1))
	}
	return s.change()
}

func (s *soak) pin() string {
	if len(s.ran) == 0 {
		return "nothing to be pinned"
	}
	last := s.ran[max(0, len(s.ran)-4):]
	return s.say("pin", last[s.random.IntN(len(last))].String())
}

// renew makes a new certificate.
func (s *soak) renew() {
	s.t.Helper()
	made, err := newKeyPair([]string{"shop.example.com"})
	s.check(err)
	s.w.certificates["shop/web-tls"] = made.certificate
	text, err := secretManifest("shop", "web-tls", made)
	s.check(err)
	s.check(replaceFile(filepath.Join(s.w.dir, "manifests", "tls.yaml"), text))
}

func (s *soak) kill(name string) string {
	p := s.w.programs[name]
	select {
	case <-p.ended:
		s.t.Fatalf("%s ended by itself: %s%s", name, p.cmd.ProcessState, s.w.logs())
	default:
	}
	p.kill()
	s.start(name)
	return "and started"
}

// restart kills a HAProxy and starts it with the file on its disk. Until it answers, its failures are excused.
func (s *soak) restart() string {
	i := s.anInstance()
	ended := s.load.excuse(i.name)
	i.KillHAProxy()
	s.check(poll(soakPatience, i.StartHAProxy))
	s.check(poll(soakPatience, func() error {
		got, err := s.w.get(i, "http://shop.example.com/")
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("status %d", got.status)
		}
		return err
	}))
	ended()
	return i.name
}

func (s *soak) restartAPI() string {
	i := s.anInstance()
	s.check(i.Restart())
	return i.name
}

// inject makes a few calls of an API fail.
func (s *soak) inject() string {
	faults := []struct {
		name, method, path string
		fault              dataplanetest.Fault
	}{
		{"500", "", "", dataplanetest.Answer(500)},
		{"503 on writes", http.MethodPost, "", dataplanetest.Answer(503)},
		{"conflict", http.MethodPost, "/configuration/raw", dataplanetest.Answer(409)},
		{"too many", http.MethodPost, "/configuration/raw", dataplanetest.Answer(429)},
		{"slow", "", "", dataplanetest.Slow(time.Duration(s.random.IntN(800)) * time.Millisecond)},
		{"cut before", "", "", dataplanetest.CutBefore()},
		{"cut after a post", http.MethodPost, "", dataplanetest.CutAfter()},
		{"cut after a change", http.MethodPut, "", dataplanetest.CutAfter()},
		{"disk full", http.MethodPost, "", dataplanetest.DiskFull()},
		{"no master socket", "", "", dataplanetest.MasterSocketGone()},
		{"certificates to disk only", http.MethodPut, "/storage/ssl_certificates", dataplanetest.CertificateReload()},
		{"reload fails", http.MethodPost, "/configuration/raw", dataplanetest.FailReload("cannot bind socket")},
	}
	f, i := faults[s.random.IntN(len(faults))], s.anInstance()
	times := 1 + s.random.IntN(4)
	i.Inject(f.fault.On(f.method, f.path).Times(times))
	return fmt.Sprintf("%s: %s, %d times", i.name, f.name, times)
}

// publish writes the manifests for a snapshot.
func (s *soak) publish() {
	s.t.Helper()
	rule := func(host, service string) string {
		return fmt.Sprintf("  - host: %s\n    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %s, port: {name: http}}}}]}\n", host, service)
	}
	ingress := "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: web}\nspec:\n  ingressClassName: hapsnap\n" +
		"  tls: [{hosts: [shop.example.com], secretName: web-tls}]\n  rules:\n" +
		rule("shop.example.com", "web") + rule("api.example.com", "api") + rule(versionHost(s.version), "web")
	s.check(replaceFile(filepath.Join(s.w.dir, "manifests", "ingress.yaml"), []byte(ingress)))
}

func versionHost(n int) string { return fmt.Sprintf("v%d.example.com", n) }

// addresses returns the addresses of the pods of a Service, in order.
func (s *soak) addresses(service string) []string {
	var out []string
	for _, n := range s.endpoints[service] {
		address, _, _ := strings.Cut(s.pods[n].address, ":")
		out = append(out, address)
	}
	slices.Sort(out)
	return out
}

// serve starts these pods and gives them to a Service.
func (s *soak) serve(name string, pods ...int) {
	s.t.Helper()
	s.endpoints[name] = pods
	endpoints := ""
	for _, n := range pods {
		s.check(s.pods[n].start())
	}
	for _, address := range s.addresses(name) {
		endpoints += "\n- addresses: [" + address + "]"
	}
	text := fmt.Appendf(nil, service, "shop", name, s.w.network.Port, endpoints, "http", "")
	s.check(replaceFile(filepath.Join(s.w.dir, "manifests", name+".yaml"), text))
}

// retire ends the pods that no instance uses any more, as a kubelet would. An instance uses the file on its
// disk after a restart, and that follows the worker after some seconds.
func (s *soak) retire() {
	s.t.Helper()
	for n, p := range s.pods {
		if !slices.Contains(s.endpoints["web"], n) && !slices.Contains(s.endpoints["api"], n) &&
			!slices.ContainsFunc(s.w.instances, func(i *instance) bool { return onDisk(i, p.address) }) {
			s.check(p.stop())
		}
	}
}

// onDisk reports whether the file on an instance's disk has a server at an address.
func onDisk(i *instance, address string) bool {
	text, err := i.Config()
	return err != nil || strings.Contains(text, " "+address+" ") || strings.Contains(text, " "+address+"\n")
}

func (s *soak) endPods() {
	for _, p := range s.pods {
		_ = p.stop()
	}
}
