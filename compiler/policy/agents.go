package policy

import "strings"

// Agent has a program be asked about requests, and about answers, by SPOP. What it is told is in a file of the
// snapshot: see templates/files/spoe-agents.cfg.
type Agent struct {
	Name string
	// Engine is what the agent is called among the filters of a backend, and Prefix what its variables begin with.
	Engine, Prefix string
	// Answers says that it is told of answers, too.
	Answers bool
	// Wait is how long the body of a request is waited for, which the agent is told; "" is not at all.
	Wait string
	// Closes refuses requests about which the agent says nothing.
	Closes bool
	// RefuseIf is the variable that refuses a request, or "".
	RefuseIf string
}

// Kind returns "Agent".
func (Agent) Kind() Kind { return "Agent" }

// WAF has requests looked through for attacks, by an agent that is told the policy with each: see
// templates/files/spoe-waf.cfg.
type WAF struct {
	// Namespace and Name are those of the ConfigMap that has the policy, and By is the namespace of the objects that
	// name it.
	Namespace, Name, By string
	// Policy is the text of it, in the form of package waf/policy, and Rules the version of the rules.
	Policy, Rules string
	// Open lets requests pass about which the agent says nothing. Else they are refused.
	Open bool
	// Partial lets bodies pass of which the agent is told a part only. Else they are refused.
	Partial bool
	// BodyLimit is how many bytes of a body the agent is told; 0 is what there is room for.
	BodyLimit int
	// Wait is how long a body is waited for.
	Wait string
	// Buffer is the size of HAProxy's buffers, of which one holds all that the agent is told.
	Buffer int
}

// Kind returns "WAF".
func (WAF) Kind() Kind { return "WAF" }

// frame is what a message takes besides the policy, the request and its body: names, numbers, addresses and the name of
// the backend.
const frame = 2048

// Room is how many bytes a request may have for all of it to be told in one message, after the policy.
func (w WAF) Room() int { return max(0, w.Buffer-len(w.Policy)-frame) }

// Part is how many bytes of a body are told where the rest may pass.
func (w WAF) Part() int {
	if half := w.Room() / 2; w.BodyLimit == 0 || w.BodyLimit > half {
		return half
	}
	return w.BodyLimit
}

// HeadRoom is how many bytes a request without its body may have then.
func (w WAF) HeadRoom() int { return w.Room() - w.Part() }

// PolicyName names the ConfigMap of the policy for people.
func (w WAF) PolicyName() string { return strings.TrimPrefix(w.Namespace+"/"+w.Name, "/") }
