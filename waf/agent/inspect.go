package agent

import (
	"bytes"
	"net"
	"strconv"
	"strings"

	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/experimental/plugins/plugintypes"
	"github.com/corazawaf/coraza/v3/types"

	"github.com/hapsnap/hapsnap/waf/policy"
	"github.com/hapsnap/hapsnap/waf/spop"
)

// Actions that the agent answers.
const (
	actionAllow  = "allow"
	actionDetect = "detect"
	actionDeny   = "deny"
	actionError  = "error"
)

// A message is a request as HAProxy sends it. Its bytes are those of the frame.
type message struct {
	policy, rules, id, src, method, path, query, version, host, headers, body, route spop.Value
	srcPort                                                                          spop.Value
}

// messageName is that of the only message that the agent answers.
const messageName = "request"

// readMessage returns the request among the messages of a frame.
func readMessage(messages []spop.Message) (m message, found bool) {
	for _, said := range messages {
		if string(said.Name) != messageName {
			continue
		}
		for _, a := range said.Args {
			if field := m.field(string(a.Name)); field != nil {
				*field = a.Value
			}
		}
		return m, true
	}
	return m, false
}

func (m *message) field(name string) *spop.Value {
	switch name {
	case "policy":
		return &m.policy
	case "rules":
		return &m.rules
	case "id":
		return &m.id
	case "src":
		return &m.src
	case "src-port":
		return &m.srcPort
	case "method":
		return &m.method
	case "path":
		return &m.path
	case "query":
		return &m.query
	case "version":
		return &m.version
	case "host":
		return &m.host
	case "headers":
		return &m.headers
	case "body":
		return &m.body
	case "route":
		return &m.route
	}
	return nil // such as body-size, which HAProxy decides by
}

// A finding is what an inspection came to.
type finding struct {
	action string
	status int
	rule   int // the first with the highest severity
	score  int
	rules  []types.MatchedRule
}

// inspect puts a request before the rules of a policy.
func inspect(engine coraza.WAF, p policy.Policy, m *message) (finding, error) {
	var tx types.Transaction
	if id := m.id.Text(); id != "" {
		tx = engine.NewTransactionWithID(id)
	} else {
		tx = engine.NewTransaction()
	}
	found, err := run(tx, m)
	if err == nil && tx.IsInterrupted() {
		found.action, found.status = actionDetect, 403
		if p.Engine == policy.Block {
			found.action = actionDeny
		}
	}
	if closing := tx.Close(); err == nil {
		err = closing
	}
	return found, err
}

// run feeds a transaction, and reads what it found.
func run(tx types.Transaction, m *message) (finding, error) {
	tx.ProcessConnection(m.src.Text(), int(m.srcPort.Int()), "", 0)
	uri := m.path.Text()
	if uri == "" {
		uri = "/"
	}
	if query := m.query.Bytes(); len(query) > 0 {
		uri += "?" + string(query)
	}
	tx.ProcessURI(uri, m.method.Text(), "HTTP/"+m.version.Text())
	host := m.host.Text()
	tx.SetServerName(withoutPort(host))
	if !addHeaders(tx, m.headers.Bytes()) && host != "" {
		tx.AddRequestHeader("host", host)
	}
	if tx.ProcessRequestHeaders() == nil {
		if body := m.body.Bytes(); len(body) > 0 {
			if _, _, err := tx.WriteRequestBody(body); err != nil {
				return finding{}, err
			}
		}
		if _, err := tx.ProcessRequestBody(); err != nil {
			return finding{}, err
		}
	}
	found := finding{action: actionAllow, score: score(tx)}
	for _, r := range tx.MatchedRules() {
		if r.Message() == "" || !policy.InPolicies(r.Rule().ID()) {
			continue
		}
		if len(found.rules) == 0 || severity(r) < severity(found.rules[0]) {
			found.rule = r.Rule().ID()
			found.rules = append([]types.MatchedRule{r}, found.rules...)
			continue
		}
		found.rules = append(found.rules, r)
	}
	return found, nil
}

// severity returns how grave a rule is: the smaller, the graver.
func severity(r types.MatchedRule) int {
	if s := int(r.Rule().Severity()); s >= 0 {
		return s
	}
	return 8
}

// score returns what the rules added up to.
func score(tx types.Transaction) int {
	state, ok := tx.(plugintypes.TransactionState)
	if !ok {
		return 0
	}
	for _, text := range state.Variables().TX().Get("blocking_inbound_anomaly_score") {
		n, _ := strconv.Atoi(text)
		return n
	}
	return 0
}

// addHeaders adds those of lines "Name: value", and reports whether Host is one.
func addHeaders(tx types.Transaction, lines []byte) (host bool) {
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte("\r\n"))
		lines = rest
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		key := string(name)
		host = host || strings.EqualFold(key, "host")
		tx.AddRequestHeader(key, string(bytes.TrimLeft(value, " \t")))
	}
	return host
}

func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}
