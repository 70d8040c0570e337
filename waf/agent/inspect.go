package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
	return nil // such as body-size, by which HAProxy decides
}

// A finding is the result of an inspection.
type finding struct {
	action string
	status int
	rule   int // the first with the highest severity
	score  int
	rules  []types.MatchedRule
}

// inspect applies the rules of a policy to a request.
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

// run passes a request to a transaction, and reads the result.
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

// severity returns how severe a rule is: smaller numbers are more severe.
func severity(r types.MatchedRule) int {
	if s := int(r.Rule().Severity()); s >= 0 {
		return s
	}
	return 8
}

// score returns the sum of the scores of the rules.
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

// addHeaders adds the headers in lines "Name: value", and reports whether Host is one of them.
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

// Bounds of a line of the audit log.
const (
	maxAuditRules = 32
	maxAuditText  = 256 // bytes of a path, host or message
	maxMatched    = 80  // bytes of what a rule matched
	maxVersion    = 32  // bytes of a version of the rules
)

// An auditLine is a request in the audit log.
type auditLine struct {
	Time     time.Time   `json:"time"`
	ID       string      `json:"id,omitempty"`
	Action   string      `json:"action"`
	Reason   string      `json:"reason,omitempty"`
	Client   string      `json:"client,omitempty"`
	Host     string      `json:"host,omitempty"`
	Method   string      `json:"method,omitempty"`
	Path     string      `json:"path,omitempty"`
	Route    string      `json:"route,omitempty"`
	Policy   string      `json:"policy,omitempty"`
	Score    int         `json:"score"`
	Rules    []auditRule `json:"rules,omitempty"`
	LeftOut  int         `json:"rules_left_out,omitempty"`
	Versions string      `json:"rules_version,omitempty"`
	// With is the version of the rules that was used, if it is not the requested one.
	With string `json:"inspected_with,omitempty"`
}

// An auditRule is a rule that matched.
type auditRule struct {
	ID       int      `json:"id"`
	Severity string   `json:"severity"`
	Message  string   `json:"message"`
	Tags     []string `json:"tags,omitempty"`
	// Target is the part of the request that matched, and Matched a part of its value.
	Target  string `json:"target,omitempty"`
	Matched string `json:"matched,omitempty"`
}

// An audit writes lines, and drops those that would have to wait, so that no request waits for a log.
type audit struct {
	lines chan []byte
	lost  func()
}

func newAudit(lost func()) *audit { return &audit{lines: make(chan []byte, 4096), lost: lost} }

// run writes until ctx is done, and then what is still queued.
func (a *audit) run(ctx context.Context, out io.Writer) {
	for {
		select {
		case line := <-a.lines:
			_, _ = out.Write(line) // to stdout: there is nobody else to tell
		case <-ctx.Done():
			for {
				select {
				case line := <-a.lines:
					_, _ = out.Write(line)
				default:
					return
				}
			}
		}
	}
}

func (a *audit) say(line auditLine) {
	text, err := json.Marshal(line)
	if err != nil {
		a.lost()
		return
	}
	select {
	case a.lines <- append(text, '\n'):
	default:
		a.lost()
	}
}

// describe returns a line about a request.
func describe(m *message, digest string, f finding) auditLine {
	line := auditLine{
		Time: time.Now().UTC(), ID: bounded(m.id.Text(), maxAuditText), Action: f.action, Client: m.src.Text(),
		Host: bounded(m.host.Text(), maxAuditText), Method: bounded(m.method.Text(), 32), Path: bounded(m.path.Text(), maxAuditText),
		Route: bounded(m.route.Text(), maxAuditText), Policy: digest, Score: f.score, Versions: bounded(m.rules.Text(), maxVersion),
	}
	if rules, carried := ruleSetFor(m.rules.Bytes()); !carried && f.action != "" && f.action != actionError {
		line.With = rules.version
	}
	for i, r := range f.rules {
		if i == maxAuditRules {
			line.LeftOut = len(f.rules) - i
			break
		}
		rule := auditRule{ID: r.Rule().ID(), Severity: r.Rule().Severity().String(), Message: bounded(r.Message(), maxAuditText)}
		for _, tag := range r.Rule().Tags() {
			if strings.HasPrefix(tag, "attack-") || strings.HasPrefix(tag, "paranoia-level/") {
				rule.Tags = append(rule.Tags, tag)
			}
		}
		if found := r.MatchedDatas(); len(found) > 0 {
			d := found[0]
			rule.Target = d.Variable().Name()
			if key := d.Key(); key != "" {
				rule.Target += ":" + bounded(key, 64)
			}
			rule.Matched = matched(d.Variable().Name(), d.Key(), d.Data(), d.Value())
		}
		line.Rules = append(line.Rules, rule)
	}
	return line
}

// secretName matches names of parameters, cookies and headers whose values must not be logged.
var secretName = regexp.MustCompile(`(?i)auth|cookie|passw|pwd|secret|token|session|api-?_?key|credential`)

// matched returns a bounded part of the value that a rule matched. It returns nothing that may be a secret, and
// at most half of a whole value.
func matched(variable, key, data, value string) string {
	if strings.Contains(variable, "COOKIES") || secretName.MatchString(key) {
		return ""
	}
	part, ok := strings.CutPrefix(data, "Matched Data: ")
	if !ok {
		return ""
	}
	if end := strings.Index(part, " found within "); end >= 0 {
		part = part[:end]
	}
	if len(value) > 0 && len(part) >= len(value) {
		part = part[:(len(part)+1)/2]
	}
	return bounded(part, maxMatched)
}

// bounded returns the beginning of a text, as UTF-8.
func bounded(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) {
		return text
	}
	cut := strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD")
	if len(text) > most {
		cut += "… (" + strconv.Itoa(len(text)) + " bytes)"
	}
	return cut
}
