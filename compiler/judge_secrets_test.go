package compiler_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
)

// guess is the value that somebody without a right to read Secrets looks for.
const guess = "correct-horse-battery-staple-4711"

// secretOf is a manifest of a Secret.
func secretOf(namespace, name string, data ...string) string {
	out := fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: %s, name: %s}\ndata:\n", namespace, name)
	for i := 0; i < len(data); i += 2 {
		out += fmt.Sprintf("  %s: %s\n", data[i], base64.StdEncoding.EncodeToString([]byte(data[i+1])))
	}
	return out
}

// worldsOfSecrets differ in Secrets and in nothing else.
func worldsOfSecrets(t *testing.T) map[string]string {
	t.Helper()
	sound := newEdge(t, config.Certificates{}).secret
	return map[string]string{
		"none": "",
		"the guessed value": secretOf("shop", "dbpass", "auth", guess) + secretOf("other", "key", "token", guess) +
			secretOf("shop", "ca", "ca.crt", "no certificate") + "---\n" + sound,
		"other values": secretOf("shop", "dbpass", "auth", "admin:$2y$05$abcdefghijklmnopqrstuv") + secretOf("other", "key", "token", "something-else-entirely") +
			secretOf("shop", "web-tls", "tls.crt", "x", "tls.key", "y") + secretOf("shop", "unused", "password", "http-request-deny-4711"),
	}
}

// questions are Ingresses whose authors look for Secrets.
func questions() []string {
	var out []string
	for _, annotations := range []string{
		"",
		`hapsnap.dev/auth-basic: dbpass`,
		`hapsnap.dev/auth-basic: dbpass, hapsnap.dev/request-headers: "set X-Guess ` + guess + `"`,
		`hapsnap.dev/auth-basic: gone, hapsnap.dev/request-headers: "set X-Guess ` + base64.StdEncoding.EncodeToString([]byte(guess)) + `"`,
		`hapsnap.dev/auth-basic: dbpass, hapsnap.dev/auth-realm: ` + guess,
		`hapsnap.dev/client-ca-secret: ca`,
		`hapsnap.dev/client-ca-secret: web-tls`,
		`hapsnap.dev/client-ca-secret: gone`,
		`hapsnap.dev/backend-protocol: h1-tls, hapsnap.dev/backend-ca-secret: ca, hapsnap.dev/backend-client-secret: web-tls`,
		`hapsnap.dev/backend-protocol: h1-tls, hapsnap.dev/backend-ca-secret: gone`,
		`hapsnap.dev/snippet: "http-request set-header X-Guess ` + guess + `"`,
		`hapsnap.dev/snippet: "http-request frobnicate ` + guess + `"`,
		`hapsnap.dev/rate-limit: ` + guess,
		`hapsnap.dev/redirect: "https://` + guess + `.example"`,
	} {
		for _, tls := range []string{"", "web-tls", "gone", "dbpass"} {
			host := fmt.Sprintf("asks-%d.example", len(out))
			text := reviewed(fmt.Sprint("asks-", len(out)), host, annotations)
			if tls != "" {
				text += "  tls: [{hosts: [" + host + "], secretName: " + tls + "}]\n"
			}
			out = append(out, text)
			if annotations != "" && tls == "gone" {
				break
			}
		}
	}
	return out
}

// In worlds that differ only in Secrets, what they hold, whether they are there and whether
// they can be used, all answers are the same: who asks may have no right to know.
func TestReviewsTellNothingOfSecrets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string][]string{}
	for name, secrets := range worldsOfSecrets(t) {
		_, judge := judging(t, map[string]string{"web.yaml": manifest("web", "5s") + secrets}, func(o *compiler.Options) {
			o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
		})
		all.Go(func() {
			var asked []*networkingv1.Ingress
			for _, q := range questions() {
				asked = append(asked, ingressFrom(t, q))
			}
			said := atOnce(t, judge, asked)
			for _, spec := range []string{"spec: {https: {defaultCertificate: shop/web-tls}}\n", "spec: {https: {defaultCertificate: shop/gone}}\n", "spec: {tls: {ciphers: [" + guess + "]}}\n"} {
				v, err := judge.Configuration(t.Context(), []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\n"+spec))
				said = append(said, fmt.Sprintf("%q %q %v", texts(v.Faults), texts(v.Warnings), err))
			}
			mu.Lock()
			defer mu.Unlock()
			answers[name] = said
		})
	}
	all.Wait()
	asked := questions()
	for name, said := range answers {
		for i, answer := range said {
			if i < len(asked) && answer != answers["none"][i] {
				t.Errorf("with Secrets %q it is said:\n%s\nand without any:\n%s\nof\n%s", name, answer, answers["none"][i], asked[i])
			}
			if i >= len(asked) && answer != answers["none"][i] {
				t.Errorf("of a configuration, with Secrets %q it is said:\n%s\nand without any:\n%s", name, answer, answers["none"][i])
			}
		}
	}
	for i, answer := range answers["none"] {
		if i < len(asked) && strings.Contains(asked[i], "auth-basic: dbpass") != strings.Contains(answer, "whether Secret shop/dbpass exists") {
			t.Errorf("of\n%s\nit is said: %s", asked[i], answer)
		}
	}
}

// Names of other namespaces, of their objects and of their files, are not in an answer.
func TestReviewsNameNothingOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	theirs := strings.ReplaceAll(manifest("hidden", "5s"), "namespace: shop", "namespace: bank")
	_, judge := judging(t, map[string]string{"web.yaml": manifest("web", "5s"), "vault.yaml": theirs})
	for _, c := range []struct{ name, ingress, want string }{
		{"who has a path", reviewed("zz", "hidden.example", ""), "of another namespace"},
		{"who would lose a path", strings.Replace(reviewed("aa", "hidden.example", ""), "namespace: shop", "namespace: alpha", 1), "of another namespace"},
		{"who has a host's certificate", reviewed("zz", "hidden.example", "") + "  tls: [{hosts: [hidden.example], secretName: x}]\n", "of another namespace"},
		{"whether a Service is there", reviewed("zz", "z.example", `hapsnap.dev/auth-url: "http://hidden.bank/"`), "of another namespace"},
		{"whether a list is there", reviewed("zz", "z.example", `hapsnap.dev/allow-list: "@bank/hidden/x"`), "of another namespace"},
		{"whose canary it would be", reviewed("zz", "hidden.example", `hapsnap.dev/canary: "true", hapsnap.dev/canary-weight: "1"`), "of another namespace"},
	} {
		answer := said(t, judge, ingressFrom(t, c.ingress))
		for _, secret := range []string{"bank/hidden", "Ingress bank", "vault", "namespace bank"} {
			if strings.Contains(answer, secret) && !strings.Contains(c.ingress, secret) {
				t.Errorf("%s: %q is in the answer: %s", c.name, secret, answer)
			}
		}
		if !strings.Contains(answer, c.want) {
			t.Errorf("%s: %q is not in the answer: %s", c.name, c.want, answer)
		}
	}
}
