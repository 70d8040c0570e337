// Package agents has the sections agents and waf of the configuration. They are about programs that HAProxy
// asks about requests, with SPOP, the protocol of its stream processing offload engine.
package agents

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Timeouts bound how long HAProxy waits for an agent.
type Timeouts struct {
	// Hello is how long the agent may take to greet a new connection, at most 30s. The default is 1s. HAProxy
	// 3.1 and later ignore it.
	Hello field.OptionalDuration `json:"hello"`
	// Idle is how long a connection to the agent may be idle, at most 1h. The default is 1m. HAProxy 3.1 and
	// later ignore it.
	Idle field.OptionalDuration `json:"idle"`
	// Processing is how long the agent may take to answer about a request, at most 30s. The default is 1s. A
	// later answer counts as an error.
	Processing field.OptionalDuration `json:"processing"`
}

// Agent is a program that HAProxy asks about requests.
type Agent struct {
	// Name is the name that hapsnap.dev/agents uses: at most 30 lower case letters, digits and hyphens.
	// Variables of the agent are txn.NAME.VARIABLE, with "_" for each hyphen.
	Name string `json:"name"`
	// Service is the Service of the agent, as namespace/name:port with the name of the port, or as
	// namespace/name if its port has none. The pusher joins its endpoints with the snapshot, like those of
	// backends. HAProxy checks their health, and does not ask those that are down.
	Service string `json:"service"`
	// Socket is the path of a unix socket on which the agent listens, beside each HAProxy. It replaces a
	// Service.
	Socket string `json:"socket"`
	// Timeouts bound how long HAProxy waits.
	Timeouts Timeouts `json:"timeouts"`
	// Namespaces are the namespaces whose objects may name the agent; "*" means all. With an empty list no
	// object may.
	Namespaces []string `json:"namespaces"`
	// Messages are what HAProxy sends to the agent.
	Messages []Message `json:"messages"`
	// Variables are the names of the variables that the agent may set, in the scope txn, without a prefix.
	Variables []string `json:"variables"`
	// RefuseIf is one of the variables. If the agent sets it to anything but false or 0, HAProxy answers the
	// request with 403.
	RefuseIf string `json:"refuseIf"`
	// OnError says what happens to a request about which the agent gives no answer, because it is down, takes
	// too long, or answers with an error. With closed, the default, the request is answered 503. With open,
	// it goes on.
	OnError OnError `json:"onError"`
}

// OnError says what happens to a request about which there is no answer.
type OnError string

// The answers.
const (
	Closed OnError = "closed"
	Open   OnError = "open"
)

// Message is what an agent gets about a request, or about its response.
type Message struct {
	// Name is the name of the message: letters in lower case, digits and hyphens.
	Name string `json:"name"`
	// On says when the message is sent. With request, the default, it is sent before an endpoint gets the
	// request, and the request waits for the agent. With response, it is sent when the endpoint has
	// responded, and the response waits.
	On Moment `json:"on"`
	// Arguments are the arguments of the message, in order.
	Arguments []Argument `json:"arguments"`
}

// Moment is when a [Message] is sent.
type Moment string

// The moments.
const (
	Request  Moment = "request"
	Response Moment = "response"
)

// Argument is a part of a request, or of its response.
type Argument struct {
	// Name is the name of the argument.
	Name string `json:"name"`
	// Value says which part the argument is. The values that end in header, cookie or parameter take the name
	// of that part from of. Messages on response can have the values that begin with response,
	// client-address, client-port and route, and no others; messages on request have all others. The body is
	// as much as fits into HAProxy's buffer. If an argument is body, the request waits until the buffer is
	// full or the body is complete.
	Value Value `json:"value"`
	// Of is the name of the header, of the cookie, or of the parameter of the query.
	Of string `json:"of"`
}

// Value is a part of a request or of its response.
type Value string

// The values.
const (
	ClientAddress   Value = "client-address"
	ClientPort      Value = "client-port"
	TLS             Value = "tls"
	ServerName      Value = "server-name"
	Method          Value = "method"
	Path            Value = "path"
	Query           Value = "query"
	Parameter       Value = "parameter"
	URL             Value = "url"
	Version         Value = "version"
	Host            Value = "host"
	Headers         Value = "headers"
	Header          Value = "header"
	Cookie          Value = "cookie"
	Body            Value = "body"
	BodySize        Value = "body-size"
	Route           Value = "route"
	ResponseStatus  Value = "response-status"
	ResponseHeaders Value = "response-headers"
	ResponseHeader  Value = "response-header"
)

// values are the sample fetches of HAProxy; %s is a name.
var values = map[Value]struct {
	fetch string
	on    []Moment
}{
	ClientAddress:   {"src", []Moment{Request, Response}},
	ClientPort:      {"src_port", []Moment{Request, Response}},
	Route:           {"var(txn.agent_route)", []Moment{Request, Response}},
	TLS:             {"ssl_fc", []Moment{Request}},
	ServerName:      {"ssl_fc_sni", []Moment{Request}},
	Method:          {"method", []Moment{Request}},
	Path:            {"path", []Moment{Request}},
	Query:           {"query", []Moment{Request}},
	Parameter:       {"url_param(%s)", []Moment{Request}},
	URL:             {"url", []Moment{Request}},
	Version:         {"req.ver", []Moment{Request}},
	Host:            {"req.hdr(host)", []Moment{Request}},
	Headers:         {"req.hdrs", []Moment{Request}},
	Header:          {"req.fhdr(%s)", []Moment{Request}},
	Cookie:          {"req.cook(%s)", []Moment{Request}},
	Body:            {"req.body", []Moment{Request}},
	BodySize:        {"req.body_size", []Moment{Request}},
	ResponseStatus:  {"status", []Moment{Response}},
	ResponseHeaders: {"res.hdrs", []Moment{Response}},
	ResponseHeader:  {"res.fhdr(%s)", []Moment{Response}},
}

// Fetch returns the sample fetch of a valid argument, as haproxy.cfg has it.
func (a Argument) Fetch() string {
	fetch := values[a.Value].fetch
	if strings.Contains(fetch, "%s") {
		return fmt.Sprintf(fetch, a.Of)
	}
	return fetch
}

// MayName reports whether objects of a namespace may name the agent.
func (a Agent) MayName(namespace string) bool {
	return slices.Contains(a.Namespaces, "*") || slices.Contains(a.Namespaces, namespace)
}

// Prefix is the prefix of the agent's variables.
func (a Agent) Prefix() string { return strings.ReplaceAll(a.Name, "-", "_") }

// Backend is the name of the agent's backend.
func (a Agent) Backend() string { return "hapsnap_agent-" + a.Name }

// Engine is the name of the agent's filter in a backend.
func (a Agent) Engine() string { return "agent-" + a.Name }

// Sends returns the messages that are sent at a moment, which is "request" or "response".
func (a Agent) Sends(on string) []Message {
	var out []Message
	for _, m := range a.Messages {
		if string(cmp.Or(m.On, Request)) == on {
			out = append(out, m)
		}
	}
	return out
}

// ReadsBody reports whether the agent gets the body of requests.
func (a Agent) ReadsBody() bool {
	return slices.ContainsFunc(a.Messages, func(m Message) bool {
		return slices.ContainsFunc(m.Arguments, func(a Argument) bool { return a.Value == Body })
	})
}

// Endpoint is the address of an agent, with its timeouts.
type Endpoint struct {
	Service, Socket string
	Timeouts        Timeouts
}

// Endpoint returns the address of the agent.
func (a Agent) Endpoint() Endpoint { return Endpoint{a.Service, a.Socket, a.Timeouts.withDefaults()} }

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{cmp.Or(t.Hello, "1s"), cmp.Or(t.Idle, "1m"), cmp.Or(t.Processing, "1s")}
}

// Closes reports whether requests are refused if the agent gives no answer.
func (a Agent) Closes() bool { return a.OnError != Open }

// Target returns the Service of a valid endpoint.
func (e Endpoint) Target() snapshots.ServicePort {
	target, _ := snapshots.ParseServicePort(e.Service)
	return target
}

// WAF is the agent that inspects requests for hapsnap.dev/waf.
type WAF struct {
	// Service is the Service of the agent, as in agents[].service.
	Service string `json:"service"`
	// Socket is the path of a unix socket, as in agents[].socket.
	Socket string `json:"socket"`
	// Timeouts bound how long HAProxy waits.
	Timeouts Timeouts `json:"timeouts"`
}

// Endpoint returns the address of the agent.
func (w WAF) Endpoint() Endpoint { return Endpoint{w.Service, w.Socket, w.Timeouts.withDefaults()} }

// Enabled reports whether the agent is configured.
func (w WAF) Enabled() bool { return w.Service != "" || w.Socket != "" }

// These limit how many there may be, and the lengths of names.
const (
	mostAgents, mostMessages, mostArguments, mostVariables = 16, 16, 32, 32
)

var (
	nameForm     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,29}$`)
	messageForm  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	variableForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	tokenForm    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	socketForm   = regexp.MustCompile(`^(/[A-Za-z0-9._-]{1,60}){1,8}$`)
	durationForm = regexp.MustCompile(`^([1-9][0-9]{0,7})(ms|s|m|h)$`)
)

// longestSocket is the longest path of a socket in bytes. The kernel accepts 107.
const longestSocket = 90

// reserved are names that no variable may have, since HAProxy itself sets these variables of an agent.
var reserved = []string{"error", "time"}

// CheckAll checks a list of agents.
func CheckAll(f field.Errors, all []Agent) {
	if len(all) > mostAgents {
		f.Add(fmt.Sprintf("there are %d agents", len(all)), fmt.Sprintf("have %d at most", mostAgents))
	}
	seen := map[string]bool{}
	for i, a := range all {
		at := f.Element(i)
		switch {
		case !nameForm.MatchString(a.Name):
			at.At("name").Add(fmt.Sprintf("%q is not the name of an agent", a.Name), "use at most 30 letters in lower case, digits and hyphens")
		case a.Name == "waf":
			at.At("name").Add("waf is the name of another agent", "for that, see the section waf; use another name")
		case seen[a.Name]:
			at.At("name").Add(fmt.Sprintf("%s is the name of another agent", a.Name), "give each a name of its own")
		}
		seen[a.Name] = true
		a.check(at)
	}
}

func (a Agent) check(f field.Errors) {
	a.Endpoint().check(f, true)
	for i, name := range a.Namespaces {
		if name != "*" && len(validation.IsDNS1123Label(name)) > 0 {
			f.At("namespaces").Element(i).Add(fmt.Sprintf("%q is not the name of a namespace", name), "use names of namespaces, or * for all")
		}
	}
	if a.OnError != "" && a.OnError != Closed && a.OnError != Open {
		f.At("onError").Add(fmt.Sprintf("%q is neither closed nor open", string(a.OnError)), "use closed or open")
	}
	variables := f.At("variables")
	if len(a.Variables) > mostVariables {
		variables.Add(fmt.Sprintf("lists %d variables", len(a.Variables)), fmt.Sprintf("use %d at most", mostVariables))
	}
	for i, name := range a.Variables {
		switch {
		case !variableForm.MatchString(name):
			variables.Element(i).Add(fmt.Sprintf("%q is not the name of a variable", name), "use letters in lower case, digits and _")
		case slices.Contains(reserved, name):
			variables.Element(i).Add(name+" is what HAProxy itself says of the agent", "use another name")
		}
	}
	if a.RefuseIf != "" && !slices.Contains(a.Variables, a.RefuseIf) {
		f.At("refuseIf").Add(fmt.Sprintf("%q is none of the variables", a.RefuseIf), "list it in variables")
	}
	a.checkMessages(f.At("messages"))
}

func (a Agent) checkMessages(f field.Errors) {
	switch {
	case len(a.Messages) > mostMessages:
		f.Add(fmt.Sprintf("lists %d messages", len(a.Messages)), fmt.Sprintf("use %d at most", mostMessages))
	case len(a.Sends(string(Request))) == 0:
		f.Add("lists no message on request: the agent would be asked about none", "list one")
	}
	seen := map[string]bool{}
	for i, m := range a.Messages {
		at := f.Element(i)
		switch {
		case !messageForm.MatchString(m.Name):
			at.At("name").Add(fmt.Sprintf("%q is not the name of a message", m.Name), "use letters in lower case, digits and hyphens")
		case seen[m.Name]:
			at.At("name").Add(m.Name+" is the name of another message", "give each a name of its own")
		}
		seen[m.Name] = true
		if m.On != "" && m.On != Request && m.On != Response {
			at.At("on").Add(fmt.Sprintf("%q is neither request nor response", string(m.On)), "use request or response")
		}
		if len(m.Arguments) > mostArguments {
			at.At("arguments").Add(fmt.Sprintf("lists %d arguments", len(m.Arguments)), fmt.Sprintf("use %d at most", mostArguments))
		}
		names := map[string]bool{}
		for j, x := range m.Arguments {
			x.check(at.At("arguments").Element(j), cmp.Or(m.On, Request))
			if names[x.Name] {
				at.At("arguments").Element(j).At("name").Add(x.Name+" is the name of another argument", "give each a name of its own")
			}
			names[x.Name] = true
		}
	}
}

func (a Argument) check(f field.Errors, on Moment) {
	if !messageForm.MatchString(a.Name) {
		f.At("name").Add(fmt.Sprintf("%q is not the name of an argument", a.Name), "use letters in lower case, digits and hyphens")
	}
	v, known := values[a.Value]
	takes := strings.Contains(v.fetch, "%s")
	switch {
	case !known:
		f.At("value").Add(fmt.Sprintf("%q is not a value", string(a.Value)), "docs/reference/waf.md lists those that are")
	case !slices.Contains(v.on, on) && (on == Request || on == Response):
		f.At("value").Add(fmt.Sprintf("%s is not known on %s", a.Value, on), "docs/reference/waf.md says when each is")
	case takes && !tokenForm.MatchString(a.Of):
		f.At("of").Add(fmt.Sprintf("%q is not the name of a header, a cookie or a parameter", a.Of), "use letters, digits, - and _")
	case !takes && a.Of != "":
		f.At("of").Add("is not for the value "+string(a.Value), "leave it out")
	}
}

// Check checks the agent.
func (w WAF) Check(f field.Errors) { w.Endpoint().check(f, w.Enabled()) }

func (e Endpoint) check(f field.Errors, needed bool) {
	switch {
	case needed && e.Service == "" && e.Socket == "":
		f.At("service").Add("neither a Service nor a socket is named", "use such as edge/agent:spop, or a socket")
	case e.Service != "" && e.Socket != "":
		f.At("socket").Add("is given besides a Service", "use one or the other")
	case e.Socket != "" && (!socketForm.MatchString(e.Socket) || len(e.Socket) > longestSocket || strings.Contains(e.Socket, "/.")):
		f.At("socket").Add(fmt.Sprintf("%q is not the path of a socket", e.Socket), "use a path of plain words, at most 90 bytes long, such as /run/agents/bots.sock")
	case e.Service != "":
		f.At("service").Add(checkService(e.Service), "use namespace/name:port with the name of the port, such as edge/agent:spop, or namespace/name if the port has none")
	}
	e.Timeouts.check(f.At("timeouts"))
}

func checkService(text string) string {
	target, err := snapshots.ParseServicePort(text)
	if err != nil || len(validation.IsDNS1123Label(target.Namespace)) > 0 || len(validation.IsDNS1035Label(target.Service)) > 0 ||
		target.Port != "" && len(validation.IsValidPortName(target.Port)) > 0 {
		return fmt.Sprintf("%q is not namespace/name:port", text)
	}
	return ""
}

func (t Timeouts) check(f field.Errors) {
	for _, x := range []struct {
		name  string
		value field.OptionalDuration
		most  int // milliseconds
	}{{"hello", t.Hello, 30_000}, {"idle", t.Idle, 3_600_000}, {"processing", t.Processing, 30_000}} {
		switch n := milliseconds(x.value); {
		case n == 0:
			f.At(x.name).Add(fmt.Sprintf("%q is not a time", string(x.value)), "use a number and a unit: ms, s, m or h, such as 500ms")
		case n > x.most:
			f.At(x.name).Add(string(x.value)+" is too long", fmt.Sprintf("use %ds at most", x.most/1000))
		}
	}
}

// milliseconds returns a time as a number, 0 if it is not one.
func milliseconds(d field.OptionalDuration) int {
	m := durationForm.FindStringSubmatch(string(d))
	if m == nil {
		return 0
	}
	n := 0
	for _, c := range m[1] {
		n = 10*n + int(c-'0')
	}
	return n * map[string]int{"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[m[2]]
}
