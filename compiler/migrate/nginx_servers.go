package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tlsLimits translates which versions of TLS, and which ciphers, endpoints are spoken to by.
func (c *call) tlsLimits() {
	if ciphers := c.value("proxy-ssl-ciphers"); ciphers != "" && ciphers != "DEFAULT" {
		c.set("backend-tls-ciphers", ciphers)
	}
	asked := strings.Fields(c.value("proxy-ssl-protocols"))
	if len(asked) == 0 {
		return
	}
	known := []string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}
	least, most := len(known), -1
	for _, version := range asked {
		i := slices.Index(known, version)
		if i < 0 {
			c.out = nil
			c.keepAll("asks for "+version, "use backend-tls-versions, from 1.0 to 1.3")
			return
		}
		least, most = min(least, i), max(most, i)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(asked))); len(distinct) != most-least+1 {
		c.out = nil
		c.keepAll("leaves out a version in between", "use backend-tls-versions with a range")
		return
	}
	c.set("backend-tls-versions", fmt.Sprintf("1.%d-1.%d", least, most))
}

// nginxWWW translates that the other name of a host leads to it.
func nginxWWW(c *call) {
	if c.value("from-to-www-redirect") != "true" {
		return
	}
	c.set("redirect-www", "true")
	var names []string
	for _, p := range c.object.paths {
		name := "www." + p.host
		if rest, ok := strings.CutPrefix(p.host, "www."); ok {
			name = rest
		}
		if p.host != "" && !strings.HasPrefix(p.host, "*") && !slices.Contains(c.object.tlsHosts, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if c.object.hasTLS && len(names) > 0 {
		c.differs("from-to-www-redirect", "serves "+strings.Join(names, ", ")+" with the default certificate; ingress-nginx served that of the host, if it covers the name", "list it in tls")
	}
}

// nginxCookies translates what becomes of the cookies of endpoints.
func nginxCookies(c *call) {
	for from, to := range map[string]string{"proxy-cookie-path": "rewrite-cookie-path", "proxy-cookie-domain": "rewrite-cookie-domain"} {
		words := strings.Fields(c.value(from))
		switch {
		case len(words) == 0 || words[0] == "off":
		case len(words) != 2 || strings.HasPrefix(words[0], "~") || strings.Contains(c.value(from), "$"):
			c.keep(from, "holds an expression or a variable", "use "+to+" with two words")
		default:
			c.set(to, words[0]+" "+words[1])
		}
	}
	slices.SortFunc(c.out, func(a, b annotation) int { return strings.Compare(a.name, b.name) })
}

// nginxParams translates variables of FastCGI that a ConfigMap holds.
func nginxParams(c *call) {
	if !c.speaks("FCGI", "fcgi") {
		c.differs("fastcgi-params-configmap", "is removed: backend-protocol is not FCGI", "")
		return
	}
	name := c.value("fastcgi-params-configmap")
	if !strings.Contains(name, "/") {
		name = c.object.namespace + "/" + name
	}
	params, found := c.object.set.configMap(name)
	if !found {
		c.keep("fastcgi-params-configmap", "names ConfigMap "+name+", which is not among the manifests", "add it to them, or write its variables into fcgi-params")
		return
	}
	var lines []string
	for _, param := range slices.Sorted(maps.Keys(params)) {
		value := params[param]
		if strings.ContainsAny(value, "$\n") {
			c.keep("fastcgi-params-configmap", fmt.Sprintf("has %s with a variable of nginx", param), "write it out, or use fcgi-root and fcgi-path-info")
			return
		}
		if value != "" {
			lines = append(lines, param+" "+value)
		}
		if param == "DOCUMENT_ROOT" {
			c.set("fcgi-root", value)
		}
	}
	c.setLines("fcgi-params", lines)
	c.differs("fastcgi-params-configmap", "no longer follows ConfigMap "+name, "its variables are written into fcgi-params")
}
