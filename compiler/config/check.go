package config

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
)

var durationForm = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)

// maxThreads is the number that HAProxy 2.6 takes at most.
const maxThreads = 64

// Check returns every fault of the configuration, in the order of its fields.
func (c Config) Check() []field.Error {
	var found []field.Error
	f := field.Into(&found)
	f.At("ingressClass").Add(checkClass(c.IngressClass), "use the name of an IngressClass, such as hapsnap")
	f.At("endpoints").Add(checkEndpoints(c.Endpoints), "use live or recorded")
	c.Bind.check(f.At("bind"))
	c.checkListeners(f)
	c.Status.check(f.At("status"))
	c.checkErrorPages(f.At("errorPages"))
	c.HTTPS.check(f.At("https"), c.TLS)
	c.ProxyProtocol.check(f.At("proxyProtocol"))
	c.Forwarded.check(f.At("forwarded"))
	c.TLS.Check(f.At("tls"))
	if c.MaxConn < 0 {
		f.At("maxconn").Add(fmt.Sprintf("%d is not a number of connections", c.MaxConn), "use 1 or more, or 0 to leave it to HAProxy")
	}
	if c.NBThread < 0 || c.NBThread > maxThreads {
		f.At("nbthread").Add(fmt.Sprintf("%d is not a number of threads", c.NBThread), "use 1 to 64, or 0 to leave it to HAProxy")
	}
	f.At("bufferSize").Add(c.BufferSize.check(16<<10, 1<<20), "use 16k to 1m")
	checkDuration(f.At("hardStopAfter"), c.HardStopAfter)
	checkOptional(f.At("closeSpreadTime"), c.CloseSpreadTime)
	c.Timeouts.check(f.At("timeouts"))
	c.Shared.check(f.At("shared"))
	c.Affinity.check(f.At("affinity"))
	c.ExternalNames.check(f.At("externalNames"))
	c.DNS.check(f.At("dns"))
	c.checkTCP(f)
	c.Snippets.Namespaces.check(f.At("snippets").At("namespaces"))
	kinds.CheckNamespaces(f.At("namespaces"), c.Namespaces)
	kinds.CheckLabelSelector(f.At("namespaceSelector"), c.NamespaceSelector)
	c.Secrets.Check(f.At("secrets"))
	for i, name := range c.PublicSecrets {
		f.At("publicSecrets").Element(i).Add(checkShared(name), "use the namespace and the name of a Secret, such as shop/settings")
	}
	c.ConfigMaps.Check(f.At("configMaps"))
	c.Certificates.check(f.At("certificates"))
	kinds.CheckAll(f.At("kinds"), c.Kinds)
	c.Log.Check(f.At("log"))
	c.ShrinkGuard.check(f.At("shrinkGuard"))
	c.ForeignAnnotations.check(f.At("foreignAnnotations"))
	c.checkHosts(f)
	c.Limits.check(f.At("limits"))
	c.Paths.check(f.At("paths"))
	c.IngressStatus.check(f.At("ingressStatus"))
	c.Admission.check(f.At("admission"))
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

func (t Timeouts) check(f field.Errors) {
	checkDuration(f.At("connect"), t.Connect)
	checkDuration(f.At("client"), t.Client)
	checkDuration(f.At("server"), t.Server)
	checkDuration(f.At("httpRequest"), t.HTTPRequest)
	checkDuration(f.At("httpKeepAlive"), t.HTTPKeepAlive)
	checkDuration(f.At("tunnel"), t.Tunnel)
	checkOptional(f.At("clientFin"), t.ClientFin)
	checkOptional(f.At("serverFin"), t.ServerFin)
	checkOptional(f.At("check"), t.Check)
	checkDuration(f.At("queue"), t.Queue)
}

// checkOptional checks a time that may be left out.
func checkOptional(f field.Errors, d OptionalDuration) {
	if d != "" {
		checkDuration(f, Duration(d))
	}
}

// checkDuration checks a time that must be there.
func checkDuration(f field.Errors, d Duration) {
	if !durationForm.MatchString(string(d)) {
		f.Add(fmt.Sprintf("%q is not a time", string(d)), "use a number and a unit: us, ms, s, m, h or d, such as 30s")
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
