package migrate

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Set has what the rules need from the other manifests.
type Set struct {
	routes     []setRoute
	ports      map[string]map[string]string // numbers by name, by NAMESPACE/NAME of the Service
	services   map[string]map[string]string // annotations, by NAMESPACE/NAME
	configMaps map[string]map[string]string // data, by NAMESPACE/NAME
	users      map[string]string            // the key auth of Secrets, by NAMESPACE/NAME
	served     map[string]bool              // the dialects whose controllers may serve an Ingress, by name
}

// setRoute is one path of an Ingress.
type setRoute struct {
	namespace, ingress string
	host, path         string
	exact              bool
	service, port      string // the port is a name or a number
	annotations        map[string]string
}

// readSet reads the objects of files.
func readSet(files []string) (*Set, error) {
	s := &Set{ports: map[string]map[string]string{}, services: map[string]map[string]string{}, configMaps: map[string]map[string]string{}, users: map[string]string{}, served: map[string]bool{}}
	for _, name := range files {
		_, _, err := manifests.EditFile(name, func(object *yaml.Node, _ int) bool {
			s.add(object)
			return false
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add adds an object.
func (s *Set) add(n *yaml.Node) {
	namespace, name := namespaceOf(n), text(child(n, "metadata"), "name")
	switch text(n, "kind") {
	case "Ingress":
		s.addIngress(n, namespace, name)
	case "Service":
		numbers := map[string]string{}
		for _, p := range items(child(child(n, "spec"), "ports")) {
			numbers[text(p, "name")] = text(p, "port")
		}
		s.ports[namespace+"/"+name] = numbers
		s.services[namespace+"/"+name] = mapping(child(child(n, "metadata"), "annotations"))
	case "Secret":
		auth := text(child(n, "stringData"), "auth")
		if decoded, err := base64.StdEncoding.DecodeString(text(child(n, "data"), "auth")); auth == "" && err == nil {
			auth = string(decoded)
		}
		s.users[namespace+"/"+name] = auth
	case "ConfigMap":
		s.configMaps[namespace+"/"+name] = mapping(child(n, "data"))
	}
}

func (s *Set) addIngress(n *yaml.Node, namespace, name string) {
	annotations := mapping(child(child(n, "metadata"), "annotations"))
	class := cmp.Or(annotations[classAnnotation], text(child(n, "spec"), "ingressClassName"))
	for _, d := range served(class, annotations) {
		s.served[d.Name] = true
	}
	for _, rule := range items(child(child(n, "spec"), "rules")) {
		for _, p := range items(child(child(rule, "http"), "paths")) {
			service := child(child(p, "backend"), "service")
			s.routes = append(s.routes, setRoute{
				namespace: namespace, ingress: name, host: text(rule, "host"), path: text(p, "path"), exact: text(p, "pathType") == "Exact",
				service: text(service, "name"), port: portOf(service), annotations: annotations,
			})
		}
	}
}

// served returns the dialects whose annotations an Ingress has, and without any those that its class is usual for.
func served(class string, annotations map[string]string) []Dialect {
	var spoken, usual []Dialect
	for _, d := range dialects {
		if values, _ := d.read(annotations); len(values) > 0 && d.translates() {
			spoken = append(spoken, d)
		} else if d.hasClass(class) {
			usual = append(usual, d)
		}
	}
	if len(spoken) > 0 {
		return spoken
	}
	return usual
}

// annotationsOf returns the annotations of a Service.
func (s *Set) annotationsOf(namespace, service string) map[string]string {
	if s == nil {
		return nil
	}
	return s.services[namespace+"/"+service]
}

// portOf returns the number or the name of a backend's port.
func portOf(service *yaml.Node) string {
	if number := text(child(service, "port"), "number"); number != "" {
		return number
	}
	return text(child(service, "port"), "name")
}

// namespaceOf returns the namespace of an object.
func namespaceOf(n *yaml.Node) string {
	if namespace := text(child(n, "metadata"), "namespace"); namespace != "" {
		return namespace
	}
	return "default"
}

// mapping returns the fields of a mapping of strings.
func mapping(n *yaml.Node) map[string]string {
	out := map[string]string{}
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = n.Content[i+1].Value
	}
	return out
}

// route returns the route for a path of a host: the one for exactly that path, or else the longest prefix.
func (s *Set) route(host, path string) (best setRoute, found bool) {
	if s == nil {
		return best, false
	}
	for _, r := range s.routes {
		prefix := strings.TrimSuffix(pathStart(r.path), "/")
		isIt := path == r.path || !r.exact && (path == prefix || strings.HasPrefix(path, prefix+"/"))
		if r.host != host || r.service == "" || !isIt {
			continue
		}
		exact, longer := path == r.path && path != best.path, path != best.path && len(r.path) > len(best.path)
		if !found || exact || longer {
			best, found = r, true
		}
	}
	return best, found
}

// pathStart returns the part of a path before the first sign of a regular expression.
func pathStart(path string) string {
	if i := strings.IndexAny(path, patternSigns); i >= 0 {
		return path[:i]
	}
	return path
}

// patternSigns are characters that occur only in regular expressions, or in unusual paths.
const patternSigns = `^$()*[]|\+?{}`

// number returns the number of a Service's port.
func (s *Set) number(r setRoute) (string, bool) { // of a set that exists
	if _, err := strconv.Atoi(r.port); err == nil {
		return r.port, true
	}
	number := s.ports[r.namespace+"/"+r.service][r.port]
	return number, number != ""
}

// hosts returns the hosts of an Ingress, each once.
func (s *Set) hosts(namespace, ingress string) []string {
	var out []string
	if s == nil {
		return nil
	}
	for _, r := range s.routes {
		if r.namespace == namespace && r.ingress == ingress && !slices.Contains(out, r.host) {
			out = append(out, r.host)
		}
	}
	return out
}

// configMap returns the data of a ConfigMap.
func (s *Set) configMap(name string) (data map[string]string, found bool) {
	if s == nil {
		return nil, false
	}
	data, found = s.configMaps[name]
	return data, found
}

// apr1 returns the first user of a Secret in the manifests whose hash HAProxy cannot check, or "".
func (s *Set) apr1(secret string) string {
	if s == nil {
		return ""
	}
	for line := range strings.Lines(s.users[secret]) {
		if user, hash, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.HasPrefix(hash, "$apr1$") {
			return user
		}
	}
	return ""
}
