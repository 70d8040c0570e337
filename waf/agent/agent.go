// Package agent inspects requests for HAProxy with the engine Coraza and the OWASP Core Rule Set.
//
// HAProxy sends each request as a message of package spop, with the text of the policy for it. So the agent has
// no configuration of its own: the snapshot that a worker runs says what is inspected and how, and two workers
// with two snapshots each get what they ask for. The agent answers with an action:
//
//	allow   the score stays below the threshold
//	detect  it reaches the threshold, and the engine of the policy is detect
//	deny    it reaches the threshold, and the engine is block
//	error   the request was not inspected
//
// HAProxy decides what happens after an error. The agent answers with one if it cannot read the policy, if the
// inspection takes too long or panics, and if there are too many requests. With [Options.ExactRules] it also
// does so for a version of the rules that it does not carry.
//
// The agent does not inspect responses: the message has none.
//
// Decisions:
//   - The engine always runs as if it blocked. So detecting and blocking take the same way through the rules, and a
//     policy that only detects shows exactly what it would deny.
//   - The agent expands exclusions to ids of detection rules. So an exclusion by a tag cannot switch off the
//     evaluation of the score, which has the same tag.
//   - A request whose inspection panics harms no other. Its transaction is not used again.
package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/waf/policy"
	"github.com/hapsnap/hapsnap/waf/spop"
)

// Options are those of an agent. Zero values are defaults.
type Options struct {
	// Deadline is how long a request may wait and be inspected. It has to be shorter than HAProxy's "timeout
	// processing".
	Deadline time.Duration
	// Parallel is how many requests are inspected at a time, and PerRoute how many of one route, since a
	// request that takes long holds up those of its own route. MaxRequests is how many may wait or be
	// inspected.
	Parallel, PerRoute, MaxRequests int
	// MaxConnections, MaxFrame (bytes) and MaxPolicies bound memory.
	MaxConnections, MaxFrame, MaxPolicies int
	// ExactRules makes the agent answer a request for a version of the rules that it does not carry with an
	// error. Otherwise it inspects the request with its newest rules: agents and snapshots are upgraded one
	// after the other, and meanwhile each protected route would be closed.
	ExactRules bool
	// Grace is how long requests may continue once the agent has to end.
	Grace time.Duration
	// Audit is where the audit log is written.
	Audit   io.Writer
	Metrics *prometheus.Registry
	Log     *slog.Logger
}

// Defaults.
const (
	DefaultDeadline       = 400 * time.Millisecond
	DefaultMaxRequests    = 1024
	DefaultMaxConnections = 1024
	DefaultMaxFrame       = 1 << 20
	DefaultMaxPolicies    = 64
	DefaultGrace          = 5 * time.Second
)

// Reasons why a request is not inspected.
const (
	reasonMessage  = "message"  // the frame has no request, or one without a policy
	reasonVersion  = "version"  // the request needs rules that the agent does not carry, and accepts no others
	reasonPolicy   = "policy"   // the policy cannot be read
	reasonDeadline = "deadline" // it took too long
	reasonBusy     = "busy"     // too many requests
	reasonPanic    = "panic"
	reasonEngine   = "engine"
)

var reasons = []string{reasonMessage, reasonVersion, reasonPolicy, reasonDeadline, reasonBusy, reasonPanic, reasonEngine}

// noPolicy stands for the digest if there is no policy.
const noPolicy = "none"

// An Agent inspects requests.
type Agent struct {
	options  Options
	server   *spop.Server
	metrics  *metrics
	policies *policies
	audit    *audit
	slots    chan struct{}
	shares   *shares
	ready    atomic.Bool
	// otherRules is a requested version of the rules that the agent does not carry, nil for none.
	otherRules atomic.Pointer[string]
	// inspect is the function inspect of the package, except in tests.
	inspect func(*prepared, *message) (finding, error)
}

// New returns an agent.
func New(o Options) *Agent {
	defaults(&o)
	a := &Agent{options: o, slots: make(chan struct{}, o.Parallel), shares: newShares(o.PerRoute)}
	a.server = &spop.Server{
		Handle: a.handle, Refuse: func(r *spop.Request) { a.fail(r, nil, noPolicy, reasonBusy, nil) },
		MaxFrame: o.MaxFrame, MaxRequests: o.MaxRequests, MaxConnections: o.MaxConnections, Grace: o.Grace, Log: o.Log,
	}
	a.metrics = newMetrics(o.Metrics, func() float64 { return float64(a.server.Connections()) }, func() float64 { return float64(a.server.Requests()) })
	a.policies = newPolicies(o.MaxPolicies, a.metrics)
	a.audit = newAudit(a.metrics.lost.Inc)
	a.inspect = func(p *prepared, m *message) (finding, error) { return inspect(p.engine, p.policy, m) }
	return a
}

func defaults(o *Options) {
	orDefault(&o.Deadline, DefaultDeadline)
	orDefault(&o.PerRoute, runtime.GOMAXPROCS(0))
	orDefault(&o.Parallel, 4*o.PerRoute)
	orDefault(&o.MaxRequests, DefaultMaxRequests)
	orDefault(&o.MaxConnections, DefaultMaxConnections)
	orDefault(&o.MaxFrame, DefaultMaxFrame)
	orDefault(&o.MaxPolicies, DefaultMaxPolicies)
	orDefault(&o.Grace, DefaultGrace)
	if o.Audit == nil {
		o.Audit = io.Discard
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T comparable](value *T, instead T) {
	var zero T
	if *value == zero {
		*value = instead
	}
}

// Ready returns why the agent cannot inspect yet, or nil.
func (a *Agent) Ready() error {
	if !a.ready.Load() {
		return errors.New("the rules are being prepared")
	}
	return nil
}

// Run prepares the rules, and serves connections until ctx is done.
func (a *Agent) Run(ctx context.Context, listener net.Listener) error {
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.audit.run(writing, a.options.Audit)
	}()
	defer func() { stop(); <-written }()
	// The first policy takes longest to prepare, since others share most of it. It is the default one.
	for _, rules := range ruleSets {
		first, done := a.policies.use(context.WithoutCancel(ctx), rules, []byte(policy.Policy{}.String()))
		done()
		if first.err != nil {
			listener.Close()
			return first.err
		}
	}
	a.ready.Store(true)
	return a.server.Serve(ctx, listener)
}

// handle answers a request.
func (a *Agent) handle(r *spop.Request) {
	m, found := readMessage(r.Messages)
	rules, carried := ruleSetFor(m.rules.Bytes())
	switch {
	case !found || len(m.policy.Bytes()) == 0:
		a.fail(r, &m, noPolicy, reasonMessage, nil)
		return
	case !carried:
		a.metrics.others.Inc()
		if a.options.ExactRules {
			a.fail(r, &m, noPolicy, reasonVersion, nil)
			return
		}
		if asked := bounded(m.rules.Text(), maxVersion); a.otherRules.Swap(&asked) == nil {
			a.options.Log.Warn("HAProxy asks for rules that this program does not have; requests are inspected with its newest",
				"asked", asked, "rules", rules.version)
		}
	}
	about := describe(&m, noPolicy, finding{}) // the memory of the frame is released when the deadline is over
	late := time.AfterFunc(a.options.Deadline, func() {
		if r.Answer(answer(finding{action: actionError})...) {
			a.failed(about, reasonDeadline, nil)
		}
	})
	defer late.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), a.options.Deadline)
	defer cancel()
	p, done := a.policies.use(ctx, rules, m.policy.Bytes())
	if p == nil {
		return // the deadline has passed, and the timer has answered
	}
	defer done()
	if p.err != nil {
		a.fail(r, &m, noPolicy, reasonPolicy, p.err)
		return
	}
	leave, ok := a.shares.enter(ctx, m.route.Text())
	if !ok {
		return
	}
	defer leave()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return
	}
	if ctx.Err() == nil {
		a.look(r, &m, p)
	}
}

// look inspects a request when it is its turn.
func (a *Agent) look(r *spop.Request, m *message, p *prepared) {
	start := time.Now()
	var f finding
	err := process.Caught(func() (err error) {
		f, err = a.inspect(p, m)
		return err
	})
	a.metrics.seconds.Observe(time.Since(start).Seconds())
	if err != nil {
		reason := reasonEngine
		if _, panicked := errors.AsType[process.PanicError](err); panicked {
			reason = reasonPanic
			a.options.Log.Error("an inspection panicked", "err", err)
		}
		a.fail(r, m, p.digest, reason, err)
		return
	}
	for _, rule := range f.rules {
		a.metrics.matched(rule.Rule().ID())
	}
	if !r.Answer(answer(f)...) {
		return // too late
	}
	a.metrics.answered(f.action, p.digest)
	if f.action != actionAllow {
		a.audit.say(describe(m, p.digest, f))
	}
}

// fail answers that a request was not inspected.
func (a *Agent) fail(r *spop.Request, m *message, digest, reason string, err error) {
	if !r.Answer(answer(finding{action: actionError})...) {
		return
	}
	line := auditLine{Time: time.Now().UTC(), Policy: digest}
	if m != nil {
		line = describe(m, digest, finding{})
	}
	a.failed(line, reason, err)
}

func (a *Agent) failed(line auditLine, reason string, err error) {
	a.metrics.errors.WithLabelValues(reason).Inc()
	a.metrics.answered(actionError, line.Policy)
	line.Action, line.Reason = actionError, reason
	if err != nil {
		line.Reason += ": " + bounded(err.Error(), maxAuditText)
	}
	a.audit.say(line)
}

// answer returns the variables for HAProxy to set.
func answer(f finding) []spop.Variable {
	out := []spop.Variable{{Name: "action", Value: spop.Text(f.action)}}
	if f.action == actionDetect || f.action == actionDeny {
		out = append(out, spop.Variable{Name: "status", Value: spop.Number(int64(f.status))})
	}
	if f.action != actionError {
		out = append(out, spop.Variable{Name: "score", Value: spop.Number(int64(f.score))})
	}
	if f.rule != 0 {
		out = append(out, spop.Variable{Name: "rule", Value: spop.Number(int64(f.rule))})
	}
	return out
}

// metrics are those of an agent. Their labels are bounded: policies by those in memory, rules by those that
// exist.
type metrics struct {
	requests *prometheus.CounterVec
	matches  *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  prometheus.Histogram
	prepared prometheus.Histogram
	policies prometheus.Gauge
	lost     prometheus.Counter
	others   prometheus.Counter
}

func newMetrics(r *prometheus.Registry, connections, requests func() float64) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_requests_total", Help: "Requests, by action (allow, detect, deny, error) and by the digest of the policy."}, []string{"action", "policy"}),
		matches:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_rule_matches_total", Help: "Requests in which a rule found something."}, []string{"rule"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_errors_total", Help: "Requests that were not inspected, by reason: message, version, policy, deadline, busy, panic, engine."}, []string{"reason"}),
		seconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hapsnap_waf_inspection_seconds", Help: "How long the inspection of a request took.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14)}),
		prepared: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hapsnap_waf_policy_compile_seconds", Help: "How long the preparation of a policy took.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 10)}),
		policies: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hapsnap_waf_policies", Help: "Policies that are held, prepared."}),
		lost:     prometheus.NewCounter(prometheus.CounterOpts{Name: "hapsnap_waf_audit_lost_total", Help: "Lines of the audit log that were left out because nobody read fast enough."}),
	}
	m.others = prometheus.NewCounter(prometheus.CounterOpts{Name: "hapsnap_waf_other_rules_total", Help: "Requests for which HAProxy asked for a version of the rules that the agent does not have."})
	r.MustRegister(m.requests, m.matches, m.errors, m.seconds, m.prepared, m.policies, m.lost, m.others,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_waf_connections", Help: "Connections of HAProxy."}, connections),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_waf_requests_under_way", Help: "Requests that wait for an inspection or are inspected."}, requests))
	for _, reason := range reasons {
		m.errors.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) answered(action, digest string) { m.requests.WithLabelValues(action, digest).Inc() }

func (m *metrics) matched(rule int) { m.matches.WithLabelValues(strconv.Itoa(rule)).Inc() }

// forget removes the counts of a policy that is no longer in memory.
func (m *metrics) forget(digest string) {
	if digest != noPolicy {
		m.requests.DeletePartialMatch(prometheus.Labels{"policy": digest})
	}
}
