package config

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	durationForm    = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)
	environmentForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// maxThreads is the number that HAProxy 2.6 takes at most.
const maxThreads = 64

// Check returns every fault of the configuration, in the order of its fields.
func (c Config) Check() []FieldError {
	var found []FieldError
	f := faults{found: &found}
	f.at("ingressClass").add(checkClass(c.IngressClass), "use the name of an IngressClass, such as hapsnap")
	f.at("endpoints").add(checkEndpoints(c.Endpoints), "use live or recorded")
	c.Bind.check(f.at("bind"))
	c.checkListeners(f)
	c.Status.check(f.at("status"))
	c.checkErrorPages(f.at("errorPages"))
	c.HTTPS.check(f.at("https"), c.TLS)
	c.ProxyProtocol.check(f.at("proxyProtocol"))
	c.Forwarded.check(f.at("forwarded"))
	c.TLS.check(f.at("tls"))
	if c.MaxConn < 0 {
		f.at("maxconn").add(fmt.Sprintf("%d is not a number of connections", c.MaxConn), "use 1 or more, or 0 to leave it to HAProxy")
	}
	if c.NBThread < 0 || c.NBThread > maxThreads {
		f.at("nbthread").add(fmt.Sprintf("%d is not a number of threads", c.NBThread), "use 1 to 64, or 0 to leave it to HAProxy")
	}
	f.at("bufferSize").add(c.BufferSize.check(16<<10, 1<<20), "use 16k to 1m")
	f.at("hardStopAfter").duration(c.HardStopAfter)
	f.at("closeSpreadTime").optional(c.CloseSpreadTime)
	c.Timeouts.check(f.at("timeouts"))
	c.Shared.check(f.at("shared"))
	c.Affinity.check(f.at("affinity"))
	c.ExternalNames.check(f.at("externalNames"))
	c.DNS.check(f.at("dns"))
	c.checkTCP(f)
	c.Snippets.Namespaces.check(f.at("snippets").at("namespaces"))
	checkNamespaceNames(f.at("namespaces"), c.Namespaces)
	f.at("namespaceSelector").add(checkLabelSelector(c.NamespaceSelector), labelSelectorHint)
	c.Secrets.check(f.at("secrets"))
	for i, name := range c.PublicSecrets {
		f.at("publicSecrets").element(i).add(checkShared(name), "use the namespace and the name of a Secret, such as shop/settings")
	}
	c.ConfigMaps.check(f.at("configMaps"))
	c.Certificates.check(f.at("certificates"))
	c.checkKinds(f.at("kinds"))
	c.Log.check(f.at("log"))
	c.ShrinkGuard.check(f.at("shrinkGuard"))
	c.ForeignAnnotations.check(f.at("foreignAnnotations"))
	c.checkHosts(f)
	c.Limits.check(f.at("limits"))
	c.Paths.check(f.at("paths"))
	c.IngressStatus.check(f.at("ingressStatus"))
	c.Admission.check(f.at("admission"))
	return found
}

// listener is a port that HAProxy opens, and the fields that say so.
type listener struct {
	path []string // below spec
	port int
}

// listeners returns every TCP port that HAProxy opens. Of two that are the same
// the later one is at fault.
func (c Config) listeners() []listener {
	return []listener{
		{[]string{"http", "port"}, c.HTTP.Port},
		{[]string{"https", "port"}, c.HTTPS.Port},
		{[]string{"status", "port"}, c.Status.Port},
	}
}

func (t Timeouts) check(f faults) {
	f.at("connect").duration(t.Connect)
	f.at("client").duration(t.Client)
	f.at("server").duration(t.Server)
	f.at("httpRequest").duration(t.HTTPRequest)
	f.at("httpKeepAlive").duration(t.HTTPKeepAlive)
	f.at("tunnel").duration(t.Tunnel)
	f.at("clientFin").optional(t.ClientFin)
	f.at("serverFin").optional(t.ServerFin)
	f.at("check").optional(t.Check)
	f.at("queue").duration(t.Queue)
}

// optional checks a time that may be left out.
func (f faults) optional(d OptionalDuration) {
	if d != "" {
		f.duration(Duration(d))
	}
}

// duration checks a time that must be there.
func (f faults) duration(d Duration) {
	if !durationForm.MatchString(string(d)) {
		f.add(fmt.Sprintf("%q is not a time", string(d)), "use a number and a unit: us, ms, s, m, h or d, such as 30s")
	}
}

func checkClass(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is not the name of an IngressClass", name)
}

func checkEndpoints(e Endpoints) string {
	if e == Live || e == Recorded {
		return ""
	}
	return fmt.Sprintf("%q is neither live nor recorded", string(e))
}
