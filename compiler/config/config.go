package config

import (
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/config/logs"
	"github.com/hapsnap/hapsnap/compiler/config/transport"
)

// Kind is the KRM kind of the configuration; its apiVersion is that of
// snapshots.
const Kind = "CompilerConfig"

// Config is the spec of a CompilerConfig.
type Config struct {
	// IngressClass is the class whose Ingresses are compiled.
	IngressClass string `json:"ingressClass"`
	// ControllerClass is the spec.controller of IngressClass objects that
	// are ours whatever their name.
	ControllerClass string `json:"controllerClass"`
	// WatchIngressWithoutClass takes Ingresses that name no class.
	WatchIngressWithoutClass bool `json:"watchIngressWithoutClass"`
	// Endpoints says whether the addresses behind Services are joined when a
	// snapshot is pushed, or are those that the compiler saw, a file of the
	// snapshot.
	Endpoints Endpoints `json:"endpoints"`
	// Bind says where HAProxy listens.
	Bind Bind `json:"bind"`
	// HTTP is the listener for plain HTTP.
	HTTP Listener `json:"http"`
	// HTTPS is the listener for HTTPS.
	HTTPS HTTPSListener `json:"https"`
	// ProxyProtocol says who is believed about the addresses of clients by the
	// listeners for HTTP and HTTPS. HTTP/3 has no PROXY protocol.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol"`
	// Forwarded says what becomes of headers by which proxies tell endpoints about clients,
	// such as X-Forwarded-For. docs/reference/headers.md has the table of what
	// an endpoint gets.
	Forwarded Forwarded `json:"forwarded"`
	// TLS says what clients may negotiate with every listener that speaks TLS.
	TLS transport.TLS `json:"tls"`
	// Status is the listener for monitoring and load balancers, which clients need not
	// reach. GET /healthz answers 200 while the process serves. GET /ready
	// answers 200 while the instance is to be sent requests. It answers 503 while
	// the only server of the backend hapsnap_ready is in the state drain or maint,
	// which is how an operator drains the instance: through the Dataplane API, or
	// with "set server hapsnap_ready/instance state drain" on the socket; a reload
	// ends that. Before the first snapshot, the configuration of
	// examples/bootstrap answers 503. HAProxy that stops, or whose worker was
	// replaced, refuses connections here as everywhere.
	Status Status `json:"status"`
	// MaxConn is HAProxy's global maxconn. 0 leaves it to HAProxy, which takes
	// what the machine's limit of open files allows, of at most 100,000 files: a
	// number above that limit would fail the reload, and no check would see it.
	MaxConn int `json:"maxconn"`
	// NBThread is the number of HAProxy's threads, of at most 64. 0 leaves it to
	// HAProxy, which takes as many as it may use processors.
	NBThread int `json:"nbthread"`
	// BufferSize is HAProxy's tune.bufsize, from 16k to 1m. The header of a request, and
	// that of an answer, must fit into a buffer, but for 4 KiB that are kept free for
	// headers that are added: with 40k, 32 KiB always pass. A request that is being
	// served takes two buffers, and up to five with HTTP/2 and TLS; a connection that
	// waits for the next request takes none. With 40k, 10,000 requests at once may take
	// 0.8 to 2 GB.
	BufferSize Size `json:"bufferSize"`
	// HardStopAfter is how long a worker may serve old connections after a
	// reload.
	HardStopAfter Duration `json:"hardStopAfter"`
	// IdleCloseOnResponse keeps connections of clients that are idle at a reload open
	// in the old worker until they have sent another request, whose answer says that
	// the connection closes, or until timeouts.httpKeepAlive. Without it they are closed
	// at the reload, and a request that is on its way by then is lost.
	IdleCloseOnResponse bool `json:"idleCloseOnResponse"`
	// CloseSpreadTime is the time after a reload over which the old worker spreads
	// closing connections, so that not all clients connect again at once. HAProxy then
	// closes idle ones too, whatever idleCloseOnResponse says, and a request that is on
	// its way by then is lost. Without it, each connection closes with its next answer.
	CloseSpreadTime OptionalDuration `json:"closeSpreadTime"`
	// Timeouts are those of HAProxy's defaults section. Annotations change some
	// of them for their routes.
	Timeouts Timeouts `json:"timeouts"`
	// ErrorPages is the ConfigMap, as namespace/name, of the pages that HAProxy
	// answers errors of its own with; answers of servers stay as they are. Its
	// keys are statuses, such as 503 or 404.json: the content type is that of
	// .html, .txt, .json or .xml, and without any it is HTML, or JSON if the page
	// is a JSON object. A page may have 12 KiB and is sent as it is. What is no
	// HTTP at all is answered before there is a page for it. A page that
	// cannot be used is reported on the ConfigMap, and harms no other. Empty has
	// none.
	ErrorPages string `json:"errorPages"`
	// Shared is what objects of every namespace may name.
	Shared Shared `json:"shared"`
	// Affinity says how the cookies are made that keep sessions with endpoints.
	Affinity Affinity `json:"affinity"`
	// Log says how and where HAProxy logs requests.
	Log logs.Log `json:"log"`
	// ExternalNames says which Services of type ExternalName are served. HAProxy
	// looks their names up while it runs, from where it is: anybody who may create
	// such a Service and an Ingress reaches what HAProxy reaches. A name can be
	// refused here, the address that somebody's name server gives for it cannot;
	// where namespaces do not trust one another, list the domains that are meant,
	// or refuse them all.
	ExternalNames ExternalNames `json:"externalNames"`
	// DNS says how HAProxy looks up the names of such Services.
	DNS DNS `json:"dns"`
	// TCPServices are ports whose connections go to Services as they are, with or
	// without TLS.
	TCPServices []TCPService `json:"tcpServices"`
	// TCPAnnotations says which ports Services may open by annotation. What is said
	// in tcpServices comes before it.
	TCPAnnotations TCPAnnotations `json:"tcpAnnotations"`
	// Snippets says whose Ingresses may add lines of their own to haproxy.cfg.
	Snippets Snippets `json:"snippets"`
	// ForeignAnnotations says what becomes of Ingresses with annotations of other
	// controllers that are not obeyed: with close, each is reported, and one that
	// protects something has its routes answer 503; with ignore, nothing is said.
	ForeignAnnotations ForeignAnnotations `json:"foreignAnnotations"`
	// Hosts says what becomes of a host that Ingresses of several namespaces name. It
	// belongs to the namespace of the oldest: the certificate, what is asked of TLS
	// clients, passthrough and aliases are the owner's. With shared, paths of all
	// namespaces are merged, and the owner is told who has some. With owned, only the
	// owner has paths, and a wildcard's owner owns the younger hosts below it;
	// hapsnap.dev/share-host and sharedHosts let others in.
	Hosts HostPolicy `json:"hosts"`
	// SharedHosts are hosts that several namespaces may have paths of with hosts: owned.
	SharedHosts []SharedHost `json:"sharedHosts"`
	// ReservedDomains are domains that only some namespaces may have hosts in, however
	// old the Ingresses of others are. Rules without a host, wildcards above the domain
	// and default backends of others get no request for them.
	ReservedDomains []ReservedDomain `json:"reservedDomains"`
	// TrustFileAges takes metadata.creationTimestamp in manifests at its word. Who
	// writes a manifest may write any time there, so that without this objects of files
	// are all of one age, and of two that claim the same the first by namespace and name
	// gets it. Turn it on for files that a cluster wrote.
	TrustFileAges bool `json:"trustFileAges"`
	// Limits bound what the objects of one namespace may ask of a compile, so that absurd
	// ones harm no other namespace. What is over a limit is left out and reported: the
	// youngest Ingresses of the namespace, closed where they protect something.
	Limits Limits `json:"limits"`
	// Paths says how the paths of requests are compared with those of routes. An
	// Ingress can say otherwise.
	Paths Paths `json:"paths"`
	// Namespaces are those that Ingresses, Services, EndpointSlices, ConfigMaps and
	// Secrets are read from; an empty list is all of them.
	Namespaces []string `json:"namespaces"`
	// NamespaceSelector selects, by their labels, the namespaces that these are read
	// from, such as tenant=true. A namespace must be selected by this and be one of
	// namespaces.
	NamespaceSelector string `json:"namespaceSelector"`
	// Secrets says which Secrets are read from a cluster. From files all are read.
	Secrets kinds.Watched `json:"secrets"`
	// PublicSecrets are Secrets, each as namespace/name, with nothing secret in them,
	// such as settings. The values of all others that were read must not be in a
	// snapshot; a private key never may.
	PublicSecrets []string `json:"publicSecrets"`
	// ConfigMaps says which ConfigMaps are read from a cluster. From files all are
	// read.
	ConfigMaps kinds.Watched `json:"configMaps"`
	// Certificates says which certificates a snapshot is served with, and where they
	// are from.
	Certificates Certificates `json:"certificates"`
	// Kinds are kinds of objects that templates read, with .Objects and .Indexed: of
	// a CustomResourceDefinition, or those that are read anyway, to have their
	// content.
	Kinds []kinds.Kind `json:"kinds"`
	// ShrinkGuard says when a configuration that lost much at once waits for
	// somebody to approve it: a volume that is half mounted, or a cluster that is
	// half read, looks like deletions. It is compared with the newest snapshot of
	// the store, so that a restart changes nothing. While one is held, what was
	// published stays, and what no longer lost as much is published as ever.
	ShrinkGuard ShrinkGuard `json:"shrinkGuard"`
	// IngressStatus says which addresses the status of an Ingress names while the
	// published snapshot has a line of it, be it one that keeps its routes closed.
	// One without any has ours taken away; so has one that moves to another class,
	// unless another controller has written its own by then. With neither a Service
	// nor addresses no status is written.
	IngressStatus IngressStatus `json:"ingressStatus"`
	// Admission says how the admission webhook answers, if there is one.
	Admission Admission `json:"admission"`
}

// Endpoints says where the endpoints of Services come from.
type Endpoints string

// Live endpoints are joined when a snapshot is pushed; recorded ones are those
// the compiler saw, a file of the snapshot.
const (
	Live     Endpoints = "live"
	Recorded Endpoints = "recorded"
)

// Duration is a time such as 30s. It is written as HAProxy does: a number and
// one of the units us, ms, s, m, h, d.
type Duration string

// OptionalDuration is a time such as 30s, or nothing.
type OptionalDuration string

// Timeouts are those of HAProxy's defaults section.
type Timeouts struct {
	// Connect is for a connection to an endpoint.
	Connect Duration `json:"connect"`
	// Client is how long a client may be silent when it should send or receive.
	Client Duration `json:"client"`
	// Server is how long an endpoint may be silent when it should send or
	// receive.
	Server Duration `json:"server"`
	// HTTPRequest is for a client to send the header of a request.
	HTTPRequest Duration `json:"httpRequest"`
	// HTTPKeepAlive is for the next request on the same connection.
	HTTPKeepAlive Duration `json:"httpKeepAlive"`
	// Tunnel is how long a WebSocket, or another upgraded connection, may be
	// silent.
	Tunnel Duration `json:"tunnel"`
	// ClientFin is how long a client may be silent once it has closed its half of
	// the connection, as many WebSockets do; without it, that is client or tunnel.
	ClientFin OptionalDuration `json:"clientFin"`
	// ServerFin is the same for an endpoint.
	ServerFin OptionalDuration `json:"serverFin"`
	// Check is how long a health check may take once it is connected; without it,
	// that is the interval.
	Check OptionalDuration `json:"check"`
	// Queue is how long a request waits for an endpoint that has all the
	// connections it may have.
	Queue Duration `json:"queue"`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		IngressClass:    "hapsnap",
		ControllerClass: "hapsnap.dev/ingress-controller",
		Endpoints:       Live,
		Bind:            Bind{Addresses: []string{"*"}},
		HTTP:            Listener{Port: 80},
		HTTPS:           HTTPSListener{Port: 443, HTTP2: true},
		Forwarded:       Forwarded{Policy: ReplaceForwarded, ClientAddress: AddressOfConnection, RequestID: true},
		TLS:             transport.TLS{Policy: transport.Intermediate},
		BufferSize:      "40k",
		Status:          defaultStatus(),
		HardStopAfter:   "30m",

		IdleCloseOnResponse: true,
		Timeouts: Timeouts{
			Connect: "5s", Client: "50s", Server: "50s", HTTPRequest: "10s",
			HTTPKeepAlive: "60s", Tunnel: "1h", Queue: "10s",
		},
		Affinity:           Affinity{Key: "key"},
		ExternalNames:      ExternalNames{Policy: AllowExternalNames},
		DNS:                DNS{Refresh: "5s", Prefer: IPv4},
		TCPAnnotations:     TCPAnnotations{Namespaces: Namespaces{"*"}},
		Secrets:            kinds.Watched{Watch: kinds.WatchNamed},
		ConfigMaps:         kinds.Watched{Watch: kinds.WatchNamed},
		Certificates:       Certificates{Mode: ReferenceCertificates},
		Log:                logs.Log{Target: logs.ToStdout, Format: logs.HTTP, Facility: "local0", Level: logs.Info, Syslog: logs.RFC5424},
		ShrinkGuard:        ShrinkGuard{LostPercent: 50, MinLost: 5},
		ForeignAnnotations: CloseForeign,
		Hosts:              ShareHosts,
		Limits:             defaultLimits(),
		Paths:              defaultPaths(),
		Admission:          Admission{FailurePolicy: IgnoreFailure},
	}
}

// Size is a number of bytes such as 40k: a number, perhaps with k for 1,024 bytes or
// m for 1,024 of these.
type Size string

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,8})([km]?)$`)

// Bytes returns the number of bytes of a valid size, and 0 for another.
func (s Size) Bytes() int {
	m := sizeForm.FindStringSubmatch(string(s))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // of nine digits
	return n << map[string]int{"": 0, "k": 10, "m": 20}[m[2]]
}

// check returns what is wrong with a size that must be within bounds.
func (s Size) check(least, most int) string {
	switch n := s.Bytes(); {
	case n == 0:
		return fmt.Sprintf("%q is not a size", string(s))
	case n < least || n > most:
		return fmt.Sprintf("%s is not from %dk to %dk", s, least>>10, most>>10)
	}
	return ""
}

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
