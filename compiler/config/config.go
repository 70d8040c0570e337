// Package config holds the compiler's configuration: a KRM object of kind CompilerConfig, its defaults and
// its checks.
//
// A file is read strictly: an unknown field, a wrong type and an impossible value are errors with file, line
// and column. Fields that the file leaves out keep their defaults. The values are plain data; nothing here
// acts on them.
//
// # Decisions
//
// Some values only HAProxy can check: names of ciphers, a log-format, whether QUIC was built in. The compiler
// checks each of them in a small configuration of its own, before it compiles anything. In a whole
// haproxy.cfg, the error would name a line that a template wrote. This way it leads to the line and column of
// the configuration.
package config

import (
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/agents"
	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/config/gateways"
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
	// ControllerClass is a spec.controller: IngressClass objects that have it count as
	// ours, whatever their name.
	ControllerClass string `json:"controllerClass"`
	// WatchIngressWithoutClass also compiles Ingresses that name no class.
	WatchIngressWithoutClass bool `json:"watchIngressWithoutClass"`
	// Endpoints says where the addresses behind Services come from. With live, the pusher
	// joins them with the snapshot. With recorded, a file of the snapshot lists those that
	// the compiler saw.
	Endpoints Endpoints `json:"endpoints"`
	// Bind says where HAProxy listens.
	Bind Bind `json:"bind"`
	// HTTP is the listener for plain HTTP.
	HTTP Listener `json:"http"`
	// HTTPS is the listener for HTTPS.
	HTTPS HTTPSListener `json:"https"`
	// ProxyProtocol says from which networks the listeners for HTTP and HTTPS accept the
	// client's address in a PROXY header. HTTP/3 has no PROXY protocol.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol"`
	// Forwarded says how HAProxy treats headers with which proxies describe clients, such
	// as X-Forwarded-For. docs/reference/headers.md has the table of what an endpoint gets.
	Forwarded Forwarded `json:"forwarded"`
	// TLS says what clients may negotiate with every listener that speaks TLS.
	TLS transport.TLS `json:"tls"`
	// Status is the listener for monitoring and load balancers, which clients need not
	// reach. GET /healthz answers 200 while the process serves. GET /ready answers 200
	// while the instance should get requests. It answers 503 while the only server of the
	// backend hapsnap_ready is in the state drain or maint. An operator drains the instance
	// that way: through the Dataplane API, or with "set server hapsnap_ready/instance state
	// drain" on the socket. A reload ends the drain. Before the first snapshot, the
	// configuration of examples/bootstrap answers 503. A HAProxy that stops, or a worker
	// that was replaced, refuses connections here as everywhere.
	Status Status `json:"status"`
	// HAProxyVersion is the oldest HAProxy version among the instances, such as "3.2".
	// haproxy.cfg then has lines that older versions refuse. From "3.1" on it sets
	// tune.lua.bool-sample-conversion to its default; without that line HAProxy 3.1 and
	// later log a warning at each start. The compiler's own HAProxy must not be older.
	HAProxyVersion HAProxyVersion `json:"haproxyVersion"`
	// MaxConn is HAProxy's global maxconn. 0 leaves it to HAProxy, which derives it from
	// the machine's limit of open files, taking at most 100,000 files. A number above that
	// limit would make the reload fail, and no check would find it.
	MaxConn int `json:"maxconn"`
	// NBThread is the number of HAProxy's threads, at most 64. 0 leaves it to HAProxy,
	// which takes one for each processor that it may use.
	NBThread int `json:"nbthread"`
	// BufferSize is HAProxy's tune.bufsize, from 16k to 1m. The header of a request, and
	// that of an answer, must fit into a buffer, less 4 KiB that are kept free for headers
	// that HAProxy adds: with 40k, 32 KiB always pass. A request that is being served takes
	// two buffers, and up to five with HTTP/2 and TLS. A connection that waits for the next
	// request takes none. With 40k, 10,000 requests at once may take 0.8 to 2 GB.
	BufferSize Size `json:"bufferSize"`
	// HardStopAfter is how long a worker may serve old connections after a
	// reload.
	HardStopAfter Duration `json:"hardStopAfter"`
	// IdleCloseOnResponse keeps idle connections of clients open in the old worker after a
	// reload, until the client has sent another request, whose answer says that the
	// connection closes, or until timeouts.httpKeepAlive. Without it the reload closes idle
	// connections, and a request that is on its way at that moment is lost.
	IdleCloseOnResponse bool `json:"idleCloseOnResponse"`
	// CloseSpreadTime is the time after a reload over which the old worker spreads closing
	// connections, so that not all clients connect again at once. HAProxy then closes idle
	// connections too, whatever idleCloseOnResponse says, and a request that is on its way
	// at that moment is lost. Without it, each connection closes with its next answer.
	CloseSpreadTime field.OptionalDuration `json:"closeSpreadTime"`
	// Timeouts are the timeouts of HAProxy's defaults section. Annotations change some
	// of them for their routes.
	Timeouts Timeouts `json:"timeouts"`
	// ErrorPages is the ConfigMap, as namespace/name, with pages for the errors that
	// HAProxy itself answers with. Answers of servers are not changed. Its keys are
	// statuses, such as 503 or 404.json. The extension .html, .txt, .json or .xml gives the
	// content type; without one a page is HTML, or JSON if it is a JSON object. A page may
	// have 12 KiB and is sent unchanged. Input that is not HTTP is answered before a page
	// can be chosen. A page that cannot be used is reported on the ConfigMap, and does not
	// affect the others. If empty, HAProxy answers with its own pages.
	ErrorPages string `json:"errorPages"`
	// Shared lists what objects of every namespace may name.
	Shared Shared `json:"shared"`
	// Countries says which country or region a client's address belongs to, for
	// allow-countries, deny-countries and a header to endpoints.
	Countries Countries `json:"countries"`
	// Agents are programs that HAProxy asks about requests, by the protocol of its stream processing
	// offload engine (SPOE), on the routes that name one with hapsnap.dev/agents. See docs/reference/waf.md.
	Agents []agents.Agent `json:"agents"`
	// WAF is the agent that looks for attacks in requests, on the routes with hapsnap.dev/waf. Without a
	// Service or a socket there is none, and these routes answer 503. See docs/reference/waf.md.
	WAF agents.WAF `json:"waf"`
	// Affinity configures the cookies that keep a client's session with one endpoint.
	Affinity Affinity `json:"affinity"`
	// Log says how and where HAProxy logs requests.
	Log logs.Log `json:"log"`
	// ExternalNames says which Services of type ExternalName are served. HAProxy resolves
	// their names while it runs, from its own network: everybody who may create such a
	// Service and an Ingress reaches what HAProxy reaches. The compiler can refuse a name,
	// but not the address that somebody's name server gives for it. If namespaces do not
	// trust one another, list the domains that you mean, or refuse them all.
	ExternalNames ExternalNames `json:"externalNames"`
	// DNS says how HAProxy resolves the names of such Services.
	DNS DNS `json:"dns"`
	// TCPServices are ports whose connections go to Services without a look at requests,
	// with or without TLS.
	TCPServices []TCPService `json:"tcpServices"`
	// TCPAnnotations says which ports Services may open by annotation. Entries of
	// tcpServices come first.
	TCPAnnotations TCPAnnotations `json:"tcpAnnotations"`
	// Snippets says which namespaces may have Ingresses that add lines of their own to
	// haproxy.cfg.
	Snippets Snippets `json:"snippets"`
	// ForeignAnnotations says what happens to Ingresses with annotations of other
	// controllers that hapsnap does not follow. With close, each is reported, and if such
	// an annotation protects something, the routes of the Ingress answer 503. So do the
	// routes of Ingresses to a Service with one that protects, if its controller reads
	// Services. With ignore, they are not reported.
	ForeignAnnotations ForeignAnnotations `json:"foreignAnnotations"`
	// Hosts says what happens when Ingresses of several namespaces name the same host. The
	// host belongs to the namespace of the oldest Ingress, which decides about the
	// certificate, client certificates, passthrough and aliases. With shared, the paths of
	// all namespaces are merged, and the owner gets a message that says who has some. With
	// owned, only the owner has paths, and the owner of a wildcard owns the younger hosts
	// below it; hapsnap.dev/share-host and sharedHosts let other namespaces in.
	Hosts HostPolicy `json:"hosts"`
	// SharedHosts are hosts that several namespaces may have paths of, with hosts: owned.
	SharedHosts []SharedHost `json:"sharedHosts"`
	// ReservedDomains are domains in which only some namespaces may have hosts, however old
	// the Ingresses of others are. Rules without a host, wildcards above the domain and
	// default backends of other namespaces get no requests for them. Routes of Gateways may
	// have such hosts, unless the listeners of the Gateway prevent it.
	ReservedDomains []ReservedDomain `json:"reservedDomains"`
	// TrustFileAges makes the compiler trust metadata.creationTimestamp in manifests. An
	// author of a manifest can write any time there. Without this option all objects of
	// files therefore have the same age, and if two claim the same thing, the first by
	// namespace and name gets it. Turn the option on for files that a cluster wrote.
	TrustFileAges bool `json:"trustFileAges"`
	// Limits bound what the objects of one namespace may cost a compile, so that excessive
	// ones harm no other namespace. What exceeds a limit is left out and reported: the
	// youngest Ingresses of the namespace, whose routes are closed if something protects
	// them.
	Limits Limits `json:"limits"`
	// Paths says how the paths of requests are compared with those of routes. An Ingress
	// can override it.
	Paths Paths `json:"paths"`
	// Namespaces are the namespaces from which Ingresses, Services, EndpointSlices,
	// ConfigMaps and Secrets are read. An empty list means all namespaces.
	Namespaces []string `json:"namespaces"`
	// NamespaceSelector selects by their labels, such as tenant=true, the namespaces from
	// which these objects are read. A namespace must match the selector and be one of
	// namespaces.
	NamespaceSelector string `json:"namespaceSelector"`
	// Secrets says which Secrets are read from a cluster. From files the compiler reads
	// all.
	Secrets kinds.Watched `json:"secrets"`
	// PublicSecrets are Secrets, each as namespace/name, without secret values, such as
	// settings. The values of all other Secrets that were read must not be in a snapshot. A
	// private key never may.
	PublicSecrets []string `json:"publicSecrets"`
	// ConfigMaps says which ConfigMaps are read from a cluster. From files the compiler
	// reads all.
	ConfigMaps kinds.Watched `json:"configMaps"`
	// Certificates says which certificates a snapshot is served with, and where they come
	// from.
	Certificates Certificates `json:"certificates"`
	// Kinds are kinds of objects that templates read, with .Objects and .Indexed. They are
	// kinds of CustomResourceDefinitions, or kinds that the compiler reads anyway and whose
	// content a template needs.
	Kinds []kinds.Kind `json:"kinds"`
	// ShrinkGuard says when a configuration that lost much at once waits for somebody to
	// approve it. A volume that is half mounted, or a cluster that is half read, looks like
	// deletions. The compiler compares with the newest snapshot of the store, so that a
	// restart changes nothing. While a configuration is held, the published snapshot stays.
	// A later configuration that has not lost as much is published as usual.
	// The loss of one namespace, or of up to a quarter of all namespaces, holds back nobody else: if a running
	// compiler saw that their objects were deleted, or leaves them out, and others lost fewer than minLost, the
	// compiler publishes. It cannot know that after a restart, after a change of the configuration or the
	// templates, and of files.
	// A compiler that starts and may not read half of the ConfigMaps that the newest snapshot was made of, in several
	// namespaces, waits for approval too, or until it may read them. It also waits if it may not read one that all
	// namespaces may need: one of shared or countries, or the parameters of an IngressClass.
	ShrinkGuard ShrinkGuard `json:"shrinkGuard"`
	// IngressStatus says which addresses the compiler writes into the status of an Ingress
	// while the published snapshot has lines of it, also lines that keep its routes closed.
	// The compiler removes its addresses from an Ingress without such lines, and from one
	// that moves to another class, unless another controller has written its own in the
	// meantime. With neither a Service nor addresses the compiler writes no status.
	IngressStatus IngressStatus `json:"ingressStatus"`
	// GatewayAPI says whether Gateways and their routes are compiled, and whose.
	GatewayAPI gateways.API `json:"gatewayAPI"`
	// Admission says how the admission webhook answers, if there is one.
	Admission Admission `json:"admission"`
}

// Endpoints says where the endpoints of Services come from.
type Endpoints string

// Live endpoints are joined by the pusher. Recorded ones are in a file of the snapshot, as
// the compiler saw them.
const (
	Live     Endpoints = "live"
	Recorded Endpoints = "recorded"
)

// Duration is a time such as 30s. It is written as in HAProxy: a number and one of the units
// us, ms, s, m, h, d.
type Duration string

// Timeouts are those of HAProxy's defaults section.
type Timeouts struct {
	// Connect is the time to connect to an endpoint.
	Connect Duration `json:"connect"`
	// Client is how long a client may be silent when it should send or receive.
	Client Duration `json:"client"`
	// Server is how long an endpoint may be silent when it should send or
	// receive.
	Server Duration `json:"server"`
	// HTTPRequest is the time in which a client must send the header of a request.
	HTTPRequest Duration `json:"httpRequest"`
	// HTTPKeepAlive is the time to wait for the next request on the same connection.
	HTTPKeepAlive Duration `json:"httpKeepAlive"`
	// Tunnel is how long a WebSocket, or another upgraded connection, may be silent.
	Tunnel Duration `json:"tunnel"`
	// ClientFin is how long a client may be silent after it closed its half of the
	// connection, as many WebSockets do. Without it, client or tunnel applies.
	ClientFin field.OptionalDuration `json:"clientFin"`
	// ServerFin is how long an endpoint may be silent after it closed its half.
	ServerFin field.OptionalDuration `json:"serverFin"`
	// Check is how long a health check may take after it connected. Without it, the
	// interval of the checks applies.
	Check field.OptionalDuration `json:"check"`
	// Queue is how long a request waits for an endpoint that has all the connections that
	// it may have.
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
		Status: Status{
			Port:       8404,
			Addresses:  []string{},
			Prometheus: StatusPage{Enabled: true, Path: "/metrics"},
			Stats:      StatusPage{Path: "/stats"},
			Ready:      Ready{Services: []string{}},
		},
		HAProxyVersion: "2.6",
		HardStopAfter:  "30m",

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
		Limits: Limits{ // far above what people need, and far below what would slow a compile down
			IngressRoutes: 10_000, NamespaceRoutes: 50_000, IngressRouteBytes: 2 << 20, NamespaceRouteBytes: 8 << 20,
			IngressOptionBytes: 2 << 20, NamespaceOptionBytes: 16 << 20, NamespaceListBytes: 8 << 20, NamespaceWAFPolicies: 16,
			NamespaceCertificates: 10_000, NamespaceExternalNames: 1_000, NamespacePorts: 1_000, NamespaceCountedClients: 400_000, CountedClients: 1_000_000,
			SnapshotBytes: 60 << 20,
		},
		Paths:      Paths{Normalize: true, Unsafe: RejectUnsafe, Parameters: RejectParameters},
		GatewayAPI: gateways.API{ControllerName: "hapsnap.dev/gateway-controller", Addresses: []string{}, Services: gateways.Services{Type: gateways.ClusterIP, Labels: []string{}, Annotations: []string{}}},
		Admission:  Admission{FailurePolicy: IgnoreFailure},
	}
}

// Size is a number of bytes such as 40k: a number, perhaps with k for 1,024 bytes or m for 1,024 times 1,024.
type Size string

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,8})([km]?)$`)

// Bytes returns the number of bytes of a valid size, otherwise 0.
func (s Size) Bytes() int {
	m := sizeForm.FindStringSubmatch(string(s))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // at most nine digits
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

// maxThreads is the most threads that HAProxy 2.6 accepts.
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
	c.HAProxyVersion.check(f.At("haproxyVersion"))
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
	c.Countries.check(f.At("countries"))
	agents.CheckAll(f.At("agents"), c.Agents)
	c.WAF.Check(f.At("waf"))
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
	c.GatewayAPI.Check(f.At("gatewayAPI"), c.Bind.Addresses, c.Status.Addresses)
	c.Admission.check(f.At("admission"))
	return found
}

// listener is a port that HAProxy opens, and the fields that configure it.
type listener struct {
	path []string // below spec
	port int
}

// listeners returns every TCP port that HAProxy opens. If two ports are the same, the later one gets the
// error.
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

// checkOptional checks a duration that may be missing.
func checkOptional(f field.Errors, d field.OptionalDuration) {
	if d != "" {
		checkDuration(f, Duration(d))
	}
}

// checkDuration checks a duration that must be set.
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

// HAProxyVersion is a branch of HAProxy such as 3.2.
type HAProxyVersion string

// The oldest branch that is supported.
const oldestMajor, oldestMinor = 2, 6

var haproxyVersionForm = regexp.MustCompile(`^([0-9]{1,3})\.([0-9]{1,3})$`)

// AtLeast reports whether a valid version is the one with these numbers, or newer.
func (v HAProxyVersion) AtLeast(major, minor int) bool {
	m := haproxyVersionForm.FindStringSubmatch(string(v))
	if m == nil {
		return false
	}
	isMajor, _ := strconv.Atoi(m[1])
	isMinor, _ := strconv.Atoi(m[2])
	return isMajor > major || isMajor == major && isMinor >= minor
}

func (v HAProxyVersion) check(f field.Errors) {
	if !haproxyVersionForm.MatchString(string(v)) {
		f.Add(fmt.Sprintf("%q is not a version", string(v)), `use two numbers, such as "3.2"`)
	} else if !v.AtLeast(oldestMajor, oldestMinor) {
		f.Add(fmt.Sprintf("%s is too old", v), fmt.Sprintf("%d.%d is the oldest that is supported", oldestMajor, oldestMinor))
	}
}
