package compiler_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/templates"
)

// hostile are texts with which a tenant may try to write a line, a word or an expression of their own.
var hostile = map[string]string{
	"newline": "\n", "line": "\n    server EVIL 10.0.0.66:80\n", "carriage return": "\r", "tab": "\t", "NUL": "\x00", "escape": "\x1b",
	"line separator": "\u2028", "next line": "\u0085", "byte order mark": "\ufeff", "no UTF-8": "\xff",
	"double quote": `"`, "single quote": "'", "closed quote": "' EVIL '", "backslash": `\`, "comment": "#", "spaced comment": " # ",
	"brace": "{", "condition": " if { always_true } ", "parenthesis": ")", "comma": ",", "variable": "$HOME", "format": "%[src]", "percent": "%",
	"64 KB": strings.Repeat("x", 64<<10), "options": " -- EVIL", "directive": "\n#hapsnap servers shop/EVIL\n",
}

// attacks returns values of an option with hostile text: alone, at both ends of its example, and inside it.
func attacks(o options.Option) []string {
	var out []string
	for _, name := range sortedKeys(hostile) {
		evil := "EVIL" + hostile[name] + "EVIL"
		middle := len(o.Example) / 2
		out = append(out, evil, hostile[name], o.Example+hostile[name], o.Example+evil, evil+o.Example, hostile[name]+o.Example,
			o.Example[:middle]+evil+o.Example[middle:], o.Example[:middle]+hostile[name]+o.Example[middle:],
			o.Example+" "+evil, o.Example+","+evil, o.Example+"\n"+evil, "set X-A "+evil, "/"+evil, "https://"+evil, "^/("+evil+") /\\1"+evil)
	}
	return out
}

// share is the fraction of attacks and changes that are tried, as 1/share. With the race detector they are ten
// times slower, and some of them are enough.
var share = map[bool]int{false: 1, true: 8}[race.Enabled]

// attempted returns the names of the hostile texts, or of a share of them.
func attempted() []string {
	var out []string
	for i, name := range sortedKeys(hostile) {
		if i%share == share-1 {
			out = append(out, name)
		}
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// No value of any option can write a line of its own, end a word, begin a comment or become an expression. It
// is refused, or it stays within one word. HAProxy accepts everything that is not refused.
func TestInjection(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, found := render.Parse(files)
	if len(found) > 0 {
		t.Fatal(found)
	}
	check := haproxy(t)
	for _, o := range options.All() {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			in := inputs.Inputs{
				Services:   []inputs.Object[corev1.Service]{service("main", 80), service("web", 80), service("auth", 8080)},
				ConfigMaps: []inputs.Object[corev1.ConfigMap]{networkLists()},
			}
			for i, value := range attacks(o) {
				if o.On == options.OnService {
					in.Services = append(in.Services, attackedService(i, o, value))
					continue
				}
				ing := attacked(i, o, value)
				in.Ingresses = append(in.Ingresses, ing)
				if options.IsCanary(ing.Value.Annotations) {
					in.Ingresses = append(in.Ingresses, sharedBy(ing))
				}
			}
			model, found := ingress.Translate(in, ingress.Config{
				HTTPSPort:      config.Default().HTTPS.Port,
				TCPAnnotations: config.TCPAnnotations{Ports: []string{"1-65535"}, Namespaces: config.Namespaces{"*"}},
			})
			artifact, faults := set.Render(render.Input{Model: model, Config: config.Default()})
			if len(faults) > 0 {
				t.Fatalf("refused only when it was written: %+v", faults[0])
			}
			refused := 0
			for _, d := range found {
				if d.Severity == diag.Error && strings.Contains(d.Message, options.Prefix+o.Name) {
					refused++
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
			for _, f := range artifact.Files {
				checkWords(t, f.Path, f.Content)
			}
			verdict, err := check.Check(t.Context(), validate.Input{Artifact: artifact})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range verdict.Faults {
				t.Errorf("HAProxy refuses %q: %s", f.Text, f.Message)
			}
		})
	}
}

func service(name string, port int32) inputs.Object[corev1.Service] {
	return inputs.Object[corev1.Service]{
		Ref:   diag.Object{Kind: "Service", Namespace: "shop", Name: name},
		Value: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}},
	}
}

// networkLists are the lists that examples name.
func networkLists() inputs.Object[corev1.ConfigMap] {
	return inputs.Object[corev1.ConfigMap]{
		Ref:   diag.Object{Kind: "ConfigMap", Namespace: "shop", Name: "networks"},
		Value: &corev1.ConfigMap{Data: map[string]string{"offices": "192.0.2.0/24"}},
	}
}

// attacked is an Ingress with a hostile value, and what the option needs.
func attacked(i int, o options.Option, value string) inputs.Object[networkingv1.Ingress] {
	class, prefix := ingress.DefaultIngressClass, networkingv1.PathTypePrefix
	ing := &networkingv1.Ingress{}
	ing.Annotations = map[string]string{}
	for _, other := range options.All() {
		if other.Name == o.Needs || (other.Name == "backend-protocol" && strings.HasPrefix(o.Name, "backend-")) {
			ing.Annotations[options.Prefix+other.Name] = other.Example
		}
	}
	if o.Name == "backend-ca-secret" {
		ing.Annotations[options.Prefix+"backend-sni"] = "web.internal"
	}
	if strings.HasPrefix(o.Name, "fcgi-") {
		ing.Annotations[options.Prefix+"backend-protocol"] = "fcgi"
	}
	ing.Annotations[options.Prefix+o.Name] = value
	ing.Spec.IngressClassName = &class
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	ing.Spec.Rules = []networkingv1.IngressRule{{
		Host: fmt.Sprintf("h%d.example.com", i),
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}},
		}},
	}}
	ref := diag.Object{Kind: "Ingress", Namespace: "shop", Name: fmt.Sprintf("attack-%d", i)}
	return inputs.Object[networkingv1.Ingress]{Ref: ref, Value: ing}
}

// attackedService is a Service with a hostile value. It has a port of its own if the option needs one.
func attackedService(i int, o options.Option, value string) inputs.Object[corev1.Service] {
	s := service("web", 80)
	s.Ref.Name = fmt.Sprintf("attack-%d", i)
	s.Value.Spec.Ports[0].Name = "postgres"
	s.Value.Annotations = map[string]string{options.Prefix + options.TCPPort: fmt.Sprint(10_000 + i)}
	s.Value.Annotations[options.Prefix+o.Name] = value
	return s
}

// sharedBy is the Ingress whose routes a canary shares. It has another Service.
func sharedBy(canary inputs.Object[networkingv1.Ingress]) inputs.Object[networkingv1.Ingress] {
	main := canary.Value.DeepCopy()
	main.Annotations = nil
	main.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "main"
	ref := canary.Ref
	ref.Name = "main-" + ref.Name
	return inputs.Object[networkingv1.Ingress]{Ref: ref, Value: main}
}

// ownWords are the first words of the lines that the templates write.
var ownWords = strings.Fields(`global log maxconn fd-hard-limit hard-stop-after ssl-default-bind-options ssl-default-bind-ciphers
	docroot index path-info set-param log-stderr use-fcgi-app
	ssl-default-bind-ciphersuites tune.ssl.default-dh-param tune.ssl.cachesize tune.bufsize tune.maxrewrite defaults mode option retries retry-on balance hash-type default-server timeout
	parse-resolv-conf accepted_payload_size hold
	frontend backend resolvers fcgi-app bind http-request http-response http-after-response tcp-request http-check use_backend default_backend monitor-uri acl stick-table lua-load-per-thread tune.lua.maxmem userlist cookie dynamic-cookie-key`)

// ownServer matches the server lines that templates write.
var ownServer = regexp.MustCompile(`^server (?:instance 192\.0\.2\.1:1 no-check|terminate abns@hapsnap/[a-z0-9_]+/\*/[0-9]+ send-proxy-v2 no-check|` +
	`external [a-z0-9.-]+:[0-9]+ resolvers hapsnap init-addr last,none resolve-prefer ipv4)$`)

// notFormats are the words after which HAProxy expects plain text or a regular expression, and no format. The
// arguments of Lua actions are plain text too.
var notFormats = []string{"uri", "replace-path", "path-info", "realm"}

// checkWords fails for a line that no template can have written.
func checkWords(t *testing.T, path string, content []byte) {
	t.Helper()
	for line := range bytes.Lines(content) {
		text := strings.TrimSuffix(string(line), "\n")
		if strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0xfeff || r == 0xfffd
		}) {
			t.Errorf("%s: unprintable: %q", path, shorten(text))
		}
		if strings.HasPrefix(strings.TrimSpace(text), "#") {
			if strings.Contains(text, "EVIL") {
				t.Errorf("%s: comment: %q", path, shorten(text))
			}
			continue
		}
		if ownServer.MatchString(strings.TrimSpace(text)) {
			continue
		}
		if path != "haproxy.cfg" {
			if n := len(strings.Fields(text)); text != "" && strings.HasSuffix(path, ".map") && n != 2 {
				t.Errorf("%s: %d words: %q", path, n, shorten(text))
			}
			continue
		}
		words, comment := splitWords(text)
		if comment || (len(words) > 0 && !slices.Contains(ownWords, words[0])) {
			t.Errorf("%s: %q", path, shorten(text))
		}
		pattern := false // in a condition, which has no formats
		for i, w := range words {
			if w == "{" || w == "!{" || w == "}" {
				pattern = w != "}"
			}
			if pattern || i > 0 && slices.Contains(notFormats, words[i-1]) || i > 1 && strings.HasPrefix(words[1], "lua.") {
				continue
			}
			if strings.Contains(w, "EVIL") && strings.Contains(strings.ReplaceAll(w, "%%", ""), "%") {
				t.Errorf("%s: expression: %q", path, shorten(text))
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w != "if" })); n > 1 {
			t.Errorf("%s: %d conditions: %q", path, n, shorten(text))
		}
	}
}

func shorten(s string) string { return s[:min(len(s), 200)] }

// splitWords splits a line of haproxy.cfg like HAProxy. It reports whether a comment ends it.
func splitWords(line string) (words []string, comment bool) {
	var word []byte
	var quote byte
	started := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '#':
			return words, true
		case c == ' ' || c == '\t':
			if started {
				words = append(words, string(word))
			}
			word, started = nil, false
			continue
		case c == '"' || c == '\'':
			quote = c
		case c == '\\':
			i++
			word = append(word, line[i])
		default:
			word = append(word, c)
		}
		started = true
	}
	if started {
		words = append(words, string(word))
	}
	return words, false
}
