package charttest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// boundForm matches a line in the section global that limits the connections for which HAProxy allocates
// memory.
var boundForm = regexp.MustCompile(`(?m)^\s+(maxconn \S|fd-hard-limit [1-9])`)

// If the number of files is not limited, as in many container runtimes, an unbounded HAProxy uses all memory.
// Every configuration with which HAProxy starts has a limit, also those in the documentation.
func TestHAProxyIsBounded(t *testing.T) {
	t.Parallel()
	checked := 0
	check := func(path, text string) {
		if !regexp.MustCompile(`(?m)^global\b`).MatchString(text) {
			return
		}
		checked++
		global := text[strings.Index(text, "global"):]
		if end := regexp.MustCompile(`(?m)^(defaults|frontend|listen|backend)\b`).FindStringIndex(global); end != nil {
			global = global[:end[0]]
		}
		if !boundForm.MatchString(global) {
			t.Errorf("%s: HAProxy is not bounded:\n%s", path, global)
		}
	}
	for _, folder := range []string{"examples", "charts/hapsnap", "templates", "docs"} {
		err := filepath.WalkDir(filepath.Join(Root(t), folder), func(path string, _ fs.DirEntry, err error) error {
			page := strings.HasSuffix(path, ".md")
			if err != nil || !strings.HasSuffix(path, ".cfg") && !page {
				return err
			}
			text, err := os.ReadFile(path)
			for i, block := range strings.Split(string(text), "```") {
				if !page || i%2 == 1 && strings.Contains(block, "\ndefaults") { // of pages, what HAProxy would start with
					check(path, block)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 3 {
		t.Errorf("only %d configurations were found", checked)
	}
}

// Without an address in the status of Ingresses, Argo CD never finds them healthy: so it is that of
// the Service for traffic, unless somebody says otherwise.
func TestIngressStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, want string }{
		"the Service for traffic":   {"", "web/edge-hapsnap-haproxy"},
		"with another name":         {"fullnameOverride=front", "web/front-haproxy"},
		"another Service":           {"compiler.config.ingressStatus.service=lb/front", "lb/front"},
		"no Service for traffic":    {"haproxy.service.enabled=false", ""},
		"a node's port for traffic": {"haproxy.service.type=NodePort", "web/edge-hapsnap-haproxy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Template(t, "helm", "web", "--values", "../hapsnap/ci/minimal-values.yaml", "--set", c.set)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				Spec struct{ IngressStatus struct{ Service string } }
			}
			services := map[string]corev1.Service{}
			for _, o := range Objects(t, text) {
				switch o.GetKind() {
				case "Service":
					var s corev1.Service
					if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
						t.Fatal(err)
					}
					services[s.Namespace+"/"+s.Name] = s
				case "ConfigMap":
					for _, file := range o.Object["data"].(map[string]any) {
						if document := []byte(file.(string)); bytes.Contains(document, []byte("kind: CompilerConfig")) {
							if err := yaml.Unmarshal(document, &config); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
			if got := config.Spec.IngressStatus.Service; got != c.want {
				t.Errorf("ingressStatus is %q, want %q", got, c.want)
			}
			if service := services[c.want]; strings.HasPrefix(c.want, "web/") && (len(service.Spec.Ports) == 0 || service.Spec.Selector["app.kubernetes.io/component"] != "haproxy") {
				t.Errorf("%s is no Service for traffic: %+v", c.want, service.Spec)
			}
		})
	}
}

// What make kind-demo installs are images that it loaded, and traffic at a port of the nodes.
func TestKindDemo(t *testing.T) {
	t.Parallel()
	text, err := Template(t, "helm", "hapsnap", "--values", filepath.Join(Root(t), "examples", "kind", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`(?m)^\s+image: (\S+)$`).FindAllStringSubmatch(text, -1)
	if len(images) < 4 || !strings.Contains(text, "nodePort: 30080") {
		t.Errorf("%d images", len(images))
	}
	for _, image := range images {
		if !strings.HasPrefix(image[1], "docker.io/hapsnap/") {
			t.Errorf("%s is not one that the demo loads", image[1])
		}
	}
	if n := strings.Count(text, "imagePullPolicy: Never"); n != len(images) {
		t.Errorf("%d of %d images are not pulled", n, len(images))
	}
}
