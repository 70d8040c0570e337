package gatewayapi_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var update = flag.Bool("update", false, "rewrite the golden files and the document")

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &shared)) }

// withGatewayAPI returns an API server that knows the made kinds.
func withGatewayAPI(t *testing.T) *kubetest.Server {
	t.Helper()
	cluster := shared.Server(t)
	for _, plural := range []string{"gateways", "listenersets", "httproutes", "tlsroutes", "referencegrants"} {
		text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), "gateway.networking.k8s.io_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		cluster.Apply(t, string(text))
	}
	return cluster
}

func standard() gatewayapi.Options {
	return gatewayapi.Options{
		Gateway: types.NamespacedName{Namespace: "infra", Name: "web"}, Class: "hapsnap", HTTPPort: 80, HTTPSPort: 443,
		Ingresses: ingress.Config{HTTPSPort: 443}, Form: routing.NormalForm,
	}
}

// directory writes manifests into a folder, and makes it the current one.
func directory(t *testing.T, manifests []byte) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in.yaml", manifests, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each golden has manifests, the result and the report. The API server accepts the result.
func TestGolden(t *testing.T) {
	goldens, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(goldens) == 0 {
		t.Fatal(goldens, err)
	}
	cluster := withGatewayAPI(t)
	cluster.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: infra}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
	for _, name := range goldens {
		golden, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			directory(t, golden.Files[0].Data)
			o := standard()
			if _, list, found := strings.Cut(string(golden.Comment), "--without "); found {
				o.Without = strings.Split(strings.Fields(list)[0], ",")
			}
			result, err := gatewayapi.Directory("in.yaml", o)
			if err != nil {
				t.Fatal(err)
			}
			report := ""
			for _, d := range result.Findings {
				report += d.String() + "\n"
			}
			got := &txtar.Archive{Comment: golden.Comment, Files: []txtar.File{golden.Files[0], {Name: "out.yaml", Data: result.Manifests}, {Name: "report", Data: []byte(report)}}}
			if *update {
				if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(txtar.Format(golden)), string(txtar.Format(got))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			cluster.Apply(t, string(result.Manifests))
			cluster.Delete(t, string(result.Manifests))
		})
	}
}

// Listeners beyond a Gateway's limit go to ListenerSets. Rules and hosts beyond a route's limit go to more
// routes. The API server accepts all of them.
func TestManyHosts(t *testing.T) {
	cluster := withGatewayAPI(t)
	namespace := cluster.Namespace(t)
	var b strings.Builder
	add := func(name, host, secret string, paths int) {
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s, namespace: %s}\nspec:\n  tls: [{hosts: [%q], secretName: %s}]\n  rules:\n  - host: %q\n    http:\n      paths:\n", name, namespace, host, secret, host)
		for n := range paths {
			fmt.Fprintf(&b, "      - {path: /p%d, pathType: Exact, backend: {service: {name: s%d, port: {number: 80}}}}\n", n, n%40)
		}
	}
	for n := range 150 {
		add(fmt.Sprint("i", n), fmt.Sprintf("h%d.example", n), fmt.Sprint("tls", n), 1)
	}
	add("many", "many.example", "many", 400)
	directory(t, []byte(b.String()))
	o := standard()
	o.Gateway.Namespace = namespace + "-gateways"
	cluster.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", o.Gateway.Namespace))
	result, err := gatewayapi.Directory(".", o)
	if err != nil {
		t.Fatal(err)
	}
	text := string(result.Manifests)
	if sets := strings.Count(text, "kind: ListenerSet\n"); sets == 0 || strings.Count(text, "name: https-") < 151 || strings.Count(text, "kind: ReferenceGrant\n") < 10 {
		t.Errorf("%d sets", sets)
	}
	cluster.Apply(t, text)
}

// Ingresses of several classes are not mixed. One class can be chosen.
func TestClasses(t *testing.T) {
	of := func(name, class string) string {
		return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s}\nspec: {ingressClassName: %s, rules: [{host: %s.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n", name, class, name)
	}
	directory(t, []byte(of("a", "one")+of("b", "two")))
	_, err := gatewayapi.Directory(".", standard())
	if several, is := errors.AsType[*gatewayapi.ClassesError](err); !is || fmt.Sprint(several.Classes) != "[one two]" {
		t.Fatal(err)
	}
	o := standard()
	o.IngressClass = "two"
	result, err := gatewayapi.Directory(".", o)
	if err != nil || result.Ingresses != 1 || strings.Contains(string(result.Manifests), "a.example") || !strings.Contains(string(result.Manifests), "b.example") {
		t.Error(err, string(result.Manifests))
	}
}

// The document agrees with the code, and describes every option.
func TestDocumentIsFresh(t *testing.T) {
	const file = "../../../docs/reference/migration-gateway.md"
	got := gatewayapi.Document()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run make generate (-file +code)\n%s", diff)
	}
	for _, o := range options.All() {
		if !strings.Contains(got, "| `"+o.Name+"` | ") {
			t.Errorf("no word of %s", o.Name)
		}
	}
}
