package migrate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Other controllers are also told what to do by objects that are neither Ingresses nor Services. None of these is
// translated, and what they serve or protect would be missed only when the other controller is gone.

// customGroup ends the API groups of the custom resources of HAProxy Technologies' controller, such as
// ingress.v3.haproxy.org.
const customGroup = ".haproxy.org"

// custom says of the kinds of these custom resources what to do instead.
var custom = map[string]string{
	"TCP":      "list its ports in tcpServices of the CompilerConfig, or let the Service ask for them with hapsnap.dev/tcp-port",
	"Backend":  "set options of the Ingresses and Services whose annotation cr-backend names it; see docs/reference/annotations.md",
	"Global":   "compare it with docs/reference/configuration.md",
	"Defaults": "compare it with docs/reference/configuration.md",
}

// beside returns what is left to do about an object that is not rewritten.
func beside(n *yaml.Node) []Finding {
	group, _, _ := strings.Cut(text(n, "apiVersion"), "/")
	kind := text(n, "kind")
	switch {
	case strings.HasSuffix(group, customGroup):
		hint := custom[kind]
		if hint == "" {
			hint = "look up what it does, and see docs/reference/configuration.md"
		}
		return []Finding{{
			Severity: diag.Error, Object: objectOf(n, kind), Line: n.Line, Column: n.Column,
			Message: "is a custom resource of the HAProxy Kubernetes Ingress Controller, and is not translated", Hint: hint,
		}}
	case kind == "ConfigMap" && group == "v1":
		return tcpPorts(n)
	}
	return nil
}

// passed is an entry of the ConfigMaps in which all three controllers list TCP and UDP ports, such as
// 9000: "shop/db:5432:PROXY". The port of the Service may have a name.
var passed = regexp.MustCompile(`^([a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*):([-a-z0-9]+)((?::[^:]*)*)$`)

// tcpPorts returns a finding for each port, if each entry of the ConfigMap is about one.
func tcpPorts(n *yaml.Node) []Finding {
	var out []Finding
	data := child(n, "data")
	for i := 0; data != nil && data.Kind == yaml.MappingNode && i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i], strings.TrimSpace(data.Content[i+1].Value)
		port, err := strconv.ParseUint(key.Value, 10, 16)
		m := passed.FindStringSubmatch(value)
		if err != nil || port == 0 || m == nil {
			return nil // it is about something else
		}
		f := Finding{Severity: diag.Error, Object: objectOf(n, "ConfigMap"), Line: key.Line, Column: key.Column}
		if strings.Contains(f.Object.Name, "udp") {
			f.Message = fmt.Sprintf("data.%d: HAProxy has no UDP port for %s", port, m[1])
			f.Hint = "give the Service a load balancer of its own, with type LoadBalancer"
		} else {
			f.Message = fmt.Sprintf("data.%d: the port is not translated, and nobody reaches %s by it without the other controller", port, m[1])
			f.Hint = "write into spec of the CompilerConfig: " + entryFor(port, m[1]+":"+m[2], strings.Split(m[3], ":"))
		}
		out = append(out, f)
	}
	return out
}

// entryFor returns the entry of tcpServices that does the same. The fields behind the port of the Service are PROXY for the
// header that clients send, PROXY, PROXY-V1 or PROXY-V2 for the one that endpoints get, and the Secret of a certificate. A
// controller has ssl in the first one, for its own certificate.
func entryFor(port uint64, service string, fields []string) string {
	entry, remarks := fmt.Sprintf("{port: %d, service: %q", port, service), ""
	field := func(i int) string {
		if i < len(fields) {
			return strings.TrimSpace(fields[i])
		}
		return ""
	}
	switch strings.ToUpper(field(1)) {
	case "PROXY":
		entry += ", proxyProtocol: {trusted: [NETWORKS]}"
		remarks = "; NETWORKS are those that send the header of the PROXY protocol"
	case "SSL":
		entry += `, tls: {secret: "NAMESPACE/NAME"}`
		remarks = "; the certificate was that of the controller"
	}
	switch sent := strings.ToUpper(field(2)); sent {
	case "PROXY": // version 1 in one controller, 2 in the other
		entry += ", sendProxyProtocol: VERSION"
		remarks += "; VERSION is 1 for what ingress-nginx sent, and 2 for HAProxy Ingress"
	case "PROXY-V1", "PROXY-V2":
		entry += ", sendProxyProtocol: " + strings.TrimPrefix(sent, "PROXY-V")
	}
	if secret := field(3); strings.Contains(secret, "/") {
		entry += fmt.Sprintf(", tls: {secret: %q}", secret)
	}
	return "tcpServices: [" + entry + "}]" + remarks
}

// objectOf names an object.
func objectOf(n *yaml.Node, kind string) diag.Object {
	return diag.Object{Kind: kind, Namespace: namespaceOf(n), Name: text(child(n, "metadata"), "name")}
}
